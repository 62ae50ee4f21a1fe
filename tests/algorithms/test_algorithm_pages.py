"""docs/algorithms names code that is there: every `module.function` and `Class.method` in backquotes is looked up."""

import importlib
import pkgutil
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from rlkit import algorithms, api, buffers, losses, policies, returns
from rlkit.language import reward_model
from rlkit.policies import normalize, tables

PAGES = sorted((Path(__file__).parents[2] / "docs" / "algorithms").glob("*.md"))
SPAN = re.compile(r"`([A-Za-z]\w*(?:\.[A-Za-z]\w*)+)[^`]*`")
SECTIONS = ("algo", "env", "policy", "run")  # keys: test_commands.py and test_keys.py try them
FILES = (".jsonl", ".safetensors", ".md", ".py", ".yaml", ".json")
METHODS = [*(importlib.import_module(f"rlkit.algorithms.{x.name}") for x in pkgutil.iter_modules(algorithms.__path__))]


def meant(head: str) -> Iterator[object]:
    """The modules and classes of a name: of the mathematics, of the algorithms, and of what these are made of."""
    if head == "network":  # what `make` is given
        yield api.PolicyFactory
    for room in ("rlkit", "rlkit.policies", "rlkit.buffers", "rlkit.algorithms"):
        try:
            yield importlib.import_module(f"{room}.{head}")
        except ModuleNotFoundError:
            continue
    for module in (*METHODS, api, buffers, policies, normalize, tables, reward_model):
        if isinstance(found := vars(module).get(head), type):
            yield found


def there(thing: object, names: list[str]) -> bool:
    """Whether a thing has an attribute, or an annotation, of the first name, and that the next one."""
    if not names:
        return True
    first, *rest = names
    if hasattr(thing, first):
        return there(getattr(thing, first), rest)
    return not rest and not isinstance(thing, ModuleType) and first in getattr(thing, "__annotations__", {})


def missing(text: str) -> list[str]:
    """The names in a page that are nowhere."""
    spans = [span for span in SPAN.findall(text) if span.split(".")[0] not in SECTIONS and not span.endswith(FILES)]
    return [span for span in spans if not any(there(x, span.split(".")[1:]) for x in meant(span.split(".")[0]))]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_what_a_page_names_is_in_the_code(page: Path) -> None:
    assert not missing(page.read_text(encoding="utf-8"))


def test_a_name_that_is_nowhere_is_found() -> None:
    assert missing("`DQN.follow` `DQN.loss`, `returns.gae(x)` and `policies.Dueling`; `nowhere.x`") == [
        "DQN.follow",
        "policies.Dueling",
        "nowhere.x",
    ]
    assert there(losses, ["reduction", "__doc__"]) and not there(returns, ["gae", "x"])
