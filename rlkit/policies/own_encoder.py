"""An encoder of the user's own, `policy.encoder=./my_net.py`: a function `make(space)` that returns a torch module."""

import copy
import inspect
from collections.abc import Iterator
from typing import TYPE_CHECKING, cast
from weakref import WeakValueDictionary

import numpy as np
import torch
from gymnasium.spaces import Dict, Discrete, Tuple
from torch import Tensor, nn

from rlkit import spaces
from rlkit.attributes import TORCH
from rlkit.errors import UserError, one_line, out_of_memory, place_of
from rlkit.named import named
from rlkit.policies.encoders import features

if TYPE_CHECKING:
    from rlkit.api import AnySpace

WORDS = ("auto", "flat", "nature", "impala", "small")  # encoders that rlkit has
MADE: "WeakValueDictionary[int, nn.Parameter]" = WeakValueDictionary()  # by their id, the weights of own encoders
Nested = Tensor | dict[str, "Nested"] | tuple["Nested", ...]


class Own(nn.Module):
    """Hands a network observations as their space has them: [..., row] → [N, *shape] → [..., features].

    Those of a Dict are a dict of tensors, those of a Tuple are a tuple. A Box is float32 (or as policy.dtype says), or
    uint8 where it is one of bytes or bits; choices are int64 and count from 0. A mask of actions that came in an info
    is left out.

    Raises: UserError where what comes out is not one row of real numbers for each observation.
    """

    def __init__(self, name: str, space: "AnySpace") -> None:
        super().__init__()
        self.name, self.space = name, copy.deepcopy(space)  # an environment may draw from its own
        make = named("policy.encoder", name, f"{', '.join(WORDS)}, ")
        try:
            inspect.signature(make).bind(space)
        except TypeError as error:
            raise UserError(
                f"policy.encoder={name} cannot be called with the space ({error}): let it take that"
            ) from None
        try:
            inner = make(spaces.beside_mask(space))
        except Exception as error:  # code of the user's may raise anything
            raise UserError(f"policy.encoder={name} cannot be made: {told(error)}; correct it") from error
        if not isinstance(inner, nn.Module):
            raise UserError(f"policy.encoder={name} made {type(inner).__name__}: it has to return a torch.nn.Module")
        check_registered(inner, name)
        self.inner = steady(inner)
        self.register_buffer("like", torch.zeros(()), persistent=False)  # float64 by policy.dtype

    def forward(self, observation: Tensor) -> Tensor:
        lead = observation.shape if isinstance(self.space, Discrete) else observation.shape[:-1]
        seen = self.seen(observation.reshape(lead.numel(), *observation.shape[len(lead) :]))
        try:
            out = self.inner(seen)
        except Exception as error:  # code of the user's may raise anything
            raise UserError(f"policy.encoder={self.name} fails on observations {form(seen)}: {told(error)}") from error
        if not (isinstance(out, Tensor) and out.dim() == 2 and len(out) == lead.numel() and out.is_floating_point()):
            found = f"{out.dtype} {list(out.shape)}" if isinstance(out, Tensor) else type(out).__name__
            raise UserError(
                f"policy.encoder={self.name} gave {found} for {lead.numel()} observations: it has to return real "
                f"numbers, [{lead.numel()}, features]"
            )
        return out.view(*lead, -1).to(cast(Tensor, self.like).dtype)

    def seen(self, rows: Tensor) -> Nested:
        """Observations [N, row] as their space has them."""
        if not spaces.is_composite(self.space):
            return shaped(self.space, rows)
        kind = cast(Tensor, self.like).dtype
        parts = (x.to(kind) if x.is_floating_point() else x for x in spaces.parts(self.space, rows))
        whole = nested(self.space, parts)
        if spaces.beside_mask(self.space) is not self.space:
            assert isinstance(whole, dict)
            return whole[spaces.REST]
        return whole


def check_registered(module: nn.Module, name: str) -> None:
    """Raises: UserError where a list or a dict holds weights that torch does not see: nothing would train them.

    Layers without weights, and with frozen ones, may be there.
    """
    known = {id(weight) for weight in module.parameters()}
    for part in module.modules():
        for key, held in vars(part).items():
            several = held.values() if isinstance(held, dict) else held if isinstance(held, list | tuple) else ()
            weights = (weight for x in several if isinstance(x, nn.Module) for weight in x.parameters())
            if key not in TORCH and any(weight.requires_grad and id(weight) not in known for weight in weights):
                raise UserError(
                    f"policy.encoder={name}: {key} of its {type(part).__name__} is a {type(held).__name__} of layers, "
                    "which nothing would train: make it a torch.nn.ModuleList, or a ModuleDict"
                )


def check_encoders(policy: object) -> None:
    """Check each encoder of the user's own in a policy."""
    for part in policy.modules() if isinstance(policy, nn.Module) else ():
        if isinstance(part, Own):
            check_reading(part, part.name)


def check_reading(own: Own, name: str) -> None:
    """Raises: UserError where it writes into observations, draws random numbers, or gives features without gradient."""
    drawn = torch.default_generator.get_state()
    with torch.enable_grad():
        found: Tensor = own(seen := zeros(own, 3))
    if seen._version:  # torch counts what was written into it
        raise UserError(
            f"policy.encoder={name} changes the observations that it is handed, which others read, too: "
            "write x = x / 255 in place of x /= 255, and no layer with inplace=True in front"
        )
    if not torch.equal(torch.default_generator.get_state(), drawn):
        raise UserError(
            f"policy.encoder={name} draws random numbers when it reads observations, so it would compute another "
            "function each time: leave that out, or write F.dropout(x, p, training=self.training)"
        )
    if not found.requires_grad and any(weight.requires_grad for weight in own.parameters()):
        raise UserError(
            f"policy.encoder={name} gives features without gradient, so nothing would train its weights: leave out "
            "torch.no_grad() and detach(), or freeze them by requires_grad_(False)"
        )


def zeros(own: Own, count: int) -> Tensor:
    shape, dtype = spaces.row(own.space)
    return torch.from_numpy(np.zeros((count, *shape), dtype)).to(cast(Tensor, own.like).device)


def steady(module: nn.Module) -> nn.Module:
    """The same module with dropout off, and batch norms that keep their statistics.

    Otherwise acting, learning and evaluating would each compute another function, and draw from torch's own generator.
    """
    module.eval()
    for part in module.modules():
        if isinstance(part, nn.RNNBase):  # cuDNN goes back through one in training mode only
            part.dropout = 0.0
            part.train()
    return module


def nested(space: "AnySpace", parts: Iterator[Tensor]) -> Nested:
    """Parts in the order of `spaces.leaves`, as the space holds them."""
    if isinstance(space, Dict):
        return {key: nested(inner, parts) for key, inner in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(nested(inner, parts) for inner in space.spaces)
    return shaped(space, next(parts))


def shaped(space: "AnySpace", x: Tensor) -> Tensor:
    return x.reshape(len(x), *(space.shape or ()))


def told(error: Exception) -> str:
    """An exception in the user's code, with its place. Raises: the error, where it is one line already."""
    if isinstance(error, UserError) or out_of_memory(error):
        raise error
    kind = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "  # torch says what is wrong
    return f"{kind}{one_line(error) or 'nothing more'}{place_of(error)}"


def form(seen: Nested) -> str:
    """Observations in words: `float32 [2, 4]`."""
    if isinstance(seen, Tensor):
        return f"{str(seen.dtype).removeprefix('torch.')} {list(seen.shape)}"
    if isinstance(seen, dict):
        return f"{{{', '.join(f'{key}: {form(part)}' for key, part in seen.items())}}}"
    return f"({', '.join(map(form, seen))})"


def made(name: str, space: "AnySpace", generator: torch.Generator) -> Own:
    """The network; what it draws from torch's own generator when it is made follows from the run's seed.

    Raises: UserError where it has weights of one that was made before: two networks, or two runs, would share them.
    """
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.set_state(generator.get_state())
        own = Own(name, space)
        features(space, own)  # a lazy layer draws its weights when it first sees an observation
        with torch.no_grad():
            for count in (1, 3):  # of the two that it saw it may know by heart
                own(zeros(own, count))
    learned = {id(p): p for p in own.parameters() if p.requires_grad}
    if any(MADE.get(key) is p for key, p in learned.items()):
        raise UserError(
            f"policy.encoder={name} gives the same weights each time: let it make a new module, so that none is shared"
        )
    MADE.update(learned)
    return own
