"""What several files need."""

from pathlib import Path

import pytest
from support.pretended_searches import finish, score

from rlkit.comparison import conduct as comparing
from rlkit.comparison import grid
from rlkit.tuning import search


@pytest.fixture
def carried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the runs that were carried out, all of them pretended; no report is drawn."""
    names: list[str] = []

    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        names.append(job.name)
        return finish(job, stop, score(job))

    monkeypatch.setattr(grid, "execute", execute)
    monkeypatch.setattr(search, "POLL", 0.001)
    monkeypatch.setattr(comparing, "report", lambda *_: {"pretended": True})
    return names
