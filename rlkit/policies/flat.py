"""Optimizers for small networks: parameters, gradients and moments lie in one tensor each, so a step is one operation.

A network of 10,000 parameters in twelve tensors is clipped and moved in the time of a few small operations; one by one,
or as a list, its tensors take longer than the forward pass. The numbers are those of torch's own optimizers.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from rlkit import shards

Part = tuple[Tensor, Tensor, list[Tensor], Tensor]  # values, gradient, moments and number of steps of a group
MOST = 2**18  # numbers; of larger networks a step takes long beside what it costs to begin it


def can_be_flat(parameters: Sequence[Tensor]) -> bool:
    """Whether they are few numbers of one precision on a CPU, each with memory of its own."""
    if shards.any_in(parameters):
        return False
    places = {p.untyped_storage().data_ptr() for p in parameters}
    alike = {(p.device.type, p.dtype) for p in parameters} == {("cpu", torch.float32)}
    return alike and len(places) == len(parameters) and sum(p.numel() for p in parameters) <= MOST


class Flat(torch.optim.Optimizer):
    """Makes the parameters and gradients of an optimizer of torch views of one tensor each, and so the moments.

    Its state_dict is that of the optimizer it is mixed into. A parameter without gradient counts as one of gradient 0:
    weight decay and earlier gradients move it, where torch leaves it as it is. One that is frozen does not move.
    """

    moments: ClassVar[tuple[str, ...]]  # names in the state of torch's optimizer
    _parts: Sequence["Part"] = ()  # of each group; none while torch's optimizer is made

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # those of torch's optimizer
        super().__init__(*args, **kwargs)
        self._flatten()

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Take in more parameters.

        Raises: ValueError where they are not on a CPU, or are many numbers.
        """
        super().add_param_group(param_group)
        if not self._parts:
            return
        new: list[Tensor] = self.param_groups[-1]["params"]
        if not can_be_flat(new) or sum(p.numel() for p in (*self._parameters, *new)) > MOST:
            self.param_groups.pop()
            raise ValueError(f"{type(self).__name__} takes float32 on a CPU, {MOST:,} numbers at most: use torch.optim")
        self._flatten()
        self._adopt()

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Put the moments side by side again, of a copy and of what torch's optimizer saved."""
        super().__setstate__(state)
        self._flatten()
        self._adopt()

    def _flatten(self) -> None:
        self._parameters = [p for group in self.param_groups for p in group["params"]]
        self._values = torch.cat([p.detach().flatten() for p in self._parameters])
        self._gradient = torch.zeros_like(self._values)
        self._own = list(self._split(self._values))
        for p, value in zip(self._parameters, self._own, strict=True):
            p.data = value
        self._gradients = list(self._split(self._gradient))
        self._moments = [torch.zeros_like(self._values) for _ in self.moments]
        ends = [0]
        for group in self.param_groups:
            ends.append(ends[-1] + sum(p.numel() for p in group["params"]))
        self._parts = [
            (self._values[a:b], self._gradient[a:b], [x[a:b] for x in self._moments], torch.zeros(()))
            for a, b in itertools.pairwise(ends)
        ]
        self._gathered = False  # whether all gradients are in one place, since the last step
        self._gather()

    def _split(self, flat: Tensor) -> Iterator[Tensor]:
        parts = torch.split(flat, [p.numel() for p in self._parameters])
        return (part.view(p.shape) for part, p in zip(parts, self._parameters, strict=True))

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Set the gradients to 0, in place."""
        self._gather()
        self._gradient.zero_()

    def clip(self, limit: float) -> Tensor:
        """Scale the gradients down to this global norm, and return what it was; as torch.nn.utils.clip_grad_norm_."""
        self._gather()
        self._gathered = True
        norm: Tensor = torch.linalg.vector_norm(self._gradient)
        if not float(norm) <= limit:  # nor where it is not a number
            self._gradient *= limit / (float(norm) + 1e-6)
        return norm

    def _gather(self) -> None:
        """Take over parameters and gradients that were set from outside."""
        for p, value in zip(self._parameters, self._own, strict=True):
            if p.data_ptr() != value.data_ptr():
                if p.dtype != value.dtype or p.device != value.device:
                    raise RuntimeError("parameters were moved after their optimizer was made: make it behind that")
                value.copy_(p.detach())
                p.data = value
        for p, gradient in zip(self._parameters, self._gradients, strict=True):
            if p.grad is not gradient:
                gradient.copy_(p.grad) if p.grad is not None else gradient.zero_()
                p.grad = gradient

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        """One step of all parameters but those that are frozen; `closure` computes the loss and its gradients anew."""
        for hook in self._optimizer_step_pre_hooks.values():
            hook(self, (), {})
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
            self._gathered = False
        if not self._gathered or self._parameters[0].grad is not self._gradients[0]:
            self._gather()
        self._gathered = False
        if not self.state:
            self._share()
        frozen = [(view, view.clone()) for view in self._frozen()]
        for group, part in zip(self.param_groups, self._parts, strict=True):
            if any(p.requires_grad for p in group["params"]):
                part[-1].add_(1)
                self.move(group, *part)
        for view, before in frozen:
            view.copy_(before)
        for after in self._optimizer_step_post_hooks.values():
            after(self, (), {})
        return loss

    step.hooked = True  # type: ignore[attr-defined]  # else torch wraps it, for a profiler too, and that takes longer

    def _frozen(self) -> Iterator[Tensor]:
        """The values and moments of parameters that no longer learn."""
        for p, value in zip(self._parameters, self._own, strict=True):
            if not p.requires_grad:
                yield from (value, *(self.state[p][name] for name in self.moments))

    def move(
        self, group: dict[str, Any], values: Tensor, gradient: Tensor, moments: list[Tensor], step: Tensor
    ) -> None:
        """Change the values and moments of a group by its gradient."""
        raise NotImplementedError

    def _share(self) -> None:
        """Let the state of each parameter be views of the moments."""
        steps = [part[-1] for group, part in zip(self.param_groups, self._parts, strict=True) for _ in group["params"]]
        for p, step, *views in zip(self._parameters, steps, *(self._split(x) for x in self._moments), strict=True):
            self.state[p] = {"step": step, **dict(zip(self.moments, views, strict=True))}

    def _adopt(self) -> None:
        """Put the state of each parameter into the moments.

        Raises: ValueError where it is that of other parameters; a copy would make it fit.
        """
        if self.state.keys() - set(self._parameters):
            raise ValueError("there is a state of what is not a parameter")
        loaded = {p: self.state.get(p, {}) for p in self._parameters}
        self.state.clear()
        for name, moment in zip(self.moments, self._moments, strict=True):
            for view, state in zip(self._split(moment), loaded.values(), strict=True):
                if state and state[name].shape != view.shape:
                    raise ValueError(f"{name} has the shape {tuple(state[name].shape)}, not {tuple(view.shape)}")
                view.copy_(state[name]) if state else view.zero_()
        for group, part in zip(self.param_groups, self._parts, strict=True):
            part[-1].fill_(max(float(loaded[p]["step"]) if loaded[p] else 0.0 for p in group["params"]))
        if any(loaded.values()):
            self._share()


class FlatAdamW(Flat, torch.optim.AdamW):
    """AdamW in one fused kernel for each group (Loshchilov & Hutter 2017, arXiv:1711.05101)."""

    moments = ("exp_avg", "exp_avg_sq")

    def move(
        self, group: dict[str, Any], values: Tensor, gradient: Tensor, moments: list[Tensor], step: Tensor
    ) -> None:
        mean, square = moments
        beta1, beta2 = group["betas"]
        torch._fused_adamw_(
            [values], [gradient], [mean], [square], [], [step], lr=group["lr"], beta1=beta1, beta2=beta2,
            weight_decay=group["weight_decay"], eps=group["eps"], amsgrad=False, maximize=False,
        )  # fmt: skip


class FlatRMSprop(Flat, torch.optim.RMSprop):
    """RMSprop: v ← α·v + (1 − α)·g², w ← w − lr·g / (√v + ε)."""

    moments = ("square_avg",)

    def move(
        self, group: dict[str, Any], values: Tensor, gradient: Tensor, moments: list[Tensor], step: Tensor
    ) -> None:
        (square,) = moments
        square.mul_(group["alpha"]).addcmul_(gradient, gradient, value=1 - group["alpha"])
        values.addcdiv_(gradient, square.sqrt().add_(group["eps"]), value=-group["lr"])
