"""The losses of SAC and TD3 in value and gradient, against those of TorchRL."""

from typing import Any

import pytest
import torch
from gymnasium.spaces import Box
from support.boxes import GAMMA, continuous, drawn_batch
from support.fakes import algorithm
from tensordict import TensorDict
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import policies
from rlkit.policies.twins import LOG_STD


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
    check_against(algo, oracle, loss, theirs + entropy.detach() if learned else theirs)
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
