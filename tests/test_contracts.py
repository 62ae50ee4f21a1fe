"""Every class of the project fits its contract: mypy checks the assignments below, the tests that none is missing."""

import inspect
import subprocess
import sys
from pathlib import Path
from typing import cast

import pytest

from rlkit import api, buffers, policies
from rlkit.control import ControlEnv, TabularEnv
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.reward_model import LearnedReward, RewardModel
from rlkit.language.tokenizer import Tokenizer
from rlkit.settings import plugins
from rlkit.text import PairEnv, TextEnv
from rlkit.text.rewards import PlacedReward


def assignments() -> None:
    """Never called: mypy reads it. Each line fails where a class does not keep its contract."""
    control: api.Env = cast(ControlEnv, None)
    tabular: api.Env = cast(TabularEnv, None)
    text: api.Env = cast(TextEnv, None)
    pairs: api.Env = cast(PairEnv, None)
    shows: api.Demonstrates = cast(TextEnv, None)
    shows_pairs: api.Demonstrates = cast(PairEnv, None)
    network: api.PolicyFactory = cast(policies.Network, None)
    language: api.PolicyFactory = cast(LanguageNetwork, None)
    q: api.ActionValues = cast(policies.QNetwork, None)
    table: api.ActionValues = cast(policies.Table, None)
    fixed: api.ActionValues = cast(policies.PolicyTable, None)
    state_values: api.Policy = cast(policies.ValueTable, None)
    worth: api.Values = cast(policies.ValueTable, None)
    actor: api.Stochastic = cast(policies.Actor, None)
    acts: api.Acts = cast(policies.Actor, None)
    critic: api.Stochastic = cast(policies.ActorCritic, None)
    critic_value: api.Values = cast(policies.ActorCritic, None)
    explorer: api.Acts = cast(policies.Persistent, None)
    model: api.Stochastic = cast(LanguageModel, None)
    writer: api.Writes = cast(LanguageModel, None)
    judge: api.Judging = cast(RewardModel, None)
    tokens: api.Tokens = cast(Tokenizer, None)
    reward: PlacedReward = cast(LearnedReward, None)
    rollout: api.Buffer = cast(buffers.Rollout, None)
    replay: api.Buffer = cast(buffers.Replay, None)
    prioritized: api.Buffer = cast(buffers.Prioritized, None)
    del (
        control,
        tabular,
        text,
        pairs,
        shows,
        shows_pairs,
        network,
        language,
        q,
        table,
        fixed,
        state_values,
        worth,
        actor,
    )
    del acts, critic, critic_value, explorer, model, writer, judge, tokens, reward, rollout, replay, prioritized


@pytest.mark.slow
def test_mypy_accepts_every_assignment() -> None:
    done = subprocess.run([sys.executable, "-m", "mypy", __file__], capture_output=True, text=True, cwd=Path.cwd())
    assert not [line for line in done.stdout.splitlines() if Path(__file__).name in line], done.stdout


@pytest.mark.parametrize("name", plugins.names("algorithms"))
def test_every_algorithm_inherits_the_contract(name: str) -> None:
    module = plugins.load("algorithms", name)
    assert inspect.isclass(module.make) and api.Algorithm in module.make.__mro__


def test_no_policy_buffer_or_environment_is_left_out() -> None:
    here = Path(__file__).read_text()
    for module in (policies, buffers):
        for name in module.__all__:
            found = getattr(module, name)
            if inspect.isclass(found) and hasattr(found, "state_dict") and name not in ("PolicyModule", "Normalizer"):
                assert name in here or name in ("Frames", "RewardScale", "Temperature", "Window"), (
                    f"{name} is assigned to no contract"
                )


def test_a_star_takes_every_contract() -> None:
    taken: dict[str, object] = {}
    exec("from rlkit.api import *", taken)
    assert {"Algorithm", "Env", "Policy", "UserError", "Count", "Scores"} <= taken.keys()
