"""Several ranks do what one process does: the same text, the same gradient, the same parameters; and none is lost."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support import ranks as start
from support.ranks import apart, said
from tensordict import TensorDict

from rlkit import buffers, compare, evaluate, joining, ranks, run, scores, signals
from rlkit.control import parts
from rlkit.control.env import ControlEnv
from rlkit.errors import UserError
from rlkit.scores import Scores
from rlkit.settings import config
from rlkit.settings.assemble import assemble

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
    "game": ("algo=grpo", "env=guess", "iterations=2", *WIDE),
}


@pytest.fixture(scope="module", params=[pytest.param(n, marks=pytest.mark.slow) for n in (2, 4)])
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


@pytest.mark.parametrize("name", [name for name in RUNS if name != "narrow"])
def test_in_float64_ranks_train_what_one_process_trains(divided: Path, name: str) -> None:
    assert apart(divided / f"{name}-one", divided / f"{name}-many") < 1e-8


@pytest.mark.parametrize("name", ["grpo", "first", "pairs", "game"])
def test_ranks_write_the_same_text(divided: Path, name: str) -> None:
    one, many = ((divided / f"{name}-{how}" / "completions.jsonl").read_text() for how in ("one", "many"))
    assert one and one == many


@pytest.mark.parametrize(("name", "most"), [("first", 1e-12), ("narrow", 1e-5)])
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
    for name in RUNS:
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


def test_two_ranks_train_what_one_process_trains(tmp_path: Path) -> None:
    words = ("algo=ppo", "env=cartpole", "env.rows=4", "algo.horizon=16", "iterations=2", *WIDE[:1], *start.SHORT)
    assert run.main([*words, f"out={tmp_path / 'one'}"]) == 0
    done = start.run(2, *words, f"out={tmp_path / 'two'}")
    assert not done.returncode, done.stderr
    assert apart(tmp_path / "one", tmp_path / "two") < 1e-10


LONG = ("algo=grpo", "env=gsm8k", "env.rows=4", "env.max_tokens=16", "checkpoint_every=1", *start.SHORT)


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")
def test_a_lost_rank_ends_the_others_and_the_run_goes_on_exactly(tmp_path: Path) -> None:
    cut, whole = tmp_path / "cut", tmp_path / "whole"
    process = started(2, *LONG, "iterations=40", f"out={cut}")
    until_line(process, cut / "metrics.jsonl", 3)
    kill_a_rank(process, 1)
    began = time.monotonic()
    _, error = process.communicate(timeout=90)
    assert time.monotonic() - began < 60
    (line,) = [line for line in error.splitlines() if line.startswith("rlkit: ")] or [error]
    assert line.startswith("rlkit: rank 1 was lost, so the other ranks end; the newest checkpoint is of iteration ")
    assert line.endswith(f"continue with: torchrun --nproc-per-node 2 -m rlkit.run resume={cut}")
    assert not start.run(2, f"resume={cut}").returncode
    assert not start.run(2, *LONG, "iterations=40", f"out={whole}").returncode
    assert apart(cut, whole) == 0


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="children are listed in /proc")
def test_torchrun_starts_a_run_again_and_it_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "again"
    process = started(2, *LONG, "iterations=12", f"out={folder}", torchrun=("--max-restarts=1",))
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
def test_a_folder_of_others_stays_as_it_is_though_torchrun_tries_again(tmp_path: Path) -> None:
    folder = tmp_path / "theirs"
    assert run.main(["algo=ppo", "env=cartpole", "iterations=1", *start.SHORT, f"out={folder}"]) == 0
    before = (folder / "config.yaml").read_bytes()
    done = start.run(2, *LONG, "iterations=2", f"out={folder}", torchrun=("--max-restarts=1",))
    assert done.returncode and all("is not empty" in line for line in said(done)) and said(done)
    assert (folder / "config.yaml").read_bytes() == before


# What a single process does


def test_a_launch_goes_on_with_the_folder_that_it_began_alone(tmp_path: Path) -> None:
    words = ["algo=ppo", f"out={tmp_path}"]
    assert joining.going_on(words, "") == words
    assert joining.going_on(words, str(tmp_path / "other")) == words
    assert joining.going_on(["algo=ppo"], str(tmp_path)) == ["algo=ppo"]
    assert joining.going_on(words, os.path.realpath(tmp_path)) == [f"resume={tmp_path}", "trust=true"]


@pytest.mark.parametrize("command", [evaluate.main, compare.main])
def test_a_command_for_one_process_is_refused_under_torchrun(
    command: Callable[[list[str]], int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for key, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "0", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(key, value)
    line = "rlkit: torchrun starts processes of rlkit.run alone: start this command without it\n"
    assert command(["runs"]) == 2
    assert capsys.readouterr().err == line
    monkeypatch.setenv("RANK", "1")  # the first one has said it
    assert command(["runs"]) == 2
    assert not capsys.readouterr().err


@pytest.mark.parametrize("size", ["many", "-2", "1.5"])
def test_a_number_of_ranks_that_is_none_is_one_line(
    size: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", size)
    assert run.main(["algo=ppo", "env=cartpole"]) == 2
    assert capsys.readouterr().err == (
        f"rlkit: WORLD_SIZE={size} in the environment is not a whole number: unset it, or let torchrun set it\n"
    )


def test_a_port_that_no_rank_knows_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "0"}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match=r"^MASTER_PORT=0 in the environment: .*; give --standalone in its place, or a"):
        ranks.join()


def test_rows_are_counted_over_all_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    made = assemble(config.read(["algo=ppo", "env=cartpole", "env.rows=2"]))
    assert isinstance(made.env, ControlEnv)
    monkeypatch.setattr(made.env, "_mine", slice(4, 6))  # as the third of several ranks has it
    step = made.env._stream.step

    def sick(action: np.ndarray) -> object:
        successor, reward, *ends = step(action)
        return successor, np.array([reward[0], np.nan]), *ends

    monkeypatch.setattr(made.env._stream, "step", sick)
    with pytest.raises(FloatingPointError, match="reward at step 0 of row 5 of the rollout"):
        made.env._rollout(made.algo.policy, 2, 1)


def test_who_is_started_by_torchrun_learns_how_long_it_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_RUN_ID", raising=False)
    assert signals.patience() == ""
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    assert "30 seconds" in signals.patience() and "--shutdown-timeout" in signals.patience()


def test_ranks_that_do_not_come_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "PATIENCE", 0.2)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = str(free.getsockname()[1])
    for key, value in {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": port}.items():
        monkeypatch.setenv(key, value)
    with pytest.raises(UserError, match=r"cannot meet the others at .*1 came in .* or unset RANK"):
        ranks.join()
    monkeypatch.setattr(ranks, "_server", None)


def test_what_holds_for_whole_rows_is_not_padded() -> None:
    def rollout(steps: int) -> TensorDict:
        data = {"mask": torch.ones(2, steps, dtype=torch.bool), "memory": torch.ones(2, 1, 3)}
        return TensorDict(data, batch_size=[2])

    both = buffers.concatenate([rollout(1), rollout(4)])
    assert both["mask"].shape == (4, 4) and both["memory"].shape == (4, 1, 3)


def test_alone_nothing_is_divided() -> None:
    assert (ranks.size(), ranks.rank(), ranks.first(), ranks.divide()) == (1, 0, True, False)
    assert ranks.everyones(3) == [3]
    assert ranks.shared(5, lambda mine: (mine.start, mine.stop)) == [(0, 5)]
    assert ranks.by_first(lambda: "x") == "x"
    assert ranks.most(2, 0) == [2, 0]
    parameter = torch.nn.Parameter(torch.ones(2))
    assert ranks.add_up([parameter], 1.5) == 1.5
    assert ranks.launcher() == "python -m"


@pytest.mark.parametrize("size", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [0, 1, 4, 7])
def test_parts_cover_all_rows_once(monkeypatch: pytest.MonkeyPatch, size: int, rows: int) -> None:
    monkeypatch.setattr(ranks, "size", lambda: size)
    found = []
    for number in range(size):
        monkeypatch.setattr(ranks, "rank", lambda number=number: number)
        found.append(range(rows)[ranks.part_of(rows)])
    assert [row for part in found for row in part] == list(range(rows))
    assert max(map(len, found)) - min(map(len, found)) <= 1


@pytest.mark.parametrize("dimension", [0, 1])
def test_draws_of_a_part_are_those_of_the_whole(dimension: int) -> None:
    def draws() -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        shape = [5, 3]
        shape[dimension] = 12  # six rows, twice
        return torch.rand(shape, generator=generator)

    def mine(part: slice) -> torch.Tensor:
        generator = torch.Generator().manual_seed(3)
        shape = [5, 3]
        shape[dimension] = 2 * (part.stop - part.start)
        with ranks.playing(6, part):
            return ranks.drawn(lambda size: torch.rand(size, generator=generator), shape, dimension)

    assert torch.equal(torch.cat([mine(slice(0, 2)), mine(slice(2, 6))], dimension), draws())


def test_a_rank_with_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "everyones", lambda mine: [mine, mine, "rlkit 0.1"])
    with pytest.raises(UserError, match="rank 2 has another version than rank 0: install the same packages everywhere"):
        ranks.check_same("version", "rlkit 0.6", "install the same packages everywhere")


def pretend(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Let this process be one of several, which nobody answers."""
    monkeypatch.setattr(ranks, "size", lambda: size)
    monkeypatch.setattr(ranks, "everyones", lambda mine: [mine] * size)


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("algo=ppo", "env=cartpole", "env.rows=3"), "env.rows=3 cannot be divided among 2 ranks: give env.rows=4"),
        (
            ("algo=q_learning", "env=frozenlake", "env.rows=2"),
            "algo=q_learning learns a table, which one process does: start it without torchrun",
        ),
        (
            ("algo=dqn", "env=cartpole", "algo.hold=4", "env.rows=2"),
            "algo.hold is for one process: leave it out, or start the run without torchrun",
        ),
    ],
)
def test_what_several_ranks_cannot_do_is_refused(
    words: tuple[str, ...],
    line: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    pretend(monkeypatch, 2)
    assert run.main([*words, f"out={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err == f"rlkit: {line}\n"


def test_agents_of_a_copy_stay_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 2)
    assert parts.part_of(8, 2) == slice(0, 4)
    with pytest.raises(UserError, match=r"env\.rows=3 cannot be divided among 2 ranks: give a multiple of 2"):
        parts.part_of(6, 2)


def test_episodes_in_progress_belong_to_as_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"those of 2 ranks, and here are 1: continue it with as many \(torchrun"):
        parts.state_of({"ranks": [{}, {}]})
    pretend(monkeypatch, 2)
    with pytest.raises(UserError, match="those of 1 ranks, and here are 2"):
        parts.state_of({"episodes": [0]})


def test_ranks_that_cannot_meet_are_told_where(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("localhost", 0))
        taken.listen()
        found = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(taken.getsockname()[1])}
        for key, value in found.items():
            monkeypatch.setenv(key, value)
        with pytest.raises(UserError, match=r"rank 0 of 2 cannot meet the others at localhost:.*--master-port"):
            ranks.join()


def test_scores_of_parts_are_joined() -> None:
    one = Scores(torch.tensor([1.0]), torch.tensor([3.0]), ["a"], None, metrics={"x": [1.0]})
    two = Scores(torch.tensor([0.0, 1.0]), torch.tensor([4.0, 5.0]), ["b", "a"], ["rare", "common"])
    both = scores.joined([one, two])
    assert (
        both.score.tolist() == [1.0, 0.0, 1.0]
        and both.kinds == ["a", "b", "a"]
        and both.groups == ["common", "rare", "common"]
    )
    assert both.metrics == {"x": [1.0, None, None]}


def test_an_empty_minibatch_gives_no_micro_batch() -> None:
    empty = TensorDict({"mask": torch.zeros(0, 3, dtype=torch.bool), "observation": torch.zeros(0, 3)}, batch_size=[0])
    assert not list(buffers.split(empty, 8)) and not list(buffers.split(empty, None))
