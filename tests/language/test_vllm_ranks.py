"""Ranks with vLLM: together they ask for what one process asks for. A stand-in takes vLLM's place."""

import json
import os
import random
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from support import ranks as start
from support.ranks import apart, said
from support.vllm_stand_in import PROMPTS, StandIn, built, served
from torch.distributed import rendezvous

from rlkit import ranks, run
from rlkit.errors import EngineFailed
from rlkit.language import vllm_inside
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.over_http import Refused
from rlkit.seeding import generator

SHORT = ("iterations=2", "evaluation_episodes=3", "validation_episodes=1")  # so that some ranks have no rows
GRPO = ("algo=grpo", "env=gsm8k", "env.rows=4", "algo.group=4", "env.max_tokens=16", "policy.dtype=float64", *SHORT)
FULL = ("policy.shard=full", "policy.trainable=all")
RUNS = {
    "plain": GRPO,
    "full": (*GRPO, "algo.kl_coef=0.05", *FULL),
    "ahead": (*GRPO, "policy.staleness=1", *FULL),
    "adapted": (*GRPO, "policy.lora=4", FULL[0]),
    "game": ("algo=grpo", "env=guess", *GRPO[2:]),
    "pairs": ("algo=dpo", *GRPO[1:], *FULL),
    "ranked": ("algo=reward_model", *GRPO[1:6], SHORT[0], "evaluation_episodes=13", "validation_episodes=9"),
}


@dataclass
class Served:
    """A run, and what its server was asked for."""

    folder: Path
    asked: Counter[tuple[Any, ...]]
    loads: int
    left: list[str]  # in the folder for weights
    said: str  # the logged completions
    measured: dict[str, Any]


def words_of(name: str, folder: Path, server: StandIn) -> list[str]:
    words = [*RUNS[name], "policy.engine=vllm", f"policy.server={server.url}"]
    return [*words, f"policy.exchange={folder}-weights", f"out={folder}"]


def asked_of(server: StandIn) -> Counter[tuple[Any, ...]]:
    return Counter((tuple(body["prompt"]), body["seed"], body["max_tokens"]) for body in server.asked)


def served_run(folder: Path, server: StandIn) -> Served:
    left = [path.name for path in Path(f"{folder}-weights").iterdir()]
    said = (folder / "completions.jsonl").read_text()
    measured = json.loads((folder / "summary.json").read_text())["evaluation"]
    return Served(folder, asked_of(server), server.core.loads, left, said, measured)


def together(many: int, program: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={many}")
    return subprocess.run(
        [*torchrun, str(program), *words],
        env=start.environment(PYTHONPATH=f"{start.ROOT}:{start.ROOT / 'tests'}"),
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
    names = [name for name in RUNS if many == 2 or name == "full"]
    with ExitStack() as stack:
        servers = {(name, n): stack.enter_context(served()) for name in names for n in (1, many)}
        for name in names:
            own = [word for word in words_of(name, folder / f"{name}-1", servers[name, 1]) if word != FULL[0]]
            assert run.main(own) == 0
        listed = folder / "runs.json"
        listed.write_text(json.dumps([words_of(n, folder / f"{n}-{many}", servers[n, many]) for n in names]))
        done = together(many, Path(start.__file__).with_name("rank_program.py"), str(listed))
        assert not done.returncode, done.stderr
        found = {key: served_run(folder / "{}-{}".format(*key), server) for key, server in servers.items()}
    return {name: (found[name, 1], found[name, many]) for name in names}


def test_ranks_ask_for_what_one_process_asks_for(both: Both) -> None:
    for name, (one, many) in both.items():
        assert one.asked and one.asked == many.asked, name
        assert one.loads == many.loads and not many.left, name
        assert one.said == many.said and one.measured == many.measured, name
        assert apart(one.folder, many.folder) < (1e-6 if name == "adapted" else 1e-8), name  # adapters are float32


def texts(policy: LanguageModel, prompts: list[str]) -> None:
    policy.generate(prompts, 3, 4, generator=generator(0, "draws"))


def talks(policy: LanguageModel, prompts: list[str]) -> None:
    counts: Counter[int] = Counter()

    def answers(rows: list[int], turns: list[str]) -> list[str | None]:
        counts.update(rows)
        return [None if counts[row] > 2 else " And 2 pears?\n" for row in rows]

    policy.converse(prompts, answers, 3, 40, turn_tokens=5, generator=generator(0, "draws"))


def row_of(_: list[int], asked: dict[str, Any]) -> dict[str, Any]:
    """A row from the seed alone: rlkit's own generation in this process would draw for the part that is played."""
    draw, count = random.Random(asked["seed"]), asked["max_tokens"]
    tokens = [draw.randrange(20, 60) for _ in range(count)]
    return {"tokens": tokens, "log_prob": [-1.0] * count, "finish_reason": "length"}


@pytest.mark.parametrize("write", [texts, talks])
def test_the_parts_of_all_ranks_are_the_requests_of_one(
    write: Callable[[LanguageModel, list[str]], None], server: StandIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy, prompts = LanguageNetwork(engine="vllm", server=server.url).build(0), [*PROMPTS, PROMPTS[0]]
    policy.ready()
    monkeypatch.setattr(server.core, "write", row_of)
    found = []
    for parts in ([slice(0, 3)], [slice(0, 1), slice(1, 3)]):
        del server.asked[:]
        for part in parts:
            with ranks.playing(3, part):
                write(policy, prompts[part])
        found.append(asked_of(server))
    assert len(found[0]) >= 9 and found[0] == found[1]


def test_what_a_server_refuses_on_one_rank_is_a_failed_engine_on_all() -> None:
    def refused() -> None:
        raise Refused("the line", 500, "it fails")

    with pytest.raises(EngineFailed, match=r"^the line$"):
        ranks.together(refused)


@pytest.mark.slow
def test_a_server_that_stops_ends_all_ranks_and_any_number_goes_on(tmp_path: Path) -> None:
    words = (*GRPO, "checkpoint_every=1", "policy.engine=vllm", "policy.staleness=1", *FULL)
    with served() as server:
        answer, cut = server.answer, tmp_path / "cut"

        def tired(path: str, body: Any) -> Any:
            stops = path == "/v1/completions" and len(server.asked) >= 16 + 4 + 2 * 16 + 5  # in the second iteration
            return (500, {"error": {"message": "it is tired"}}) if stops else answer(path, body)

        server.answer = tired  # type: ignore[method-assign]
        done = start.run(2, *words, f"policy.server={server.url}", f"out={cut}")
        (line,) = said(done)
        assert done.returncode and "refused /v1/completions with status 500: it is tired; fix it, then resume" in line
        assert line.endswith(f"torchrun --nproc-per-node 2 -m rlkit.run resume={cut}")
        server.answer = answer  # type: ignore[method-assign]
        shutil.copytree(cut, tmp_path / "one")
        assert not start.run(2, f"resume={cut}").returncode
        assert run.main([f"resume={tmp_path / 'one'}"]) == 0
    assert apart(cut, tmp_path / "one") < 1e-8


INSIDE = """
import os, sys
from pathlib import Path
from support import vllm_stand_in
from rlkit import run
from rlkit.language.vllm_inside import Inside

sys.modules["vllm"] = vllm_stand_in.module()
load, loads = Inside.load, Path(os.environ["LOADS"] + os.environ["RANK"])

def counted(self, folder, label):
    with loads.open("a") as file:
        print(label, file=file)
    load(self, folder, label)

Inside.load = counted
sys.exit(run.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_each_rank_may_have_a_vllm_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "inside.py"
    program.write_text(INSIDE)
    words = [word for word in GRPO if word != "policy.dtype=float64"] + ["policy.engine=vllm"]
    for n in (1, 2):
        monkeypatch.setenv("LOADS", str(tmp_path / f"loads-{n}-"))
        done = together(n, program, *words, *FULL[n == 1 :], f"out={tmp_path / str(n)}")
        assert not done.returncode, done.stderr
    one, *many = [(tmp_path / name).read_text().splitlines() for name in ("loads-1-0", "loads-2-0", "loads-2-1")]
    assert many[0] == many[1] and len(one) == len(many[0]) >= 2  # at the start, and when the weights have changed
    said_by = [(tmp_path / str(n) / "completions.jsonl").read_text() for n in (1, 2)]
    assert said_by[0] == said_by[1] and apart(tmp_path / "1", tmp_path / "2") < 1e-5


@pytest.mark.parametrize(("before", "within"), [(None, "1"), ("4,5", "5")])
def test_a_vllm_of_a_rank_sees_its_own_gpu_only(
    before: str | None, within: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if before is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", before)
    monkeypatch.setattr("rlkit.ranks.size", lambda: 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.current_device", lambda: 1)
    with vllm_inside.own_environment():
        assert os.environ["CUDA_VISIBLE_DEVICES"] == within
    assert os.environ.get("CUDA_VISIBLE_DEVICES") == before


@pytest.mark.parametrize("before", [None, "True"])
def test_a_vllm_of_a_rank_does_not_wait_for_the_store_of_torchrun(
    before: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that torchrun started may open a store at no other place, and so may its children."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    if before is not None:
        monkeypatch.setenv("TORCHELASTIC_USE_AGENT_STORE", before)
    monkeypatch.setattr("rlkit.ranks.size", lambda: 2)
    with vllm_inside.own_environment():
        store, *_ = next(rendezvous("tcp://127.0.0.1:0", rank=0, world_size=1, timeout=timedelta(seconds=5)))
        store.set("here", "1")
    assert os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == before


def test_a_rank_that_does_not_see_the_weights_is_one_line(monkeypatch: pytest.MonkeyPatch, server: StandIn) -> None:
    policy = built("inside", server, monkeypatch)
    monkeypatch.setattr("rlkit.language.vllm_engine.disk.to_disk", lambda path: shutil.rmtree(path.parent.parent))
    monkeypatch.setattr("rlkit.language.vllm_engine.os.replace", lambda *_: None)
    with pytest.raises(
        EngineFailed, match=r"rank 0 does not see .*weights, where rank 0 wrote the weights: give policy.exchange="
    ):
        policy.generate(PROMPTS, 1, 4)


FULL_DISK = """
import os, sys
from rlkit import run, streamed

def write(path, listed, tensors, metadata):
    next(iter(tensors))
    raise OSError(28, os.strerror(28))

streamed.write = write
sys.exit(run.main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_full_disk_ends_all_ranks_with_one_line(tmp_path: Path) -> None:
    """The other ranks have weights to gather, which they do."""
    program = tmp_path / "full_disk.py"
    program.write_text(FULL_DISK)
    with served() as server:
        keys = ("policy.engine=vllm", f"policy.server={server.url}", f"policy.exchange={tmp_path / 'weights'}")
        done = together(2, program, *GRPO, *FULL, *keys, f"out={tmp_path / 'run'}")
        assert server.core.loads == 1
    (line,) = said(done)
    assert done.returncode and line.startswith(f"rlkit: cannot write weights to {tmp_path / 'weights'}: ")
    assert not list((tmp_path / "weights").iterdir())
