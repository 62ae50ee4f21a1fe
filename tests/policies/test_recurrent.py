"""policy.memory=gru: the same step by step and over whole rows, through ends of episodes; where it is refused."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TransformObservation
from rlkit.envs import gridworld
from support.fakes import algorithm, iterate
from tensordict import TensorDict
from torch.testing import assert_close

import rlkit
from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.interop import to_torchrl
from rlkit.policies import Network
from rlkit.policies.recurrent import Memory, beginnings
from rlkit.run import main

ROOT = Path(__file__).resolve().parents[2]
GRU = Network(hidden=(8,), memory="gru", memory_size=6)


class Lengths(gymnasium.Env):
    """Noise, in episodes of one to four steps; every third is truncated."""

    observation_space, action_space = Box(-9, 9, (2,), np.float32), Discrete(3)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.left, self.cut = int(self.np_random.integers(1, 5)), bool(self.np_random.random() < 0.3)
        return self.np_random.standard_normal(2, np.float32), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.left -= 1
        over = self.left == 0
        seen = self.np_random.standard_normal(2, np.float32)
        return seen, float(action), over and not self.cut, over and self.cut, {}


def lengths(mode: AutoresetMode = AutoresetMode.DISABLED, rows: int = 5) -> ControlEnv:
    return ControlEnv(lambda n: SyncVectorEnv([Lengths] * n, autoreset_mode=mode), rows)


def by_steps(memory: Memory, batch: TensorDict) -> torch.Tensor:
    """What is remembered at each step, one row and one step after the other."""
    rows = []
    for row in range(len(batch)):
        state, found = batch["memory"][row], []
        for t in range(batch["mask"].shape[1]):
            if t and batch["mask"][row, t] and (batch["done"][row, t - 1] or not batch["mask"][row, t - 1]):
                state = torch.zeros_like(state)
            state = memory.step(batch["observation"][row, t, None], state)
            found.append(state[0])
        rows.append(torch.stack(found))
    return torch.stack(rows)


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP])
def test_whole_rows_are_what_was_remembered_step_by_step(mode: AutoresetMode) -> None:
    env = lengths(mode)
    policy = GRU.actor_critic(env)
    for _ in range(2):  # the second one goes on in the middle of episodes
        batch = env.rollout(policy, steps=9)
        assert batch["done"].any()
        whole, single = policy.as_read(batch), by_steps(policy.memory, batch)
        assert_close(whole, single)
        weights = torch.randn(whole.shape)
        found = torch.autograd.grad((whole * weights).sum(), [*policy.memory.parameters()])
        assert_close(found, torch.autograd.grad((single * weights).sum(), [*policy.memory.parameters()]))
        assert_close(batch["log_prob"], policy.evaluate(batch)["log_prob"].detach())
    assert batch["memory"].abs().amax(-1).gt(0).any(), "some row was in the middle of an episode"


def test_what_it_acted_by_is_what_it_learns_from() -> None:
    """Actions drawn by the recorded probabilities: their log-probability is that of the logits at play."""
    env, seen = lengths(), []
    policy = GRU.actor_critic(env)
    choose = policy.choose

    def noted(observation: torch.Tensor, greedy: bool, memory: torch.Tensor) -> torch.Tensor:
        action = choose(observation, greedy, memory)
        seen.append(policy.outputs(observation, memory).log_softmax(-1).gather(-1, action[:, None])[:, 0].clone())
        return action

    policy.choose = noted
    for _ in range(3):
        seen.clear()
        batch = env.rollout(policy, steps=7)
        assert_close(batch["log_prob"], torch.stack(seen, 1), rtol=1e-5, atol=1e-6)


def test_the_value_of_a_true_successor_is_by_what_was_remembered() -> None:
    env = lengths()
    policy = GRU.actor_critic(env)
    batch = env.rollout(policy, steps=9)
    seen = by_steps(policy.memory, batch)
    after = torch.stack([policy.memory.step(batch["next_observation"][:, t], seen[:, t]) for t in range(9)], 1)
    expected = policy.worth(after).masked_fill(batch["terminated"], 0)
    assert_close(batch["next_value"], expected)
    assert (batch["done"] & ~batch["terminated"]).any(), "an episode was truncated"


@pytest.mark.parametrize("mode", [AutoresetMode.DISABLED, AutoresetMode.NEXT_STEP])
def test_steps_that_credit_leaves_out_are_remembered_all_the_same(mode: AutoresetMode) -> None:
    env = lengths(mode)
    policy = GRU.actor_critic(env)
    with torch.no_grad():
        for p in policy.parameters():
            p.mul_(3.0)  # so that memory matters
    env.rollout(policy, steps=9)
    batch = env.rollout(policy, steps=9)
    played = batch["mask"].clone()
    batch["mask"] = played & (torch.rand(played.shape) < 0.7)
    assert not torch.equal(beginnings(batch["done"], batch["mask"]), beginnings(batch["done"], played))
    found = policy.evaluate(batch)
    for key in ("log_prob", "value"):
        assert_close(found[key].detach()[played], batch[key][played], rtol=1e-5, atol=1e-5)


def test_groups_begin_without_memory_and_rows_that_ended_forget_nothing() -> None:
    env = lengths(rows=2)
    batch = env.rollout(GRU.actor(env), repeats=3)
    assert batch["memory"].shape == (2, 3, 1, 6) and not batch["memory"].any()
    done = torch.tensor([[0, 1, 0, 0, 1], [1, 0, 0, 0, 0]]).bool()
    mask = torch.tensor([[1, 1, 0, 1, 1], [1, 0, 0, 0, 0]]).bool()
    assert beginnings(done, mask).int().tolist() == [[0, 0, 0, 1, 0], [0, 0, 0, 0, 0]]


@pytest.mark.parametrize("init", ["orthogonal", "uniform"])
def test_its_first_weights_are_those_that_are_asked_for(init: Any) -> None:
    memory = Memory(lengths(), Network(memory="gru", memory_size=16, init=init), None)
    weight, bias = memory.gru.weight_hh_l0.detach(), memory.gru.bias_hh_l0.detach()
    if init == "orthogonal":
        assert_close(weight[:16] @ weight[:16].T, torch.eye(16))
        assert not bias.any()
    else:
        assert 0.2 < weight.abs().max() <= 0.25 and 0.2 < bias.abs().max() <= 0.25  # 1 / √16


def test_a_table_of_states_says_nothing_of_a_policy_that_remembers() -> None:
    env = gridworld.make(gridworld.Config(rows=1, size=3, goal=(2, 2), trap=(1, 1)), 0, "cpu")
    assert env.exact(Network(hidden=(8,)).actor(env)) and not env.exact(GRU.actor(env))


def test_measurements_do_not_touch_the_memory_of_the_stream() -> None:
    env, twin = lengths(), lengths()
    policy, same = GRU.actor(env), GRU.actor(twin)
    for one, actor, measured in ((env, policy, True), (twin, same, False)):
        one.rollout(actor, steps=3)
        if measured:
            one.evaluate(actor, 4)
    first, second = env.rollout(policy, steps=5), twin.rollout(same, steps=5)
    assert_close(first["memory"], second["memory"], rtol=0, atol=0)
    assert_close(first["log_prob"], second["log_prob"], rtol=0, atol=0)


@pytest.mark.parametrize("name", ["ppo", "a2c", "reinforce", "grpo", "dapo", "rloo", "dpo"])
@pytest.mark.slow
def test_algorithms_of_episodes_take_it(name: str) -> None:
    env = lengths()
    algo = algorithm(name, env, GRU)
    before = [p.clone() for p in algo.policy.memory.parameters()]
    for _ in range(4):
        iterate(algo, env)
    assert any(not torch.equal(a, b) for a, b in zip(before, algo.policy.memory.parameters(), strict=True))


@pytest.mark.parametrize("algo", ["dqn env=cartpole", "sac env=pendulum", "td3 env=pendulum"])
def test_algorithms_of_single_steps_refuse_it(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"algo={algo.split()[0]}", algo.split()[1], "policy.memory=gru"]) == 2
    assert "policy.memory=gru needs whole episodes in their order" in capsys.readouterr().err


def test_a_reference_in_the_middle_of_an_episode_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=ppo", "env=cartpole", "policy.memory=gru", "algo.kl_coef=0.1"]
    assert main(words) == 2
    assert "give algo.horizon=none, or leave algo.kl_coef out" in capsys.readouterr().err


def test_a_program_says_when_an_episode_begins(tmp_path: Path) -> None:
    keys = {"policy.memory": "gru", "algo.horizon": 8, "iterations": 1, "evaluation_episodes": 2}
    policy = rlkit.train("ppo", "cartpole", out=str(tmp_path / "run"), validation_episodes=2, **keys).policy
    seen = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    with pytest.raises(UserError, match=r"call policy.forget\(\) after each env.reset"):
        policy.predict(seen[0])
    memory = policy.module.start(1)
    policy.forget()
    for x in seen:
        action, memory = policy.module.recall(torch.from_numpy(x[None]), memory, greedy=True)
        assert policy.predict(x) == int(action[0])
        assert_close(policy._memory, memory)
    with pytest.raises(UserError, match="as many observations"):
        policy.predict(seen)


def test_torchrl_takes_no_memory() -> None:
    with pytest.raises(UserError, match="to_torchrl takes policies without memory"):
        to_torchrl(GRU.actor(lengths()))


def positions(**kwargs: Any) -> gymnasium.Env:
    """CartPole that shows where things are, and not how fast they move."""
    env = gymnasium.make("CartPole-v1", **kwargs)
    space = Box(env.observation_space.low[[0, 2]], env.observation_space.high[[0, 2]])
    return TransformObservation(env, lambda seen: seen[[0, 2]], space)


@pytest.mark.campaign  # the maze below is not solved without memory either
def test_cartpole_without_velocities_is_solved(tmp_path: Path) -> None:
    keys = {"schedule": "linear", "clip_schedule": "linear", "horizon": 32, "epochs": 20, "minibatches": 1}
    keys |= {"lr": 1e-3, "gamma": 0.98, "gae_lambda": 0.8}
    words = {f"algo.{key}": value for key, value in keys.items()} | {"policy.memory": "gru", "policy.normalize": True}
    run = rlkit.train("ppo", env=positions, env_steps=100_000, seed=5, out=str(tmp_path / "run"), **words)
    assert run.evaluate(episodes=100)["greedy"]["mean"] > 400


@pytest.mark.slow
def test_the_maze_is_solved_with_memory_alone(tmp_path: Path) -> None:
    def turns(*words: str) -> float:
        command = [sys.executable, str(ROOT / "examples" / "own_memory.py"), "seed=1", *few, *words]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return float(done.stdout.rpartition("right turns: ")[2])

    few = ("evaluation_episodes=4", "validation_episodes=4")
    assert turns("env_steps=50000") > 0.95
    assert turns("policy.memory=none", "env_steps=20000") <= 0.6, "whatever its budget"
