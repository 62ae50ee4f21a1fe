"""Ranks share a language model out, and train what one process trains; what they save is whole, for any number."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support import ranks as start
from support.ranks import apart

from rlkit import ranks, run, shards, streamed
from rlkit.errors import UserError
from rlkit.language import sharding
from rlkit.language.network import LanguageNetwork

SMALL = ("env.rows=4", "evaluation_episodes=2", "validation_episodes=2")
WIDE = ("policy.dtype=float64", *SMALL)
ALL = "policy.trainable=all"
# Ranks get unlike numbers of micro-batches, and a reference.
QUICK = {"grpo": ("algo=grpo", "env=gsm8k", "iterations=2", ALL, "algo.kl_coef=0.05", "policy.micro_steps=100", *WIDE)}
SLOW = {
    "first": ("algo=grpo", "env=gsm8k", "iterations=1", ALL, *WIDE),
    "narrow": ("algo=grpo", "env=gsm8k", "iterations=1", ALL, *SMALL),
    "long": ("algo=grpo", "env=gsm8k", "iterations=8", ALL, *WIDE),
    "again": ("algo=grpo", "env=gsm8k", "iterations=2", ALL, "policy.gradient_checkpointing=true", *WIDE),
    "adapted": ("algo=grpo", "env=gsm8k", "iterations=2", "policy.lora=4", "algo.kl_coef=0.05", *WIDE),
    "critic": ("algo=ppo", "env=gsm8k", "iterations=2", "algo.kl_coef=0.05", *WIDE),
    "pairs": ("algo=dpo", "env=preferences", "iterations=2", *WIDE),
    "fresh": ("algo=sft", "env=gsm8k", "iterations=2", "policy.fresh=true", *WIDE),
    "ranked": ("algo=reward_model", "env=preferences", "iterations=2", *WIDE),
    "game": ("algo=grpo", "env=guess", "iterations=2", *WIDE),
    "coarse": ("algo=grpo", "env=gsm8k", "iterations=1", ALL, "policy.dtype=bfloat16", *SMALL),
}


# With plain SGD the size of a gradient shows, and each rank learns from whole minibatches.
UNDIVIDED = """
import torch
from rlkit.algorithms.grpo import GRPO, Config

class make(GRPO):
    divides = False

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.optimizer = torch.optim.SGD([p for p in self.policy.parameters() if p.requires_grad], lr=0.01)
"""


def train(folder: Path, ranks: int, runs: dict[str, tuple[str, ...]]) -> Path:
    """The folders of runs, by one process and by several ranks: NAME-one, NAME-many."""
    for name, words in runs.items():
        assert run.main([*words, f"out={folder / name}-one"]) == 0
    listed = folder / "runs.json"
    listed.write_text(
        json.dumps([[*words, "policy.shard=full", f"out={folder / name}-many"] for name, words in runs.items()])
    )
    program = Path(start.__file__).with_name("rank_program.py")
    torchrun = (sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}")
    done = subprocess.run(
        [*torchrun, str(program), str(listed)],
        env=start.environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert not done.returncode, done.stderr
    return folder


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("shards"), 2, QUICK)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.campaign)])
def slow(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("shards"), request.param, SLOW)


@pytest.mark.slow
def test_shards_train_what_one_process_trains(quick: Path) -> None:
    assert apart(quick / "grpo-one", quick / "grpo-many") < 1e-8
    one, many = ((quick / f"grpo-{how}" / "completions.jsonl").read_text() for how in ("one", "many"))
    assert one and one == many


@pytest.mark.slow
def test_shards_that_learn_from_whole_minibatches_train_what_one_process_trains(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(UNDIVIDED, encoding="utf-8")
    words = (f"algo={tmp_path / 'own.py'}", "env=gsm8k", "iterations=2", ALL, "algo.max_grad_norm=inf", *WIDE)
    train(tmp_path, 2, {"own": (*words, "algo.schedule=constant")})
    assert apart(tmp_path / "own-one", tmp_path / "own-many") < 1e-8


@pytest.mark.slow
def test_a_checkpoint_of_shards_is_that_of_one_process(quick: Path) -> None:
    """Whole tensors of the same names and sizes, so that any number of ranks goes on from it."""
    one, many = (load_file(quick / f"grpo-{how}" / "checkpoints/latest.safetensors") for how in ("one", "many"))
    assert {key: (x.shape, x.dtype) for key, x in one.items()} == {key: (x.shape, x.dtype) for key, x in many.items()}


@pytest.mark.slow
def test_one_process_goes_on_from_shards_and_they_write_a_whole_model(quick: Path) -> None:
    one, many = (load_file(quick / f"grpo-{how}" / "model/model.safetensors") for how in ("one", "many"))
    assert one.keys() == many.keys()
    assert all(torch.allclose(one[key], many[key], rtol=0, atol=1e-7) for key in one)
    for how in ("one", "many"):
        assert run.main([f"resume={quick / f'grpo-{how}'}", "iterations=3"]) == 0
    assert apart(quick / "grpo-one", quick / "grpo-many") < 1e-8


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in SLOW if name not in ("narrow", "coarse", "adapted")])
def test_in_float64_shards_train_what_one_process_trains(slow: Path, name: str) -> None:
    assert apart(slow / f"{name}-one", slow / f"{name}-many") < 1e-8


@pytest.mark.slow
def test_adapters_beside_shards_learn_what_they_learn_beside_one_copy(slow: Path) -> None:
    """They are float32 whatever policy.dtype says, and so are the sums of their gradients."""
    assert apart(slow / "adapted-one", slow / "adapted-many") < 1e-6
    for file in ("adapter_model.safetensors", "base.json", "adapter_config.json"):
        assert (slow / "adapted-many" / "adapter" / file).is_file()


@pytest.mark.slow
@pytest.mark.parametrize(("name", "most"), [("first", 1e-12), ("narrow", 1e-5), ("coarse", 5e-2)])
def test_the_first_gradient_is_that_of_one_process(slow: Path, name: str, most: float) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    one, many = (
        torch.cat([x.flatten().double() for key, x in sorted(held.items()) if key.endswith("'exp_avg'")])
        for held in (load_file(slow / f"{name}-{how}" / "checkpoints/latest.safetensors") for how in ("one", "many"))
    )
    assert one.norm() > 0
    assert float((one - many).norm() / one.norm()) < most


@pytest.mark.slow
def test_a_run_on_two_ranks_goes_on_exactly_and_on_any_number(tmp_path: Path) -> None:
    words = ("algo=grpo", "env=gsm8k", ALL, "iterations=4", "checkpoint_every=1", "keep=9", "policy.shard=full", *WIDE)
    whole = tmp_path / "whole"
    assert not start.run(2, *words, f"out={whole}").returncode
    for number, most in ((2, 0.0), (1, 1e-8), (4, 1e-8)):
        cut = tmp_path / f"cut-{number}"
        shutil.copytree(whole, cut)
        for left in ("summary.json", "checkpoints/latest.safetensors", "checkpoints/iteration-3.safetensors"):
            (cut / left).unlink()
        done = start.run(number, f"resume={cut}")
        assert not done.returncode
        told = f"{cut} was trained by 2 ranks and goes on with {number}: up to rounding it is the same run"
        assert (told in done.stderr) == (number != 2)
        assert apart(cut, whole) <= most, number


@pytest.mark.slow
def test_ranks_and_one_process_go_on_with_a_reference_beside_a_critic(slow: Path, tmp_path: Path) -> None:
    for how, number in (("one", 2), ("many", 1)):
        cut = tmp_path / how
        shutil.copytree(slow / f"critic-{how}", cut)
        done = start.run(number, f"resume={cut}", "iterations=3")
        assert not done.returncode, done.stderr
    assert apart(tmp_path / "one", tmp_path / "many") < 1e-8


def test_a_model_that_others_compute_is_not_shared_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "size", lambda: 2)
    cpu, shape = torch.device("cpu"), LanguageNetwork().build().decoder.shape  # type: ignore[union-attr]
    with pytest.raises(UserError, match=r"^policy\.shard=full is for models that are native, and this one is computed"):
        sharding.is_asked("full", None, True, cpu)
    asked = [sharding.is_asked(word, shape, True, cpu) for word in ("full", "auto", "none")]
    assert asked == [True, False, False]


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")
def test_a_killed_run_of_shards_goes_on_exactly(tmp_path: Path) -> None:
    words = ("algo=grpo", "env=gsm8k", "iterations=6", "env.max_tokens=16", "checkpoint_every=1", "policy.shard=full")
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    process = subprocess.Popen(
        start.command(2, *words, *SMALL, f"out={cut}"),
        env=start.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    while not (cut / "metrics.jsonl").is_file() or len((cut / "metrics.jsonl").read_text().splitlines()) < 3:
        assert process.poll() is None
        time.sleep(0.05)
    for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split():
        os.kill(int(child), signal.SIGKILL)
    assert process.wait(60)
    assert not (cut / "summary.json").exists()
    assert not start.run(2, f"resume={cut}").returncode
    assert not start.run(2, *words, *SMALL, f"out={whole}").returncode
    assert apart(cut, whole) == 0


def test_alone_tensors_are_whole() -> None:
    x = torch.ones(3)
    assert shards.whole(x) is x and shards.mine(x) is x and not shards.any_in([x])
    assert shards.agreed([True, False], shared=False) == [True, False]
    assert not LanguageNetwork(shard="auto").build().sharded


def test_a_streamed_file_is_what_safetensors_reads(tmp_path: Path) -> None:
    tensors = {
        "b": torch.arange(3, dtype=torch.uint8),
        "a": torch.randn(2, 3, dtype=torch.bfloat16),
        "c": torch.tensor(1.5, dtype=torch.float64),
        "d": torch.zeros(0, 4),
        "e": torch.tensor([True, False]),
    }
    path = tmp_path / "x.safetensors"
    streamed.write(path, streamed.sizes(tensors), streamed.wholes(tensors), {"checksum": streamed.UNSEALED})
    streamed.seal(path, "f" * 64)
    found = load_file(path)
    assert found.keys() == tensors.keys()
    assert all(torch.equal(found[key], tensors[key]) and found[key].dtype == tensors[key].dtype for key in tensors)
    save_file(tensors, tmp_path / "y.safetensors", {"checksum": "f" * 64})
    assert path.stat().st_size == (tmp_path / "y.safetensors").stat().st_size
