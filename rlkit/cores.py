"""How many cores this process may use."""

import math
import os
from contextlib import suppress

from rlkit.memory import CGROUP


def cores() -> int:
    """Those of a cluster's job or of taskset, within the quota of a container; the machine may have more."""
    mine = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError, ZeroDivisionError):  # no container, or no quota ("max")
        quota, period = (CGROUP / "cpu.max").read_text().split()
        mine = min(mine, math.ceil(int(quota) / int(period)))
    return max(1, mine)
