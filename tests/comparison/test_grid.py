"""A grid of runs: what a run's folder says of it, and that each is finished whatever happens to its process."""

import json
import os
import queue
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as futures_wait
from pathlib import Path

import pytest
from filelock import FileLock

from rlkit.api import UserError
from rlkit.comparison import conduct, grid, plan, view
from rlkit.comparison.grid import Job, carry_out, check, difference, state
from rlkit.signals import LEAVE

# Stands in for `python -m rlkit.run`, which takes seconds to start: it locks its folder and does what algo=... says.
PRETENDED = """#!{python} -IS
import fcntl, json, os, signal, sys, time
words = dict(word.split("=", 1) for word in sys.argv[3:])
folder = words.get("resume") or words["out"]
os.makedirs(folder, exist_ok=True)
os.chdir(folder)
lock = open(".lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
if "out" in words:
    open("config.yaml", "w").write("algo: {{name: %s}}\\nenv: {{name: e}}\\n" % words["algo"])
act = open("config.yaml").read().split("name: ")[1].split("}}")[0]
open("starts", "a").write("resume\\n" if "resume" in words else "out\\n")
open("session", "w").write(str(os.getsid(0)))
starts = open("starts").read().count("\\n")
print("at work", starts)
if act == "fails":
    sys.exit("rlkit: the reward is not finite")
if act == "leaves":
    sys.exit(3)
if act == "is_killed" or (act == "is_killed_once" and starts == 1):
    os.kill(os.getpid(), signal.SIGKILL)
if act == "is_asked" or (act == "is_asked_once" and starts == 1):
    print("stopped at iteration 3; continue with:\\n  python -m rlkit.run resume=" + folder)
    sys.exit(1)
if act == "lasts":
    def leave(*_):
        open("left", "w").write("safely")
        sys.exit(1)
    signal.signal(signal.SIGTERM, leave)
    open("ready", "w").close()
    while True:
        time.sleep(0.01)  # a signal just before signal.pause() would wait for another
if act == "stays":
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    open("ready", "w").close()
    while True:
        signal.pause()
after = {{"metric": "return", "mean": 3.0, "low": 2.0, "high": 4.0}}
json.dump({{"finished": True, "evaluation": {{"after": after}}}}, open("summary.json", "w"))
"""


@pytest.fixture(autouse=True)
def pretended(tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(PRETENDED.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))


def job(tmp_path: Path, algo: str = "works", **run: object) -> Job:
    folder = tmp_path / "runs" / f"{algo}-e-s0"
    folder.parent.mkdir(exist_ok=True)
    config = {"run": {"seed": 0, "iterations": 10, "env_steps": None, **run}, "algo": {"name": algo}}
    return Job(algo, "e", 0, folder, (f"algo={algo}",), config, tmp_path)


def starts(one: Job) -> list[str]:
    path = one.folder / "starts"
    return path.read_text().split() if path.exists() else []


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


def until(path: Path) -> None:
    while not path.exists():  # however long it takes: pytest has the limit
        time.sleep(0.01)


def finish(one: Job, **values: object) -> None:
    one.folder.mkdir(parents=True, exist_ok=True)
    (one.folder / "config.yaml").write_text("algo: {name: works}\nenv: {name: e}\n")
    (one.folder / "summary.json").write_text(json.dumps({"finished": True, **values}))


def test_a_folder_says_what_has_become_of_its_run(tmp_path):
    one = job(tmp_path)
    assert state(one) == "waiting"
    one.folder.mkdir()
    (one.folder / ".lock").touch()  # killed before it wrote anything
    assert state(one) == "waiting"
    (one.folder / "config.yaml").write_text("algo: {name: works}\n")
    assert state(one) == "cut off"
    (one.folder / "summary.json").write_text('{"finished": false}')  # after Ctrl-C
    assert state(one) == "cut off"
    (one.folder / "summary.json").write_text('{"finished": true}')
    assert state(one) == "finished"
    with FileLock(one.folder / ".lock"):
        assert state(one) == "elsewhere"
    assert state(one) == "finished"


def test_what_is_finished_is_not_started_and_what_is_cut_off_is_continued(tmp_path):
    done, cut, new = job(tmp_path, "works"), job(tmp_path, "other"), job(tmp_path, "new")
    finish(done)
    finish(cut, finished=False)
    stop = tmp_path / ".stop"
    assert [carry_out(one, stop) for one in (done, cut, new)] == [None] * 3
    assert [starts(one) for one in (done, cut, new)] == [[], ["resume"], ["out"]]
    assert state(new) == "finished" and new.console.read_text() == "at work 1\n"
    assert not list(tmp_path.glob("runs/*.now"))


def test_a_run_that_fails_says_why_and_the_others_go_on(tmp_path):
    jobs = [job(tmp_path, algo) for algo in ("fails", "works", "other")]
    futures = view.by_processes(jobs, 2, tmp_path / ".stop")
    assert [future.result() for future in futures] == ["rlkit: the reward is not finite", None, None]
    assert starts(jobs[0]) == ["out"]  # it would fail again


def test_a_run_that_code_of_others_ends_is_told_by_its_exit_code(tmp_path):
    """A library may call exit(): what the run printed last says nothing of that."""
    found = carry_out(job(tmp_path, "leaves"), tmp_path / ".stop")
    assert found == "exit code 3, and its last line is: at work 1"


@pytest.mark.parametrize(
    ("what", "said"), [("is_killed", "signal 9"), ("is_asked", "asked to leave by a signal, twice")]
)
def test_a_run_that_was_killed_or_asked_to_leave_is_continued_once(tmp_path, what: str, said: str):
    once, always = job(tmp_path, f"{what}_once"), job(tmp_path, what)
    assert carry_out(once, tmp_path / ".stop") is None
    assert starts(once) == ["out", "resume"]
    assert carry_out(always, tmp_path / ".stop") == said
    assert starts(always) == ["out", "resume"]


def test_a_run_that_another_process_carries_out_is_waited_for(tmp_path, monkeypatch):
    one = job(tmp_path)
    one.folder.mkdir()
    looks: queue.Queue[str] = queue.Queue()

    def look(job: Job) -> str:
        looks.put(state(job))
        return state(job)

    monkeypatch.setattr(grid, "state", look)
    with ThreadPoolExecutor() as pool:
        with FileLock(one.folder / ".lock"):
            future = pool.submit(carry_out, one, tmp_path / ".stop")
            assert [looks.get() for _ in range(3)] == ["elsewhere"] * 3
            assert one.now.read_text() == "elsewhere" and not future.done()
            finish(one)
        assert future.result() is None
    assert starts(one) == []


def test_a_run_that_another_process_took_in_the_meantime_is_no_failure(tmp_path, monkeypatch):
    one = job(tmp_path)
    looked = []

    def late(*given: object) -> tuple[int, str]:
        looked.append(given)
        if len(looked) > 1:
            finish(one)
            return 0, ""
        return 2, f"rlkit: {one.folder} is being written by another process: wait until it ends, or stop it first"

    monkeypatch.setattr(grid, "execute", late)
    assert carry_out(one, tmp_path / ".stop") is None and len(looked) == 2


def test_stopping_lets_a_run_write_its_checkpoint(tmp_path):
    one, next_one = job(tmp_path, "lasts"), job(tmp_path, "works")
    futures = view.by_processes([one, next_one], 1, tmp_path / ".stop")
    until(one.folder / "ready")
    assert int((one.folder / "session").read_text()) != os.getsid(0)  # the terminal's Ctrl-C does not reach it
    (tmp_path / ".stop").touch()
    assert [future.result() for future in futures] == ["stopped", "stopped"]
    assert (one.folder / "left").read_text() == "safely" and starts(next_one) == []


def test_a_run_that_does_not_leave_is_killed(tmp_path, monkeypatch):
    monkeypatch.setattr(grid, "PATIENCE", 0.3)
    one = job(tmp_path, "stays")
    [future] = view.by_processes([one], 1, tmp_path / ".stop")
    until(one.folder / "ready")
    (tmp_path / ".stop").touch()
    assert future.result() == "stopped"
    assert not grid.is_locked(one.folder)


def test_ctrl_c_while_watching_stops_every_run(tmp_path, monkeypatch, capsys):
    jobs = [job(tmp_path, "lasts"), job(tmp_path, "works")]
    futures = view.by_processes(jobs, 1, tmp_path / ".stop")
    until(jobs[0].folder / "ready")

    show = view.View.show

    def interrupt(given: view.View) -> None:  # not time.sleep, in which the threads wait for their processes
        show(given)
        os.kill(os.getpid(), signal.SIGINT)
        signal.pause()  # the handler raises

    monkeypatch.setattr(view.View, "show", interrupt)
    with pytest.raises(KeyboardInterrupt):
        view.watch(jobs, futures, tmp_path / ".stop")
    assert (jobs[0].folder / "left").exists() and starts(jobs[1]) == []
    assert "stopping 1 run" in capsys.readouterr().out


def test_ctrl_c_where_no_file_can_be_made_waits_for_the_runs(tmp_path, monkeypatch):
    [one], stop = [job(tmp_path, "works")], tmp_path / "gone" / ".stop"
    monkeypatch.setattr(view.View, "show", lambda _: signal.raise_signal(signal.SIGINT))
    with pytest.raises(KeyboardInterrupt):
        view.watch([one], view.by_processes([one], 1, stop), stop)
    assert grid.state(one) == "finished"


def test_a_second_ctrl_c_leaves_no_run_behind_and_starts_none(tmp_path, monkeypatch):
    jobs, stop = [job(tmp_path, "stays"), job(tmp_path, "works")], tmp_path / ".stop"
    futures = view.by_processes(jobs, 1, stop)
    until(jobs[0].folder / "ready")
    monkeypatch.setattr(grid, "PATIENCE", 0.5)
    waited: list[int] = []

    def interrupted(given: list[object]) -> None:
        waited.append(len(given))
        if len(waited) == 1:
            raise KeyboardInterrupt
        futures_wait(given)

    monkeypatch.setattr(view, "wait", interrupted)
    monkeypatch.setattr(view.View, "show", interrupt)
    with pytest.raises(KeyboardInterrupt):
        view.watch(jobs, futures, stop)
    stop.unlink()  # as another comparison of the folder does, as soon as it holds its lock
    assert all(future.done() for future in futures) and not grid.is_locked(jobs[0].folder)
    assert futures[1].cancelled() and starts(jobs[1]) == []


@pytest.mark.parametrize("name", LEAVE)
@pytest.mark.slow
def test_a_signal_to_leave_stops_every_run_however_often_it_comes(name, tmp_path, monkeypatch, capsys):
    jobs, number = [job(tmp_path, "lasts"), job(tmp_path, "works")], signal.Signals[name]
    before = signal.getsignal(number)

    show = view.View.show

    def interrupt(given: view.View) -> None:
        show(given)
        if not (jobs[0].folder / "ready").exists():
            return
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)  # as a shell repeats what the closed terminal said

    monkeypatch.setattr(view.View, "show", interrupt)
    assert conduct.carry_out(jobs, 1, tmp_path) is None
    assert (jobs[0].folder / "left").exists() and starts(jobs[1]) == []
    assert signal.getsignal(number) is before
    assert "stopping 1 run" in capsys.readouterr().out


def test_without_a_terminal_each_start_and_end_is_one_line(tmp_path, capsys):
    jobs = [job(tmp_path, algo) for algo in ("works", "fails")]
    missing = view.watch(jobs, view.by_processes(jobs, 1, tmp_path / ".stop"), tmp_path / ".stop")
    assert missing == {"fails-e-s0": "rlkit: the reward is not finite"}
    lines = capsys.readouterr().out.splitlines()
    assert "[1/2] works-e-s0  return 3, 95 % 2 to 4" in lines
    assert "[1/2] fails-e-s0  failed: rlkit: the reward is not finite" in lines


@pytest.mark.parametrize(
    "there, found",
    [
        ({"run": {"seed": 0, "env_steps": 100}, "algo": {"lr": 0.1}}, None),
        ({"run": {"seed": 0, "env_steps": 100, "out": "x", "threads": 4}, "algo": {"lr": 0.1}}, None),
        ({"run": {"seed": 0, "env_steps": 200}, "algo": {"lr": 0.1}}, ("env_steps", 100, 200)),
        ({"run": {"seed": 0, "env_steps": 100}, "algo": {"lr": 0.2}}, ("algo.lr", 0.1, 0.2)),
        ({"run": {"seed": 0, "env_steps": 100}, "algo": {"lr": 0.1, "clip": 1}}, ("algo.clip", None, 1)),
    ],
)
def test_the_first_key_that_makes_it_another_run_is_found(there, found):
    assert difference({"run": {"seed": 0, "env_steps": 100}, "algo": {"lr": 0.1}}, there) == found


def test_a_folder_of_another_run_is_refused(tmp_path):
    one = job(tmp_path, iterations=20)
    one.folder.mkdir()
    (one.folder / "config.yaml").write_text("run: {seed: 0, iterations: 10}\nalgo: {name: works}\nenv: {name: e}\n")
    with pytest.raises(UserError, match="iterations=10, asked iterations=20; choose another out="):
        check(one)
    (one.folder / "config.yaml").rename(one.folder / "notes.txt")
    with pytest.raises(UserError, match="in the way"):
        check(one)


def test_progress_is_read_from_the_end_of_the_metrics(tmp_path):
    one = job(tmp_path)
    assert view.progress(one) == (0.0, {})
    one.folder.mkdir()
    whole = [{"iteration": i, "env_steps": 10 * i, "rollout/return": i / 10} for i in range(1, 5)]
    whole[1]["eval/return"] = 0.5
    text = "\n".join(map(json.dumps, whole)) + '\n{"iteration": 5, "env_st'  # being written
    (one.folder / "metrics.jsonl").write_text(text)
    part, newest = view.progress(one)
    assert part == 0.4 and view.figure(newest) == "evaluation 0.5  rollout 0.4"
    assert view.progress(job(tmp_path, iterations=None, env_steps=160))[0] == 0.25


def test_two_comparisons_of_one_folder_keep_apart(tmp_path):
    with grid.alone(tmp_path), pytest.raises(UserError, match="another comparison is at work"), grid.alone(tmp_path):
        pass
    with grid.alone(tmp_path):
        pass


def test_what_a_killed_comparison_left_is_removed(tmp_path, monkeypatch):
    asked = plan.parse(["algo=ppo", "env=cartpole", "seeds=1", f"out={tmp_path}"])
    monkeypatch.setattr(conduct, "carry_out", lambda *_: None)
    (tmp_path / "runs").mkdir()
    left = [tmp_path / ".iqm.png.0123456789abcdef.new", tmp_path / "runs" / ".ppo-cartpole-s0.now.0123456789abcdef.new"]
    for path in left:
        path.write_text("half")
    assert conduct.conduct(asked, "").results is None
    assert not any(path.exists() for path in left)


@pytest.mark.parametrize(
    ("threads", "asked", "runs"), [(1, None, 8), (3, None, 2), (0, None, 8), (9, None, 1), (3, 5, 5)]
)
def test_runs_of_several_threads_share_the_cores(tmp_path, monkeypatch, threads, asked, runs):
    monkeypatch.setattr(conduct, "cores", lambda: 8)
    assert conduct.crew([job(tmp_path, threads=threads)], asked) == (runs, None)
