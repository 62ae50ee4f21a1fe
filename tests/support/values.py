"""Texts for a field of a configuration: good, wrong and strange ones by its type and range, each kind with a name."""

from collections.abc import Iterator
from contextlib import suppress
from random import Random
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from annotated_types import Ge, Gt, Le, Lt

from rlkit.settings import schema

LARGE = 1000  # a larger whole number may ask for more work than a test can wait for

SIZES = ["1000", "4097", "65536", "1000000", "10000000", "1000000000", "1000000000000", "9" * 19, "9" * 40]
STRANGE = {
    "nan": ["nan", "NaN", "-nan", ".nan"],
    "infinite": ["inf", "-inf", "Infinity", ".inf", "1e999", "-1e999"],
    "extreme": ["1e300", "-1e300", "1e-300", "1e-45", "1.7976931348623157e308", "5e-324"],
    "huge": [*SIZES, "-" + "9" * 19, "1e18", "9223372036854775808", "4294967296"],
    "many digits": ["7" * 400, "-" + "7" * 400, "7" * 5000, "0." + "3" * 400],
    "spelled otherwise": ["1_000", "0x10", "0o7", "0b1", "1e1", "+1", " 1", "1 ", "1.0", "01", "1:30", "1,5", "1e-3"],
    "other digits": ["１", "٣", "½", "Ⅳ", "∞", "−1", "1\u00a0", "²"],
    "words": ["fast", "none", "None", "null", "~", "true", "no", "auto", "default", "a b", "'1'", '"1"', "-"],
    "empty": ["", " ", "''", "[]", "{}", ",", ",,"],
    "lists": ["1,2", "[1, 2]", "[1", "1]", "[[1]]", "(1, 2)", "1;2", "[1, [2, [3]]]"],
    "mappings": ["{a: 1}", "{a", "a: 1", "{1: {2: 3}}", "{a: 1, a: 2}", "? a"],
    "yaml": ["&a [*a]", "*a", "!!python/object/apply:os.getcwd []", "!!binary aGk=", "!x 1", "%YAML 9", "a: b: c",
        "@", "`", "|"],
    "equals": ["=", "=1", "1=1", "a=b=c"],
    "unicode": ["žluťoučký", "学习", "🙂", "é", "e\u0301", "\ufeff1", "\udcff", "\U0010ffff"],
    "control": ["\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "a\nb", "a\rb", "\t", "\x7f", "\x9b31m", "\u202egnp.exe",
        "\u2066x\u2069", "\u2028"],
    "long": ["x" * 300, "x" * 20_000, "a," * 5000, "[" * 3000, "../" * 2000],
    "shell": ["$(true)", "`true`", ";true", "'", "\\", "~root", "$HOME", "*", "%s%s%n", "{0.__class__}"],
    "path": [".", "..", "/", "/dev/null", "/dev/full", "/proc/self/mem", "nowhere/file", "a/../../b", "./file.txt",
        "~", "~nobody-here/x"],
}  # fmt: skip

TEXTS: dict[str, list[str]] = {  # what a field of text takes or nearly takes, by the field's name
    "device": ["cpu", "auto", "cuda", "cuda:0", "cuda:99", "cpu:3", "mps", "meta", "CPU", "cuda:99999999999999999999"],
    "source": ["embedded", "rows.jsonl", "pairs.jsonl", "empty.jsonl", "torn.jsonl", "file.txt", "a.jsonl", "a/b",
        "Embedded"],
    "prompt": ["{question}", "Q: {question}\nA:", "no place", "{question}{question}", "{0}", "{", "}{", "{question",
        "a.py:b, c", "model: x, y"],
    "reward": ["correct", "correct,correct", "model:nowhere", "model:", "nowhere.py:f", "file.txt:f", "os:getcwd",
        "math:pi", "correct,", ":f", "correct,:"],
    "id": ["Acrobot-v1", "CartPole-v1", "Pendulum-v1", "FrozenLake-v1", "Blackjack-v1", "MountainCarContinuous-v0",
        "CartPole-v99", "CartPole", "nopkg:X-v0", ":X-v0", "cartpole"],
    "entry": ["", "gymnasium.envs.classic_control:CartPoleEnv", "os:getcwd", "nopkg:Env", "<lambda>", ":", "a:",
        ":b", "math:pi"],
    "model": ["tiny", "nowhere", "folder", "file.txt", "a/b", "Tiny", "tiny/", "."],
    "out": ["other", "deep/er/out", "file.txt", "file.txt/below", "folder", "full", "link", "dangling", "ünï",
        "a b", "-x", "out=out", "'", "~x", "con", "trailing.", "x" * 255, "x" * 256, "d/" * 2100 + "e"],
    "video": ["film.gif", "film.GIF", "film.mp4", "nowhere/film.gif", "folder", "folder/film.gif", "file.txt", "link"],
    "against": ["other", "other:latest", "other:best", "other:nowhere", "other:", ":latest", "nowhere", "folder",
        "file.txt", "RUN"],
    "checkpoint": ["latest", "best", "nowhere", "../latest", "/dev/null", "latest.safetensors", "iteration-1", "*", ""],
}  # fmt: skip

LISTS: dict[str, list[str]] = {  # of a comparison
    "algo": ["ppo", "ppo,dqn", "ppo,ppo", "dqm", "ppo,", "q_learning,sarsa,td"],
    "env": ["cartpole", "gridworld,frozenlake", "cartpol", "cartpole,cartpole", ",cartpole"],
    "seed": ["0", "0-4", "3-1", "0-999999999", "1,1", "0-0", "-1", "0-", "1-2-3", "0-9999999999"],
}  # fmt: skip

Choices = dict[str, list[str]]  # what a class of values is called → texts of it


def of(name: str, hint: object) -> Choices:
    """The texts for a field, by class; a class is a corner of its type (`option std`, `below`) or a strange thing."""
    found: Choices = {}
    for kind, bounds in members(hint):
        for label, texts in _typical(kind, bounds).items():
            found.setdefault(label, []).extend(texts)
    if str in {kind for kind, _ in members(hint)}:
        found["text"] = TEXTS.get(name, ["text"])
    if name in LISTS:
        found["list"] = LISTS[name]
    return found | STRANGE


def members(hint: object) -> Iterator[tuple[object, tuple[object, ...]]]:
    """The types in a hint, each with the bounds around it."""
    origin, args = get_origin(hint), get_args(hint)
    if args and hasattr(hint, "__metadata__"):
        yield from ((kind, (*bounds, *args[1:])) for kind, bounds in members(args[0]))
    elif origin in (Union, UnionType):
        yield from (pair for part in args for pair in members(part))
    else:
        yield hint, ()


def _typical(kind: object, bounds: tuple[object, ...]) -> Choices:
    origin, args = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {**{f"option {x}": [str(x)] for x in args}, "option in capitals": [str(args[0]).upper()]}
    if origin is tuple:
        return {"one item": ["1", "a"], "items": ["8,8", "a,b", "1,2,3"], "an item too low": ["8,0", "-1,1"]}
    if origin is dict:
        return {"mapping": ["{}", "{a: 1}", "{render_mode: human}", "{max_episode_steps: 3}"]}
    if kind is bool:
        return {"true": ["true", "True"], "false": ["false", "FALSE"], "nearly true": ["yes", "on", "1", "t"]}
    if kind is type(None):
        return {"none": ["none"]}
    return _numbers(kind is float, bounds) if kind in (int, float) else {}


def _numbers(real: bool, bounds: tuple[object, ...]) -> Choices:
    """A number's corners: each bound, both sides of it, and between."""
    low = next((b.ge if isinstance(b, Ge) else b.gt for b in bounds if isinstance(b, Ge | Gt)), None)
    high = next((b.le if isinstance(b, Le) else b.lt for b in bounds if isinstance(b, Le | Lt)), None)
    step: Any = 1e-6 if real else 1
    found = {"inside": ["0.5", "0.3", "1e-3"] if real else ["1", "2", "3"], "zero": ["0", "-0"]}
    if not real:
        found["a fraction"] = ["1.5", "2.0", "0.1"]
    for name, bound, out in (("low", low, -step), ("high", high, step)):
        if bound is not None:
            found |= {f"at the {name} end": [f"{bound}"], f"just inside the {name} end": [f"{bound - out}"]}
            found[f"beyond the {name} end"] = [f"{bound + out}", f"{bound + 10**6 * out:g}"]
    return (
        found if high is not None else found | {"large": ["1e3", "1e6", "12345.678"] if real else ["100", *SIZES[:5]]}
    )


def size(text: str) -> float:
    """The largest number in a text: so much work, or so long an episode, it may stand for."""
    found = 0.0
    for part in text.replace("[", "").replace("]", "").split(","):
        with suppress(ValueError):
            found = max(found, abs(float(part)))
    return found


def misspelt(draw: Random, name: str) -> str:
    """A name with a slip of the finger."""
    at = draw.randrange(len(name))
    slips = [name[:at] + name[at + 1 :], name[:at] + name[at] * 2 + name[at + 1 :], name.upper(), name.replace("_",
        "-"),
             name[:at] + "x" + name[at + 1 :], f"_{name}", f"{name}s", name[::-1], f"{name} ", f"--{name}"]  # fmt: skip
    return draw.choice(slips)


def known(cls: type) -> dict[str, Choices]:
    """The texts for each field of a dataclass, read from the schema."""
    hints = get_type_hints(cls, include_extras=True)
    return {name: of(name, hints[name]) for name in schema.settable(cls)}
