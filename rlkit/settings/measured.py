"""Which checkpoint stands for a run: the one whose parameters the run itself measures."""

import math
import os
from pathlib import Path

from rlkit.paths import home
from rlkit.settings.config import Run


def own_checkpoint(measure: object, folder: str | Path) -> str:
    """`best` for a run that measures the best validated parameters, as soon as there are any; else `latest`.

    `measure` is the run's own key, from its config.yaml. A run of a configuration with `measure=best` whose environment
    has no validation split never chooses, and measures its last parameters.
    """
    there = os.path.isfile(home(folder) / "checkpoints" / "best.safetensors")
    return "best" if measure == "best" and there else "latest"


def chooses(run: Run) -> bool:
    """Whether there may be several evaluations, of which `measure=best` takes the best."""
    length = run.iterations or math.inf  # how many iterations env_steps are shows while it runs
    return length > 1 and (run.evaluations > 1 or 0 < run.evaluate_every < length)
