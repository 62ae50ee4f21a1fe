"""YAML of a stranger's: no aliases, no depth, no code."""

import re

import pytest
import yaml

from rlkit.settings import strict_yaml

BOMB = "a: &a [1, 2]\nb: &b [*a, *a]\nc: [*b, *b]\n"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (BOMB, r"aliases \(\*name\) are not read"),
        ("[" * 100_000, "nested more than 20 deep"),
        ("a: " * 50, "mapping values are not allowed here"),
        ("{a: 1, a: 2}", "a key is given twice"),
        ("!!python/object/apply:os.system ['true']", "could not determine a constructor"),
        ("1" * 5000, "a number of more than 1,000 digits"),
        ("0x" + "f" * 100_000, "a number of more than 1,000 digits"),  # could be read, and never shown
        ("1" + ":1" * 400_000, "a number of more than 1,000 digits"),  # in base 60: minutes
        ("0" + ":0" * 400_000 + ".5", "a number of more than 1,000 digits"),
        ("{[1]: 2}", "found unhashable key"),
    ],
)
def test_what_a_configuration_never_has_is_refused(text: str, told: str) -> None:
    with pytest.raises(yaml.YAMLError) as caught:
        strict_yaml.load(text)
    assert "\n" not in strict_yaml.reason(caught.value)
    assert re.search(told, strict_yaml.reason(caught.value))


def test_what_a_configuration_has_is_read() -> None:
    assert strict_yaml.load("a: {lr: 0.1, hidden: [8, 9], out: null, on: true}") == {
        "a": {"lr": 0.1, "hidden": [8, 9], "out": None, True: True}
    }
    assert strict_yaml.load("[1, no, 1e-3]", texts=True) == ["1", "no", "1e-3"]
