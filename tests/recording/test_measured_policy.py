"""Whoever measures or plays a run puts back all that its checkpoint holds of the policy, also under names with dots."""

import json
import random
from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.resuming import same
from support.state import holding

import rlkit
from rlkit import evaluate
from rlkit.pages.live import Live
from rlkit.recording import checkpoint
from rlkit.recording.undo import as_before
from rlkit.settings import config
from rlkit.settings.assemble import assemble

# A policy whose score is told by one number: with skill 1 it pushes against the fall, with 0 always to the left, and
# then CartPole falls within 11 steps. Only the second of four iterations has skill 1.
SKILLED = """
from rlkit.algorithms.reinforce import Config, Reinforce


class Mine(Reinforce):
    saved = (*Reinforce.saved, "policy.skill")

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.policy.skill = 0
        kind = type(self.policy)
        self.policy.__class__ = type("Skilled", (kind,), {"act": act})

    def rollout(self, env):
        self.policy.skill = int(self.progress == 0.25)
        return super().rollout(env)


def act(self, observation, greedy=False):
    return (observation[:, 2] + observation[:, 3] > 0).long() * self.skill


make = Mine
"""
KEYS: dict[str, Any] = {"iterations": 4, "evaluate_every": 1, "evaluation_episodes": 5, "validation_episodes": 5}


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> rlkit.Run:
    root = tmp_path_factory.mktemp("skilled")
    (root / "mine.py").write_text(SKILLED)
    return rlkit.train(root / "mine.py", "cartpole", out=root / "run", quiet=True, measure="best", **KEYS)


def test_best_is_measured_with_all_that_it_holds_of_the_policy(found: rlkit.Run) -> None:
    told = json.loads((found.folder / "summary.json").read_text())["evaluation"]
    assert told["before"]["mean"] < 12
    assert told["after"]["mean"] > 100, "the skill of the last iteration, not of the best one"


@pytest.mark.slow
def test_every_way_to_measure_a_run_restores_the_same_policy(found: rlkit.Run) -> None:
    told = json.loads((found.folder / "summary.json").read_text())["evaluation"]["after"]["mean"]
    opened = rlkit.load(found.folder, trust=True)
    assert opened.evaluate(episodes=5)["greedy"]["mean"] == told
    assert opened.policy.predict([0, 0, 0.1, 0]) == 1
    assert rlkit.load(found.folder, trust=True, checkpoint="latest").policy.predict([0, 0, 0.1, 0]) == 0
    assert evaluate.main([str(found.folder), "episodes=5", "trust=true"]) == 0
    assert json.loads((found.folder / "evaluation-test.json").read_text())["greedy"]["mean"] == told
    given = config.from_folder(found.folder)
    given.trust = True
    live = Live(found.folder, assemble(given))
    live.replay({"greedy": True, "episode": 0})
    assert live.parts.algo.policy.skill == 1


@pytest.mark.parametrize("algo", ["q_learning", "dqn"])
@pytest.mark.slow
def test_how_a_run_explored_is_not_put_back(algo: str, tmp_path: Path) -> None:
    env = {"q_learning": "gridworld", "dqn": "cartpole"}[algo]
    run = rlkit.train(algo, env, out=tmp_path / "r", quiet=True, iterations=3, evaluation_episodes=2)
    assert run.policy.module.epsilon == 0
    scores = run.evaluate(episodes=20)
    assert scores["greedy"]["returns"] == scores["sampled"]["returns"]
    live = Live(run.folder, assemble(config.from_folder(run.folder)))
    live.replay({"greedy": False, "episode": 0})
    assert live.parts.algo.policy.epsilon == 0


def test_nor_are_the_random_actions_of_a_warm_up(tmp_path: Path) -> None:
    keys: dict[str, Any] = {"env.rows": 2, "policy.log_std": -20, "algo.capacity": 100}  # hardly any noise of its own
    run = rlkit.train("sac", "pendulum", out=tmp_path / "r", quiet=True, iterations=3, evaluation_episodes=2, **keys)
    assert run.policy.module.epsilon == 0
    greedy, sampled = (run.policy.predict([1, 0, 0], greedy=greedy) for greedy in (True, False))
    assert abs(greedy - sampled).item() < 1e-6


# A policy whose actions are drawn by a generator of its own, and which counts them in a buffer, a number and a tensor.
COUNTING = """
import numpy as np
import torch
from rlkit.algorithms.reinforce import Config, Reinforce


class Mine(Reinforce):
    saved = (*Reinforce.saved, "policy.rng", "policy.seen", "policy.sums", "policy.log")

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        policy = self.policy
        policy.rng, policy.seen, policy.sums, policy.log = np.random.default_rng(0), 0, torch.zeros(4), []
        policy.register_buffer("count", torch.zeros(()))
        policy.__class__ = type("Counting", (type(policy),), {"act": act})


def act(self, observation, greedy=False):
    self.seen += 1
    self.count += 1
    self.sums += observation.sum(0)
    self.log = [*self.log[-3:], self.seen]
    often = int(self.count) % 3 + self.seen % 5
    return torch.from_numpy(self.rng.integers(2, size=len(observation)) ^ (often == 2))


make = Mine
"""


def measured_or_not(code: str, root: Path) -> list[tuple[rlkit.Run, list[float]]]:
    """Runs that measure never and after each iteration, with the returns of their iterations."""
    (root / "mine.py").write_text(code)
    keys: dict[str, Any] = {"iterations": 4, "evaluation_episodes": 3, "validation_episodes": 3, "quiet": True}
    found = []
    for often in (0, 1):
        run = rlkit.train(root / "mine.py", "cartpole", out=root / f"{often}", evaluate_every=often, **keys)
        lines = [json.loads(line) for line in (run.folder / "metrics.jsonl").read_text().splitlines()]
        found.append((run, [line["rollout/return"] for line in lines]))
    return found


def test_measuring_changes_nothing_that_a_policy_remembers(tmp_path: Path) -> None:
    found = [(checkpoint.load(run.folder), returns) for run, returns in measured_or_not(COUNTING, tmp_path)]
    (state, returns), other = [(x["numbers"] | {"policy": x["parts"]["policy"]}, returns) for x, returns in found]
    assert same(state, other[0]) and returns == other[1]
    assert state["policy.seen"] == int(state["policy"]["count"]) > 0


# The same state under names of the algorithm, and running means in a parameter that does not learn.
SHARED = """
import numpy as np
import torch
from torch import nn
from rlkit.algorithms.reinforce import Config, Reinforce


class Scale:
    def __init__(self):
        self.sums = np.zeros(4)

    def state_dict(self):
        return {"sums": self.sums}

    def load_state_dict(self, state):
        self.sums = state["sums"]


class Mine(Reinforce):
    saved = (*Reinforce.saved, "rng", "seen", "scale")

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        policy = self.policy
        self.rng, self.seen, self.scale = np.random.default_rng(0), torch.zeros(()), Scale()
        policy.rng, policy.inner, policy.scale = self.rng, {"seen": self.seen}, self.scale
        policy.mean = nn.Parameter(torch.zeros(4), requires_grad=False)
        policy.__class__ = type("Sharing", (type(policy),), {"act": act})


def act(self, observation, greedy=False):
    self.inner["seen"] += 1
    self.mean += observation.mean(0)
    self.scale.sums = self.scale.sums + observation[0].numpy()
    often = int(self.inner["seen"]) % 3 == 2
    right = (self.mean * torch.from_numpy(self.scale.sums)).sum() > 0
    return torch.from_numpy(self.rng.integers(2, size=len(observation))) ^ (often & bool(right))


make = Mine
"""


def test_a_policy_is_measured_with_the_state_that_the_algorithm_shares_with_it(tmp_path: Path) -> None:
    found = measured_or_not(SHARED, tmp_path)
    for run, _ in found:
        told = json.loads((run.folder / "summary.json").read_text())["evaluation"]["after"]["mean"]
        opened = rlkit.load(run.folder, trust=True)
        once, again = (opened.evaluate(episodes=3) for _ in range(2))
        assert once["greedy"]["mean"] == told
        assert once["greedy"]["returns"] == again["greedy"]["returns"]
        assert once["sampled"]["returns"] == again["sampled"]["returns"]
    assert found[0][1] == found[1][1], "measuring changes training"
    best = checkpoint.load(found[1][0].folder, "best")
    assert {"rng", "seen"} <= best["numbers"].keys() and "scale" in best["parts"]


class Ends(Exception):
    pass


def test_a_measurement_leaves_each_object_that_one(tmp_path: Path) -> None:
    names = ("mean", "policy.stats", "policy.rows", "policy.pair", "policy.wide")
    algo, env = holding("mean", torch.zeros(4), saved=names)
    policy, step = algo.policy, np.zeros(2)
    policy.stats = {"mean": algo.mean, "last": [step], "seen": {1}, "queue": deque([0.5], maxlen=2)}
    policy.stats["luck"] = random.Random(0)
    policy.table = torch.zeros(2, 3)
    policy.rows, policy.pair, policy.wide = [*policy.table], (policy.stats["last"], step), np.broadcast_to(step[0], 3)
    policy.register_buffer("scale", torch.ones(1).expand(4))
    policy.register_buffer("count", torch.zeros(()))
    held = {key: policy.stats[key] for key in policy.stats}
    rows, pair, luck = policy.rows, policy.pair, random.Random(0)
    with pytest.raises(Ends), as_before(algo, env):
        policy.count += 1
        policy.stats["mean"] += 1
        policy.stats["last"].append(step)
        policy.stats["seen"].add(2)
        policy.stats["queue"].append(3)
        policy.stats["luck"].random()
        policy.rows[1] += 1
        step += 1
        policy.stats, policy.rows, policy.pair = {"mean": 3}, [], ()
        raise Ends
    assert policy.rows is rows and policy.pair is pair and list(policy.stats) == list(held)
    assert all(policy.stats[key] is x for key, x in held.items()) and policy.stats["mean"] is algo.mean
    assert policy.pair[0] is policy.stats["last"] and policy.stats["last"][0] is policy.pair[1] is step
    assert not algo.mean.any() and not step.any() and not policy.table.any() and not policy.count
    assert (len(held["last"]), held["seen"], list(held["queue"])) == (1, {1}, [0.5])
    assert held["luck"].random() == luck.random()
    policy.rows[0] += 1
    assert policy.table[0].eq(1).all(), "it is still a view"


def test_what_is_measured_may_be_scripted_negative_zero_or_sparse() -> None:
    algo, env = holding("mean", torch.tensor([0.0, -0.0]), saved=("mean", "policy.mean"))
    policy = algo.policy
    policy.mean = algo.mean
    policy.features = torch.jit.script(torch.nn.BatchNorm1d(2))
    policy.register_buffer("sparse", torch.eye(2).to_sparse(), persistent=False)
    with as_before(algo, env):
        policy.features(torch.ones(3, 2))
        policy.sparse.add_(torch.eye(2).to_sparse())
        policy.mean.neg_()
    assert torch.signbit(policy.mean).tolist() == [False, True] and policy.features.num_batches_tracked == 0
    assert torch.equal(policy.sparse.to_dense(), torch.eye(2))
