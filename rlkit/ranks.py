"""Ranks: processes that torchrun started to train one policy together. Alone, everything here does nothing.

Each rank plays its part of the rows of a rollout and is given the whole of it, so that credit, memory and the weights
of a loss are those of one process. It computes the gradient of its part of a minibatch, and the gradients are summed.
Draws are made for the rows of all ranks, so that what N ranks play is what one plays.
"""

import io
import os
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import TCPStore
from torch.distributed.distributed_c10d import PrefixStore, Store

from rlkit import errors
from rlkit.errors import UserError, one_line, whole_number

T = TypeVar("T")
LONGEST = timedelta(days=2)  # that ranks wait for each other: a reward may take its time, and a lost rank is noticed
PATIENCE = 90  # seconds until all ranks must have come
FOLDER = "rlkit/folder"  # in the store of the launch
BUCKET = 2**24  # numbers of a gradient that are summed at a time
MISTAKES = (errors.UserError, errors.Exhausted, errors.RewardFailed, errors.EngineFailed)
KINDS = (*MISTAKES, errors.Diverged, errors.WorkerDied, FloatingPointError)
SHIPPED: dict[str, type[Exception]] = {kind.__name__: kind for kind in KINDS}

saved, command = 0, ""  # the iteration of the newest checkpoint, and how to go on: printed where a rank is lost
scratch = ""  # a folder that a rank removes which ends at once
_server: TCPStore | None = None  # the store of this launch, which outlives its ranks
_part: tuple[int, slice] | None = None  # the rows of all ranks, and which of them this one plays now
_layered = False  # whether ranks hold parts of one network, so that they must compute the same number of passes
_before: list["weakref.WeakMethod[Callable[[], None]]"] = []  # what all do together before each plays its part


def size() -> int:
    """How many ranks there are."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The number of this one, from 0 on."""
    return dist.get_rank() if dist.is_initialized() else 0


def launcher() -> str:
    """How this process was started, up to the name of the module."""
    if size() == 1:
        return "python -m"
    machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    nodes = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {nodes}--nproc-per-node {os.environ.get('LOCAL_WORLD_SIZE', size())} -m"


def lost() -> str:
    """What to do where a rank is lost."""
    there = f"the newest checkpoint is of iteration {saved}" if saved else "no checkpoint was written"
    return f"{there}; continue with: {command}" if saved and command else f"{there}; start the run again"


def first() -> bool:
    """Whether this rank is the one that writes and speaks."""
    return rank() == 0


def divide() -> bool:
    """Whether there is something to divide: several ranks, of which none is at its own part."""
    return size() > 1 and _part is None


def join() -> Store:
    """Meet the other ranks. Returns what all of them can write to.

    Raises: UserError where they cannot be reached.
    """
    global _server
    number, world = whole_number("RANK", 0), whole_number("WORLD_SIZE", 1)
    host, port = os.environ.get("MASTER_ADDR", "localhost"), whole_number("MASTER_PORT", 29500)
    if not port:
        raise UserError(
            "MASTER_PORT=0 in the environment: with --master-port 0 torchrun tells no rank which port it took; give "
            "--standalone in its place, or a port that is free"
        )
    hosts = number == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        _server = TCPStore(host, port, world, hosts, timeout=timedelta(seconds=PATIENCE), wait_for_workers=False)
        # A run that torchrun starts again must not read what the one before wrote.
        store = PrefixStore(f"rlkit/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", _server)
        wait_for(store, world)
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(whole_number("LOCAL_RANK", 0))
        kind = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(kind, store=store, rank=number, world_size=world, timeout=LONGEST)
        dist.barrier()
    except (RuntimeError, ValueError) as error:
        raise UserError(
            f"rank {number} of {world} cannot meet the others at {host}:{port} ({one_line(error)[:120]}): give "
            "torchrun --master-port another port, start all ranks, or unset RANK to train with one process"
        ) from error
    return store


def wait_for(store: Store, world: int) -> None:
    """Wait until all ranks are there. Raises: RuntimeError where they do not come."""
    here, end = store.add("here", 1), time.monotonic() + PATIENCE
    while here < world:
        if time.monotonic() > end:
            raise RuntimeError(f"{here} came in {PATIENCE} seconds")
        time.sleep(0.05)
        here = store.add("here", 0)


def begun() -> str:
    """The run folder that this launch of torchrun began before it started its ranks again; empty: none."""
    return _server.get(FOLDER).decode() if _server is not None and _server.check([FOLDER]) else ""


def note_begun(folder: str) -> None:
    """Let ranks that are started again by the same launch know its run folder."""
    if _server is not None:
        _server.set(FOLDER, folder)


def leave() -> None:
    """The end of a run in which no rank was lost."""
    if dist.is_initialized():
        dist.destroy_process_group()


def everyones(mine: T) -> list[T]:
    """What each rank has: tensors, numbers, texts, and lists, tuples and dictionaries of them. All ranks must ask."""
    if size() == 1:
        return [mine]
    buffer = io.BytesIO()
    torch.save(mine, buffer)
    sent = torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(size())]
    dist.all_gather(lengths, torch.tensor([len(sent)]))
    longest = int(max(int(x) for x in lengths))
    padded = torch.zeros(longest, dtype=torch.uint8)
    padded[: len(sent)] = sent
    found = [torch.empty(longest, dtype=torch.uint8) for _ in range(size())]
    dist.all_gather(found, padded)
    whole = (x[: int(n)].numpy().tobytes() for x, n in zip(found, lengths, strict=True))
    return [torch.load(io.BytesIO(x), weights_only=True, map_location="cpu") for x in whole]


def part_of(rows: int) -> slice:
    """Which of so many rows are this rank's: neighbors, and as many as any other rank has, or one more."""
    return slice(rows * rank() // size(), rows * (rank() + 1) // size())


def shared(rows: int, play: Callable[[slice], T]) -> list[T]:
    """What each rank made of its part of the rows. A mistake that one of them finds is raised on all.

    Within `play`, draws are made for the rows of all ranks; see `drawn`.
    """
    if size() == 1:
        return [play(slice(0, rows))]
    mine = part_of(rows)
    with playing(rows, mine):
        return together(lambda: play(mine))


def together(compute: Callable[[], T]) -> list[T]:
    """What each rank computes; a mistake that one of them finds is raised on all."""
    found: Any = ("", "", None)
    try:
        found = ("", "", compute())
    except tuple(SHIPPED.values()) as error:
        found = (type(error).__name__, str(error), None)
    values: list[T] = []
    for kind, said, value in everyones(found):
        if kind:
            raise SHIPPED.get(kind, UserError)(said)
        values.append(value)
    return values


def by_first(compute: Callable[[], T]) -> T:
    """What the first rank computes, for all; nobody else does it."""
    found: T = together(lambda: compute() if first() else None)[0]  # type: ignore[assignment]  # the first one's
    return found


@contextmanager
def playing(rows: int, mine: slice) -> Iterator[None]:
    """Meanwhile draws are made for so many rows, of which this rank has a part."""
    global _part
    before, _part = _part, (rows, mine)
    try:
        yield
    finally:
        _part = before


def drawn(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], rows: int = 0) -> Tensor:
    """What `draw` gives for a shape whose dimension `rows` are the rows, or attempts from them, that are played now.

    It draws for those of all ranks and keeps its own: what a row draws does not depend on how many ranks there are.
    """
    if _part is None:
        return draw(shape)
    total, mine = _part
    each, rest = divmod(shape[rows], mine.stop - mine.start)  # attempts from a row
    if rest or not each:  # not all of them at once, as where episodes are only scored
        return draw(shape)
    found = draw([*shape[:rows], total * each, *shape[rows + 1 :]])
    return found.narrow(rows, mine.start * each, shape[rows]).contiguous()


def share_layers() -> None:
    """From now on ranks hold parts of one network."""
    global _layered
    _layered = True


def layered() -> bool:
    """Whether they do: each pass gathers the layers, for which all ranks are needed."""
    return _layered and size() > 1


def before_parts(gather: Callable[[], None]) -> None:
    """Do this on all ranks before each of them plays its part, as long as the object lives that the method is of."""
    _before.append(weakref.WeakMethod(gather))


def gather() -> None:
    """Do together what the parts need that are played next."""
    if divide():
        for method in _before:
            if (do := method()) is not None:
                do()


def most(*numbers: int) -> list[int]:
    """The largest of each over the ranks, so that all of them go the same way."""
    if size() == 1:
        return list(numbers)
    found = torch.tensor([int(x) for x in numbers])
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [int(x) for x in found.tolist()]


def add_up(parameters: Sequence[Tensor], total: Tensor | float) -> Tensor | float:
    """Sum the gradients over the ranks in place, and the loss, which is returned; weights were fixed for all before.

    Shards are none of the parameters: their gradients are sums already.
    A parameter without gradient on one rank counts 0 there; without any, it keeps none.
    """
    if size() == 1:
        return total
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flags = [float(p.grad is not None) for p in parameters]
    if gradients:
        facts = gradients[0].new_tensor([float(total), *flags])
    else:
        facts = torch.tensor([float(total)], dtype=torch.float64)  # a rank without rows has a plain 0
    bucket = [facts]
    for gradient in gradients:
        if bucket and (bucket[0].dtype != gradient.dtype or sum(map(torch.numel, bucket)) > BUCKET):
            _sum(bucket)
            bucket = []
        bucket.append(gradient)
    _sum(bucket)
    for p, gradient, held in zip(parameters, gradients, facts[1:].tolist(), strict=True):
        if p.grad is None and held:
            p.grad = gradient
    return facts[0]


def _sum(bucket: Sequence[Tensor]) -> None:
    """Sum some tensors over the ranks in place, as one."""
    flat = torch.cat([x.flatten() for x in bucket])
    dist.all_reduce(flat)
    for x, summed in zip(bucket, torch.split(flat, [x.numel() for x in bucket]), strict=True):
        x.copy_(summed.view_as(x))


def check_same(what: str, mine: str, advice: str) -> None:
    """Refuse ranks of which one has something else than the first one."""
    found = everyones(mine)
    for number, other in enumerate(found):
        if other != found[0]:
            raise UserError(f"rank {number} has another {what} than rank 0: {advice}")
