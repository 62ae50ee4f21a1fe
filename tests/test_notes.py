"""What a rollout tells of itself travels with it: which episodes ended, which problem a row belongs to."""

from typing import Any

import pytest
import torch
from support.fakes import Gives, algorithm, cartpole, iterate
from support.parrot import Parrot, told
from support.probes import Chooses, Ring, control
from tensordict import TensorDict

from rlkit import buffers, policies
from rlkit.buffers.splitting import NOTES
from rlkit.meter import finished
from rlkit.text import Problem, TextEnv


def right(observation: torch.Tensor) -> torch.Tensor:
    return torch.zeros(len(observation), dtype=torch.long)


def test_a_stream_tells_of_whole_episodes_however_it_is_cut() -> None:
    env = control(Ring, rows=1, limit=10)  # reward 1 a step: an episode is worth its length
    parts = [env.rollout(Chooses(right), steps=4) for _ in range(6)]
    assert [finished(part) for part in parts] == [[], [], [(10.0, 10)], [], [(10.0, 10)], []]
    third = parts[2]
    assert third["done"].tolist() == [[False, True, False, False]]
    assert third["episode_return"].tolist() == [[0.0, 10.0, 0.0, 0.0]]
    assert third["episode_length"].tolist() == [[0, 10, 0, 0]]


def test_several_episodes_of_a_row_are_told_apart() -> None:
    env = control(Ring, rows=2, limit=3)
    rollout = env.rollout(Chooses(right), steps=8)
    assert finished(rollout) == [(3.0, 3)] * 4
    assert rollout["episode_length"].tolist() == [[0, 0, 3, 0, 0, 3, 0, 0]] * 2


@pytest.mark.parametrize("repeats", [1, 3])
def test_of_fresh_episodes_every_attempt_is_told_once(repeats: int) -> None:
    env = cartpole(4)
    rollout = env.rollout(policies.Network().actor(env), repeats=repeats)
    assert rollout["episode_return"].shape == rollout["mask"].shape
    scores, lengths = rollout["score"].flatten().tolist(), rollout["mask"].sum(-1).flatten().tolist()
    assert len(set(lengths)) > 1
    assert sorted(finished(rollout)) == sorted(zip(scores, lengths, strict=True))


def test_fresh_episodes_in_between_leave_the_stream_alone() -> None:
    env = control(Ring, rows=1, limit=10)
    env.rollout(Chooses(right), steps=6)
    assert finished(env.rollout(Chooses(right), repeats=2)) == [(10.0, 10)] * 2
    assert finished(env.rollout(Chooses(right), steps=6)) == [(10.0, 10)]


def test_rollouts_that_are_joined_keep_all_their_notes() -> None:
    env = cartpole(3)
    policy = policies.Network().actor(env)
    played = [env.rollout(policy, repeats=2) for _ in range(3)]
    assert len({part["mask"].shape[-1] for part in played}) > 1  # so some are padded
    joined = buffers.concatenate(played)
    assert sorted(finished(joined)) == sorted(episode for part in played for episode in finished(part))
    flat = buffers.flatten_groups(joined[torch.arange(8, -1, -1)])
    assert sorted(finished(flat)) == sorted(finished(joined))


def test_what_is_learned_from_holds_no_notes() -> None:
    env = control(Ring, rows=2, limit=3)
    rollout = env.rollout(Chooses(right), steps=8)
    assert set(NOTES) <= set(rollout.keys()) and not set(NOTES) & set(buffers.flatten_steps(rollout).keys())
    memory = buffers.Replay(0, capacity=50, batch_size=4, updates=1, warmup=1)
    memory.extend(rollout)
    window = buffers.Window(2)
    window.join(rollout)
    assert memory.store and not set(NOTES) & set(memory.store)
    assert window.waiting and not set(NOTES) & set(window.waiting)


@pytest.mark.parametrize(("name", "config"), [("ppo", {}), ("dqn", {"n_step": 3, "warmup_steps": 1}), ("grpo", {})])
def test_algorithms_hand_the_notes_of_what_they_played_to_the_loop(name: str, config: dict[str, Any]) -> None:
    env = cartpole(4, step_limit=5)
    algo = algorithm(name, env, policies.Network(), **config)
    lengths = [length for _ in range(4) for _, length in finished(iterate(algo, env))]
    assert lengths and set(lengths) == {5}


# Texts

PROBLEMS = [Problem(f"{n} + 2 =", f"#### {n + 2}", "sum") for n in range(7)]
SPLITS = {"train": PROBLEMS, "validation": [], "test": []}


def solved(prompt: str, attempt: int) -> str:
    """Right at every second attempt, and of a different length each time."""
    return f"{'so ' * attempt}#### {int(prompt[0]) + 2 + attempt % 2}"


@pytest.mark.parametrize("repeats", [1, 4])
def test_each_row_of_texts_tells_its_problem(repeats: int) -> None:
    env, parrot = TextEnv(SPLITS, rows=3, seed=0), Parrot(solved)
    for _ in range(4):  # seven problems: an epoch ends within a rollout
        rollout = env.rollout(parrot, repeats=repeats)
        assert rollout["problem"].shape == rollout["score"].shape
        for record, index, text in zip(
            told(env, rollout), rollout["problem"].flatten().tolist(), parrot.decode(rollout), strict=True
        ):
            assert record["prompt"] == f"{PROBLEMS[index].question}\n" and record["answer"] == PROBLEMS[index].answer
            assert record["completion"] == text
            assert record["score"] == float(text.endswith(PROBLEMS[index].answer))


def test_rows_that_are_sorted_and_joined_still_tell_their_problem() -> None:
    env = TextEnv(SPLITS, rows=3, seed=0)
    parrot = Parrot(lambda prompt, attempt: solved(prompt, attempt if int(prompt[0]) % 2 else 0))
    algo = algorithm("dapo", env, Gives(parrot_that_learns(parrot)), group=2, tries=3)
    rollout = algo.rollout(env)
    assert len(rollout) > 3  # played on, and what says something comes first
    records = told(env, rollout)
    odd = [int(record["prompt"][0]) % 2 for record in records]
    assert odd[:6] == [1] * 6 and not all(odd)
    assert all(record["completion"].endswith(record["answer"]) == bool(record["score"]) for record in records)
    scores = rollout["score"].flatten().tolist()
    assert [score for score, _ in finished(rollout)] == scores == [record["score"] for record in records]


def parrot_that_learns(parrot: Parrot) -> Parrot:
    """With a parameter, so that an optimizer takes it."""
    parrot.weight = torch.nn.Parameter(torch.zeros(()))
    return parrot


def test_only_so_many_rows_are_told() -> None:
    env, parrot = TextEnv(SPLITS, rows=3, seed=0), Parrot(solved)
    rollout = env.rollout(parrot, repeats=4)
    assert env.samples(rollout, parrot, 5) == told(env, rollout)[:5]
    assert env.samples(env.demonstrations(parrot), parrot, 5) == []


def test_what_is_neither_played_nor_scored_tells_of_no_episode() -> None:
    assert finished(TensorDict({"mask": torch.ones(2, 3, dtype=torch.bool)}, [2])) == []
