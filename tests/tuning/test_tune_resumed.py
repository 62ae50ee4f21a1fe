"""A search that is interrupted, killed or extended goes on as if nothing had been, and in no other's folder."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.pretended_searches import WORDS, conducted, trials
from support.words import last

from rlkit.comparison import grid
from rlkit.errors import UserError
from rlkit.settings import config, plugins
from rlkit.tuning import conduct, search
from rlkit.tuning.problem import Problem, parse
from rlkit.tuning.study import FILE, Study

pytest.importorskip("optuna")
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_the_same_search_finds_the_same_however_it_was_interrupted(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conducted(tmp_path / "whole")
    settle, ends = search.settle, [2, 5, 6]

    def interrupted(study: Study, *rest: object) -> None:
        settle(study, *rest)  # type: ignore[arg-type]
        if len(study.trials) >= ends[0]:
            raise KeyboardInterrupt

    monkeypatch.setattr(search, "settle", interrupted)
    while ends:
        assert conducted(tmp_path / "cut").best is None
        ends.pop(0)
    monkeypatch.setattr(search, "settle", settle)
    with (tmp_path / "cut" / FILE).open("ab") as file:
        file.write(b'{"op_code": 4, "worker_id": "tor')  # a line that a kill tore
    (tmp_path / "cut" / f"{FILE}.lock").symlink_to("nowhere")
    done = conducted(tmp_path / "cut")
    assert (
        trials(tmp_path / "cut") == trials(tmp_path / "whole") and len(set(map(str, trials(tmp_path / "whole")))) == 12
    )
    assert done.best is not None and len(carried) == 2 * (12 + 4)  # nothing was carried out twice


def test_a_closed_terminal_that_says_it_twice_stops_once(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def hang_up(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGHUP)

    for step in ("settle", "stop"):
        monkeypatch.setattr(search, step, hang_up)
    unheard: list[int] = []
    before = signal.signal(signal.SIGHUP, lambda number, _: unheard.append(number))
    try:
        assert conducted(tmp_path).best is None
    finally:
        signal.signal(signal.SIGHUP, before)
    assert not unheard, "it would have ended the search before its runs"


def test_keys_in_another_order_are_drawn_in_that_of_the_search(tmp_path: Path) -> None:
    keys = ["algo.value_coef=0.1..1", "env.rows=2..8"]
    one, other = (Problem(*parse(["algo=ppo", "env=cartpole", *way])) for way in (keys, keys[::-1]))
    assert [*one.space] != [*other.space]
    (tmp_path / conduct.SETTINGS).write_text(conduct.settled(one, tmp_path, 1)[0])
    assert conduct.settled(other, tmp_path, 1) == conduct.settled(one, tmp_path, 1)
    assert [*one.space] == [*other.space]


def test_what_a_killed_search_left_is_removed(tmp_path: Path, carried: list[str]) -> None:
    (tmp_path / "trials").mkdir()
    left = [tmp_path / ".best.yaml.0123456789abcdef.new", tmp_path / "trials" / ".0001-s1000.now.0123456789abcdef.new"]
    for path in left:
        path.write_text("half")
    conducted(tmp_path, "trials=1")
    assert not any(path.exists() for path in left)


def test_a_search_killed_after_it_wrote_a_trial_tidies_it_later(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path / "s", "trials=2")
    folder, other = tmp_path / "s" / "trials", tmp_path / "other"
    checkpoints = folder / "0001-s1000" / "checkpoints"
    for path in (checkpoints, other / "checkpoints"):
        path.mkdir(parents=True)
    (folder / "0001-s1000.now").write_text("running")
    (folder / "0001-s7").symlink_to(other)
    conducted(tmp_path / "s", "trials=2")
    assert not checkpoints.exists() and not (folder / "0001-s1000.now").exists() and checkpoints.parent.is_dir()
    assert (other / "checkpoints").is_dir(), "nothing is removed through a link"


def test_a_lock_that_cannot_be_removed_is_one_line(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def locked(*_: object) -> None:
        raise RuntimeError("Error: did not possess lock")

    monkeypatch.setattr("optuna.Study.add_trial", locked)
    with pytest.raises(UserError, match=r"study\.journal: Error: did not possess lock; fix that, and the same command"):
        conducted(tmp_path, "trials=1")


def test_a_search_killed_while_it_prunes_leaves_no_mark_of_a_run(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conducted(tmp_path, "trials=1")
    (tmp_path / FILE).unlink()
    mark = tmp_path / "trials" / "0000-s1000.now"
    mark.write_text("running")
    monkeypatch.setattr(Study, "hopeless", lambda *_: True)
    conducted(tmp_path, "trials=1")
    assert trials(tmp_path)[0].end == "pruned" and not mark.exists()


@pytest.mark.slow
def test_more_trials_extend_a_search(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path / "a", "trials=8")
    conducted(tmp_path / "a", "trials=12")
    conducted(tmp_path / "b", "trials=12")
    assert trials(tmp_path / "a") == trials(tmp_path / "b")


@pytest.mark.slow
def test_a_better_trial_of_a_longer_search_is_measured_beside_what_was_the_best(
    tmp_path: Path, carried: list[str]
) -> None:
    first, second, again = (conducted(tmp_path, f"trials={n}") for n in (3, 25, 25))
    assert first.best is not None and second.best is not None and second.best.number > first.best.number
    assert second.results is not None and again == second and len(carried) == 25 + 2 * 4
    folders = [tmp_path / "fresh", tmp_path / f"fresh-{second.best.number}"]
    found = [config.from_folder(folder / "runs" / "tuned-gridworld-s0").algo["lr"] for folder in folders]
    assert found == [float(trial.chosen["algo.lr"]) for trial in (first.best, second.best)]


@pytest.mark.slow
def test_a_better_trial_on_other_seeds_is_not_mixed_with_what_was_the_best(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "trials=3")
    words = [word for word in WORDS if not word.startswith(("trials=", "seeds="))]
    done = conduct.conduct(*parse([*words, f"out={tmp_path}", "trials=25", "seed=7-8"]), "python -m rlkit.tune ...")
    assert done.best is not None
    measured = [tmp_path / name / "runs" for name in ("fresh", f"fresh-{done.best.number}")]
    assert [len([*runs.glob("tuned-*-s*/config.yaml")]) for runs in measured] == [2, 2]


@pytest.mark.parametrize("change", ["code", "file"])
@pytest.mark.slow
def test_trials_of_two_defaults_are_not_mixed(change: str, tmp_path: Path, carried: list[str]) -> None:
    text = Path(plugins.load("algorithms", "q_learning").__file__ or "").read_text()
    mine, file = tmp_path / "mine.py", tmp_path / "keys.yaml"
    mine.write_text(text.replace("from .", "from rlkit.algorithms."))
    file.write_text("run: {iterations: 10}\n")
    words = [f"algo={mine}", f"config={file}", f"out={tmp_path / 's'}"]
    conducted(tmp_path / "s", "trials=2", *words)
    if change == "code":
        mine.write_text(f"{mine.read_text()}\nMORE = 1\n")
    else:
        file.write_text("run: {iterations: 10}\nenv: {slip: 0.5}\n")
    what = "mine.py" if change == "code" else r"env\.slip"
    with pytest.raises(UserError, match=rf"{what} has changed since .*s was begun; choose another out="):
        conducted(tmp_path / "s", "trials=3", *words)


def test_a_file_that_is_edited_during_a_search_ends_it(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """No setting is to blame for it, so no trial counts as failed, and none is of the other version."""
    text = Path(plugins.load("algorithms", "q_learning").__file__ or "").read_text()
    mine, pretended = tmp_path / "mine.py", grid.execute
    mine.write_text(text.replace("from .", "from rlkit.algorithms."))
    before = mine.read_text()

    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        if "0002" in job.name:
            mine.write_text(f"{before}\nMORE = 1\n")
        return pretended(job, stop)

    monkeypatch.setattr(grid, "execute", execute)
    with pytest.raises(UserError, match=r"mine\.py has changed since this search began: put it back, or choose"):
        conducted(tmp_path / "s", "trials=4", f"algo={mine}")
    assert [trial.end for trial in trials(tmp_path / "s")] == ["complete"] * 2
    monkeypatch.setattr(grid, "execute", pretended)
    mine.write_text(before)
    conducted(tmp_path / "s", "trials=4", f"algo={mine}")
    assert [trial.end for trial in trials(tmp_path / "s")] == ["complete"] * 4


@pytest.mark.slow
def test_a_cut_off_config_is_not_called_a_change(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "trials=2")
    path = next(tmp_path.glob("trials/0000-*/config.yaml"))
    path.write_text(path.read_text().partition("run:")[0])
    with pytest.raises(UserError, match=rf"^{path} has no \w+: it was cut off, .* delete {path.parent}, or"):
        conducted(tmp_path, "trials=3")
    shutil.rmtree(path.parent)
    assert conducted(tmp_path, "trials=3").best is not None


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["runs=2"], "holds another search: runs=1, asked runs=2; choose another out="),
        (["workers=2"], "workers=1, asked workers=2"),
        (["algo.lr=0.1..0.2"], r"algo\.lr=0\.01\.\.1:log, asked algo\.lr=0\.1\.\.0\.2:log"),
        (["algo.gamma=0.9"], r"algo\.gamma=None, asked algo\.gamma=0\.9"),
        (["sampler=random"], "sampler=tpe, asked sampler=random"),
    ],
)
@pytest.mark.slow
def test_another_search_in_the_same_folder_is_refused(
    tmp_path: Path, carried: list[str], words: list[str], says: str
) -> None:
    conducted(tmp_path, "trials=1")
    with pytest.raises(UserError, match=says):
        conducted(tmp_path, *words)


@pytest.mark.slow
def test_other_folders_and_damaged_files_are_refused(tmp_path: Path, carried: list[str]) -> None:
    (tmp_path / "c" / "runs").mkdir(parents=True)
    with pytest.raises(UserError, match="is a comparison's folder: give a search a folder of its own"):
        conducted(tmp_path / "c")
    (tmp_path / "c" / "config.yaml").touch()
    with pytest.raises(UserError, match="is a run's folder: give a search a folder of its own"):
        conducted(tmp_path / "c")
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "best.yaml").write_text("algo: {lr: 0.1}")
    with pytest.raises(UserError, match=r"holds best\.yaml, which no search wrote"):
        conducted(tmp_path / "mine")
    assert (tmp_path / "mine" / "best.yaml").read_text() == "algo: {lr: 0.1}"
    conducted(tmp_path / "s", "trials=1")
    (tmp_path / "s" / FILE).write_text("[1, 2]\n[]\n")
    with pytest.raises(UserError, match=r"study\.journal is damaged: .*; choose another out="):
        conducted(tmp_path / "s")
    (tmp_path / "s" / FILE).unlink()
    (tmp_path / "s" / FILE).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        conducted(tmp_path / "s")


@pytest.mark.slow
def test_a_link_in_place_of_the_fresh_runs_is_refused(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conducted(tmp_path / "s", "trials=2")
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "s" / "fresh").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="fresh is a link"):
        conducted(tmp_path / "s")
    monkeypatch.setattr(grid, "another", lambda job: ("algo.lr", "") if "fresh" in str(job.folder) else None)
    (tmp_path / "s" / "fresh").unlink()
    for number in range(1, 6):  # whichever is the best
        (tmp_path / "s" / f"fresh-{number}").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"fresh-\d is a link"):
        conducted(tmp_path / "s")


def begin(out: Path, *words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-m", "rlkit.tune", *words, f"out={out}"]
    return subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


REAL = ["algo=q_learning", "env=gridworld", "iterations=40", "runs=1", "trials=8", "seeds=2", "validation_episodes=3"]
SHORT = [*REAL, "workers=2", "evaluation_episodes=3", "algo.schedule=constant"]


@pytest.mark.slow
def test_kill_9_loses_nothing(tmp_path: Path) -> None:
    for kills in range(3):
        process = begin(tmp_path / "killed", *SHORT)
        assert process.stdout is not None
        seen = 0
        for line in process.stdout:  # each time it comes a little further
            seen += "] trial" in line
            if seen > kills % 2:
                break
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    for out in (tmp_path / "killed", tmp_path / "whole"):
        process = begin(out, *SHORT)
        said, _ = process.communicate()
        assert process.returncode == 0, said
    killed, whole = (
        Study(tmp_path / name, Problem(*parse(SHORT)).space, "tpe", "median", 0) for name in ("killed", "whole")
    )
    assert killed.trials == whole.trials and len(whole.trials) == 8
    texts = [(tmp_path / name / "best.yaml").read_text().partition("\nalgo:")[2] for name in ("killed", "whole")]
    assert texts[0] == texts[1]


@pytest.mark.slow
def test_ctrl_c_stops_safely_and_the_same_command_goes_on(tmp_path: Path) -> None:
    words = [*SHORT, "iterations=4000"]
    process = begin(tmp_path, *last(*words))
    while not list(tmp_path.glob("trials/*/metrics.jsonl")) and process.poll() is None:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 1 and "the same command goes on from here" in said
    assert "stopping" in said and not (tmp_path / "best.yaml").exists()
    assert list(tmp_path.glob("trials/*/checkpoints/latest*"))
