"""benchmarks/gpu_text.py: what it says without a GPU, what it counts, and that its code runs."""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch

from rlkit.language.decoder import Decoder
from rlkit.language.shape import Shape

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture
def text(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    monkeypatch.syspath_prepend(str(FOLDER))
    import gpu_text

    yield gpu_text


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU here")
@pytest.mark.parametrize("what", ["speed", "gsm8k"])
def test_without_a_gpu_it_says_so_in_one_line(what: str, text: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert text.main([what, "train.jsonl"]) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1 and "no GPU" in said.err


def test_operations_are_counted(text: ModuleType) -> None:
    """By hand: a layer of Qwen2 is q and o (w²), k and v (w²·kv/h), and three of w·inner; the head is V·w."""
    size = text.SMOKE
    decoder = Decoder(Shape.read(size.config))
    matrices = 2 * (2 * 32**2 + 2 * 32 * 16 + 3 * 32 * 64) + 2048 * 32
    attention = 3 * 2 * 2 * 12 * 32  # 3 passes, 2 layers, 2 products of 2 operations for half of 12 places, width 32
    assert text.step_flops(decoder, 100, 12) == 100 * (6 * matrices + attention)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["speed", "gsm8k"])
def test_its_code_runs_on_a_cpu(what: str, tmp_path: Path) -> None:
    source = tmp_path / "train.jsonl"
    rows = [{"question": f"What is {n} + 1?", "answer": f"It is more.\n#### {n + 1}"} for n in range(40)]
    source.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = [what, *([str(source)] if what == "gsm8k" else []), "--smoke"]
    done = subprocess.run([sys.executable, FOLDER / "gpu_text.py", *words], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    if what == "speed":
        assert found["generation"]["same_first_token"] == 1
        assert found["generation"]["ratio"] > 0 and 0 < found["training"]["share"] < 1
    else:
        assert found["rlkit"]["generation_tokens_per_second"] > 0 and found["rlkit"]["training_tokens_per_second"] > 0
        assert found["trl"] is None or found["trl"]["tokens_per_second"] > 0
        assert all(found["rlkit"][when]["problems"] == 2 for when in ("before", "after"))
