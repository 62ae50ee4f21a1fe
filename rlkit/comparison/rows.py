"""The rows and columns of a comparison: algorithms with their settings, environments with their problems."""

import hashlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Literal, get_origin, get_type_hints

from rlkit.comparison.caveats import apart
from rlkit.comparison.grid import PLACE
from rlkit.comparison.records import PROBLEMS, task
from rlkit.errors import UserError
from rlkit.fields import Escapes, Several
from rlkit.settings import config, plugins, repeat, schema
from rlkit.settings.plugins import short

Keys = dict[str, str]
Scoped = Sequence[tuple[str, str, str]]  # NAME, KEY, VALUE
Kind = Literal["algo", "env"]
OWN = re.compile(r"(?![A-Za-z]:[/\\])(?P<name>[^:=;/\\]+):(?P<plugin>.+)")  # NAME:PLUGIN, and not C:\mine.py
PLAYED = ("env.rows", "env.luck")  # keys of an environment that say how it is played: they belong to the algorithm
PRESET = "algo.preset"  # a word that stands for several fields, and is none itself
LONGEST = 60  # characters of a name in a folder's name
BRACKETS = {"[": 1, "{": 1, "(": 1, "]": -1, "}": -1, ")": -1}


@dataclass(frozen=True)
class Line:
    """A row, which is an algorithm with settings, or a column, which is an environment with settings."""

    name: str  # in tables and figures
    slug: str  # in the names of run folders
    plugin: str
    called: frozenset[str]  # the NAMEs of NAME:KEY=VALUE that it listens to
    keys: Keys  # the settings that tell it from the other lines of the same plug-in


def lines(kind: Kind, given: Mapping[str, str], keys: Keys, scoped: Scoped, envs: Sequence[str]) -> list[Line]:
    """The rows (of algo) or columns (of env) that were asked for; a key with several values makes one of each.

    Arguments:
        given: {name: plug-in} of the algorithms, or of the environments.
        keys: the keys of all runs.
        scoped: the keys of some.
        envs: the plug-ins of all environments, of which keys such as env.rows are.
    """
    files = any(key == "config" for key in (*keys, *(key for _, key, _ in scoped)))
    found = []
    for name, plugin in given.items():
        called = {name} | ({plugin, short(plugin)} - {other for other in given if given[other] != plugin})
        own = told_to(called, scoped)
        told = repeat.without_rivals(keys, own) | own
        mine = {key: value for key, value in told.items() if makes_rows(key) == (kind == "algo")}
        owners = [plugin] if kind == "algo" else []
        axes = {
            key: alternatives(key, value, owners, envs if kind == "algo" else [plugin]) for key, value in mine.items()
        }
        axes = {key: values for key, values in axes.items() if len(values) > 1}
        shown = {key: dict(zip(values, different(key, values), strict=True)) for key, values in axes.items()}
        for chosen in product(*axes.values()):
            pairs = dict(zip(axes, chosen, strict=True))
            words = {key: shown[key][value] for key, value in pairs.items()}
            typed = {key: axes[key][value] for key, value in pairs.items()}
            problems = {x for key, value in {**mine, **typed}.items() if is_problem(key) for x in (value, last(value))}
            title = titled(with_problem(name, plugin, told, axes, files), words)
            found.append(Line(title, slugged(name, pairs, plugin), plugin, frozenset(called | problems), typed))
    return found


def told_to(called: Collection[str], scoped: Scoped) -> Keys:
    """The keys for these names: of two for one run, and of two that exclude each other, the last one counts."""
    own: Keys = {}
    for name, key, value in scoped:
        if name in called:
            own = repeat.without_rivals(own, {key: value}) | {key: value}
    return own


def makes_rows(key: str) -> bool:
    """Whether several values of a key make rows; those of an environment's key make columns."""
    return not key.startswith("env.") or key in PLAYED


def with_problem(name: str, plugin: str, told: Keys, axes: Mapping[str, Keys], files: bool) -> str:
    """gym:CartPole-v1 of a column that other keys tell from its like; a row, and a name of your own, stay.

    files: whether files give keys, too: they may say another game than the default one.
    """
    if name != short(plugin) or not axes or any(map(makes_rows, axes)) or any(map(is_problem, axes)):
        return name
    plain = () if files else fields(plugins.load("envs", plugin).Config)
    usual = {x.name: x.default for x in plain if isinstance(x.default, str)}
    return task(plugin, usual | {key.removeprefix("env."): value for key, value in told.items() if is_problem(key)})


def is_problem(key: str) -> bool:
    """Whether a key says which problem an environment plays."""
    return key in {f"env.{name}" for name in PROBLEMS}


def different(key: str, values: Keys) -> list[str]:
    """Each value as it stands in a name: of a problem its last part, where no other problem has the same."""
    typed = list(values.values())
    ends = [last(value) for value in typed] if is_problem(key) else typed
    return apart(ends if len(set(ends)) == len(ends) else typed)


def last(value: str) -> str:
    """Pong-v5 of ALE/Pong-v5."""
    return value.rpartition("/")[2]


def titled(name: str, words: Keys) -> str:
    """`ppo lr=1e-3`, and gym:Acrobot-v1 of the key that says the problem."""
    inner = [key.partition(".")[2] or key for key in words]
    ends = [key if inner.count(end) > 1 else end for key, end in zip(words, inner, strict=True)]
    problem = "".join(f":{value}" for key, value in words.items() if is_problem(key))
    rest = [f"{end}={value}" for end, (key, value) in zip(ends, words.items(), strict=True) if not is_problem(key)]
    return " ".join([f"{name}{problem}", *rest])


def slugged(name: str, pairs: Keys, plugin: str) -> str:
    """The part of a folder's name: the same for the same values, however they were written."""
    if not pairs and name == short(plugin):
        return name
    ends = [("" if is_problem(key) else key.rpartition(".")[2], value) for key, value in pairs.items()]
    text = "_".join(part for part in [name, *(part for end in ends for part in end)] if part)
    plain = re.sub(r"[^\w.,+-]", "_", text)[:LONGEST]
    exact = f"{name} {pairs}".encode("utf-8", "surrogatepass")
    return plain if plain == text else f"{plain}-{hashlib.blake2b(exact, digest_size=4).hexdigest()}"


def alternatives(key: str, text: str, algos: Sequence[str], envs: Sequence[str]) -> Keys:
    """{value: as it was written} of the values that make a line each; one where the text is one value.

    A comma parts the values of a field that takes one number or word. Where a comma belongs to the value, as in tuples
    and lists, `;` does. A text for a model is never parted.
    """
    hint = hint_of(key, algos, envs) if {",", ";"} & set(text) else None
    separator = "" if hint is None else separator_of(key, hint)
    parts = [part for part in cut(text, separator) if part] if separator in text and separator else []
    if len(parts) < 2:
        return {text: text}
    if key in PLACE:
        raise UserError(f"{key}={text} changes where a run is computed, and not what it is: give one value")
    found: Keys = {}
    for part in parts:
        value = schema.show(schema.validate(key, schema.Typed(part), Any if key.count(".") > 1 else hint))
        if value in found:
            raise UserError(f"{key}={text} has {value} twice: give each value once")
        found[value] = part
    return found


def separator_of(key: str, hint: schema.Hint) -> str:
    """What stands between the values of a field, of which each makes a line: nothing in a text for a model."""
    marks = schema.metadata(hint)
    if any(isinstance(mark, Escapes) for mark in marks):
        return ""
    lists = any(get_origin(member) in (tuple, list, dict) or member is Any for member in schema.members(hint))
    return ";" if lists or key.count(".") > 1 or any(isinstance(mark, Several) for mark in marks) else ","


def cut(text: str, separator: str) -> list[str]:
    """The parts of a text; a separator within brackets parts nothing."""
    parts, depth = [""], 0
    for letter in text:
        depth += BRACKETS.get(letter, 0)
        if letter == separator and depth <= 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts]


def unparted(key: str, text: str) -> str:
    """What to say of words with commas that are one value, as `;` parts those within a mapping such as env.kwargs.

    Nothing of a sentence, in which a comma is a comma.
    """
    parts = cut(text, ",")
    sentence = any(" " in part for part in parts)
    if key.count(".") < 2 or len(parts) < 2 or len(cut(text, ";")) > 1 or sentence:
        return ""
    noun = "row" if makes_rows(key) else "column"
    return f"{key}={text} is one value; for a {noun} of each, write '{key}={';'.join(parts)}'"


def hint_of(key: str, algos: Sequence[str], envs: Sequence[str]) -> schema.Hint | None:
    """The type of the field that a key sets; none where there is no such field: then the run says so."""
    if key == PRESET:
        return str | None
    section, dot, rest = key.partition(".")
    head = (rest if dot else key).partition(".")[0]
    for cls in classes(section if dot else "run", algos, envs):
        if head in schema.settable(cls):
            found: schema.Hint = get_type_hints(cls, include_extras=True)[head]
            return found
    return None


def classes(section: str, algos: Sequence[str], envs: Sequence[str]) -> Iterator[type]:
    """The dataclasses that a section's keys may be of."""
    if section == "run":
        yield config.Run
    elif section == "policy":
        yield from (config.network_class(kind) for kind in ("control", "text"))
    elif section == "algo":
        yield from (plugins.load("algorithms", name).Config for name in algos)
    elif section == "env":
        yield from (plugins.load("envs", name).Config for name in envs)


def refuse_crossed(rows: Iterable[Line], columns: Iterable[Line], scoped: Scoped) -> None:
    """Refuse a key of one environment alone that makes rows, and one of one algorithm alone that makes columns."""
    rows, columns = list(rows), list(columns)
    made = {key for line in (*rows, *columns) for key in line.keys}
    for name, key, value in scoped:
        side, noun, other = (rows, "rows", "environment") if makes_rows(key) else (columns, "columns", "algorithm")
        if any(name in line.called for line in side):
            continue
        plays = [line.plugin for line in columns]
        parted = alternatives(key, value, [line.plugin for line in rows], plays)
        if made & {key, *repeat.rivals(key)} or len(parted) > 1:
            raise UserError(
                f"{name}:{key}={value}: {key} makes {noun}, which are the same for every {other}: give it for all, or "
                f"leave out {name}:{key}"
            )


def refuse_hidden(rows: Iterable[Line], columns: Iterable[Line], keys: Keys, scoped: Scoped) -> None:
    """Refuse several values of a key for all of which none makes a line, as each has the key, or its rival, of its own.

    Raises: UserError, naming one of those.
    """
    rows, columns = list(rows), list(columns)
    made = {key for line in (*rows, *columns) for key in line.keys}
    for key, text in keys.items():
        above = [word for word in scoped if word[1] in {key, *repeat.rivals(key)}]
        if not above or key in made:
            continue
        if len(alternatives(key, text, [line.plugin for line in rows], [line.plugin for line in columns])) > 1:
            name, own, value = above[0]
            noun = "rows" if makes_rows(key) else "columns"
            raise UserError(
                f"{key}={text} would make {noun}, but {name}:{own}={value} takes its place in all of them: leave out "
                "one of the two"
            )
