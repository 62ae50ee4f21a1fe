"""Weights & Biases as a logger: what is sent, when it fails, and that nothing is sent unless it is asked for."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rlkit import compare, evaluate, run
from rlkit.api import UserError
from rlkit.recording.log import Log
from rlkit.recording.writers import check_tracker, tracker

ROOT = Path(__file__).resolve().parents[2]
CONFIG = "# rlkit; to repeat: python -m rlkit.run algo=ppo\nrun:\n  seed: 1\nalgo:\n  name: ppo\n"


class StandIn:
    """What is used of the module `wandb`; keeps what it is given, and raises where it is told to."""

    class Error(Exception):
        pass

    def __init__(self, fails: str = "") -> None:
        self.fails, self.init_keys, self.sent = fails, {}, []
        self.summary = SimpleNamespace(update=lambda values: self.send("summary", values))
        self.Settings = lambda **settings: settings

    def init(self, **keys: Any) -> "StandIn":
        if self.fails == "init":
            raise self.Error("No API key configured.\nUse `wandb login` to log in.")
        self.init_keys, self.id = keys, keys["id"] or "fresh"
        return self

    def send(self, what: str, value: Any) -> None:
        if what == self.fails:
            raise ConnectionResetError("Connection lost")
        self.sent.append((what, value))

    def log(self, values: dict[str, float], step: int) -> None:
        self.send("log", (step, values))

    def finish(self, exit_code: int) -> None:
        self.send("finish", exit_code)


def logged(folder: Path, monkeypatch: pytest.MonkeyPatch, fails: str = "") -> StandIn:
    """A short run whose tracker is the stand-in."""
    module = StandIn(fails)
    monkeypatch.setitem(sys.modules, "wandb", module)
    with Log(folder, {}, 2, "iterations", tracker=tracker("wandb", folder, CONFIG)) as log:
        log.iteration(1, 64, {"train/loss": 0.5})
        log.iteration(2, 128, {"train/loss": 0.25})
        log.summary({"iterations": 2, "best": float("nan")})
    return module


def test_configuration_metrics_and_summary_are_sent_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_PROJECT", "mine")
    module = logged(tmp_path, monkeypatch)
    assert module.init_keys["config"] == {"run": {"seed": 1}, "algo": {"name": "ppo"}}
    assert (module.init_keys["project"], module.init_keys["name"]) == ("mine", tmp_path.name)
    settings = module.init_keys["settings"]
    assert (settings["console"], settings["disable_git"], settings["save_code"]) == ("off", True, False)
    assert module.sent == [
        ("log", (1, {"env_steps": 64, "train/loss": 0.5})),
        ("log", (2, {"env_steps": 128, "train/loss": 0.25})),
        ("summary", {"iterations": 2, "best": None}),
        ("finish", 0),
    ]


def test_a_resumed_run_goes_on_in_the_same_one_also_after_its_folder_was_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    assert logged(tmp_path / "a", monkeypatch).init_keys["id"] is None
    (tmp_path / "a").rename(tmp_path / "b")
    again = logged(tmp_path / "b", monkeypatch)
    assert (again.init_keys["id"], again.init_keys["resume"]) == ("fresh", "allow")


@pytest.mark.parametrize("fails", ["log", "summary", "finish"])
def test_when_it_fails_the_run_goes_on_and_says_so_once(
    fails: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logged(tmp_path, monkeypatch, fails)
    out = " ".join(capsys.readouterr().out.split())
    assert out.count("warning: ") == 1
    assert "warning: logger: nothing is sent any more (Connection lost); the run folder has all of it" in out
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2
    assert (tmp_path / "summary.json").is_file()


def test_a_run_that_fails_is_marked_as_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with pytest.raises(ZeroDivisionError), Log(tmp_path, {}, 1, "iterations", tracker=tracker("wandb", tmp_path, "")):
        raise ZeroDivisionError
    assert module.sent == [("finish", 1)]


def test_an_iteration_that_failed_is_not_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """W&B would ignore the iteration that resume repeats."""
    module = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", module)
    with Log(tmp_path, {}, 1, "iterations", tracker=tracker("wandb", tmp_path, "")) as log:
        log.failure(1, 64, "reward_error")
    assert module.sent == [("finish", 0)] and "doctor/reward_error" in (tmp_path / "metrics.jsonl").read_text()


def test_without_the_package_or_a_login_one_line_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UserError, match=r"cannot start: No API key configured\. Use .* WANDB_MODE=offline"):
        logged(tmp_path, monkeypatch, "init")
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"pip install wandb, or logger=none"):
        check_tracker("wandb")


@pytest.mark.slow
def test_unless_asked_for_it_is_not_even_imported(tmp_path: Path) -> None:
    code = f"""if True:
        import sys
        from pathlib import Path
        from rlkit import session
        from rlkit.recording.log import Log
        from rlkit.recording.writers import tracker
        with Log({str(tmp_path)!r}, {{}}, 1, "iterations", tracker=tracker("none", Path("."), "")) as log:
            log.iteration(1, 1, {{}})
        sys.exit("wandb" in sys.modules)"""
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True)


OFFLINE = """if True:
    from pathlib import Path
    from rlkit.recording.log import Log
    from rlkit.recording.writers import tracker
    with Log("run", {}, 1, "iterations", resumed_at=RESUMED, tracker=tracker("wandb", Path("run"), "{seed: 1}")) as log:
        log.iteration(RESUMED + 1, 64, {"train/loss": 0.5})
        log.summary({"evaluation": {"after": {"mean": float("inf")}}})
"""


def test_offline_it_writes_into_the_run_folder_and_keeps_its_id(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    (tmp_path / "run").mkdir()
    environment = os.environ | {"WANDB_MODE": "offline", "PYTHONPATH": str(ROOT)}
    for resumed in (0, 1):
        command = [sys.executable, "-c", OFFLINE.replace("RESUMED", str(resumed))]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        assert done.returncode == 0 and "warning: " not in done.stdout, done.stdout + done.stderr
    name = (tmp_path / "run" / "wandb.id").read_text().strip()
    files = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert {path.name for path in files} == {f"run-{name}.wandb"}
    assert any(b"train/loss" in path.read_bytes() for path in files)


def test_a_run_that_was_sent_somewhere_is_measured_where_that_cannot_be_had(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=q_learning", "env=gridworld", "iterations=1", "evaluation_episodes=2"]
    assert run.main([*words, f"out={tmp_path / 'run'}"]) == 0
    config = tmp_path / "run" / "config.yaml"
    config.write_text(config.read_text().replace("logger: none", "logger: wandb"))
    monkeypatch.setitem(sys.modules, "wandb", None)
    assert evaluate.main([str(tmp_path / "run"), "episodes=2"]) == 0
    capsys.readouterr()
    assert run.main([f"resume={tmp_path / 'run'}", "iterations=2"]) == 2
    assert "pip install wandb, or logger=none" in capsys.readouterr().err
    assert run.main([*words, "logger=wandb", f"out={tmp_path / 'new'}"]) == 2
    assert not (tmp_path / "new").exists()
    there = ["algo=q_learning", "env=gridworld", "logger=wandb", f"out={tmp_path / 'both'}"]
    assert compare.main(there) == 2
    assert not (tmp_path / "both" / "runs").exists()
