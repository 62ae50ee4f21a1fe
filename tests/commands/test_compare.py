"""The command line of a comparison: what it plans, refuses, skips and continues, and that kill -9 loses nothing."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from support.resuming import metrics, tensors
from support.terminals import terminal
from support.words import last

from rlkit import compare
from rlkit.comparison import grid, plan, report
from rlkit.recording import checkpoint

ROOT = Path(__file__).resolve().parents[2]
TABLES = ["algo=q_learning,sarsa", "env=gridworld", "iterations=5", "evaluation_episodes=2", "workers=2"]
NOTHING = {"seed": 0, "env_steps": 0, "seconds": 0.0}


@pytest.fixture
def reported(monkeypatch):
    """What the statistics were given; they have tests of their own."""
    given: list[tuple[list[str], Path, list[str]]] = []

    def write(records, folder, missing, command):
        assert command.startswith("python -m rlkit.compare ")
        given.append((sorted(record.folder.name for record in records), folder, list(missing)))
        return {}

    monkeypatch.setattr(report, "write", write)
    monkeypatch.setattr(report, "show", lambda results: None)
    return given


def planned(*words: str) -> list[grid.Job]:
    return plan.plan(plan.parse(words))[0]


def keys(job: grid.Job) -> dict[str, str]:
    return dict(word.split("=", 1) for word in job.words)


def finished_run(folder: Path, algo: str = "ppo", seed: int = 0, finished: bool = True) -> Path:
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"run: {{seed: {seed}}}\nalgo: {{name: {algo}}}\nenv: {{name: cartpole}}\n")
    after = {"metric": "return", "mean": 1.0, "low": 1.0, "high": 1.0}
    values = {**NOTHING, "seed": seed, "algo": algo, "env": "cartpole", "evaluation": {"after": after}}
    (folder / "summary.json").write_text(json.dumps({**values, "finished": finished}))
    return folder


def test_the_seeds_are_outermost_so_that_early_results_cover_every_pair():
    jobs = planned("algo=q_learning,sarsa", "env=gridworld,cliffwalking", "seed=3,0-1,0", "iterations=2")
    assert [job.seed for job in jobs] == [3] * 4 + [0] * 4 + [1] * 4
    assert len({(job.algo, job.env) for job in jobs[:4]}) == 4
    assert jobs[0].folder == Path.cwd() / "comparisons/q_learning+sarsa-gridworld+cliffwalking/runs/" / jobs[0].name
    assert jobs[0].config["run"]["seed"] == 3 and jobs[0].config["run"]["iterations"] == 2
    assert plan.numbers(["1764396289", "0-1"]) == [1764396289, 0, 1], "a time is a seed, too"


def test_a_key_with_a_name_is_for_the_runs_of_that_name_and_takes_the_place_of_the_others():
    words = ["algo=q_learning,sarsa", "env=gridworld,cliffwalking", "seed=0", "env_steps=900", "algo.gamma=0.9"]
    jobs = planned(*words, "cliffwalking:iterations=7", "sarsa:algo.gamma=0.8", "gridworld:evaluate_every=4")
    of = {(job.algo, job.env): keys(job) for job in jobs}
    assert of["q_learning", "gridworld"]["env_steps"] == "900"
    assert of["q_learning", "cliffwalking"]["iterations"] == "7" and "env_steps" not in of["sarsa", "cliffwalking"]
    assert {of["sarsa", env]["algo.gamma"] for env in ("gridworld", "cliffwalking")} == {"0.8"}
    assert of["q_learning", "cliffwalking"]["algo.gamma"] == "0.9"
    assert of["sarsa", "cliffwalking"]["evaluations"] == "10" and "evaluations" not in of["sarsa", "gridworld"]
    assert all(given["threads"] == "1" for given in of.values())


def test_as_many_evaluations_as_asked_for_take_the_place_of_what_a_pair_has_of_its_own():
    [text] = planned("algo=grpo", "env=gsm8k", "seed=0", "evaluations=3")  # configs/grpo-gsm8k.yaml: evaluate_every
    assert (text.config["run"]["evaluations"], text.config["run"]["evaluate_every"]) == (3, 0)


def test_a_plug_in_of_ones_own_is_called_by_its_short_name(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text((ROOT / "algorithms" / "sarsa.py").read_text().replace("from .", "from rlkit.algorithms."))
    [job] = planned(f"algo={path}", "env=gridworld", "seed=0", "iterations=2", "mine:algo.gamma=0.7")
    assert job.name == "mine-gridworld-s0" and keys(job)["algo"] == str(path) and keys(job)["algo.gamma"] == "0.7"


def test_the_default_folder_is_always_the_same_and_never_too_long():
    many = [f"algorithm_{i}" for i in range(30)]
    assert plan.default_out(many, ["cartpole"]) == plan.default_out(many, ["cartpole"])
    assert plan.default_out(many, ["cartpole"]) != plan.default_out(many, ["acrobot"])
    assert len(plan.default_out(many, ["cartpole"])) < 100


BAD = {
    "an impossible pair": (["algo=ppo,dqn", "env=cartpole,gsm8k"], "dqn on gsm8k"),
    "an unknown algorithm": (["algo=ppo,dqm", "env=cartpole"], "did you mean dqn"),
    "an unknown key": (["algo=ppo", "env=cartpole", "wrokers=3"], "did you mean workers"),
    "a key that only some have": (["algo=ppo,dqn", "env=cartpole", "algo.epochs=3"], "NAME:KEY=VALUE"),
    "a bad value": (["algo=ppo", "env=cartpole", "env_steps=many"], "env_steps=many"),
    "no environment": (["algo=ppo"], "env= names nothing"),
    "an empty list": (["algo=,", "env=cartpole"], "algo= names nothing"),
    "two of one name": (["algo=ppo,./ppo.py", "env=cartpole"], "both would be called ppo"),
    "no seed": (["algo=ppo", "env=cartpole", "seed="], "seed= is empty"),
    "a range that runs backwards": (["algo=ppo", "env=cartpole", "seed=3-1"], "seed=3-1"),
    "more seeds than anybody runs": (["algo=ppo", "env=cartpole", "seed=0-999999999"], "give at most 10,000"),
    "a name that is not compared": (["algo=ppo", "env=cartpole", "cartpol:env_steps=9"], "did you mean cartpole"),
    "a seed for some": (["algo=ppo", "env=cartpole", "cartpole:seed=9"], "whole comparison"),
    "a resume": (["algo=ppo", "env=cartpole", "resume=runs/x"], "same command"),
    "no workers": (["algo=ppo", "env=cartpole", "workers=0"], "workers=0"),
    "two lengths": (["algo=ppo", "env=cartpole", "iterations=1", "env_steps=9"], "not both"),
    "two measures": (["algo=grpo,reward_model", "env=gsm8k", "env.rows=2"], "accuracy of pairs"),
    "no run folder": (["nowhere"], "no finished run"),
    "folders and keys": ([".", "algo=ppo"], "as they are"),
    "a word": (["algo=ppo", "=3"], "not understood"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line_before_anything_is_written(tmp_path, capsys, case):
    words, says = BAD[case]
    assert compare.main([*words, f"out={tmp_path / 'out'}"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert says in lines[-1] and "Traceback" not in lines[0]
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_the_same_command_again_runs_only_what_is_missing(tmp_path, reported, capsys):
    words = [*TABLES, f"out={tmp_path}"]
    assert compare.main([*words, "seed=0"]) == 0
    assert reported == [(["q_learning-gridworld-s0", "sarsa-gridworld-s0"], tmp_path, [])]
    assert "the page" in capsys.readouterr().out
    written = (tmp_path / "runs/q_learning-gridworld-s0/summary.json").stat().st_mtime_ns
    (tmp_path / "runs/sarsa-gridworld-s0/summary.json").unlink()
    assert compare.main([*words, "seed=0,1"]) == 0
    assert "4 runs" in (said := capsys.readouterr().out) and "1 finished, 1 to continue, 2 to start" in said
    assert (tmp_path / "runs/q_learning-gridworld-s0/summary.json").stat().st_mtime_ns == written
    assert len(reported[-1][0]) == 4
    for seed in (0, 7):  # more seeds are repetitions, in one row
        assert compare.main([*words, f"seed={seed}", "q_learning:algo.gamma=0.5"]) == 2
        assert "algo.gamma=0.9, asked algo.gamma=0.5; choose another out=" in capsys.readouterr().err


def test_a_run_that_fails_is_named_with_its_command_and_left_out(tmp_path, reported, monkeypatch, capsys):
    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        if job.algo == "sarsa":
            return 1, "rlkit: not finite: loss"
        finished_run(job.folder, job.algo)
        return 0, ""

    monkeypatch.setattr(grid, "execute", execute)
    command = ["algo=sarsa,q_learning", "env=gridworld", "seed=0", "iterations=2", f"out={tmp_path}"]
    assert compare.main(command) == 1
    assert reported == [
        (["q_learning-gridworld-s0"], tmp_path, ["SARSA on Grid world, seed 0: rlkit: not finite: loss"])
    ]
    said = capsys.readouterr().out
    assert "missing: sarsa-gridworld-s0: rlkit: not finite: loss" in said
    assert "; again with:\n  python -m rlkit.run algo=sarsa env=gridworld seed=0" in said


def test_a_finished_run_that_was_deleted_meanwhile_is_missing(tmp_path, reported, monkeypatch, capsys):
    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        finished_run(job.folder, job.algo)
        if job.algo == "sarsa":
            shutil.rmtree(tmp_path / "runs" / "q_learning-gridworld-s0")
        return 0, ""

    monkeypatch.setattr(grid, "execute", execute)
    command = ["algo=q_learning,sarsa", "env=gridworld", "seed=0", "iterations=2", "workers=1", f"out={tmp_path}"]
    assert compare.main(command) == 1
    why = "its folder is not that of a finished run any more"
    assert reported == [(["sarsa-gridworld-s0"], tmp_path, [f"Q-learning on Grid world, seed 0: {why}"])]
    assert f"missing: q_learning-gridworld-s0: {why}; again with:" in capsys.readouterr().out


def test_the_command_that_continues_a_run_has_trust_only_for_code_of_ones_own(tmp_path):
    own = tmp_path / "mine.py"
    own.write_text("")
    for algo, trust in (("ppo", []), (str(own), ["trust=true"])):
        folder = tmp_path / Path(algo).stem
        folder.mkdir()
        (folder / "config.yaml").write_text(f"algo: {{name: {algo}}}\nenv: {{name: cartpole}}\n")
        assert grid.Job(algo, "cartpole", 0, folder, (), {}, tmp_path).command() == [f"resume={folder}", *trust]


def test_where_no_run_can_be_finished_there_is_nothing_to_report(tmp_path, reported, monkeypatch, capsys):
    monkeypatch.setattr(grid, "execute", lambda job, stop: (1, "rlkit: not finite: loss"))
    assert compare.main(["algo=sarsa", "env=gridworld", "seed=0", "iterations=2", f"out={tmp_path}"]) == 2
    said = capsys.readouterr()
    assert f"no run in {tmp_path} could be finished: correct what stopped them" in said.err and not reported
    assert "missing: sarsa-gridworld-s0: rlkit: not finite: loss" in said.out


def test_a_second_comparison_of_one_folder_is_refused(tmp_path, capsys):
    with grid.alone(tmp_path):
        assert compare.main([*TABLES, f"out={tmp_path}"]) == 2
    assert "another comparison is at work" in capsys.readouterr().err


def test_folders_are_compared_as_they_are(tmp_path, reported, capsys):
    old = finished_run(tmp_path / "old")
    for seed in (0, 1):
        finished_run(tmp_path / "comparison" / "runs" / f"dqn-{seed}", "dqn", seed)
    early = finished_run(tmp_path / "comparison" / "runs" / "early", "dqn", 2, finished=False)
    (tmp_path / "comparison" / "runs" / "early.txt").touch()
    words = [str(old), str(old), str(tmp_path / "comparison"), *map(str, early.parent.iterdir())]
    assert compare.main([*words, f"out={tmp_path / 'out'}"]) == 0
    [left_out] = capsys.readouterr().err.splitlines()
    assert str(early) in left_out
    assert reported.pop() == (["dqn-0", "dqn-1", "old"], tmp_path / "out", [left_out.removeprefix("left out: ")])
    assert compare.main([str(tmp_path / "comparison")]) == 0
    assert reported.pop()[:2] == (["dqn-0", "dqn-1"], tmp_path / "comparison")
    assert compare.main([str(early)]) == 2


def test_help_lists_the_keys(capsys):
    assert compare.main(["--help"]) == 0
    said = capsys.readouterr().out
    for word in ("algo=", "seed=0-4", "workers=none", "NAME:KEY=VALUE", "evaluations=10", "env_steps=none", "FOLDER"):
        assert word in said


COMMAND = [sys.executable, "-m", "rlkit.compare"]


def begin(out: Path, *words: str) -> "subprocess.Popen[str]":
    pipe = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    return subprocess.Popen([*COMMAND, *words, f"out={out}"], cwd=ROOT, start_new_session=True, **pipe)  # type: ignore


def children(out: Path) -> list[int]:
    """The processes that carry out runs of a comparison, orphans included."""
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if os.readlink(path / "fd" / "1").startswith(str(out)):  # it writes to NAME.txt
                found.append(int(path.name))
    return found


def assert_same(one: Path, other: Path) -> None:
    a, b = (tensors(checkpoint.load(folder)) for folder in (one, other))
    assert a.keys() == b.keys() and len(a) > 0
    assert [name for name in a if not torch.equal(a[name], b[name])] == [], one.name
    assert metrics(one) == metrics(other), one.name


@pytest.mark.slow
def test_ctrl_c_stops_safely_and_the_same_command_goes_on(tmp_path):
    words = ["algo=ppo,reinforce", "env=cartpole", "seed=0", "env_steps=10000", "workers=2"]
    words += ["evaluation_episodes=4", "validation_episodes=4"]
    process = begin(tmp_path, *words)
    started = tmp_path / "runs" / "ppo-cartpole-s0" / "metrics.jsonl"
    while not started.exists() and process.poll() is None:
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate()
    assert process.returncode == 1 and "the same command goes on" in said and not children(tmp_path)
    assert checkpoint.load(started.parent)["progress"]["iteration"] > 0
    process = begin(tmp_path, *words)
    said, _ = process.communicate()
    assert process.returncode == 0 and (tmp_path / "index.html").is_file(), said


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_a_lost_connection_leaves_checkpoints_and_no_orphans(tmp_path):
    words = ["algo=ppo,reinforce", "env=cartpole", "seed=0", "env_steps=100000000", "workers=2", f"out={tmp_path}"]
    with terminal("-m", "rlkit.compare", *words) as screen:
        begun = [tmp_path / "runs" / f"{name}-cartpole-s0" / "metrics.jsonl" for name in ("ppo", "reinforce")]
        while not all(path.exists() for path in begun):
            assert screen.read(), screen.said
        screen.close()
        assert screen.process.wait() == 1
    assert not children(tmp_path)
    for path in begun:
        assert checkpoint.load(path.parent)["progress"]["iteration"] > 0
        assert not (path.parent / "summary.json").exists()


@pytest.mark.slow
def test_the_same_grid_runs_on_a_ray_cluster(tmp_path, reported):
    ray = pytest.importorskip("ray")
    ray.init(address="local", num_cpus=2, include_dashboard=False, log_to_driver=False)  # not that of another test
    try:
        assert compare.main(last(*TABLES, "seed=0", "workers=ray", f"out={tmp_path / 'ray'}")) == 0
    finally:
        ray.shutdown()
    assert len(reported[0][0]) == 2
    assert compare.main([*TABLES, "seed=0", f"out={tmp_path / 'processes'}"]) == 0
    for folder in (tmp_path / "ray" / "runs").glob("*/"):
        assert_same(folder, tmp_path / "processes" / "runs" / folder.name)


GRID = ["algo=ppo,reinforce", "env=gridworld,cartpole,gsm8k", "evaluation_episodes=4", "validation_episodes=4"]
SMALL = ["checkpoint_every=1", "iterations=50", "evaluations=3", "ppo:algo.epochs=2", "workers=2"]
TEXT = ["gsm8k:iterations=8", "gsm8k:env.rows=4", "gsm8k:env.test=4", "gsm8k:env.validation=4"]


def kill(pids: list[int]) -> int:
    """Kill one of the processes, if there is one; how many were killed."""
    with suppress(ProcessLookupError):
        for pid in pids[:1]:
            os.kill(pid, signal.SIGKILL)
            return 1
    return 0


KILLS = 50


@pytest.mark.campaign
@pytest.mark.timeout(1800)
@pytest.mark.skipif(not Path("/proc").is_dir(), reason="finds the processes in /proc")
def test_kill_9_again_and_again_during_one_comparison_loses_nothing(tmp_path):
    words, killed, whole = [*GRID, *SMALL, *TEXT], tmp_path / "killed", tmp_path / "whole"
    chance, kills, seeds = random.Random(0), 0, 1
    while kills < KILLS:
        process = begin(killed, *words, f"seed=0-{seeds - 1}")
        process.stdout.readline()  # type: ignore[union-attr]  # the version
        first = process.stdout.readline()  # type: ignore[union-attr]
        assert "runs in" in first, first + process.communicate()[0]
        for child in chance.sample([True, False], 2):
            time.sleep(chance.uniform(0, 3))
            there = sorted(children(killed), key=lambda _: chance.random())
            kills += kill(there if child else [process.pid] if process.poll() is None else [])
        process.communicate()
        seeds += " 0 to continue, 0 to start" in first  # more for the same folder
    for out in (killed, whole):
        process = begin(out, *words, f"seed=0-{seeds - 1}")
        said, _ = process.communicate()
        assert process.returncode == 0, said
    names = sorted(path.name for path in (whole / "runs").glob("*/"))
    assert len(names) == 6 * seeds
    starts = [(killed / "runs" / f"{name}.txt").read_text().count("continued at iteration") for name in names]
    assert sum(starts) > KILLS // 16, "too few runs were killed on their way"
    for name in names:
        assert json.loads((killed / "runs" / name / "summary.json").read_text())["finished"] is True
        assert_same(killed / "runs" / name, whole / "runs" / name)
