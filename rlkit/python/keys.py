"""Keys given by a program: Python values instead of words of a command line."""

import copy
import os
import re
import sys
from collections.abc import Mapping
from enum import Enum
from typing import Any, get_type_hints

import gymnasium
import numpy as np
from gymnasium.vector import VectorEnv

from rlkit.errors import UserError, one_line
from rlkit.settings import config, schema
from rlkit.settings.given import Factory, Trust
from rlkit.settings.plugins import ENTRY
from rlkit.settings.sections import Section
from rlkit.settings.texts import as_json

GYM = "gym"  # the plug-in that makes any Gymnasium environment
ID = re.compile(r"([\w.]+:)?[\w./-]+-v\d+")  # Acrobot-v1, ALE/Pong-v5, my_pkg:My-v0

AnyEnv = gymnasium.Env[Any, Any]  # with any observations and actions
EnvLike = str | os.PathLike[str] | AnyEnv | Factory


def asked(algo: str | os.PathLike[str], env: EnvLike, keys: Mapping[str, object]) -> config.Given:
    """The configuration that a call of `train` asks for, including the YAML for this algorithm and environment."""
    if not isinstance(algo, str | os.PathLike):
        raise UserError(f"algo={algo!r} is not understood: give the name of an algorithm, or a path ending in .py")
    section, factory = described(env)
    for key in keys.keys() & {f"env.{key}" for key in section}:
        raise UserError(f"{key}={keys[key]} would take the place of the argument env: leave it out")
    given = {"algo": algo, "env": section.pop("name"), **{f"env.{key}": x for key, x in section.items()}, **keys}
    return config.complete(line(given, factory))


def check_listener(listener: object) -> None:
    """Refuse anything that cannot be called, before the run is created."""
    if listener is not None and not callable(listener):
        raise UserError(f"on_iteration={listener!r} is not understood: give a function of the metrics, a dictionary")


def line(keys: Mapping[str, object], factory: Factory | None = None, trust: Trust = False) -> config.Given:
    """Keys and values as a configuration, including their form on the command line."""
    given = config.Given(factory=factory, trust=trust)
    keys = {str(plain(key)): value for key, value in keys.items()}  # a text may be a member of an enum
    for key, value in keys.items():
        if not inside(key):
            refuse_function(key, value)
        value = plain(value)
        word = text(key, value)
        told = word if inside(key) and isinstance(value, str) else value  # in quotes where it would be read as a number
        config.put(given, key, told, f"{key}={word}")
    given.argv = tuple(f"{key}={typed(given, key, x)}" for key, x in ((key, plain(x)) for key, x in keys.items()))
    return given


def refuse_function(key: str, value: object) -> None:
    """Refuse a function or a class itself, as TRL takes a reward: config.yaml holds the place where it is written."""
    for each in value if isinstance(value, list | tuple) else [value]:
        if callable(each):
            name = getattr(each, "__name__", type(each).__name__)
            raise UserError(
                f"{key} is {name} itself, and config.yaml holds text: write it into a file, and give its place, "
                f"{key}='./mine.py:{name}' (commas between several)"
            )


def typed(given: config.Given, key: str, value: object) -> str:
    """The value of a key as typed to repeat the run: in texts for a model, a typed backslash is an escape."""
    section, _, name = key.partition(".")
    spelled = isinstance(value, list) or (isinstance(value, str) and "\\" in value)
    if not spelled or section not in ("algo", "env") or "name" not in given.section(section):
        return text(key, value)
    hints = get_type_hints(config.keys_of(given, section), include_extras=True)
    return schema.typed(value, hints[name]) if name in hints else text(key, value)


def plain(value: object) -> object:
    """A value that YAML can hold: NumPy numbers and paths become Python's own types, a member of an enum its value."""
    if isinstance(value, Enum):
        return plain(value.value)
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    if isinstance(value, list | tuple | range):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def text(key: str, value: object) -> str:
    """The value of a key as written on a command line; in a mapping, where any value may stand, it is read as it is."""

    def refuse(other: object) -> object:
        raise UserError(
            f"{key} holds a value of type {type(other).__name__}, which config.yaml cannot: give numbers, texts, or "
            "lists and mappings of them"
        )

    try:
        if isinstance(value, dict) or (inside(key) and not is_word(key, value)):
            return as_json(value, refuse)
        return schema.show(value)
    except ValueError:  # Python prints no number of more than 4,300 digits
        raise UserError(f"{key} is a number of thousands of digits: give a smaller one") from None


def inside(key: str) -> bool:
    """Whether a key is of a mapping, such as env.kwargs.size, also behind a NAME: of a comparison."""
    return key.rpartition(":")[2].count(".") > 1


def is_word(key: str, value: object) -> bool:
    """Whether a text is read as this text without quotes, as 3 and none are not."""
    try:
        return isinstance(value, str) and schema.validate(key, value, Any) == value
    except UserError:  # such as a bracket alone
        return False


def described(env: EnvLike) -> tuple[Section, Factory | None]:
    """The keys for an environment, and a factory where keys cannot name it."""
    if isinstance(env, str | os.PathLike):
        return named(os.fspath(env)), None
    if isinstance(env, VectorEnv) or (isinstance(env, type) and issubclass(env, VectorEnv)):
        raise UserError("env= is a vector environment: give one environment; rlkit steps copies of it side by side")
    if isinstance(env, gymnasium.Env):
        return {"name": GYM, "entry": unnamed(type(env.unwrapped).__name__)}, copies(env)
    if not callable(env) or (isinstance(env, type) and not issubclass(env, gymnasium.Env)):
        raise UserError(f"env={env!r} is not an environment: give a name, a Gymnasium id, or a gymnasium.Env")
    entry = importable(env)
    if entry:
        return {"name": GYM, "entry": entry}, None
    return {"name": GYM, "entry": unnamed(getattr(env, "__name__", type(env).__name__))}, env


def named(env: str) -> Section:
    """The keys for a name: a plug-in, a Gymnasium id, or MODULE:NAME of a class or function."""
    if env.endswith(".py"):
        return {"name": env}
    if ID.fullmatch(env):
        return {"name": GYM, "id": env}
    return {"name": GYM, "entry": env} if ENTRY.fullmatch(env) else {"name": env}


def unnamed(name: str) -> str:
    """The entry in config.yaml for an environment that cannot be imported by name."""
    return f"<{name.strip('<>')}, given in Python>"


def importable(factory: Factory) -> str:
    """MODULE:NAME if importing that gives this same class or function, else ""; a notebook's class has no such name."""
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if not module or not name or module == "__main__":
        return ""
    return f"{module}:{name}" if found_at(f"{module}:{name}") is factory else ""


def found_at(entry: str) -> Any:  # Any: whatever a module of the user's holds
    """The object that MODULE:NAME means among the modules that are already imported; None where there is none."""
    module, _, name = entry.partition(":")
    found: object = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found


class Copies:
    """A factory that copies an environment object as it was when it was given; the object itself is never stepped."""

    def __init__(self, env: AnyEnv) -> None:
        self.env: AnyEnv = copy.deepcopy(env)  # the caller may step, change or close theirs before the next copy

    def __call__(self, render_mode: str | None = None) -> AnyEnv:
        if render_mode is not None and self.env.render_mode != render_mode:
            raise UserError(
                f"env= was made with render_mode={self.env.render_mode}, so it cannot be drawn: make it with "
                f"render_mode={render_mode}, or give its id or its class"
            )
        return copy.deepcopy(self.env)


def copies(env: AnyEnv) -> Factory:
    """A factory of copies of an object. Raises: UserError where it cannot be copied."""
    try:
        return Copies(env)
    except Exception as error:  # copying a user's object may raise anything
        what = one_line(error) or type(error).__name__
        raise UserError(
            f"env= is a {type(env.unwrapped).__name__} that cannot be copied ({what}): "
            "give its class, or a function that makes one"
        ) from error
