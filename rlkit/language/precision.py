"""Matrix products whose result has more precision than their operands."""

import torch
from torch import Tensor


def product(a: Tensor, b: Tensor) -> Tensor:
    """a b in float32, whatever the precision of both: [.., m, k] and [.., k, n] → [.., m, n]; float64 stays float64.

    Scores and logits rounded to bfloat16 would change log-probabilities by more than a policy update does. A GPU
    multiplies bfloat16 and accumulates in float32 at no cost; torch has no such kernel for other devices.
    """
    if a.dtype in (torch.float32, torch.float64):
        return a @ b.to(a.dtype)
    if not a.is_cuda:
        return a.float() @ b.float()
    if a.dim() == 2:
        return torch.mm(a, b, out_dtype=torch.float32)
    return torch.unflatten(torch.bmm(a.flatten(0, -3), b.flatten(0, -3), out_dtype=torch.float32), 0, a.shape[:-2])


def wide(dtype: torch.dtype) -> torch.dtype:
    """The precision of log-probabilities: float32, or float64 if the network's is."""
    return torch.promote_types(dtype, torch.float32)


def operand(x: Tensor, dtype: torch.dtype) -> Tensor:
    """x rounded to `dtype`, for several products: already widened where `product` would widen it each time."""
    x = x.to(dtype)
    return x if x.is_cuda or dtype in (torch.float32, torch.float64) else x.float()


def add_product(sum: Tensor, a: Tensor, b: Tensor) -> None:
    """sum += a b, without a temporary tensor where torch supports it."""
    if a.dtype == sum.dtype:
        sum.addmm_(a, b)
    else:
        sum += product(a, b)
