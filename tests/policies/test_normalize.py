"""Running statistics: against one pass over everything, blind to masked steps, still in evaluation."""

from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.vector import AutoresetMode
from support.fakes import Ring, algorithm, control
from support.probes import control as control_in_mode
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies
from rlkit.loop import learn
from rlkit.meter import Meter
from rlkit.policies.normalize import Moments, Normalizer, RewardScale


class Drift(gymnasium.Env):
    """Observations that tell episode and step apart; an episode has as many steps as its seed's last digit says."""

    observation_space, action_space = Box(-np.inf, np.inf, (2,)), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict]:
        super().reset(seed=seed)
        self.start, self.age = float(self.np_random.normal()) * 5 + 100, 0
        self.length = int(self.np_random.integers(2, 6))
        return self.seen(), {}

    def seen(self) -> Any:
        return np.array([self.start, 3.0 * self.age - 1], dtype=np.float32)

    def step(self, action: int) -> tuple[Any, float, bool, bool, dict]:
        self.age += 1
        return self.seen(), self.start + self.age, self.age >= self.length, False, {}


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def acted(rollout: TensorDict) -> list[list[float]]:
    """By a plain loop: the observations that somebody acted on."""
    rows, steps = rollout["mask"].shape
    return [rollout["observation"][b, t].tolist() for b in range(rows) for t in range(steps) if rollout["mask"][b, t]]


def turn(algo: Any, env: Any) -> TensorDict:
    """One iteration as the loop does it."""
    algo.policy.refresh()
    with torch.no_grad():
        rollout = algo.rollout(env)
        algo.buffer.extend(algo.credit(rollout))
    learn(algo, Meter())
    return rollout


# Moments


@pytest.mark.parametrize("offset", [0.0, 1e8])
def test_batches_of_any_size_give_the_moments_of_all_elements_at_once(offset: float) -> None:
    x, moments = draw(101, 3) * torch.tensor([1.0, 5.0, 0.1], dtype=torch.float64) + offset, Moments(3)
    for part in x.split([1, 0, 7, 50, 1, 42]):
        moments.add(part)
    assert int(moments.count) == 101
    assert_close(moments.mean, x.mean(0))
    # at an offset of 1e8 the sum of squares minus the squared sum would have no digit left
    assert_close(moments.variance(), x.var(0, unbiased=False), rtol=1e-5 if offset else 1e-12, atol=0)


def test_welfords_recurrence_is_the_case_of_batches_of_one() -> None:
    x, moments, mean, squares = draw(20, 1), Moments(1), 0.0, 0.0
    for n, value in enumerate(x[:, 0].tolist(), 1):
        gap = value - mean
        mean += gap / n
        squares += gap * (value - mean)
        moments.add(torch.tensor([[value]]))
        assert_close(moments.mean.item(), mean)
        assert_close(moments.variance().item(), squares / n)


def test_nothing_counted_is_variance_1() -> None:
    moments = Moments(2)
    moments.add(torch.empty(0, 2))
    assert moments.variance().tolist() == [1.0, 1.0] and moments.mean.tolist() == [0.0, 0.0]


# Observations


def test_the_normaliser_only_clips_until_refreshed_and_then_standardises() -> None:
    normalizer, x = Normalizer(2), 3 * draw(40, 5, 2).float() + 7
    normalizer.observe(x, torch.ones(40, 5, dtype=torch.bool))
    assert torch.equal(normalizer(x / 2), x / 2) and float(x.abs().max()) < 20
    normalizer.refresh()
    out = normalizer(x).double().flatten(0, 1)
    assert_close(out.mean(0), torch.zeros(2, dtype=torch.float64), rtol=0, atol=1e-5)
    assert_close(out.var(0, unbiased=False), torch.ones(2, dtype=torch.float64), rtol=1e-5, atol=0)
    assert normalizer(torch.tensor([1e6, -1e6])).tolist() == [10.0, -10.0]


def test_refreshing_with_nothing_observed_changes_nothing() -> None:
    normalizer = Normalizer(2)
    normalizer.observe(torch.full((3, 2), 9.0), torch.zeros(3, dtype=torch.bool))
    normalizer.refresh()
    assert normalizer(torch.tensor([0.5, -2.0])).tolist() == [0.5, -2.0]


def test_a_constant_observation_becomes_0() -> None:
    normalizer = Normalizer(1)
    normalizer.observe(torch.full((1000, 1), 0.1), torch.ones(1000, dtype=torch.bool))
    normalizer.refresh()
    assert_close(normalizer(torch.tensor([0.1])), torch.zeros(1), rtol=0, atol=1e-3)


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("steps", [7, None])
def test_what_was_acted_on_is_counted_and_nothing_else(mode: AutoresetMode, steps: int | None) -> None:
    env = control_in_mode(Drift, rows=3, limit=4, mode=mode)
    policy, seen = policies.ActorCritic(env, policies.Network(normalize=True)), []
    masked = 0
    for _ in range(4):
        rollout = env.rollout(policy, steps=steps)
        seen += acted(rollout)
        masked += int((~rollout["mask"]).sum())
    policy.refresh()
    assert (masked > 0) == (steps is None or mode is AutoresetMode.NEXT_STEP)
    x, totals = torch.tensor(seen, dtype=torch.float64), policy.normalizer.totals
    assert int(totals.count) == len(seen)
    assert_close(totals.mean, x.mean(0))
    assert_close(totals.variance(), x.var(0, unbiased=False))


@pytest.mark.parametrize("name", ["ppo", "a2c", "reinforce", "grpo"])
def test_acting_and_learning_see_the_same_numbers(name: str) -> None:
    env = control(Drift, 4, 5)
    shape = {"horizon": 16} if name in ("ppo", "a2c") else {}
    algo = algorithm(name, env, policies.Network(normalize=True), lr=0.01, **shape)
    for _ in range(5):
        turn(algo, env)
    algo.policy.refresh()
    before = algo.policy.normalizer.mean.clone()
    rollout = algo.rollout(env)
    with policies.Tape():
        now = algo.policy.evaluate(rollout)
    assert torch.equal(now["log_prob"].exp() / rollout["log_prob"].exp(), torch.ones_like(now["log_prob"]))
    if "value" in now:
        assert torch.equal(now["value"], rollout["value"])
    assert torch.equal(algo.policy.normalizer.mean, before)
    algo.policy.refresh()
    assert not torch.equal(algo.policy.normalizer.mean, before)


def test_evaluation_leaves_every_bit_of_the_state_as_it_was() -> None:
    env = control(Drift, 4, 5)
    config = {"horizon": 16, "normalize_reward": True}
    algo = algorithm("ppo", env, policies.Network(normalize=True), **config)
    turn(algo, env)
    algo.policy.refresh()
    parts = (algo.policy, algo.reward_scale)
    before = [{key: x.clone() for key, x in part.state_dict().items()} for part in parts]
    env.evaluate(algo.policy, episodes=5)
    env.evaluate(algo.policy, episodes=5, greedy=False)
    for part, state in zip(parts, before, strict=True):
        assert all(torch.equal(x, state[key]) for key, x in part.state_dict().items())


def test_the_statistics_are_part_of_the_state_and_shared_by_actor_and_critic() -> None:
    env = control(Drift, 4, 5)
    network = policies.Network(normalize=True)
    policy, other = policies.ActorCritic(env, network), policies.ActorCritic(env, network)
    env.rollout(policy, steps=8)
    policy.refresh()
    other.load_state_dict(policy.state_dict())
    assert other.actor[0] is other.critic[0] is other.normalizer
    x = torch.tensor([[97.0, 2.0]])
    assert torch.equal(other.actor(x), policy.actor(x)) and torch.equal(other.value(x), policy.value(x))
    assert_close(other.normalizer.totals.state_dict(), policy.normalizer.totals.state_dict())


def test_a_target_network_normalises_as_its_policy_does_and_a_reference_stays() -> None:
    env = control(Drift, 4, 5)
    algo = algorithm("dqn", env, policies.Network(normalize=True), warmup_steps=4, steps=4, batch_size=8)
    reference = policies.frozen_copy(algo.policy)
    turn(algo, env)
    algo.policy.refresh()
    x = torch.tensor([[9.0, 2.0]])
    assert algo.target.normalizer is algo.policy.normalizer
    assert not torch.equal(algo.policy.normalizer(x), x)
    assert torch.equal(reference.normalizer(x), x)


def test_images_of_real_numbers_are_normalised_and_go_through_convolutions() -> None:
    env = control(Drift, 1, 5)
    env.observation_space = Box(-1, 1, (3, 6, 6))
    first, second, *_ = policies.Network(encoder="small", normalize=True).actor(env).actor
    assert isinstance(first, Normalizer) and type(second).__name__ == "Image"


def test_states_are_not_normalised_and_without_the_key_nothing_is() -> None:
    for env, normalize in ((control(Ring, 2, 8), True), (control(Drift, 2, 5), False)):
        policy = policies.Actor(env, policies.Network(normalize=normalize))
        policy.refresh()
        env.rollout(policy, steps=3)
        assert policy.normalizer is None
        assert not any(isinstance(layer, Normalizer) for layer in policy.modules())


# Rewards


def loop(rollouts: list[TensorDict], gamma: float) -> tuple[list[float], list[float]]:
    """The running discounted returns of acted steps, and the variance after each rollout, step by step."""
    running = [0.0] * len(rollouts[0]["reward"])
    all_returns, variances = [], []
    for rollout in rollouts:
        for t in range(rollout["reward"].shape[-1]):
            for b in range(len(running)):
                if rollout["mask"][b, t]:
                    running[b] = gamma * running[b] + float(rollout["reward"][b, t])
                    all_returns.append(running[b])
                    running[b] *= not rollout["done"][b, t]
        variances.append(float(np.var(all_returns)))
    return all_returns, variances


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("steps", [7, None])
def test_rewards_are_divided_by_the_deviation_of_the_running_return(mode: AutoresetMode, steps: int | None) -> None:
    env = control_in_mode(Drift, rows=3, limit=4, mode=mode)
    policy, scale = policies.Actor(env, policies.Network()), RewardScale(3, 0.9)
    rollouts = [env.rollout(policy, steps=steps) for _ in range(4)]
    scaled = [scale(rollout) for rollout in rollouts]
    returns, variances = loop(rollouts, 0.9)
    assert int(scale.totals.count) == len(returns)
    assert_close(scale.totals.mean.item(), float(np.mean(returns)))
    for rollout, out, variance in zip(rollouts, scaled, variances, strict=True):
        expected = (rollout["reward"] / variance**0.5).clamp(-10, 10)
        assert_close(out[rollout["mask"]], expected[rollout["mask"]])


def test_a_first_rollout_by_hand() -> None:
    # R = 1, 1 + 0.5·1 | (done) 2: mean 1.5, variance (0.25 + 0 + 0.25) / 3
    data = {"reward": torch.tensor([[1.0, 1.0, 2.0]]), "mask": torch.ones(1, 3, dtype=torch.bool)}
    data["done"] = torch.tensor([[False, True, False]])
    scale = RewardScale(1, 0.5)
    out = scale(TensorDict(data, batch_size=[1]))
    assert_close(out, data["reward"] / (0.5 / 3) ** 0.5)
    assert scale.carry.tolist() == [1.0]  # 0.5·2 goes on to the next rollout
    assert_close(scale(TensorDict(data, batch_size=[1]))[0, 0].item(), (1 / np.var([1, 1.5, 2, 2, 2, 2])) ** 0.5)


def test_a_gap_discounts_nothing_and_what_it_earns_belongs_to_the_step_before_it() -> None:
    def rollout(reward: list[float], mask: list[bool]) -> TensorDict:
        data = {"reward": torch.tensor([reward]), "mask": torch.tensor([mask])}
        return TensorDict(data | {"done": torch.zeros(1, len(mask), dtype=torch.bool)}, batch_size=[1])

    plain, gapped = RewardScale(1, 0.9), RewardScale(1, 0.9)
    for _ in range(2):  # the second time with what the first one carried
        want = plain(rollout([1.0, 5.0, 3.0], [True, True, True]))
        got = gapped(rollout([0.0, 1.0, 3.0, 2.0, 3.0, 0.0], [False, True, True, False, True, False]))
    assert_close(gapped.carry, plain.carry)
    assert_close(gapped.totals.variance(), plain.totals.variance())
    assert_close(got[0, [1, 4]], want[0, [0, 2]])


def test_scaled_rewards_are_clipped_and_the_scale_resumes() -> None:
    data = {"reward": torch.zeros(2, 500), "mask": torch.ones(2, 500, dtype=torch.bool)}
    data["done"] = torch.ones(2, 500, dtype=torch.bool)
    data["reward"][0, 7], data["reward"][1, 9] = 1000.0, -1000.0
    first, second = RewardScale(2, 0.9), RewardScale(2, 0.9)
    rollout = TensorDict(data, batch_size=[2])
    assert [float(x) for x in first(rollout).aminmax()] == [-10.0, 10.0]
    second.load_state_dict(first.state_dict())
    assert torch.equal(first(rollout), second(rollout))


@pytest.mark.parametrize("name", ["ppo", "a2c"])
def test_scaled_rewards_are_what_the_critic_learns(name: str) -> None:
    env = control(Drift, 3, 5)
    config = {"horizon": 9, "gae_lambda": 0.7, "gamma": 0.9, "normalize_advantage": False}
    kind = {"advantage": "gae"} if name == "a2c" else {}
    plain = algorithm(name, env, policies.Network(), **config, **kind)
    scaled = algorithm(name, env, policies.Network(), **config, **kind, normalize_reward=True)
    with torch.no_grad():
        rollout = plain.rollout(env)
    deviation = loop([rollout], 0.9)[1][0] ** 0.5
    by_hand = TensorDict(dict(rollout.items()), batch_size=rollout.batch_size)
    by_hand["reward"] = (rollout["reward"] / deviation).clamp(-10, 10)
    want = plain.credit(by_hand)
    raw = rollout["reward"].clone()
    got = scaled.credit(rollout)
    assert_close(got["advantage"], want["advantage"])
    assert_close(got["return"], want["return"])
    assert torch.equal(got["reward"], raw)  # what is logged and shown is the reward itself
