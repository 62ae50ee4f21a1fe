"""Checkpoint `best`: which one is kept, and what a run that goes on makes of it."""

import errno
import json
import os
from pathlib import Path

import pytest
from support.resuming import Killed, differences

from rlkit import evaluate, ranks, run, session
from rlkit.comparison import measuring, records
from rlkit.progress import Progress
from rlkit.recording import checkpoint
from rlkit.recording.log import Log

BEST = ["algo=q_learning", "env=gridworld", "evaluate_every=1", "measure=best", "evaluation_episodes=2"]


def killed_before_latest(folder: Path) -> None:
    """As a kill between `best`, of iteration 9, and the next `latest` leaves a run."""
    state = checkpoint.load(folder, "best")
    state["progress"]["iteration"] = 9
    checkpoint.save(folder, state, "best", iteration=9)


@pytest.mark.slow
def test_a_best_checkpoint_from_beyond_where_a_run_goes_on_gives_way_to_the_one_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is measured is the best policy of this run, of the same iteration as in a run that nobody killed."""
    for name in ("whole", "cut"):
        assert run.main([*BEST, "iterations=2", f"out={tmp_path / name}"]) == 0
    killed_before_latest(tmp_path / "cut")
    capsys.readouterr()
    found = []
    for name in ("whole", "cut"):
        assert run.main([f"resume={tmp_path / name}", "iterations=3"]) == 0
        found.append(checkpoint.load(tmp_path / name, "best")["progress"])
    assert found[0]["iteration"] == found[1]["iteration"] < 3 and found[0]["best"] == found[1]["best"]
    assert not differences(tmp_path / "whole", tmp_path / "cut") and "looked for" not in capsys.readouterr().out


def test_a_best_checkpoint_from_beyond_where_none_before_was_kept_is_looked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As an older rlkit leaves it: what is measured is a policy of this run."""
    assert run.main([*BEST, "iterations=2", f"out={tmp_path}"]) == 0
    killed_before_latest(tmp_path)
    (tmp_path / "checkpoints" / f"{checkpoint.EARLIER}.safetensors").unlink()
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=3"]) == 0
    assert "going on from iteration 2: checkpoint best, of iteration 9, is looked for again" in capsys.readouterr().out
    best = checkpoint.load(tmp_path, "best")["progress"]
    assert (best["iteration"], best["best_among"]) == (3, 1)  # those before are not counted


def test_a_best_checkpoint_that_was_deleted_is_looked_for_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert run.main([*BEST, "iterations=2", f"out={tmp_path}"]) == 0
    (tmp_path / "checkpoints" / "best.safetensors").unlink()
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=3"]) == 0
    assert "going on from iteration 2: checkpoint best, which is gone, is looked for again" in capsys.readouterr().out
    assert checkpoint.load(tmp_path, "best")["progress"]["best_among"] == 1
    (tmp_path / "checkpoints" / "best.safetensors").unlink()
    with monkeypatch.context() as patch:
        patch.setattr(ranks, "first", lambda: False)
        session.drop_later_best(tmp_path, Progress(iteration=3, best=1.0))
    assert not capsys.readouterr().out, "of several ranks, the first one alone says it"
    assert run.main([f"resume={tmp_path}"]) == 0, "it is at its end: the last parameters are measured"
    assert json.loads((tmp_path / "summary.json").read_text())["finished"]


@pytest.mark.parametrize("cut", [False, True])
def test_which_best_is_kept_until_latest_is_written(tmp_path: Path, cut: bool) -> None:
    """Best at 2, 5 and 6, latest at 3: from there on 2 is the best. cut: killed between the two names of `best`."""

    def names() -> list[str]:
        return sorted(path.stem for path in (tmp_path / "checkpoints").iterdir())

    for name, iteration in [("best", 2), ("latest", 3), ("best", 5), ("best", 6)]:
        checkpoint.save(tmp_path, {"of": iteration}, name, iteration=iteration)
    assert names() == [checkpoint.EARLIER, "best", "latest"]
    assert checkpoint.load(tmp_path, checkpoint.EARLIER) == {"of": 2}
    if cut:
        (tmp_path / "checkpoints" / "best.safetensors").unlink()
    assert checkpoint.drop_beyond(tmp_path, 3) is None
    assert names() == ["best", "latest"] and checkpoint.load(tmp_path, "best") == {"of": 2}
    checkpoint.save(tmp_path, {"of": 5}, "best", iteration=5)
    checkpoint.save(tmp_path, {"of": 7}, "latest", iteration=7)
    assert names() == ["best", "latest"]
    assert checkpoint.drop_beyond(tmp_path, 7) is None and checkpoint.load(tmp_path, "best") == {"of": 5}
    assert checkpoint.drop_beyond(tmp_path, 4) == 5 and names() == ["latest"]


@pytest.mark.parametrize("names", [1, 2])
def test_at_no_moment_is_there_no_best(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, names: int) -> None:
    """Killed before the new one has its name; names: how many a file may have on this disk."""
    for name, iteration in [("best", 2), ("latest", 3)]:
        checkpoint.save(tmp_path, {"of": iteration}, name, iteration=iteration)
    real = os.replace

    def replace(old: Path, new: Path) -> None:
        if new.stem == "best":
            raise Killed
        real(old, new)

    def link(old: Path, new: Path) -> None:
        raise PermissionError(errno.EPERM, os.strerror(errno.EPERM))

    with monkeypatch.context() as patched:
        patched.setattr(os, "replace", replace)
        if names == 1:
            patched.setattr(os, "link", link)
        with pytest.raises(Killed):
            checkpoint.save(tmp_path, {"of": 5}, "best", iteration=5)
    if names == 2:
        assert checkpoint.load(tmp_path, "best") == {"of": 2}
    assert checkpoint.load(tmp_path, checkpoint.EARLIER) == {"of": 2}
    assert checkpoint.drop_beyond(tmp_path, 3) is None and checkpoint.load(tmp_path, "best") == {"of": 2}
    for name, iteration in [("best", 5), ("latest", 6)]:
        checkpoint.save(tmp_path, {"of": iteration}, name, iteration=iteration)
    assert {path.stem: checkpoint.load(tmp_path, path.stem) for path in (tmp_path / "checkpoints").iterdir()} == {
        "best": {"of": 5},
        "latest": {"of": 6},
    }


@pytest.mark.slow
def test_a_comparison_tells_among_how_many_evaluations_the_best_was_looked_for(tmp_path: Path) -> None:
    """Of five evaluations, three were on other episodes, and their best was forgotten."""
    assert run.main([*BEST, "iterations=3", "validation_episodes=4", f"out={tmp_path}"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["best"] == {"of": 3, "episodes": 4}
    assert run.main([f"resume={tmp_path}", "iterations=5", "validation_episodes=9"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["best"] == {"of": 2, "episodes": 9}
    record = records.read(tmp_path)
    assert "the best of 2 evaluations on 9 validation episodes" in measuring.sentence([record])
    assert run.main([f"resume={tmp_path}", "iterations=6"]) == 0
    assert records.read(tmp_path).candidates == 3, "the search went on"


@pytest.mark.slow
def test_a_checkpoint_that_does_not_tell_how_often_it_was_evaluated_goes_on(tmp_path: Path) -> None:
    """As rlkit 0.5 wrote them."""
    assert run.main([*BEST, "iterations=3", "validation_episodes=4", f"out={tmp_path}"]) == 0
    state = checkpoint.load(tmp_path, "latest")
    for key in ("best_of", "best_among"):
        del state["progress"][key]
    checkpoint.save(tmp_path, state, "latest", iteration=3)
    assert run.main([f"resume={tmp_path}", "iterations=5"]) == 0
    assert "best" not in json.loads((tmp_path / "summary.json").read_text())
    assert (records.read(tmp_path).candidates, records.read(tmp_path).validation_episodes) == (5, "4")


@pytest.mark.parametrize("word", ["validation_episodes=9", "evaluations=7"])
def test_a_finished_run_is_not_said_to_be_validated_otherwise(
    word: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([*BEST, "iterations=2", "validation_episodes=4", f"out={tmp_path}"]) == 0
    before = (tmp_path / "config.yaml").read_text()
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", word]) == 2
    said = f"rlkit: {word} does nothing: {tmp_path} is at its end; leave it out, or give a longer length beside it"
    assert capsys.readouterr().err == f"{said}\n"
    assert (tmp_path / "config.yaml").read_text() == before and (tmp_path / "summary.json").is_file()
    assert run.main([f"resume={tmp_path}", "validation_episodes=4"]) == 0, "its own number may be given again"


@pytest.mark.slow
def test_another_number_of_validation_episodes_begins_the_search_for_the_best_anew(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A lucky score on one episode is not a measure for means of many."""
    assert run.main([*BEST, "iterations=2", "validation_episodes=1", f"out={tmp_path}"]) == 0
    for name in ("latest", "best"):
        state = checkpoint.load(tmp_path, name)
        state["progress"]["best"] = 1e6
        checkpoint.save(tmp_path, state, name, iteration=state["progress"]["iteration"])
    assert run.main([f"resume={tmp_path}", "iterations=3"]) == 0
    assert checkpoint.load(tmp_path, "latest")["progress"]["best"] == 1e6, "the same number: the best stays"
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=4", "validation_episodes=3"]) == 0
    assert "validated on 3 in place of 1: checkpoint best is looked for again from here on" in capsys.readouterr().out
    assert checkpoint.load(tmp_path, "best")["progress"]["iteration"] == 4


@pytest.mark.slow
def test_a_kill_while_other_parameters_are_measured_leaves_no_summary_of_those_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its config.yaml and its model would be of the best parameters, its summary of the last ones."""

    def killed(*_: object) -> None:
        raise Killed

    words = ["algo=q_learning", "env=gridworld", "evaluate_every=1", "evaluation_episodes=2", "iterations=3"]
    assert run.main([*words, f"out={tmp_path}"]) == 0
    assert run.main([f"resume={tmp_path}", "measure=latest"]) == 0
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Log, "summary", killed)
        run.main([f"resume={tmp_path}"])
    assert (tmp_path / "summary.json").is_file(), "nothing has changed: it is still true"
    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Log, "summary", killed)
        run.main([f"resume={tmp_path}", "measure=best"])
    assert not (tmp_path / "summary.json").exists()
    assert run.main([f"resume={tmp_path}"]) == 0
    assert json.loads((tmp_path / "summary.json").read_text())["finished"]


def test_a_run_whose_best_checkpoint_is_damaged_ends_with_its_last_parameters_as_the_message_says(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([*BEST, "iterations=2", f"out={tmp_path}"]) == 0
    os.truncate(tmp_path / "checkpoints" / "best.safetensors", 100)
    assert run.main([f"resume={tmp_path}"]) == 2 and evaluate.main([str(tmp_path), "episodes=2"]) == 2
    assert capsys.readouterr().err.count("give checkpoint=latest, or resume with measure=latest") == 2
    assert evaluate.main([str(tmp_path), "checkpoint=latest", "episodes=2"]) == 0
    assert run.main([f"resume={tmp_path}", "measure=latest"]) == 0
    assert evaluate.main([str(tmp_path), "episodes=2"]) == 0
