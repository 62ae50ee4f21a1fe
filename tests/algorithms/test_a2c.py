"""A2C against plain loops, PPO, torchrl's loss and the optimizer it is published with."""

import math
from typing import Any

import pytest
import torch
from support.fakes import (
    algorithm,
    cartpole,
    credited,
    gradient,
    gradient_of,
    in_double,
    iterate,
    off_policy,
    parameters,
)
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import policies
from rlkit.api import UserError

PLAIN = {"epochs": 1, "minibatches": 1, "clip": math.inf}


def played(rows: int = 4, horizon: int = 40, **config: Any) -> tuple[Any, TensorDict]:
    """A2C on CartPole in double precision, and a rollout with falls and with episodes cut short."""
    env = cartpole(rows, step_limit=15)
    algo = algorithm("a2c", env, policies.Network(), horizon=horizon, gamma=0.9, **config)
    rollout = in_double(algo, algo.rollout(env))
    assert bool((rollout["done"] & ~rollout["terminated"]).any()) and bool(rollout["terminated"].any())
    return algo, rollout


@pytest.mark.parametrize("advantage", ["mc", "td", "gae"])
def test_the_three_advantages_equal_plain_loops(advantage: str) -> None:
    algo, rollout = played(advantage=advantage, gae_lambda=0.7)
    r, v, w = (rollout[key].tolist() for key in ("reward", "value", "next_value"))
    done, terminated = rollout["done"].tolist(), rollout["terminated"].tolist()
    expected = torch.zeros(4, 40, dtype=torch.float64)
    for b in range(4):
        for t in range(40):
            total, k = 0.0, 0
            if advantage == "td":
                total = r[b][t] + (0.0 if terminated[b][t] else 0.9 * w[b][t]) - v[b][t]
            elif advantage == "mc":  # rewards to the end of the episode or the rollout, then the critic
                while True:
                    total += 0.9**k * r[b][t + k]
                    if done[b][t + k] or t + k == 39:
                        break
                    k += 1
                total += (0.0 if terminated[b][t + k] else 0.9 ** (k + 1) * w[b][t + k]) - v[b][t]
            else:  # the λ-weighted mean of the n-step advantages, summed as TD errors
                while True:
                    after = 0.0 if terminated[b][t + k] else 0.9 * w[b][t + k]
                    total += (0.9 * 0.7) ** k * (r[b][t + k] + after - v[b][t + k])
                    if done[b][t + k] or t + k == 39:
                        break
                    k += 1
            expected[b, t] = total
    credit = algo.credit(rollout)
    assert_close(credit["advantage"], expected)
    assert_close(credit["return"], expected + rollout["value"])


def test_gae_reaches_td_and_monte_carlo_in_its_limits() -> None:
    found = {}
    for name, lam in (("td", 0.0), ("mc", 1.0)):
        for advantage in (name, "gae"):
            algo, rollout = played(advantage=advantage, gae_lambda=lam)
            found[advantage, lam] = algo.credit(rollout)["advantage"]
        assert_close(found[name, lam], found["gae", lam])
    assert not torch.allclose(found["td", 0.0], found["mc", 1.0])


@pytest.mark.parametrize("normalize", [False, True])
def test_a2c_is_ppo_with_one_epoch_one_minibatch_and_no_clip(normalize: bool) -> None:
    config = {"horizon": 40, "gamma": 0.9, "entropy_coef": 0.02, "normalize_advantage": normalize, "gae_lambda": 0.7}
    results = []
    for name, own in (("a2c", {"advantage": "gae"}), ("ppo", PLAIN)):
        env = cartpole(4, step_limit=15)
        algo = algorithm(name, env, policies.Network(), **config, **own)
        results.append(gradient(algo, credited(algo, in_double(algo, algo.rollout(env)))))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("advantage", ["mc", "td", "gae"])
def test_the_same_holds_on_text(advantage: str) -> None:
    lam = {"mc": 1.0, "td": 0.0, "gae": 0.95}[advantage]
    shared = {"entropy_coef": 0.1, "gamma": 0.99, "normalize_advantage": False, "horizon": None}
    results = []
    for name, own in (("a2c", {"advantage": advantage}), ("ppo", PLAIN | {"gae_lambda": lam})):
        algo, batch = off_policy(name, shared | own)
        algo.policy.move(-0.3)  # back to the policy that acted: on-policy the surrogates have one gradient
        results.append(gradient(algo, batch))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("entropy", [0.0, 0.03])
def test_a2c_equals_torchrls_a2c_loss_in_value_and_gradient(entropy: float) -> None:
    objectives = pytest.importorskip("torchrl.objectives")
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor

    algo, rollout = played(advantage="gae", entropy_coef=entropy, value_coef=0.4)
    batch = credited(algo, rollout)
    policy = ProbabilisticActor(
        TensorDictModule(algo.policy.actor, ["observation"], ["logits"]),
        in_keys=["logits"],
        distribution_class=torch.distributions.Categorical,
    )
    oracle = objectives.A2CLoss(
        policy,
        TensorDictModule(algo.policy.critic, ["observation"], ["state_value"]),
        entropy_coeff=entropy,
        critic_coeff=0.2,  # theirs is not halved
        loss_critic_type="l2",
        functional=False,
    )
    data = {"observation": batch["observation"], "action": batch["action"]}
    data |= {"advantage": batch["advantage"].unsqueeze(-1), "value_target": batch["return"].unsqueeze(-1)}
    out = oracle(TensorDict(data, batch_size=batch.shape))
    theirs = sum(out[key] for key in ("loss_objective", "loss_critic", "loss_entropy") if key in out.keys())
    assert_close(algo.loss(batch)[0], theirs)
    assert_close(gradient(algo, batch), gradient_of(algo, theirs))


def test_a_step_is_that_of_rmsprop_by_hand() -> None:
    env = cartpole(3)
    algo = algorithm("a2c", env, policies.Network(), horizon=5, lr=0.01, max_grad_norm=0.05)
    squares = torch.zeros_like(parameters(algo.policy))
    for _ in range(3):
        before = parameters(algo.policy)
        iterate(algo, env)
        g = torch.cat([p.grad.flatten() for p in algo.policy.parameters()])
        assert float(g.norm()) < 0.05 * (1 + 1e-5)
        squares = 0.99 * squares + 0.01 * g * g
        assert_close(parameters(algo.policy), before - 0.01 * g / (squares.sqrt() + 1e-5))


def test_adam_is_a_field_and_rmsprop_has_no_weight_decay() -> None:
    env = cartpole(2)
    assert isinstance(algorithm("a2c", env, policies.Network(), optimizer="adam").optimizer, torch.optim.AdamW)
    with pytest.raises(UserError, match=r"algo\.weight_decay=0\.1: rmsprop has none; use algo\.optimizer=adam"):
        algorithm("a2c", env, policies.Network(), weight_decay=0.1)


def test_every_rollout_is_one_update() -> None:
    env = cartpole(2)
    algo = algorithm("a2c", env, policies.Network())
    steps: list[int] = []
    algo.optimizer.register_step_post_hook(lambda *_: steps.append(1))
    rollout = iterate(algo, env)
    assert rollout["mask"].shape == (2, 5) and len(steps) == 1
