"""Checks of shapes. Broadcasting [B, T] with [B, 1], or [N] with [N, 1], would silently give a wrong number."""

from torch import Tensor


def same_shape(**tensors: Tensor) -> None:
    """Refuse tensors whose shapes differ: `same_shape(value=value, target=target)`. Costs less than a microsecond."""
    shape = next(iter(tensors.values())).shape
    for x in tensors.values():
        if x.shape != shape:
            given = ", ".join(f"{name} {list(x.shape)}" for name, x in tensors.items())
            raise ValueError(f"the shapes must be equal: {given}")


def in_groups(score: Tensor) -> None:
    """Refuse scores that are not [P, G]: G attempts from each of P starts."""
    if score.dim() != 2:
        raise ValueError(f"score must have the shape [P, G] (starts, attempts): it has {list(score.shape)}")
