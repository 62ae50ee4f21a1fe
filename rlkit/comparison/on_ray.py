"""The same grid on a Ray cluster: each run is a remote task, that is what a process of this machine is otherwise."""

import logging
from collections.abc import Sequence
from concurrent.futures import Future
from pathlib import Path

from rlkit.api import UserError
from rlkit.comparison.grid import Job, carry_out


def by_ray(jobs: Sequence[Job], stop: Path) -> list["Future[str | None]"]:
    """Carry the jobs out where the cluster has a free CPU; the folder that they are in must be shared by its machines.

    Joins the cluster of RAY_ADDRESS, or the one that runs on this machine, or starts one here. When a machine is lost,
    Ray gives its tasks to another, which continues the runs from their checkpoints.

    Raises: UserError without Ray, or where no cluster answers.
    """
    try:
        import ray
    except ImportError:
        raise UserError("workers=ray needs Ray: pip install ray, or give workers=N") from None
    if not ray.is_initialized():
        try:
            ray.init(log_to_driver=False, logging_level=logging.ERROR)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UserError(f"no Ray cluster: {str(error).splitlines()[0]}; mend RAY_ADDRESS or unset it") from None
    task = ray.remote(num_cpus=1)(carry_out)
    return [task.remote(job, stop).future() for job in jobs]
