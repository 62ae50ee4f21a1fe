"""Puts scores and rewards into a batch: the token that gets each reward, and the end of each row."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.scores import RATED, REWARD
from rlkit.text.scoring import Scored

Decode = Callable[[list[list[int]]], list[str]]  # of a tokenizer: ids to texts


def finish(batch: TensorDict, scores: Tensor, reward: Tensor | None = None) -> TensorDict:
    """Mark the last acted step of each row as terminated: a limit of tokens is part of the task.

    scores: [...]. reward: [..., T]; None: the score at the last acted step.
    """
    final = _final(batch["mask"])
    batch["score"] = scores
    batch["reward"] = final * scores.unsqueeze(-1) if reward is None else reward
    batch["terminated"] = final
    batch["done"] = final.clone()
    return batch


def place(batch: TensorDict, found: Scored, decode: Decode) -> TensorDict:
    """A batch [..., T] of N rows with scores and rewards; decode: the tokenizer's function from ids to texts."""
    mask = batch["mask"]

    def rows(values: Sequence[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32, device=mask.device).view(batch.batch_size)

    for name, values in found.named.items():
        batch[f"{REWARD}{name}"] = rows([value or 0.0 for value in values])
        batch[f"{RATED}{name}"] = rows([float(value is not None) for value in values]).bool()
    whole = [sum((value for end, value in each if end is None), 0.0) for each in found.placed]
    reward = _final(mask) * rows(whole).unsqueeze(-1)
    flat, acted, ids = (x.view(-1, mask.shape[-1]) for x in (reward, mask, batch["action"]))
    for row, each in enumerate(found.placed):
        earned = [(end, value) for end, value in each if end is not None]
        if earned:
            steps = acted[row].nonzero()[:, 0]
            first, last = int(steps[0]), int(steps[-1])  # a tool may have written between them
            at = tokens_at(ids[row, first : last + 1].tolist(), [end for end, _ in earned], decode)
            before = torch.searchsorted(steps, steps.new_tensor(at) + first, right=True) - 1
            flat[row].index_add_(0, steps[before], flat.new_tensor([value for _, value in earned]))
    return finish(batch, rows(found.score), reward)


def rewards_of(rows: TensorDict) -> dict[str, list[float | None]]:
    """The rewards that `place` put into rows [N], by function; empty where there is one function only."""
    names = [key.removeprefix(REWARD) for key in rows.keys() if key.startswith(REWARD)]
    pairs = {name: (rows[f"{REWARD}{name}"].tolist(), rows[f"{RATED}{name}"].tolist()) for name in names}
    return {
        name: [value if rated else None for value, rated in zip(*pair, strict=True)]
        for name, pair in pairs.items()
        if len(pairs) > 1
    }


def tokens_at(ids: list[int], ends: Sequence[int], decode: Decode) -> list[int]:
    """For each end of a part of the text, the index of the token that completes the part.

    Prefixes of the row are decoded, never a single token: one character may consist of several tokens.
    """
    text = decode([ids])[0]

    def index(end: int) -> int:
        def complete(last: int) -> bool:
            return decode([ids[: last + 1]])[0][:end] == text[:end]

        at = bisect_left(range(len(ids) - 1), True, key=complete)
        while (start := _before_pieces(ids, at, decode)) is not None and complete(start):
            at = bisect_left(range(start), True, key=complete)
        return at

    return [index(end) for end in ends]


def _before_pieces(ids: list[int], at: int, decode: Decode) -> int | None:
    """The token before the incomplete characters that end at `at`, or None. Some decoders turn whole letters before an
    incomplete character into U+FFFD, too, so that the binary search misses the tokens before it."""
    start = at
    while start >= 0 and "\ufffd" in decode([[ids[start]]])[0]:
        start -= 1
    return start if 0 <= start < at else None


def _final(mask: Tensor) -> Tensor:
    """True at the last acted step of each row. [..., T] -> [..., T]"""
    return mask & (mask.flip(-1).cumsum(-1).flip(-1) == 1)
