"""rlkit COMMAND [WORDS ...]; python -m rlkit is the same.

    run       train an algorithm on an environment, or continue a run
    evaluate  measure a run, or compare it with another
    compare   many runs: algorithms, environments, seeds, with statistics
    tune      search settings of an algorithm, and measure the best beside the default
    plan      predict time and memory of a step of a language model on GPUs
    play      look at a run, or at a map to learn on, in a browser
    new       create an algorithm, an environment, a reward or a task of your own
    list      the built-in algorithms and environments

rlkit COMMAND --help describes a command.
"""

import importlib
import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from contextlib import suppress

from rlkit.console import guarded
from rlkit.terminal import only_printing, say

COMMANDS = ("run", "evaluate", "compare", "tune", "plan", "play", "new")


def main(argv: Sequence[str] | None = None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in COMMANDS:
        see_this_folder()
        command = importlib.import_module(f"rlkit.{words[0]}")
        return int(command.main(words[1:]))
    with only_printing():
        return guarded(own, words)


def see_this_folder() -> None:
    """Let plug-ins be imported from the current folder, as with `python -m`; a console script lacks it."""
    with suppress(OSError):  # it was deleted: the command says so
        if not sys.flags.safe_path and not {"", os.getcwd()} & set(sys.path):
            sys.path.insert(0, os.getcwd())


def own(words: list[str]) -> int:
    """The words that are not a command: list, help, version."""
    from rlkit.errors import UserError
    from rlkit.settings.plugins import nearest

    if words in (["--version"], ["-V"]):
        return 0  # printed before anything else
    if not words or words[0] in ("-h", "--help", "help"):
        say((__doc__ or "").rstrip())
        return 0
    if words[0] != "list":
        raise UserError(f"no command '{words[0]}': {nearest(words[0], [*COMMANDS, 'list'])}")
    if {"-h", "--help"} & set(words[1:]):  # as of every other command
        say((__doc__ or "").rstrip())
        return 0
    if words[1:]:
        raise UserError(f"'{words[1]}' is not understood: rlkit list takes no more words")
    show_list()
    return 0


def show_list() -> None:
    from rlkit.python.listing import list_algorithms, list_environments

    width = min(100, shutil.get_terminal_size().columns)
    for title, found in (("algo=NAME", list_algorithms()), ("env=NAME", list_environments())):
        say(f"\n{title}")
        for name, about in found.items():
            indent = " " * 20
            say(textwrap.fill(f"  {name:<18}{about}", width, subsequent_indent=indent))


if __name__ == "__main__":
    sys.exit(main())
