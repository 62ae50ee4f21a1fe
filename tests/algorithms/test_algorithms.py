"""PPO, REINFORCE and SFT against plain loops, oracles and known values; what is refused."""

import math
from typing import Any

import pytest
import torch
from support.fakes import (
    RaggedText,
    Ring,
    SequencePolicy,
    algorithm,
    cartpole,
    control,
    credited,
    gradient,
    gradient_of,
    in_double,
    iterate,
    off_policy,
    on_text,
    parameters,
)
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies
from rlkit.api import UserError
from rlkit.language.network import LanguageNetwork
from rlkit.settings import plugins
from rlkit.settings.config import build

# PPO


def test_ppo_with_one_plain_update_and_lambda_1_is_a2c() -> None:
    env = cartpole(rows=4, step_limit=15)
    config = {"epochs": 1, "minibatches": 1, "clip": math.inf, "gae_lambda": 1.0, "normalize_advantage": False}
    algo = algorithm("ppo", env, policies.Network(), horizon=48, gamma=0.9, entropy_coef=0.02, **config)
    rollout = in_double(algo, algo.rollout(env))
    assert bool((rollout["done"] & ~rollout["terminated"]).any()) and bool(rollout["terminated"].any())
    reward, next_value = rollout["reward"].tolist(), rollout["next_value"].tolist()
    ends, cuts = rollout["terminated"].tolist(), rollout["done"].tolist()
    target = torch.zeros(4, 48, dtype=torch.float64)
    for b in range(4):
        for t in reversed(range(48)):
            follows = float(target[b, t + 1]) if t < 47 and not cuts[b][t] else next_value[b][t]
            target[b, t] = reward[b][t] + (0.0 if ends[b][t] else 0.9 * follows)
    now = algo.policy.evaluate(rollout)
    actor = -((target - now["value"].detach()) * now["log_prob"]).mean()
    critic = 0.5 * (now["value"] - target).square().mean()
    a2c = gradient_of(algo, actor + 0.5 * critic - 0.02 * now["entropy"].mean())
    batch = credited(algo, rollout)
    assert_close(batch["return"], target.flatten())
    assert_close(gradient(algo, batch), a2c)


def test_ppo_standardises_over_what_was_acted_and_keeps_the_returns() -> None:
    _, batch = off_policy("ppo", {"epochs": 1, "minibatches": 1, "gae_lambda": 1.0, "gamma": 1.0})
    advantage, mask = batch["advantage"][batch["mask"]], batch["mask"]
    assert_close(advantage.mean(), torch.zeros((), dtype=torch.float64))
    assert_close(advantage.std(), torch.ones((), dtype=torch.float64), rtol=1e-6, atol=1e-6)
    # λ = γ = 1 and one reward at the end: every token of a completion returns its score
    assert_close(batch["return"][mask], batch["score"].unsqueeze(-1).expand_as(mask)[mask])


def test_the_clip_of_ppo_shrinks_with_progress_only_when_asked() -> None:
    fractions = {}
    for schedule in ("constant", "linear"):
        algo, batch = off_policy("ppo", {"epochs": 1, "minibatches": 1, "clip_schedule": schedule})
        fractions[schedule] = []
        for algo.progress in (0.0, 0.99):
            fractions[schedule].append(float(algo.loss(batch)[1]["clip_fraction"]().sum()))
    assert fractions["constant"][0] == fractions["constant"][1] == fractions["linear"][0] < fractions["linear"][1]


class Cut:
    """An environment that calls every truncation a termination: the classic mistake."""

    kind = "control"

    def __init__(self, env: Any) -> None:
        self.env = env

    def rollout(self, *args: Any, **kwargs: Any) -> TensorDict:
        rollout = self.env.rollout(*args, **kwargs)
        rollout["terminated"] = rollout["terminated"] | rollout["done"]
        return rollout


def values_of_the_ring(cut: bool, lam: float, hidden: tuple[int, ...], updates: int) -> Tensor:
    env = control(Ring, rows=2, limit=8)
    config = {"horizon": 16, "gamma": 0.9, "gae_lambda": lam, "epochs": 8, "minibatches": 1, "max_grad_norm": 100.0}
    algo = algorithm("ppo", env, policies.Network(hidden=hidden), lr=0.05 if not hidden else 0.01, **config)
    for _ in range(updates):
        iterate(algo, Cut(env) if cut else env)
    with torch.no_grad():
        return algo.policy.value(torch.arange(4))


@pytest.mark.parametrize(("lam", "hidden"), [(0.5, ()), (0.95, ()), (1.0, ()), (0.95, (32,))])
@pytest.mark.slow
def test_the_critic_of_a_ring_that_never_ends_learns_its_true_value(lam: float, hidden: tuple[int, ...]) -> None:
    value = values_of_the_ring(False, lam, hidden, updates=50)
    assert_close(value, torch.full((4,), 10.0), rtol=0, atol=0.1)  # 1 / (1 − γ), far beyond the limit of 8 steps


@pytest.mark.slow
def test_with_truncation_as_termination_it_would_learn_the_value_up_to_the_time_limit() -> None:
    # State s is seen at the ages s and s + 4 of an episode of 8 steps: the mean of what is left from there
    def left(steps: int) -> float:
        return (1 - 0.9**steps) / (1 - 0.9)

    wrong = torch.tensor([(left(8 - s) + left(4 - s)) / 2 for s in range(4)])
    assert_close(values_of_the_ring(True, 1.0, (), updates=50), wrong, rtol=0, atol=0.05)
    assert float(wrong.max()) < 5


# REINFORCE


@pytest.mark.parametrize("weight", ["total", "reward_to_go"])
@pytest.mark.parametrize("baseline", ["none", "batch", "value"])
@pytest.mark.parametrize("normalize", [False, True])
def test_reinforce_equals_a_plain_loop_over_episodes(weight: str, baseline: str, normalize: bool) -> None:
    env = cartpole(rows=3)
    config = {"returns": weight, "baseline": baseline, "normalize_advantage": normalize, "gamma": 0.9}
    config["value_coef"] = 0.3
    algo = algorithm("reinforce", env, policies.Network(), **config)
    rollout = in_double(algo, algo.rollout(env))
    worth, to_go, log_probs = [], [], []
    for b in range(3):
        steps = int(rollout["mask"][b].sum())
        reward = rollout["reward"][b, :steps].tolist()
        assert bool(rollout["done"][b, steps - 1])
        for t in range(steps):
            first = t if weight == "reward_to_go" else 0
            worth.append(sum(0.9 ** (k - first) * reward[k] for k in range(first, steps)))
            to_go.append(sum(0.9 ** (k - t) * reward[k] for k in range(t, steps)))
            row = TensorDict({k: rollout[k][b, t : t + 1] for k in ("observation", "action")}, batch_size=[1])
            log_probs.append(algo.policy.evaluate(row)["log_prob"][0])
    a = torch.tensor(worth, dtype=torch.float64)
    critic = torch.zeros(())
    if baseline == "value":  # V learns what is still to come, whatever multiplies log π
        value = algo.policy.evaluate(rollout)["value"][rollout["mask"]]
        a = a - value.detach()
        critic = 0.5 * 0.3 * (value - torch.tensor(to_go, dtype=torch.float64)).square().mean()
    if baseline == "batch" or (baseline == "value" and normalize):
        a = (a - a.mean()) / (a.std() + 1e-8 if normalize else 1.0)
    by_hand = gradient_of(algo, -(a * torch.stack(log_probs)).mean() + critic)
    assert_close(gradient(algo, credited(algo, rollout)), by_hand)


def test_with_one_undiscounted_reward_at_the_end_total_return_and_reward_to_go_agree() -> None:
    config = {"gamma": 1.0, "normalize_advantage": False}
    results = []
    for weight in ("total", "reward_to_go"):
        algo, batch = off_policy("reinforce", config | {"returns": weight})
        results.append(gradient(algo, batch))
    assert_close(results[0], results[1])


def test_on_text_reinforce_with_a_learned_value_is_a2c_with_whole_episodes() -> None:
    own = {"reinforce": {"baseline": "value"}, "a2c": {"advantage": "mc", "horizon": None}}
    results = []
    for name, config in own.items():
        algo, batch = off_policy(name, config | {"gamma": 0.9, "normalize_advantage": False})
        results.append(gradient(algo, batch))
    assert_close(results[0], results[1])


@pytest.mark.parametrize("name", ["ppo", "grpo", "reinforce", "a2c"])
def test_the_entropy_bonus_lowers_the_loss_by_the_mean_entropy(name: str) -> None:
    config = {"epochs": 1, "minibatches": 1} if name == "ppo" else {}
    (plain, batch), (eager, same) = (off_policy(name, config | {"entropy_coef": coef}) for coef in (0.0, 0.3))
    assert len(batch) == len(same)
    bonus = 0.3 * (eager.policy.evaluate(same)["entropy"] * same["weight"]).sum()
    assert_close(eager.loss(same)[0], plain.loss(batch)[0] - bonus)
    assert_close(gradient(eager, same), gradient(plain, batch) - gradient_of(eager, bonus))


# Supervised fine-tuning


def test_sft_is_cross_entropy_over_the_demonstrated_tokens() -> None:
    algo, batch = off_policy("sft", {})
    hidden = algo.policy.embedding[batch["observation"]].cumsum(-2).tanh()
    labels = batch["action"].masked_fill(~batch["mask"], -100)
    expected = torch.nn.functional.cross_entropy((hidden @ algo.policy.head).flatten(0, 1), labels.flatten())
    assert_close(algo.loss(batch)[0], expected)
    assert_close(gradient(algo, batch), gradient_of(algo, expected))


# What cannot be


@pytest.mark.parametrize("name", ["grpo", "dpo"])
def test_a_group_of_one_is_refused(name: str) -> None:
    module = plugins.load("algorithms", name)
    with pytest.raises(UserError, match=r"algo\.group=1\b.* at least 2"):
        module.make(build(module.Config, {"group": 1}, "algo"), cartpole(1), policies.Network())


def test_methods_refuse_spaces_they_cannot_handle_and_say_what_to_use() -> None:
    from gymnasium.vector import AutoresetMode, SyncVectorEnv

    from rlkit.control import ControlEnv

    def pendulum(n: int) -> SyncVectorEnv:
        import gymnasium

        make = [lambda: gymnasium.make("Pendulum-v1")] * n
        return SyncVectorEnv(make, autoreset_mode=AutoresetMode.DISABLED)

    with pytest.raises(UserError, match=r"q_learning keeps a table .* use algo=dqn"):
        algorithm("q_learning", cartpole(1), policies.Network())
    with pytest.raises(UserError, match=r"a Q-network needs discrete actions .* use algo=sac"):
        algorithm("dqn", ControlEnv(pendulum, 1), policies.Network())
    with pytest.raises(UserError, match="a Q-network plays control environments and this one is text; use algo=grpo"):
        algorithm("dqn", RaggedText(), LanguageNetwork())
    with pytest.raises(UserError, match=r"q_learning .* not text; use algo=grpo"):
        algorithm("q_learning", RaggedText(), object())
    with pytest.raises(UserError, match=r"sft needs demonstrations .* use env=gsm8k"):
        algorithm("sft", cartpole(1), policies.Network())


@pytest.mark.parametrize("name", ["ppo", "a2c", "grpo", "reinforce", "dpo"])
def test_one_file_serves_control_and_text_alike(name: str) -> None:
    config: dict[str, Any] = {"group": 2} if name in ("grpo", "dpo") else {}
    for text in (False, True):
        env = RaggedText() if text else cartpole(4)
        algo = on_text(name, env, **config) if text else algorithm(name, env, policies.Network(), **config)
        before = parameters(algo.policy)
        iterate(algo, env)
        after = parameters(algo.policy)
        assert bool(after.isfinite().all()) and not torch.equal(before, after)
        assert isinstance(algo.policy, SequencePolicy) == text


@pytest.mark.parametrize(
    ("name", "config", "said"),
    [
        ("ppo", {"horizon": 1}, "algo.normalize_advantage=false"),
        ("a2c", {"horizon": 1, "normalize_advantage": True}, "algo.normalize_advantage=false"),
        ("reinforce", {}, "algo.baseline=none"),
        ("reinforce", {"baseline": "value"}, "algo.normalize_advantage=false"),
    ],
)
def test_the_advantage_of_a_single_step_is_compared_with_nothing(name: str, config: dict[str, Any], said: str) -> None:
    key, off = said.removeprefix("algo.").split("=")
    with pytest.raises(UserError, match=f"single step, which would teach nothing: give env.rows=2 or more, or {said}$"):
        algorithm(name, cartpole(1, step_limit=1), policies.Network(), **config)
    algo = algorithm(name, cartpole(1, 1), policies.Network(), **config | {key: False if off == "false" else off})
    before = parameters(algo.policy.actor)
    iterate(algo, cartpole(1, 1))
    assert not torch.equal(parameters(algo.policy.actor), before)
    algorithm(name, cartpole(2, step_limit=1), policies.Network(), **config)
