"""Keys that would do nothing: what a field needs of others is in its type, and one that is given in vain is refused.

Only what was asked for counts. A pair's YAML, a preset or a config.yaml may hold values that wait for another key. The
default of the class asks for nothing either, whatever the YAML of the pair has in its place.
"""

import copyreg
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, cast, get_type_hints

from rlkit.errors import UserError
from rlkit.fields import Needs
from rlkit.settings import schema

if TYPE_CHECKING:
    from _typeshed import DataclassInstance


def told(words: Iterable[str], section: str) -> list[str]:
    """The keys of a section that stand on a command line: of `algo.lr=1 seed=2` and algo it is lr, and of run seed."""
    keys = [word.partition("=")[0].split(".") for word in words]
    if section == "run":
        return [key[0] for key in keys if len(key) == 1]
    return [key[1] for key in keys if len(key) > 1 and key[0] == section]


def refuse(built: object, keys: Iterable[str], section: str, facts: Mapping[str, object]) -> None:
    """Refuse those of the keys that have a value of their own (none asks for nothing) and do nothing beside the others.

    Arguments:
        built: the dataclass that holds the values of all keys.
        keys: what was asked for.
        section: algo, env or policy.
        facts: of the phrases that stand in place of a key, whether they hold.

    Raises: UserError that names the key, and what it needs.
    """
    values = asdict(cast("DataclassInstance", built))
    for key, need in idle(built, keys, facts):
        here = "" if need.key in facts else f" with {section}.{need.key}={schema.show(values[need.key])}"
        name = f"{section}.{key}"
        raise UserError(
            f"{name}={schema.show(values[key])} does nothing{here}: it needs {schema.needed(need, section)}; "
            f"give that, or leave {name} out"
        )


def idle(built: object, keys: Iterable[str], facts: Mapping[str, object]) -> Iterator[tuple[str, Needs]]:
    """Those of the keys that have a value of their own and do nothing beside the others, and what each needs."""
    values = asdict(cast("DataclassInstance", built))
    hints = get_type_hints(type(built), include_extras=True)
    for key, field in schema.settable(type(built)).items():
        if key not in keys or values[key] is None or values[key] == schema.default(field):
            continue
        for need in schema.needs(hints[key]):
            if not need.met({**values, **facts}):
                yield key, need


@contextmanager
def reading(keys: object) -> Iterator[set[str]]:
    """The names of the attributes of a configuration that are read while this lasts. Of a copy, all count as read."""
    kind, read = type(keys), set[str]()

    def noted(self: object, name: str) -> object:
        read.add(name)
        return object.__getattribute__(self, name)

    def copied(self: object, protocol: object) -> tuple[object, ...]:
        read.update(vars(self))
        return copyreg.__newobj__, (kind,), vars(self)  # type: ignore[attr-defined]

    noting = {"__getattribute__": noted, "__reduce_ex__": copied}
    object.__setattr__(keys, "__class__", type(kind.__name__, (kind,), noting))
    try:
        yield read
    finally:
        object.__setattr__(keys, "__class__", kind)
