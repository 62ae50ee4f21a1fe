"""Ranks with one vLLM server: together they ask for what one process asks for. A stand-in takes vLLM's place."""

import json
import os
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from support import ranks as start
from support.ranks import apart, said
from support.vllm_stand_in import PROMPTS, StandIn, served

from rlkit import ranks, run
from rlkit.errors import EngineFailed
from rlkit.language.over_http import Refused

SHORT = ("iterations=3", "evaluation_episodes=3", "validation_episodes=1")  # so that some ranks have no rows
GRPO = ("algo=grpo", "env=gsm8k", "env.rows=4", "algo.group=4", "env.max_tokens=16", "policy.dtype=float64", *SHORT)
FULL = ("policy.shard=full", "policy.trainable=all")
RUNS = {
    "plain": GRPO,
    "full": (*GRPO, "algo.kl_coef=0.05", *FULL),
    "ahead": (*GRPO, "policy.staleness=1", *FULL),
    "adapted": (*GRPO, "policy.lora=4", FULL[0]),
    "game": ("algo=grpo", "env=guess", *GRPO[2:]),
    "pairs": ("algo=dpo", *GRPO[1:], *FULL),
    "ranked": ("algo=reward_model", *GRPO[1:]),
}


@dataclass
class Served:
    """A run, and what its server was asked for."""

    folder: Path
    asked: Counter[tuple[Any, ...]]
    loads: int
    left: list[str]  # in the folder for weights


def words_of(name: str, folder: Path, server: StandIn) -> list[str]:
    words = [*RUNS[name], "policy.engine=vllm", f"policy.server={server.url}"]
    return [*words, f"policy.exchange={folder}-weights", f"out={folder}"]


def served_run(folder: Path, server: StandIn) -> Served:
    asked = Counter((tuple(body["prompt"]), body["seed"], body["max_tokens"]) for body in server.asked)
    left = [path.name for path in Path(f"{folder}-weights").iterdir()]
    return Served(folder, asked, server.core.loads, left)


def together(many: int, listed: Path) -> "subprocess.CompletedProcess[str]":
    program = Path(start.__file__).with_name("rank_program.py")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={many}")
    return subprocess.run(
        [*torchrun, str(program), str(listed)],
        env=start.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


Both = dict[str, tuple[Served, Served]]


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) for n in (2, 4)])
def both(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Both:
    """Each run by one process and by several ranks."""
    folder, many = tmp_path_factory.mktemp("ranks"), request.param
    names = [name for name in RUNS if many == 2 or name in ("plain", "full")]
    with ExitStack() as stack:
        servers = {(name, n): stack.enter_context(served()) for name in names for n in (1, many)}
        for name in names:
            own = [word for word in words_of(name, folder / f"{name}-1", servers[name, 1]) if word != FULL[0]]
            assert run.main(own) == 0
        listed = folder / "runs.json"
        listed.write_text(json.dumps([words_of(n, folder / f"{n}-{many}", servers[n, many]) for n in names]))
        done = together(many, listed)
        assert not done.returncode, done.stderr
        found = {key: served_run(folder / "{}-{}".format(*key), server) for key, server in servers.items()}
    return {name: (found[name, 1], found[name, many]) for name in names}


@pytest.mark.parametrize("name", RUNS)
def test_ranks_ask_for_what_one_process_asks_for(both: Both, name: str) -> None:
    if name not in both:
        pytest.skip("with two ranks only")
    one, many = both[name]
    assert one.asked and one.asked == many.asked
    assert one.loads == many.loads and not many.left
    texts = [ran.folder / "completions.jsonl" for ran in (one, many)]
    assert texts[0].is_file() == texts[1].is_file()
    assert not texts[0].is_file() or texts[0].read_text() == texts[1].read_text()
    ends = [json.loads((ran.folder / "summary.json").read_text())["evaluation"] for ran in (one, many)]
    assert ends[0] == ends[1]
    assert apart(one.folder, many.folder) < (1e-6 if name == "adapted" else 1e-8)  # adapters are float32
