"""The folder of a search that was damaged or is a stranger's: one line, and nothing runs that was not asked for."""

import errno
import json
import math
import os
import resource
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support import pretended_searches
from support.pretended_searches import conducted, evaluated, trials

from rlkit.comparison import grid
from rlkit.errors import UserError
from rlkit.tuning import search
from rlkit.tuning.points import STRIDE, Evaluation
from rlkit.tuning.study import FILE, Study, Trial, mend

pytest.importorskip("optuna")
Change = Callable[[dict[str, Any]], object]


def change_trials(out: Path, change: Change) -> None:
    """Change the lines of the journal that are trials."""
    lines = [json.loads(line) for line in (out / FILE).read_text().splitlines()]
    for line in lines:
        if "user_attrs" in line:
            change(line)
    (out / FILE).write_text("".join(json.dumps(line) + "\n" for line in lines))


def told(**keys: object) -> Change:
    return lambda line: line["user_attrs"].update(keys)


DAMAGES: dict[str, Change] = {
    "a list of settings": told(chosen=[]),
    "settings of no text": told(chosen={"algo.lr": 0.1}),
    "settings that were not searched": told(chosen={"env.reward": "./evil.py:f"}),
    "a setting that was not the trial's": told(chosen={"algo.lr": "0.7"}),
    "a value outside of the range": lambda line: line["params"].update({"algo.lr": 7.0}),
    "a range that is not searched": lambda line: (
        line["params"].update(x=1.0),
        line["distributions"].update(x=line["distributions"]["algo.lr"]),
    ),
    "a score that is none": lambda line: line.update(value=float("nan")),
    "an infinite score": lambda line: line.update(value=float("inf")),
    "no score": lambda line: line.update(value=None, values=None),
    "a score of 400 digits": lambda line: line.update(intermediate_values={"0": 10**400}),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.slow
def test_a_trial_that_was_changed_is_one_line(damage: str, tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "trials=2")
    change_trials(tmp_path, DAMAGES[damage])
    before = len(carried)
    with pytest.raises(UserError, match=r"study\.journal is damaged: .*; choose another out="):
        conducted(tmp_path, "trials=3")
    assert len(carried) == before, "nothing was carried out"


@pytest.mark.parametrize("number", ["abc", "-1", "0", "[1]", "true", "{a: 1}", "1.5"])
@pytest.mark.slow
def test_a_number_of_runs_that_is_none_is_one_line(number: str, tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "trials=1")
    path = tmp_path / "search.yaml"
    path.write_text(path.read_text().replace("workers: 1", f"workers: {number}"))
    with pytest.raises(UserError, match=r"holds another search: workers=.*; choose another out="):
        conducted(tmp_path, "trials=1", "workers=none")


def test_a_run_whose_last_score_is_no_number_has_none(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def diverged(job: grid.Job, values: list[float]) -> None:
        evaluated(job, values if job.name.startswith("0000") else [1.0, 2.0, math.nan])

    monkeypatch.setattr(pretended_searches, "evaluated", diverged)
    conducted(tmp_path, "trials=2", "pruner=none")
    found = trials(tmp_path)[1]
    assert (found.end, found.value) == ("failed", None) and "not a number" in found.reason
    assert [found.values[k] for k in (0, 1)] == [1.0, 2.0] and math.isnan(found.values[2])


def test_a_search_whose_folder_moves_ends_and_makes_no_other(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    old, new, pretended = tmp_path / "old", tmp_path / "new", grid.execute

    def moving(job: grid.Job, stop: Path) -> tuple[int, str]:
        found = pretended(job, stop)
        if "0001" in job.name:
            old.rename(new)
        return found

    monkeypatch.setattr(grid, "execute", moving)
    with pytest.raises(UserError, match=r"old is gone, moved or deleted during the run"):
        conducted(old, "trials=3")
    assert not old.exists() and [trial.end for trial in trials(new)] == ["complete"]
    monkeypatch.setattr(grid, "execute", pretended)
    assert conducted(new, "trials=3").best is not None and len(trials(new)) == 3


def test_a_folder_in_the_place_of_a_mark_is_removed(tmp_path: Path, carried: list[str]) -> None:
    (tmp_path / "trials" / "0000.stop" / "inside").mkdir(parents=True)
    conducted(tmp_path, "trials=1")
    assert carried


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("rlkit: cannot write latest.safetensors: no space left on device", "cannot write latest"),
        ("cannot write checkpoints: no space left on the disk", "cannot write checkpoints"),  # what came from elsewhere
        (
            "rlkit: the system writes no more files, neither here nor in the folder for temporary",
            "the system writes no",
        ),
        pytest.param(
            "rlkit: x cannot be locked: no space left on the disk; give a folder", "x cannot be", marks=pytest.mark.slow
        ),
        pytest.param(
            "", "cannot write .*: the run's last line is missing", marks=pytest.mark.slow
        ),  # all of it is lost
        pytest.param(
            "lost 3 times: its machine or its worker there is gone (ActorDiedError)",
            "lost 3 times",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            "python -m rlkit.run resume=trials/0002-s1000", "asked to leave by a signal, twice", marks=pytest.mark.slow
        ),
        pytest.param(
            "rlkit: reward f raised OSError; fix it, then resume with: x", "reward f raised", marks=pytest.mark.slow
        ),
        pytest.param(
            "rlkit: hub dataset a/b (2 train) has other rows than when trials/0002-s1000 began, as a new version has",
            "hub dataset a/b",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_what_no_setting_is_to_blame_for_ends_a_search_that_then_goes_on(
    said: str, told: str, tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk, machines that are lost, signals, a judge that does not answer: no trial counts as failed."""
    pretended = grid.execute
    monkeypatch.setattr(grid, "execute", lambda job, stop: (2, said) if "0002" in job.name else pretended(job, stop))
    with pytest.raises(UserError, match=rf"^trial 2 could not be finished: {told}.*; then give") as raised:
        conducted(tmp_path, "trials=4")
    assert "resume" not in str(raised.value)
    assert [trial.end for trial in trials(tmp_path)] == ["complete"] * 2
    monkeypatch.setattr(grid, "execute", pretended)
    assert conducted(tmp_path, "trials=4").best is not None
    assert [trial.end for trial in trials(tmp_path)] == ["complete"] * 4
    assert [name[:4] for name in carried if name.startswith("000")] == ["0000", "0001", "0002", "0003"]


@pytest.mark.parametrize(
    ("code", "said"),
    [
        (2, "rlkit: the system of equations is singular at this rate"),
        (1, "ValueError: there is no space left on the disk of my simulation"),
    ],
)
def test_an_error_of_ones_own_code_counts_as_failed(
    code: int, said: str, tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended = grid.execute
    monkeypatch.setattr(grid, "execute", lambda job, stop: (code, said) if "0001" in job.name else pretended(job, stop))
    conducted(tmp_path, "trials=3")
    assert [trial.end for trial in trials(tmp_path)] == ["complete", "failed", "complete"]


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)),
            "the system writes no more files: no space left on the disk",
        ),
        (BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)), "the system starts no more processes and threads"),
        (UserError("0002-s1000.now is a link, and nothing is"), r"0002-s1000\.now is a link"),  # in a stranger's folder
    ],
    ids=["a full disk", "no more processes", "a link"],
)
def test_what_goes_wrong_around_a_run_ends_a_search(
    error: Exception, told: str, tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pretended = grid.execute

    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        if "0002" in job.name:
            raise error
        return pretended(job, stop)

    monkeypatch.setattr(grid, "execute", execute)
    with pytest.raises(UserError, match=rf"^trial 2 could not be finished: {told}.*; then give"):
        conducted(tmp_path, "trials=4")
    assert [trial.end for trial in trials(tmp_path)] == ["complete"] * 2


def test_a_trial_that_does_not_fit_on_the_disk_is_one_line(tmp_path: Path) -> None:
    study, hard = Study(tmp_path, {}, "random", "none", 0), resource.getrlimit(resource.RLIMIT_FSIZE)[1]
    trial = Trial(0, {}, "complete", 1.0, {})
    resource.setrlimit(resource.RLIMIT_FSIZE, (study.path.stat().st_size + 50, hard))
    try:
        with pytest.raises(UserError, match=r"^cannot write .*study\.journal: .* the same command goes on"):
            study.add(trial)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))
    study = Study(tmp_path, {}, "random", "none", 0)
    assert study.trials == []
    study.add(trial)
    assert Study(tmp_path, {}, "random", "none", 0).trials == [trial]


@pytest.mark.slow
def test_settings_that_an_algorithm_of_ones_own_cannot_take_are_a_failed_trial(
    tmp_path: Path, carried: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(
        "from rlkit.algorithms import q_learning\nfrom rlkit.algorithms.q_learning import Config\n\n"
        "def make(config, *rest):\n"
        "    if config.lr > 0.2:\n        raise ValueError('too\\nlarge')\n    return q_learning.make(config, *rest)\n"
    )
    done = conducted(tmp_path / "out", f"algo={tmp_path / 'mine.py'}", "trials=6", "sampler=random")
    assert done.best is not None and done.best.end == "complete"
    assert "failed: ValueError: too large" in capsys.readouterr().out


@pytest.mark.parametrize(("text", "left"), [("a\nb\nc", "a\nb\n"), ("no line break", ""), ("a\n", "a\n"), ("", "")])
def test_a_last_line_that_was_cut_off_is_removed_with_a_notice(
    text: str, left: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / FILE
    path.write_text(text)
    os.link(path, tmp_path / "backup")
    mend(path)
    assert path.read_text() == left and path.stat().st_nlink == 1  # Optuna writes to the file in its place
    kept = left.count("\n")
    notice = f"{path}: the last line is cut off and removed; {kept} before it are kept\n" if left != text else ""
    assert capsys.readouterr().err == notice


def test_a_pipe_in_the_place_of_the_trials_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / FILE)
    with pytest.raises(UserError, match=rf"^cannot write {tmp_path / FILE}: it is not a file; choose another out="):
        mend(tmp_path / FILE)


def test_a_file_of_trials_that_would_fill_the_memory_is_refused(tmp_path: Path) -> None:
    with (tmp_path / FILE).open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(UserError, match=r"study\.journal has over 1,073,741,824 bytes, .*; choose another out="):
        mend(tmp_path / FILE)


def test_a_run_that_ends_while_it_is_looked_at_counts_with_its_last_evaluation(tmp_path: Path, monkeypatch) -> None:
    """A busy machine may leave seconds between two reads, in which one run ends and the next is evaluated."""
    ended: list[bool] = []
    attempt = search.Attempt.__new__(search.Attempt)
    jobs: Any = [SimpleNamespace(folder="first"), SimpleNamespace(folder="second")]
    study: Any = SimpleNamespace(hopeless=lambda values, before: False)
    problem: Any = SimpleNamespace(usual={"run": {"measure": "latest"}})
    vars(attempt).update(jobs=jobs, study=study, problem=problem, values={}, given_up=False, before=0, stop=tmp_path)
    attempt.points = Fraction(2)

    def read(job: Any) -> list[Evaluation]:
        found = [3.0] if job is jobs[1] else [1.0, 9.0] if ended else [1.0]
        ended.append(True)
        return [Evaluation(Fraction(i, 2), score) for i, score in enumerate(found, start=1)]

    monkeypatch.setattr(search, "evaluations", read)
    monkeypatch.setattr(grid, "summary", lambda job: {"finished": bool(ended) and job is jobs[0]})
    attempt.look()
    attempt.look()
    assert attempt.values == {0: 1.0, 1: 9.0, STRIDE: (9.0 + 3.0) / 2}
