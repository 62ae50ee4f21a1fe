"""Own plug-ins that draw from the global generators of torch, NumPy and Python: the seed decides, resume is exact."""

import random
from pathlib import Path

import numpy as np
import pytest
import torch
from support import ranks

import rlkit
from rlkit import seeding
from rlkit.recording import checkpoint

OWN = """
import random
import numpy as np
import torch
from torch import nn
from rlkit.algorithms.a2c import A2C, Config

class Noisy(A2C):
    saved = (*A2C.saved, "bonus")

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.bonus = nn.Linear(4, 1)

    def credit(self, rollout):
        rollout = super().credit(rollout)
        found = self.bonus(rollout["observation"])[..., 0] + torch.randn_like(rollout["advantage"])
        rollout["advantage"] = rollout["advantage"] + found * np.random.rand() * random.random()
        return rollout

make = Noisy
"""


def learned(tmp_path: Path, out: str, **keys: object) -> dict[str, torch.Tensor]:
    """The tensors of the last checkpoint of a run that may be resumed."""
    path = tmp_path / "noisy.py"
    path.write_text(OWN)
    if "resume" in keys:
        run = rlkit.load(tmp_path / out, trust=True).resume(iterations=keys["iterations"], quiet=True)
    else:
        run = rlkit.train(str(path), "cartpole", out=str(tmp_path / out), evaluation_episodes=1, quiet=True,
                          checkpoint_every=2, **keys)  # fmt: skip
    assert run.folder == tmp_path / out
    state = checkpoint.load(tmp_path / out)
    return {"bonus": state["parts"]["bonus"]["weight"], **state["parts"]["policy"]}


def equal(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(x, other[key]) for key, x in one.items())


def test_a_seed_decides_what_they_draw_and_resume_goes_on_with_it(tmp_path: Path) -> None:
    whole = learned(tmp_path, "whole", seed=1, iterations=6)
    torch.rand(3), np.random.rand(3), random.random()  # what the caller draws changes nothing
    assert equal(whole, learned(tmp_path, "again", seed=1, iterations=6))
    assert not torch.equal(whole["bonus"], learned(tmp_path, "other", seed=2, iterations=1)["bonus"])
    learned(tmp_path, "parts", seed=1, iterations=3)
    assert equal(whole, learned(tmp_path, "parts", resume=True, iterations=6))


def test_the_states_of_the_caller_stay(tmp_path: Path) -> None:
    states = torch.get_rng_state(), np.random.get_state()[1].tolist(), random.getstate()  # type: ignore[index, union-attr]
    learned(tmp_path, "run", seed=1, iterations=1)
    assert torch.equal(torch.get_rng_state(), states[0])
    assert np.random.get_state()[1].tolist() == states[1]  # type: ignore[index, union-attr]
    assert random.getstate() == states[2]


@pytest.mark.parametrize("position", [-1, 625, 10**12])
def test_a_position_out_of_range_is_refused_before_numpy_reads_it(position: int) -> None:
    from rlkit.attributes import put_back, state_of

    drawn = {"x": np.random.RandomState(1)}
    state = state_of(drawn["x"])
    state["state"]["pos"] = position
    with pytest.raises(ValueError, match="position"):
        put_back(drawn, "x", state)


RESETS = """
import os, pathlib, random
import numpy as np
import torch
from rlkit.algorithms.a2c import A2C, Config

class Resets(A2C):
    def rollout(self, env):
        torch.rand(1 + int(os.environ["RANK"]))  # as an environment may, for the rows of this rank
        return super().rollout(env)

    def after_step(self, learned):
        super().after_step(learned)
        with torch.no_grad():
            for weight in self.policy.parameters():
                weight += torch.randn(weight.shape) * np.random.rand() * random.random()
        name = pathlib.Path(__file__).with_name(f"rank{os.environ['RANK']}")
        torch.save([x.detach().clone() for x in self.policy.parameters()], name)

make = Resets
"""


@pytest.mark.slow
def test_ranks_change_their_copies_of_the_parameters_alike(tmp_path: Path) -> None:
    (tmp_path / "resets.py").write_text(RESETS)
    done = ranks.run(2, f"algo={tmp_path / 'resets.py'}", "env=cartpole", "iterations=2", f"out={tmp_path / 'run'}",
                     *ranks.SHORT)  # fmt: skip
    assert not done.returncode, done.stderr
    one, other = (torch.load(tmp_path / f"rank{number}") for number in range(2))
    assert all(map(torch.equal, one, other))


DRAWS = """
import gymnasium
import numpy as np

class Draws(gymnasium.Wrapper):
    def step(self, action):
        np.random.rand()  # as one that is drawn does, for its colors
        return super().step(action)

def make(**keys):
    return Draws(gymnasium.make("CartPole-v1", **keys))
"""


def test_an_environment_that_is_replayed_moves_no_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "draws_env.py").write_text(DRAWS)
    (tmp_path / "noisy.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    keys = {"evaluation_episodes": 1, "validation_episodes": 1, "evaluations": 0, "quiet": True, "env.rows": 3}
    keys |= {"env.entry": "draws_env:make", "algo.horizon": 5}
    keys |= {"iterations": 5}
    rlkit.train("./noisy.py", "gym", out="whole", **keys)
    rlkit.train("./noisy.py", "gym", out="parts", on_iteration=lambda metrics: metrics["iteration"] == 3, **keys)
    rlkit.load("parts", trust=True).resume(quiet=True)
    one, other = (checkpoint.load(tmp_path / name)["parts"]["policy"] for name in ("whole", "parts"))
    assert equal(one, other)


def test_validation_takes_nothing_from_the_draws_of_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its episodes draw, too: a run that is validated more often is the same run."""
    (tmp_path / "draws_env.py").write_text(DRAWS)
    (tmp_path / "noisy.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    keys = {"evaluation_episodes": 1, "validation_episodes": 2, "quiet": True, "env.rows": 3, "iterations": 6}
    for every in (2, 6):
        rlkit.train(
            "./noisy.py", "gym", out=f"every-{every}", evaluate_every=every, **{"env.entry": "draws_env:make"}, **keys
        )
    often, once = (checkpoint.load(tmp_path / f"every-{every}")["parts"]["policy"] for every in (2, 6))
    assert equal(often, once)


LUCK = """
import gymnasium
import numpy as np

class Luck(gymnasium.Wrapper):
    def step(self, action):
        seen, _, terminated, truncated, info = super().step(action)
        return seen, np.random.rand(), terminated, truncated, info

def make(**keys):
    return Luck(gymnasium.make("CartPole-v1", **keys))
"""


def test_what_is_measured_depends_on_the_seed_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "luck_env.py").write_text(LUCK)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    keys = {"evaluation_episodes": 3, "validation_episodes": 3, "quiet": True, "iterations": 1, "algo.horizon": 8}
    run = rlkit.train("a2c", "gym", out="run", **{"env.entry": "luck_env:make"}, **keys)
    assert run.summary is not None
    np.random.rand(3)
    found = run.evaluate(episodes=3, against="run")
    theirs = found["against"]["theirs"]["mean"]
    assert run.summary["evaluation"]["after"]["mean"] == found["greedy"]["mean"] == theirs
    assert run.metrics[-1]["eval/return"] == run.evaluate(episodes=3, split="validation")["greedy"]["mean"]


def test_ranks_do_not_measure_their_parts_with_the_same_luck(monkeypatch: pytest.MonkeyPatch) -> None:
    found, before = [], np.random.get_state()[1].tolist()
    for number in (0, 1, 0):
        monkeypatch.setattr("rlkit.ranks.rank", lambda number=number: number)
        with seeding.drawn_apart(3, "test"):
            found.append(np.random.rand())
    assert found[0] == found[2] != found[1] and np.random.get_state()[1].tolist() == before
