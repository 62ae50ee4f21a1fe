"""Shapes of batches: groups to rows, rows to steps, minibatches to micro-batches."""

from collections.abc import Callable, Iterator, Sequence

import torch
from tensordict import TensorDict
from torch import Tensor

# What a rollout tells about its episodes: for whoever logs it, not for the learner.
NOTES = ("episode_return", "episode_length")


def flatten_groups(rollout: TensorDict) -> TensorDict:
    """[P, G, ...] → [B, ...] with B = P·G; a rollout without groups is returned as it is."""
    if rollout.batch_dims != 2:
        return rollout
    rows: TensorDict = rollout.flatten(0, 1)
    return rows


def flatten_steps(rollout: TensorDict) -> TensorDict:
    """[B, T] → [N]: the steps where the policy acted, for policies without memory. Keys of whole rows are dropped."""
    mask = rollout["mask"]
    steps = {key: x for key, x in rollout.items() if x.shape[:2] == mask.shape and key not in NOTES}
    whole = bool(mask.all())
    return TensorDict(
        {key: x.flatten(0, 1) if whole else x[mask] for key, x in steps.items()},
        batch_size=[mask.numel() if whole else int(mask.sum())],
    )


def concatenate(rollouts: Sequence[TensorDict]) -> TensorDict:
    """The starts of several rollouts one after the other, padded to the longest with steps that nobody acted in."""
    longest = max(rollout["mask"].shape[-1] for rollout in rollouts)
    parts = []
    for rollout in rollouts:
        mask, extra = rollout["mask"], longest - rollout["mask"].shape[-1]
        time = mask.dim() - 1
        data = {
            key: torch.cat([x, x.new_zeros(*x.shape[:time], extra, *x.shape[time + 1 :])], time)
            if x.shape[: time + 1] == mask.shape
            else x
            for key, x in rollout.items()
        }
        parts.append(TensorDict(data, batch_size=rollout.batch_size))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def cut_short(rollout: TensorDict) -> Tensor:
    """Which rows ended at the limit of steps, not by themselves: [...] bool."""
    if "truncated" in rollout.keys():
        cut: Tensor = rollout["truncated"]
    else:
        cut = (rollout["done"] & ~rollout["terminated"]).any(-1)
    return cut


def last_step(mask: Tensor) -> Tensor:
    """How many steps of each row matter: 1 + the index of the last True. mask: [B, ..., T] → [B]."""
    index = torch.arange(1, mask.shape[-1] + 1, device=mask.device)
    return (mask * index).flatten(1).amax(1)


def per_step(x: Tensor, mask: Tensor) -> Tensor:
    """What holds for whole rows, [B] or [B, 1], at each step, [B, T]."""
    return (x if x.dim() == mask.dim() else x.unsqueeze(-1)).expand_as(mask)


def split(batch: TensorDict, steps: int | None) -> Iterator[TensorDict]:
    """Cut a minibatch of whole rows into micro-batches of about `steps` steps, padding included.

    Rows are sorted by length and the padding at the end is cut off, so little is computed for nothing. The weights were
    fixed before, so the summed gradient is that of the whole minibatch. None, or a batch without time: no cut.
    """
    if steps is None or batch["mask"].dim() < 2:
        yield batch
        return
    mask = batch["mask"]
    time = mask.dim() - 1
    lengths, order = last_step(mask).sort()
    sizes, start = lengths.tolist(), 0
    per_row = mask[0].numel() // mask.shape[-1]
    while start < len(sizes):
        stop = start + 1
        while stop < len(sizes) and (stop + 1 - start) * per_row * sizes[stop] <= steps:
            stop += 1
        rows, end = batch[order[start:stop]], max(1, sizes[stop - 1])
        timed = {key for key, x in batch.items() if x.shape[: time + 1] == mask.shape}
        cut = {key: x.narrow(time, 0, end) if key in timed else x for key, x in rows.items()}
        yield TensorDict(cut, batch_size=rows.batch_size)
        start = stop


def in_parts(
    function: Callable[[TensorDict], dict[str, Tensor]], batch: TensorDict, steps: int | None
) -> dict[str, Tensor]:
    """A function of a batch [B, T], such as `policy.evaluate`, on a whole rollout in micro-batches of `steps` steps."""
    batch = batch.copy().set("row", torch.arange(batch.batch_size[0], device=batch["mask"].device))
    whole: dict[str, Tensor] = {}
    for part in split(batch, steps):
        for key, x in function(part).items():
            whole.setdefault(key, x.new_zeros(batch["mask"].shape))[part["row"], ..., : x.shape[-1]] = x
    return whole
