"""Two runs are paired on the same: each asked as in its own run, whatever seeds the two were trained with."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from rlkit import against, evaluate, evaluation, run
from rlkit.api import UserError
from rlkit.evaluation import Evaluate, Subject
from rlkit.settings import config
from rlkit.settings.given import Given

SMALL = ["env.rows=2", "env.validation=4", "iterations=1", "threads=1"]
TEXT = ["algo=sft", "env=gsm8k", "env.test=8", "env.shots=2", *SMALL]
JUDGE = ["algo=reward_model", "env=gsm8k", "env.test=24", *SMALL]
RUNS = {
    "text0": [*TEXT, "seed=0"],
    "text1": [*TEXT, "seed=1"],
    "judge0": [*JUDGE, "seed=0"],
    "judge1": [*JUDGE, "seed=1"],
    "cool": [*JUDGE, "seed=0", "policy.temperature=0.5"],
}
Folder = Callable[[str], Path]

# Worlds that depend on the run's seed.
GRID = """
from dataclasses import replace

from rlkit.envs import gridworld

Config = gridworld.Config


def make(config, seed, device):
    return gridworld.make(replace(config, goal=(seed, 7)), seed, device)
"""
PROBLEMS = """
from rlkit.envs import gsm8k

Config = gsm8k.Config


def make(config, seed, device):
    env = gsm8k.make(config, seed, device)
    env.problems["test"] = env.problems["test"][seed : seed + 20]
    return env
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Folder:
    """A function from a run's name to its folder, trained at the first call."""
    root = tmp_path_factory.mktemp("runs")

    def folder(name: str) -> Path:
        if not (root / name).exists():
            assert run.main([*RUNS[name], f"out={root / name}"]) == 0
        return root / name

    return folder


def opened(folder: Path, **keys: object) -> Subject:
    given = config.from_folder(folder)
    given.trust = True
    return evaluation.opened(given, folder, None, Evaluate(**keys))  # type: ignore[arg-type]


def two_seeds(tmp_path: Path, source: str, *keys: str) -> list[Path]:
    """A run of an environment of your own with seed 1, and one with seed 2."""
    (tmp_path / "mine.py").write_text(source)
    folders = [tmp_path / "one", tmp_path / "two"]
    for seed, folder in enumerate(folders, 1):
        assert run.main([f"env={tmp_path / 'mine.py'}", *keys, f"seed={seed}", f"out={folder}"]) == 0
    return folders


@pytest.mark.slow
def test_each_run_keeps_its_worked_examples(trained: Folder) -> None:
    ours, theirs = opened(trained("text0")), opened(trained("text1"))
    assert ours.env.asking.shots != theirs.env.asking.shots
    assert opened(trained("text0"), seed=1).env.asking == ours.env.asking, "seed= is of what is drawn"
    asked = Evaluate(against=str(trained("text1")), episodes=3)
    other = against.rival(ours, asked, against.place_of(asked.against), Given())
    _, scores = evaluation.measured(ours, asked)
    told, rivals = against.compared(ours, other, scores, asked)
    alone = theirs.env.evaluate(theirs.policy, 3, "test")
    assert rivals.samples == alone.samples and told["theirs"]["mean"] == float(alone.score.mean())
    assert rivals.items == scores.items and len(rivals.items or ()) == 3
    assert rivals.samples[0]["prompt"] != scores.samples[0]["prompt"]


@pytest.mark.slow
def test_pass_at_k_is_printed_beside_the_test(
    trained: Folder, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ours = shutil.copytree(trained("text0"), tmp_path / "a")
    assert evaluate.main([str(ours), f"against={trained('text1')}", "pass_at=1,2", "threads=1"]) == 0
    said = capsys.readouterr().out
    assert "pass@k of a" in said and "pass@1" in said and "pass@2" in said


@pytest.mark.slow
def test_seed_is_of_what_is_drawn_by_preferences_too(tmp_path: Path) -> None:
    keys = ["algo=dpo", "env=preferences", "env.test=8", *SMALL]
    assert run.main([*keys, f"out={tmp_path / 'r'}"]) == 0
    drawn = []
    for seed in (0, 0, 1):
        subject = opened(tmp_path / "r", seed=seed)
        scores = subject.env.evaluate(subject.policy, 8, "test", greedy=False)
        drawn.append([sample["completion"] for sample in scores.samples])
    assert drawn[0] == drawn[1] != drawn[2]


@pytest.mark.slow
@pytest.mark.parametrize(("algo", "what"), [("sft", "problems"), ("reward_model", "pairs")])
def test_problems_that_depend_on_the_seed_are_not_paired(
    algo: str, what: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one, two = two_seeds(tmp_path, PROBLEMS, f"algo={algo}", "env.test=24", *SMALL)
    capsys.readouterr()
    assert evaluate.main([str(one), f"against={two}", "trust=true"]) == 2
    assert capsys.readouterr().err.endswith(f"two was measured on other {what}: they cannot be paired\n")


def test_a_world_that_depends_on_the_seed_is_the_first_runs(tmp_path: Path) -> None:
    one, two = two_seeds(tmp_path, GRID, "algo=q_learning", "iterations=3", "evaluation_episodes=2")
    ours, theirs = opened(one, seed=2), opened(two)
    goals = [subject.env.model().transition for subject in (ours, opened(one), theirs)]
    assert torch.equal(goals[0], goals[1]) and not torch.equal(goals[0], goals[2])
    other = against.rival(ours, Evaluate(trust=True), (str(two), None), Given())
    assert torch.equal(other.env.model().transition, goals[0]) and other.env.seed == 2
    assert torch.equal(other.policy.q.weight, theirs.policy.q.weight)


@pytest.mark.slow
def test_reward_models_of_two_seeds_rank_the_same_pairs(trained: Folder) -> None:
    ours, asked = opened(trained("judge0")), Evaluate(against=str(trained("judge1")))
    other = against.rival(ours, asked, against.place_of(asked.against), Given())
    scores = ours.env.evaluate(ours.policy, None, "test")
    _, rivals = against.compared(ours, other, scores, asked)
    assert rivals.items == scores.items
    assert all(len(item) == 3 and item[1] != item[2] for item in scores.items or [()])


@pytest.mark.slow
def test_reward_models_whose_attempts_others_wrote_are_not_paired(
    trained: Folder, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = trained("judge0"), trained("cool")
    capsys.readouterr()
    assert evaluate.main([str(folders[0]), f"against={folders[1]}", "threads=1"]) == 2
    told = capsys.readouterr().err
    assert "ranks what policy.temperature=0.5 writes and this run what policy.temperature=1.0 writes" in told
    assert told.count("\n") == 1


def test_processes_make_no_other_task() -> None:
    worlds = [
        against.world(Given(env={"name": "gym", "id": "CartPole-v1", **keys}))
        for keys in ({}, {"processes": True, "rows": 2}, {"step_limit": 9})
    ]
    assert worlds[0] == worlds[1] != worlds[2]


def test_whatever_decides_how_a_model_writes_is_the_same_for_both() -> None:
    def subject(seed: int = 0, **policy: object) -> Any:
        return SimpleNamespace(given=Given(run={"seed": seed}, policy=policy))

    against.check_writers("x", subject(0, micro_steps=8), subject(1))
    others = {"model": "smollm2", "temperature": 0.5, "fresh": True, "adapter": "a", "base_dtype": "bfloat16"}
    for key, value in (others | {"dtype": "bfloat16", "template": "chat"}).items():
        with pytest.raises(UserError, match=rf"^against=x ranks what policy\.{key}={value} writes and this run what"):
            against.check_writers("x", subject(), subject(**{key: value}))
    with pytest.raises(UserError, match="ranks what seed=1 writes and this run what seed=0 writes"):
        against.check_writers("x", subject(fresh=True), subject(1, fresh=True))


@pytest.mark.slow
def test_the_seed_of_a_run_is_not_changed_by_what_is_drawn(trained: Folder) -> None:
    assert evaluate.main([str(trained("text0")), "seed=5", "episodes=2", "threads=1"]) == 0
    answers = [json.loads(x) for x in (trained("text0") / "completions-test.jsonl").read_text().splitlines()]
    own = opened(trained("text0"))
    assert [answer["prompt"] for answer in answers] == [
        x["prompt"] for x in own.env.evaluate(own.policy, 2, "test").samples
    ]
