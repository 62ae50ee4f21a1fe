"""Carries out the trials of a search: each has several runs, which are watched and stopped if the trial is pruned."""

import math
import re
import shutil
import time
from concurrent.futures import Future, ThreadPoolExecutor, wait
from fractions import Fraction
from pathlib import Path
from threading import Event

from rlkit import disk
from rlkit.comparison import grid, warm
from rlkit.comparison.view import outcome
from rlkit.console import LACKS, lacking
from rlkit.errors import UserError, one_line
from rlkit.recording.files import is_number, remove
from rlkit.settings import places
from rlkit.signals import handled, leaving
from rlkit.terminal import say
from rlkit.tuning import space
from rlkit.tuning.points import STRIDE, Evaluation, evaluations, finish, passed, points, reach, spread
from rlkit.tuning.problem import Keys, Problem
from rlkit.tuning.study import End, Study, Trial, shown

POLL = 0.2  # seconds between polls
# What ends a run and says nothing of the setting: a full disk, here or where it runs, too many open files or processes,
# signals, machines that are lost, a reward, a judge or a server that fails (`Unfinished`), and rows that are others
# than when it began. Memory that runs out is not among it: another setting may need less.
RESUME = "; fix it, then resume with: "
OTHER_ROWS = " has other rows than when "
REASONS = "|".join(disk.FULL.values())
BLAMELESS = re.compile(
    rf"(?:rlkit: )?(?=cannot write |{LACKS}|lost \d+ times: |{grid.ASKED}|.*(?:{RESUME}|{OTHER_ROWS}))"
    rf"|rlkit: (?=.*(?:{REASONS}))"
)


class Attempt:
    """A trial in progress: its runs one after the other, each in a folder of its own."""

    def __init__(self, problem: Problem, study: Study, number: int, behind: int, folder: Path) -> None:
        self.problem, self.study, self.number = problem, study, number
        self.points = points(problem.usual["run"])
        self.before = number - behind + 1  # number of earlier trials that it depends on
        self.params, self.chosen = problem.usually, Keys()
        self.values: dict[int, float] = {}
        self.given_up = False
        self.reason, self.jobs = "", list[grid.Job]()
        self.stop = folder / f"{number:04}.stop"
        try:
            if number:  # trial 0 is the default
                self.params = study.ask(number, self.before)
                self.chosen = space.texts(problem.space, self.params)  # for the line of a failure
                self.chosen = problem.active(self.chosen)
            self.jobs = problem.jobs(number, self.chosen, folder)
        except UserError as error:  # the settings contradict each other
            self.reason = one_line(error)
        except Exception as error:  # or somebody's own algorithm says so
            self.reason = lacking(error) or f"{type(error).__name__}: {one_line(error)}"
        for job in self.jobs:
            grid.check(job)
        remove(self.stop)
        self.look()

    def carry_out(self, away: grid.Execute | None = None) -> str | None:
        """Finish its runs. Returns: None, or the reason of a failure."""
        if self.reason or self.given_up:
            return self.reason or None
        reasons = (grid.carry_out(job, self.stop, away) for job in self.jobs)
        return next((reason for reason in reasons if reason is not None), None)

    def look(self) -> None:
        """Read new evaluations in order, and stop the runs if the trial is pruned."""
        last: list[float] = []
        for i, job in enumerate(self.jobs):
            finished = grid.summary(job).get("finished")  # first: then it has all evaluations
            found = evaluations(job)
            for done, score in found:
                point = passed(done, self.points)
                if self.given_up or point < 0 or STRIDE * i + point in self.values:
                    continue
                reach(self.values, i, point, sum([*last, score]) / (len(last) + 1))
                self.given_up = self.study.hopeless(self.values, self.before)
            if finished and not self.given_up:
                finish(self.values, i, self.points)
            if self.given_up or not finished:
                break
            last.append(self.score(found))
        if self.given_up and not self.stop.exists():
            grid.ask_to_stop(self.stop)

    def score(self, found: list[Evaluation]) -> float:
        """The score of a finished run: its last evaluation, or the best one under measure=best; nan without one."""
        if self.problem.usual["run"]["measure"] == "best":
            return max((x.score for x in found if is_number(x.score)), default=math.nan)
        return found[-1].score if found else math.nan

    def ended(self, reason: str | None) -> Trial:
        """The trial's result."""
        self.look()
        scores = [self.score(evaluations(job)) for job in self.jobs]
        if reason is None and not all(is_number(score) for score in scores):
            reason = "a run was not evaluated, or its last score is not a number"
        end: End = "pruned" if self.given_up else "complete" if reason is None else "failed"
        value = sum(scores) / len(scores) if end == "complete" else None
        why = reason if reason and end == "failed" else ""
        return Trial(self.number, self.chosen, end, value, self.values, why, self.params)


def tidy(folder: Path, number: int) -> None:
    """Remove the files that only a resumed run needs, and what a killed search left of a trial that has ended."""
    for mark in folder.glob(f"{number:04}-s*.now"):
        remove(mark)
    for run in folder.glob(f"{number:04}-s*[0-9]"):
        if not run.is_symlink():
            shutil.rmtree(run / "checkpoints", ignore_errors=True)
    remove(folder / f"{number:04}.stop")


Active = dict[int, tuple[Attempt, Future[str | None]]]  # trials in progress, by number


def carry_out(
    problem: Problem, study: Study, folder: Path, trials: int, workers: int, away: grid.Execute | None = None
) -> bool:
    """Run trials until `trials` of them have ended. Returns: False where it was interrupted.

    A trial begins when all but the newest 2 · workers − 2 earlier ones have ended. So neither its setting nor its
    pruning depends on which of several runs was faster.
    """

    asked = Event()

    def leave(*_: object) -> None:
        if not asked.is_set():  # a closed terminal says it twice, and a cluster may
            asked.set()
            raise KeyboardInterrupt

    study.trials = spread(study.trials, points(problem.usual["run"]))
    if study.trials:  # a search that was killed may have written it, and removed nothing yet
        tidy(folder, study.trials[-1].number)
    active: Active = {}
    handlers = handled(dict.fromkeys(leaving(), leave))
    with warm.kept(grid.variables()), ThreadPoolExecutor(workers) as pool, handlers:
        try:
            while len(study.trials) < trials:
                while (attempt := following(problem, study, folder, trials, workers, active)) is not None:
                    active[attempt.number] = attempt, pool.submit(attempt.carry_out, away)
                watch(active)
                settle(study, active, trials)
                time.sleep(POLL if len(study.trials) < trials else 0)
            return True
        except KeyboardInterrupt:
            return False
        finally:
            stop(active)


def following(
    problem: Problem, study: Study, folder: Path, trials: int, workers: int, active: Active
) -> Attempt | None:
    """The next trial, if a worker is free."""
    behind = 2 * workers - 1
    number = len(study.trials) + len(active)
    busy = sum(not future.done() for _, future in active.values())
    if busy >= workers or number >= min(trials, len(study.trials) + behind):
        return None
    check_files(problem)
    return Attempt(problem, study, number, behind, folder)


def check_files(problem: Problem) -> None:
    """Refuse to go on where a file that the keys name has changed: trials of two versions cannot be compared.

    Raises: UserError.
    """
    for name, mark in problem.usual.get("marks", {}).items():
        if places.mark(name) != mark:
            raise UserError(f"{name} has changed since this search began: put it back, or choose another out=")


def watch(active: Active) -> None:
    for attempt, future in active.values():
        if not future.done():
            attempt.look()


def settle(study: Study, active: Active, trials: int) -> None:
    """Record the trials that have ended, in order."""
    while (found := active.get(len(study.trials))) is not None and found[1].done():
        attempt, future = active.pop(len(study.trials))
        check_files(attempt.problem)
        if why := blameless(future):
            raise UserError(f"trial {attempt.number} could not be finished: {why}; then give the command again")
        trial = attempt.ended(outcome(future))
        if trial.end == "failed" and not trial.number:
            raise UserError(f"the default could not be tried, so nothing can be compared with it: {trial.reason}")
        study.add(trial)
        tidy(attempt.stop.parent, attempt.number)
        say(told(trial, study, trials, attempt.points))


def blameless(future: "Future[str | None]") -> str:
    """What kept a trial from its end where no setting is to blame for that; else empty."""
    reason = outcome(future) or ""
    if future.exception() is not None:  # of this process: what ends a run is returned
        return reason
    begun = BLAMELESS.match(reason)
    return reason[begun.end() :].partition(RESUME)[0] if begun else ""


def stop(active: Active) -> None:
    """Stop the active runs; each writes a checkpoint first."""
    running = [(attempt, future) for attempt, future in active.values() if not future.done()]
    if running:
        say(f"stopping {len(running)} trial{'s' * (len(running) > 1)}: each run writes a checkpoint first ...")
    for attempt, _ in running:
        grid.ask_to_stop(attempt.stop)
    wait([future for _, future in running])


def told(trial: Trial, study: Study, trials: int, among: Fraction) -> str:
    """One line about a trial that has ended."""
    what = shown(trial.chosen) or "the default"
    if trial.end == "complete" and trial.value is not None:
        said = f"{trial.value:.4g}{', the best so far' if study.best == trial and trial.number else ''}"
    elif trial.end == "pruned":
        run, point = divmod(step := max(trial.values), STRIDE)
        done = min((point + 1) / float(among), 1.0)
        said = f"pruned at {trial.values[step]:.4g} after {100 * done:.0f} % of run {run + 1}"
    else:
        said = f"failed: {trial.reason}"
    return f"[{len(study.trials)}/{trials}] trial {trial.number}: {said}  ({what})"
