"""Stored preference pairs."""

import json

import pytest
import torch
from support.parrot import Judge, Parrot, told
from support.small_model import model
from support.texts import write

from rlkit import run
from rlkit.api import UserError
from rlkit.settings import plugins
from rlkit.text import Pair, PairEnv, Problem, TextEnv

preferences = plugins.load("envs", "preferences")


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
    assert [record["score"] for record in told(world, batch)] == [1.0, 0.0] * 3
    with pytest.raises(UserError, match="two whole attempts, not 4"):
        world.rollout(policy, repeats=4)


def test_stored_pairs_are_evaluated_by_which_side_is_the_likelier():
    world = PairEnv({"train": pairs(), "validation": pairs(), "test": []}, rows=3, seed=0)
    scores = world.evaluate(Parrot())
    torch.testing.assert_close(scores.score, torch.tensor([1.0, 0.0, 1.0, 0.0], dtype=torch.float64))


def test_a_policy_without_log_probabilities_is_refused():
    class Mute(Parrot):
        evaluate = None

    world = PairEnv({"train": pairs(), "validation": pairs(), "test": []}, rows=3, seed=0)
    with pytest.raises(UserError, match="a Mute does not tell log π of stored texts; use algo=dpo or algo=sft"):
        world.evaluate(Mute())


def test_pairs_from_the_embedded_problems_prefer_the_worked_answer():
    world = preferences.make(preferences.Config(train=200, validation=5, test=5, rows=200), 0, "cpu")
    records = told(world, world.rollout(Parrot(), repeats=2))
    texts = [record["completion"] for record in records]
    chosen, rejected = texts[::2], texts[1::2]
    assert all(record["completion"] == record["answer"] for record in records[::2])
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
    assert world.scored(Parrot()) == "pairs"  # there is no problem to solve
    rows[6]["rejected"] = ""
    with pytest.raises(UserError, match=r"p.jsonl:7: 'rejected' is"):
        preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    with pytest.raises(UserError, match="is not a source of pairs"):
        preferences.make(preferences.Config(source="nothing"), 0, "cpu")


def test_files_of_other_splits_beside_the_pairs_are_named(tmp_path, capsys):
    rows = [{"prompt": f"{n}?", "chosen": "a", "rejected": "b"} for n in range(20)]
    write(tmp_path / "test.jsonl", rows)
    preferences.make(preferences.Config(source=write(tmp_path / "train.jsonl", rows)), 0, "cpu")
    told = "train.jsonl: test.jsonl beside it is not read; the test split is held out of train.jsonl\n"
    assert capsys.readouterr().err == told


def test_of_a_reward_model_held_out_pairs_are_ranked():
    world = PairEnv({"train": pairs(), "validation": pairs(), "test": []}, rows=3, seed=0)
    scores = world.evaluate(Judge(lambda prompt, text: float(text == "yes, it is") * (prompt != "1?")))
    assert scores.score.tolist() == [1.0, 0.5, 1.0, 1.0]  # a tie is worth one half
    assert scores.length.tolist() == [11.0] * 4  # of the chosen side, its end token included


def test_the_embedded_problems_hold_pairs_out_for_reward_models():
    world = preferences.make(preferences.Config(train=50, validation=40, test=60), 0, "cpu")
    ranked = world.evaluate(Judge(lambda prompt, text: float(len(text))), split="test")
    assert len(ranked.score) == 60 and 0.5 < float(ranked.score.mean()) < 1
    prompts = {split: {pair.prompt for pair in found} for split, found in world.pairs.items()}
    assert not prompts["train"] & (prompts["validation"] | prompts["test"])
    assert prompts["test"] == set(world.problems.asking.prompts(world.problems.problems["test"], Parrot()))
    longer = preferences.make(preferences.Config(train=99, validation=40, test=60), 0, "cpu")
    assert longer.pairs["test"] == world.pairs["test"]  # whatever the other splits hold


def test_stored_log_probabilities_of_a_reference_come_with_the_pairs(tmp_path):
    rows = [
        {"prompt": f"{n}?", "chosen": "yes", "rejected": "no", "ref_chosen_logps": -1.5, "ref_rejected_logps": -n}
        for n in range(4)
    ]
    world = preferences.make(
        preferences.Config(source=write(tmp_path / "p.jsonl", rows), rows=4, validation=0, test=0), 0, "cpu"
    )
    batch = world.rollout(Parrot(), repeats=2)
    chosen = told(world, batch)[::2]
    stored = {entry["prompt"]: x.tolist() for entry, x in zip(chosen, batch["ref_log_prob"], strict=True)}
    assert world.stored_reference and stored == {f"{n}?": [-1.5, -n] for n in range(4)}


GOOD = {"prompt": "3?", "chosen": "yes", "rejected": "no"}


@pytest.mark.parametrize(
    "bad, words",
    [
        ({"prompt": " "}, r"p.jsonl:3: 'prompt' is"),
        ({"chosen": ""}, r"p.jsonl:3: 'chosen' is"),
        ({"rejected": "\n"}, r"p.jsonl:3: 'rejected' is"),
        ({"rejected": "yes"}, r"p.jsonl:3: 'chosen' and 'rejected' are the same text"),
        ({"ref_chosen_logps": -1.0}, r"p.jsonl:3: ref_chosen_logps=-1.0, ref_rejected_logps=None; give both"),
        ({"ref_chosen_logps": -1.0, "ref_rejected_logps": 0.5}, r"p.jsonl:3: .* from -1e\+09 to 0"),
        ({"ref_chosen_logps": -1.0, "ref_rejected_logps": "x"}, r"p.jsonl:3: .* from -1e\+09 to 0"),
        (
            {"ref_chosen_logps": -(10**400), "ref_rejected_logps": -1},
            r"p.jsonl:3: ref_chosen_logps=-10{35}\.\.\., .* to 0",
        ),
        ({"ref_chosen_logps": -1, "ref_rejected_logps": -1e308}, r"p.jsonl:3: .* from -1e\+09 to 0"),
        ({"ref_chosen_logps": -1.0, "ref_rejected_logps": -2.0}, r"p.jsonl: 1 of 3 rows have ref_chosen_logps and"),
    ],
)
def test_a_pair_that_is_none_is_refused_by_line(tmp_path, bad, words):
    rows = [{**GOOD, "prompt": "1?"}, {**GOOD, "prompt": "2?"}, GOOD | bad]
    with pytest.raises(UserError, match=words) as error:
        preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    assert "\n" not in str(error.value)


# What does not fit into the model's context (small_model: 128 tokens) is refused before anything is trained

LONG = "How many apples are left? " * 40


@pytest.mark.parametrize("side", ["prompt", "chosen", "rejected"])
def test_a_pair_longer_than_the_context_is_refused_before_the_first_rollout(tmp_path, side):
    rows = [{**GOOD, "prompt": f"{n}?"} for n in range(3)]
    rows[1][side] = LONG
    world = preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    with pytest.raises(UserError, match="exceed the model's context of 128") as error:
        world.check(model())
    assert "\n" not in str(error.value)


def test_a_pair_that_just_fits_is_not_refused():
    policy = model()
    completion = "apples apples"
    room = 128 - len(policy.tokenizer.encode([completion])[0]) - 1
    prompt = "7" * room  # each digit is a token
    world = PairEnv({"train": [Pair(prompt, completion, "7")], "validation": [], "test": []}, rows=1, seed=0)
    world.check(policy)
    assert world.rollout(policy, repeats=2)["action"].shape == (1, 2, 127)
    world = PairEnv({"train": [Pair(prompt + "7", completion, "7")], "validation": [], "test": []}, rows=1, seed=0)
    with pytest.raises(UserError, match=f"a prompt of {room + 1} tokens"):
        world.check(policy)


def test_a_problem_longer_than_the_context_is_refused_before_the_first_rollout():
    def world(digits, max_tokens):
        problems = [Problem("7?", "#### 4"), Problem("7" * digits, "#### 4")]
        splits = {"train": problems[:1], "validation": [], "test": problems[1:]}
        return TextEnv(splits, rows=1, seed=0, max_tokens=max_tokens, prompt="{question}")

    world(108, 20).check(model())
    with pytest.raises(
        UserError, match=r"a prompt of 109 tokens \('7777.*and 20 more exceed .* of 128: lower env"
    ) as error:
        world(109, 20).check(model())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "algo, env, row",
    [
        ("grpo", "gsm8k", {"question": "9 " * 2100, "answer": "#### 4"}),
        ("sft", "gsm8k", {"question": "9 " * 2100, "answer": "#### 4"}),
        ("dpo", "preferences", {"prompt": "9 " * 2100, "chosen": "yes", "rejected": "no"}),
        ("reward_model", "preferences", {"prompt": "1?", "chosen": "9 " * 2100, "rejected": "no"}),
    ],
)
def test_a_run_with_a_text_that_is_too_long_ends_in_one_line_and_leaves_no_folder(
    tmp_path, monkeypatch, capsys, algo, env, row
):
    monkeypatch.chdir(tmp_path)
    key = "question" if "question" in row else "prompt"
    rows = [{**row, "chosen": "yes", key: f"{n}?"} if key == "prompt" else {**row, key: f"{n}?"} for n in range(30)]
    source = write(tmp_path / "p.jsonl", [*rows, row])
    keys = [f"algo={algo}", f"env={env}", f"env.source={source}", "threads=1", "iterations=1"]
    assert run.main([*keys, *(["algo.group=2"] if env == "preferences" else [])]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and "exceed the model's context of 2048" in err
    assert not (tmp_path / "runs").exists()


def test_a_run_on_stored_pairs_shows_no_return(tmp_path):
    """One side scores 1 and the other 0, so the mean of both would be 0.5 whatever is learned."""
    write(tmp_path / "p.jsonl", [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(30)])
    keys = ["algo=dpo", "env=preferences", f"env.source={tmp_path / 'p.jsonl'}", "env.rows=2", "threads=1"]
    assert run.main([*keys, "iterations=2", f"out={tmp_path / 'run'}"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    assert len(lines) == 2 and all("train/margin" in line and "rollout/return" not in line for line in lines)


def test_a_few_pairs_hold_out_one_of_each_split(tmp_path):
    rows = [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(3)]
    world = preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows)), 0, "cpu")
    assert {split: len(found) for split, found in world.pairs.items()} == {"train": 1, "validation": 1, "test": 1}
    with pytest.raises(UserError, match="no pair is left to train on; hold out fewer, or give more"):
        preferences.make(preferences.Config(source=write(tmp_path / "p.jsonl", rows[:2])), 0, "cpu")


def test_pairs_resume_where_they_stopped():
    def make():
        return PairEnv({"train": pairs(9), "validation": [], "test": []}, rows=4, seed=0)

    first, second = make(), make()
    first.rollout(Parrot(), repeats=2)
    second.load_state_dict(first.state_dict())
    following = [told(world, world.rollout(Parrot(), repeats=2)) for world in (first, second)]
    assert following[0] == following[1]


def test_pairs_of_one_prompt_count_each_and_are_held_out_together(tmp_path):
    """250 prompts of 4 pairs: a tenth of the 1,000 pairs at most."""
    rows = [{"prompt": f"{n} + 1?", "chosen": f"{n + 1}", "rejected": f"x{k}"} for n in range(250) for k in range(4)]
    write(tmp_path / "multi.jsonl", rows)
    config = preferences.Config(source=str(tmp_path / "multi.jsonl"))
    world = preferences.make(config, 0, "cpu")
    assert {split: len(found) for split, found in world.pairs.items()} == {"train": 800, "validation": 100, "test": 100}
    prompts = [{pair.prompt for pair in found} for found in world.pairs.values()]
    assert [len(found) for found in prompts] == [200, 25, 25] and len(set.union(*prompts)) == 250
