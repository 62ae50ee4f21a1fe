"""The output of a run: first screen, progress bar, metrics.jsonl, completions.jsonl, TensorBoard, tables."""

import html
import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import numpy as np
from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn
from rich.table import Table
from rich.text import Text
from tensordict import TensorDict

from rlkit.api import Env, Policy, Sample
from rlkit.buffers import per_step
from rlkit.recording.bars import WaitBar
from rlkit.recording.files import write_atomically
from rlkit.recording.writers import Events, Lines, Tracker, cut, finite
from rlkit.screen import Screen
from rlkit.statistics.episodes import form
from rlkit.terminal import say, warn
from rlkit.waiting import shown_by

Listener = Callable[[dict[str, float]], object]  # receives the logged metrics; stops the run by returning True

PLAIN_EVERY = 5.0  # seconds between lines of history, at least
LINES = 20  # history lines wait for at least 1 / LINES of the time that the run has taken
SAMPLES = 8  # completions saved for each logged iteration
SHOWN = {  # metric → its label in the bar, in this order
    "eval/accuracy": "accuracy",
    "eval/return": "evaluation",
    "eval/ceiling": "ceiling",
    "rollout/return": "return",
    "train/loss": "loss",
    "train/kl": "kl",
    "train/entropy": "entropy",
}
SPEED = "time/env_steps_per_second"


class Log:
    """The output of a run. Lines of metrics after `written`, and completions after `resumed_at`, are written again."""

    def __init__(
        self,
        folder: str | Path,
        title_rows: Mapping[str, str],
        total: int,
        unit: str,  # unit of the total: iterations or env_steps
        quiet: bool = False,
        resumed_at: int = 0,  # the iteration of the checkpoint
        tracker: Tracker | None = None,  # an external service that also receives the metrics
        listener: Listener | None = None,  # is called for each logged iteration, and may stop the run
        written: int | None = None,  # the last iteration whose line is not written again; none: `resumed_at`
        logged: int = 0,  # the iteration of the newest line up to there; 0: unknown
    ) -> None:
        self.folder, self.title_rows, self.unit = Path(folder), dict(title_rows), unit
        self.in_notebook = not quiet and Screen().is_jupyter
        self.console = Screen(quiet, force_jupyter=False)  # in a notebook, lines are plain text
        written = resumed_at if written is None else written
        last = cut(self.folder / "metrics.jsonl", written)
        cut(self.folder / "completions.jsonl", resumed_at)
        if written and not last.iteration:
            gone = f"{self.folder / 'metrics.jsonl'} has no line up to iteration {resumed_at}"
            warn(f"{gone}: what was logged there is lost, and seconds count from now")
        elif last.iteration < logged:
            ends = f"{self.folder / 'metrics.jsonl'} ends at iteration {last.iteration}"
            warn(f"{ends}, and the run had logged iteration {logged}: what was logged between is lost")
        self.began: float = time.monotonic() - last.seconds
        self.latest: dict[str, float] = {}
        self.beside: dict[str, float] = {}  # values that are added to every evaluation, such as the ceiling
        self.spoke = -math.inf
        self.lines = Lines(self.folder / "metrics.jsonl")
        self.texts = Lines(self.folder / "completions.jsonl")
        self.events = Events(self.folder, time.time() - last.seconds)
        self.tracker, self.listener = tracker, listener
        self.bar = _Bar(self.console)
        self.waits = ExitStack()
        self.notebook: _NotebookBar | None = None
        done = resumed_at if unit == "iterations" else last.env_steps
        self.task = self.bar.add_task("", total=total, completed=done)

    def __enter__(self) -> Self:
        self.waits.enter_context(shown_by(WaitBar(self.bar)))
        if self.console.is_terminal:
            grid = Table.grid(padding=(0, 2))
            for key, value in self.title_rows.items():
                grid.add_row(Text(key, style="cyan"), Text(value, overflow="fold"))
            self.console.print(Panel(grid, title="rlkit", title_align="left", border_style="dim", expand=False))
            self.bar.start()
        else:
            for key, value in self.title_rows.items():
                self._plain(f"{key}: {value}")
            if self.in_notebook:
                self.notebook = _NotebookBar()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.waits.close()
        self.bar.stop()
        for file in (self.lines, self.texts, self.events):
            file.close()
        self._track(lambda tracker: tracker.close(kind is not None))

    def iteration(self, iteration: int, env_steps: int, metrics: Mapping[str, float]) -> bool:
        """Write one line of metrics and one TensorBoard step, advance the bar; return whether the listener stops."""
        if any(key.startswith("eval/") for key in metrics):
            metrics = {**metrics, **self.beside}
        line = self._write(iteration, env_steps, metrics)
        self._track(lambda tracker: tracker.add(iteration, env_steps, metrics))
        self.latest |= metrics
        evaluated = [key for key in SHOWN if key in metrics and key.startswith("eval/")]
        if evaluated:
            words = "  ".join(f"{SHOWN[key]} {metrics[key]:{form([metrics[key]])}}" for key in evaluated)
            self.note(f"iteration {iteration}  env_steps {env_steps:,}  {words}")
        self.bar.figures = whole(self._pairs(), self.console.width)
        self.bar.update(self.task, completed=iteration if self.unit == "iterations" else env_steps)
        pairs = [f"iteration {iteration}", f"env_steps {env_steps:,}", *self._pairs(), *self._left()]
        if self.notebook is not None:
            self.notebook.show(self.bar.tasks[0].percentage / 100, "  ".join(pairs))
        elif not evaluated and time.monotonic() - self.spoke > max(PLAIN_EVERY, self.seconds() / LINES):
            self.note(whole(pairs, self.console.width))
            self.spoke = time.monotonic()
        answer = None if self.listener is None else self.listener(dict(line))
        return isinstance(answer, bool | np.bool_) and bool(answer)  # not the number of letters that write() returns

    def failure(self, iteration: int, env_steps: int, alarm: str) -> None:
        """Write a line for an iteration that failed. Resume removes it; a tracker would keep it, so it gets none."""
        self._write(iteration, env_steps, {f"doctor/{alarm}": 1.0})

    def _write(self, iteration: int, env_steps: int, metrics: Mapping[str, float]) -> dict[str, float]:
        line = {"iteration": iteration, "env_steps": env_steps, "seconds": round(self.seconds(), 3), **metrics}
        self.lines.add(line)
        self.events.add(line)
        return line

    def seconds(self) -> float:
        """Seconds that the run has taken, including those before a resume."""
        return time.monotonic() - self.began

    def completions(self, iteration: int, rollout: TensorDict, credited: TensorDict, policy: Policy, env: Env) -> None:
        """Save the first completions of a rollout, each with the mean advantage of its tokens."""
        texts = env.samples(rollout, policy, SAMPLES)
        advantages: list[float | None] = [None] * len(texts)
        if texts and "advantage" in credited.keys():
            mask = credited["mask"].flatten(0, -2)  # [B, T]
            total = (per_step(credited["advantage"], credited["mask"]).flatten(0, -2) * mask).sum(-1)
            advantages = (total / mask.sum(-1).clamp(min=1)).tolist()
        for record, advantage in zip(texts, advantages, strict=False):
            self.texts.add({"iteration": iteration, **record, "advantage": advantage})

    def show_samples(self, title: str, records: Iterable[Sample], graded: bool = True) -> None:
        """Print a few samples: the prompt, the completion, and whether it is correct, or its score if not `graded`."""
        parts: list[RenderableType] = [Text(f"\n{title}", style="bold")]
        for record in records:
            right = record.get("score", 0) >= 1
            mark = Text("right" if right else "wrong", style="green" if right else "red")
            if not graded or not record.get("answer", "?").strip():  # there is no reference answer
                mark = Text(f"score {record['score']:.4g}", style="dim")
            elif "answer" in record and not right:
                mark.append(
                    f", the answer is {_short(str(record['answer']).splitlines()[-1].removeprefix('#### '), 40)}",
                    style="dim",
                )
            parts.append(Padding(Text(_short(record["prompt"], 220), style="dim"), (0, 0, 0, 2)))
            parts.append(Padding(Text(_short(record["completion"], 300) or "(nothing)"), (0, 0, 0, 4)))
            parts.append(Padding(mark, (0, 0, 0, 4)))
        self._show(Group(*parts))

    def table(self, title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Print a table."""
        self._show(_table(title, columns, rows, drawn=self.console.is_terminal))

    def note(self, text: str) -> None:
        """Print one line above the bar."""
        self._show(Text(text))

    def command(self, text: str, command: str) -> None:
        """Print a line and below it a command to be copied, which is never wrapped."""
        self.note(f"{text}:")
        if self.console.is_terminal:
            self.console.command(command)
        else:
            self._plain(f"  {command}")

    def alarm(self, name: str, message: str) -> None:
        """Print a highlighted warning: its name (the same as in the summary) and what is wrong."""
        self._show(Text.assemble(("warning", "bold yellow"), f": {name}: {message}"))

    def summary(self, values: Mapping[str, object]) -> None:
        """Write summary.json, completely or not at all."""
        write_atomically(self.folder / "summary.json", json.dumps(finite(values), indent=1, ensure_ascii=False) + "\n")
        self._track(lambda tracker: tracker.summary(values))

    def _track(self, tell: Callable[[Tracker], None]) -> None:
        """Call the tracker. A failure is reported once, and the tracker is not used again; the run goes on."""
        if self.tracker is None:
            return
        try:
            tell(self.tracker)
        except Exception as error:  # whatever the service raises without a network or a process
            self.tracker = None
            self.alarm("logger", f"nothing is sent any more ({error}); the run folder has all of it")

    def _pairs(self) -> list[str]:
        words = [f"{word} {_number(self.latest[key])}" for key, word in SHOWN.items() if key in self.latest]
        if SPEED in self.latest:
            words.append(f"{_number(self.latest[SPEED])} steps/s")
        return words

    def _left(self) -> list[str]:
        left = self.bar.tasks[0].time_remaining
        return [f"{left // 60:.0f}:{left % 60:02.0f} left"] if left is not None else []

    def _show(self, what: RenderableType) -> None:
        if self.bar.finished:
            self.bar.stop()  # the following output belongs below the bar
        if self.console.is_terminal:
            self.console.print(what)
            return
        with self.console.capture() as captured:
            self.console.print(what)
        for line in captured.get().splitlines():
            self._plain(line.rstrip())

    def _plain(self, text: str) -> None:
        """Print a line to a pipe or a file."""
        if not self.console.quiet:
            say(text)


def table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print a table without a log."""
    console = Screen(force_jupyter=False)
    console.print(_table(title, columns, rows, drawn=console.is_terminal))


class _Bar(Progress):
    """A progress bar with the figures on a second line: one line of 80 columns is too short for both."""

    figures = ""

    def __init__(self, console: Screen) -> None:
        columns = (BarColumn(36), TaskProgressColumn(), MofNCompleteColumn(), TimeRemainingColumn(), TextColumn("left"))
        super().__init__(*columns, console=console, disable=not console.is_terminal or console.quiet)

    def get_renderables(self) -> Iterable[RenderableType]:
        yield self.make_tasks_table(self.tasks)
        yield Text(self.figures, style="dim", overflow="ellipsis", no_wrap=True)


class _NotebookBar:
    """A progress bar in a notebook: one output that is redrawn; it needs only IPython, no widgets."""

    def __init__(self) -> None:
        from IPython.display import display

        self.handle = display({"text/plain": ""}, raw=True, display_id=True)

    def show(self, fraction: float, words: str) -> None:
        page = f'<progress value="{fraction:.3f}" style="width: 20em"></progress> {html.escape(words)}'
        self.handle.update({"text/html": page, "text/plain": f"{fraction:.0%}  {words}"}, raw=True)


def _table(title: str, columns: Sequence[str], rows: Iterable[Sequence[str]], drawn: bool) -> RenderableType:
    grid = Table(box=box.SIMPLE_HEAD if drawn else None, pad_edge=False, show_edge=False)
    for i, column in enumerate(columns):
        grid.add_column(Text(column), justify="left" if i == 0 else "right", overflow="fold")  # nothing is cut
    for row in rows:
        grid.add_row(*(Text(str(cell)) for cell in row))
    return Group(Text(f"\n{title}", style="bold"), grid)


def whole(pairs: Sequence[str], width: int) -> str:
    """As many figures as fit into a line, each with its word: none is cut."""
    line = ""
    for pair in pairs:
        longer = f"{line}  {pair}" if line else pair
        if len(longer) <= width:
            line = longer
    return line


def _number(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 999.5 else f"{x:.3g}"  # 999.7 is 1,000, not 1e+03


def _short(text: str, width: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= width else f"{text[: width - 3]}..."
