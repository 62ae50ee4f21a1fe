"""Which page a command line asks for: a map to learn on, a run, a comparison, or the home of many runs."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import torch
from annotated_types import Ge, Le

from rlkit.comparison.grid import is_comparison
from rlkit.control.tabular import TabularEnv
from rlkit.errors import UserError
from rlkit.pages.home import Home, comparison_site, is_home, is_report, is_run
from rlkit.pages.lab import Lab
from rlkit.pages.runs import RunPage
from rlkit.pages.server import Site
from rlkit.paths import home
from rlkit.settings import config, plugins, schema
from rlkit.settings.assemble import assemble
from rlkit.settings.given import Given, Trust, of_files, parse
from rlkit.terminal import warn

OWN = ("runs", "comparisons")  # where commands write, without out=
Port = Annotated[int, Ge(0), Le(65535)]


@dataclass(frozen=True)
class Play:
    """The keys of the command line that are the page's own."""

    port: Port = 0  # of http://127.0.0.1:PORT/; 0: any that is free
    open: bool = True  # show the page in a browser
    trust: Trust = False  # run code from outside rlkit that the run's folder names; changed: also where it has changed


def page_keys(argv: Sequence[str]) -> tuple[Play, list[str]]:
    """The page's own keys, and the other words."""
    schema.once(argv)
    pairs = [word.partition("=") for word in argv]
    own = {key: value for key, equals, value in pairs if equals and key in schema.settable(Play)}
    words = ["".join(pair) for pair in pairs if pair[0] not in own]
    return config.build(Play, own, "run"), words


def site(words: Sequence[str], trust: Trust = False) -> Site:
    """The page that a command line asks for."""
    if not words:
        return home_here(trust)
    if "=" not in words[0] or os.path.isdir(words[0]):
        folder = home(words[0])
        if strange := [word for word in words[1:] if not (of_files(word) and is_run(folder))]:
            raise UserError(
                f"'{strange[0]}' is not understood: beside a folder only port=, open= and trust= are, and beside a "
                "run's the keys of files that have moved, as in env.source=FILE"
            )
        if is_home(folder):
            return home_of([folder], trust)
        if not is_run(folder) and (is_comparison(folder) or is_report(folder)):
            return comparison_site(folder)
        page = RunPage(words[0], assemble, trust, at_new_places(words, trust))
        if page.reason:
            warn(f"rlkit: only what was written can be shown: {page.reason}")
        return page.site()
    keys = dict(word.partition("=")[::2] for word in words)
    for key in keys:
        if key not in ("env", "algo", "seed") and not key.startswith("env."):
            known = [*schema.settable(Play), "env", "env.KEY", "algo", "seed"]
            raise UserError(f"no key '{key}': {plugins.nearest(key, known)}; step sizes are changed on the page")
    if not keys.get("env"):
        raise UserError("which environment? Give env=NAME, or the folder of a run")
    refuse_without_map({key.removeprefix("env."): x for key, x in keys.items() if key.startswith("env.")}, keys["env"])
    return Lab([word for word in words if not word.startswith("algo=")], assemble, keys.get("algo")).site()


def at_new_places(words: Sequence[str], trust: Trust) -> Given | None:
    """The configuration of a run whose files have moved; none where nothing says so."""
    if len(words) == 1:
        return None
    line = parse(words[1:])
    line.trust = trust
    return config.at_new_places(words[0], line)


def home_here(trust: Trust) -> Site:
    """The runs and comparisons that commands in this directory wrote."""
    folders = [Path(name) for name in OWN if os.path.isdir(name) and not os.path.islink(name)]
    if not folders:
        raise UserError("what do you want to see? There is no folder runs/ here: give env=NAME, or the folder of a run")
    return home_of(folders, trust)


def home_of(folders: list[Path], trust: Trust) -> Site:
    if trust:
        raise UserError(f"trust={str(trust).lower()} is for the folder of one run: give that, or leave trust out")
    return Home(folders, assemble).site()


def refuse_without_map(fields: dict[str, object], name: str) -> None:
    """Only an environment that says how its states lie on a map can be drawn."""
    if has_map(name, fields):
        return
    tables = [other for other in plugins.names("envs") if makes_table(other)]
    there = [other for other in tables if has_map(other, {})]
    raise UserError(
        f"env={name} has no map to play on: use env={' or env='.join(there)}; "
        "any run can be looked at: python -m rlkit.play RUN_FOLDER"
    )


def makes_table(name: str) -> bool:
    """Whether one of rlkit's own environments is a table: the others are not made, which would take seconds."""
    return plugins.load("envs", name).make.__annotations__["return"] is TabularEnv


def has_map(name: str, fields: dict[str, object]) -> bool:
    module = plugins.load("envs", name)
    env = module.make(config.build(module.Config, fields, "env"), 0, torch.device("cpu"))
    return isinstance(env, TabularEnv) and env.grid is not None
