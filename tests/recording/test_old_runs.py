"""A run folder that 0.3.0 wrote goes on, to the bits that 0.3.0 came to."""

import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from rlkit import run
from rlkit.recording import checkpoint

DATA = Path(__file__).resolve().parents[1] / "data" / "sarsa-0.3.0"


@pytest.mark.slow
def test_a_run_of_0_3_0_continues_exactly(tmp_path: Path) -> None:
    """The folder was cut off at iteration 400; 0.3.0 continued it to 900, and this is the table that it had then."""
    expected = load_file(DATA / "after-900.safetensors")
    folder = tmp_path / "run"
    shutil.copytree(DATA, folder)
    assert run.main([f"resume={folder}", "iterations=900"]) == 0
    found = checkpoint.load(folder)
    assert found["progress"]["iteration"] == 900
    before = checkpoint.load(DATA)["parts"]["policy"]
    assert not torch.equal(before["q.weight"], expected["q.weight"])
    for name, x in expected.items():
        assert torch.equal(found["parts"]["policy"][name], x), name
