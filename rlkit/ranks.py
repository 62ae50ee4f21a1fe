"""Ranks: processes that torchrun started to train one policy together. In a single process, nothing here has an effect.

Each rank plays its part of a rollout's rows and receives the whole rollout, so that credit, memory and loss weights
equal those of one process. It computes the gradient of its part of a minibatch; gradients are summed. Random numbers
are drawn for the rows of all ranks, so that N ranks play the same rows as one.
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
LONGEST = timedelta(days=2)  # timeout for other ranks: rewards may be slow, and `pulse` notices a lost rank
PATIENCE = 90  # seconds until all ranks must have joined
FOLDER = "rlkit/folder"  # key in the store of the launch
BUCKET = 2**24  # numbers of a gradient that are summed in one operation
MISTAKES = (errors.UserError, errors.Exhausted, errors.RewardFailed, errors.EngineFailed)
KINDS = (*MISTAKES, errors.Diverged, errors.WorkerDied, FloatingPointError)
SHIPPED: dict[str, type[Exception]] = {kind.__name__: kind for kind in KINDS}

saved, command = 0, ""  # iteration of the newest checkpoint, and the command to resume: printed if a rank is lost
scratch = ""  # a folder that a rank removes when it ends
_server: TCPStore | None = None  # the store of this launch; it outlives its ranks
_part: tuple[int, slice] | None = None  # number of rows over all ranks, and the slice that this rank plays now
_layered = False  # whether the network is sharded: then all ranks must compute the same number of passes
_before: list["weakref.WeakMethod[Callable[[], None]]"] = []  # called together before each rank plays its part


def size() -> int:
    """The number of ranks."""
    return dist.get_world_size() if dist.is_initialized() else 1


def rank() -> int:
    """The index of this rank, from 0."""
    return dist.get_rank() if dist.is_initialized() else 0


def launcher() -> str:
    """The command that started this process, up to the name of the module."""
    if size() == 1:
        return "python -m"
    machines = int(os.environ.get("GROUP_WORLD_SIZE", "1"))
    nodes = f"--nnodes {machines} " if machines > 1 else ""
    return f"torchrun {nodes}--nproc-per-node {os.environ.get('LOCAL_WORLD_SIZE', size())} -m"


def lost() -> str:
    """Advice after a rank was lost."""
    there = f"the newest checkpoint is of iteration {saved}" if saved else "no checkpoint was written"
    return f"{there}; continue with: {command}" if command else f"{there}; start the run again"


def first() -> bool:
    """Whether this is the rank that writes files and prints."""
    return rank() == 0


def divide() -> bool:
    """Whether work can be divided: there are several ranks, and none is inside its own part."""
    return size() > 1 and _part is None


def join() -> Store:
    """Join the other ranks. Returns: a store that all of them can write to.

    Raises: UserError where they cannot be reached.
    """
    number, world = whole_number("RANK", 0), whole_number("WORLD_SIZE", 1)
    hosts = number == 0 and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True"
    try:
        # A run that torchrun restarts must not read values of the earlier one.
        store = PrefixStore(f"rlkit/{os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", connect(hosts))
        wait_for(store, world)
        if cuda := torch.cuda.is_available():
            torch.cuda.set_device(whole_number("LOCAL_RANK", 0))
        kind = "cpu:gloo,cuda:nccl" if cuda else "gloo"
        dist.init_process_group(kind, store=store, rank=number, world_size=world, timeout=LONGEST)
        dist.barrier()
    except (RuntimeError, ValueError) as error:
        host, port = os.environ.get("MASTER_ADDR", "localhost"), os.environ.get("MASTER_PORT", "29500")
        raise UserError(
            f"rank {number} of {world} cannot meet the others at {host}:{port} ({one_line(error)[:120]}): give "
            "torchrun --master-port another port, start all ranks, or unset RANK to train with one process"
        ) from error
    return store


def wait_for(store: Store, world: int) -> None:
    """Wait until all ranks have joined. Raises: RuntimeError where they do not."""
    here, end = store.add("here", 1), time.monotonic() + PATIENCE
    while here < world:
        if time.monotonic() > end:
            raise RuntimeError(f"{here} came in {PATIENCE} seconds")
        time.sleep(0.05)
        here = store.add("here", 0)


def connect(hosts: bool = False) -> TCPStore:
    """The store of this launch, which this process may have to host. Raises: RuntimeError where it is out of reach."""
    global _server
    host, port = os.environ.get("MASTER_ADDR", "localhost"), whole_number("MASTER_PORT", 29500)
    if not port:
        raise UserError(
            "MASTER_PORT=0 in the environment: with --master-port 0 torchrun tells no rank which port it took; give "
            "--standalone in its place, or a port that is free"
        )
    _server = TCPStore(
        host, port, whole_number("WORLD_SIZE", 1), hosts, timeout=timedelta(seconds=PATIENCE), wait_for_workers=False
    )
    return _server


def begun() -> str:
    """The run folder that this launch of torchrun began before it restarted its ranks; empty: none."""
    return _server.get(FOLDER).decode() if _server is not None and _server.check([FOLDER]) else ""


def note_begun(folder: str) -> None:
    """Record the run folder for ranks that the same launch restarts."""
    if _server is not None:
        _server.set(FOLDER, folder)


def leave() -> None:
    """Leave at the end of a run in which no rank was lost."""
    if dist.is_initialized():
        dist.destroy_process_group()


def everyones(mine: T) -> list[T]:
    """The values of all ranks: tensors, numbers, texts, and collections of them. All ranks must call this."""
    if size() == 1:
        return [mine]
    buffer = io.BytesIO()
    torch.save(mine, buffer)
    sent = torch.frombuffer(bytearray(buffer.getbuffer()), dtype=torch.uint8)
    lengths = [torch.zeros(1, dtype=torch.long) for _ in range(size())]
    dist.all_gather(lengths, torch.tensor([len(sent)]))
    padded = torch.nn.functional.pad(sent, (0, max(int(x) for x in lengths) - len(sent)))
    found = [torch.empty_like(padded) for _ in range(size())]
    dist.all_gather(found, padded)
    whole = (x[: int(n)].numpy().tobytes() for x, n in zip(found, lengths, strict=True))
    return [torch.load(io.BytesIO(x), weights_only=True, map_location="cpu") for x in whole]


def part_of(rows: int) -> slice:
    """This rank's slice of the rows: consecutive rows, as many as any other rank has, or one more."""
    return slice(rows * rank() // size(), rows * (rank() + 1) // size())


def shared(rows: int, play: Callable[[slice], T]) -> list[T]:
    """The results of all ranks, each for its part of the rows. An error on one rank is raised on all.

    Within `play`, random numbers are drawn for the rows of all ranks; see `drawn`.
    """
    if size() == 1:
        return [play(slice(0, rows))]
    mine = part_of(rows)
    with playing(rows, mine):
        return together(lambda: play(mine))


def together(compute: Callable[[], T]) -> list[T]:
    """The results of all ranks; an error on one rank is raised on all."""
    try:
        found: tuple[str, str, Any] = ("", "", compute())
    except tuple(SHIPPED.values()) as error:
        kind = next(each for each in type(error).__mro__ if each in SHIPPED.values())  # of a subclass: what it is
        found = (kind.__name__, str(error), None)
    results = everyones(found)
    for name, said, _ in results:
        if name:
            raise SHIPPED.get(name, UserError)(said)
    return [value for _, _, value in results]


def by_first(compute: Callable[[], T]) -> T:
    """The result of the first rank, on all ranks; only the first one computes it."""
    found: T = together(lambda: compute() if first() else None)[0]  # type: ignore[assignment]  # the first one's
    return found


@contextmanager
def playing(rows: int, mine: slice) -> Iterator[None]:
    """Within the block, draw for so many rows, of which this rank has a part."""
    global _part
    before, _part = _part, (rows, mine)
    try:
        yield
    finally:
        _part = before


def drawn(draw: Callable[[Sequence[int]], Tensor], shape: Sequence[int], rows: int = 0) -> Tensor:
    """The part of `draw(shape)` for this rank; dimension `rows` are the rows in play, or attempts from them.

    All ranks draw for all rows and keep their own: so the draws of a row do not depend on the number of ranks.
    """
    if _part is None:
        return draw(shape)
    total, mine = _part
    found = draw([*shape[:rows], everyone(shape[rows]), *shape[rows + 1 :]])
    return found.narrow(rows, mine.start * found.shape[rows] // total, shape[rows]).contiguous()


def everyone(rows: int) -> int:
    """How many rows, or attempts from them, all ranks play while this one plays so many."""
    if _part is None:
        return rows
    total, mine = _part
    return int(total * -(-rows // (mine.stop - mine.start)))  # attempts per row; 1 where a part of the rows is played


def share_layers() -> None:
    """Record that the network is sharded from now on."""
    global _layered
    _layered = True


def layered() -> bool:
    """Whether the network is sharded: each pass gathers its layers, which needs all ranks."""
    return _layered and size() > 1


def before_parts(gather: Callable[[], None]) -> None:
    """Call this on all ranks before each plays its part, as long as the method's object exists."""
    _before.append(weakref.WeakMethod(gather))


def gather() -> None:
    """Call together the functions registered by `before_parts`."""
    if divide():
        for method in _before:
            if (do := method()) is not None:
                do()


def most(*numbers: int) -> list[int]:
    """The maximum of each number over the ranks, so that all of them take the same branch."""
    if size() == 1:
        return list(numbers)
    found = torch.tensor([int(x) for x in numbers])
    dist.all_reduce(found, dist.ReduceOp.MAX)
    return [int(x) for x in found.tolist()]


def add_up(parameters: Sequence[Tensor], total: Tensor | float) -> Tensor | float:
    """Sum gradients over the ranks in place. Returns: the summed loss. Loss weights are already global.

    `parameters` has no shards: their gradients are summed already.
    A parameter without gradient on one rank counts 0 there; without any, it keeps none.
    """
    if size() == 1:
        return total
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in parameters]
    flags = [float(p.grad is not None) for p in parameters]
    like = gradients[0] if gradients else torch.empty(0, dtype=torch.float64)
    facts = like.new_tensor([float(total), *flags])  # a rank without rows has a plain 0
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
    """Sum tensors over the ranks in place, in one operation."""
    flat = torch.cat([x.flatten() for x in bucket])
    dist.all_reduce(flat)
    for x, summed in zip(bucket, torch.split(flat, [x.numel() for x in bucket]), strict=True):
        x.copy_(summed.view_as(x))


def check_same(what: str, mine: str, advice: str) -> None:
    """Refuse a rank whose value differs from that of the first rank."""
    found = everyones(mine)
    for number, other in enumerate(found):
        if other != found[0]:
            raise UserError(f"rank {number} has another {what} than rank 0: {advice}")
