"""What one process does as one of several ranks, or as the only one: its part of the rows, and what it is refused."""

import os
import socket
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from tensordict import TensorDict

import rlkit
from rlkit import buffers, compare, evaluate, joining, ranks, run, scores, signals
from rlkit.control import parts
from rlkit.control.env import ControlEnv
from rlkit.errors import UserError
from rlkit.scores import Scores
from rlkit.settings import config
from rlkit.settings.assemble import assemble


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


def test_a_program_that_trains_is_refused_under_torchrun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each process would train the whole run, beside the others, and say nothing of it."""
    keys = {"iterations": 1, "evaluation_episodes": 1, "quiet": True, "out": str(tmp_path / "run")}
    begun = rlkit.train("q_learning", "gridworld", **keys)
    for key, value in {"TORCHELASTIC_RUN_ID": "x", "RANK": "1", "WORLD_SIZE": "2"}.items():
        monkeypatch.setenv(key, value)
    for train in (lambda: rlkit.train("q_learning", "gridworld", iterations=1), lambda: begun.resume(iterations=2)):
        with pytest.raises(UserError, match=r"^torchrun started 2 processes, and a program trains in one: give the "):
            train()


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


def test_a_run_that_goes_on_has_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its env.rows cannot be another one: the number of ranks can."""
    words = ["algo=reinforce", "env=cartpole", "env.rows=3", "env_steps=1", "threads=1", "evaluation_episodes=1"]
    assert run.main([*words, "validation_episodes=1", f"out={tmp_path / 'run'}"]) == 0
    pretend(monkeypatch, 2)
    assert run.main([f"resume={tmp_path / 'run'}", "env_steps=2"]) == 2
    told = "rlkit: env.rows=3 cannot be divided among 2 ranks: start as many as divide it\n"
    assert capsys.readouterr().err == told


def test_agents_of_a_copy_stay_on_one_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 2)
    assert parts.part_of(8, 2) == slice(0, 4)
    with pytest.raises(UserError, match=r"env\.rows=3 cannot be divided among 2 ranks: give a multiple of 2"):
        parts.part_of(6, 2)


def test_episodes_in_progress_belong_to_as_many_ranks(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"those of 2 ranks, and here are 1: continue it with as many \(torchrun"):
        parts.state_of({"ranks": [{}, {}]})
    pretend(monkeypatch, 2)
    with pytest.raises(UserError, match=r"those of one process, and here are 2: continue it with as many \(python"):
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
    plain = scores.joined([Scores(x.score, x.length) for x in (one, two)])
    assert (plain.kinds, plain.groups, plain.items, plain.samples, plain.metrics) == (None, None, None, [], {})


def test_an_empty_minibatch_gives_no_micro_batch() -> None:
    empty = TensorDict({"mask": torch.zeros(0, 3, dtype=torch.bool), "observation": torch.zeros(0, 3)}, batch_size=[0])
    assert not list(buffers.split(empty, 8)) and not list(buffers.split(empty, None))


@pytest.mark.parametrize(("at_once", "attempts"), [(4, 1), (2, 1), (1, 1), (8, 2), (6, 2)])
def test_two_ranks_never_share_a_draw(at_once: int, attempts: int) -> None:
    """Also where each measures its episodes a few at a time."""
    found = []
    for start in (0, 4):
        generator = torch.Generator().manual_seed(0)
        with ranks.playing(8, slice(start, start + 4)):
            drawn = [ranks.drawn(lambda shape, g=generator: torch.rand(shape, generator=g), (at_once, 3))]
            drawn += [ranks.drawn(lambda shape, g=generator: torch.rand(shape, generator=g), (3, at_once), 1).T]
        assert all(x.shape == (at_once, 3) for x in drawn)
        found.append(torch.cat(drawn))
    assert not torch.isin(found[0], found[1]).any()
    generator = torch.Generator().manual_seed(0)
    whole = torch.rand(8 * attempts, 3, generator=generator)
    assert torch.equal(found[0][:at_once], whole[:at_once])
    assert torch.equal(found[1][:at_once], whole[4 * attempts :][:at_once])
