"""Linear layers: trained, frozen, and frozen with a LoRA adapter."""

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rlkit.shards import whole

Context = Any  # torch's type; `forward` stores on it what `backward` needs


class Adapter(nn.Module):
    """scale · up · down · x, added to W x (LoRA, arXiv:2106.09685); down [r, in] and up [out, r] in float32."""

    def __init__(self, down: Tensor, up: Tensor, scale: float):
        super().__init__()
        self.down, self.up, self.scale = nn.Parameter(down), nn.Parameter(up), scale

    def add(self, product: Tensor, input: Tensor) -> Tensor:
        """product + adapter(input), without a second tensor of that size."""
        low = F.linear(input, self.down.to(input.dtype)).flatten(0, -2)
        up = self.up.to(input.dtype)
        return torch.addmm(product.flatten(0, -2), low, up.T, alpha=self.scale).view_as(product)

    def weight(self) -> Tensor:
        """The adapter as one matrix, [out, in]."""
        return (self.up @ self.down).mul_(self.scale)


class Linear(nn.Linear):
    """Parameters keep their own precision; the product has the precision of the input."""

    adapter: Adapter | None

    def __init__(self, inner: int, outer: int, bias: bool = True):
        super().__init__(inner, outer, bias)
        self.adapter = None

    def forward(self, input: Tensor) -> Tensor:
        bias = None if self.bias is None else self.bias.to(input.dtype)
        if self.weight.dtype == input.dtype or self.weight.requires_grad:
            product = F.linear(input, self.weight.to(input.dtype), bias)
        else:
            product = frozen_product(input, self.weight) if bias is None else frozen_product(input, self.weight) + bias
        return product if self.adapter is None else self.adapter.add(product, input)

    @torch.no_grad()
    def merged(self) -> Tensor:
        """The sum of weight and adapter as one matrix, in the precision of the adapter."""
        if self.adapter is None:
            return whole(self.weight)
        return self.adapter.weight().add_(whole(self.weight))


def frozen_product(input: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ in the precision of x, for a frozen weight that is stored in another precision.

    Only the stored weight is kept for the backward pass: casts of all weights would be a second copy of the model.
    """
    product: Tensor = _FrozenProduct.apply(input, weight)  # type: ignore[no-untyped-call]  # torch's
    return product


class _FrozenProduct(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Context, input: Tensor, weight: Tensor) -> Tensor:
        ctx.save_for_backward(weight)
        return F.linear(input, weight.to(input.dtype))

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad: Tensor) -> tuple[Tensor, None]:
        (weight,) = ctx.saved_tensors
        return grad @ weight.to(grad.dtype), None
