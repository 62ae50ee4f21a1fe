"""A measurement changes no policy, and what an environment or a policy fills again belongs to one measurement."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space
from support.fakes import RaggedText, environment, on_text
from tensordict import TensorDict

import rlkit
from rlkit import evaluate
from rlkit.control import ControlEnv
from rlkit.policies import ActorCritic, Network
from rlkit.scores import Scores, checked
from rlkit.text.measuring import Measuring
from rlkit.text.problems import Problem

COUNTS = """
import torch
from rlkit import policies
from rlkit.algorithms import reinforce

Config = reinforce.Config


class Counting(policies.ActorCritic):
    def __init__(self, env, network):
        super().__init__(env, network)
        self.register_buffer("calls", torch.zeros(()))

    def act(self, observation, greedy=False):
        self.calls += 1
        return super().act(observation, greedy)


class make(reinforce.Reinforce):
    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.policy = Counting(env, network)
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env):
        assert self.progress or not int(self.policy.calls), "nothing has acted before the first rollout"
        return super().rollout(env)
"""


def test_exact_values_and_videos_leave_the_policy_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "counts.py").write_text(COUNTS)
    keys: dict[str, Any] = {"env.slippery": False, "env.rows": 8, "iterations": 2, "evaluation_episodes": 4}
    run = rlkit.train(tmp_path / "counts.py", "frozenlake", out=tmp_path / "r", quiet=True, **keys)
    calls = int(run.policy.module.calls)  # type: ignore[union-attr, arg-type]  # of the class above
    assert "exact" in run.evaluate(episodes=3) and int(run.policy.module.calls) == calls  # type: ignore[union-attr, arg-type]
    words = [str(run.folder), "trust=true", "episodes=3", f"video={tmp_path / 'x.gif'}"]
    reports = []
    for given in (words[:3], words):
        assert evaluate.main(given) == 0
        reports.append((run.folder / "evaluation-test.json").read_text())
    assert reports[0] == reports[1] and (tmp_path / "x.gif").exists()


COUNTED = """
from dataclasses import dataclass

import gymnasium
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from rlkit.api import Count
from rlkit.control import ControlEnv


@dataclass(frozen=True)
class Config:
    rows: Count = 4


class Counted(ControlEnv):
    def __init__(self, *given, **keys):
        super().__init__(*given, **keys)
        self.drawn, self.known = {"test": 0, "validation": 0}, {}

    def episode_seed(self, split, episode):
        return super().episode_seed(split, episode) + 1000 * self.drawn["test"]

    def evaluate(self, policy, episodes=None, split="validation", greedy=True):
        self.drawn["test"] += not greedy
        return super().evaluate(policy, episodes, split, greedy)

    def exact(self, policy, gamma=0.99):
        self.known["size"] = float(sum(p.detach().abs().sum() for p in policy.parameters()))
        return self.known

    def state_dict(self):
        return super().state_dict() | {"drawn": self.drawn, "known": {}}

    def load_state_dict(self, state):
        super().load_state_dict(state)
        self.drawn, self.known = state["drawn"], {}


def make(config, seed, device):
    def vector(n):
        return SyncVectorEnv([lambda: gymnasium.make("CartPole-v1")] * n, autoreset_mode=AutoresetMode.DISABLED)

    return Counted(vector, config.rows, seed, device, source="counted")
"""


def test_a_measurement_is_repeated_with_the_same_episodes(tmp_path: Path) -> None:
    (tmp_path / "counted.py").write_text(COUNTED)
    keys: dict[str, Any] = {"iterations": 2, "evaluation_episodes": 4, "quiet": True}
    run = rlkit.train("ppo", tmp_path / "counted.py", out=tmp_path / "r", **keys)
    found = [run.evaluate(episodes=4) for _ in range(3)]
    assert found[0]["greedy"] == found[1]["greedy"] == found[2]["greedy"]
    assert found[0]["sampled"] == found[1]["sampled"] == found[2]["sampled"]
    told = run.summary["evaluation"]
    assert told["before"]["exact"] != told["after"]["exact"], "each is of its own policy"


def test_all_that_was_measured_is_of_that_measurement() -> None:
    env, truncated = environment("cartpole", rows=2), torch.tensor([True, False])
    samples: Any = [{"prompt": "p", "completion": "greedy", "answer": "", "score": 1.0, "kind": ""}]
    kinds, items = ["a", "b"], [("a", "b"), ("c", "d")]
    kept = checked(env, Scores(torch.ones(2), torch.ones(2), kinds, None, samples, items, truncated=truncated))
    truncated.fill_(False)
    samples[0]["completion"] = "sampled"
    kinds[0], items[0] = "z", ("z", "z")
    assert (
        kept.samples[0]["completion"] == "greedy"
        and kept.kinds == ["a", "b"]
        and kept.items == [("a", "b"), ("c", "d")]
    )
    assert kept.truncated is not None and kept.truncated.tolist() == [True, False]


class Pair(VectorEnv):  # type: ignore[type-arg]
    """Two agents in each copy; writes into the arrays that it has handed out, also as it starts rows."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012
    agents = 2

    def __init__(self, n: int, copies: bool) -> None:
        self.num_envs, self.copies, self.spec = n, copies, None
        self.single_observation_space, self.single_action_space = Box(-1e3, 1e3, (2,), np.float32), Discrete(2)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.action_space = batch_space(self.single_action_space, n)
        self.seen, self.paid, self.age = np.zeros((n, 2), np.float32), np.zeros(n), np.zeros(n, int)
        self.over, self.cut = np.zeros((2, n), bool)
        self.acting = np.ones(n, bool)

    def shown(self, x: Any) -> Any:
        return x.copy() if self.copies else x

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        rows = np.ones(self.num_envs, bool) if options is None else np.array(options["reset_mask"])
        for row in np.flatnonzero(rows):
            self.seen[row] = np.random.default_rng(seed[row - row % 2]).uniform(-1, 1, 2)
            self.age[row], self.paid[row], self.over[row], self.acting[row] = 0, 0, False, True
        return self.shown(self.seen), {}

    def step(self, actions: Any) -> Any:
        self.age += 1
        self.paid[:] = np.where(self.acting, 1 + actions + self.seen[:, 0] ** 2, 0)
        self.seen += 0.3 * (np.asarray(actions)[:, None] * 2 - 1)
        self.over[:] = self.acting & (self.age >= 4 + np.arange(self.num_envs) % 3)
        self.acting &= ~self.over
        return self.shown(self.seen), self.shown(self.paid), self.shown(self.over), self.shown(self.cut), {}


def test_a_game_of_several_agents_may_write_over_its_arrays_at_a_reset() -> None:
    found = []
    for copies in (True, False):
        env = ControlEnv(lambda n, copies=copies: Pair(n, copies), 4, 0, "cpu", source="pair", agents=2)
        policy = ActorCritic(env, Network(hidden=(8,)))
        found.append((env.rollout(policy, steps=40), env.evaluate(policy, 10).score))
    for key in found[0][0].keys():
        assert torch.equal(found[0][0][key], found[1][0][key]), key
    assert torch.equal(found[0][1], found[1][1]) and bool(found[0][0]["terminated"].any())


def test_a_policy_that_fills_its_memory_again_remembers_each_episode(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"policy.memory": "gru", "env.rows": 2, "iterations": 1, "evaluation_episodes": 2}
    run = rlkit.train("ppo", "cartpole", out=tmp_path / "r", quiet=True, **keys)
    module: Any = run.policy.module
    recall, start = module.recall, module.start
    held, zeros = torch.zeros_like(start(1)), torch.zeros_like(start(1))

    def refills(observation: torch.Tensor, memory: torch.Tensor, greedy: bool = False) -> Any:
        action, after = recall(observation, memory, greedy)
        memory.fill_(7)
        return action, held.copy_(after)

    def remembered() -> list[torch.Tensor | None]:
        one, other = run.policy, run.policy
        found = []
        for policy, value in ((one, 0.1), (other, 0.5), (one, 0.2), (other, -0.5)):
            if policy._memory is None:
                policy.forget()
            policy.predict(np.full(4, value, np.float32))
            found.append(policy._memory.clone() if policy._memory is not None else None)
        return found

    wanted = remembered()
    module.recall, module.start = refills, lambda rows: zeros
    for ours, known in zip(remembered(), wanted, strict=True):
        assert ours is not None and known is not None and torch.equal(ours, known)
    assert not zeros.any()


def test_rollouts_of_one_iteration_are_each_their_own() -> None:
    found = []
    for copies in (True, False):
        env = RaggedText(rows=2)
        algo, play, kept = on_text("dapo", env, group=2, tries=6), env.rollout, list[TensorDict]()

        def again(*given: Any, play: Any = play, kept: list[TensorDict] = kept, own: bool = copies, **keys: Any) -> Any:
            rollout = play(*given, **keys)
            rollout["score"] = torch.tensor([[0.0, float(len(kept) % 2)], [0.0, 0.0]])
            kept.append(rollout.clone())
            return rollout if own or len(kept) == 1 else kept[0].copy_(rollout)

        vars(env)["rollout"] = again
        found.append(algo.rollout(env))
        assert len(kept) > 2
    for key in found[0].keys():
        assert torch.equal(found[0][key], found[1][key]), key


def test_a_reward_model_may_fill_its_scores_again() -> None:
    kept = torch.zeros(1)

    def judge(prompts: Any, texts: list[str]) -> torch.Tensor:
        return kept.copy_(torch.tensor([float(len(texts[0]))]))

    model: Any = SimpleNamespace(judge=judge)
    problem = Problem("?", "7")
    found = Measuring().ranked(model, [problem], ["?"], ["It is 7", "3", "4", "5"], torch.ones(1, 4))
    assert found is not None and found.score.tolist() == [1.0]
