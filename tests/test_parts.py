"""A minibatch is learned in parts: what a loss may do to optimizers of the algorithm's own meanwhile."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.fakes import RaggedText, credited, on_text
from support.state import holding
from tensordict import TensorDict
from torch import nn

from rlkit import gradients, losses, policies, ranks
from rlkit.errors import UserError
from rlkit.loop import learn
from rlkit.meter import Meter
from rlkit.moments import takes_hooks

STEP, ZERO = "loss steps an optimizer by the gradient of one part", "loss sets gradients to zero"
OPTIMIZERS: dict[str, Callable[[nn.Module], torch.optim.Optimizer]] = {
    "flat": lambda net: policies.adam(net, policies.Optimization()),
    "fused": lambda net: torch.optim.AdamW(net.parameters(), fused=True),
    "plain": lambda net: torch.optim.SGD(net.parameters()),
}
FORBIDDEN: dict[str, tuple[str, Callable[[nn.Module, torch.optim.Optimizer], object]]] = {
    "a step": (STEP, lambda net, optimizer: optimizer.step()),
    "zero_grad of the optimizer": (ZERO, lambda net, optimizer: optimizer.zero_grad()),
    "zeros in place": (ZERO, lambda net, optimizer: optimizer.zero_grad(set_to_none=False)),
    "zero_grad of the module": (ZERO, lambda net, optimizer: net.zero_grad()),
    "no gradient": (ZERO, lambda net, optimizer: [setattr(p, "grad", None) for p in net.parameters()]),
}


@pytest.mark.parametrize("forbidden", FORBIDDEN)
@pytest.mark.parametrize("kind", OPTIMIZERS)
def test_a_step_or_a_zero_before_the_parts_have_added_up_is_refused(kind: str, forbidden: str) -> None:
    net = nn.Linear(3, 1)
    second = OPTIMIZERS[kind](net)
    said, act = FORBIDDEN[forbidden]
    net(torch.ones(4, 3)).sum().backward()
    with pytest.raises(UserError, match=said), gradients.Parts([second], False) as parts:
        parts.check()
        act(net, second)
        parts.check()
    second.step()
    second.zero_grad()
    assert not any(p.grad.any() for p in net.parameters() if p.grad is not None)


def test_a_backward_of_a_loss_is_no_zero() -> None:
    """Also where a gradient is 0 so far."""
    net = nn.Linear(3, 1, bias=False)
    net(torch.zeros(4, 3)).sum().backward()
    with gradients.Parts([OPTIMIZERS["plain"](net)], False) as parts:
        for scale in (0.0, 1.0):
            net(scale * torch.ones(4, 3)).sum().backward()
            parts.check()
            parts.note()


def test_two_optimizers_with_one_dict_are_left_as_they_were() -> None:
    second = torch.optim.SGD(nn.Linear(3, 1).parameters())
    third = torch.optim.SGD.__new__(torch.optim.SGD)
    third.__dict__ = second.__dict__
    with gradients.Parts([second, third], False):
        pass
    assert "zero_grad" not in vars(second)


def test_an_optimizer_that_saved_names_in_a_part_counts() -> None:
    algo, _ = holding("helper", SimpleNamespace(opt=torch.optim.SGD([torch.ones(1, requires_grad=True)])))
    assert gradients.all_optimizers(algo) == [algo.optimizer]
    algo.saved = (*algo.saved, "helper.opt")
    assert gradients.all_optimizers(algo) == [algo.optimizer, algo.helper.opt]
    algo.helper.inner = SimpleNamespace(net=nn.Linear(1, 1), opt=torch.optim.SGD([torch.ones(1, requires_grad=True)]))
    algo.saved = (*algo.saved[:-1], "helper.inner.net")  # it is stepped, and has nothing that a checkpoint would need
    assert gradients.all_optimizers(algo) == [algo.optimizer, algo.helper.opt, algo.helper.inner.opt]


def test_ranks_refuse_to_add_up_sparse_gradients() -> None:
    net = nn.Embedding(4, 2, sparse=True)
    with gradients.Parts([torch.optim.SparseAdam(net.parameters())], True) as parts:
        net(torch.tensor([1, 2])).sum().backward()
        parts.check()
    with pytest.raises(UserError, match="ranks add up dense gradients only"):
        parts.add_up(1.0)


def test_an_optimizer_with_a_zero_grad_of_its_own_gets_it_back() -> None:
    second = torch.optim.SGD(nn.Linear(3, 1).parameters())
    second.zero_grad = own = lambda set_to_none=True: None  # type: ignore[method-assign]
    with gradients.Parts([second], False):
        assert second.zero_grad is not own
    assert second.zero_grad is own


def test_an_optimizer_that_takes_no_hooks_is_let_be() -> None:
    second = torch.optim.SGD(nn.Linear(3, 1).parameters())
    second._optimizer_step_pre_hooks = {}  # type: ignore[assignment]
    with gradients.Parts([second], False):
        assert not takes_hooks(second)


def test_an_optimizer_inside_another_counts() -> None:
    outer, middle, inner = (torch.optim.SGD([torch.ones(1, requires_grad=True)]) for _ in range(3))
    outer._optimizer_step_pre_hooks = {}  # type: ignore[assignment]
    vars(outer)["held"], vars(middle)["held"] = [middle], inner
    algo, _ = holding("outer", outer)
    assert gradients.all_optimizers(algo) == [outer, middle, inner, algo.optimizer]


def test_only_the_first_rank_keeps_what_was_added_up_before(monkeypatch: pytest.MonkeyPatch) -> None:
    for rank, kept in ((0, 4.0), (1, 0.0)):
        monkeypatch.setattr(ranks, "rank", lambda rank=rank: rank)
        net = nn.Linear(3, 1)
        second = OPTIMIZERS["plain"](net)
        net(torch.ones(4, 3)).sum().backward()
        with gradients.Parts([second], True):
            assert net.bias.grad is not None and net.bias.grad.item() == kept


def with_critic(where: str, micro_steps: int | None) -> Any:
    """REINFORCE on texts, whose loss also teaches a critic that has an optimizer of its own."""
    env = RaggedText(rows=12)
    algo = on_text("reinforce", env)
    batch = credited(algo, algo.rollout(env))
    algo.buffer, algo.policy.micro_steps = [batch, batch], micro_steps
    algo.critic = nn.Linear(1, 1).double()
    with torch.no_grad():
        algo.critic.weight.fill_(0.5)
        algo.critic.bias.fill_(0.25)
    algo.second = torch.optim.SGD(algo.critic.parameters(), lr=0.1)
    plain = algo.loss

    def loss(part: TensorDict) -> tuple[torch.Tensor, dict[str, Any]]:
        if where == "loss":
            algo.second.zero_grad()
        value = algo.critic(part["observation"].double().unsqueeze(-1)).squeeze(-1)
        found, metrics = plain(part)
        return found + losses.weighted(losses.squared_error(value, part["advantage"]), part["weight"]), metrics

    def after_step(learned: object) -> None:
        algo.second.step()
        if where == "after_step":
            algo.second.zero_grad()

    algo.loss, algo.after_step = loss, after_step
    return algo


def test_a_loss_that_compares_all_steps_sees_whole_minibatches() -> None:
    """Whatever policy.micro_steps is; an optimizer of its own it may step itself."""
    algo = with_critic("after_step", 8)
    seen: list[int] = []
    plain, whole = algo.loss, [len(batch) for batch in algo.buffer]

    def loss(part: TensorDict) -> tuple[torch.Tensor, dict[str, Any]]:
        seen.append(len(part))
        algo.second.zero_grad()
        found: tuple[torch.Tensor, dict[str, Any]] = plain(part)
        return found

    algo.loss, algo.divides = loss, False
    learn(algo, Meter())
    assert seen == whole
    algo.divides = True
    with pytest.raises(UserError, match=ZERO):
        learn(algo, Meter())
    assert seen[-1] < whole[0]


@pytest.mark.parametrize("where", ["after_step", "loss"])
def test_an_own_optimizer_learns_from_all_micro_batches_or_is_refused(where: str) -> None:
    moved = []
    for micro_steps in (None, 8):
        algo = with_critic(where, micro_steps)
        if where == "loss" and micro_steps:
            with pytest.raises(UserError, match=ZERO):
                learn(algo, Meter())
            return
        learn(algo, Meter())
        moved.append(torch.cat([p.detach().flatten() for p in algo.critic.parameters()]))
    assert not torch.equal(moved[0], torch.tensor([0.5, 0.25], dtype=torch.float64))
    torch.testing.assert_close(*moved)
