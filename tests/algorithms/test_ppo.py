"""PPO's penalty for leaving the starting policy, and its continuous actions against torchrl's loss."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from support.fakes import RaggedText, algorithm, cartpole, credited, gradient, gradient_of, in_double, iterate, on_text
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies, returns
from rlkit.api import Elementwise, UserError
from rlkit.settings import plugins

# The penalty in the reward

ONCE = {"epochs": 1, "minibatches": 1, "gamma": 1.0, "gae_lambda": 1.0, "normalize_advantage": False}


def by_hand(log_prob: list[list[float]], mask: list[list[int]], score: float) -> TensorDict:
    """Rows whose last acted step is paid `score`, with a critic that knows nothing."""
    acted = torch.tensor(mask, dtype=torch.bool)
    last = acted & (acted.flip(-1).cumsum(-1).flip(-1) == 1)
    data = {"log_prob": torch.tensor(log_prob), "mask": acted, "reward": last * score, "score": last.any(-1) * score}
    data |= {key: torch.zeros(acted.shape) for key in ("value", "next_value")}
    data |= {key: torch.zeros(acted.shape, dtype=torch.long) for key in ("observation", "action")}
    return TensorDict(data | {"terminated": last, "done": last.clone()}, batch_size=[len(mask)])


def penalized(reference: list[list[float]], **config: Any) -> Any:
    """PPO on text whose reference says the given log-probabilities."""
    algo = on_text("ppo", RaggedText(rows=len(reference)), **ONCE | config)
    algo.reference.evaluate = lambda batch, entropy: {"log_prob": torch.tensor(reference)}
    return algo


def test_each_step_pays_for_its_log_ratio_to_the_reference() -> None:
    rollout = by_hand([[-9.0, -1.0, -2.0, -0.5]], [[0, 1, 1, 1]], score=1.0)
    algo = penalized([[-3.0, -1.5, -1.0, -0.5]], kl_coef=0.1)
    assert_close(algo.kl_penalty(algo.reference, rollout), torch.tensor([[0.0, 0.05, -0.1, 0.0]]))
    # with γ = λ = 1 and V = 0 a step's advantage is the score minus what is paid from there on
    credit = algo.credit(rollout)
    assert_close(credit["advantage"][:, 1:], torch.tensor([[1.05, 1.1, 1.0]]))
    assert_close(credit["reward"], torch.tensor([[0.0, 0.0, 0.0, 1.0]]))  # the reward itself is what is logged


def test_with_discount_and_critic_it_is_gae_of_the_penalised_rewards() -> None:
    config = {"gamma": 0.9, "gae_lambda": 0.5, "kl_coef": 0.3, "epochs": 1, "minibatches": 1}
    env = RaggedText(rows=5)
    algo = on_text("ppo", env, normalize_advantage=False, **config)
    algo.policy.move(0.3)
    rollout = algo.rollout(env)
    with torch.no_grad():
        reference = algo.reference.evaluate(rollout)["log_prob"]
    reward = rollout["reward"] - 0.3 * (rollout["log_prob"] - reference) * rollout["mask"]
    ends = rollout["terminated"], rollout["done"]
    advantage, target = returns.gae(reward, rollout["value"], rollout["next_value"], *ends, 0.9, 0.5)
    with torch.no_grad():
        credit = algo.credit(rollout)
    assert_close(credit["advantage"], advantage)
    assert_close(credit["return"], target)
    assert float((reward - rollout["reward"]).abs().max()) > 0.1
    batch = credited(algo, rollout)
    assert_close(algo.loss(batch)[1]["ref_kl"], batch["log_prob"] - reference)


def test_a_coefficient_of_0_keeps_no_reference_and_the_first_rollout_pays_nothing() -> None:
    results = []
    for coef in (0.0, 0.5):
        env = RaggedText(rows=5)
        algo = on_text("ppo", env, **ONCE | {"kl_coef": coef})
        assert (algo.reference is None) == (coef == 0)
        rollout = algo.rollout(env)  # the policy is still the reference: the log-ratio is exactly 0
        batch = credited(algo, rollout)
        metrics = algo.loss(batch)[1]
        assert ("ref_log_prob" in batch.keys()) == ("ref_kl" in metrics) == (coef > 0)
        results.append((gradient(algo, batch), batch["advantage"]))
    assert torch.equal(results[0][0], results[1][0]) and torch.equal(results[0][1], results[1][1])


def test_a_log_ratio_of_rounding_is_0_unless_some_step_differs_by_more() -> None:
    """Where nothing was earned, standardized advantages would otherwise be rounding at full size."""
    rollout = by_hand([[-9.0, -1.0, -2.0, -0.5]], [[0, 1, 1, 1]], score=0.0)
    near = [[-3.0, -1.00001, -2.00002, -0.5]]
    algo = penalized(near, kl_coef=0.1, normalize_advantage=True)
    credit = algo.credit(rollout.clone())
    assert not credit["advantage"].any() and not credit["return"].any()
    near[0][3] = -0.51
    algo = penalized(near, kl_coef=0.1)
    assert_close(algo.kl_penalty(algo.reference, rollout), torch.tensor([[0.0, 1e-6, 2e-6, 1e-3]]), rtol=0.1, atol=0)


def test_the_penalty_is_the_same_however_the_reference_is_cut() -> None:
    env = RaggedText(rows=5)
    algo = on_text("ppo", env, kl_coef=0.5)
    algo.policy.move(0.3)
    rollout = algo.rollout(env)
    with torch.no_grad():
        whole = algo.kl_penalty(algo.reference, rollout)
        algo.policy.micro_steps = 9
        assert_close(algo.kl_penalty(algo.reference, rollout), whole)
    assert float(whole.abs().max()) > 0.1 and not whole[~rollout["mask"]].any()


def test_rewards_are_scaled_before_the_penalty() -> None:
    rollout = by_hand([[-1.0, -1.0]], [[1, 1]], score=4.0)
    algo = penalized([[-1.5, -2.0]], kl_coef=0.1, normalize_reward=True)
    # R = 0, 4: variance 4, so the score is divided by 2
    assert_close(algo.credit(rollout)["advantage"], torch.tensor([[2.0 - 0.05 - 0.1, 2.0 - 0.1]]))


@pytest.mark.parametrize(
    ("kl", "change"),
    [([7.5, 6.0], 0.125), ([12.0, 9.0], 0.2), ([5.7, 5.7], -0.05), ([1.0, -9.0], -0.2)],
)
def test_the_coefficient_adapts_by_the_clipped_relative_error(kl: list[float], change: float) -> None:
    # three rows, of which nobody acted in the last; 100 rows to the horizon; the target is 6 nats a row
    rollout = by_hand([[kl[0], 0.0], [kl[1] / 2, kl[1] / 2], [50.0, 50.0]], [[1, 1], [1, 1], [0, 0]], score=1.0)
    algo = penalized([[0.0, 0.0]] * 3, kl_coef=0.3, kl_target=6.0, kl_horizon=100)
    paid = algo.kl_penalty(algo.reference, rollout)
    assert_close(paid[0, 0].item(), 0.3 * kl[0], rtol=1e-6, atol=0)  # this rollout pays by the coefficient before
    assert algo.kl_coef == pytest.approx(0.3 * (1 + change * 2 / 100), rel=1e-6)


def test_the_target_is_of_a_row_and_verls_of_a_token_as_the_page_says() -> None:
    kl = torch.tensor([[0.3, 0.1, 0.2, 0.0], [0.4, 0.2, 0.1, 0.1]])
    per_token, factor = 0.18, 4  # verl's target_kl, and the tokens of each row
    current = kl.mean(-1).mean()  # verl's apply_kl_penalty: the mean over each row's tokens, then over rows
    algo = penalized([[0.0] * 4] * 2, kl_coef=0.3, kl_target=per_token * factor, kl_horizon=100)
    algo.kl_penalty(algo.reference, by_hand(kl.tolist(), [[1] * 4] * 2, score=1.0))
    assert algo.kl_coef == pytest.approx(0.3 * (1 + float(current / per_token - 1) * 2 / 100), rel=1e-6)
    page = Path(__file__).parents[2] / "docs/coming_from/verl.md"
    [row] = [line for line in page.read_text(encoding="utf-8").splitlines() if "target_kl" in line]
    assert "nats of a whole answer here, nats a token there" in row


def test_without_a_target_the_coefficient_stays_and_a_target_needs_a_start() -> None:
    algo = penalized([[0.0, 0.0]], kl_coef=0.3)
    algo.kl_penalty(algo.reference, by_hand([[5.0, 5.0]], [[1, 1]], score=1.0))
    assert algo.kl_coef == 0.3
    with pytest.raises(UserError, match=r"kl_horizon=3 is less than env\.rows=4, .*: give algo\.kl_horizon=4 or"):
        algorithm("ppo", cartpole(4), policies.Network(), kl_coef=0.1, kl_target=6.0, kl_horizon=3)


@pytest.mark.slow
def test_on_control_the_penalty_holds_the_policy_back() -> None:
    found = []
    for coef in (0.0, 30.0):
        env = cartpole(4)
        algo = algorithm("ppo", env, policies.Network(), horizon=64, lr=0.003, kl_coef=coef)
        start = policies.frozen_copy(algo.policy)
        for _ in range(12):
            rollout = iterate(algo, env)
        with torch.no_grad():
            found.append(float((rollout["log_prob"] - start.evaluate(rollout)["log_prob"]).mean()))
    assert found[1] < 0.5 * found[0]


# Continuous actions


class Gaussian(torch.nn.Module):
    """Mean and deviation as torchrl's distribution takes them."""

    def __init__(self, policy: policies.ActorCritic) -> None:
        super().__init__()
        self.actor, self.log_std = policy.actor, policy.log_std

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.actor(observation)
        return mean, self.log_std.exp().expand_as(mean)


def assert_torchrl_agrees(algo: Any, env: Any, value_clip: float | None, out_keys: list[str], **actor: Any) -> None:
    """The loss and gradient of a rollout, after the policy moved away from it, are those of ClipPPOLoss."""
    objectives = pytest.importorskip("torchrl.objectives")
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ProbabilisticActor

    batch = credited(algo, in_double(algo, algo.rollout(env)))
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in algo.policy.parameters():
            p += 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    module = TensorDictModule(actor.pop("module"), ["observation"], out_keys)
    oracle = objectives.ClipPPOLoss(
        ProbabilisticActor(module, in_keys=out_keys, **actor),
        TensorDictModule(algo.policy.critic, ["observation"], ["state_value"]),
        clip_epsilon=0.2,
        clip_value=value_clip,
        entropy_coeff=0.01,
        critic_coeff=0.25,  # theirs is not halved
        loss_critic_type="l2",
        normalize_advantage=False,  # done, over the rollout
        functional=False,
    )
    names = {"advantage": "advantage", "return": "value_target", "value": "state_value"}
    data = {theirs: batch[ours].unsqueeze(-1) for ours, theirs in names.items()}
    data |= {"observation": batch["observation"], "action": batch["action"], "action_log_prob": batch["log_prob"]}
    out = oracle(TensorDict(data, batch_size=batch.shape))
    theirs = out["loss_objective"] + out["loss_critic"] + out["loss_entropy"]
    loss, metrics = algo.loss(batch)
    assert_close(loss, theirs)
    assert_close(gradient(algo, batch), gradient_of(algo, theirs))
    clipped = metrics["clip_fraction"]
    assert isinstance(clipped, Elementwise) and 0 < int(clipped().sum()) < len(batch)


PLAIN = {"horizon": 32, "minibatches": 1, "epochs": 1, "entropy_coef": 0.01}


@pytest.mark.parametrize("value_clip", [None, 0.05])
def test_ppo_equals_torchrls_clip_ppo_loss_in_value_and_gradient(value_clip: float | None) -> None:
    algo = algorithm("ppo", cartpole(4), policies.Network(), value_clip=value_clip, **PLAIN)
    actor = {"module": algo.policy.actor, "distribution_class": torch.distributions.Categorical}
    assert_torchrl_agrees(algo, cartpole(4), value_clip, ["logits"], **actor)


@pytest.mark.parametrize("value_clip", [None, 0.05])
def test_continuous_ppo_equals_torchrls_clip_ppo_loss_in_value_and_gradient(value_clip: float | None) -> None:
    modules = pytest.importorskip("torchrl.modules")
    pendulum = plugins.load("envs", "pendulum")
    env = pendulum.make(pendulum.Config(rows=4), 0, torch.device("cpu"))
    algo = algorithm("ppo", env, policies.Network(log_std=0.4, normalize=True), value_clip=value_clip, **PLAIN)
    played = algo.rollout(env)
    assert float(played["action"].abs().max()) > 2  # outside the box: stored as it was drawn, clipped by the env only
    algo.policy.refresh()
    actor = {"module": Gaussian(algo.policy), "distribution_class": modules.IndependentNormal}
    assert_torchrl_agrees(algo, env, value_clip, ["loc", "scale"], **actor)


def test_the_environment_clips_the_action_and_the_policy_keeps_its_own() -> None:
    pendulum = plugins.load("envs", "pendulum")
    results = []
    for log_std in (-5.0, 3.0):
        env = pendulum.make(pendulum.Config(rows=2), 0, torch.device("cpu"))
        algo = algorithm("ppo", env, policies.Network(log_std=log_std), horizon=20)
        rollout = algo.rollout(env)
        mean = algo.policy.actor(rollout["observation"])
        normal = torch.distributions.Normal(mean, math.exp(log_std))
        assert_close(rollout["log_prob"], normal.log_prob(rollout["action"]).sum(-1))
        results.append((float(rollout["action"].abs().max()), float(rollout["reward"].min())))
    # a torque beyond 2 costs no more than 0.001·2², and θ² + 0.1·θ̇² are at most π² + 6.4
    assert results[0][0] < 2 < 20 < results[1][0] and results[1][1] >= -(math.pi**2 + 6.4 + 0.004) - 1e-4
