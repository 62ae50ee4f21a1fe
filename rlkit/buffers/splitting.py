"""Shapes of batches: groups to rows, rows to steps, minibatches to micro-batches."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import ranks
from rlkit.errors import UserError

# What a rollout says about its episodes: for the log, not for the learner.
NOTES = ("episode_return", "episode_length")
CREDIT = ("advantage", "return")
Learned = tuple[TensorDict, dict[str, Tensor]]  # a micro-batch, and the metrics of its loss


def flatten_groups(rollout: TensorDict) -> TensorDict:
    """[P, G, ...] → [B, ...] with B = P·G; a rollout without groups is returned as it is."""
    if rollout.batch_dims != 2:
        return rollout
    rows: TensorDict = rollout.flatten(0, 1)
    return rows


def batch_of(data: dict[str, Tensor], *size: int, device: torch.device | None = None) -> TensorDict:
    """A TensorDict of tensors that are known to begin with this size, and to be on this device if one is given.

    It is made without looking at each of them, which takes as long as five small operations.
    """
    batch: TensorDict = TensorDict._new_unsafe(data, batch_size=torch.Size(size), device=device)
    return batch


def flatten_steps(rollout: TensorDict) -> TensorDict:
    """[B, T] → [N]: the steps where the policy acted, for policies without memory. Keys of whole rows are dropped."""
    steps = acted_steps(rollout)
    return batch_of(steps, len(steps["mask"]))


def acted_steps(rollout: TensorDict) -> dict[str, Tensor]:
    """The same as a plain dictionary, which is made in a tenth of the time.

    Raises: UserError for a credit of whole rows, which would be dropped.
    """
    mask = rollout["mask"]
    size, whole = mask.shape, bool(mask.all())
    steps = {}
    for key, x in rollout.items():
        if x.shape[:2] == size and key not in NOTES:
            steps[key] = x.flatten(0, 1) if whole else x[mask]
        elif key in CREDIT:
            raise UserError(
                f"credit gave the {key} the shape {tuple(x.shape)}, and it is learned step by step: give one for each "
                f"step, {tuple(size)}"
            )
    return steps


def refuse_taken(rollout: TensorDict, *written: str) -> None:
    """Raises: UserError where credit gave what a buffer writes into each minibatch, in its place."""
    if taken := [key for key in written if key in rollout.keys()]:
        raise UserError(
            f"credit gave a '{taken[0]}', and the buffer writes its own into each minibatch: give it another name, "
            "and read that in loss"
        )


def check_columns(kept: object, length: int | None = None) -> dict[str, Tensor]:
    """What a checkpoint holds of steps: tensors of equal length, of `length` where it is known.

    Raises: TypeError or ValueError.
    """
    if not isinstance(kept, dict) or not all(isinstance(x, Tensor) and x.dim() for x in kept.values()):
        raise TypeError("steps are not tensors")
    if kept and {len(x) for x in kept.values()} != {len(next(iter(kept.values()))) if length is None else length}:
        raise ValueError(f"steps are {', '.join(f'{key} {list(x.shape)}' for key, x in kept.items())}")
    return dict(kept)


def check_alike(kept: dict[str, Tensor], new: dict[str, Tensor], lead: int) -> None:
    """Raises: UserError where steps of a checkpoint are not of the kind that are played, behind `lead` dimensions.

    Of those the last is time.
    """
    for key in kept.keys() | new.keys():
        x, y = kept.get(key), new.get(key)
        if x is not None and y is not None and (x.dtype, *sizes(x, lead)) == (y.dtype, *sizes(y, lead)):
            continue
        raise UserError(
            f"the checkpoint remembers steps of another kind than are played here, by their '{key}': it was changed, "
            "or is another run's; start a new run"
        )


def sizes(x: Tensor, lead: int) -> tuple[int, ...]:
    return (*x.shape[: lead - 1], *x.shape[lead:])


def concatenate(rollouts: Sequence[TensorDict]) -> TensorDict:
    """The starts of several rollouts one after the other, padded to the longest with steps that nobody acted in.

    Timed is what has the time of the mask in all of them: what holds for whole rows looks so in one of a single step.
    """
    longest = max(rollout["mask"].shape[-1] for rollout in rollouts)
    time = rollouts[0]["mask"].dim() - 1
    timed = set.intersection(
        *({key for key, x in r.items() if x.shape[: time + 1] == r["mask"].shape} for r in rollouts)
    )
    parts = []
    for rollout in rollouts:
        extra = longest - rollout["mask"].shape[-1]
        data = {
            key: torch.cat([x, x.new_zeros(*x.shape[:time], extra, *x.shape[time + 1 :])], time) if key in timed else x
            for key, x in rollout.items()
        }
        parts.append(TensorDict(data, batch_size=rollout.batch_size))
    return torch.cat(parts) if len(parts) > 1 else parts[0]


def check_rows(batch: TensorDict, memoryless: bool) -> TensorDict:
    """The minibatch. Raises: UserError where single steps are given to a policy that reads whole rows."""
    if memoryless or batch["mask"].dim() > 1:
        return batch
    raise UserError(
        "the buffer gives single steps, and this policy reads whole rows: make it with "
        "whole_rows=not self.policy.memoryless"
    )


def mine_of(batch: TensorDict, divided: bool = True) -> TensorDict:
    """The rows of a minibatch that this rank learns from."""
    if ranks.size() == 1 or not divided:
        return batch
    part: TensorDict = batch[ranks.part_of(len(batch))]
    return part


def in_step(parts: Iterator[TensorDict], batch: TensorDict) -> Iterator[tuple[TensorDict, bool]]:
    """Each part of a batch of all ranks, and whether it counts.

    Where ranks hold parts of one network, a row of the batch that counts nothing follows while others have more parts.
    """
    if not ranks.layered():
        yield from ((part, True) for part in parts)
        return
    mine = list(parts)
    missing = ranks.most(len(mine))[0] - len(mine)  # asked before the first pass: from then on layers are gathered
    yield from ((part, True) for part in mine)
    yield from ((batch[:1], False) for _ in range(missing))


def learned_by_all(learned: list[Learned], device: torch.device) -> list[Learned]:
    """The parts of a minibatch that any rank learned from, with their metrics. All ranks must call this."""
    mine = [(part.to_dict(), list(part.batch_size), metrics) for part, metrics in learned]
    found = [each for parts in ranks.everyones(mine) for each in parts]
    return [
        (TensorDict(data, batch_size=size).to(device), {name: x.to(device) for name, x in metrics.items()})
        for data, size, metrics in found
    ]


def of_all(rows: int, play: Callable[[slice], TensorDict]) -> TensorDict:
    """A rollout of so many rows, of which each rank plays its part. A rank without rows gets it on the CPU."""
    if ranks.size() == 1:
        return play(slice(0, rows))
    device: list[torch.device] = []
    ranks.gather()

    def mine(part: slice) -> dict[str, Tensor]:
        if part.start == part.stop:
            return {}
        played = play(part)
        device.append(played["mask"].device)
        return {key: x.cpu() for key, x in played.items()}

    parts = [TensorDict(x, batch_size=x["mask"].shape[:-1]) for x in ranks.shared(rows, mine) if x]
    return concatenate(parts).to(device[0] if device else torch.device("cpu"))


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


def beginnings(observation: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    """The first acted step of each row [B], and a label 0 .. P-1 that rows share whose observations are equal up to it.

    observation: [B, T, ...], mask: [B, T]; where nobody acted, the first step counts.
    """
    first = mask.int().argmax(-1)
    width = int(first.max()) + 1
    column = torch.arange(width, device=mask.device)
    read = observation[:, :width].flatten(2) if observation.dim() > 2 else observation[:, :width, None]
    alike = torch.unique(read.masked_fill((column > first[:, None])[..., None], 0), dim=0, return_inverse=True)[1]
    return first, torch.unique(alike * width + first, return_inverse=True)[1]


def per_step(x: Tensor, mask: Tensor) -> Tensor:
    """Expand one value for each row, [B] or [B, 1], to every step, [B, T]."""
    return (x if x.dim() == mask.dim() else x.unsqueeze(-1)).expand_as(mask)


def split(batch: TensorDict, steps: int | None) -> Iterator[TensorDict]:
    """Cut a minibatch of whole rows into micro-batches of about `steps` steps.

    A step counts once for all rows of a micro-batch that share it: what rows begin with alike, up to their first acted
    step (the prompt of a group). Such rows stay together where they can, and padding counts nothing: rows are sorted by
    length and the padding at the end is cut off. The weights were fixed before, so the summed gradient is that of the
    whole minibatch. None, or a batch without time: no cut.
    """
    if not len(batch):
        return
    if steps is None or batch["mask"].dim() < 2:
        yield batch
        return
    mask = batch["mask"]
    time = mask.dim() - 1
    lengths = last_step(mask).tolist()
    timed = {key for key, x in batch.items() if x.shape[: time + 1] == mask.shape}
    for chosen in _micro_batches(batch["observation"], mask, lengths, steps):
        rows, end = batch[torch.tensor(chosen, device=mask.device)], max(1, *(lengths[row] for row in chosen))
        cut = {key: x.narrow(time, 0, end) if key in timed else x for key, x in rows.items()}
        yield TensorDict(cut, batch_size=rows.batch_size)


def _micro_batches(observation: Tensor, mask: Tensor, lengths: list[int], steps: int) -> Iterator[list[int]]:
    """Which rows are read together; a row may be a pair, [B, 2, T]."""
    flat = mask.flatten(0, -2)
    first, label = beginnings(observation.flatten(0, mask.dim() - 2), flat)
    shared = dict(zip(label.tolist(), (first + 1).tolist(), strict=True))  # the steps of each beginning
    own = (last_step(flat) - first - 1).clamp(min=0).view(len(mask), -1).sum(1).tolist()
    groups: dict[tuple[int, ...], list[int]] = {}
    labels = label.view(len(mask), -1).tolist()
    for row in sorted(range(len(mask)), key=lengths.__getitem__):
        groups.setdefault(tuple(labels[row]), []).append(row)
    part: list[int] = []
    read: set[int] = set()
    count = 0
    for begins, group in sorted(groups.items(), key=lambda item: lengths[item[1][-1]]):
        begin = sum(shared[x] for x in set(begins))
        whole = begin + sum(own[row] for row in group) <= steps
        for piece in [group] if whole else [[row] for row in group]:
            written = sum(own[row] for row in piece)
            more = written + sum(shared[x] for x in set(begins) - read)
            if part and count + more > steps:
                yield part
                part, read, count, more = [], set(), 0, begin + written
            part, read, count = part + piece, read.union(begins), count + more
    yield part


def in_parts(
    function: Callable[..., dict[str, Tensor]], batch: TensorDict, steps: int | None, **keys: bool
) -> dict[str, Tensor]:
    """A function of a batch [B, T], such as `policy.evaluate`, on a whole rollout in micro-batches of `steps` steps.

    `keys` are arguments of the function, such as entropy=False. Ranks compute a part each.
    """
    if not ranks.divide():
        return _in_parts(partial(function, **keys), batch, steps)
    device = batch["mask"].device

    def mine(part: slice) -> dict[str, Tensor]:
        found = _in_parts(partial(function, **keys), batch[part], steps, batch)
        return {key: x.cpu() for key, x in found.items()}

    found = [part for part in ranks.shared(len(batch), mine) if part]
    return {key: torch.cat([part[key] for part in found]).to(device) for key in found[0]}


def _in_parts(
    function: Callable[[TensorDict], dict[str, Tensor]],
    batch: TensorDict,
    steps: int | None,
    of_ranks: TensorDict | None = None,
) -> dict[str, Tensor]:
    """of_ranks: the batch of all ranks, where each of them computes a part of it."""
    batch = batch.copy().set("row", torch.arange(batch.batch_size[0], device=batch["mask"].device))
    whole: dict[str, Tensor] = {}
    parts = split(batch, steps)
    for part, counts in ((part, True) for part in parts) if of_ranks is None else in_step(parts, of_ranks):
        found = function(part)
        for key, x in found.items() if counts else ():
            whole.setdefault(key, x.new_zeros(batch["mask"].shape))[part["row"], ..., : x.shape[-1]] = x
    return whole
