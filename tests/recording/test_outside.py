"""A checkpoint that somebody changed to hold what cannot have been played or saved: one line, before it is learned."""

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from rlkit import progress, run
from rlkit.api import UserError
from rlkit.moments import check_optimizer, options_of
from rlkit.recording import checkpoint
from rlkit.settings import config
from rlkit.settings.assemble import Parts, assemble

SHORT = ["env=frozenlake", "env.rows=2", "iterations=10", "evaluation_episodes=2", "validation_episodes=2", "threads=1"]
DQN = ["algo=dqn", "algo.warmup_steps=16", "algo.capacity=64", "algo.batch_size=8", "algo.n_step=2", "algo.hold=3"]
RUNS = {"dqn": [*DQN, "algo.prioritized=true", "policy.hidden=8"], "sarsa": ["algo=sarsa"]}
Change = Callable[[dict[str, Any]], None]
BUFFER = ("parts", "buffer")
STORE, WAITING = (*BUFFER, "store"), ("parts", "window", "waiting")
OPTIMIZER = ("parts", "optimizer")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("finished")
    for name, words in RUNS.items():
        assert run.main([*words, *SHORT, "measure=latest", f"out={folder / name}"]) == 0
    return {name: folder / name for name in RUNS}


def fill(value: float, *path: Any) -> Change:
    """Put a number in the place of a number, or of all in a tensor."""

    def change(state: dict[str, Any]) -> None:
        for key in path[:-1]:
            state = state[key]
        was = state[path[-1]]
        state[path[-1]] = torch.full_like(was, value) if isinstance(was, torch.Tensor) else value

    return change


def widen(state: dict[str, Any]) -> None:
    waiting = state["parts"]["window"]["waiting"]
    waiting |= {key: torch.cat([x, x], 1) for key, x in waiting.items()}


CASES: dict[str, tuple[Change, str]] = {
    "an action": (fill(99, *STORE, "action"), "(ValueError: a step chose 99, which is not in Discrete(4))"),
    "an action below": (fill(-1, *STORE, "action"), "(ValueError: a step chose -1, which is not in Discrete(4))"),
    "an action that waits": (fill(2**40, *WAITING, "action"), "chose 1099511627776, which is not in Discrete(4))"),
    "a state": (fill(16, *STORE, "next_observation"), "(ValueError: a step saw 16, which is not in Discrete(16))"),
    "a reward": (fill(math.inf, *STORE, "reward"), "(ValueError: reward of a step is inf)"),
    "a discount": (fill(1.5, *STORE, "discount"), "(ValueError: discount of a step is 1.5)"),
    "no number": (fill(math.nan, *STORE, "reward"), "holds what is not finite, buffer.store.reward; "),
    "a parameter": (fill(math.inf, "parts", "policy", "q.1.weight"), "holds what is not finite, policy.q.1.weight; "),
    "steps of nobody": (fill(False, *STORE, "mask"), "steps that are remembered nobody played some)"),
    "steps below 0": (fill(-1, *BUFFER, "seen"), "'buffer' of its checkpoint does not fit this run (TypeError: -1"),
    "steps not seen": (fill(0, *BUFFER, "seen"), "(ValueError: 0 steps were seen, and"),
    "a priority": (
        fill(-1.0, *BUFFER, "priority"),
        "(ValueError: a priority of a step that is remembered is not a pos",
    ),
    "the highest": (
        fill(-1.0, *BUFFER, "highest"),
        "(ValueError: a priority of a step that is remembered is not a pos",
    ),
    "a beta": (fill(1e30, *BUFFER, "beta"), "(ValueError: beta is 1e+30)"),
    "an action held": (fill(4, "parts", "explorer", "held"), "of 4 actions are held for"),
    "held forever": (fill(2**40, "parts", "explorer", "left"), "of 4 actions are held for"),
    "what was played": (fill(7, "env", "actions"), "(ValueError: an episode in progress chose 7, which is not in Dis"),
    "a moment": (fill(math.inf, *OPTIMIZER, "state", 0, "exp_avg_sq"), "exp_avg_sq is not finite)"),
    "a decay": (fill(-1.0, *OPTIMIZER, "param_groups", 0, "weight_decay"), "a number of it is -1.0)"),
    "a momentum": (fill(10**90, *OPTIMIZER, "param_groups", 0, "eps"), "a number of it is 1"),
    "a length": (fill(10**30, "env", "length", 0), "'env' of its checkpoint does not fit this run (OverflowError"),
    "columns that wait": (widen, "'window' of its checkpoint does not fit this run"),
}


def changed(source: Path, folder: Path, change: Change) -> None:
    """A run whose checkpoint was changed and given a checksum that fits."""
    shutil.copytree(source, folder)
    state = checkpoint.load(folder)
    change(state)
    checkpoint.save(folder, state)


@pytest.fixture(scope="module")
def parts(finished: dict[str, Path]) -> Parts:
    return assemble(config.read([f"resume={finished['dqn']}"]))


@pytest.mark.parametrize("what", CASES)
def test_what_cannot_have_been_played_is_refused(
    what: str, finished: dict[str, Path], parts: Parts, tmp_path: Path
) -> None:
    change, words = CASES[what]
    changed(finished["dqn"], tmp_path / "r", change)
    with pytest.raises(UserError, match=re.escape(words)):
        progress.restore(tmp_path / "r", parts.algo, parts.env)


def test_a_run_goes_on_whose_keys_are_as_large_as_they_may_be(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=cartpole", "algo.horizon=4", "algo.adam_eps=1e37", "algo.lr=1e20", "algo.max_grad_norm=1"]
    assert run.main([*words, *SHORT[1:2], "iterations=1", *SHORT[3:], f"out={tmp_path / 'r'}"]) == 0
    assert run.main([f"resume={tmp_path / 'r'}", "iterations=2"]) == 0


def test_what_a_user_notes_beside_the_numbers_of_an_optimizer_may_be_anything() -> None:
    parameter = torch.nn.Parameter(torch.ones(2))
    optimizer = torch.optim.Adam([{"params": [parameter], "offset": -1.0, "limit": math.inf}])
    check_optimizer(optimizer, made := options_of(optimizer))
    optimizer.param_groups[0]["lr"] = -1.0
    with pytest.raises(ValueError, match=r"a number of it is -1\.0"):
        check_optimizer(optimizer, made)


@pytest.mark.parametrize("key", ["action", "observation"])
def test_a_table_has_no_such_entry(
    key: str, finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed(finished["sarsa"], tmp_path / "r", fill(99, *WAITING, key))
    capsys.readouterr()
    assert run.main([f"resume={tmp_path / 'r'}", "iterations=13"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "'window' of its checkpoint does not fit this run" in told
