"""What a run measures: on which splits, and which of its parameters, whose checkpoint then stands for the run."""

import math
import os
from collections.abc import Sequence
from pathlib import Path

from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.paths import home
from rlkit.policies import PolicyModule
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


def check_splits(env: Env, run: Run, given: Sequence[str], new: bool = True) -> None:
    """What is to be measured on, or chosen among, must be there before anything is trained. given: keys."""
    splits = env.splits
    if not splits["test"]:
        raise UserError(f"{env.source}: no test problems are left to measure on; set env.test, or give a larger file")
    between = "evaluate_every" if run.evaluate_every else "evaluations" if run.evaluations else ""
    if between and not splits["validation"]:
        raise UserError(f"{between} needs validation problems and there are none: hold some out, or set {between}=0")
    if run.measure == "best" and "measure" in given and not splits["validation"]:
        raise UserError("measure=best needs validation problems and there are none: hold some out, or leave it out")
    if run.measure == "best" and "measure" in given and not chooses(run) and new:  # a longer run has measured before
        raise UserError("measure=best chooses among evaluations, and there is one: give evaluations=N, or leave it out")
    if run.validation_episodes and "validation_episodes" in given and not splits["validation"]:
        raise UserError("validation_episodes does nothing: there are no validation problems; leave it out")


def only_evaluated(policy: object) -> bool:
    """Whether the policy stays the one it began as, so that no score of it says anything of what was learned."""
    return isinstance(policy, PolicyModule) and policy.only_evaluated


def check_choice(run: Run, policy: object, algo: str) -> None:
    """Refuse to choose the best of parameters that all have one score."""
    if run.measure == "best" and only_evaluated(policy):
        raise UserError(
            f"measure=best keeps the first evaluation's parameters: algo={algo} never changes the policy that is "
            "scored; leave it out (in a comparison, for all algorithms)"
        )
