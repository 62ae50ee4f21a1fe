"""Which checkpoint stands for a run: the one whose parameters the run itself measures."""

import os
from pathlib import Path

from rlkit.paths import home


def own_checkpoint(measure: object, folder: str | Path) -> str:
    """`best` for a run that measures the best validated parameters, as soon as there are any; else `latest`.

    `measure` is the run's own key, from its config.yaml. A run of a configuration with `measure=best` whose environment
    has no validation split never chooses, and measures its last parameters.
    """
    there = os.path.isfile(home(folder) / "checkpoints" / "best.safetensors")
    return "best" if measure == "best" and there else "latest"
