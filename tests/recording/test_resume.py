"""A run that is killed and resumed is the run that was not: every algorithm, every environment, wherever it was."""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete
from support.probes import Draws, control
from support.resuming import REWARD, Killed, differences
from support.words import last

from rlkit import gradients, loop, run
from rlkit.api import Exhausted
from rlkit.recording import outcome
from rlkit.recording.log import Log
from rlkit.settings import plugins

RUN = ["iterations=6", "checkpoint_every=2", "evaluate_every=3", "evaluation_episodes=2", "validation_episodes=2"]
SMALL = ["env.train=64", "env.test=4", "env.validation=4", "threads=1"]
GSM8K = ["env=gsm8k", "env.rows=2", "env.max_tokens=16", REWARD, *SMALL]
GAME = ["env.rows=2", "env.test=4", "env.validation=4", "threads=1"]
KINDS = Path(__file__).resolve().parents[1] / "data" / "kinds.jsonl"
MIXED = ["env.task=[gcd,lcm]", "env.curriculum=success", "env.rows=2", "env.max_tokens=12", "algo.group=4"]
DQN = ["algo.warmup_steps=40", "algo.capacity=150", "algo.updates=3", "algo.batch_size=16", "algo.steps=5"]
TWINS = [*DQN[1:], "env.rows=2", "algo.warmup_steps=15", "policy.hidden=16"]
MEMORY = ["policy.memory=gru", "policy.memory_size=8", "policy.hidden=8", "env.rows=2"]
EXPLORE = ["algo.epsilon_end=0.5", "algo.hold=9"]  # to be in the middle of a held action
AGENTS = ["env=pettingzoo", "env.rows=2", "policy.hidden=8", "threads=1", "algo.horizon=16"]
PPO = ["algo=ppo", "algo.epochs=2", "algo.minibatches=2"]
FULL = [*DQN, "algo.n_step=3", "algo.prioritized=true", "algo.dueling=true", "policy.normalize=true", *EXPLORE]
GROUPS = ["grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"]
CELLS = [
    ["algo=value_iteration", "env=gridworld"],
    ["algo=policy_iteration", "env=frozenlake", "algo.tolerance=0.5"],
    ["algo=monte_carlo", "env=gridworld", "env.step_limit=20"],
    ["algo=td", "env=gridworld", "algo.n=3", "algo.steps=2"],
    ["algo=td", "env=cliffwalking", "algo.lam=0.8"],
    ["algo=q_learning", "env=frozenlake", "algo.steps=7", "algo.schedule=linear"],
    ["algo=sarsa", "env=cliffwalking", "algo.steps=3"],
    ["algo=expected_sarsa", "env=taxi", "algo.steps=3"],
    ["algo=dqn", "env=cartpole", *FULL],
    ["algo=dqn", "env=acrobot", *DQN, "algo.tau=0.01", "env.step_limit=30"],
    ["algo=dqn", "env=mountaincar", *DQN, "algo.sync_every=5", "algo.tau=none", "env.step_limit=30", *EXPLORE],
    [
        "algo=sac",
        "env=pendulum",
        *TWINS,
        "env.step_limit=30",
        "algo.n_step=3",
        "algo.prioritized=true",
        "policy.normalize=true",
    ],
    ["algo=sac", "env=cartpole", *TWINS],
    ["algo=td3", "env=pendulum", *TWINS, "algo.policy_delay=4", "algo.n_step=2"],
    ["algo=td3", "env=lunarlander", "env.continuous=true", *TWINS, "algo.prioritized=true", "env.step_limit=30"],
    ["algo=sac", "env=hopper", *TWINS],
    ["algo=td3", "env=halfcheetah", *TWINS],
    [*PPO, "env=minigrid", "env.rows=2", "algo.horizon=16", "env.step_limit=40", "policy.share=all"],
    ["algo=dqn", "env=minatar", *DQN, "env.rows=2", "env.step_limit=40"],
    [*PPO, "env=atari", "env.rows=2", "algo.horizon=16", "env.step_limit=25", "policy.encoder=flat", "policy.hidden=4"],
    [*PPO, "env=torchrl", "env.id=Acrobot-v1", "env.rows=2", "algo.horizon=16", "env.step_limit=40", "threads=1"],
    [*PPO, *AGENTS, "env.id=mpe2.simple_spread_v3", "env.kwargs={max_cycles: 11}", "env.agent_number=true"],
    ["algo=dqn", *AGENTS[:-1], "env.id=pettingzoo.butterfly.knights_archers_zombies_v11", "env.anew=true", *DQN],
    ["algo=dqn", "env=gym", "env.id=Blackjack-v1", *DQN, "env.rows=2"],
    [*PPO, "env=gym", "env.id=Taxi-v4", "algo.horizon=16", "env.step_limit=40", "env.rows=2"],
    ["algo=sarsa", "env=gym", "env.id=Taxi-v4", "algo.steps=3", "env.step_limit=40", "env.rows=2"],
    ["algo=reinforce", "env=cartpole", "algo.baseline=value", "policy.normalize=true"],
    ["algo=a2c", "env=pendulum", "policy.normalize=true", "algo.normalize_reward=true", "env.step_limit=30"],
    [*PPO, "env=cartpole", "policy.normalize=true", "algo.horizon=16", "algo.schedule=linear"],
    [*PPO, "env=lunarlander", "env.rows=2", "algo.horizon=30", "algo.normalize_reward=true", "env.step_limit=70"],
    [*PPO, "env=gym", "env.id=Acrobot-v1", "algo.horizon=16", "env.step_limit=40", "env.rows=2"],
    ["algo=dpo", "env=frozenlake"],
    *[[f"algo={name}", "env=cartpole", "algo.group=4", "env.rows=2"] for name in GROUPS],
    *[[f"algo={name}", *GSM8K, "algo.group=4", "algo.kl_coef=0.1"] for name in ("grpo", "rloo")],
    ["algo=dapo", *GSM8K, "algo.group=4", "algo.lr=1e-4"],
    ["algo=grpo", "env=arithmetic", "env.rows=2", "algo.group=4", "algo.kl_coef=0.1", "policy.lora=4", *SMALL[1:]],
    [*PPO, *GSM8K, "algo.kl_coef=0.1", "algo.kl_target=1", "algo.kl_horizon=50"],
    ["algo=sft", *GSM8K[:3], *SMALL[1:], "env.demonstrations=40", "env.rare_demonstrations=1", "env.direct=0.5"],
    ["algo=grpo", "env=guess", "algo.group=4", "algo.lr=1e-3", *GAME],
    [*PPO, "env=game", "env.game=rlkit.envs.guess:Guess", "env.max_tokens=12", "env.turn_tokens=4", *GAME],
    ["algo=grpo", *GSM8K, "algo.group=4", "env.tool=calculator", "env.chat=false"],
    ["algo=grpo", *GSM8K, "algo.group=4", "env.curriculum=success", "env.kind_weights={chain: 2, rate: 1}"],
    ["algo=grpo", "env=reasoning", *MIXED, *SMALL],
    ["algo=rloo", "env=text", f"env.source={KINDS}", "env.kind_weights={easy: 2, hard: 1}", *MIXED[1:], *SMALL[1:]],
    ["algo=dpo", "env=preferences", "env.rows=2", "env.max_tokens=12", *SMALL],
    ["algo=reward_model", "env=preferences", "env.rows=2", *SMALL],
    ["algo=reward_model", *last(*GSM8K, "env.max_tokens=40", "env.rows=4", "env.validation=8", "env.test=8")],
    [*PPO, "env=gym", "env.id=CartPole-v1", "env.processes=true", "env.rows=2", "algo.horizon=16", "threads=1"],
    [*PPO, "env=cartpole", *MEMORY, "algo.horizon=16", "env.step_limit=30"],
    ["algo=a2c", "env=pendulum", *MEMORY, "algo.horizon=7", "env.step_limit=30", "policy.normalize=true"],
    ["algo=grpo", "env=cartpole", *MEMORY, "algo.group=2", "env.step_limit=20"],
    ["algo=a2c", "env=minigrid", *MEMORY, "algo.horizon=7", "env.step_limit=20"],
]


def nth(owner: Any, name: str, n: int, patch: pytest.MonkeyPatch, after: bool = False) -> None:
    """Be killed at the nth call of a function from now on: before it does anything, or after."""
    real: Callable[..., Any] = getattr(owner, name)
    calls = iter(range(1, 1_000_000))

    def killing(*args: Any, **kwargs: Any) -> Any:
        call = next(calls)
        if call == n and not after:
            raise Killed
        result = real(*args, **kwargs)
        if call == n:
            raise Killed
        return result

    patch.setattr(owner, name, killing)


def between_renames(patch: pytest.MonkeyPatch) -> None:
    """The checkpoint before has gone aside and the new one has not its name yet."""
    real = os.replace

    def replace(source: Any, target: Any) -> None:
        real(source, target)
        if Path(target).name.startswith("iteration-"):
            raise Killed

    patch.setattr(os, "replace", replace)


KILLS = {  # in this order, each after the resume from the one before; a checkpoint every 2, a line every 3 iterations
    "while learning, before the first checkpoint": lambda patch: nth(gradients, "split", 2, patch),
    "while playing": lambda patch: nth(loop, "walk", 4, patch),
    "after best, before the line": lambda patch: nth(loop.Training, "validate", 1, patch, after=True),
    "after the line, before the checkpoint": lambda patch: nth(Log, "iteration", 1, patch, after=True),
    "between the renames": between_renames,
    "while measuring at the end": lambda patch: nth(outcome, "summary", 1, patch),
}


def name_of(keys: list[str]) -> str:
    return " ".join(word for word in keys if word.startswith(("algo=", "env=")))


# One of each kind of buffer is quick.
QUICK = ["value_iteration gridworld", "td gridworld", "dqn cartpole", "ppo cartpole"]


def marked(keys: list[str]) -> Any:
    first = keys == next(cell for cell in CELLS if name_of(cell) == name_of(keys))
    quick = first and re.sub("algo=|env=", "", name_of(keys)) in QUICK
    return pytest.param(keys, id=name_of(keys), marks=() if quick else pytest.mark.slow)


@pytest.mark.parametrize("keys", [marked(keys) for keys in CELLS])
def test_a_run_killed_again_and_again_is_the_run_that_was_not(
    keys: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if "env=reasoning" in keys:
        pytest.importorskip("reasoning_gym")
    monkeypatch.setattr(loop, "LOGGED", {"control": 1, "text": 1})  # so that checkpoints fall between two lines
    monkeypatch.setattr(loop, "EARLY", 0)
    monkeypatch.setattr(outcome, "reference", lambda *_: None)  # of taxi it takes a second
    whole, cut = tmp_path / "whole", tmp_path / "cut"
    assert run.main([*keys, *RUN, f"out={whole}"]) == 0
    for where, kill in KILLS.items():
        words = [f"resume={cut}", "trust=true"] if (cut / "config.yaml").is_file() else [*keys, *RUN, f"out={cut}"]
        with monkeypatch.context() as patch:
            kill(patch)
            with pytest.raises(Killed):
                run.main(words)
                pytest.fail(f"not killed {where}")
    assert not (cut / "summary.json").exists()
    assert run.main([f"resume={cut}", "trust=true"]) == 0
    assert not differences(whole, cut)


def test_every_algorithm_and_every_environment_is_among_them() -> None:
    words = {word for keys in CELLS for word in keys}
    assert {f"algo={name}" for name in plugins.names("algorithms")} <= words
    assert {f"env={name}" for name in plugins.names("envs")} <= words


TABLE = ["algo=q_learning", "env=frozenlake", "env.rows=4", "iterations=6", "evaluation_episodes=2", "threads=1"]
TABLE += ["validation_episodes=2"]


@pytest.mark.slow
def test_a_kill_before_the_first_latest_starts_again_although_there_is_a_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [*TABLE, "evaluate_every=2"]
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    with monkeypatch.context() as patch, pytest.raises(Killed):
        nth(loop.Training, "validate", 1, patch, after=True)
        run.main([*words, f"out={tmp_path / 'cut'}"])
    assert [path.stem for path in (tmp_path / "cut" / "checkpoints").glob("*.safetensors")] == ["best"]
    assert run.main([f"resume={tmp_path / 'cut'}", "trust=true"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_a_run_that_ended_early_stays_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def empty(*_: Any) -> None:
        raise Exhausted("nothing is left")

    for name in ("whole", "cut"):
        with monkeypatch.context() as patch:
            real, calls = loop.walk, iter(range(1, 100))
            patch.setattr(loop, "walk", lambda *parts: (empty if next(calls) == 4 else real)(*parts))  # noqa: B023
            if name == "whole":
                assert run.main([*TABLE, f"out={tmp_path / name}"]) == 0
                continue
            nth(outcome, "summary", 1, patch)
            with pytest.raises(Killed):
                run.main([*TABLE, f"out={tmp_path / name}"])
    assert run.main([f"resume={tmp_path / 'cut'}", "trust=true"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.slow
def test_a_run_that_ended_early_tries_again_when_a_length_is_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def empty(*_: Any) -> None:
        raise Exhausted("nothing is left")

    with monkeypatch.context() as patch:
        real, calls = loop.walk, iter(range(1, 100))
        patch.setattr(loop, "walk", lambda *parts: (empty if next(calls) == 4 else real)(*parts))
        assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    assert '"iterations": 3' in (tmp_path / "summary.json").read_text()
    assert run.main([f"resume={tmp_path}", "iterations=9"]) == 0
    assert '"iterations": 9' in (tmp_path / "summary.json").read_text()


@pytest.mark.slow
def test_a_length_that_the_run_has_passed_is_refused_and_nothing_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=ppo", "env=cartpole", "env_steps=20", "algo.horizon=3", "env.rows=5", "algo.minibatches=1"]
    assert run.main([*words, "evaluation_episodes=2", "validation_episodes=2", f"out={tmp_path}"]) == 0  # 30 steps
    before = (tmp_path / "config.yaml").read_bytes(), (tmp_path / "summary.json").read_bytes()
    capsys.readouterr()
    for word, done in (("env_steps=10", 30), ("env_steps=29", 30), ("iterations=1", 2)):
        assert run.main([f"resume={tmp_path}", word]) == 2
        assert f"{word} is less than the {done} that {tmp_path} has done: " in capsys.readouterr().err
        assert before == ((tmp_path / "config.yaml").read_bytes(), (tmp_path / "summary.json").read_bytes())
    assert [run.main([f"resume={tmp_path}", f"env_steps={steps}"]) for steps in (20, 30)] == [0, 0]
    assert run.main([f"resume={tmp_path}", "iterations=2"]) == 0
    assert "iterations=2" in (tmp_path / "config.yaml").read_text().partition("\n")[0]


def test_a_torn_line_and_lines_of_the_future_are_written_again(tmp_path: Path) -> None:
    for name in ("whole", "cut"):
        assert run.main([*TABLE, "checkpoint_every=4", "keep=2", f"out={tmp_path / name}"]) == 0
    folder = tmp_path / "cut"
    (folder / "checkpoints" / "latest.safetensors").write_bytes(b"torn")
    with (folder / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 7, "env_steps": 9}\n{"iterat')
    assert run.main([f"resume={folder}"]) == 0
    assert not differences(tmp_path / "whole", folder)
    assert (folder / "checkpoints" / "latest.damaged").read_bytes() == b"torn"


@pytest.mark.slow
def test_a_longer_run_is_not_finished_until_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run.main([*TABLE, f"out={tmp_path}"]) == 0
    with monkeypatch.context() as patch, pytest.raises(Killed):
        nth(loop, "walk", 2, patch)
        run.main([f"resume={tmp_path}", "iterations=9"])
    assert not (tmp_path / "summary.json").exists()  # it was that of the shorter run
    assert run.main([f"resume={tmp_path}"]) == 0
    assert '"iterations": 9' in (tmp_path / "summary.json").read_text()
    first = (tmp_path / "config.yaml").read_text().partition("\n")[0]
    assert "iterations=9" in first.split() and first.count("iterations=") == 1


class Remembers(gymnasium.Env):
    """What it shows depends on how often it was reset: it cannot be brought back by its seed and its actions."""

    observation_space, action_space, resets = Box(0, np.inf, (1,)), Discrete(2), 0

    def reset(self, **_: Any) -> tuple[np.ndarray, dict[str, Any]]:
        self.resets += 1
        return np.array([self.resets], dtype=np.float32), {}

    def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        return np.array([self.resets], dtype=np.float32), 1.0, False, False, {}


def test_an_environment_that_does_not_come_back_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    one, other = control(Remembers, limit=3), control(Remembers, limit=3)
    one.rollout(Draws(one), steps=2)
    other.load_state_dict(one.state_dict())
    assert not capsys.readouterr().err
    one.rollout(Draws(one), steps=2)  # into the second episode
    control(Remembers, limit=3).load_state_dict(one.state_dict())
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "cannot be repeated exactly" in told


def test_a_configuration_without_its_first_line_is_written_anew(tmp_path: Path) -> None:
    keys = ["algo=sarsa", "env=gridworld", "iterations=2", "evaluation_episodes=2", f"out={tmp_path}"]
    assert run.main(keys) == 0
    path = tmp_path / "config.yaml"
    path.write_text(path.read_text().partition("\n")[2])  # as programs do that read YAML and write it again
    for length in (3, 4):
        assert run.main([f"resume={tmp_path}", f"iterations={length}"]) == 0
    assert path.read_text().count("\nrun:\n") == 1
