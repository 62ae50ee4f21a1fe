"""Several ranks do what one process does: the same text, the same gradient, the same parameters; and none is lost."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support import ranks as start
from support.ranks import apart, said

from rlkit import run

WIDE = ("policy.dtype=float64", "env.rows=8", *start.SHORT)
RUNS = {  # 20 iterations where they are cheap
    "grpo": ("algo=grpo", "env=gsm8k", "iterations=20", *WIDE),
    "ppo": ("algo=ppo", "env=cartpole", "algo.horizon=32", "iterations=20", *WIDE),
    "first": ("algo=grpo", "env=gsm8k", "iterations=1", *WIDE),
    "narrow": ("algo=grpo", "env=gsm8k", "iterations=1", "env.rows=8", *start.SHORT),
    "normalized": (
        "algo=ppo",
        "env=pendulum",
        "algo.horizon=16",
        "iterations=4",
        "policy.normalize=true",
        "algo.normalize_reward=true",
        *WIDE,
    ),
    "episodes": ("algo=grpo", "env=cartpole", "iterations=4", *WIDE),
    "memory": ("algo=a2c", "env=cartpole", "iterations=6", "policy.memory=gru", *WIDE),
    "replay": ("algo=dqn", "env=cartpole", "iterations=40", "algo.warmup_steps=64", *WIDE),
    "pairs": ("algo=dpo", "env=gsm8k", "iterations=3", *WIDE),
    "shown": ("algo=sft", "env=gsm8k", "iterations=5", *WIDE),
    "ranked": ("algo=reward_model", "env=preferences", "iterations=3", *WIDE),
    "broad": ("algo=ppo", "env=pendulum", "env.rows=8", "policy.hidden=256,256", "iterations=1", "algo.horizon=20"),
    "game": ("algo=grpo", "env=guess", "iterations=2", *WIDE),
}

ONE_OR_TWO = [pytest.param(1, marks=pytest.mark.campaign), 2]


@pytest.fixture(
    scope="module", params=[pytest.param(2, marks=pytest.mark.slow), pytest.param(4, marks=pytest.mark.campaign)]
)
def divided(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folders of all RUNS, by one process and by several ranks: NAME-one, NAME-many."""
    folder = tmp_path_factory.mktemp("ranks")
    for name, words in RUNS.items():
        assert run.main([*words, f"out={folder / name}-one"]) == 0
    listed = folder / "runs.json"
    listed.write_text(json.dumps([[*words, f"out={folder / name}-many"] for name, words in RUNS.items()]))
    program = Path(start.__file__).with_name("rank_program.py")
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={request.param}"),
            *(str(program), str(listed)),
        ],
        env=start.environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert not done.returncode, done.stderr
    return folder


@pytest.mark.parametrize("name", [name for name in RUNS if name not in ("narrow", "broad")])
def test_in_float64_ranks_train_what_one_process_trains(divided: Path, name: str) -> None:
    assert apart(divided / f"{name}-one", divided / f"{name}-many") < 1e-8


@pytest.mark.parametrize("name", ["grpo", "first", "pairs", "game"])
def test_ranks_write_the_same_text(divided: Path, name: str) -> None:
    one, many = ((divided / f"{name}-{how}" / "completions.jsonl").read_text() for how in ("one", "many"))
    assert one and one == many


@pytest.mark.parametrize(("name", "most"), [("first", 1e-12), ("narrow", 1e-5), ("broad", 1e-4)])
def test_the_first_gradient_is_that_of_one_process(divided: Path, name: str, most: float) -> None:
    """Adam's first moment after one step is a tenth of the gradient."""
    one, many = (
        torch.cat([x.flatten().double() for key, x in sorted(held.items()) if key.endswith("'exp_avg'")])
        for held in (load_file(divided / f"{name}-{how}" / "checkpoints/latest.safetensors") for how in ("one", "many"))
    )
    assert one.norm() > 0
    assert float((one - many).norm() / one.norm()) < most


def test_metrics_are_those_of_one_process(divided: Path) -> None:
    one, many = (
        [json.loads(line) for line in (divided / f"grpo-{how}" / "metrics.jsonl").read_text().splitlines()]
        for how in ("one", "many")
    )
    assert [line["env_steps"] for line in one] == [line["env_steps"] for line in many]
    for key in ("train/loss", "train/grad_norm", "train/entropy", "rollout/return", "eval/accuracy"):
        for a, b in zip(one, many, strict=True):
            assert (key in a) == (key in b)
            assert a.get(key, 0.0) == pytest.approx(b.get(key, 0.0), rel=1e-5, abs=1e-7), key


def test_a_measurement_at_the_end_is_that_of_one_process(divided: Path) -> None:
    for name in RUNS.keys() - {"broad"}:  # float32: a real action differs in its last digits
        one, many = (json.loads((divided / f"{name}-{how}" / "summary.json").read_text()) for how in ("one", "many"))
        assert one["evaluation"] == many["evaluation"], name


def lines(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.is_file() else 0


def until_line(process: "subprocess.Popen[str]", path: Path, count: int) -> None:
    while lines(path) < count:
        assert process.poll() is None, process.stderr.read() if process.stderr else ""
        time.sleep(0.05)


def kill_a_rank(process: "subprocess.Popen[str]", number: int) -> None:
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    os.kill(int(children[number]), signal.SIGKILL)


def started(ranks: int, *words: str, torchrun: tuple[str, ...] = ()) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        start.command(ranks, *words, torchrun=torchrun),
        env=start.environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.slow
@pytest.mark.parametrize("many", [2, 4])
def test_ranks_that_start_by_themselves_train_what_one_process_trains(many: int, tmp_path: Path) -> None:
    words = ("algo=ppo", "env=cartpole", "env.rows=4", "algo.horizon=16", "iterations=2", *WIDE[:1], *start.SHORT)
    assert run.main([*words, f"out={tmp_path / 'one'}"]) == 0
    done = start.run(many, *words, f"out={tmp_path / 'many'}")
    assert not done.returncode, done.stderr
    assert apart(tmp_path / "one", tmp_path / "many") < 1e-10


LONG = ("algo=grpo", "env=gsm8k", "env.rows=4", "env.max_tokens=16", "checkpoint_every=1", *start.SHORT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("every", "told"), [(1, "the newest checkpoint is of iteration "), (1000, "no checkpoint was written; ")]
)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")
def test_a_lost_rank_ends_the_others_and_the_run_goes_on_exactly(every: int, told: str, tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    words = [*(word for word in LONG if "checkpoint" not in word), f"checkpoint_every={every}", "iterations=12"]
    process = started(2, *words, f"out={cut}")
    until_line(process, cut / "metrics.jsonl", 3)
    kill_a_rank(process, 1)
    began = time.monotonic()
    _, error = process.communicate(timeout=90)
    assert time.monotonic() - began < 60
    (line,) = [line for line in error.splitlines() if line.startswith("rlkit: ")] or [error]
    assert line.startswith(f"rlkit: rank 1 was lost, so the other ranks end; {told}")
    assert line.endswith(f"continue with: torchrun --nproc-per-node 2 -m rlkit.run resume={cut}")
    assert not start.run(2, f"resume={cut}").returncode
    assert not start.run(2, *words, f"out={whole}").returncode
    assert apart(cut, whole) == 0


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ONE_OR_TWO)
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")
def test_torchrun_starts_a_run_again_and_it_goes_on(ranks: int, tmp_path: Path) -> None:
    folder = tmp_path / "again"
    process = started(ranks, *LONG, "iterations=12", f"out={folder}", torchrun=("--max-restarts=1",))
    until_line(process, folder / "metrics.jsonl", 3)
    kill_a_rank(process, 0)
    _, error = process.communicate(timeout=200)
    assert process.returncode == 0, error
    assert [json.loads(line)["iteration"] for line in (folder / "metrics.jsonl").read_text().splitlines()] == [
        *range(1, 13)
    ]
    assert json.loads((folder / "summary.json").read_text())["finished"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ("algo=ppo", "env=cartpole", "env.rows=3"),
            "rlkit: env.rows=3 cannot be divided among 2 ranks: give env.rows=4",
        ),
        (
            ("algo=q_learning", "env=frozenlake", "env.rows=2"),
            "rlkit: algo=q_learning learns a table, which one process does: start it without torchrun",
        ),
    ],
)
def test_what_ranks_cannot_do_together_is_one_line(words: tuple[str, ...], line: str, tmp_path: Path) -> None:
    done = start.run(2, *words, f"out={tmp_path / 'run'}")
    assert done.returncode and said(done) == [line]


@pytest.mark.slow
def test_a_reward_that_fails_on_one_rank_ends_all_with_one_line(tmp_path: Path) -> None:
    code = tmp_path / "reward.py"
    code.write_text(
        "import os\n"
        "def mine(prompts, completions, **columns):\n"
        "    if os.environ['RANK'] == '1':\n"
        "        raise ValueError('no answer')\n"
        "    return [0.0 for _ in completions]\n"
    )
    done = start.run(2, *LONG, "iterations=2", f"env.reward={code}:mine", f"out={tmp_path / 'run'}")
    assert done.returncode
    (line,) = said(done)
    assert "no answer" in line and "resume with: torchrun --nproc-per-node 2" in line


SICK = """
import os
from dataclasses import dataclass
import gymnasium
from rlkit.api import Count
from rlkit.envs import gym

@dataclass(frozen=True)
class Config:
    rows: Count = 2

class Sick(gymnasium.Wrapper):
    def step(self, action):
        observation, reward, *rest = super().step(action)
        return observation, float("nan") if os.environ["RANK"] == "1" else reward, *rest

def make(config, seed, device):
    factory = lambda **keywords: Sick(gymnasium.make("CartPole-v1", **keywords))
    return gym.make(gym.Config(config.rows, "CartPole-v1", step_limit=500), seed, device, factory=factory)
"""


@pytest.mark.slow
def test_what_is_not_finite_on_one_rank_is_told_once(tmp_path: Path) -> None:
    code = tmp_path / "sick.py"
    code.write_text(SICK)
    words = ("algo=ppo", f"env={code}", "algo.horizon=8", "iterations=2", *start.SHORT)
    done = start.run(2, *words, f"out={tmp_path / 'run'}")
    (line,) = said(done)
    assert done.returncode and line.startswith("rlkit: not finite: ")


@pytest.mark.slow
@pytest.mark.parametrize("ranks", ONE_OR_TWO)
def test_a_folder_of_others_stays_as_it_is_though_torchrun_tries_again(ranks: int, tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    assert run.main(["algo=ppo", "env=cartpole", "iterations=1", *start.SHORT, f"out={folder}"]) == 0
    before = (folder / "config.yaml").read_bytes()
    done = start.run(ranks, *LONG, "iterations=2", f"out={folder}", torchrun=("--max-restarts=1",))
    assert done.returncode and all("is not empty" in line for line in said(done)) and said(done)
    assert (folder / "config.yaml").read_bytes() == before
