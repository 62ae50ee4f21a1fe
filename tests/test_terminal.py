"""What reaches a terminal: no character that it would obey, and nothing in another way than through rlkit.terminal."""

import ast
import errno
import io
import os
import pty
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from rich.live import Live
from rich.table import Table
from rich.text import Text
from support.sources import SOURCES, TREES, calls, imports

from rlkit import compare, evaluate, run
from rlkit.comparison import report
from rlkit.recording.log import Log
from rlkit.screen import Screen
from rlkit.terminal import Out, harmless, muted, say, tell, warn

ROOT = Path(__file__).resolve().parents[1]
TITLE = "\x1b]0;owned\x07\x1b[31mred\x1b[2J\x9b31m"  # a window's title, a color, a clean screen, C1
TURNED = "\u202eevil\u2066\u200f\u061c"  # what follows is shown from right to left
HOSTILE = TITLE + TURNED + "\r\b\x00\u2028\ud800"
REST = "]0;owned[31mred[2J31mevil"  # what may be seen of it


def is_harmless(text: str) -> bool:
    return harmless(text) == text


def test_what_a_terminal_obeys_is_shown_and_the_rest_is_kept() -> None:
    shown = harmless(HOSTILE)
    assert shown.replace("\ufffd", "") == REST and shown.count("\ufffd") == len(HOSTILE) - len(REST)
    kept = "tab\tline\nγ → ½ é 漢字 👩\u200d👧 e\u0301"
    assert harmless(kept) == kept


def test_nothing_is_printed_in_another_way() -> None:
    """`print`, a stream of its own, or a console of rich's own would go around the filter."""
    for name in SOURCES:
        if name in ("rlkit.terminal", "rlkit.screen"):
            continue
        for called, node in calls(name):
            where = f"{name}, line {node.lineno}: {called}"
            assert called != "print", where
            if called == "Live" and "rich.live.Live" in set(imports(name)):
                assert "console" in {keyword.arg for keyword in node.keywords}, where
            assert not called.startswith(("sys.stdout.write", "sys.stderr.write", "traceback.print")), where
        assert not {"rich.console.Console", "rich.print", "rich.get_console"} & set(imports(name)), name
        streams = {ast.unparse(node) for node in ast.walk(TREES[name]) if isinstance(node, ast.Attribute)}
        # The last two answer their parents through a pipe.
        own = name in ("rlkit.console", "rlkit.language.sandbox", "rlkit.text.process_child")
        assert own or not {"sys.stdout", "sys.stderr"} & streams, name


def test_every_way_out_is_filtered(capsys: pytest.CaptureFixture[str]) -> None:
    say(HOSTILE)
    warn(f"{HOSTILE}\nnext")
    tell(HOSTILE)
    screen, grid = Screen(), Table.grid()
    grid.add_row(Text(HOSTILE), HOSTILE)
    screen.print(Text(HOSTILE))
    screen.print(grid)
    screen.command(f"rm {HOSTILE}")
    out, err = capsys.readouterr()
    assert is_harmless(out) and is_harmless(err)
    assert out.count("owned") == 5 and err.count("owned") == 2
    assert err.count("\n") == 2, "a warning is one line"


def test_what_rich_draws_with_itself_still_reaches_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color", "COLUMNS": "80"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    screen = Screen()
    screen.print(Text("red\x1b[2J", style="red"))
    with Live(console=screen, auto_refresh=False) as live:
        live.update(Text("a\x1b]0;owned\x07b"), refresh=True)
        say("above\x1b[2J")
    out = capsys.readouterr().out
    assert "\x1b[31mred" in out and "\x1b[2J" not in out and "\x1b]0" not in out and "above" in out


def test_a_stranger_s_words_reach_no_terminal(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, keys, help, samples, alarms, tables: whatever a file or a command line holds."""
    words = TITLE + TURNED
    plugin = tmp_path / "mine.py"
    plugin.write_text(
        f'"""Mine {words}."""\nfrom dataclasses import dataclass\n\n@dataclass(frozen=True)\nclass Config:\n'
        f"    title: str = {words!r}  # a key {words}\n    lr: float = 1.0\n\ndef make(config, env):\n    ...\n",
        encoding="utf-8",
    )
    assert run.main([f"algo={plugin}", "--help"]) == 0
    for command in (run.main, evaluate.main, compare.main):
        assert command([f"{words}=1", words]) == 2
        assert command([f"algo=ppo{words}", "env=cartpole", f"out={tmp_path / 'out'}"]) == 2
    with Log(tmp_path, {f"key{words}": words}, 2, "iterations") as log:
        log.show_samples(words, [{"prompt": words, "completion": words, "score": 0.0, "answer": words}])
        log.note(words)
        log.alarm(words, words)
        log.table(words, ["", words], [[words, "1"]])
        log.command(words, words)
    out, err = capsys.readouterr()
    assert "owned" in out and "owned" in err
    assert is_harmless(out) and is_harmless(err)
    assert "\x1b]0;owned" in plugin.read_text(encoding="utf-8"), "files keep it"


@pytest.mark.slow
def test_a_comparison_shows_what_its_folders_hold_harmlessly(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = TITLE + TURNED
    records = [record(tmp_path, f"a{words}", seed) for seed in (0, 1)] + [record(tmp_path, "b", 0)]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # matplotlib has no glyphs for these
        report.show(report.write(records, tmp_path / "out", [f"missing {words}"], words))
    out, err = capsys.readouterr()
    assert "owned" in out and is_harmless(out) and is_harmless(err)


def record(folder: Path, algo: str, seed: int):  # type: ignore[no-untyped-def]
    from rlkit.comparison.records import Record

    return Record(
        algo, "e", seed, folder, "return", 1.0 + seed, 0.5, 1.5, 10, 1.0, alarms=[f"a{TITLE}: {TURNED}"], before=0.0
    )


@pytest.mark.parametrize("stream", [None, "closed"])
def test_a_program_without_a_standard_output_prints_nothing(
    stream: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("stdout", "stderr"):
        gone = None
        if stream == "closed":
            gone = io.StringIO()
            gone.close()
        monkeypatch.setattr(sys, name, gone)
    say("a")
    warn("b")
    with Log(tmp_path, {"a": "b"}, 2, "iterations") as log:
        log.note("c")
        log.iteration(1, 10, {"train/loss": 1.0})
        log.command("d", "e")


def test_what_stands_in_for_a_stream_needs_to_write_only(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        said = ""

        def write(self, text: str) -> None:
            self.said += text

        def flush(self) -> None: ...

    tee = Tee()
    monkeypatch.setattr(sys, "stdout", tee)
    say("γ\x1b")
    Screen().print(Text("drawn"))
    assert tee.said == "γ\ufffd\ndrawn\n"


@pytest.mark.skipif(os.name != "posix", reason="opens a terminal")
def test_a_terminal_that_is_gone_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream:
        os.close(ours)
        with pytest.raises(OSError, match=os.strerror(errno.EIO)):
            os.write(stream.fileno(), b"x")
        monkeypatch.setattr(sys, "stdout", stream)
        say("nobody hears it")
        Screen().print(Text("nor this"))
        Out(stream).flush()
        monkeypatch.undo()  # and closing it does not fail


def test_a_replacement_of_the_stream_may_fail_and_have_no_file(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "full")

        def flush(self) -> None:
            raise OSError(errno.ENOSPC, "full")

    monkeypatch.setattr(sys, "stdout", Full())
    say("nobody hears it")
    Screen().print(Text("nor this"))


def test_muted_holds_for_everything_below_and_no_longer(capsys: pytest.CaptureFixture[str]) -> None:
    with muted(), muted(False):
        say("a")
        warn("b")
        Screen().print(Text("c"))
    with muted(False):
        say("d")
    assert capsys.readouterr() == ("d\n", "")


@pytest.mark.slow
def test_a_warning_of_a_library_obeys_nothing_either(tmp_path: Path) -> None:
    """Gymnasium repeats what it was given, in a color of its own; pytest takes warnings away, so in a process."""
    file = tmp_path / "mine.py"
    file.write_text(
        "import gymnasium\nfrom rlkit.envs.cartpole import Config, make\n"
        "gymnasium.logger.warn('\\033]0;owned\\a\\u202e')\n"
    )
    words = ["algo=reinforce", f"env={file}", f"out={tmp_path / 'run'}", "iterations=1"]
    words += ["evaluation_episodes=1", "threads=1"]
    told = subprocess.run([sys.executable, "-m", "rlkit.run", *words], capture_output=True, cwd=ROOT, check=False)
    said = told.stderr.decode()
    assert told.returncode == 0 and "owned" in said and is_harmless(said)
