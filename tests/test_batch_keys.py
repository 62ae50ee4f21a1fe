"""The keys that a batch gains in a run are those that `rlkit/__init__.py` lists."""

import re

import pytest
import torch

import rlkit
from rlkit import policies
from rlkit.errors import UserError
from rlkit.settings import config, plugins

LISTED = set(re.findall(r"[a-z_]+", (rlkit.__doc__ or "").partition("Batch keys")[2]))
TEXT = config.network_class("text")
PAIRS = {
    "ppo on gsm8k": ("ppo", "gsm8k", TEXT(), {"kl_coef": 0.1}),
    "grpo in another precision": ("grpo", "gsm8k", TEXT(dtype="bfloat16"), {"group": 2}),
    "ppo with a memory": ("ppo", "cartpole", policies.Network(memory="gru"), {"horizon": 4}),
    "dqn": ("dqn", "cartpole", policies.Network(), {"warmup_steps": 0, "n_step": 2, "prioritized": True}),
}


@pytest.mark.parametrize("pair", PAIRS)
def test_each_key_of_a_batch_is_listed(pair: str) -> None:
    algorithm, environment, network, keys = PAIRS[pair]
    envs, algorithms = plugins.load("envs", environment), plugins.load("algorithms", algorithm)
    env = envs.make(envs.Config(rows=2), seed=0, device="cpu")
    algo = algorithms.make(algorithms.Config(**keys), env, network)
    with torch.no_grad():
        rollout = algo.rollout(env)
        played = set(rollout.keys())
        credited = algo.credit(rollout)
        algo.buffer.extend(credited)
    found = played | set(credited.keys()) | set(next(iter(algo.buffer)).keys())
    assert not {key for key in found if key.partition("/")[0] not in LISTED}


@pytest.mark.parametrize("pair", ["ppo with a memory", "dqn"])
def test_a_weight_of_your_own_is_not_overwritten_without_a_word(pair: str) -> None:
    algorithm, environment, network, keys = PAIRS[pair]
    envs, algorithms = plugins.load("envs", environment), plugins.load("algorithms", algorithm)
    env = envs.make(envs.Config(rows=2), seed=0, device="cpu")
    keys = keys | ({} if pair == "dqn" else {"epochs": 1, "minibatches": 1})
    algo = algorithms.make(algorithms.Config(**keys), env, network)
    with torch.no_grad():
        credited = algo.credit(algo.rollout(env))
        algo.buffer.extend(credited)
    assert "weight" in next(iter(algo.buffer)).keys() and "weight" not in credited.keys(), "it may be kept"
    with pytest.raises(UserError, match=r"^credit gave a 'weight', and the buffer writes its own into each minibatch"):
        algo.buffer.extend(credited.set("weight", torch.ones_like(credited["reward"])))
