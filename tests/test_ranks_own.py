"""Several ranks train an algorithm of one's own as one process does."""

import tracemalloc
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support import ranks as start

from rlkit import new, shards
from rlkit.api import State
from rlkit.errors import UserError
from rlkit.finite import leaves
from rlkit.held import check_agreed

OWN = """
import copy

import torch
from rlkit import api, buffers, losses, policies


class make(api.Algorithm):
    saved = (*api.Algorithm.saved, "critic", "second", "seen")

    def __init__(self, config, env, network):
        self.config, self.policy = config, network.actor(env)
        self.critic = torch.nn.Linear(4, 1).double()
        self.buffer = buffers.Rollout(env.seed, 1, 2, whole_rows=False)
        self.optimizer = policies.adam(self.policy, config)
        self.second = torch.optim.Adam(self.critic.parameters(), lr=0.01)
        self.seen = torch.zeros(8, dtype=torch.float64)

    def rollout(self, env):
        return env.rollout(self.policy, steps=8)

    def credit(self, rollout):
        value = self.critic(rollout["observation"].double()).squeeze(-1)
        return rollout.set("advantage", rollout["reward"] - value)

    def loss(self, batch):
        each = losses.policy_gradient(self.policy.evaluate(batch)["log_prob"], batch["advantage"])
        value = self.critic(batch["observation"].double()).squeeze(-1)
        error = losses.squared_error(value, batch["reward"].double())
        return losses.weighted(losses.plus(each, error, 1.0), batch["weight"]), {"error": error}

    def after_step(self, learned):
        self.second.step()
        self.second.zero_grad()
        self.seen += sum(len(batch) + metrics["error"].sum() for batch, metrics in learned)


from rlkit.policies import Optimization as Config
"""

ADAM = "torch.optim.Adam(self.critic.parameters(), lr=0.01)"
STEPPED = "self.second.step()\n        self.second.zero_grad()\n"
ANEW = f"        self.critic = copy.deepcopy(self.critic)\n        self.second = {ADAM}\n"
PARTS = 'rollout.set("part", rollout.select("reward")).set('

HELD = """
class Held:
    def __init__(self, optimizer):
        self.all = [optimizer]

    def step(self):
        self.all[0].step()

    def zero_grad(self):
        self.all[0].zero_grad()

    def state_dict(self):
        return self.all[0].state_dict()

    def load_state_dict(self, state):
        self.all[0].load_state_dict(state)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {ADAM: f"Held({ADAM})"},
        # A gradient that is kept over all minibatches of an iteration, and batches with parts.
        {f"        {STEPPED}": "", "return env": f"{STEPPED}        return env", "rollout.set(": PARTS},
        {STEPPED: STEPPED + ANEW},  # other parameters from the next minibatch on
    ],
)
def test_an_algorithm_of_ones_own_with_a_second_optimizer_learns_the_same_on_ranks(
    changes: dict[str, str], tmp_path: Path
) -> None:
    """Ranks add up the gradients of both, and after_step gets what all of them learned from."""
    text = OWN + HELD
    for old, changed in changes.items():
        assert old in text
        text = text.replace(old, changed)
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    wide = ("policy.dtype=float64", "env.rows=8", *start.SHORT)
    words = (f"algo={tmp_path / 'own.py'}", "env=cartpole", "iterations=6", *wide)
    held = []
    for ranks in (1, 2):
        done = start.run(ranks, *words, f"out={tmp_path / str(ranks)}")
        assert not done.returncode, done.stderr
        held.append(load_file(tmp_path / str(ranks) / "checkpoints" / "latest.safetensors"))
    for part in ("policy", "critic", "seen"):
        keys = [key for key in held[0] if f"'{part}'" in key and held[0][key].numel()]
        assert keys
        for key in keys:
            torch.testing.assert_close(*(each[key] for each in held), rtol=1e-9, atol=1e-9)


DRAWS = """
import torch
from rlkit import policies, seeding


class Actor(policies.PolicyModule):
    def __init__(self, env):
        super().__init__(seeding.generator(env.seed, "action"))
        self.net = torch.nn.Linear(4, 2)

    def act(self, observation, greedy=False):
        p = self.net(observation).softmax(-1)
        return p.argmax(-1) if greedy else DRAWN

    def evaluate(self, batch):
        log_p = self.net(batch["observation"]).log_softmax(-1)
        return {"log_prob": policies.pick(log_p, batch["action"]), "entropy": -(log_p.exp() * log_p).sum(-1)}

    def record(self, batch):
        return super().record(batch) | {"log_prob": self.evaluate(batch)["log_prob"]}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("drawn", "said"),
    [
        ("torch.multinomial(p, 1, generator=self.generator).squeeze(-1)", "Actor.act draws from Actor.generator"),
        ("(self.uniform(p.shape[:1]) < p[:, 1]).long()", ""),
        # By a part of it that has the generator, too.
        ("(policies.PolicyModule(self.generator).uniform(p.shape[:1]) < p[:, 1]).long()", ""),
    ],
)
def test_a_policy_that_draws_alike_on_all_ranks_is_refused(drawn: str, said: str, tmp_path: Path) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    text = (tmp_path / "mine.py").read_text(encoding="utf-8").replace("network.actor(env)", "Actor(env)")
    actor = DRAWS.replace("DRAWN", drawn)
    (tmp_path / "mine.py").write_text(text.replace("@dataclass", f"{actor}\n\n@dataclass", 1), encoding="utf-8")
    words = (f"algo={tmp_path / 'mine.py'}", "env=cartpole", "iterations=1", "env.rows=4", *start.SHORT)
    done = start.run(2, *words, f"out={tmp_path / 'run'}")
    assert bool(done.returncode) == bool(said)
    assert said in " ".join(start.said(done))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("learned", "said"),
    [
        (
            "(error * batch['weight']).sum().backward(retain_graph=True)\n        self.second.step()",
            "steps an optimizer",
        ),
        ("self.second.zero_grad()", "loss sets gradients to zero"),
    ],
)
def test_a_loss_that_steps_or_zeroes_an_optimizer_is_refused_on_ranks(learned: str, said: str, tmp_path: Path) -> None:
    """Each rank would step it by its own part of the gradient, or lose what the others add."""
    text = OWN.replace("return losses.", f"{learned}\n        return losses.")
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    words = (f"algo={tmp_path / 'own.py'}", "env=cartpole", "iterations=1", "env.rows=4", *start.SHORT)
    done = start.run(2, *words, f"out={tmp_path / 'run'}")
    assert done.returncode
    assert said in " ".join(start.said(done))


@pytest.mark.slow
@pytest.mark.parametrize("divides", [True, False])
def test_state_that_a_loss_changes_by_the_part_of_its_rank_is_refused(divides: bool, tmp_path: Path) -> None:
    """Only the first rank's would be saved; where each rank learns from whole minibatches, all have the same."""
    changed = "self.seen += batch['advantage'].double().mean().abs()\n        return losses."
    text = OWN.replace("return losses.", changed).replace("    saved", f"    divides = {divides}\n    saved")
    (tmp_path / "own.py").write_text(text, encoding="utf-8")
    words = (f"algo={tmp_path / 'own.py'}", "env=cartpole", "iterations=2", "env.rows=4", *start.SHORT)
    done = start.run(2, *words, f"out={tmp_path / 'run'}")
    assert bool(done.returncode) == divides
    assert not divides or "make.seen is not the same on all ranks" in " ".join(start.said(done))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (0.5, 0.4),
        ({"a": 1.0}, {"b": 1.0}),
        ("x", "y"),
        (torch.tensor([True]), torch.tensor([False])),
        (np.arange(3), np.arange(1, 4)),
        (np.zeros((2, shards.PIECE), bool), np.eye(2, shards.PIECE, dtype=bool)),
        (torch.zeros(2, shards.PIECE, dtype=torch.uint8), torch.eye(2, shards.PIECE, dtype=torch.uint8).flip(1)),
    ],
)
def test_what_two_ranks_hold_is_compared(one: object, other: object, monkeypatch: pytest.MonkeyPatch) -> None:
    two_ranks(monkeypatch)
    for _ in range(2):
        shards.check_agreed("Mine", leaves({"value": one}))
    with pytest.raises(UserError, match=r"Mine\.value.* is not the same on all ranks"):
        shards.check_agreed("Mine", leaves({"value": other}))


def test_a_large_memory_is_compared_without_a_copy_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """As numbers of 8 bytes, a replay of frames would take 16 times its size at each checkpoint."""
    two_ranks(monkeypatch)
    frames = np.zeros((64, 2**19), np.uint8)
    tracemalloc.start()
    shards.check_agreed("Mine", [("frames", frames)])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < frames.nbytes / 4


@pytest.mark.parametrize(
    ("one", "other"), [(1.0, 1.0001), (1e-17, 0.0), (torch.tensor([torch.nan]), np.array([np.nan]))]
)
def test_two_ranks_may_round_otherwise(one: object, other: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not a number is refused elsewhere, in words of its own."""
    two_ranks(monkeypatch)
    for value in (one, other):
        shards.check_agreed("Mine", leaves({"value": value}))


@pytest.mark.parametrize("moved", [True, False])
def test_parameters_that_no_optimizer_moves_are_compared(moved: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as a running mean in a module that learns: gradients do not make it the same on all ranks."""
    two_ranks(monkeypatch)
    monkeypatch.setattr("rlkit.ranks.size", lambda: 2)
    scale = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(scale.parameters() if moved else [scale.weight])
    algo: Any = SimpleNamespace(saved=("scale", "optimizer"), scale=scale, optimizer=optimizer)
    state: State = {"numbers": {}, "parts": {key: vars(algo)[key].state_dict() for key in algo.saved}}
    check_agreed(algo, state)
    scale.bias.data += 1
    with nullcontext() if moved else pytest.raises(UserError, match=r"\.scale.bias is not the same on all ranks"):
        check_agreed(algo, state)


def two_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first call is that of the first rank, each later one that of a second."""
    held: list[dict[str, float]] = []

    def everyones(mine: dict[str, float]) -> list[dict[str, float]]:
        held.append(mine)
        return [held[0], mine]

    monkeypatch.setattr("rlkit.ranks.everyones", everyones)
