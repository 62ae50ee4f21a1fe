"""How gradients become steps: learning rates, their schedule, and optimizers."""

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Any, Protocol, runtime_checkable

import torch
from torch import Tensor, nn

from rlkit import shards
from rlkit.errors import UserError
from rlkit.fields import Choose, Decay, Limit, Natural, Needs, NonNegative, Positive, Schedule
from rlkit.moments import optimizers
from rlkit.policies.flat import Flat, FlatAdamW, FlatRMSprop, can_be_flat
from rlkit.policies.layers import DRAWN
from rlkit.shards import parameters_of
from rlkit.terminal import warn

Falling = Annotated[Schedule, Choose("constant", "linear")]


@dataclass(frozen=True)
class LearningRate:
    """A learning rate with its schedule; the loop applies it."""

    lr: Positive = 3e-4  # learning rate
    schedule: Falling = "constant"  # learning-rate schedule: constant, or linear to lr_end · lr at the end of the run
    lr_end: Annotated[NonNegative, Needs("schedule", "linear")] = 0.0  # fraction of lr that a linear schedule ends at

    def learning_rate(self, progress: float, iteration: int) -> float:
        """lr · (1 − (1 − lr_end)·progress) with a linear schedule; progress is the fraction of the run that is done."""
        return self.lr * (1 - (1 - self.lr_end) * progress if self.schedule == "linear" else 1.0)

    def gradient_limit(self) -> float:
        """The maximum global norm of the gradients."""
        return math.inf


@dataclass(frozen=True)
class Optimization(LearningRate):
    """What every gradient method needs; algorithms inherit these fields and override the defaults."""

    warmup: Natural = 0  # iterations over which the learning rate rises from 0 to lr
    max_grad_norm: Limit = 0.5  # gradients are scaled down to this global norm; inf: never
    beta2: Decay = 0.999  # Adam's second-moment decay
    adam_eps: Positive = 1e-5  # Adam's ε
    weight_decay: NonNegative = 0.0  # decoupled weight decay, on matrices only

    def learning_rate(self, progress: float, iteration: int) -> float:
        """The schedule times min(1, (iteration + 1) / (warmup + 1))."""
        return super().learning_rate(progress, iteration) * min(1.0, (iteration + 1) / (self.warmup + 1))

    def gradient_limit(self) -> float:
        return self.max_grad_norm


@runtime_checkable
class Discounted(Protocol):
    """A configuration with a discount."""

    gamma: float


def discount(config: object) -> float:
    """γ of an algorithm's configuration; 1 where it has none: then an episode's plain sum of rewards is maximized."""
    return config.gamma if isinstance(config, Discounted) else 1.0


class Parametrized(Protocol):
    """A module, or a policy."""

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]: ...


def adam(module: Parametrized, config: Optimization, *others: tuple[Parametrized, float]) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters (Adam when weight_decay is 0): one fused kernel per step.

    others: modules with a learning rate of their own. A small network on a CPU is moved as a whole: what gets no
    gradient in a step counts as one of gradient 0, and what must not move then is frozen, by `requires_grad_(False)`.

    Raises: UserError where the configuration is another than `Optimization`.
    """
    if missing := [key for key in ("lr", "beta2", "adam_eps", "weight_decay") if not hasattr(config, key)]:
        kind = type(config).__name__
        raise UserError(f"policies.adam reads {', '.join(missing)} of {kind}: let it inherit policies.Optimization")
    groups: list[dict[str, Any]] = []
    for part, lr in ((module, config.lr), *others):
        learning = [p for p in part.parameters() if p.requires_grad]
        matrices = [p for p in learning if p.dim() >= 2 and config.weight_decay]
        rest = [p for p in learning if p.dim() < 2 or not config.weight_decay]
        for members, decay in ((matrices, config.weight_decay), (rest, 0.0)):
            if members:
                groups.append({"params": members, "weight_decay": decay, "lr": lr, "initial_lr": lr})
    parameters = [p for group in groups for p in group["params"]]
    made = FlatAdamW if can_be_flat(parameters) else torch.optim.AdamW
    return made(groups, lr=config.lr, betas=(0.9, config.beta2), eps=config.adam_eps, fused=True)


def rmsprop(module: Parametrized, config: Optimization) -> torch.optim.Optimizer:
    """RMSprop (Tieleman & Hinton 2012) with beta2 as its decay and adam_eps as its ε."""
    if config.weight_decay:
        raise UserError(f"algo.weight_decay={config.weight_decay}: rmsprop has none; use algo.optimizer=adam, or 0")
    parameters = [p for p in module.parameters() if p.requires_grad]
    kind = FlatRMSprop if can_be_flat(parameters) else torch.optim.RMSprop
    return kind(parameters, lr=config.lr, alpha=config.beta2, eps=config.adam_eps, foreach=True)


def check_apart(holder: object) -> None:
    """Warn of networks of ours that learn from the same first weights: of two critics the smaller value is either's.

    A target network begins so on purpose, and does not learn. What others made may begin so, as the layers of
    torch.nn.TransformerEncoder.
    """
    learned = dict.fromkeys(p for optimizer in optimizers(holder) for p in parameters_of(optimizer) if p.requires_grad)
    drawn = [p for p in learned if DRAWN.get(id(p)) is p]
    for x, y in itertools.combinations(drawn, 2):
        if (x.shape, x.device) == (y.shape, y.device) and torch.equal(x, y) and bool((x != x.flatten()[0]).any()):
            warn(
                f"two networks of {type(holder).__name__} learn from the same first weights {list(x.shape)}, "
                "and network gives the same at each call: draw those of one anew, as by torch.nn.init.orthogonal_"
            )
            return


def gradient_limit(config: object) -> float:
    """The global norm that gradients are scaled down to."""
    return config.gradient_limit() if isinstance(config, LearningRate) else math.inf


def clip_gradients(optimizer: torch.optim.Optimizer, limit: float) -> Tensor:
    """Scale all gradients down to this global norm. Returns the norm before."""
    if isinstance(optimizer, Flat):
        return optimizer.clip(limit)
    parameters = parameters_of(optimizer)
    if limit == math.inf and len(parameters) == 1 and parameters[0].grad is not None:  # a table
        norm: Tensor = torch.linalg.vector_norm(parameters[0].grad)
        return norm
    if not shards.any_in(parameters):
        return torch.nn.utils.clip_grad_norm_(parameters, limit)
    norm = shards.whole(torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None]))
    torch.nn.utils.clip_grads_with_norm_(parameters, limit, norm)
    return norm
