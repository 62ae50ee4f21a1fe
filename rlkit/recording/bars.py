"""A bar for each wait of over a second, in a terminal: it appears in time, and is gone with the wait."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
)

from rlkit.screen import Screen
from rlkit.waiting import shown_by

PATIENCE = 1.0  # seconds of a wait before its bar appears


class WaitBar:
    """A row of a `Progress` while a wait lasts; called with how many of all episodes or answers are done."""

    def __init__(self, progress: Progress, title: str = "") -> None:
        self.progress, self.title = progress, title
        self.began: float | None = None
        self.row: TaskID | None = None

    def __call__(self, done: int, total: int) -> None:
        now = time.monotonic()
        self.began = now if self.began is None else self.began
        if done >= total:
            self.end()
        elif self.row is not None:
            self.progress.update(self.row, completed=done, total=total)
        elif now - self.began > PATIENCE:
            self.row = self.progress.add_task(self.title, completed=done, total=total)

    def end(self) -> None:
        if self.row is not None:
            self.progress.remove_task(self.row)
        self.began = self.row = None


@contextmanager
def bars(title: str = "") -> Iterator[None]:
    """Show a bar for the waits of a command; nothing where the output is not a terminal."""
    console = Screen(force_jupyter=False)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(36),
        TaskProgressColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
    )
    progress = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
    bar = WaitBar(progress, title)

    def show(done: int, total: int) -> None:
        bar(done, total)
        if bar.row is not None:
            progress.start()  # not before: it has a thread and takes over stdout, and environments may fork
        elif progress.live.is_started:
            progress.stop()

    try:
        with shown_by(show):
            yield
    finally:
        if progress.live.is_started:
            progress.stop()
