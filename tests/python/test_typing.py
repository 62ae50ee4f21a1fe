"""What `rlkit.new` writes passes mypy as a project of your own checks it: strict, and without rlkit's settings."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rlkit import scaffold

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
def test_generated_plug_ins_pass_mypy_strict(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    files = [scaffold.write(kind, f"my_{kind}", tmp_path).name for kind in scaffold.COMMANDS]
    words = ["--strict", "--follow-imports=silent", "--ignore-missing-imports", "--config-file=", *files]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *words],
        cwd=tmp_path,
        env=os.environ | {"MYPYPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
