"""What turns an observation into features: one module for each kind of space, several for a space with parts.

[..., observation] → [..., features]. Images go through convolutions: `nature` as in Mnih et al. 2015
(doi:10.1038/nature14236), `impala` with residual blocks (Espeholt et al. 2018, arXiv:1802.01561), and `small` for those
of few pixels, such as a grid world's. What follows is `policy.hidden`: nature with hidden=512 is the paper's network.
"""

import copy
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, cast

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from torch import Tensor, nn

from rlkit import spaces
from rlkit.errors import UserError

if TYPE_CHECKING:
    from rlkit.api import AnySpace

# The score of an action that is not allowed, about -1e30: its exponential is 0, and its gradient.
FORBIDDEN = -(2.0**100)
AT_ONCE = 256  # images that are read together where no gradient is asked for
SMALLEST = 36  # pixels of a side that `nature` takes
Make = Callable[[int, int, int], nn.Module]  # channels, height, width → [N, C, H, W] → [N, features]


class OneHot(nn.Module):
    """Discrete observations as indicator vectors, so that the same networks take states."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.states = states

    def forward(self, observation: Tensor) -> Tensor:
        return nn.functional.one_hot(observation, self.states).float()


class OneHots(nn.Module):
    """The same of several numbers, side by side. [..., k] → [..., Σ n_i]"""

    def __init__(self, sizes: tuple[int, ...]) -> None:
        super().__init__()
        starts = torch.tensor([0, *np.cumsum(sizes)[:-1].tolist()])
        self.register_buffer("starts", starts, persistent=False)
        self.size = sum(sizes)

    def forward(self, observation: Tensor) -> Tensor:
        starts = cast(Tensor, self.starts)
        found = torch.zeros(*observation.shape[:-1], self.size, device=observation.device)
        return found.scatter(-1, observation + starts, 1.0)  # not in place, which torch.vmap refuses


class Floats(nn.Module):
    """Bytes and bits as real numbers."""

    def forward(self, observation: Tensor) -> Tensor:
        return observation.float()


class Image(nn.Module):
    """Convolutions on images that come as rows of numbers: [..., d] → [N, C, H, W] → [..., features].

    Of a stack, the channels of all are side by side. Bytes become fractions of the highest value that the space has.
    layout: in what order the numbers lie in memory, whatever the order of dimensions.
    """

    divisor: Tensor | int

    def __init__(self, space: Box, inner: nn.Module, layout: torch.memory_format) -> None:
        super().__init__()
        self.inner, self.shape, self.last, self.layout = inner, space.shape, channels_last(space), layout
        self.bytes = space.dtype == np.uint8
        if self.bytes and space.high.max() < 255:
            self.register_buffer("divisor", torch.tensor(max(1, int(space.high.max()))))
            self.register_load_state_dict_pre_hook(as_before)  # type: ignore[no-untyped-call]
        else:
            self.divisor = 255

    def forward(self, observation: Tensor) -> Tensor:
        images = observation.reshape(-1, *self.shape)
        images = (images.movedim(-1, -3) if self.last else images).flatten(1, -3)
        # Where nothing is kept for a gradient, a few at a time: their features stay in the cache, and memory is small.
        parts = (images,) if torch.is_grad_enabled() else torch.split(images, AT_ONCE)
        features = torch.cat([self.inner(self.pixels(part)) for part in parts])
        return features.view(*observation.shape[:-1], -1)

    def pixels(self, images: Tensor) -> Tensor:
        """As real numbers, of the precision of the convolutions."""
        kind = next(self.inner.parameters()).dtype
        x = images.to(kind, memory_format=self.layout, copy=self.bytes)
        # In place: bytes were copied just now, and new memory takes longer.
        return x.div_(self.divisor) if self.bytes else x


def as_before(module: nn.Module, state: dict[str, Tensor], prefix: str, *others: object) -> None:
    """Let a network of rlkit 0.5, which divided all bytes by 255, go on so."""
    state.setdefault(f"{prefix}divisor", torch.tensor(255))


class Parts(nn.Module):
    """Each part of a composite space has its encoder; their features are put side by side."""

    def __init__(self, space: "AnySpace", name: str) -> None:
        super().__init__()
        read = [(i, part) for i, (path, part) in enumerate(spaces.leaves(space)) if path != (spaces.MASK,)]
        self.space, self.read = copy.deepcopy(space), tuple(i for i, _ in read)  # an environment may draw from its own
        self.encoders = nn.ModuleList([of_leaf(part, name) or nn.Identity() for _, part in read])

    def forward(self, observation: Tensor) -> Tensor:
        parts = spaces.parts(self.space, observation)
        return torch.cat([encoder(parts[i]) for i, encoder in zip(self.read, self.encoders, strict=True)], -1)


class Allowed(nn.Module):
    """Which actions an observation allows: its part `action_mask`, one entry for each value of each choice."""

    def __init__(self, space: "AnySpace") -> None:
        super().__init__()
        part = spaces.part_at(space, (spaces.MASK,))
        self.start, self.end, self.kind = part.start, part.end, spaces.TORCH[spaces.dtype(part.space)]

    def forward(self, observation: Tensor) -> Tensor:
        """[..., bytes] → [..., Σ n_i] bool."""
        allowed: Tensor = observation[..., self.start : self.end].view(self.kind) > 0
        return allowed

    def forbid(self, observation: Tensor, scores: Tensor, choices: tuple[int, ...]) -> Tensor:
        """Scores with those of forbidden actions at -1e30, whose probability is 0. [..., Σ n_i]

        A choice without any allowed value keeps its scores: nothing is done after the end of an episode.
        """
        allowed = self.forward(observation)
        open_ = torch.cat([x | ~x.any(-1, keepdim=True) for x in torch.split(allowed, [*choices], -1)], -1)
        return scores.masked_fill(~open_, FORBIDDEN)

    def check(self, observation: Tensor, choices: tuple[int, ...]) -> None:
        """Raises: UserError where a choice that is to be made has no allowed value."""
        for x in torch.split(self.forward(observation), [*choices], -1):
            if not bool(x.any(-1).all()):
                raise UserError(
                    "the environment asks for an action and allows none, as its action_mask is 0 everywhere: allow "
                    "one, or end the episode before"
                )


def allowed_by(space: "AnySpace | None") -> Allowed | None:
    return Allowed(space) if space is not None and spaces.masks_actions(space) else None


class Residual(nn.Module):
    """x + conv(relu(conv(relu(x))))."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        convolutions = (nn.Conv2d(channels, channels, 3, padding=1) for _ in range(2))
        self.inner = nn.Sequential(*(layer for conv in convolutions for layer in (nn.ReLU(), conv)))

    def forward(self, x: Tensor) -> Tensor:
        return x + cast(Tensor, self.inner(x))


def nature(channels: int, height: int, width: int) -> nn.Module:
    """Three convolutions: 32 of 8 × 8 each 4 pixels, 64 of 4 × 4 each 2, 64 of 3 × 3."""
    if min(height, width) < SMALLEST:
        raise UserError(
            f"policy.encoder=nature takes images of {SMALLEST} pixels and more a side, and here they have {height} × "
            f"{width}: use policy.encoder=small or impala"
        )
    sizes = ((channels, 32, 8, 4), (32, 64, 4, 2), (64, 64, 3, 1))
    layers = (layer for a, b, kernel, stride in sizes for layer in (nn.Conv2d(a, b, kernel, stride), nn.ReLU()))
    return nn.Sequential(*layers, nn.Flatten())


def small(channels: int, height: int, width: int) -> nn.Module:
    """Two convolutions of 3 × 3: 16 and 32, for images of few pixels."""
    layers = (nn.Conv2d(channels, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU())
    return nn.Sequential(*layers, nn.Flatten())


def impala(channels: int, height: int, width: int) -> nn.Module:
    """Three blocks of 16, 32 and 32 channels: a convolution, a pool that halves the image, two residual blocks."""
    layers: list[nn.Module] = []
    for size in (16, 32, 32):
        layers += [nn.Conv2d(channels, size, 3, padding=1), nn.MaxPool2d(3, 2, padding=1)]
        layers += [Residual(size), Residual(size)]
        channels = size
    return nn.Sequential(*layers, nn.ReLU(), nn.Flatten())


IMAGES: dict[str, Make] = {"nature": nature, "small": small, "impala": impala}
# Of each pixel all channels side by side: on a CPU 1.6 times as fast, but of few pixels a quarter slower.
LAYOUTS = {name: torch.contiguous_format if name == "small" else torch.channels_last for name in IMAGES}


def channels_last(space: Box) -> bool:
    """Whether the channels of an image are its last dimension: the one beside two equal ones, else the smaller one."""
    first, middle, last = space.shape[-3:]
    if (first == middle) != (middle == last):
        return first == middle
    return last <= first


def sides(space: Box) -> tuple[int, int]:
    """Height and width of an image, in pixels."""
    height, width = space.shape[-3:-1] if channels_last(space) else space.shape[-2:]
    return height, width


def is_image(space: "AnySpace") -> bool:
    """Whether `auto` takes a space for an image, or a stack of them: bytes or bits in three dimensions, or in four."""
    return isinstance(space, Box) and len(space.shape) in (3, 4) and space.dtype in (np.uint8, np.bool_)


def of_image(space: Box, name: str) -> nn.Module:
    """A network of convolutions for [height, width, channels], or with the channels first; or a stack of such."""
    if len(space.shape) not in (3, 4):
        raise UserError(
            f"policy.encoder={name} takes images of height, width and channels, and here is {space}: use "
            "policy.encoder=flat, or add the channel (gymnasium.wrappers.FrameStackObservation)"
        )
    height, width = sides(space)
    return Image(space, IMAGES[name](spaces.width(space) // (height * width), height, width), LAYOUTS[name])


def of_leaf(space: "AnySpace", name: str) -> nn.Module | None:
    """The encoder of a space without parts; None where its numbers are features as they are."""
    if isinstance(space, Discrete):
        return OneHot(int(space.n))
    if isinstance(space, MultiDiscrete):
        return OneHots(tuple(int(n) for n in space.nvec.reshape(-1)))
    if not isinstance(space, Box):
        return Floats()
    if name in IMAGES and len(space.shape) > 1:
        return of_image(space, name)
    if name == "auto" and space.dtype == np.uint8 and len(space.shape) == 2 and min(space.shape) >= 8:
        raise UserError(
            f"observation space {space} looks like an image without a channel: add one "
            "(gymnasium.wrappers.FrameStackObservation), or give policy.encoder=flat"
        )
    if name == "auto" and is_image(space):
        return of_image(space, "nature" if min(sides(space)) >= SMALLEST else "small")
    return None if spaces.dtype(space) == np.float32 else Floats()


def of_space(space: "AnySpace", name: str) -> nn.Module | None:
    """The encoder of a space; None where its numbers are features as they are."""
    if not spaces.is_composite(space):
        return of_leaf(space, name)
    return Parts(space, name)


def learns(modules: Iterable[nn.Module]) -> bool:
    """Whether any of them has parameters."""
    return any(True for module in modules for _ in module.parameters())


def features(space: "AnySpace", encoder: nn.Module | None) -> int:
    """How many numbers come out for each observation."""
    if encoder is None:
        return spaces.width(space)
    shape, dtype = spaces.row(space)
    seen = torch.from_numpy(np.zeros((2, *shape), dtype))
    with torch.no_grad():
        out: Tensor = encoder(seen)
    return out.shape[-1]
