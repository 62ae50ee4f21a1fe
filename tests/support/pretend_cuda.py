"""A pretend CUDA device: tensors that say they are on cuda:0 and hold CPU data; graphs that are recorded and replayed.

    with pretended() as device:
        model.to("cuda:0")      # with the index: torch would ask a driver what "cuda" alone means
    device.syncs                # what the CPU would have waited for, and how often

What a real device refuses is refused: an operation on tensors of both devices, a wait or a transfer while a graph is
captured, the replay of a graph whose memory was freed. A replay works on the very memory that was captured, so a graph
that should have seen another tensor computes something else. The arithmetic is the CPU's. What is not pretended:
streams, the device's generator, graphs of one pool that overwrite each other's results, kernels that lack a dtype.
"""

import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode, _disable_current_modes
from torch.utils._pytree import tree_leaves, tree_map

PLACE = torch.device("cuda", 0)
FREE = 80 * 2**30  # bytes of its memory, all of them free
ANSWERS = {"_local_scalar_dense", "nonzero", "equal", "masked_select", "bincount", "_unique2", "unique_consecutive"}
COPIES = {"copy_", "_to_copy"}
TOGETHER = {"cat", "stack"}  # of which also a single number has to be where the others are
FILLS = {"uniform_", "normal_"}  # of new modules: from the device's generator, or from none where only sizes are wanted
INDEXED = {"index", "index_put", "index_put_", "_index_put_impl_"}
KERNELS = {  # that torch has for GPUs only
    torch.ops.aten.mm.dtype: lambda a, b, dtype: torch.mm(a.float(), b.float()).to(dtype),
    torch.ops.aten.bmm.dtype: lambda a, b, dtype: torch.bmm(a.float(), b.float()).to(dtype),
}


class Memory:
    """What tensors that share a storage have in common: it is freed with the last of them."""


class Pretended(Tensor):
    """`inner` is the data. Torch's own code takes it for a meta tensor, which needs neither kernels nor streams."""

    inner: Tensor
    memory: Memory
    device = property(lambda self: PLACE)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, inner: Tensor, memory: Memory) -> "Pretended":
        shape, strides, offset = inner.shape, inner.stride(), inner.storage_offset()
        made = Tensor._make_wrapper_subclass(cls, shape, strides, offset, dtype=inner.dtype, device="meta")
        made.inner, made.memory = inner, memory
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, *_: Any) -> Any:
        raise RuntimeError(f"{func} outside of the pretend device")

    def tolist(self) -> Any:
        return self.cpu().tolist()

    def __repr__(self, **_: Any) -> str:  # type: ignore[override]
        return f"pretended({self.inner})"


class Graph:
    """What was captured: operations, with the memory that they read and write."""

    def __init__(self, device: "Device") -> None:
        self.device, self.pool = device, None
        self.steps: list[tuple[Callable[..., Any], Any, Any, list[Tensor]]] = []
        self.made: set[Memory] = set()  # while it was captured
        self.read: set[weakref.ref[Memory]] = set()  # what was there before; the graph does not keep it alive
        self.before: dict[int, tuple[Tensor, Tensor]] = {}  # the storages that the capture wrote into, as they were

    def keep(self, tensor: Tensor) -> None:
        """A capture runs nothing: what the pretended one writes over is put back at its end."""
        whole = torch.empty(0, dtype=tensor.dtype).set_(tensor.untyped_storage())
        self.before.setdefault(_storage(tensor), (whole, whole.clone()))

    def replay(self) -> None:
        if any(memory() is None for memory in self.read):
            raise RuntimeError("a graph reads memory that was freed")
        self.device.replays += 1
        with _disable_current_modes():
            for call, args, kwargs, results in self.steps:
                for result, new in zip(results, _tensors(call(*args, **kwargs)), strict=True):
                    if new is not result:
                        result.copy_(new)


class Device(TorchDispatchMode):
    """Does the operations on pretended tensors, and remembers what happened."""

    def __init__(self) -> None:
        super().__init__()
        self._mode_key = torch._C._TorchDispatchModeKey.FAKE  # torch then looks for no driver
        self.graphs: list[Graph] = []
        self.replays = 0
        self.syncs: Counter[str] = Counter()  # by operation
        self.recording: Graph | None = None

    @contextmanager
    def capture(self, graph: Graph, pool: object = None) -> Iterator[None]:
        graph.pool, self.recording = pool, graph
        self.graphs.append(graph)
        try:
            yield
        finally:
            self.recording = None
            for whole, old in graph.before.values():
                whole.copy_(old)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, target = dict(kwargs or {}), (kwargs or {}).get("device")
        tensors = _tensors((args, kwargs))
        mine = [x for x in tensors if isinstance(x, Pretended)]
        if not mine and not _here(target):
            return func(*args, **kwargs)
        with self:  # inference mode hands over operations that consist of others
            if (result := func.decompose(*args, **kwargs)) is not NotImplemented:
                return result
        name = func._schema.name.removeprefix("aten::")
        self._check(name, args, tensors, mine, target)
        if target is not None:
            kwargs["device"] = torch.device("cpu")
        call, (args, kwargs) = KERNELS.get(func, func), tree_map(_inner, (args, kwargs))
        written = _tensors([x for x, kind in zip(args, func._schema.arguments, strict=False) if _written(kind)])
        for x in written if self.recording else ():
            self.recording.keep(x)
        with torch.random.fork_rng(devices=[], enabled=name in FILLS and kwargs.get("generator") is None):
            out = call(*args, **kwargs)
        if target is not None and not _here(target):
            return out
        same = {id(_inner(x)): x for x in tensors}  # what works in place gives its argument back
        homes = {_storage(x.inner): x.memory for x in mine}
        known = set(homes.values())

        def wrapped(x: Any) -> Any:
            if not isinstance(x, Tensor) or id(x) in same:
                return same.get(id(x), x)
            return Pretended(x, homes.setdefault(_storage(x), Memory()))

        result, fresh = tree_map(wrapped, out), set(homes.values()) - known
        if self.recording and (written or fresh):
            self.recording.made |= fresh
            self.recording.read |= {weakref.ref(memory) for memory in known - self.recording.made}
            self.recording.steps.append((call, args, kwargs, _tensors(out)))
        return result

    def _check(self, name: str, args: Any, tensors: Sequence[Tensor], mine: Sequence[Tensor], target: Any) -> None:
        """Refuse mixed devices and what may not be captured; count what the CPU waits for."""
        leaves = not isinstance(args[0], Pretended) if name == "copy_" else target is not None and not _here(target)
        moves = name in COPIES and (leaves or len(mine) < len(tensors))
        indices = _tensors(args[1]) if name in INDEXED else []  # may be on the CPU, and are then copied
        foreign = {
            id(x): tuple(x.shape) for x in tensors if not isinstance(x, Pretended) and (x.dim() or name in TOGETHER)
        }
        brought = [foreign.pop(id(x)) for x in indices if isinstance(args[0], Pretended) and id(x) in foreign]
        if mine and foreign and not moves:
            raise RuntimeError(f"{name}: tensors on cuda:0 and on the CPU, of shapes {[*foreign.values()]}")
        filled = (
            name != "index" and indices and _tensors(args[2])[0].numel() == 1
        )  # one number: a mask is not a question
        masked = not filled and any(x.dtype == torch.bool for x in indices)
        waits = name in ANSWERS or masked or (name in COPIES and leaves)
        self.syncs.update([name] * waits)
        if self.recording and (waits or moves or brought):
            raise RuntimeError(f"{name}: the CPU and the device may not wait for each other during a capture")


@contextmanager
def pretended() -> Iterator[Device]:
    """There is a cuda:0 now."""
    device = Device()
    calls = {"CUDAGraph": lambda: Graph(device), "graph": device.capture, "graph_pool_handle": object}
    calls |= {"memory_allocated": lambda _: 0, "memory_reserved": lambda _: 0, "mem_get_info": lambda _: (FREE, FREE)}
    lifted = torch._C._only_lift_cpu_tensors()
    with device, patch.multiple(torch.cuda, **calls):
        torch._C._set_only_lift_cpu_tensors(True)  # torch.tensor makes its data on the CPU and moves them
        try:
            yield device
        finally:
            torch._C._set_only_lift_cpu_tensors(lifted)


def _tensors(tree: Any) -> list[Tensor]:
    return [x for x in tree_leaves(tree) if isinstance(x, Tensor)]


def _inner(x: Any) -> Any:
    return x.inner if isinstance(x, Pretended) else x


def _storage(x: Tensor) -> int:
    return x.untyped_storage()._cdata


def _written(argument: Any) -> bool:
    return argument.alias_info is not None and argument.alias_info.is_write


def _here(place: torch.device | None) -> bool:
    return place is not None and place.type in ("cuda", "meta")  # meta: what torch's own code makes beside a tensor
