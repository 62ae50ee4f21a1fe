"""Gradients of small networks on a CPU, without what autograd costs for each operation.

Autograd takes as long for a layer of 64 units as the layer itself. On a tape the layers are computed forward and
backward by hand, and autograd sees their results as leaves: a loss is written as for any network.

    with Tape() as tape:
        loss = ...       # networks and losses that can, note down how to go back
    tape.backward(loss)  # the gradient of the leaves, and from there that of the parameters
"""

from collections.abc import Callable
from threading import local
from typing import Self

import torch
from torch import Tensor, nn

from rlkit.errors import UserError

_open = local()  # each thread has its own


class Tape:
    """Records computations with hand-written gradients while it is open. The loop opens one around each loss."""

    def __init__(self) -> None:
        self.notes: list[tuple[tuple[Tensor, ...], Callable[..., None], list[tuple[Tensor, int]]]] = []
        self.leaves: set[int] = set()  # ids of all results, which the notes keep alive

    def __enter__(self) -> Self:
        self._before, _open.tape = current(), self
        return self

    def __exit__(self, *_: object) -> None:
        _open.tape = self._before

    def note(
        self, results: tuple[Tensor, ...], back: Callable[..., None], reads: tuple[Tensor, ...] = ()
    ) -> tuple[Tensor, ...]:
        """Make the results leaves; `back` is called with the gradient of each, or None, and reads `reads` then."""
        for x in results:
            x.requires_grad_()
            self.leaves.add(id(x))
        self.notes.append((results, back, [(x, x._version) for x in reads if not x.is_inference()]))
        return results

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the parameters: by autograd as far as the leaves, then by hand.

        Raises: UserError where somebody went backward before, which ended at the leaves, and where the loss has written
        into what is needed to go back.
        """
        if any(x.grad is not None for results, *_ in self.notes for x in results):
            raise UserError(
                "loss calls backward() itself on what a network computed by hand, and no parameter gets that gradient: "
                "give policy.fast=false, or call it in after_step"
            )
        if id(loss) in self.leaves and not loss.dim():
            loss.grad = torch.ones_like(loss)
        else:
            torch.autograd.backward(loss)
        with torch.no_grad():
            for results, back, reads in reversed(self.notes):
                gradients = [x.grad for x in results]
                if all(gradient is None for gradient in gradients):
                    continue
                if any(x._version != before for x, before in reads):  # of which torch keeps count
                    raise UserError(
                        "loss writes into a tensor that a network or a loss of rlkit has read before, and that its "
                        "gradient needs as it was: write into a copy, x.clone()"
                    )
                back(*gradients)


def recording() -> Tape | None:
    """The open tape, where gradients are asked for."""
    return current() if torch.is_grad_enabled() else None


def current() -> Tape | None:
    """The tape that this thread has open."""
    found: Tape | None = vars(_open).get("tape")
    return found


def holding(x: Tensor) -> Tape | None:
    """The open tape, where x is one of its results and a gradient is asked for."""
    tape = recording()
    return tape if tape is not None and id(x) in tape.leaves and not hooked(x) else None


def joined(x: Tensor, last: Tensor) -> Tensor:
    """x and `last` side by side; on the tape where `last` is, and autograd knows nothing of x. [..., n], [..., d]"""
    tape = holding(last)
    if tape is None or x.requires_grad:
        return torch.cat([x, last], -1)
    with torch.no_grad():
        both = torch.cat([x, last], -1)
    tape.note((both,), lambda gradient: add_gradient(last, gradient[..., x.shape[-1] :]))
    return both


def squeezed(x: Tensor) -> Tensor:
    """x without its last dimension, which has one entry, on the tape where x is. [..., 1] → [...]"""
    tape = holding(x)
    if tape is None:
        return x.squeeze(-1)
    with torch.no_grad():
        y = x.detach().squeeze(-1)
    tape.note((y,), lambda gradient: add_gradient(x, gradient.unsqueeze(-1)))
    return y


def tanh(x: Tensor) -> Tensor:
    """tanh x, on the tape where x is: its derivative is 1 − tanh² x."""
    tape = holding(x)
    if tape is None:
        return x.tanh()
    with torch.no_grad():
        y = x.tanh()
    tape.note((y,), lambda gradient: add_gradient(x, gradient * (1 - y.square())), reads=(y,))
    return y


def add_gradient(x: Tensor, gradient: Tensor) -> None:
    """x.grad += gradient, in the precision of x, as autograd does."""
    gradient = gradient.to(x.dtype)
    if x.grad is None:
        x.grad = gradient
    else:
        x.grad += gradient


def hooked(x: Tensor) -> bool:
    """Whether somebody is called with the gradient of a tensor."""
    return bool(x._backward_hooks or x._post_accumulate_grad_hooks)


def hooks(module: nn.Module) -> tuple[dict[int, Callable[..., object]], ...]:
    """Where a module keeps who is called with what goes in and out of it."""
    return module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks


def changed(module: nn.Module) -> bool:
    """Whether a module does something else than its class says: it has hooks, or a `forward` of its own."""
    return any(hooks(module)) or "forward" in vars(module)
