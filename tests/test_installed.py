"""Which rlkit made a run: an edit of its own files is another version of it."""

from pathlib import Path

import pytest

import rlkit
from rlkit.installed import installed, present


def test_an_edit_of_its_own_files_is_another_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where algorithms/ppo.py of a checkout is edited between the runs of a comparison, its report must say so."""
    here = installed()
    assert here.startswith(f"{rlkit.__version__} (files ")
    package, file = tmp_path / "rlkit", tmp_path / "algorithms" / "ppo.py"
    for folder in (package, file.parent):
        folder.mkdir()
    file.write_text("clip = 0.2\n")
    monkeypatch.setattr(rlkit, "__path__", [str(package), str(tmp_path)])
    found = [here, present()]
    (file.parent / ".#ppo.py").symlink_to("me@host.1:2")  # what Emacs leaves while the file is changed
    assert present() == found[-1]
    file.write_text("clip = 0.3\n")
    assert len({*found, present()}) == 3
