"""Policies and algorithms with gradients by hand and prepared actions are those by autograd and `act`."""

import math

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.fakes import Ring, algorithm, control, environment
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import policies
from rlkit.loop import learn
from rlkit.meter import Meter
from rlkit.policies.flat import Flat
from rlkit.policies.normalize import Normalizer
from rlkit.tape import Tape


@pytest.mark.parametrize("continuous", [False, True])
def test_prepared_actions_follow_the_policy(continuous: bool) -> None:
    env = control(Ring, 8, 3)
    env.observation_space = Box(-1, 1, (3,))
    env.action_space = Box(-1, 1, (2,)) if continuous else Discrete(3)
    policy = policies.Network(hidden=(16,), log_std=-0.5).actor(env)
    with torch.no_grad():
        policy.actor[-1].bias.add_(torch.tensor([0.5, -1.0] if continuous else [1.0, 0.0, -1.0]))
    seen = torch.full((8, 3), 0.3)
    act = policy.prepared(4000, 8)
    actions = torch.from_numpy(np.stack([act(seen.numpy()) for _ in range(4000)])).flatten(0, 1)
    with torch.no_grad():
        out = policy.actor(seen[:1])
    if continuous:
        assert_close(actions.mean(0), out[0], atol=0.02, rtol=0)
        assert_close(actions.std(0), torch.full((2,), math.exp(-0.5)), atol=0.02, rtol=0)
    else:
        share = torch.bincount(actions, minlength=3) / len(actions)
        assert_close(share, out[0].softmax(-1), atol=0.02, rtol=0)


def test_prepared_actions_explore_as_often_as_epsilon_says() -> None:
    env = control(Ring, 4, 3)
    env.observation_space, env.action_space = Box(-1, 1, (3,)), Discrete(4)
    policy, seen = policies.Network().q_network(env), torch.randn(4, 3)
    best = policy.act(seen, greedy=True)
    greedy = policy.prepared(10, 4)
    assert all(torch.equal(torch.from_numpy(greedy(seen.numpy())), best) for _ in range(10))
    policy.epsilon = 0.4
    act = policy.prepared(5000, 4)
    other = np.mean([act(seen.numpy()) != best.numpy() for _ in range(5000)])
    assert other == pytest.approx(0.4 * 3 / 4, abs=0.01)
    assert policies.Network().q_network(env, dueling=True).prepared(10, 4) is None


LEARNERS = {
    "ppo": {"horizon": 16, "minibatches": 2, "entropy_coef": 0.01},
    "a2c": {"horizon": 16, "entropy_coef": 0.01},
    "reinforce": {"baseline": "value"},
    "grpo": {"group": 4},
    "dqn": {"steps": 8, "warmup_steps": 8, "updates": 2, "batch_size": 16},
}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("options", [{}, {"activation": "relu", "hidden": (16,)}, {"normalize": True}, {"hidden": ()}])
def test_an_algorithm_learns_the_same_by_hand_and_by_autograd(name: str, options: dict) -> None:
    """From one and the same batch: the parameters after the steps."""
    found = []
    env = boxed(3)
    source = algorithm(name, env, policies.Network(**options), **LEARNERS[name])
    with torch.no_grad():
        batch = source.credit(source.rollout(env))
    for fast in (True, False):
        algo = algorithm(name, boxed(3), policies.Network(fast=fast, **options), **LEARNERS[name])
        algo.policy.load_state_dict(source.policy.state_dict())
        algo.buffer.extend(batch.clone())
        meter = Meter()
        learn(algo, meter)
        assert isinstance(algo.optimizer, Flat)
        found.append((torch.cat([p.detach().flatten() for p in algo.policy.parameters()]), meter.read()))
    assert_close(found[0][0], found[1][0], rtol=1e-5, atol=2e-6)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4, abs=1e-5)
    start = torch.cat([p.detach().flatten() for p in source.policy.parameters()])
    assert not torch.equal(found[0][0], start)


@pytest.mark.parametrize("normalize", [False, True])
def test_continuous_actions_are_learned_the_same_by_hand_and_by_autograd(normalize: bool) -> None:
    found = []
    for fast in (True, False):
        network = policies.Network(normalize=normalize, fast=fast)
        algo = algorithm("ppo", boxed(3, "pendulum"), network, horizon=16, minibatches=2, entropy_coef=0.01)
        generator = torch.Generator().manual_seed(4)
        data = {"observation": torch.randn(3, 16, 3, generator=generator)}
        data |= {"action": torch.randn(3, 16, 1, generator=generator)}
        data |= {key: torch.randn(3, 16, generator=generator) for key in ("log_prob", "advantage", "return", "value")}
        algo.buffer.extend(TensorDict(data | {"mask": torch.ones(3, 16, dtype=torch.bool)}, batch_size=[3]))
        learn(algo, Meter())
        found.append(torch.cat([p.detach().flatten() for p in algo.policy.parameters()]))
    assert_close(*found, rtol=1e-5, atol=2e-6)


TWINS = {"steps": 8, "warmup_steps": 8, "updates": 3, "batch_size": 16}


@pytest.mark.parametrize(("name", "env"), [("sac", "pendulum"), ("td3", "pendulum"), ("sac", "cartpole")])
@pytest.mark.parametrize("options", [{}, {"activation": "relu", "hidden": (16,)}, {"normalize": True}, {"hidden": ()}])
def test_twin_critics_are_learned_the_same_by_hand_and_by_autograd(name: str, env: str, options: dict) -> None:
    """The gradient of the actor goes through the inputs of the critics, which keep theirs apart."""
    found = []
    for fast in (True, False):
        made = boxed(3, env)
        algo = algorithm(name, made, policies.Network(fast=fast, **options), **TWINS)
        algo.policy.epsilon = 1.0
        with torch.no_grad():
            rollout = algo.credit(made.rollout(algo.policy, steps=8))
        algo.policy.generator.manual_seed(7)
        algo.buffer.extend(rollout)
        meter = Meter()
        learn(algo, meter)
        assert isinstance(algo.optimizer, Flat) and algo.updates == 3
        found.append((torch.cat([p.detach().flatten() for p in algo.policy.parameters()]), meter.read()))
    assert_close(found[0][0], found[1][0], rtol=1e-4, atol=1e-5)
    assert found[0][1] == pytest.approx(found[1][1], rel=1e-4, abs=1e-5)


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_gradients_of_twin_critics_in_double_precision(name: str) -> None:
    found = []
    for fast in (True, False):
        options = {"policy_delay": 1} if name == "td3" else {}
        algo = algorithm(name, boxed(3, "pendulum"), policies.Network(fast=fast), **TWINS, **options)
        algo.policy.double(), algo.target.double()
        draw = torch.Generator().manual_seed(4)
        data = {"observation": torch.randn(16, 3, generator=draw), "action": torch.randn(16, 1, generator=draw)}
        data |= {"next_observation": torch.randn(16, 3, generator=draw), "reward": torch.randn(16, generator=draw)}
        data |= {"discount": torch.full((16,), 0.9), "weight": torch.rand(16, generator=draw)}
        data = {key: x.double() for key, x in data.items()} | {"terminated": torch.arange(16) % 5 == 0}
        with Tape() as tape:
            loss, _ = algo.loss(TensorDict(data, batch_size=[16]))
        tape.backward(loss)
        assert bool(tape.notes) is fast
        found.append([p.grad for p in algo.policy.parameters()])
    assert_close(*found, rtol=1e-12, atol=1e-12)


def boxed(rows: int, name: str = "cartpole"):
    """An environment with short episodes."""
    return environment(name, rows=rows, step_limit=12)


def test_a_policy_that_acts_in_another_way_is_asked_at_each_step() -> None:
    env = boxed(4)

    class Ones(policies.Actor):
        def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
            return torch.ones(len(observation), dtype=torch.long)

    class Second(policies.QNetwork):
        def forward(self, observation: Tensor) -> Tensor:
            return torch.tensor([0.0, 1.0]).expand(len(observation), 2)

    for kind in (Ones, Second):
        assert env.rollout(kind(env, policies.Network()), steps=8)["action"].eq(1).all()
    plain = policies.Actor(env, policies.Network())
    plain.actor.register_forward_hook(lambda module, given, out: torch.tensor([-99.0, 99.0]).expand_as(out))
    assert env.rollout(plain, steps=8)["action"].eq(1).all()


def test_a_subclass_acts_by_the_scores_that_it_gives() -> None:
    class Second(policies.Actor):
        def outputs(self, observation: Tensor, features: Tensor | None = None) -> Tensor:
            return super().outputs(observation, features) + torch.tensor([-99.0, 99.0])

    env = boxed(4)
    rollout = env.rollout(Second(env, policies.Network()), steps=8)
    assert rollout["action"].eq(1).all() and rollout["log_prob"].min() > -1


def test_hooks_of_a_policy_are_asked_when_it_acts() -> None:
    env = boxed(3)
    env.action_space = Discrete(2)
    policy = policies.Network().q_network(env)
    assert policy.prepared(4, 8) is not None
    policy.register_forward_hook(lambda _, __, q: q - torch.tensor([1e9, 0.0]))  # action 0 is not allowed
    assert policy.prepared(4, 8) is None
    assert bool(policy.act(torch.randn(8, 4)).all())


@pytest.mark.parametrize("how", ["hook", "subclass"])
def test_a_changed_normalizer_is_asked_when_the_policy_acts(how: str) -> None:
    class Doubled(Normalizer):
        def forward(self, x: Tensor) -> Tensor:
            return 2 * super().forward(x)

    policy = policies.Network(normalize=True).actor(boxed(3))
    assert policy.prepared(4, 8) is not None
    if how == "hook":
        policy.normalizer.register_forward_hook(lambda _, __, out: 2 * out)
    else:
        policy.normalizer = policy.actor[0] = Doubled(4)
    assert policy.prepared(4, 8) is None


def test_a_hook_of_the_deviation_is_called() -> None:
    env = boxed(3)
    env.action_space = Box(-1, 1, (2,))
    policy = policies.Network().actor(env)
    batch = TensorDict({"observation": torch.randn(5, 4), "action": torch.randn(5, 2)}, batch_size=[5])
    policy.log_std.register_hook(lambda gradient: 0 * gradient)
    with Tape() as tape:
        log_prob, _ = policy.log_prob_entropy(batch, batch["observation"])
    tape.backward(log_prob.sum())
    assert torch.equal(policy.log_std.grad, torch.zeros(2))
    assert policy.actor[0].weight.grad.abs().sum() > 0


def test_parts_that_a_user_replaces_are_asked_when_the_policy_acts() -> None:
    class Scores(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.tensor([-99.0, 99.0]).expand(len(x), 2) if x.dim() == 2 else x * 0 + 1

    env = boxed(4)
    own, trunk = policies.ActorCritic(env, policies.Network()), policies.ActorCritic(env, policies.Network())
    own.actor = Scores()
    trunk.trunk, trunk.actor = torch.nn.Linear(4, 4), policies.Network(hidden=()).actor(env).actor
    assert policies.Actor(env, policies.Network()).prepared(8, 4) is not None
    assert own.prepared(8, 4) is None and trunk.prepared(8, 4) is None
    twins = policies.Network().twin_critics(boxed(4, "pendulum"))
    twins.actor = torch.nn.Sequential(torch.nn.Linear(3, 2))
    assert twins.prepared(8, 4) is None
