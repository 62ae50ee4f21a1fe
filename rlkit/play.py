"""Look at it in a browser, from this machine only; nothing is written.

python -m rlkit.play env=NAME [env.KEY=V ...] [algo=NAME] [seed=N]
    a map: step every algorithm that keeps a table, and change the world
python -m rlkit.play RUN_FOLDER
    a run, finished or still going on: its curves, what its model writes and
    how each token was judged, or a replay of what its policy does
"""

import os
import sys
import webbrowser
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Annotated, Any

import torch
from annotated_types import Ge, Le

from rlkit import config, plugins, schema, usage
from rlkit.api import UserError
from rlkit.pages.lab import Lab
from rlkit.pages.runs import RunPage
from rlkit.pages.server import Server, Site
from rlkit.run import guarded
from rlkit.settings.assemble import assemble

Port = Annotated[int, Ge(0), Le(65535)]


@dataclass(frozen=True)
class Play:
    """The keys of the command line that are the page's own."""

    port: Port = 0  # of http://127.0.0.1:PORT/; 0: any that is free
    open: bool = True  # show the page in a browser


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(play, sys.argv[1:] if argv is None else list(argv))


def play(argv: list[str]) -> int:
    if not argv or {"-h", "--help"} & set(argv):
        usage.print_pages(__doc__ or "", [("the page", schema.explain(Play, {}, "run"))])
        return 0
    asked, words = page_keys(argv)
    server = Server(site(words), asked.port)
    print(f"{server.url}  (Ctrl-C ends it)", flush=True)
    if asked.open and has_screen():
        webbrowser.open(server.url)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        server.server_close()
    return 0


def page_keys(argv: Sequence[str]) -> tuple[Play, list[str]]:
    """The page's own keys, and the other words."""
    pairs = [word.partition("=") for word in argv]
    own = {key: value for key, equals, value in pairs if equals and key in schema.settable(Play)}
    words = ["".join(pair) for pair in pairs if pair[0] not in own]
    if not words:
        raise UserError("what shall be shown? Give env=NAME, or the folder of a run")
    return config.build(Play, own, "run"), words


def site(words: Sequence[str]) -> Site:
    """The page that a command line asks for."""
    if "=" not in words[0] or os.path.isdir(words[0]):
        if len(words) > 1:
            raise UserError(f"'{words[1]}' is not understood: beside a run's folder only port= and open= are")
        return RunPage(words[0], assemble).site()
    keys = dict(word.partition("=")[::2] for word in words)
    for key in keys:
        if key not in ("env", "algo", "seed") and not key.startswith("env."):
            known = [*schema.settable(Play), "env", "env.KEY", "algo", "seed"]
            raise UserError(f"no key '{key}': {plugins.nearest(key, known)}; step sizes are changed on the page")
    if not keys.get("env"):
        raise UserError("which environment? Give env=NAME, or the folder of a run")
    refuse_without_map({key.removeprefix("env."): x for key, x in keys.items() if key.startswith("env.")}, keys["env"])
    return Lab([word for word in words if not word.startswith("algo=")], assemble, keys.get("algo")).site()


def refuse_without_map(fields: dict[str, Any], name: str) -> None:
    """Only an environment that says how its states lie on a map can be drawn."""
    if has_map(name, fields):
        return
    there = []
    for other in plugins.names("envs"):
        with suppress(UserError, ImportError):  # one that needs more than its name, or than what is installed
            there += [other] if has_map(other, {}) else []
    raise UserError(
        f"env={name} has no map to play on: use env={' or env='.join(there)}; "
        "any run can be looked at: python -m rlkit.play RUN_FOLDER"
    )


def has_map(name: str, fields: dict[str, Any]) -> bool:
    module = plugins.load("envs", name)
    env = module.make(config.build(module.Config, fields, "env"), 0, torch.device("cpu"))
    return getattr(env, "grid", None) is not None


def has_screen() -> bool:
    """Whether a browser has somewhere to appear; one of text would take over the terminal."""
    return sys.platform in ("darwin", "win32") or bool(os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY"))


if __name__ == "__main__":
    sys.exit(main())
