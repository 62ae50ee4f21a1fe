"""The finished trials of a search, stored in an Optuna file, and Optuna's choices for the next ones.

The setting of a trial depends only on the trials a fixed number before it, not on the clock or on the order in which
others end. So a search that was killed resumes with the same trials.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from rlkit import seeding
from rlkit.disk import check_same
from rlkit.errors import UserError, one_line
from rlkit.recording.files import is_file, part_from_others, reason, refuse_link, remove, replacing
from rlkit.terminal import warn
from rlkit.tuning import space

if TYPE_CHECKING:
    import optuna
    from optuna.trial import FrozenTrial

FILE = "study.journal"
LARGEST = 1 << 30  # most bytes of it: 10,000 trials with 1,000 evaluations each have a fifth of that
STARTUP, WARMUP = 5, 3  # the median pruner starts after so many trials, and at this evaluation of a run
End = Literal["complete", "pruned", "failed"]
# What Optuna and `Study.read` raise where the journal was changed.
DAMAGE = (ArithmeticError, AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError)
Params = dict[str, object]


@dataclass(frozen=True)
class Trial:
    """One tried setting."""

    number: int
    chosen: dict[str, str]  # values of the searched keys, as texts; empty: the default setting
    end: End
    value: float | None  # the mean score of its runs, if all were finished
    values: dict[int, float]  # evaluation number → reported score
    reason: str = ""  # reason of a failure
    params: Params = field(default_factory=dict)  # Optuna's values of all searched keys, including those without effect


def installed() -> None:
    """Raise UserError where Optuna is not installed; silence its own messages."""
    try:
        from optuna import logging
    except ImportError:
        raise UserError("rlkit.tune needs the package optuna: pip install -e '.[tune]'") from None
    logging.set_verbosity(logging.ERROR)


class Study:
    """The trials of a search so far; only one process writes them."""

    def __init__(self, folder: Path, ranges: Mapping[str, space.Range], sampler: str, pruner: str, seed: int) -> None:
        installed()
        import optuna
        from optuna.storages import JournalStorage
        from optuna.storages.journal import JournalFileBackend

        self.ranges, self.sampler, self.pruner, self.seed = ranges, sampler, pruner, seed
        path = folder / FILE
        refuse_link(path)
        mend(path)
        try:
            storage = JournalStorage(JournalFileBackend(str(path)))
            self.kept = optuna.create_study(
                storage=storage, study_name="rlkit", direction="maximize", load_if_exists=True
            )
            self.trials = [self.read(trial) for trial in self.kept.trials]
            self.view(len(self.trials))
        except OSError as error:
            raise UserError(f"cannot write {path}: {reason(error)}") from None
        except DAMAGE as error:
            raise UserError(f"{path} is damaged: {one_line(error)}; choose another out=") from None
        self.path = path

    def read(self, trial: "FrozenTrial") -> Trial:
        end, told, why = (trial.user_attrs[key] for key in ("end", "chosen", "reason"))
        texts = space.texts(self.ranges, trial.params)  # what a trial set can only be what was searched
        if trial.number != trial.user_attrs["number"] or not told.items() <= texts.items():
            raise ValueError(f"trial {trial.number} is not as it was written")
        values = {int(step): float(x) for step, x in trial.intermediate_values.items()}
        value = trial.value if end == "complete" else None
        if end == "complete" and not (value is not None and math.isfinite(value)):
            raise ValueError(f"trial {trial.number} has the value {value}")
        return Trial(trial.number, dict(told), end, value, values, str(why), dict(trial.params))

    def frozen(self, trial: Trial) -> "FrozenTrial":
        """A trial in Optuna's form."""
        import optuna

        states = optuna.trial.TrialState
        return optuna.trial.create_trial(
            state=states.COMPLETE if trial.end == "complete" else states.PRUNED,
            value=trial.value,
            params=trial.params,
            distributions={key: self.ranges[key].distribution() for key in trial.params},
            intermediate_values=trial.values,
            user_attrs={"end": trial.end, "chosen": trial.chosen, "reason": trial.reason, "number": trial.number},
        )

    def add(self, trial: Trial) -> None:
        """Add a trial that has ended: one line of the file."""
        assert trial.number == len(self.trials), "trials are written in their order"
        check_same(self.path.parent)
        try:
            self.kept.add_trial(self.frozen(trial))
        except (OSError, RuntimeError) as error:  # where its lock cannot be removed, Optuna raises a RuntimeError
            told = reason(error) if isinstance(error, OSError) else one_line(error)
            raise UserError(
                f"cannot write {self.path}: {told}; fix that, and the same command goes on with this trial"
            ) from None
        self.trials.append(trial)

    def view(self, before: int, sampler: "optuna.samplers.BaseSampler | None" = None) -> "optuna.Study":
        """A study in memory with the first `before` trials; with a sampler, only those within the ranges."""
        import optuna

        study = optuna.create_study(direction="maximize", sampler=sampler)
        found = [self.frozen(trial) for trial in self.trials[: max(0, before)]]
        study.add_trials([x for x in found if sampler is None or x.params.keys() == self.ranges.keys()])
        return study

    def ask(self, number: int, before: int) -> Params:
        """Optuna's values for a trial, given the first `before` trials."""
        from optuna import samplers

        seed = seeding.derive(self.seed, "trial", number) % 2**32
        sampler = samplers.TPESampler(seed=seed) if self.sampler == "tpe" else samplers.RandomSampler(seed=seed)
        asked = self.view(before, sampler).ask({key: found.distribution() for key, found in self.ranges.items()})
        return dict(asked.params)

    def hopeless(self, values: Mapping[int, float], before: int) -> bool:
        """Whether a trial with these evaluations is pruned, given the first `before` trials."""
        if self.pruner == "none":
            return False
        import optuna

        state = optuna.trial.TrialState.RUNNING
        trial = optuna.trial.create_trial(state=state, intermediate_values=dict(values))
        pruner = optuna.pruners.MedianPruner(n_startup_trials=STARTUP, n_warmup_steps=WARMUP)
        return bool(pruner.prune(self.view(before), trial))

    @property
    def best(self) -> Trial | None:
        """The best finished trial; among equals, the first."""
        found = [(trial.value, -trial.number) for trial in self.trials if trial.value is not None]
        return self.trials[-max(found)[1]] if found else None


def mend(path: Path) -> None:
    """Remove an incomplete last line and a stale lock that a killed process left; no other process may write.

    Raises: UserError where it is not a file, as Optuna would wait for a pipe, or too large to be read into memory.
    """
    if path.exists() and not is_file(path):
        raise UserError(f"cannot write {path}: it is not a file; choose another out=")
    if is_file(path) and path.stat().st_size > LARGEST:
        raise UserError(f"{path} has over {LARGEST:,} bytes, more than a search writes; choose another out=")
    remove(path.with_name(f"{path.name}.lock"))
    data = path.read_bytes() if is_file(path) else b""
    if data and not data.endswith(b"\n"):
        lines = data.splitlines(keepends=True)[:-1]
        warn(f"{path}: the last line is cut off and removed; {len(lines)} before it are kept")
        with replacing(path) as file:
            file.write(b"".join(lines))
    part_from_others(path)


def shown(chosen: Mapping[str, str]) -> str:
    """Settings as typed, without the section: lr=0.001 hidden=64,64."""
    return " ".join(f"{key.partition('.')[2]}={text}" for key, text in chosen.items())
