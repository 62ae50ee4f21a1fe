"""Every error on docs/errors.md is provoked, and every error in the sources is on it."""

import ast
import math
import re
import shutil
from pathlib import Path

import pytest
from support.errors_page import DURING, PAGE, Entry, Shell, entries, shared
from support.marks import slow_if
from support.raised import ELSEWHERE, pieces, raised
from support.texts import reasoning_installed

from rlkit.control import env as control_env
from rlkit.text import reasoning

TEXT = PAGE.read_text(encoding="utf-8")
ENTRIES = entries(TEXT)
TOOLS = ("bash", "flock", "truncate")


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The finished runs that the page starts from."""
    folder = tmp_path_factory.mktemp("shared")
    with pytest.MonkeyPatch.context() as monkeypatch:
        shell = Shell(folder, monkeypatch)
        assert [shell(command) for command in shared(TEXT)] == [0] * len(shared(TEXT))
    return folder / "runs"


@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason=f"the page is typed into a shell with {', '.join(TOOLS)}")
@pytest.mark.parametrize("entry", slow_if(lambda entry: entry.part == DURING, ENTRIES), ids=lambda entry: entry.name)
def test_what_the_page_shows_is_what_comes(
    entry: Entry, runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    if "env=reasoning" in entry.commands[-1] and not reasoning_installed():
        pytest.skip("reasoning-gym is not installed")
    monkeypatch.setattr(control_env, "LONGEST_EPISODE", 1000)  # 10,000 would take a while
    monkeypatch.setattr(reasoning, "TELL", math.inf)  # a line of its own on a slow machine
    if "runs/" in " ".join(entry.commands):
        shutil.copytree(runs, tmp_path / "runs")
    shell, (*before, last) = Shell(tmp_path, monkeypatch), entry.commands
    try:
        assert [shell(command) for command in before] == [0] * len(before)
        there = shell.files()
        capsys.readouterr()
        code = shell(last)
    finally:
        shell.close()
    said = capsys.readouterr().err.removesuffix("\n")
    assert re.fullmatch(entry.pattern, said), f"{said!r}\nis not\n{entry.lines}"
    assert code == entry.code
    if entry.part != DURING:
        assert shell.files() == there, "it left something behind"


def test_every_error_of_the_sources_is_on_the_page() -> None:
    lines = "\n".join(line for entry in ENTRIES for line in entry.lines)
    missing = []
    for place, found in raised():
        longest = max(found, key=len, default="")
        elsewhere = any(known in piece for known in ELSEWHERE for piece in found)
        if (
            longest not in lines and not elsewhere and not place.startswith("rlkit/pages/")
        ):  # see tests/pages/test_play.py
            missing.append(f"{place}: {longest}")
    assert not missing, "provoke these in docs/errors.md:\n" + "\n".join(missing)


def test_the_longest_piece_of_a_message_is_found() -> None:
    node = ast.parse("f'{name} is wrong: {a or \"something that is longer\"}, so give {b}'").body[0]
    assert list(pieces(node)) == [" is wrong: ", ", so give "]
    assert len(raised()) > 150
