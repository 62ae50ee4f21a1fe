"""The squashed Gaussian: its density by integration and by TorchRL's, and actions that fill their box."""

import pytest
import torch
from support.boxes import continuous
from torch.testing import assert_close

from rlkit import policies
from rlkit.policies import distributions
from rlkit.policies.twins import LOG_STD


def test_the_squashed_density_integrates_to_one_and_is_torchrls() -> None:
    out = torch.tensor([0.4, -0.3], dtype=torch.float64)
    noise = torch.linspace(-9, 9, 40_001, dtype=torch.float64).unsqueeze(-1)
    action, log_prob = distributions.squashed(out.expand(len(noise), 2), noise, *LOG_STD)
    total = torch.trapezoid(log_prob.exp(), action.squeeze(-1))
    assert float(total) == pytest.approx(1, abs=1e-6)
    modules = pytest.importorskip("torchrl.modules")
    near = noise.abs().squeeze(-1) < 3
    theirs = modules.TanhNormal(out[:1], out[1:].exp(), tanh_loc=False).log_prob(action[near])
    assert_close(log_prob[near], theirs)


def test_the_density_of_a_saturated_action_is_finite() -> None:
    out = torch.tensor([[40.0, 2.0], [-40.0, 9.0]], requires_grad=True)
    action, log_prob = distributions.squashed(out, torch.tensor([[1.0], [-1.0]]), *LOG_STD)
    assert action.abs().eq(1).all() and log_prob.isfinite().all()
    log_prob.sum().backward()
    assert out.grad is not None and out.grad.isfinite().all()
    assert out.grad[1, 1] == 0  # its log σ was clipped


def test_a_first_deviation_above_the_bound_is_the_bound_and_is_learned() -> None:
    policy = policies.Network(log_std=3.0).twin_critics(continuous(-1.0, 1.0))
    policy.choices(torch.randn(500, 3)).log_prob.sum().backward()
    assert policy.actor[-1].bias.grad[-1] != 0


@pytest.mark.parametrize("bounds", [(-2.0, 2.0), (0.0, 10.0), (-0.5, 7.0)])
@pytest.mark.parametrize("deterministic", [True, False])
def test_actions_fill_the_box(bounds: tuple[float, float], deterministic: bool) -> None:
    policy = policies.Network(log_std=1.0).twin_critics(continuous(*bounds), deterministic)
    policy.noise = 2.0
    observation = torch.randn(5_000, 3)
    for epsilon in (0.0, 1.0):
        policy.epsilon = epsilon
        action = policy.act(observation)
        assert action.min() >= bounds[0] and action.max() <= bounds[1]
        assert_close(action.mean(), torch.tensor(sum(bounds) / 2), atol=0.1 * (bounds[1] - bounds[0]), rtol=0)
        assert action.max() - action.min() > 0.95 * (bounds[1] - bounds[0])
    act = policy.prepared(1, 50)
    assert act is None  # at random, `act` is asked
    policy.epsilon = 0.0
    act = policy.prepared(1, 50)
    played = act(observation[:50].numpy())
    assert played.dtype == "float32" and (played >= bounds[0]).all() and (played <= bounds[1]).all()


@pytest.mark.parametrize("deterministic", [True, False])
def test_prepared_actions_are_those_of_act(deterministic: bool) -> None:
    policy = policies.Network().twin_critics(continuous(-3.0, 5.0), deterministic)
    policy.noise = 0.3
    observation = torch.randn(4, 3)
    state = policy.generator.get_state()
    played = policy.prepared(1, 4)(observation.numpy())
    policy.generator.set_state(state)
    with torch.no_grad():
        assert_close(torch.from_numpy(played), policy.act(observation))
