"""A dataclass as a schema: validated by pydantic, filled from the text of a command line, explained to people.

Separate from `config.py` because it knows nothing of runs: only fields, their types, and the comments beside them.
"""

import math
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin, get_type_hints

import yaml
from annotated_types import Ge, Gt, Le, Lt
from pydantic import ConfigDict, PydanticUserError, TypeAdapter

from rlkit.errors import UserError, one_line
from rlkit.fields import Boundless, Escapes, Needs, Several
from rlkit.settings import strict_yaml
from rlkit.settings.comments import comments as comments
from rlkit.settings.synonyms import instead
from rlkit.settings.texts import BARE, CLOSE, as_json, number, scalar, unescaped
from rlkit.settings.texts import Typed as Typed  # `as`: others take it from here

T = TypeVar("T")
Hint = object  # what stands behind a field's colon: a class, a union, Literal[...], Annotated[...]


def build(cls: type[T], values: Mapping[str, object], section: str) -> T:
    """Make a `cls` from raw values (text from a command line, or what YAML holds); each mistake is one line."""
    known, ready = settable(cls), convert(cls, values, section)
    missing = [n for n, f in known.items() if n not in ready and default(f) is MISSING]
    if missing:
        hints = get_type_hints(cls, include_extras=True)
        raise UserError(f"{_key(section, missing[0])} must be given: {allowed(hints[missing[0]])}")
    try:
        return cls(**ready)
    except ValueError as error:  # a check across fields, in __post_init__
        raise UserError(f"{section}: {one_line(error)}") from None


def convert(cls: type, values: Mapping[str, object], section: str) -> dict[str, object]:
    """The values as the fields' types want them; a key that is none and a value that is not allowed are refused."""
    hints, known = get_type_hints(cls, include_extras=True), settable(cls)
    ready: dict[str, object] = {}
    for key, raw in sorted(values.items(), key=lambda item: item[0].count(".")):  # `kwargs` before `kwargs.render`
        head, _, inner = key.partition(".")
        if key == "name" and section in ("algo", "env"):
            continue  # says which plug-in this is
        if head not in known or (inner and not any(get_origin(m) is dict for m in members(hints[head]))):
            raise UserError(f"no key '{_key(section, key)}': {_untyped(cls, head)}{instead(key, section, list(known))}")
        usual = default(known[head])
        if inner:
            of_values = next(get_args(m)[1] for m in members(hints[head]) if get_origin(m) is dict)
            value = validate(_key(section, key), raw, Any if of_values is object else of_values)
            ready[head] = {**(held if isinstance(held := ready.get(head, usual), dict) else {}), inner: value}
        elif type(raw) is type(usual) and raw == usual:  # also where its own type refuses it, as in `n: int = None`
            ready[head] = usual
        else:
            ready[head] = validate(_key(section, key), raw, hints[head], usual)
    return ready


def _untyped(cls: type, name: str) -> str:
    """What is said of a name that a class gives a value and no type."""
    held = next((vars(parent)[name] for parent in cls.__mro__ if name in vars(parent)), None)
    constant = isinstance(held, bool | int | float | str | tuple)
    return f"Config gives {name} no type, so it is a constant: write {name}: TYPE = VALUE; " if constant else ""


def validate(key: str, raw: object, hint: Hint, usual: object = MISSING) -> object:
    """One value of one field, or a line that names the key, what was given and what is allowed; `usual` always is."""
    wrong = UserError(f"{key}={_cited(raw)} is not allowed: give {allowed(hint)}")
    try:
        form: Any = hint  # pydantic's own type for hints leaves some of them out
        check_list(key, raw, hint)
        read = _read(raw, form)
        if isinstance(raw, Typed) and isinstance(read, dict):
            check_mapping(key, raw, read)
        value = TypeAdapter(form, config=ConfigDict(arbitrary_types_allowed=True)).validate_python(read)
    except (ValueError, RecursionError, PydanticUserError):  # also of too many digits, and of a type it cannot read
        raise wrong from None
    except yaml.YAMLError:
        how = CLOSE if hint is Any else f"give {allowed(hint)}"
        raise UserError(f"{key}={_cited(raw)} cannot be read: {how}") from None
    parts: Sequence[object] = value if isinstance(value, list | tuple) else (value,)
    if any(isinstance(part, float) and math.isnan(part) for part in parts):
        raise wrong
    if value != usual and (sizes := {size for part in parts if (size := _size(part, hint))}):
        raise UserError(f"{key}={_cited(raw)} is not allowed: give {allowed(hint)}, {sizes.pop()}")
    return value


def check_mapping(key: str, raw: str, given: Mapping[object, object]) -> None:
    """Refuse {numbers:9}, which YAML reads as a name without a value: the blank behind the colon is missing."""
    apart = raw
    for name in [name for name, x in given.items() if x is None and isinstance(name, str) and ":" in name]:
        if f'"{name}' not in raw and f"'{name}" not in raw:  # in quotes it is meant so
            apart = apart.replace(name, name.replace(":", ": ", 1))
    if apart != raw:
        raise UserError(f"{key}={_cited(raw)} lacks a blank behind a colon: write '{key}={_cited(apart)}', in quotes")


def check_list(key: str, raw: object, hint: Hint) -> None:
    """Refuse [END] where texts are for a model: it may be meant as a list, or as the text that it is."""
    if not isinstance(raw, str) or not BARE.match(raw) or not any(isinstance(mark, Escapes) for mark in metadata(hint)):
        return
    if any(get_origin(member) in (tuple, list) for member in members(hint)):
        one = as_json([raw])
        raise UserError(
            f"{key}={_cited(raw)} is a text, or a list without quotes: write {key}='{one}' for the text, or put each "
            "text of the list in quotes"
        )


def _size(value: object, hint: Hint) -> str:
    """Which size a number must have, where it has another: float32 holds none beyond, and no count is so high."""
    boundless = any(isinstance(mark, Boundless) for mark in metadata(hint))
    if isinstance(value, int):
        return "" if boundless or abs(value) <= 10**15 else "at most 10^15"
    if not isinstance(value, float) or (boundless and math.isinf(value)):
        return ""
    if abs(value) > 1e37:
        return f"at most 1e37 in size{', or inf' if boundless else ''}"
    return "at least 1e-37 in size" if 0 < abs(value) < 1e-37 else ""


def metadata(hint: Hint) -> list[object]:
    """What the Annotated in a hint say beside the type, those inside of a union included."""
    return [*getattr(hint, "__metadata__", ()), *(mark for part in get_args(hint) for mark in metadata(part))]


def allowed(hint: Hint) -> str:
    """Say in words what a type allows: `a number above 0`, `one of: std, none`."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return " ".join([allowed(args[0]), *_range(args[1:])])
    if origin is Literal:
        return f"one of: {', '.join(map(show, args))}" if len(args) > 1 else show(args[0])
    if origin in (Union, types.UnionType):
        return " or ".join(allowed(a) for a in args)
    if origin in (tuple, list):
        inner = [allowed(a) for a in args if a is not Ellipsis]
        alike = origin is list or args[-1] is Ellipsis
        return f"a list A,B,...: each {inner[0]}" if alike else f"{len(inner)} values: {', '.join(inner)}"
    if origin is dict:
        key = "text, in quotes where it is a number" if args[0] is str else allowed(args[0])
        return f"a mapping, {{KEY: VALUE}}: each KEY {key}, each VALUE {allowed(args[1])}"
    words: dict[object, str] = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}
    words |= {type(None): "none", list: "a list", Any: "any value"}
    return words.get(origin or hint) or str(getattr(hint, "__name__", hint))


def settable(cls: type) -> dict[str, Field[object]]:
    """The fields that a configuration may set, by name."""
    return {f.name: f for f in fields(cls) if f.init}


def default(f: Field[object]) -> object:
    """A field's default, or MISSING."""
    return f.default_factory() if f.default_factory is not MISSING else f.default


def explain(cls: type, values: Mapping[str, object], section: str, typed: bool = True) -> list[tuple[str, str]]:
    """For each key: `KEY=DEFAULT` (or the value that would hold), and what it means; typed: and what is allowed."""
    hints, notes, rows = get_type_hints(cls, include_extras=True), comments(cls), []
    values = convert(cls, values, section)
    for name, f in settable(cls).items():
        value = values.get(name, default(f))
        only = "".join(f"; only with {needed(need, section)}" for need in needs(hints[name]))
        meaning = f"{notes.get(name, '')} ({allowed(hints[name])}{only})".lstrip() if typed else notes.get(name, "")
        rows.append((f"{_key(section, name)}={'...' if value is MISSING else show(value)}", meaning))
    return rows


def once(words: Iterable[str]) -> None:
    """Refuse a key that is given twice: one of the two values would be lost without a word."""
    seen: dict[str, str] = {}
    for word in words:
        key, equals, _ = word.partition("=")
        if equals and key in seen:
            raise UserError(f"{key} is given twice, as {seen[key]} and as {word}: give one of them")
        seen[key] = word


def needs(hint: object) -> list[Needs]:
    """What a field's type says that it needs."""
    return [mark for mark in metadata(hint) if isinstance(mark, Needs)]


def needed(need: Needs, section: str) -> str:
    """What is needed, as it is written: `algo.advantage=gae`."""
    if " " in need.key:
        return need.key
    if need.unlike:
        return f"{section}.{need.key} other than {section}.{need.unlike}"
    if need.values:
        return f"{section}.{need.key}={' or '.join(show(value) for value in need.values)}"
    if need.but:
        return f"{section}.{need.key} other than {show(need.but)}"
    return f"{section}.{need.key}"


def plain(value: object) -> object:
    """Only what YAML knows."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [plain(item) for item in value]
    return str(value.resolve()) if isinstance(value, Path) else value


def _read(raw: object, hint: Hint) -> object:
    """A value as the type wants it. Raises: ValueError for a truth value elsewhere: pydantic would take true for 1."""
    value = _from_text(raw, hint)
    if isinstance(value, bool) and not {bool, Any} & set(members(hint)) and value not in _literals(hint):
        raise ValueError
    return value


def _from_text(raw: object, hint: Hint) -> object:
    """Read a text as the type wants it."""
    plain_types = members(hint)
    parts = next((m for m in plain_types if get_origin(m) in (tuple, list)), None)
    escapes = any(isinstance(mark, Escapes) for mark in metadata(hint))
    if str in plain_types and isinstance(raw, list) and _names(raw, hint):
        return ",".join(raw)
    if isinstance(raw, str):
        typed, raw = isinstance(raw, Typed), str(raw)
        if type(None) in plain_types and raw.lower() in ("none", "null", "~"):
            return None
        if str in plain_types or raw in _literals(hint):
            return unescaped(raw) if typed and escapes else raw
        if parts is None:
            return scalar(raw) if {Any, object} & set(plain_types) else number(raw)
        if raw.startswith("["):
            raw = strict_yaml.load(raw, texts=True)
        elif escapes:  # texts for a model: a blank counts
            raw = [unescaped(part) if typed else part for part in raw.split(",") if part]
        else:
            raw = [part.strip() for part in raw.split(",") if part.strip()]
    if parts is not None and isinstance(raw, list):
        args = get_args(parts)
        alike = get_origin(parts) is list or args[-1] is Ellipsis
        kinds = [args[0]] * len(raw) if alike else [*args, *[Any] * len(raw)]
        return [_read(item, kind) for item, kind in zip(raw, kinds, strict=False)]
    return raw


def _names(raw: list[object], hint: Hint) -> TypeGuard[list[str]]:
    """Whether a list, as a program gives it, is the names that the field's text has between commas."""
    several = any(isinstance(mark, Several) for mark in metadata(hint))
    return several and bool(raw) and all(isinstance(name, str) for name in raw)


def typed(value: object, hint: Hint) -> str:
    """A value as somebody would type it on a command line, so that `_from_text` reads what it is."""
    if not any(isinstance(mark, Escapes) for mark in metadata(hint)):
        return show(value)
    several = isinstance(value, list | tuple)
    return as_json(value) if several else show(value).replace("\\", "\\\\")


def members(hint: Hint) -> list[object]:
    """The plain types in a hint, without Annotated and Union around them."""
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return members(args[0])
    return [m for a in args for m in members(a)] if origin in (Union, types.UnionType) else [hint]


def _literals(hint: Hint) -> list[object]:
    return [value for m in members(hint) if get_origin(m) is Literal for value in get_args(m)]


def _range(metadata: Sequence[object]) -> list[str]:
    words = {Gt: ("above", "gt"), Ge: ("of at least", "ge"), Lt: ("below", "lt"), Le: ("at most", "le")}
    low = {type(m): getattr(m, words[type(m)][1]) for m in metadata if type(m) in words}
    if {Ge, Le} <= low.keys():
        return [f"from {low[Ge]} to {low[Le]}"]
    return [" and ".join(f"{words[kind][0]} {bound}" for kind, bound in low.items())] if low else []


def show(value: object) -> str:
    """A value as it is written on a command line."""
    if isinstance(value, list | tuple):
        return ",".join(show(v) for v in value) or "[]"
    if value is None or isinstance(value, bool):
        return str(value).lower()
    return f"{value:g}" if isinstance(value, float) and float(f"{value:g}") == value else str(value)


def _cited(value: object) -> str:
    """A value in a message, cut where it is long."""
    text = show(value)
    return text if len(text) <= 100 else f"{text[:40]}... ({len(text)} characters)"


def _key(section: str, key: str) -> str:
    return f"{section}.{key}" if section in ("algo", "env", "policy") else key
