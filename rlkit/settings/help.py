"""What `--help` prints: the plug-ins, or every key of those that were named."""

import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.table import Table
from rich.text import Text

from rlkit.errors import UserError
from rlkit.screen import Screen
from rlkit.settings import plugins, schema, sections
from rlkit.settings.config import KINDS, Given, Run, network_class
from rlkit.settings.given import HELP as HELP_WORDS
from rlkit.terminal import say

if TYPE_CHECKING:
    from rlkit.api import Env

HELP = """python -m rlkit.run algo=NAME env=NAME [KEY=VALUE ...]  train
python -m rlkit.run config=FILE.yaml [KEY=VALUE ...]    with the keys of a file, such as another run's config.yaml
python -m rlkit.run resume=RUN_FOLDER [trust=true]      continue a run exactly; trust: run the code that it names
python -m rlkit.run algo=NAME [env=NAME] --help         the keys that people change first
python -m rlkit.run algo=NAME [env=NAME] --help all     every key
NAME may be your own: a dotted module name, or a path ending in .py"""

FIRST = (  # what people change first, in this order
    *("env.id", "env.source", "env_steps", "iterations", "algo.lr", "env.rows"),
    *("algo.horizon", "algo.n_step", "algo.group", "algo.gamma"),
    *("algo.clip", "algo.clip_high", "algo.entropy_coef", "algo.temperature", "algo.beta", "algo.kl_coef"),
    *("policy.model", "policy.hidden", "policy.temperature", "env.max_tokens", "seed", "out", "evaluations"),
)

Page = tuple[str, list[tuple[str, str]]]  # a title, and each key (or name) with its meaning


def show_help(given: Given) -> None:
    """Print the plug-ins, or every key of those that were named, the policy's included where they are known."""
    policy, missing = None, ""
    if "name" in given.env:
        module = plugins.load("envs", given.env["name"])
        returned = returned_by(module.make)
        try:
            # Where `make` says what it makes, nothing has to be made: it may need keys, or what is not installed.
            kind = (
                returned.kind if inspect.isclass(returned) and hasattr(returned, "kind") else made(module, given).kind
            )
            policy = network_class(kind)
        except UserError as error:
            missing = str(error)
    print_help(given, policy, missing)


def returned_by(make: Callable[..., object]) -> object:
    """The type that a function says it returns; nothing where its annotations name what is not there at run time."""
    try:
        return inspect.signature(make, eval_str=True).return_annotation
    except Exception:  # whatever evaluating the annotations of a user's function raises
        return inspect.Signature.empty


def made(module: ModuleType, given: Given) -> "Env":
    """The environment that was asked for."""
    import torch  # not at the top: a list of the plug-ins needs none

    env: Env = module.make(schema.build(module.Config, given.env, "env"), 0, torch.device("cpu"))
    return env


def print_help(given: Given, policy: type | None = None, missing: str = "") -> None:
    """Print the plug-ins, or the keys of those that were named: default (as `configs/` has it) and meaning.

    `--help` shows the keys that people change first, `--help all` every key, with its type.

    `policy` is the dataclass of its keys, or `missing` says why that is not known.
    """
    named = {s: given.section(s)["name"] for s in KINDS if "name" in given.section(s)}
    if named and given.help != "all":
        print_first(given, named, policy, missing)
        return
    pages: list[Page] = []
    for section, name in named.items():
        module = plugins.load(KINDS[section], name)
        title = f"{section}={name}: {(module.__doc__ or '').partition(chr(10))[0]}"
        rows = schema.explain(module.Config, given.section(section), section)
        if section == "algo" and (systems := sections.presets(name)):
            rows.append(("algo.preset=none", f"set what another system does under this name ({', '.join(systems)})"))
        pages.append((title, rows))
    if policy is not None:
        pages.append(("the policy", schema.explain(policy, given.policy, "policy")))
    if missing:
        pages.append((f"the policy: its keys depend on the environment, and {missing}", []))
    for section, kind in KINDS.items():
        if not named:
            pages.append((f"{section}=NAME", [(n, plugins.summary(kind, n)) for n in plugins.names(kind)]))
    pages.append(("the run", schema.explain(Run, given.run, "run")))
    print_pages(HELP, pages)


def print_first(given: Given, named: dict[str, str], policy: type | None, missing: str) -> None:
    """Print the keys that people change first, a line each, and how to see all."""
    of: list[tuple[type, dict[str, Any], str]] = [(Run, given.run, "run")]
    of += [
        (plugins.load(KINDS[section], name).Config, given.section(section), section) for section, name in named.items()
    ]
    of += [(policy, given.policy, "policy")] if policy is not None else []
    there = dict(row for cls, values, section in of for row in schema.explain(cls, values, section, typed=False))
    keys = {left.partition("=")[0]: left for left in there}
    own = [key for key in keys if named.get(section := key.partition(".")[0], "") not in known(section)]
    rows = [(keys[key], there[keys[key]]) for key in dict.fromkeys([*FIRST, *own]) if key in keys]
    room = Screen().width - max(len(left) for left, _ in rows) - 4  # two spaces before a key, two behind it
    print_pages(
        "\n".join(
            clause(f"{section}={name}: {plugins.summary(KINDS[section], name)}", Screen().width)
            for section, name in named.items()
        ),
        [("what people change first", [(left, clause(meaning, room)) for left, meaning in rows])],
    )
    if missing:
        say(f"\nthe policy: its keys depend on the environment, and {missing}")
    words = shlex.join(word for word in given.argv if word not in HELP_WORDS)
    say(f"\nevery key, with what is allowed:\n  python -m rlkit.run {words} --help all")


def known(section: str) -> list[str]:
    """The names of the shipped plug-ins; every key of others is shown."""
    return ["", *plugins.names(KINDS[section])] if section in KINDS else [""]


def clause(text: str, room: int) -> str:
    """The beginning of a text that fits into a line: whole clauses where they do, else whole words."""
    for end in ("", "; "):
        short = text.partition(end)[0] if end else text
        if len(short) <= room:
            return short
    return textwrap.shorten(short, max(room, 20), placeholder=" ...")


def print_pages(text: str, pages: Iterable[Page]) -> None:
    """Print a text, and below it titled lists of keys with their meaning."""
    console = Screen()
    console.print(Text(text))
    for title, rows in pages:
        table = Table.grid(padding=(0, 2))
        for left, right in rows:
            table.add_row(Text(f"  {left}", style="cyan", overflow="fold"), Text(right))
        page = Group(Text(f"\n{title}", style="bold"), *([table] if rows else []))
        for line in console.render_lines(page, pad=False):
            words = Text.assemble(*((part.text, part.style or "") for part in line))
            words.rstrip()  # rich fills a table's cells with spaces
            console.print(words)
