"""What several files need."""

import sys

import pytest
from support.other_machines import PRETENDED

from rlkit.comparison import away


@pytest.fixture
def other_machines(tmp_path, monkeypatch):
    """What the runs of support.other_machines are started with."""
    script = tmp_path / "python"
    script.write_text(PRETENDED.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(away, "LOOK", 0.05)
    monkeypatch.setenv("PYTEST_PARCEL", str(tmp_path / "parcel"))
