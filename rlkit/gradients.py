"""The gradient of a minibatch, which is learned in parts that add up: micro-batches, and the shares of ranks."""

from collections.abc import Sequence
from typing import Self

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.optim import Optimizer

from rlkit import ranks, shards
from rlkit.api import Algorithm, Metrics
from rlkit.attributes import at
from rlkit.buffers import check_rows, in_step, learned_by_all, mine_of, split
from rlkit.buffers.splitting import Learned
from rlkit.errors import UserError
from rlkit.meter import Meter, detached
from rlkit.moments import optimizers, takes_hooks
from rlkit.tape import Tape


def accumulate(
    algo: Algorithm, batch: TensorDict, meter: Meter, measured: bool
) -> tuple[Tensor | float, list[Learned]]:
    """Add the gradient of a minibatch, part by part. Returns: its loss, and its parts with what they measured.

    Micro-batches and ranks only accumulate. measured: whether the meter gets the metrics.
    """
    size, together = (algo.policy.micro_steps, ranks.size() > 1) if algo.divides else (None, False)
    adding = Parts(all_optimizers(algo) if together or size is not None else (), together)
    total: Tensor | float = 0.0
    learned: list[Learned] = []
    with adding:
        parts = split(mine_of(check_rows(batch, algo.policy.memoryless), algo.divides), size)
        for part, counts in in_step(parts, batch):
            mask = part["mask"].clone() if measured else None  # the loss may write into it
            with Tape() as tape:
                loss, metrics = loss_of(algo, algo.loss(part))
            adding.check()
            tape.backward(loss if counts else loss * 0.0)
            adding.note()
            if not counts:
                continue
            total = total + loss.detach() if learned else loss.detach()
            measures = detached(metrics)
            # Copies: a loss may fill the same tensor for the next part, and the step changes parameters.
            learned.append((part, {name: x.clone() for name, x in measures.items() if isinstance(x, Tensor)}))
            if mask is not None:
                meter.add(measures, mask)
    if not algo.divides:
        shards.undo_sums(algo.policy.parameters())
    if together:
        total = adding.add_up(total)
        if type(algo).after_step is not Algorithm.after_step:
            learned = learned_by_all(learned, batch["mask"].device)
    return total, learned


def loss_of(algo: Algorithm, returned: object) -> tuple[Tensor, Metrics]:
    """The loss and its metrics. Raises: UserError, where they are something else."""
    name = type(algo).__name__
    match returned:
        case (Tensor() as loss, dict() as metrics) if loss.numel() == 1 and loss.requires_grad:
            return loss, metrics
        case (Tensor() as loss, dict()) if loss.numel() == 1:
            raise UserError(
                f"{name}.loss returned a loss without a gradient: compute it from self.policy.evaluate(batch)"
            )
        case (Tensor() as loss, dict()):
            given = f"a loss of the shape {tuple(loss.shape)}"
        case tuple():
            given = f"({', '.join(type(part).__name__ for part in returned)})"
        case _:
            given = f"a {type(returned).__name__}"
    raise UserError(f'{name}.loss returned {given}: let it return (each * batch["weight"]).sum(), metrics')


def all_optimizers(algo: Algorithm) -> list[Optimizer]:
    """Those that an algorithm holds, and those in parts of which `saved` names something (`helper.network`)."""
    paths = dict.fromkeys(tuple(key.split(".")[:n]) for key in algo.saved for n in range(key.count(".") + 1))
    found = [x for path in paths for x in optimizers(at(algo, path))]
    return list({id(x): x for x in found}.values())


class Parts:
    """While it is open, a minibatch is learned in parts, of ranks or one after the other: their gradients add up.

    A loss sees one part. A step of an optimizer in it would use the gradient of that part alone, and setting it to zero
    would lose the other parts: both raise UserError. An algorithm may keep the gradient of an optimizer of its own over
    several minibatches. That of the earlier ones is the sum over the ranks already, so only the first rank keeps it.
    """

    def __init__(self, optimizers: Sequence[Optimizer], summed: bool) -> None:
        self.optimizers, self.summed = optimizers, summed
        self.parameters = shards.not_shared(dict.fromkeys(p for each in optimizers for p in shards.parameters_of(each)))

    def __enter__(self) -> Self:
        self.hooks = [x.register_step_pre_hook(refuse_step) for x in self.optimizers if takes_hooks(x)]
        self.own = [(vars(x), vars(x).get("zero_grad")) for x in self.optimizers]
        for held, _ in self.own:
            held["zero_grad"] = refuse_zero
        if self.summed and ranks.rank():
            for p in self.parameters:
                if p.grad is not None:
                    p.grad.zero_()
        self.note()
        return self

    def __exit__(self, *_: object) -> None:
        for hook in self.hooks:
            hook.remove()
        for held, own in self.own:
            held.pop("zero_grad", None)
            held |= {"zero_grad": own} if own not in (None, refuse_zero) else {}

    def note(self) -> None:
        """Remember the gradients so far."""
        self.before = [(p, p.grad) for p in self.parameters if p.grad is not None]

    def check(self) -> None:
        """Call it behind each loss. Raises: UserError where it has removed a gradient.

        What it writes into one is not noticed: it may be a `backward()` of its own, which adds to it.
        """
        if any(p.grad is not gradient for p, gradient in self.before):
            refuse_zero()

    def add_up(self, total: Tensor | float) -> Tensor | float:
        """Add the gradients up over the ranks. Returns: the sum of the losses.

        Raises: UserError where a gradient is sparse.
        """
        if any(p.grad is not None and p.grad.layout != torch.strided for p in self.parameters):
            raise UserError(
                "ranks add up dense gradients only, and that of a layer is sparse: make it dense, as by "
                "nn.Embedding(sparse=False), or train in one process"
            )
        return ranks.add_up(self.parameters, total)


def refuse_step(*_: object) -> None:
    raise UserError(
        "loss steps an optimizer by the gradient of one part of a minibatch (of one rank, or of policy.micro_steps "
        "tokens): step it in after_step, when all have added up"
    )


def refuse_zero(set_to_none: bool = True) -> None:
    raise UserError(
        "loss sets gradients to zero, and other parts of a minibatch (of ranks, or of policy.micro_steps tokens) add "
        "to them: do so in after_step, after the step of the optimizer"
    )
