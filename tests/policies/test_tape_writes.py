"""A loss that writes into what was read before it: autograd's gradient, or one line where autograd refuses."""

from collections.abc import Callable

import pytest
import torch
from support.small_networks import network
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import losses
from rlkit.errors import UserError
from rlkit.policies.distributions import categorical, pick, squashed
from rlkit.tape import Tape, tanh

Batch = dict[str, Tensor]
Learns = Callable[[nn.Module, Batch], Tensor]


def batch() -> Batch:
    draw = torch.Generator().manual_seed(0)
    seen, advantage, weight = (
        torch.randn(*shape, generator=draw, dtype=torch.float64) for shape in ((6, 3), (6,), (6,))
    )
    return {"seen": seen, "action": torch.tensor([0, 1, 3, 3, 2, 0]), "advantage": advantage, "weight": weight.abs()}


def writes_advantage(net: nn.Module, x: Batch) -> Tensor:
    each = losses.policy_gradient(categorical(net(x["seen"]), x["action"])[0], x["advantage"])
    x["advantage"].abs_()  # for a metric
    return losses.weighted(each, x["weight"])


def writes_entropy(net: nn.Module, x: Batch) -> Tensor:
    log_prob, entropy = categorical(net(x["seen"]), x["action"])
    loss = losses.weighted(losses.policy_gradient(log_prob, x["advantage"]), x["weight"]) - entropy.sum()
    entropy.detach().neg_()
    return loss


def writes_weight(net: nn.Module, x: Batch) -> Tensor:
    loss = losses.weighted(losses.squared_error(pick(net(x["seen"]), x["action"]), x["advantage"]), x["weight"])
    x["weight"] /= x["weight"].max()
    return loss


def writes_seen(net: nn.Module, x: Batch) -> Tensor:
    out = net(x["seen"])
    x["seen"] -= 1
    return out.square().sum()


def writes_action(net: nn.Module, x: Batch) -> Tensor:
    loss = categorical(net(x["seen"]), x["action"])[0].sum()
    x["action"].zero_()
    return loss


def writes_picked(net: nn.Module, x: Batch) -> Tensor:
    loss = pick(net(x["seen"]), x["action"]).square().sum()
    x["action"].zero_()
    return loss


def writes_weights(net: nn.Module, x: Batch) -> Tensor:
    out = net(x["seen"])
    with torch.no_grad():
        net.get_parameter("2.weight").mul_(0.5)
    return out.square().sum()


def writes_squashed(net: nn.Module, x: Batch) -> Tensor:
    action, log_prob = squashed(net(x["seen"]), torch.ones(6, 2, dtype=torch.float64), -5, 2)
    loss = action.sum() + log_prob.sum()
    action.detach().zero_()
    return loss


def writes_tanh(net: nn.Module, x: Batch) -> Tensor:
    bounded = tanh(net(x["seen"]))
    loss = bounded.sum()
    bounded.detach().zero_()
    return loss


def writes_what_gets_no_gradient(net: nn.Module, x: Batch) -> Tensor:
    kept = net(x["seen"].clone()).square().sum()
    unused = net(x["seen"])
    x["seen"] -= 1
    return kept + unused.detach().sum()


def by(learns: Learns, fast: bool) -> list[Tensor]:
    torch.manual_seed(0)
    net, x = network(nn.Tanh, 3, 8, 4), batch()
    if not fast:
        learns(net_of := nn.Sequential(*net), x).backward()
        return [p.grad for p in net_of.parameters() if p.grad is not None]
    with Tape() as tape:
        loss = learns(net, x)
    tape.backward(loss)
    return [p.grad for p in net.parameters() if p.grad is not None]


@pytest.mark.parametrize("learns", [writes_advantage, writes_entropy, writes_what_gets_no_gradient])
def test_what_autograd_has_no_need_of_may_be_written_into(learns: Learns) -> None:
    for ours, known in zip(by(learns, True), by(learns, False), strict=True):
        assert_close(ours, known)


@pytest.mark.parametrize(
    "learns",
    [writes_weight, writes_seen, writes_action, writes_picked, writes_weights, writes_squashed, writes_tanh],
)
def test_what_autograd_refuses_is_one_line(learns: Learns) -> None:
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        by(learns, False)
    with pytest.raises(
        UserError, match=r"^loss writes into a tensor that a network or a loss of rlkit has read before"
    ):
        by(learns, True)
