"""Optimizers whose tensors lie in one: their numbers and their state are those of torch's own."""

import copy

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from rlkit import policies
from rlkit.policies.flat import MOST, Flat, can_be_flat


def network() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2))


def pair(kind: str, decay: float = 0.0):
    """The same network under an optimizer of ours and under torch's."""
    config = policies.Optimization(lr=0.05, weight_decay=decay, beta2=0.9, adam_eps=1e-3)
    ours, theirs = network(), network()
    flat = (policies.adam if kind == "adam" else policies.rmsprop)(ours, config)
    if kind == "adam":
        groups = [{"params": [p for p in theirs.parameters() if p.dim() >= 2], "weight_decay": decay}] if decay else []
        rest = [p for p in theirs.parameters() if p.dim() < 2 or not decay]
        torchs = torch.optim.AdamW(
            [*groups, {"params": rest, "weight_decay": 0.0}], lr=0.05, betas=(0.9, 0.9), eps=1e-3, fused=True
        )
    else:
        torchs = torch.optim.RMSprop(theirs.parameters(), lr=0.05, alpha=0.9, eps=1e-3)
    assert isinstance(flat, Flat)
    return (ours, flat), (theirs, torchs)


def step(net: nn.Module, optimizer: torch.optim.Optimizer, seed: int, limit: float) -> float:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    optimizer.zero_grad()
    net(x).square().sum().backward()
    norm = policies.clip_gradients(optimizer, limit)
    optimizer.step()
    return float(norm)


@pytest.mark.parametrize(("kind", "decay"), [("adam", 0.0), ("adam", 0.3), ("rmsprop", 0.0)])
@pytest.mark.parametrize("limit", [0.5, float("inf")])
def test_steps_are_those_of_torch(kind: str, decay: float, limit: float) -> None:
    both = pair(kind, decay)
    for seed in range(5):
        norms = [step(net, optimizer, seed, limit) for net, optimizer in both]
        assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    for ours, theirs in zip(both[0][0].parameters(), both[1][0].parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_the_state_is_that_of_torch_and_goes_both_ways(kind: str) -> None:
    (ours, flat), (theirs, torchs) = pair(kind)
    assert flat.state_dict()["state"] == {} == torchs.state_dict()["state"]  # before the first step
    for seed in range(3):
        step(ours, flat, seed, 1.0), step(theirs, torchs, seed, 1.0)
    a, b = flat.state_dict()["state"], torchs.state_dict()["state"]
    assert {i: set(x) for i, x in a.items()} == {i: set(x) for i, x in b.items()}
    for i in a:
        for key in a[i]:
            assert_close(torch.as_tensor(a[i][key]), torch.as_tensor(b[i][key]), rtol=1e-4, atol=1e-6)
    (again, fresh), _ = pair(kind)
    again.load_state_dict(theirs.state_dict())
    fresh.load_state_dict(copy.deepcopy(torchs.state_dict()))
    for seed in range(3, 6):
        step(again, fresh, seed, 1.0), step(theirs, torchs, seed, 1.0)
    for p, q in zip(again.parameters(), theirs.parameters(), strict=True):
        assert_close(p, q, rtol=1e-5, atol=1e-6)
    fresh.load_state_dict(pair(kind)[0][1].state_dict())  # of one that made no step
    assert fresh.state_dict()["state"] == {}


def test_a_gradient_that_was_set_or_taken_away_from_outside_counts() -> None:
    (net, flat), _ = pair("rmsprop")
    before = [p.detach().clone() for p in net.parameters()]
    net[0].weight.grad = torch.ones_like(net[0].weight)
    net[0].bias.grad = None
    flat.step()
    after = list(net.parameters())
    assert (after[0] < before[0]).all()
    assert torch.equal(after[1], before[1])
    flat.zero_grad()
    assert all(not p.grad.any() for p in net.parameters())


def test_hooks_around_a_step_are_called() -> None:
    (net, flat), _ = pair("adam")
    called: list[str] = []
    flat.register_step_pre_hook(lambda *_: called.append("before"))
    flat.register_step_post_hook(lambda *_: called.append("after"))
    step(net, flat, 0, 1.0)
    assert called == ["before", "after"]


def test_a_norm_that_is_not_a_number_is_told() -> None:
    (net, flat), _ = pair("adam")
    net[0].weight.grad = torch.full_like(net[0].weight, float("nan"))
    assert not policies.clip_gradients(flat, 1.0).isfinite()


def test_large_mixed_and_shared_parameters_stay_as_they_are() -> None:
    shared = torch.zeros(4)
    assert can_be_flat([torch.zeros(3), torch.zeros(2, 2)])
    assert not can_be_flat([shared[:2], shared[2:]])
    assert not can_be_flat([torch.zeros(3), torch.zeros(2, dtype=torch.float64)])
    assert not can_be_flat([torch.zeros(MOST + 1)])
    assert not can_be_flat([])
    large = nn.Linear(MOST, 1)
    assert not isinstance(policies.adam(large, policies.Optimization()), Flat)
    assert policies.clip_gradients(torch.optim.SGD(large.parameters(), lr=1.0), 1.0) == 0


def test_a_copy_and_parameters_with_other_memory_go_on_learning() -> None:
    (net, flat), _ = pair("adam")
    step(net, flat, 0, 1.0)
    (other, again) = copy.deepcopy((net, flat))
    for seed in (1, 2):
        step(net, flat, seed, 1.0), step(other, again, seed, 1.0)
    for p, q in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.equal(p, q) and p.data_ptr() != q.data_ptr()
    nn.utils.vector_to_parameters(torch.full((32,), 0.1), net.parameters())
    step(net, flat, 3, 1.0)
    moved = nn.utils.parameters_to_vector(net.parameters())
    assert 0 < float((moved - 0.1).abs().max()) < 0.1


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_more_parameters_can_come_later(kind: str) -> None:
    both = pair(kind)
    heads = []
    for net, optimizer in both:
        for seed in range(3):
            step(net, optimizer, seed, 1.0)
        torch.manual_seed(2)
        heads.append(nn.Linear(2, 2))
        optimizer.add_param_group({"params": list(heads[-1].parameters()), "lr": 0.01})
        for seed in range(3):
            step(nn.Sequential(net, heads[-1]), optimizer, seed, 1.0)
    nets = [nn.Sequential(net, head) for (net, _), head in zip(both, heads, strict=True)]
    for ours, theirs in zip(nets[0].parameters(), nets[1].parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match=r"use torch\.optim"):
        both[0][1].add_param_group({"params": [nn.Parameter(torch.zeros(2, dtype=torch.float64))]})


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_a_closure_is_called_for_the_loss(kind: str) -> None:
    both, losses = pair(kind), []
    for net, optimizer in both:
        before = [p.detach().clone() for p in net.parameters()]

        def closure(net: nn.Module = net) -> torch.Tensor:
            net.zero_grad()
            loss = net(torch.ones(4, 3)).square().sum()
            loss.backward()
            return loss

        losses.append([float(optimizer.step(closure).detach()) for _ in range(3)])
        assert all(not torch.equal(p, x) for p, x in zip(net.parameters(), before, strict=True))
    assert losses[0] == pytest.approx(losses[1], rel=1e-5)
    for ours, theirs in zip(both[0][0].parameters(), both[1][0].parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", ["adam", "rmsprop"])
def test_parameters_that_are_frozen_later_stay(kind: str) -> None:
    both = pair(kind)
    for net, optimizer in both:
        step(net, optimizer, 0, 1.0)
        net[0].requires_grad_(False)
        kept = [p.clone() for p in net[0].parameters()]
        for seed in range(1, 3):
            step(net, optimizer, seed, 1.0)
        assert all(torch.equal(p, x) for p, x in zip(net[0].parameters(), kept, strict=True))
    for ours, theirs in zip(both[0][0].parameters(), both[1][0].parameters(), strict=True):
        assert_close(ours, theirs, rtol=1e-5, atol=1e-6)


def test_gradients_that_are_set_to_none_behind_the_clip_count_as_0() -> None:
    (net, optimizer), _ = pair("rmsprop")
    net(torch.ones(4, 3)).square().sum().backward()
    optimizer.clip(1.0)
    net.zero_grad()
    before = [p.detach().clone() for p in net.parameters()]
    optimizer.step()
    assert all(torch.equal(p, x) for p, x in zip(net.parameters(), before, strict=True))


@pytest.mark.parametrize("change", [{"$items": None}, {0: {"step": 1.0, "exp_avg": torch.ones(1)}}])
def test_a_state_of_other_parameters_is_refused(change: dict[object, object]) -> None:
    (_, optimizer), _ = pair("adam")
    optimizer.step()
    state = optimizer.state_dict()
    with pytest.raises(ValueError, match=r"of what is not a parameter|exp_avg has the shape \(1,\), not \(5, 3\)"):
        optimizer.load_state_dict({**state, "state": {**state["state"], **change}})
