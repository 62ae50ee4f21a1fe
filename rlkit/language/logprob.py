"""Log-probabilities of chosen tokens from hidden states; the full [N, V] logits are never in memory at once."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rlkit.language.precision import add_product, operand, product, wide

Context = Any  # torch's type; `forward` stores on it what `backward` needs
Apply = Callable[[Tensor, Tensor, Tensor | None, Tensor, float, float | None, int, bool], tuple[Tensor, Tensor]]
ELEMENTS = {"cpu": 1 << 19, "cuda": 1 << 26}  # logits in memory at a time, if no chunk is given
ROWS = 256  # at least this many rows: products with fewer are slow


def token_log_probs(
    hidden: Tensor,
    weight: Tensor,
    targets: Tensor,
    temperature: float = 1.0,
    chunk: int | None = None,
    entropy: bool = True,
    bias: Tensor | None = None,
    cap: float | None = None,
) -> tuple[Tensor, Tensor]:
    """log π(a) = z_a - logsumexp(z) and H = -Σ π log π, with z = (W h + b) / temperature; both [N], at least float32.

    hidden [N, d], weight W [V, d], targets a [N], bias b [V]. With a cap c (Gemma 2, arXiv:2408.00118), logits l become
    c tanh(l / c) before division by the temperature. Rows are processed `chunk` at a time. The backward pass recomputes
    their logits, ∂/∂z = g_a (1_a - π) - g_H π (log π + H), unless W and b are frozen and H has no gradient. Memory is
    chunk·V instead of several N·V. entropy=False skips the entropy and returns zeros.

    Operands have the precision of the hidden states, and results are float32, also in the backward pass. So bfloat16
    logits equal those that an engine computes (see `precision.product`).
    """
    chunk = chunk or chunk_rows(weight)
    apply: Apply = _TokenLogProbs.apply  # torch leaves it without annotations
    return apply(hidden, weight, bias, targets, temperature, cap, chunk, entropy)


def chunk_rows(weight: Tensor) -> int:
    """Rows whose logits are in memory at a time; weight [V, d]."""
    return max(ROWS, ELEMENTS.get(weight.device.type, 1 << 24) // weight.shape[0])


class _TokenLogProbs(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Context,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        targets: Tensor,
        temperature: float,
        cap: float | None,
        chunk: int,
        entropy: bool,
    ) -> tuple[Tensor, Tensor]:
        states, matrix = operand(hidden, hidden.dtype), operand(weight, hidden.dtype)
        log_prob, spread, norm = (hidden.new_zeros(len(targets), dtype=wide(hidden.dtype)) for _ in range(3))
        # If the head is frozen, only ∂log π(a)/∂h is needed: it is computed here, where the logits are in memory.
        alone = ctx.needs_input_grad[0] and not any(ctx.needs_input_grad[1:3])
        by_hidden = torch.empty_like(hidden, dtype=wide(hidden.dtype)) if alone else None
        for rows in _chunks(len(targets), chunk):
            logits = _logits(states[rows], matrix, bias, cap, temperature)
            top = logits.amax(-1)
            slope = None if cap is None or by_hidden is None else 1 - (logits * (temperature / cap)) ** 2
            chosen = logits.sub_(top[:, None]).gather(1, targets[rows, None])[:, 0]
            mass = logits.exp() if entropy else logits.exp_()
            total = mass.sum(-1)
            norm[rows] = top + total.log()
            log_prob[rows] = chosen - total.log()
            if entropy:  # H = log Σ e^z - Σ π z
                spread[rows] = total.log() - torch.linalg.vecdot(mass, logits) / total
            if by_hidden is not None:
                grad = mass.div_(-total[:, None] * temperature)
                grad.scatter_add_(1, targets[rows, None], torch.full_like(chosen, 1 / temperature)[:, None])
                grad = grad if slope is None else grad.mul_(slope)
                by_hidden[rows] = product(operand(grad, hidden.dtype), matrix)
        ctx.save_for_backward(hidden, weight, bias, targets, norm, spread, by_hidden)
        ctx.temperature, ctx.cap, ctx.chunk = temperature, cap, chunk
        ctx.set_materialize_grads(False)  # None: this output has no gradient
        if not entropy:
            ctx.mark_non_differentiable(spread)
        return log_prob, spread

    @staticmethod
    @once_differentiable
    def backward(ctx: Context, grad_log_prob: Tensor | None, grad_entropy: Tensor | None) -> tuple[Tensor | None, ...]:
        hidden, weight, bias, targets, norm, spread, by_hidden = ctx.saved_tensors
        if by_hidden is not None and grad_entropy is None and grad_log_prob is not None:
            return (by_hidden * grad_log_prob[:, None]).to(hidden.dtype), *[None] * 7
        by_token = torch.zeros_like(norm) if grad_log_prob is None else grad_log_prob
        states, matrix = operand(hidden, hidden.dtype), operand(weight, hidden.dtype)
        grad_hidden = torch.empty_like(hidden) if ctx.needs_input_grad[0] else None
        grad_weight = torch.zeros_like(weight, dtype=wide(hidden.dtype)) if ctx.needs_input_grad[1] else None
        grad_bias = torch.zeros_like(bias, dtype=wide(hidden.dtype)) if ctx.needs_input_grad[2] else None
        for rows in _chunks(len(targets), ctx.chunk):
            logits = _logits(states[rows], matrix, bias, ctx.cap, ctx.temperature)
            slope = None if ctx.cap is None else 1 - (logits * (ctx.temperature / ctx.cap)) ** 2  # of c tanh(l / c)
            log_policy = logits.sub_(norm[rows, None])
            by_entropy = None if grad_entropy is None else (grad_entropy[rows], spread[rows])
            grad = _grad_logits(log_policy, targets[rows], by_token[rows], by_entropy)
            grad = grad.div_(ctx.temperature) if ctx.temperature != 1 else grad
            grad = grad if slope is None else grad.mul_(slope)
            if grad_bias is not None:
                grad_bias.add_(grad.sum(0))
            grad = operand(grad, hidden.dtype)
            if grad_hidden is not None:
                grad_hidden[rows] = product(grad, matrix).to(hidden.dtype)
            if grad_weight is not None:
                add_product(grad_weight, grad.T, states[rows])
        grad_weight = None if grad_weight is None else grad_weight.to(weight.dtype)
        return grad_hidden, grad_weight, grad_bias, None, None, None, None, None


def _grad_logits(
    log_policy: Tensor, targets: Tensor, by_token: Tensor, by_entropy: tuple[Tensor, Tensor] | None
) -> Tensor:
    """g_a (1_a - π) - g_H π (log π + H), [chunk, V], with g_a `by_token` and (g_H, H) `by_entropy`, if given.

    The argument log_policy is overwritten.
    """
    if by_entropy is None:
        grad = log_policy.exp_().mul_(-by_token[:, None])
    else:
        policy, (weight, spread) = log_policy.exp(), by_entropy
        grad = log_policy.add_(spread[:, None]).mul_(weight[:, None]).add_(by_token[:, None])
        grad = grad.mul_(policy).neg_()
    return grad.scatter_add_(1, targets[:, None], by_token[:, None])


def _logits(hidden: Tensor, matrix: Tensor, bias: Tensor | None, cap: float | None, temperature: float) -> Tensor:
    logits = product(hidden, matrix.T)
    logits = logits if bias is None else logits.add_(bias)
    logits = logits if cap is None else logits.div_(cap).tanh_().mul_(cap)
    return logits.div_(temperature) if temperature != 1 else logits


def _chunks(rows: int, size: int) -> list["slice[int, int, None]"]:
    return [slice(start, start + size) for start in range(0, rows, size)]
