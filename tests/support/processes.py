"""Python in a process of its own, as a user starts it in a folder of theirs."""

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def python(folder: Path, *words: str, columns: int = 80) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT), "COLUMNS": str(columns), "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, env=environment, capture_output=True, text=True)


def run(folder: Path, *words: str) -> str:
    """What it prints; it must not fail."""
    done = python(folder, *words)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"
    return done.stdout
