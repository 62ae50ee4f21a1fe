"""The command that repeats a run: the first line of its config.yaml, and what a resume changes in it."""

import re
import shlex
from collections.abc import Mapping, Sequence
from typing import TypeVar

import rlkit

LENGTHS = ("iterations", "env_steps")
EXCLUSIVE = (LENGTHS, ("evaluate_every", "evaluations"))  # one takes the place of the other
VALIDATION = ("evaluate_every", "evaluations", "validation_episodes")
RESUMABLE = (
    *LENGTHS,
    *VALIDATION,
    "checkpoint_every",
    "keep",
    "measure",
    "logger",
    "device",
    "threads",
    "policy.server",  # which may have moved
    "policy.exchange",
)
MOVABLE = ("algo.storage",)  # folders of a run that may have moved with it
COMMAND = "; to repeat: python -m rlkit.run "
LONGER = ", of another length at first"  # before the command: a schedule of the whole run went otherwise
WORD = re.compile(r"""(?:\$'(?:\\.|[^'\\])*'|'[^']*'|"[^"]*"|[^\s'"])+""")  # as `quoted` writes them

V = TypeVar("V")


def line(argv: Sequence[str]) -> str:
    """The line that says what was given; the folder is left out, as it is taken."""
    return f"# rlkit {rlkit.__version__}{COMMAND}{' '.join(quoted(word) for word in argv if key(word) != 'out')}"


def changed(first: str, argv: Sequence[str], goes_on: bool = False) -> str:
    """The line of a run that `argv` continues: what that changes takes the place of what was given before.

    A file that begins with a key has lost its line, and gets one without a command, so that no key stands there twice.
    """
    if not first.startswith("#"):
        return f"# rlkit {rlkit.__version__}"
    head, found, command = first.partition(COMMAND)
    if goes_on and found and has_length(argv) and LONGER not in head:  # to start with that length is another run
        head += LONGER
    was = {key(word.lstrip("$'")): word for word in WORD.findall(command)}  # some are quoted
    # Files may have moved, also those that a file of keys names.
    kept = {key(word) for word in argv} - {"resume", "trust"} if "config" in was else {*RESUMABLE, *MOVABLE, *was}
    now = {key(word): quoted(word) for word in argv if key(word) in kept}
    return f"{head}{found}{' '.join((without_rivals(was, now) | now).values())}" if found and now else first


def rivals(key: str) -> set[str]:
    """The keys that exclude a key, and that it takes the place of."""
    return {other for group in EXCLUSIVE if key in group for other in group} - {key}


def without_rivals(below: Mapping[str, V], above: Mapping[str, object]) -> dict[str, V]:
    """The keys that stay when others are put over them: of two that exclude each other, the one above counts."""
    gone = {key for group in EXCLUSIVE if above.keys() & set(group) for key in group}
    return {key: value for key, value in below.items() if key not in gone}


def asks_nothing(word: str) -> bool:
    """Whether a word says `none` of a length: then the length is what it is without that word."""
    return key(word) in LENGTHS and word.partition("=")[2].lower() in ("none", "null", "~")


def has_length(argv: Sequence[str]) -> bool:
    return any(key(word) in LENGTHS for word in argv)


def lengths(text: str) -> list[str]:
    """The lines of a config.yaml that say how long the run is."""
    return [line for line in text.splitlines() if line.strip().partition(":")[0] in LENGTHS]


def in_processes(key: str, value: object) -> bool:
    """Whether this is env.processes, which changes no episode: as yes or no, since other environments may count so."""
    return key == "env.processes" and isinstance(value, bool)


def key(word: str) -> str:
    return word.partition("=")[0]


def quoted(word: str) -> str:
    """A word as a shell reads it, on one line: a line break would end the comment that it stands in."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(map(escaped, word)) + "'"


def escaped(c: str) -> str:
    """A character within $'...'; there, \\xHH is a byte, so only ASCII is written so."""
    if c in "\\'":
        return f"\\{c}"
    if c.isprintable():
        return c
    return ascii(c)[1:-1] if c.isascii() else f"\\U{ord(c):08x}"
