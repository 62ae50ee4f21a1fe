"""Awkward texts for every key that takes one: from Python, from the command, and from config.yaml they are the same."""

import random
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest

from rlkit.api import UserError
from rlkit.language.network import LanguageNetwork
from rlkit.python.keys import line
from rlkit.settings import config, plugins, schema, strict_yaml
from rlkit.settings.given import KINDS, parse

SIGNS = [*"#'\"\\\n\t:=,;{}[]~|>-!&*%@`$?<é😀\u2028\x85\ufeff"]
WORDS = ["a", " ", " #", ": ", "- ", "\\n", "null", "none", "true", "1", "1.0", "1e5", "0x1F", "1_000", "nan", ".inf"]


def text(rng: random.Random) -> str:
    return "".join(rng.choice(SIGNS + WORDS) for _ in range(rng.randint(1, 4)))


def value(rng: random.Random, depth: int = 0) -> object:
    """Anything that YAML can hold."""
    kind = rng.random() if depth < 2 else 0.0
    if kind < 0.6:
        return rng.choice([text(rng), text(rng), 3, 0.1, 1e22, True, None])
    parts = [(text(rng), value(rng, depth + 1)) for _ in range(rng.randint(0, 3))]
    return dict(parts) if kind < 0.8 else [part for _, part in parts]


def keys() -> Iterator[tuple[str, str, type, str, list[object]]]:
    """The section, plug-in, class, name and types of every key."""
    found = [(section, name, plugins.load(KINDS[section], name).Config) for section in KINDS for name in names(section)]
    for section, name, cls in [*found, ("policy", "", LanguageNetwork)]:
        hints = get_type_hints(cls, include_extras=True)
        for key in schema.settable(cls):
            yield section, name, cls, key, schema.members(hints[key])


def names(section: str) -> list[str]:
    return plugins.names(KINDS[section])


def built(cls: type, given: config.Given, section: str, key: str) -> object:
    """The value of a key, as its run has it."""
    told = {name: x for name, x in given.section(section).items() if name != "name"}
    return schema.plain(schema.convert(cls, told, section)[key])


@pytest.mark.parametrize("seed", range(3))
def test_a_text_of_a_program_is_the_same_in_the_run_its_command_and_its_file(seed: int) -> None:
    rng, tried = random.Random(seed), 0
    for section, name, cls, key, types in keys():
        mapping = next((kind for kind in types if get_origin(kind) is dict), None)
        if str not in types and (mapping is None or get_args(mapping)[1] is not Any):
            continue
        for _ in range(20):
            given = text(rng) if mapping is None else value(rng)
            called = f"{section}.{key}" + (".k" if mapping else "")
            named = {section: name} if name else {}
            asked = line({**named, called: given})
            try:
                first = built(cls, asked, section, key)
            except UserError:  # such as a NUL in a path
                continue
            again = built(cls, parse(asked.argv), section, key)
            stored = strict_yaml.load(strict_yaml.dump({key: first}))
            assert repr(again) == repr(first), (called, given, asked.argv)
            assert repr(schema.plain(schema.convert(cls, stored, section)[key])) == repr(first), (called, given)
            if mapping:
                assert repr(first) == repr({"k": given}), (called, given)
            tried += 1
    assert tried > 500


AS_TYPED = [
    "Note: be brief",
    "Today is: Monday # x",
    "Be brief:",
    "- be brief",
    "- a\n- b",
    "a: 1\nb: 2",
    "? x",
    "| text",
]
AS_TYPED += [
    "> text",
    "|\n text",
    "&a x",
    "*a",
    "!tag x",
    "!!str 1",
    "%",
    "--- x",
    "---",
    "...",
    "@a",
    "`x`",
    "# x",
    "",
]
AS_TYPED += ["1_000", "infinity", "inf", "nan", "1e", "１２", "nULL", "none"]  # of which YAML 1.2 calls none a number


@pytest.mark.parametrize("text", AS_TYPED)
def test_a_text_without_brackets_braces_or_quotes_stays_as_it_was_typed(text: str) -> None:
    given = parse(["env=gym", f"env.kwargs.k={text}"])
    found = schema.convert(plugins.load("envs", "gym").Config, {"kwargs.k": given.env["kwargs.k"]}, "env")
    assert found == {"kwargs": {"k": text}}
    assert line({"env": "gym", "env.kwargs.k": text}).env["kwargs.k"] == text
    assert strict_yaml.load(strict_yaml.dump(found)) == found, "also from config.yaml"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (" [1, 2_0] # x", [1, "2_0"]),
        ("{a: 1,\nb: .5}", {"a": 1, "b": 0.5}),
        ("'5' # x", "5"),
        ('"a: b"', "a: b"),
        ("0x1F", 31),
        ("1e3", 1000.0),
        (" -7 ", -7),
        ("~", None),
        ("True", True),
    ],
)
def test_what_stands_in_brackets_braces_or_quotes_and_the_words_of_the_core_schema_are_yaml(
    text: str, value: object
) -> None:
    found = schema.validate("env.kwargs.k", schema.Typed(text), Any)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text", ["{a: 1}: b", "[a]: b", "[a] b", '"a": b', "'a' b", "[1]\n---\n[2]", "'a", '"a', "[1, 2"]
)
def test_brackets_braces_or_quotes_that_stay_open_or_stand_before_more_text_are_refused(text: str) -> None:
    with pytest.raises(UserError, match=r"^env\.kwargs\.k=(.|\n)* cannot be read: close its brackets and quotes, or"):
        schema.validate("env.kwargs.k", schema.Typed(text), Any)


def test_a_mapping_without_braces_is_refused() -> None:
    with pytest.raises(UserError, match=r"^env\.kwargs=size: 9 is not allowed: give a mapping, \{KEY: VALUE\}"):
        schema.convert(plugins.load("envs", "gym").Config, {"kwargs": schema.Typed("size: 9")}, "env")


def test_a_field_of_numbers_reads_them_as_python_does() -> None:
    for text, hint, value in (
        ("16_000", int, 16_000),
        ("1_0.5", float | None, 10.5),
        ("1_6,2", tuple[int, ...], (16, 2)),
    ):
        assert schema.validate("algo.k", schema.Typed(text), hint) == value
