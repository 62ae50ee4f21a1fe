"""Memory checks before allocation, with the sizes in the message."""

from contextlib import suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

import psutil

from rlkit.errors import UserError

CGROUP = Path("/sys/fs/cgroup")  # limits of a container on Linux
GIB = 2**30


@runtime_checkable
class Remembers(Protocol):
    """An algorithm that needs memory for what it will keep of its steps."""

    def check_memory(self) -> None:
        """Refuse what will not fit, before a run begins."""
        ...


def check_algorithm(algo: object) -> None:
    """Refuse an algorithm whose memory of steps will not fit; only a run fills it."""
    if isinstance(algo, Remembers):
        algo.check_memory()


def check(needed: int, what: str, remedy: str) -> None:
    """Refuse an allocation that cannot fit.

    Arguments:
        needed: bytes, a lower bound.
        what: the key that needs them, as the user wrote it: "algo.capacity=1000000".
        remedy: advice: "give a smaller one".

    Raises: UserError where fewer bytes than `needed` are free.
    """
    if needed > (there := free()):
        raise UserError(f"{what} needs {gib(needed)}, {gib(there)} are free: {remedy}")


def free() -> int:
    """Bytes that this process may still allocate, within the limits of the system, its container and ulimit -v."""
    left = [int(psutil.virtual_memory().available)]
    with suppress(OSError, ValueError):  # no container, or one without a limit ("max")
        limit, used = ((CGROUP / name).read_text().strip() for name in ("memory.max", "memory.current"))
        left.append(int(limit) - int(used) + page_cache())
    if (most := most_addresses()) is not None:
        left.append(most - int(psutil.Process().memory_info().vms))
    return min(left)


def taken() -> int:
    """Bytes that this process uses; where `ulimit -v` limits its addresses, those that it has taken."""
    there = psutil.Process().memory_info()
    return int(there.rss if most_addresses() is None else there.vms)


def most_addresses() -> int | None:
    """The limit of `ulimit -v` in bytes; None: there is none."""
    try:
        import resource
    except ImportError:  # Windows has no such limits
        return None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    return None if most == resource.RLIM_INFINITY else most


def page_cache() -> int:
    """Bytes of cached files in a container: they count as used, but are freed as soon as memory is needed."""
    with suppress(OSError, ValueError):
        lines = (CGROUP / "memory.stat").read_text().splitlines()
        there = dict(line.split() for line in lines)
        return sum(int(there.get(key, 0)) for key in ("inactive_file", "active_file"))
    return 0


def gib(size: int) -> str:
    """Bytes in readable form: 1.5 GB."""
    return f"{size / GIB:,.1f} GB" if size < 10**6 * GIB else f"{size // GIB:.0e} GB"
