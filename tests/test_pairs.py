"""Stored preference pairs."""

import json

import pytest
import torch
from parrot import Parrot

from rlkit import plugins
from rlkit.api import UserError
from rlkit.text import Pair, PairEnv

preferences = plugins.load("envs", "preferences")


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def pairs(count=4):
    return [Pair(f"{n}?", "yes, it is", "no" if n % 2 else "no, it is surely not") for n in range(count)]


def test_a_rollout_of_pairs_has_the_chosen_side_first_with_the_score():
    world = PairEnv({"train": pairs(), "validation": [], "test": []}, rows=3, seed=0)
    policy = Parrot()
    batch = world.rollout(policy, repeats=2)
    assert batch.batch_size == (3, 2)
    torch.testing.assert_close(batch["score"], torch.tensor([[1.0, 0.0]] * 3))
    assert policy.decode(batch)[::2] == ["yes, it is"] * 3
    assert (batch["reward"].sum(-1) == batch["score"]).all() and (batch["done"].sum(-1) == 1).all()
    assert [record["score"] for record in world.last] == [1.0, 0.0] * 3
    with pytest.raises(UserError, match="two whole attempts, not 4"):
        world.rollout(policy, repeats=4)


def test_stored_pairs_are_evaluated_by_which_side_is_the_likelier():
    world = PairEnv({"train": pairs(), "validation": pairs(), "test": []}, rows=3, seed=0)
    scores = world.evaluate(Parrot())
    torch.testing.assert_close(scores.score, torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))


def test_pairs_from_the_embedded_problems_prefer_the_worked_answer():
    world = preferences.make(preferences.Config(train=200, validation=5, test=5, rows=200), 0, "cpu")
    world.rollout(Parrot(), repeats=2)
    texts = [record["completion"] for record in world.last]
    chosen, rejected = texts[::2], texts[1::2]
    assert all(record["completion"] == record["answer"] for record in world.last[::2])
    assert not [1 for left, right in zip(chosen, rejected, strict=True) if left == right]
    assert sum(text.startswith("####") for text in rejected) / 200 == pytest.approx(0.5, abs=0.1)
    for right, wrong in zip(
        chosen, rejected, strict=True
    ):  # with its working, the rejected side ends in a wrong number
        assert wrong.startswith("####") or right.split("####")[1] != wrong.split("####")[1]
    assert len(world.evaluate(Parrot()).score) == 5  # problems, solved and graded


def test_a_file_of_pairs_is_read_and_held_out(tmp_path):
    rows = [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(40)]
    world = preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    assert {split: len(found) for split, found in world.pairs.items()} == {"train": 32, "validation": 4, "test": 4}
    rows[6]["rejected"] = ""
    with pytest.raises(UserError, match=r"p.jsonl:7: 'rejected' is"):
        preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    with pytest.raises(UserError, match="is not a source of pairs"):
        preferences.make(preferences.Config(source="nothing"), 0, "cpu")


def test_pairs_resume_where_they_stopped():
    def make():
        return PairEnv({"train": pairs(9), "validation": [], "test": []}, rows=4, seed=0)

    first, second = make(), make()
    first.rollout(Parrot(), repeats=2)
    second.load_state_dict(first.state_dict())
    first.rollout(Parrot(), repeats=2)
    second.rollout(Parrot(), repeats=2)
    assert first.last == second.last
