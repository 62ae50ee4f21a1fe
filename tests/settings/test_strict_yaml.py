"""YAML of a stranger's: no aliases, no depth, no code."""

import re
from pathlib import Path

import pytest
import yaml

from rlkit.api import UserError
from rlkit.settings import sections, strict_yaml

TAGS = r"tags \(!name\) are not read: write the value alone"
BOMB = "a: &a [1, 2]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, r"aliases \(\*name\) are not read"),
        ("[" * 100_000, "nested more than 20 deep"),
        ("a: " * 50, "mapping values are not allowed here"),
        ("{a: 1, a: 2}", "a key is given twice"),
        ("!!python/object/apply:os.system ['true']", TAGS),
        ("{a: !!bool maybe}", TAGS),
        ("[!!int '']", TAGS),
        ("!!timestamp x", TAGS),
        ("!!binary aGVsbG8=", TAGS),
        ("!!set {a, b}", TAGS),
        ("!!omap [a: 1]", TAGS),
        ("!!str 1", TAGS),
        ("{!<tag:yaml.org,2002:int> a: 1}", TAGS),
        ("! text", TAGS),
        ("1" * 5000, "a number of more than 4,300 digits"),
        ("0x" + "f" * 100_000, "a number of more than 1,000 digits"),  # could be read, and never shown
        ("0." + "1" * 5000, "a number of more than 4,300 digits"),
        ("{[1]: 2}", "found unhashable key"),
    ],
)
def test_what_a_configuration_never_has_is_refused(text: str, told: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        strict_yaml.load(text)
    for keys in ({"old": True}, {"texts": True}):
        with pytest.raises(yaml.YAMLError):
            strict_yaml.load(text if told == TAGS else BOMB, **keys)
    assert "\n" not in strict_yaml.reason(caught.value)
    assert re.search(told, strict_yaml.reason(caught.value))


def test_what_a_configuration_has_is_read() -> None:
    assert strict_yaml.load("a: {lr: 0.1, hidden: [8, 9], out: null, on: true}") == {
        "a": {"lr": 0.1, "hidden": [8, 9], "out": None, "on": True}
    }
    assert strict_yaml.load("[1, no, 1e-3]", texts=True) == ["1", "no", "1e-3"]


def test_a_tag_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("run:\n  out: null\n  seed: !!bool\n    maybe\nenv: {}\n")
    with pytest.raises(UserError) as caught:
        sections.read(path)
    assert str(caught.value) == f"{path}:3: not valid YAML: tags (!name) are not read: write the value alone"


TEXTS = ["on", "No", "y", "2026-01-01", "1:30", "=", "<<", "1_000", "0b1"]  # of which YAML 1.1 makes something else
NUMBERS = {"1e-3": 1e-3, "017": 17, "0o17": 15, "0x1F": 31, "-.5": -0.5, "+1": 1, "1.": 1.0}


def test_words_stand_for_what_the_core_schema_of_yaml_1_2_says() -> None:
    assert [strict_yaml.load(text) for text in TEXTS] == TEXTS
    assert {text: strict_yaml.load(text) for text in NUMBERS} == NUMBERS
    assert [strict_yaml.load(text) for text in ("TRUE", "False", "Null", "~", "-.inf")] == [
        True, False, None, None, float("-inf"),
    ]  # fmt: skip


def test_every_line_break_of_unicode_is_read_as_it_was() -> None:
    text = "".join(chr(i) for i in (0x0A, 0x0B, 0x0C, 0x0D, 0x85, 0x2028, 0x2029)).join("abcdefgh")
    assert strict_yaml.load(strict_yaml.dump({"prompt": text, "one": "Q\x85A"})) == {"prompt": text, "one": "Q\x85A"}


def test_what_is_written_is_read_as_it_was_by_readers_of_either_version() -> None:
    held = {
        "texts": [*TEXTS, *NUMBERS, "true", "null", "~", "", ".inf", "a: b"],
        "others": [1e-5, 1e300, 3, None, True],
    }
    assert strict_yaml.load(strict_yaml.dump(held)) == held == yaml.safe_load(strict_yaml.dump(held))


OLD = {"texts": [*TEXTS, *NUMBERS, "1e5", "08", "1.5e3", "yes", "off"], "others": [1e-5, 17, 1000, True, None]}


@pytest.mark.parametrize("version", ["0.2.0", "0.3.0", "0.4.0"])
def test_what_was_written_before_0_5_is_read_as_it_was(version: str, tmp_path: Path) -> None:
    old = {"run": {"seed": 1}, "env": {"name": "cartpole", **OLD}}
    path = tmp_path / "config.yaml"
    path.write_text(f"# rlkit {version}; to repeat: python -m rlkit.run env=cartpole\n{yaml.safe_dump(old)}")
    assert sections.read(path) == old
    path.write_text(
        path.read_text().partition("\n")[0] + f"\n{strict_yaml.dump(old)}"
    )  # a resume leaves the first line
    assert sections.read(path) == old


def test_what_was_written_before_0_5_may_be_written_by_hand() -> None:
    assert strict_yaml.load("[1_000, 0b11, 017, 1:30, 0x1F, yes, 1e5]", old=True) == [1000, 3, 15, 90, 31, True, "1e5"]
    for text in (BOMB, "1" * 5000, "1:" * 5000 + "1"):
        with pytest.raises(yaml.YAMLError):
            strict_yaml.load(text, old=True)
