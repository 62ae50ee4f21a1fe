"""Who acts: distributions against torch's own, draws against their probabilities, values at the ends of episodes."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete, Sequence
from support.fakes import Ring, Walk, control
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import buffers, policies, seeding
from rlkit.api import UserError
from rlkit.policies import encoders, networks
from rlkit.settings import plugins


def fake_env(actions: Any = None, observations: Any = None, seed: int = 0) -> Any:
    """What a policy needs to know of an environment."""
    return SimpleNamespace(
        action_space=actions or Discrete(3),
        observation_space=observations or Box(-1, 1, (4,)),
        seed=seed,
        device=torch.device("cpu"),
    )


def batch(env: Any, *lead: int) -> TensorDict:
    draw = torch.Generator().manual_seed(0)
    observation = torch.randn(*lead, 4, generator=draw)
    action = torch.randint(3, lead, generator=draw)
    if isinstance(env.action_space, Box):
        action = torch.randn(*lead, 2, generator=draw)
    return TensorDict({"observation": observation, "action": action}, batch_size=lead)


def test_whole_numbers_are_encoded_under_vmap_as_alone() -> None:
    for space in (Discrete(3), MultiDiscrete([2, 3, 4])):
        encoder = encoders.of_leaf(space, "auto")
        assert encoder is not None
        seen = torch.from_numpy(np.stack([[space.sample() for _ in range(5)] for _ in range(4)]))
        assert torch.equal(torch.vmap(encoder)(seen), encoder(seen))
    assert encoder(torch.tensor([1, 0, 3])).tolist() == [0, 1, 1, 0, 0, 0, 0, 0, 1]


def loud(policy: policies.Actor) -> policies.Actor:
    """With a last layer that does not start near zero, so that probabilities differ."""
    with torch.no_grad():
        policy.actor[-1].weight.mul_(100)
    return policy


def gradients(x: Tensor, policy: torch.nn.Module) -> list[Tensor]:
    weight = torch.linspace(-1, 2, x.numel()).view_as(x)
    found = torch.autograd.grad((x * weight).sum(), list(policy.parameters()), retain_graph=True, allow_unused=True)
    return [torch.zeros(1) if g is None else g for g in found]


# Distributions

PLANE = Box(-1, 1, (2,))


@pytest.mark.parametrize("actions", [Discrete(3), PLANE])
def test_log_prob_and_entropy_equal_torch_distributions_in_value_and_gradient(actions: Any) -> None:
    env = fake_env(actions)
    policy, steps = loud(policies.Actor(env, policies.Network(log_std=-0.7))), batch(env, 6, 5)
    out = policy.actor(steps["observation"])
    if isinstance(actions, Box):
        normal = torch.distributions.Normal(out, torch.full((2,), -0.7).exp() * (policy.log_std + 0.7).exp())
        oracle: torch.distributions.Distribution = torch.distributions.Independent(normal, 1)
    else:
        oracle = torch.distributions.Categorical(logits=out)
    ours = policy.evaluate(steps)
    for x, y in ((ours["log_prob"], oracle.log_prob(steps["action"])), (ours["entropy"], oracle.entropy())):
        assert_close(x, y)
        assert_close(gradients(x, policy), gradients(y, policy))


def test_continuous_log_probabilities_are_torchs_to_the_last_bit() -> None:
    policy, steps = policies.Actor(fake_env(PLANE), policies.Network(log_std=-0.7)), batch(fake_env(PLANE), 37, 11)
    mean = policy.actor(steps["observation"])
    oracle = torch.distributions.Normal(mean, policy.log_std.exp().expand_as(mean))
    ours, theirs = policy.evaluate(steps), (oracle.log_prob(steps["action"]).sum(-1), oracle.entropy().sum(-1))
    for x, y in zip((ours["log_prob"], ours["entropy"]), theirs, strict=True):
        assert torch.equal(x, y)
        assert all(map(torch.equal, gradients(x, policy), gradients(y, policy)))


def test_discrete_actions_are_drawn_with_their_probabilities() -> None:
    policy = loud(policies.Actor(fake_env(), policies.Network()))
    observation = batch(fake_env(), 1)["observation"].expand(20_000, 4)
    with torch.no_grad():
        p = policy.actor(observation[:1]).softmax(-1)[0]
        share = policy.act(observation).bincount(minlength=3) / 20_000
    assert bool(((share - p).abs() < 4 * (p * (1 - p) / 20_000).sqrt()).all())
    assert float(p.max() - p.min()) > 0.2
    assert policy.act(observation[:5], greedy=True).tolist() == [int(p.argmax())] * 5


def test_continuous_actions_are_drawn_around_their_mean_with_their_deviation() -> None:
    policy = policies.Actor(fake_env(PLANE), policies.Network(log_std=-1.0))
    observation = batch(fake_env(), 1)["observation"].expand(20_000, 4)
    with torch.no_grad():
        mean, drawn = policy.actor(observation[:1])[0], policy.act(observation)
        assert_close(policy.act(observation[:1], greedy=True)[0], mean)
    sigma = float(torch.tensor(-1.0).exp())
    assert float((drawn.mean(0) - mean).abs().max()) < 4 * sigma / 20_000**0.5
    assert float((drawn.std(0) - sigma).abs().max()) < 4 * sigma / 40_000**0.5


def test_draws_depend_on_the_seed_and_on_no_global_generator() -> None:
    observation = batch(fake_env(), 50)["observation"]
    first = policies.Actor(fake_env(), policies.Network()).act(observation)
    torch.manual_seed(1)
    torch.rand(3)
    assert torch.equal(policies.Actor(fake_env(), policies.Network()).act(observation), first)
    assert not torch.equal(policies.Actor(fake_env(seed=1), policies.Network()).act(observation), first)


def test_an_action_space_that_no_policy_takes_is_refused() -> None:
    with pytest.raises(UserError, match="action space Sequence"):
        policies.Actor(fake_env(Sequence(Discrete(3))), policies.Network())
    with pytest.raises(UserError, match=r"a Q-network needs discrete actions .* use algo=sac"):
        policies.Network().q_network(fake_env(PLANE))
    assert policies.Network().q_network(fake_env())(torch.zeros(4)).shape == (3,)


# The ratio


@pytest.mark.parametrize("rows", [8, 3])
def test_the_ratio_is_exactly_1_on_the_first_minibatch(rows: int) -> None:
    cartpole = plugins.load("envs", "cartpole")
    env = cartpole.make(cartpole.Config(rows=rows), 0, torch.device("cpu"))
    policy = policies.Network().actor_critic(env)
    rollout = env.rollout(policy, steps=64)
    with policies.Tape():
        now = policy.evaluate(rollout)
    assert torch.equal(now["log_prob"], rollout["log_prob"])
    assert torch.equal(now["value"], rollout["value"])
    memory = buffers.Rollout(0, minibatches=4, whole_rows=False)
    memory.extend(rollout)
    for minibatch in memory:
        ratio = (policy.evaluate(minibatch)["log_prob"] - minibatch["log_prob"]).exp()
        assert_close(ratio, torch.ones_like(ratio), rtol=0, atol=2e-7)  # one rounding, where a product is blocked anew


def test_whole_episodes_and_groups_also_start_at_ratio_1() -> None:
    cartpole = plugins.load("envs", "cartpole")
    env = cartpole.make(cartpole.Config(rows=2), 0, torch.device("cpu"))
    policy = policies.Network().actor(env)
    rollout = env.rollout(policy, repeats=3)
    now = buffers.in_parts(policy.evaluate, buffers.flatten_groups(rollout), policy.micro_steps)["log_prob"]
    assert torch.equal(now, rollout["log_prob"].flatten(0, 1))


# Values


def critic_of_walk(values: list[float], rows: int, limit: int) -> tuple[Any, policies.ActorCritic]:
    """V(s) set by hand: without hidden layers a critic on states is a table."""
    env = control(Walk, rows, limit)
    policy = policies.ActorCritic(env, policies.Network(hidden=()))
    with torch.no_grad():
        policy.critic[-1].weight.copy_(torch.tensor([values]))
    return env, policy


@pytest.mark.parametrize("steps", [1, 7, None])
def test_next_value_is_that_of_the_true_successor_and_zero_once_terminated(steps: int | None) -> None:
    values = [100.0, 1.0, 2.0, 3.0, 4.0, 100.0]
    env, policy = critic_of_walk(values, rows=6, limit=4)
    for _ in range(3):
        rollout = env.rollout(policy, steps=steps)
        mask, terminated = rollout["mask"], rollout["terminated"]
        successor = torch.tensor(values)[rollout["next_observation"]]
        assert_close(rollout["next_value"][mask], successor.masked_fill(terminated, 0.0)[mask])
        assert_close(rollout["value"], torch.tensor(values)[rollout["observation"]])
    if steps != 1:
        assert bool((rollout["done"] & ~terminated).any()) and bool(terminated.any())


def test_the_value_after_a_time_limit_is_not_that_of_the_state_after_the_reset() -> None:
    env = control(Ring, 1, 3)  # plays 0 1 2 | 0 1 2
    policy = policies.ActorCritic(env, policies.Network(hidden=()))
    with torch.no_grad():
        policy.critic[-1].weight.copy_(torch.tensor([[10.0, 11.0, 12.0, 13.0]]))
    rollout = env.rollout(policy, steps=6)
    assert rollout["value"].tolist() == [[10.0, 11.0, 12.0, 10.0, 11.0, 12.0]]
    assert rollout["next_value"].tolist() == [[11.0, 12.0, 13.0, 11.0, 12.0, 13.0]]


def test_values_and_probabilities_have_separate_parameters() -> None:
    env = fake_env()
    policy, steps = policies.ActorCritic(env, policies.Network()), batch(env, 7)
    actor, critic = list(policy.actor.parameters()), list(policy.critic.parameters())
    out = policy.evaluate(steps)
    assert torch.autograd.grad(out["value"].sum(), actor, retain_graph=True, allow_unused=True) == (None,) * len(actor)
    assert torch.autograd.grad(out["log_prob"].sum(), critic, allow_unused=True) == (None,) * len(critic)


# Tables and Q-networks


def test_a_table_is_greedy_in_its_rows_and_explores_with_probability_epsilon() -> None:
    table = policies.Table(2, 4, seed=0)
    with torch.no_grad():
        table.q.weight.copy_(torch.tensor([[0.0, 3.0, 1.0, 2.0], [9.0, 3.0, 1.0, 2.0]]))
    assert table.act(torch.arange(2), greedy=True).tolist() == [1, 0]
    state = torch.zeros(20_000, dtype=torch.long)
    assert table.act(state[:9]).tolist() == [1] * 9  # ε is 0 until it is set
    table.epsilon = 0.4
    share = table.act(state).bincount(minlength=4) / 20_000
    expected = torch.tensor([0.1, 0.7, 0.1, 0.1])  # the greedy action is also among the random ones
    assert bool(((share - expected).abs() < 4 * (expected * (1 - expected) / 20_000).sqrt()).all())
    assert table.act(state[:9], greedy=True).tolist() == [1] * 9
    table.epsilon = 1.0
    assert float((table.act(state).bincount(minlength=4) / 20_000 - 0.25).abs().max()) < 4 * (3 / 16 / 20_000) ** 0.5


def test_a_table_starts_at_its_initial_value() -> None:
    assert_close(policies.Table(2, 3, seed=0, initial=1.5)(torch.tensor([1])), torch.full((1, 3), 1.5))


def test_a_q_network_without_hidden_layers_on_states_is_a_table() -> None:
    network = policies.QNetwork(fake_env(observations=Discrete(5)), policies.Network(hidden=()))
    assert_close(network(torch.arange(5)), network.q[-1].weight.T)


def test_epsilon_falls_linearly_and_stays() -> None:
    assert policies.epsilon(1.0, 0.2, 0.5, 0.0) == 1.0
    assert policies.epsilon(1.0, 0.2, 0.5, 0.25) == pytest.approx(0.6)
    assert policies.epsilon(1.0, 0.2, 0.5, 0.5) == policies.epsilon(1.0, 0.2, 0.5, 0.9) == 0.2
    assert policies.epsilon(1.0, 0.2, 0.0, 0.0) == 0.2


def test_pick_takes_the_value_of_each_action() -> None:
    values = torch.tensor([[[1.0, 2.0], [3.0, 4.0]]])
    assert policies.pick(values, torch.tensor([[1, 0]])).tolist() == [[2.0, 3.0]]


# Networks and optimizers


def test_layers_are_orthogonal_with_their_gain_and_depend_on_the_seed_and_their_name() -> None:
    env, network = fake_env(), policies.Network(hidden=(8, 6))
    layers = [x for x in networks.mlp(env, 3, 0.01, network, "actor") if isinstance(x, torch.nn.Linear)]
    for layer, gain in zip(layers, (2**0.5, 2**0.5, 0.01), strict=True):
        w = layer.weight.detach()
        gram = w @ w.T if w.shape[0] <= w.shape[1] else w.T @ w
        assert_close(gram, gain**2 * torch.eye(len(gram)), rtol=1e-5, atol=1e-5 * gain**2)
        assert not layer.bias.any()
    weight = layers[0].weight
    assert torch.equal(networks.mlp(env, 3, 0.01, network, "actor")[0].weight, weight)
    assert not torch.equal(networks.mlp(env, 3, 0.01, network, "critic")[0].weight, weight)
    assert not torch.equal(networks.mlp(fake_env(seed=1), 3, 0.01, network, "actor")[0].weight, weight)


def test_uniform_layers_are_those_of_torch() -> None:
    env, network = fake_env(), policies.Network(hidden=(8, 6), init="uniform")
    made = networks.mlp(env, 3, 0.01, network, "actor")
    with torch.random.fork_rng():
        torch.default_generator.set_state(seeding.generator(env.seed, "init", "actor").get_state())
        theirs = [torch.nn.Linear(*sizes) for sizes in ((made[0].in_features, 8), (8, 6), (6, 3))]
    for ours, layer in zip([x for x in made if isinstance(x, torch.nn.Linear)], theirs, strict=True):
        assert torch.equal(ours.weight, layer.weight) and torch.equal(ours.bias, layer.bias)


def test_uniform_convolutions_are_those_of_torch() -> None:
    env = fake_env(observations=Box(0, 255, (3, 36, 36), dtype=np.uint8))
    made = networks.mlp(env, 2, 1.0, policies.Network(encoder="nature", init="uniform"), "q")
    ours = [module for module in made.modules() if isinstance(module, torch.nn.Conv2d)]
    with torch.random.fork_rng():
        torch.default_generator.set_state(seeding.generator(env.seed, "init", "q", "encoder").get_state())
        theirs = [torch.nn.Conv2d(x.in_channels, x.out_channels, x.kernel_size) for x in ours]
    assert ours and all(torch.equal(x.weight, y.weight) for x, y in zip(ours, theirs, strict=True))
    assert all(torch.equal(x.bias, y.bias) for x, y in zip(ours, theirs, strict=True))


def test_a_frozen_copy_stays_when_the_policy_moves() -> None:
    policy = policies.Actor(fake_env(), policies.Network())
    copy = policies.frozen_copy(policy)
    assert not any(p.requires_grad for p in copy.parameters())
    with torch.no_grad():
        for p in policy.parameters():
            p += 1
    for p, q in zip(policy.parameters(), copy.parameters(), strict=True):
        assert_close(p - 1, q.requires_grad_())


def test_adam_decays_matrices_only_and_leaves_frozen_parameters_out() -> None:
    layer = torch.nn.Linear(2, 2)
    frozen = torch.nn.Linear(2, 2).requires_grad_(False)
    config = policies.Optimization(lr=0.1, weight_decay=0.5)
    optimizer = policies.adam(torch.nn.ModuleList([layer, frozen]), config)
    before = [p.detach().clone() for p in (layer.weight, layer.bias)]
    for p in layer.parameters():
        p.grad = torch.zeros_like(p)
    optimizer.step()
    assert_close(layer.weight.detach(), before[0] * (1 - 0.1 * 0.5))
    assert_close(layer.bias.detach(), before[1], rtol=0, atol=0)
    assert sum(len(group["params"]) for group in optimizer.param_groups) == 2


def test_the_first_step_of_adam_is_the_learning_rate_against_the_gradients_sign() -> None:
    layer = torch.nn.Linear(1, 3)
    before = layer.weight.detach().clone()
    layer.weight.grad = torch.tensor([[2.0], [-0.5], [7.0]])
    policies.adam(layer, policies.Optimization(lr=0.1, adam_eps=1e-12)).step()
    assert_close(layer.weight.detach(), before - 0.1 * torch.tensor([[1.0], [-1.0], [1.0]]))


def test_the_generators_of_a_policy_are_found_by_name() -> None:
    assert list(seeding.generators(policies.Actor(fake_env(), policies.Network()))) == ["generator"]
