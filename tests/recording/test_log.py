import errno
import io
import json
import os
import struct
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensordict import TensorDict

from rlkit.api import UserError
from rlkit.recording import log as logs
from rlkit.recording.log import Log
from rlkit.recording.outcome import report


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line, parse_constant=pytest.fail) for line in path.read_text(encoding="utf-8").split("\n")[:-1]]


def quiet(folder: Path, resumed_at: int = 0) -> Log:
    return Log(folder, {}, 10, "iterations", quiet=True, resumed_at=resumed_at)


def test_each_iteration_is_one_json_object_and_what_is_not_finite_is_null(tmp_path: Path) -> None:
    with quiet(tmp_path) as log:
        log.iteration(1, 64, {"train/loss": 0.1, "train/kl": float("nan")})
        log.iteration(2, 128, {"train/loss": float("inf")})
    first, second = read(tmp_path / "metrics.jsonl")
    assert list(first) == ["iteration", "env_steps", "seconds", "train/loss", "train/kl"]
    assert (first["iteration"], first["env_steps"], first["train/loss"], first["train/kl"]) == (1, 64, 0.1, None)
    assert second["train/loss"] is None
    assert second["seconds"] >= first["seconds"] >= 0


def test_tensorboard_shows_the_same_figures(tmp_path: Path) -> None:
    with quiet(tmp_path) as log:
        log.iteration(1, 64, {"train/loss": 0.5, "eval/return": 2.0})
        log.iteration(2, 128, {"train/loss": 0.25})
    events = EventAccumulator(str(tmp_path)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("train/loss")] == [(64, 0.5), (128, 0.25)]
    assert [(e.step, e.value) for e in events.Scalars("eval/return")] == [(64, 2.0)]
    (path,) = tmp_path.glob("events.out.tfevents.*")
    assert struct.unpack("<Q", path.read_bytes()[:8])[0] == len("brain.Event:2") + 11  # time and version, framed


def test_a_resumed_run_writes_over_what_came_after_its_checkpoint(tmp_path: Path) -> None:
    with quiet(tmp_path) as log:
        for i in range(1, 6):
            log.iteration(i, 10 * i, {"train/loss": float(i)})
        log.texts.add({"iteration": 2, "prompt": "a\u2028b"})
        log.texts.add({"iteration": 4, "prompt": "c"})
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"iteration": 6, "env_st')  # torn by a kill
    before = read(tmp_path / "completions.jsonl")
    with quiet(tmp_path, resumed_at=3) as log:
        log.iteration(4, 40, {"train/loss": 44.0})
    lines = read(tmp_path / "metrics.jsonl")
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    assert lines[3]["train/loss"] == 44.0
    assert lines[3]["seconds"] >= lines[2]["seconds"]
    assert read(tmp_path / "completions.jsonl") == before[:1]


def test_completions_carry_their_advantage(tmp_path: Path) -> None:
    def env(*texts: tuple[str, float]) -> Any:
        found = [{"prompt": "1+1", "completion": text, "score": score} for text, score in texts]
        return SimpleNamespace(samples=lambda rollout, policy, limit: found[:limit])

    text, control = env(("2", 1.0), ("3", 0.0)), env()
    mask = torch.tensor([[False, True, True], [False, True, False]])
    advantage = torch.tensor([[9.0, 1.0, 2.0], [9.0, -1.0, 9.0]])
    rollout = TensorDict({"mask": mask, "advantage": advantage}, [2])
    with quiet(tmp_path) as log:
        log.completions(3, rollout, rollout, object(), text)
        log.completions(4, rollout, rollout, object(), control)
        log.completions(5, rollout, TensorDict({"mask": mask}, [2]), object(), text)
    records = read(tmp_path / "completions.jsonl")
    assert records[0] == {"iteration": 3, "prompt": "1+1", "completion": "2", "score": 1.0, "advantage": 1.5}
    assert [record["advantage"] for record in records] == [1.5, -1.0, None, None]


def test_a_full_disk_is_told_in_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(handle: int, data: bytes) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with quiet(tmp_path) as log, monkeypatch.context() as patch:
        patch.setattr(os, "write", full)
        with pytest.raises(UserError, match=r"cannot write .*metrics\.jsonl: no space left on the disk"):
            log.iteration(1, 1, {})


def test_a_short_write_is_finished(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write = os.write
    with quiet(tmp_path) as log, monkeypatch.context() as patch:
        patch.setattr(os, "write", lambda handle, data: write(handle, data[:7]))
        log.iteration(1, 1, {"train/loss": 1.0})
    assert read(tmp_path / "metrics.jsonl")[0]["train/loss"] == 1.0


def test_the_summary_is_valid_json(tmp_path: Path) -> None:
    with quiet(tmp_path) as log:
        log.summary({"evaluation": {"after": {"mean": float("nan"), "low": 0.5}}, "alarms": ()})
    text = (tmp_path / "summary.json").read_text()
    assert json.loads(text) == {"evaluation": {"after": {"mean": None, "low": 0.5}}, "alarms": []}


def speak(log: Log) -> None:
    log.show_samples(
        "before",
        [
            {"prompt": "Q. " * 200, "completion": "7 → 8", "score": 0.0, "answer": "9"},
            {"prompt": "x", "completion": "", "score": 1.0},
        ],
    )
    log.iteration(1, 1000, {"train/loss": 0.125, "rollout/return": 21.0})
    log.iteration(2, 2000, {"eval/accuracy": 0.5})
    log.table("greedy accuracy on 200 test episodes", ["", "accuracy"], [["before", "0.130"], ["after", "0.66"]])
    log.note("done [not markup]")


def test_an_answer_that_several_rewards_score_is_not_called_right(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Log(tmp_path, {}, 2, "iterations") as log:
        log.show_samples("before", [{"prompt": "?", "completion": "8", "score": 1.5, "answer": "9"}], graded=False)
    out = capsys.readouterr().out
    assert "score 1.5" in out and "right" not in out and "wrong" not in out


ROWS = {"algorithm": "grpo: " + "a long description " * 6, "run folder": "runs/x"}


def test_a_pipe_gets_plain_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(tmp_path, ROWS, 2, "iterations") as log:
        speak(log)
    out = capsys.readouterr().out
    assert out.replace("→", "").isascii()
    assert "\x1b" not in out
    for line in (
        "run folder: runs/x",
        "    wrong, the answer is 9",
        "    (nothing)",
        "    right",
        "iteration 1  env_steps 1,000  return 21  loss 0.125",
        "iteration 2  env_steps 2,000  accuracy 0.500",
        "greedy accuracy on 200 test episodes",
        "after       0.66",
        "done [not markup]",
    ):
        assert line in out.split("\n")


def test_a_terminal_of_80_columns_is_enough(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"FORCE_COLOR": "1", "NO_COLOR": "1", "COLUMNS": "80", "TERM": "xterm"}.items():
        monkeypatch.setenv(key, value)
    with Log(tmp_path, ROWS, 2, "iterations") as log:
        assert log.console.is_terminal
        speak(log)
    out = capsys.readouterr().out
    assert "\x1b[3" not in out  # NO_COLOR: nothing is colored
    assert "iteration 2  env_steps 2,000  accuracy 0.500" in out
    assert out.index("100%") < out.index("greedy accuracy")  # what comes after the end stands below the bar
    texts = [part for line in out.split("\n") for part in line.replace("\r", "").split("\x1b[2K")]
    assert max(len(text.partition("\x1b")[0]) for text in texts) <= 80


@pytest.mark.parametrize("terminal", [True, False])
def test_a_command_to_be_copied_is_one_line_of_its_own(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"COLUMNS": "80", "TERM": "xterm", **({"FORCE_COLOR": "1"} if terminal else {})}.items():
        monkeypatch.setenv(key, value)
    command = "python -m rlkit.run resume='" + "a folder with a long name/" * 5 + "'"
    with Log(tmp_path, {}, 2, "iterations") as log:
        log.iteration(2, 20, {})
        log.command("stopped at iteration 2; continue with", command)
    assert f"stopped at iteration 2; continue with:\n  {command}\n" in capsys.readouterr().out


@pytest.mark.parametrize("terminal", [True, False])
def test_history_is_whole_lines_that_fit(
    terminal: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for key, value in {"COLUMNS": "80", "TERM": "xterm", **({"FORCE_COLOR": "1"} if terminal else {})}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.setattr(logs, "PLAIN_EVERY", -1.0)
    figures = dict.fromkeys([*logs.SHOWN, logs.SPEED], 123.456)
    with Log(tmp_path, ROWS, 10**6, "iterations") as log:
        for i in (123_456, 123_457):
            log.iteration(i, 98_765_432, {key: x for key, x in figures.items() if not key.startswith("eval/")})
    told = [line for line in capsys.readouterr().out.splitlines() if "iteration 12345" in line]
    lines = [line[line.index("iteration") :].rstrip() for line in told]
    assert len(lines) >= 1 and all("env_steps 98,765,432  return 123  loss 123  kl 123" in line for line in lines)
    assert all(len(line) <= 80 and len(line.split("  ")[-1].split()) == 2 for line in lines)
    monkeypatch.setattr(logs, "PLAIN_EVERY", 1000.0)
    with Log(tmp_path, ROWS, 10, "iterations") as log:
        log.iteration(1, 1, {})
        log.iteration(2, 2, {})
    assert "iteration 2 " not in capsys.readouterr().out, "a line in so many seconds"
    assert logs.whole(["a 1", "bcd 23"], 10) == "a 1" and logs.whole(["a 1", "bcd 23"], 11) == "a 1  bcd 23"


def test_figures_are_short() -> None:
    shown = {0.12345: "0.123", 99.95: "100", 999.4: "999", 999.7: "1,000", -999.7: "-1,000", 12345.6: "12,346"}
    assert {x: logs._number(x) for x in shown} == shown


def test_an_alarm_is_one_warning_wrapped_to_the_width(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with Log(tmp_path, {}, 2, "iterations") as log:
        log.alarm("flat_reward", "every reward of 20 iterations was 0 [exactly]: " + "look at env.reward " * 3)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("warning: flat_reward: every reward of 20 iterations was 0 [exactly]: look")
    assert len(lines) == 2 and max(map(len, lines)) <= 80
    for key, value in {"FORCE_COLOR": "1", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(key, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    with Log(tmp_path, {}, 2, "iterations") as log:
        log.alarm("flat_reward", "look")
    assert "\x1b[1;33mwarning\x1b[0m: flat_reward: look" in capsys.readouterr().out


def test_a_quiet_log_says_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Log(tmp_path, ROWS, 2, "iterations", quiet=True) as log:
        speak(log)
    assert capsys.readouterr().out == ""


def test_an_output_that_is_not_unicode_is_written_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding="ascii"))
    with Log(tmp_path, {}, 1, "iterations") as log:
        log.note("7 → 8")
    assert out.getvalue() == b"7 ? 8\n"


def test_a_table_can_be_printed_without_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    logs.table("title", ["", "mean"], [["a", "1.0"]])
    assert capsys.readouterr().out.split("\n") == ["", "title", "   mean", "a   1.0", ""]


def test_the_numbers_of_a_resumed_bar_go_on(tmp_path: Path) -> None:
    with Log(tmp_path, {}, 100, "env_steps", quiet=True) as log:
        log.iteration(1, 30, {})
    with Log(tmp_path, {}, 100, "env_steps", quiet=True, resumed_at=1) as log:
        assert log.bar.tasks[0].completed == 30


def test_a_listener_gets_each_line_and_says_when_to_stop(tmp_path: Path) -> None:
    heard: list[dict[str, float]] = []

    def listen(line: dict[str, float]) -> bool:
        heard.append(line)
        return line["iteration"] == 2

    with Log(tmp_path, {}, 3, "iterations", quiet=True, listener=listen) as log:
        assert [log.iteration(i, 10 * i, {"train/loss": 0.5}) for i in (1, 2, 3)] == [False, True, False]
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert heard == lines
    with Log(tmp_path, {}, 3, "iterations", quiet=True) as log:
        assert log.iteration(4, 40, {}) is False


class Output:
    """What `IPython.display.display` returns for an output that can be drawn anew."""

    def __init__(self) -> None:
        self.pages: list[str] = []

    def update(self, page: dict[str, str], raw: bool) -> None:
        assert raw
        self.pages.append(page["text/html"])


def test_a_notebook_has_one_progress_bar_below_the_header(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made: list[Output] = []

    def display(page: dict[str, str], raw: bool, display_id: bool) -> Output:
        made.append(Output())
        return made[-1]

    monkeypatch.setitem(sys.modules, "IPython", ModuleType("IPython"))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    monkeypatch.setattr(logs, "PLAIN_EVERY", -1.0)
    with Log(tmp_path, ROWS, 4, "iterations") as log:
        assert len(made) == 1 and "run folder: " in capsys.readouterr().out
        log.iteration(1, 10, {"train/loss": 0.5})
        log.iteration(2, 20, {"rollout/return": 7.0})
        assert capsys.readouterr().out == "", "the bar is drawn anew, no line is added"
        log.note("a <b> note")
        assert capsys.readouterr().out == "a <b> note\n"
    (bar,) = made
    assert [page.partition("</progress>")[0].count('value="0.') for page in bar.pages] == [1, 1]
    assert 'value="0.500"' in bar.pages[-1] and "return 7" in bar.pages[-1]
    with Log(tmp_path, ROWS, 4, "iterations", quiet=True) as log:
        log.iteration(1, 10, {})
    assert len(made) == 1, "a quiet run shows none"


def test_groups_of_kinds_have_a_table_of_their_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"metric": "accuracy", "mean": 0.5, "low": 0.4, "high": 0.6, "length": 3.0, "episodes": 8}
    found: Any = {"after": part | {"kinds": {"add": 0.125}, "groups": {"common": 0.75}}}
    with Log(tmp_path, {}, 1, "iterations") as log:
        report(log, SimpleNamespace(metric="accuracy"), found, "problems")  # type: ignore[arg-type]
    kinds, _, groups = capsys.readouterr().out.partition("accuracy per group of problems")
    assert "accuracy per kind of problems" in kinds and "add" in kinds and "common" not in kinds
    assert "0.125" in kinds, "with as many decimals as the score itself"
    assert "common" in groups and "add" not in groups


def test_a_metric_beside_the_score_has_its_own_decimals(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    part = {"metric": "return", "mean": 61.27, "low": 55.0, "high": 70.0, "length": 3.0, "episodes": 8}
    beside = {"gold": {"mean": 0.0431, "low": 0.0312, "high": 0.0574}, "words": {"mean": 140, "low": 9, "high": 200}}
    beside["once"] = {"mean": 0.25, "low": 0.25, "high": 0.25, "episodes": 1}
    found: Any = {"before": part, "after": part | {"metrics": beside}}
    with Log(tmp_path, {}, 1, "iterations") as log:
        report(log, SimpleNamespace(metric="return"), found, "problems")  # type: ignore[arg-type]
    said = capsys.readouterr().out
    assert "0.043 0.031 0.057" in said, "a score over 10 does not round a share to a tenth"
    assert "140.0 9.0 200.0" in said and "61.3" in said
    assert "0.250 none" in said, "a metric that has an opinion on one row"
