"""Every run that a page shows passes the check of its configuration; docs/errors.md shows those that do not."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlkit.api import UserError
from rlkit.settings import assemble, config, plugins

ROOT = Path(__file__).resolve().parent.parent
PAGES = ["README.md", *sorted(str(path.relative_to(ROOT)) for path in (ROOT / "docs").rglob("*.md"))]
PAGES.remove("docs/errors.md")
TEXT = ("arithmetic", "game", "gsm8k", "guess", "preferences", "reasoning", "text")
# Files of the reader's, and words in place of others, such as NAME.
OPEN = re.compile(r"(algo|env)=(\./|my_|[^ ]*,)|[^ ]*[A-Z]{4}|[^ ]*\.\.\.")


def commands(page: str, text: str) -> list[list[str]]:
    """The words of each `python -m rlkit.run ...`, and of each `algo=...` in backquotes that names an environment."""
    text = re.sub(r"\\\n *", " ", text)
    # Behind three blanks stands what it does.
    found = re.findall(r"python -m rlkit\.run ([^`\n]*?)(?: {3}.*)?(?:`|$)", text, re.MULTILINE)
    spans = re.findall(r"`(algo=\w[^`]*)`", text)
    if page == "docs/parity.md":  # which is about text
        found += [f"{span} env=gsm8k" for span in spans]
    else:
        found += [span for span in spans if " env=" in span]
    words = [shlex.split(command, comments=True) for command in found]
    return [line for line in words if not any(OPEN.match(word) or word == "--help" for word in line)]


def check(words: list[str]) -> None:
    """As `assemble` does, but nothing is made: no problem is read, and no model."""
    given = config.read(words)
    kind = "text" if given.env["name"] in TEXT else "control"
    classes = {
        section: plugins.load(noun, given.section(section)["name"]).Config for section, noun in config.KINDS.items()
    }
    classes["policy"] = config.network_class(kind)
    config.build(config.Run, given.run, "run")
    built: dict[str, Any] = {key: config.build(cls, given.section(key), key) for key, cls in classes.items()}
    env: Any = SimpleNamespace(kind=kind)
    assemble.refuse_idle(given, built["algo"], built["env"], built["policy"], env, None)


@pytest.mark.parametrize("page", PAGES)
def test_every_run_on_a_page_passes_the_check_of_its_configuration(page: str) -> None:
    refused = {}
    for words in commands(page, (ROOT / page).read_text(encoding="utf-8")):
        try:
            check(words)
        except UserError as error:
            refused[" ".join(words)] = str(error)
    assert not refused


def test_commands_are_found() -> None:
    found = {page: commands(page, (ROOT / page).read_text(encoding="utf-8")) for page in PAGES}
    assert len(found["docs/parity.md"]) > 50 and sum(map(len, found.values())) > 140
    block = (
        "    python -m rlkit.run algo=a env=b \\\n        c=1   why\n    x && python -m rlkit.run algo=a env=d  # why\n"
    )
    spans = "`python -m rlkit.run algo=NAME env=c` `python -m rlkit.run algo=d env=c`, `algo=e env=f`, `algo=g`\n"
    first, second = ["algo=a", "env=b", "c=1"], ["algo=a", "env=d"]
    assert commands("README.md", block + spans) == [first, second, ["algo=d", "env=c"], ["algo=e", "env=f"]]
