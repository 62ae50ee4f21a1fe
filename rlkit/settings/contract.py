"""What a plug-in has to define and to make, looked up once when a run is put together."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import yaml

from rlkit.api import Algorithm
from rlkit.errors import UserError
from rlkit.settings import plugins, schema, strict_yaml

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

POLICY = ("name", "dtype", "micro_steps", "refresh", "record")  # what every run uses of a policy
STEPS = ("rollout", "credit", "loss")
SET = {
    "policy": "network.actor(env)",
    "config": "config",
    "optimizer": "policies.adam(self.policy, config)",
}


def check_make(make: Callable[..., object], kind: plugins.Kind, name: str, *words: object, **keys: object) -> None:
    """Refuse a `make` that does not take what it is given; what it raises itself is raised as it is."""
    if inspect.isclass(make):
        check_written(make, name, ("__init__", *STEPS))
    try:
        inspect.signature(make).bind(*words, **keys)
    except TypeError as error:
        raise UserError(
            f"{name}: its make cannot be called as {plugins.MAKE[kind]} ({error}): let it take that"
        ) from None


def check_algorithm(algo: Algorithm, name: str) -> None:
    """Refuse what lacks a step, or an attribute that the loop needs."""
    check_contract(
        algo, name, ("saved", "rollout", "credit", "loss", "after_step", "clip_width"), "rlkit.api.Algorithm"
    )
    check_written(type(algo), name, STEPS)
    for part, value in SET.items():
        if not hasattr(algo, part):
            kind = type(algo).__name__
            raise UserError(f"{name}: {kind} has no {part}; set it in its __init__: self.{part} = {value}")
    if missing := [each for each in POLICY if not hasattr(algo.policy, each)]:
        kind = type(algo.policy).__name__
        raise UserError(
            f"{name}: self.policy, a {kind}, has no {', '.join(missing)}: let it inherit policies.PolicyModule"
        )


def check_written(kind: type, name: str, methods: Sequence[str]) -> None:
    """Refuse an algorithm with methods of `rlkit.api.Algorithm` that do nothing."""
    written_in = {method: each for each in reversed(kind.__mro__) for method in vars(each)}
    if missing := [method for method in methods if written_in.get(method) is Algorithm]:
        raise UserError(
            f"{name}: {kind.__name__} has no {', '.join(missing)}: write it, or inherit it from another algorithm"
        )


def check_contract(made: object, name: str, names: Sequence[str], parent: str) -> None:
    """A plug-in of the user's may make anything: what the contract asks for is looked up here, once."""
    if missing := [each for each in names if not hasattr(made, each)]:
        raise UserError(f"{name} makes a {type(made).__name__} without {', '.join(missing)}: let it inherit {parent}")


def check_read_back(built: object, section: str) -> None:
    """Refuse a value that config.yaml would not give back, such as a set: the run could not be opened again."""
    here = cast("DataclassInstance", built)
    values = asdict(here)
    for key in schema.settable(type(here)):
        value = schema.plain(values[key])
        try:
            held = strict_yaml.load(strict_yaml.dump(value))
            same = schema.plain(schema.convert(type(here), {key: held}, section)[key]) == value
        except (yaml.YAMLError, UserError):
            same = False
        if not same:
            raise UserError(
                f"{section}.{key}={schema.show(value)} could not be read back from config.yaml: let its field hold "
                "numbers, texts, Literal, or tuples and dicts of them"
            )
