"""Every loss has one gradient, however its minibatch is cut, ordered, padded or shared out."""

from typing import Any

import pytest
import torch
from support.fakes import (
    RaggedText,
    cartpole,
    credited,
    gradient,
    off_policy,
    on_text,
)
from torch.testing import assert_close

from rlkit import buffers, policies
from rlkit.api import Elementwise
from rlkit.loop import learn
from rlkit.meter import Meter

CASES: list[tuple[str, dict[str, Any]]] = [
    ("ppo", {"epochs": 1, "minibatches": 1}),
    ("ppo", {"epochs": 1, "minibatches": 1, "value_clip": 0.1, "entropy_coef": 0.1, "gae_lambda": 1.0}),
    ("grpo", {"group": 4}),
    ("grpo", {"group": 4, "over": "sequence", "kl_coef": 0.5, "entropy_coef": 0.1}),
    ("grpo", {"group": 4, "over": "token", "kl_coef": 0.5, "scale": "none"}),
    ("grpo", {"group": 4, "over": "constant", "length": 6, "kl_coef": 0.5}),
    ("grpo", {"group": 4, "kl_coef": 0.5, "kl": "unbiased", "dual_clip": 3.0, "ratio": "mean"}),
    ("grpo", {"group": 4, "kl_coef": 0.5, "kl": "k1", "kl_in": "reward", "scale": "batch", "std": "biased"}),
    ("dr_grpo", {"group": 4, "length": 6}),
    ("dapo", {"group": 4}),
    ("rloo", {"group": 4, "kl_coef": 0.5}),
    ("reinforce_pp", {"group": 4, "baseline": "group", "kl_coef": 0.5}),
    ("gspo", {"group": 4, "clip_low": 0.2, "clip_high": 0.2}),
    ("cispo", {"group": 4, "clip_low": 0.2, "clip_high": 0.2}),
    ("gmpo", {"group": 4}),
    ("sapo", {"group": 4}),
    ("bnpo", {"group": 4}),
    ("reinforce", {"entropy_coef": 0.1}),
    ("reinforce", {"returns": "total", "normalize_advantage": False}),
    ("reinforce", {"baseline": "value", "entropy_coef": 0.1}),
    ("a2c", {}),
    ("a2c", {"advantage": "td", "entropy_coef": 0.1, "normalize_advantage": True}),
    ("ppo", {"epochs": 1, "minibatches": 1, "kl_coef": 0.5, "normalize_reward": True}),
    ("dpo", {"group": 4, "beta": 0.5}),
    ("dpo", {"group": 4, "beta": 0.5, "loss": "ipo"}),
    ("dpo", {"group": 4, "beta": 0.5, "loss": "ipo", "side": "mean"}),
    ("dpo", {"group": 4, "beta": 0.5, "loss": "hinge"}),
    ("dpo", {"group": 4, "beta": 2.0, "loss": "simpo"}),
    ("dpo", {"group": 4, "beta": 0.5, "label_smoothing": 0.1, "reference": "none"}),
    ("reward_model", {"group": 4, "margin": 0.1, "center_coef": 0.1}),
    ("sft", {}),
]
every_loss = pytest.mark.parametrize(("name", "config"), CASES, ids=[f"{n}-{i}" for i, (n, _) in enumerate(CASES)])


@every_loss
def test_the_gradient_is_the_same_for_every_micro_batch_size(name: str, config: dict) -> None:
    algo, batch = off_policy(name, config)
    whole = gradient(algo, batch)
    assert float(whole.abs().max()) > 1e-3
    cuts = set()
    for steps in (1, 9, 16, 40, 100_000):
        parts = list(buffers.split(batch, steps))
        cuts.add(len(parts))
        assert_close(gradient(algo, *parts), whole)
    assert min(cuts) == 1 and max(cuts) > 0.9 * len(batch)  # a row that adds no step of its own goes with another


@every_loss
def test_the_gradient_is_the_same_for_every_row_order_and_on_any_ranks(name: str, config: dict) -> None:
    algo, batch = off_policy(name, config)
    whole = gradient(algo, batch)
    order = torch.randperm(len(batch), generator=torch.Generator().manual_seed(0))
    assert_close(gradient(algo, batch[order]), whole)
    assert_close(gradient(algo, *buffers.split(batch[order], 20)), whole)
    assert_close(gradient(algo, batch[order[:2]], batch[order[2:]]), whole)


@every_loss
def test_the_gradient_is_the_same_however_much_padding_there_is(name: str, config: dict) -> None:
    algo, batch = off_policy(name, config)
    whole = gradient(algo, batch)
    algo, batch = off_policy(name, config, padding=5)
    assert_close(gradient(algo, batch), whole)
    assert_close(gradient(algo, *buffers.split(batch, 16)), whole)


@every_loss
def test_micro_batches_make_the_same_optimiser_step(name: str, config: dict) -> None:
    stepped = []
    for micro_steps in (None, 9):
        algo, batch = off_policy(name, config)
        algo.policy.micro_steps, algo.buffer, meter = micro_steps, [batch], Meter()
        learn(algo, meter)
        metrics = meter.read()
        stepped.append((torch.cat([p.detach().flatten() for p in algo.policy.parameters()]), metrics))
    assert_close(stepped[1][0], stepped[0][0])
    assert stepped[1][1] == pytest.approx(stepped[0][1], rel=1e-5)


@every_loss
def test_a_row_in_which_nobody_acted_gives_no_nan_and_changes_nothing(name: str, config: dict) -> None:
    results = []
    for token in (0, 1):
        env = RaggedText(rows=5)
        algo = on_text(name, env, **config)
        rollout = algo.rollout(env)
        idle = (0,) * rollout.batch_dims
        for key in ("mask", "done", "terminated", "reward", "log_prob"):
            if key in rollout.keys():
                rollout[key][idle] = 0
        rollout["observation"][idle] = token
        batch = credited(algo, rollout)
        algo.policy.move(0.3)
        loss, metrics = algo.loss(batch)
        found = [x() if isinstance(x, Elementwise) else x for x in metrics.values()]
        assert all(bool(x.isfinite().all()) for x in [loss, *found])
        results.append(gradient(algo, batch))
    assert bool(results[0].isfinite().all()) and results[0].any()
    assert_close(results[0], results[1])


def test_rollouts_and_minibatches_know_their_device() -> None:
    env = cartpole(rows=4)
    rollout = env.rollout(policies.Network().actor(env), steps=3)
    assert rollout.device == torch.device("cpu")
    memory = buffers.Rollout(0, minibatches=2)
    memory.extend(rollout)
    assert [part.device for part in memory] == [rollout.device] * 2
