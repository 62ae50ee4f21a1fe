"""What is shown of a grid of runs while they are carried out; all of it is read from their folders."""

import json
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from pathlib import Path

from rich.console import Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from rlkit.comparison.grid import Execute, Job, ask_to_stop, carry_out, summary, tail
from rlkit.console import lacking
from rlkit.errors import UserError
from rlkit.recording.files import is_number
from rlkit.screen import Screen
from rlkit.terminal import say

STATES = ("finished", "running", "elsewhere", "lost", "waiting", "failed")  # that are counted
REFRESH = 0.5  # seconds between two looks at all runs


def watch(jobs: Sequence[Job], futures: Sequence["Future[str | None]"], stop: Path) -> dict[str, str]:
    """Show the runs until each has ended: {name: reason} of those that are not finished.

    In a terminal one live view, without one a line when a run starts and ends. Whatever interrupts the watching stops
    the runs safely first.
    """
    view = View(jobs, futures)
    try:
        with view.live:
            while not all(future.done() for future in futures):
                view.show()
                time.sleep(REFRESH)
            view.show()
    finally:
        if not all(future.done() for future in futures):
            ask_to_stop(stop)
            running = view.count("running")
            say(f"stopping {running} run{'s' * (running != 1)}: each writes a checkpoint first ...")
            until_ended(futures)
    return {job.name: reason for job, future in zip(jobs, futures, strict=True) if (reason := outcome(future))}


def by_processes(
    jobs: Sequence[Job], workers: int, stop: Path, away: Execute | None = None
) -> list["Future[str | None]"]:
    """Carry the jobs out in their order, so many at a time."""
    pool = ThreadPoolExecutor(workers)  # each thread only waits for its process
    return [pool.submit(carry_out, job, stop, away) for job in jobs]


def until_ended(futures: Sequence["Future[str | None]"]) -> None:
    """Wait for the runs that were stopped, and start none of the others.

    A second Ctrl-C comes after they have ended: until then their folder is not free for another comparison.
    """
    for future in futures:
        future.cancel()
    try:
        wait(futures)
    except KeyboardInterrupt:
        wait(futures)
        raise


def outcome(future: "Future[str | None]") -> str | None:
    """Why a run is not finished; an error on the way to it is a reason, too."""
    if (error := future.exception()) is None:
        return future.result()
    return str(error) if isinstance(error, UserError) else lacking(error) or f"{type(error).__name__}: {error}"


def progress(job: Job) -> tuple[float, dict[str, float]]:
    """How much of a run is done, from 0 to 1, and the newest figures in the tail of its metrics.jsonl."""
    newest: dict[str, float] = {}
    for line in tail(job.folder / "metrics.jsonl"):
        with suppress(ValueError, RecursionError):  # cut by the tail, or being written
            record = json.loads(line)
            newest |= {k: x for k, x in record.items() if is_number(x)} if isinstance(record, dict) else {}
    unit = "iterations" if job.config["run"]["iterations"] else "env_steps"
    done = newest.get("iteration" if unit == "iterations" else unit, 0)
    return min(1.0, done / job.config["run"][unit]), newest


class View:
    """What is shown of the runs while they are carried out."""

    def __init__(self, jobs: Sequence[Job], futures: Sequence["Future[str | None]"]) -> None:
        self.pairs, self.console = list(zip(jobs, futures, strict=True)), Screen(force_jupyter=False)
        self.live = Live(console=self.console, auto_refresh=False, transient=True)
        self.states = {job.name: "waiting" for job in jobs}
        self.began = time.monotonic()
        self.at_first = self.fraction()

    def show(self) -> None:
        for job, future in self.pairs:
            now = self.state(job, future)
            if now != self.states[job.name]:
                self.states[job.name] = now
                self.say(job, future, now)
        if self.console.is_terminal:
            self.live.update(self.drawn(), refresh=True)

    def state(self, job: Job, future: "Future[str | None]") -> str:
        """waiting, running, elsewhere, lost, finished, failed or stopped."""
        if future.done():
            reason = outcome(future)
            return "finished" if reason is None else "stopped" if reason == "stopped" else "failed"
        with suppress(OSError):  # it has ended in between
            return next(iter(tail(job.now)), "waiting")
        return "waiting"

    def say(self, job: Job, future: "Future[str | None]", now: str) -> None:
        """One line about what became of a run; a terminal shows most of it live."""
        words = {
            "running": "starts",
            "elsewhere": "runs elsewhere: waiting for the process that carries it out",
            "lost": "its machine is gone: it goes on elsewhere",
        }
        if now == "finished":
            words["finished"] = score(job)
        elif now == "failed":
            words["failed"] = f"failed: {outcome(future)}"
        if now in words and (now in ("failed", "lost") or not self.console.is_terminal):
            line = f"[{self.count('finished')}/{len(self.pairs)}] {job.name}  {words[now]}"
            self.console.print(Text(line), soft_wrap=True)

    def count(self, state: str) -> int:
        return list(self.states.values()).count(state)

    def fraction(self) -> float:
        """How much of all runs is done."""
        return sum(1.0 if future.done() else progress(job)[0] for job, future in self.pairs) / max(len(self.pairs), 1)

    def left(self, done: float) -> str:
        """The time that is left, when the rest goes as fast as what was done so far."""
        passed, gained = time.monotonic() - self.began, done - self.at_first
        if passed < 3 or gained < 0.01:
            return ""
        seconds = int(passed * (1 - done) / gained)
        return f"{seconds // 3600}:{seconds // 60 % 60:02}:{seconds % 60:02} left"

    def drawn(self) -> Group:
        """A bar for all runs, a line for each that runs, and how many there are of each kind."""
        done = self.fraction()
        head, rows = Table.grid(padding=(0, 2)), Table.grid(padding=(0, 2))
        head.add_row(ProgressBar(total=1, completed=done, width=40), f"{done:.0%}", self.left(done))
        active = [job for job, _ in self.pairs if self.states[job.name] in ("running", "elsewhere")]
        room = max(1, self.console.height - 4)
        for job in active[:room]:
            part, newest = progress(job)
            words = (
                "elsewhere" if self.states[job.name] == "elsewhere" else "measuring" if part == 1 else figure(newest)
            )
            rows.add_row(Text(job.name, style="cyan", overflow="ellipsis", no_wrap=True), f"{part:4.0%}", words)
        counts = [f"{self.count(state)} {state}" for state in STATES]
        return Group(head, rows, Text(", ".join(c for c in counts if not c.startswith("0 ")), style="dim"))


def score(job: Job) -> str:
    """What a finished run measured after training."""
    evaluation = summary(job).get("evaluation")
    after = evaluation.get("after") if isinstance(evaluation, dict) else None
    told = after if isinstance(after, dict) else {}
    mean, low, high = (x if is_number(x := told.get(key)) else None for key in ("mean", "low", "high"))
    if mean is None or low is None or high is None:
        return "finished, without a score"
    return f"{str(told.get('metric', 'score'))[:40]} {mean:.3g}, 95 % {low:.3g} to {high:.3g}"


def figure(newest: dict[str, float]) -> str:
    """The newest measurements, as words."""
    words = {"eval/accuracy": "evaluation", "eval/return": "evaluation", "rollout/return": "rollout"}
    return "  ".join(f"{word} {newest[key]:.3g}" for key, word in words.items() if newest.get(key) is not None)
