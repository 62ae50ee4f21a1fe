"""SAC and TD3: losses and gradients by TorchRL's, the squashed density by integration, the delay of the actor."""

import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from support.fakes import Ring, Walk, algorithm, control, iterate, pendulum
from tensordict import TensorDict
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import policies
from rlkit.api import UserError
from rlkit.loop import learn
from rlkit.meter import Meter
from rlkit.policies import distributions
from rlkit.policies.twins import LOG_STD

GAMMA = 0.96875


def continuous(low: float = -1.0, high: float = 1.0, size: int = 2) -> Any:
    env = control(Ring, 8, 3)
    env.observation_space, env.action_space = Box(-1, 1, (3,)), Box(low, high, (size,))
    return env


def drawn_batch(space: Box, rows: int = 32) -> TensorDict:
    """Steps as a replay hands them out, in double precision."""
    draw = torch.Generator().manual_seed(0)
    observation, after = torch.randn(2, rows, 3, generator=draw, dtype=torch.float64)
    unit = torch.rand(rows, *space.shape, generator=draw, dtype=torch.float64)
    data = {"observation": observation, "next_observation": after}
    data |= {"action": torch.as_tensor(space.low) + unit * torch.as_tensor(space.high - space.low)}
    data |= {"reward": 3 * torch.randn(rows, generator=draw, dtype=torch.float64)}
    data |= {"terminated": torch.rand(rows, generator=draw) < 0.3, "mask": torch.ones(rows, dtype=torch.bool)}
    data |= {
        "discount": torch.full((rows,), GAMMA).double(),
        "weight": torch.rand(rows, generator=draw).double() / rows,
    }
    return TensorDict(data, batch_size=[rows])


def single(batch: TensorDict) -> TensorDict:
    return batch.apply(lambda x: x.float() if x.is_floating_point() else x)


def moved(algo: Any) -> Any:
    """In double precision, with targets that are not the policy and weights beyond their small beginning."""
    for part in (algo.policy, algo.target, *([algo.temperature] if hasattr(algo, "temperature") else [])):
        part.double()
    draw = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in (*algo.target.parameters(), *algo.policy.actor.parameters()):
            p += 0.2 * torch.randn(p.shape, generator=draw, dtype=p.dtype)
    return algo


class Joined(nn.Module):
    """A critic of observation and action."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        out: Tensor = self.net(observation, action)
        return out.unsqueeze(-1)


def in_their_layout(batch: TensorDict) -> TensorDict:
    successor = {"observation": batch["next_observation"], "reward": batch["reward"][:, None]}
    successor |= dict.fromkeys(("done", "terminated"), batch["terminated"][:, None])
    return TensorDict({"observation": batch["observation"], "action": batch["action"], "next": successor}, [len(batch)])


def gradients(total: Tensor, parameters: Any) -> list[Tensor]:
    return [g.flatten() for g in torch.autograd.grad(total, list(parameters), retain_graph=True)]


def check_against(algo: Any, oracle: Any, loss: Tensor, theirs: Tensor) -> None:
    """Value, and gradients of the actor and both critics, which TorchRL stacks."""
    assert_close(loss, theirs)
    found = torch.cat(gradients(loss, algo.policy.actor.parameters()))
    assert_close(found, torch.cat(gradients(theirs, oracle.actor_network_params.values(True, True))))
    stacked = torch.autograd.grad(theirs, list(oracle.qvalue_network_params.values(True, True)), retain_graph=True)
    for i, critic in enumerate(algo.policy.critics):
        named = dict(zip(oracle.qvalue_network_params.keys(True, True), stacked, strict=True))
        of_each = {".".join(key[-3:]): g[i] for key, g in named.items()}
        ours = torch.autograd.grad(loss, list(critic.parameters()), retain_graph=True)
        for (name, _), g in zip(critic.named_parameters(), ours, strict=True):
            assert_close(g, of_each[name])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("learned", [True, False])
def test_sac_is_torchrls_loss_in_value_and_gradient(learned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    objectives = pytest.importorskip("torchrl.objectives")
    from tensordict.nn import TensorDictModule
    from torchrl.data import Bounded
    from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator

    space = Box(-1, 1, (2,))
    network = policies.Network(hidden=(16, 16), activation="relu", fast=False)
    algo = moved(algorithm("sac", continuous(), network, gamma=GAMMA, temperature=0.3, learn_temperature=learned))
    batch = drawn_batch(space)
    noise = torch.randn(2, 32, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    monkeypatch.setattr(torch, "randn", lambda *_, **__: noise[int(torch.is_grad_enabled())])

    class Fed(TanhNormal):
        """Draws by the same noise, where TorchRL draws."""

        def rsample(self, sample_shape: Any = ()) -> Tensor:
            return (self.loc + self.scale * noise[int(torch.is_grad_enabled())]).tanh()

        def rsample_and_log_prob(self, *_: Any, **__: Any) -> tuple[Tensor, Tensor]:
            action = self.rsample()
            return action, self.log_prob(action)

    class Parameters(nn.Module):
        def __init__(self, net: nn.Module) -> None:
            super().__init__()
            self.net = net

        def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
            mean, log_std = self.net(observation).chunk(2, -1)
            return mean, log_std.clamp(*LOG_STD).exp()

    spec = Bounded(-torch.ones(2), torch.ones(2), (2,), dtype=torch.float64)
    module = TensorDictModule(Parameters(algo.policy.actor), in_keys=["observation"], out_keys=["loc", "scale"])
    keys = {"in_keys": ["loc", "scale"], "distribution_class": Fed, "return_log_prob": True, "spec": spec}
    actor = ProbabilisticActor(module, distribution_kwargs={"tanh_loc": False}, **keys)
    critics = [ValueOperator(Joined(c), in_keys=["observation", "action"]) for c in algo.policy.critics]
    options = {"loss_function": "l2", "alpha_init": 0.3, "fixed_alpha": not learned, "reduction": "none"}
    oracle = objectives.SACLoss(actor, critics, action_spec=spec, **options)
    oracle.make_value_estimator(oracle.default_value_estimator, gamma=GAMMA)
    oracle.double()
    targets = torch.stack([TensorDict.from_module(ValueOperator(Joined(c))) for c in algo.target.critics])
    oracle.target_qvalue_network_params.data.update_(targets.data)
    loss, metrics = algo.loss(batch)
    out = oracle(in_their_layout(batch))
    # Theirs is (Q - y)² of each critic, ours half of it.
    theirs = (batch["weight"] * (out["loss_actor"] + 0.5 * out["loss_qvalue"])).sum()
    entropy = (batch["weight"] * algo.temperature.log_alpha * (metrics["entropy"] + 2)).sum()
    check_against(algo, oracle, loss, theirs + entropy.detach())
    if learned:
        (ours,) = torch.autograd.grad(loss, algo.temperature.log_alpha, retain_graph=True)
        (of_alpha,) = torch.autograd.grad((batch["weight"] * out["loss_alpha"]).sum(), oracle.log_alpha)
        assert_close(ours, of_alpha)


@pytest.mark.filterwarnings("ignore")
def test_td3_is_torchrls_loss_in_value_and_gradient(monkeypatch: pytest.MonkeyPatch) -> None:
    objectives = pytest.importorskip("torchrl.objectives")
    from tensordict.nn import TensorDictModule
    from torchrl.modules import ValueOperator

    network = policies.Network(hidden=(16, 16), fast=False)
    algo = moved(algorithm("td3", continuous(), network, gamma=GAMMA, policy_delay=1, target_noise=0.4))
    batch = drawn_batch(Box(-1, 1, (2,)))
    noise = torch.randn(32, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    monkeypatch.setattr(torch, "randn", lambda *_, **__: noise)
    monkeypatch.setattr(torch, "randn_like", lambda *_, **__: noise)
    actor = TensorDictModule(nn.Sequential(algo.policy.actor, nn.Tanh()), in_keys=["observation"], out_keys=["action"])
    critics = [ValueOperator(Joined(c), in_keys=["observation", "action"]) for c in algo.policy.critics]
    options = {"bounds": (-1.0, 1.0), "loss_function": "l2", "policy_noise": 0.4, "noise_clip": 0.5}
    oracle = objectives.TD3Loss(actor, critics, delay_actor=True, reduction="none", **options)
    oracle.make_value_estimator(oracle.default_value_estimator, gamma=GAMMA)
    oracle.double()
    targets = torch.stack([TensorDict.from_module(ValueOperator(Joined(c))) for c in algo.target.critics])
    oracle.target_qvalue_network_params.data.update_(targets.data)
    late = TensorDict.from_module(TensorDictModule(nn.Sequential(algo.target.actor, nn.Tanh()), ["o"], ["a"]))
    oracle.target_actor_network_params.data.update_(late.data)
    loss, _ = algo.loss(batch)
    out = oracle(in_their_layout(batch))
    theirs = (batch["weight"] * (out["loss_actor"] + 0.5 * out["loss_qvalue"])).sum()
    check_against(algo, oracle, loss, theirs)


# The squashed Gaussian


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


# Fixed points and limits


def test_the_soft_values_of_discrete_actions_are_exact() -> None:
    """One state, two actions, each ends the episode: π is softmax(Q / α), which the loss of the actor is least at."""
    env = control(Walk, 1, 6)
    algo = algorithm("sac", env, policies.Network(hidden=()), temperature=0.5, learn_temperature=False, lr=0.05)
    state = torch.full((64,), 3)
    data = {"observation": state, "next_observation": state, "action": torch.arange(64) % 2}
    data |= {
        "reward": torch.where(torch.arange(64) % 2 == 1, 1.0, 0.25),
        "terminated": torch.ones(64, dtype=torch.bool),
    }
    data |= {"discount": torch.full((64,), 0.9), "weight": torch.full((64,), 1 / 64)}
    data |= {"mask": torch.ones(64, dtype=torch.bool)}
    algo.buffer = [TensorDict(data, batch_size=[64])] * 1500
    learn(algo, Meter())
    q = algo.policy.all_actions(state[:1])
    assert_close(q, torch.tensor([[[0.25, 1.0]]]).expand(2, 1, 2), atol=1e-3, rtol=0)
    probability = algo.policy.choices(state[:1]).probability[0]
    assert_close(probability, torch.tensor([0.25, 1.0]).div(0.5).softmax(-1), atol=5e-3, rtol=0)


def test_the_temperature_falls_while_there_is_more_entropy_than_wanted() -> None:
    for target, falls in ((-20.0, True), (20.0, False)):
        algo = algorithm("sac", continuous(), policies.Network(), target_entropy=target, lr=0.01)
        algo.buffer = [single(drawn_batch(Box(-1, 1, (2,))))]
        learn(algo, Meter())
        assert (float(algo.temperature()) < 1.0) is falls


# The delayed actor


@pytest.mark.parametrize("flat", [True, False])
def test_the_actor_and_the_targets_of_td3_wait(flat: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if not flat:
        monkeypatch.setattr("rlkit.policies.optimizers.can_be_flat", lambda _: False)
    algo = algorithm("td3", continuous(), policies.Network(), policy_delay=3)
    seen = []
    for _ in range(6):
        parts = (algo.policy.actor, algo.policy.critics, algo.target)
        before = [nn.utils.parameters_to_vector(part.parameters()).clone() for part in parts]
        algo.buffer = [single(drawn_batch(Box(-1, 1, (2,))))]
        learn(algo, Meter())
        after = [nn.utils.parameters_to_vector(part.parameters()) for part in parts]
        seen.append([not torch.equal(a, b) for a, b in zip(before, after, strict=True)])
    assert seen == [[False, True, False]] * 2 + [[True, True, True]] + [[False, True, False]] * 2 + [[True, True, True]]
    steps = {float(algo.optimizer.state[p]["step"]) for p in algo.policy.actor.parameters()}
    assert steps == {2.0}


def test_a_group_that_is_frozen_is_skipped_as_torch_skips_it() -> None:
    """One group learns in each second step only: the flat optimizer against torch's own."""
    found = []
    for kind in (policies.flat.FlatAdamW, torch.optim.AdamW):
        parts = [nn.Parameter(torch.linspace(-1, 1, 5)), nn.Parameter(torch.linspace(0, 1, 4))]
        optimizer = kind([{"params": [p]} for p in parts], lr=0.1)
        for step in range(6):
            optimizer.zero_grad()
            parts[1].requires_grad_(step % 2 == 1)
            sum(p.square().sum() for p in parts if p.requires_grad).backward()
            optimizer.step()
        found.append(torch.cat([p.detach() for p in parts]))
    assert_close(*found, rtol=1e-6, atol=1e-6)


# What each learns, and what is refused


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_the_best_of_a_line_is_found(name: str) -> None:
    """Reward −(a − 3)² in a box from 0 to 10, one step each."""
    env = continuous(0.0, 10.0, size=1)
    network = policies.Network(hidden=(32,), activation="relu")
    algo = algorithm(name, env, network, lr=5e-3, batch_size=64, updates=1500, warmup_steps=1)
    action = 10 * torch.rand(1000, 1, generator=torch.Generator().manual_seed(0))
    data = {"observation": torch.zeros(1, 1000, 3), "next_observation": torch.zeros(1, 1000, 3)}
    data |= {"action": action[None], "reward": -(action[None, :, 0] - 3).square()}
    data |= dict.fromkeys(("terminated", "done", "mask"), torch.ones(1, 1000, dtype=torch.bool))
    algo.buffer.extend(algo.credit(TensorDict(data, batch_size=[1])))
    learn(algo, Meter())
    with torch.no_grad():
        best = algo.policy.act(torch.zeros(1, 3), greedy=True)
    assert float(best) == pytest.approx(3, abs=0.5)


@pytest.mark.parametrize(
    ("name", "space", "words"),
    [
        ("td3", Discrete(3), "needs continuous actions and here they are Discrete"),
        ("td3", Box(-1, float("inf"), (2,)), "finite bounds"),
        ("sac", Box(-float("inf"), 1, (2,)), "finite bounds"),
        ("sac", MultiDiscrete([2, 3]), "MultiDiscrete"),
    ],
)
def test_actions_that_do_not_fit_are_refused(name: str, space: Any, words: str) -> None:
    env = continuous()
    env.action_space = space
    with pytest.raises(UserError, match=words):
        algorithm(name, env, policies.Network())


def test_a_box_without_width_is_refused() -> None:
    env = continuous()
    env.action_space = Box(torch.tensor([0.0, 1.0]).numpy(), torch.tensor([1.0, 1.0]).numpy())
    with pytest.raises(UserError, match="low below high"):
        algorithm("sac", env, policies.Network())


@pytest.mark.parametrize("name", ["sac", "td3"])
def test_prioritized_steps_and_sums_of_rewards(name: str) -> None:
    env = pendulum(2, 20)
    keys = {"prioritized": True, "n_step": 3, "capacity": 64, "warmup_steps": 16, "batch_size": 8, "steps": 4}
    algo = algorithm(name, env, policies.Network(hidden=(8,)), **keys)
    for _ in range(40):
        iterate(algo, env)
    assert algo.updates == 38 and len(algo.buffer) == 64
    assert algo.buffer.store["discount"].unique().tolist() == pytest.approx([0.99**3, 0.99**2, 0.99])
    assert math.isfinite(algo.buffer.tree.total) and algo.buffer.tree.priority.std() > 0


@pytest.mark.parametrize("make", ["q_network", "twin_critics"])
def test_what_takes_several_choices_is_named(make: str) -> None:
    """Neither is sent to the other, which takes no more of them."""
    env = SimpleNamespace(
        kind="control", observation_space=Box(-1, 1, (2,)), action_space=MultiDiscrete([2, 3]), device="cpu", seed=0
    )
    with pytest.raises(UserError, match=r"MultiDiscrete\(\[2 3\]\); use algo=ppo$"):
        getattr(policies.Network(), make)(env)
