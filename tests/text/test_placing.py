"""Rewards in a batch: a number per step lands on the token that ends its line, one for the whole on the last token."""

from pathlib import Path

import pytest
import torch
from support import bytes_of_letters
from support.chatter import Chatter
from support.parrot import Parrot
from support.texts import texts

from rlkit.language.tokenizer import train_tokenizer
from rlkit.text import Problem, TextEnv, load_rewards, load_tool, steps
from rlkit.text.placing import tokens_at
from rlkit.text.scoring import Rewards, ends_of_steps

WORKING = "48/2 = 24\n\n 48+24 = 72 \n#### 72\n"
COUNTS = "def counts(prompts, completions, **columns):\n    return [[1.0, 0.5, 2.0] for _ in completions]\n"


def world(*rewards, weights=()):
    problems = [Problem("a", "#### 72"), Problem("b", "#### 72")]
    return TextEnv({"train": problems, "validation": [], "test": []}, rows=2, seed=0, rewards=rewards, weights=weights)


def test_a_letter_that_is_spelled_by_bytes_moves_no_line_before_it():
    decode = bytes_of_letters.tokenizer().decode
    row = bytes_of_letters.ids("a", b"\n", "😀".encode(), "b")
    assert decode([row]) == ["a\n😀b"] and tokens_at(row, [1, 2, 3, 4], decode) == [0, 1, 5, 6]
    row = bytes_of_letters.ids("a", "😀".encode(), "😀".encode(), "b")
    assert tokens_at(row, [1, 2, 3, 4], decode) == [0, 4, 8, 9]


def test_a_step_is_a_line_that_is_not_empty_and_ends_with_its_last_character():
    ends = ends_of_steps(WORKING)
    assert [WORKING[:end].rpartition("\n")[2] for end in ends] == ["48/2 = 24", " 48+24 = 72", "#### 72"]
    assert ends_of_steps("") == ends_of_steps(" \n\n") == []
    for text in (WORKING, "", "a\rb\u2028c\n\x0c\nd ", " \n\n"):
        assert [text[:end].rpartition("\n")[2] for end in ends_of_steps(text)] == [
            line.rstrip() for line in steps(text)
        ]


def test_the_reward_of_each_step_is_on_the_last_token_of_its_line(tmp_path: Path):
    (tmp_path / "mine.py").write_text(COUNTS)
    [counts] = load_rewards(f"{tmp_path / 'mine.py'}:counts")
    batch = world(counts).rollout(Parrot(lambda prompt, attempt: WORKING), repeats=2)
    assert batch["score"].tolist() == [[3.5, 3.5], [3.5, 3.5]]
    for row in batch.flatten():
        acted = row["mask"].nonzero()[:, 0]  # a parrot's token is a character
        where = row["reward"][acted].nonzero()[:, 0].tolist()
        assert [WORKING[i] for i in where] == ["4", "2", "2"] and [i + 1 for i in where] == ends_of_steps(WORKING)
        assert row["reward"][acted][where].tolist() == [1.0, 0.5, 2.0]
        assert row["terminated"].nonzero().tolist() == [[int(acted[-1])]], "the end token, which earns nothing here"


def test_a_line_that_a_tool_ends_earns_at_the_step_that_was_acted_before():
    def per_line(prompts, completions, **columns):
        assert completions == ["<<1+2=3>>\n#### 3"] * 2
        return [[1.0, 2.0]] * 2

    problems = [Problem("a", "#### 3"), Problem("b", "#### 3")]
    tool = load_tool("calculator", 1.0)
    env = TextEnv({"train": problems, "validation": [], "test": []}, 2, 0, rewards=[per_line], tool=tool)
    batch = env.rollout(Chatter(lambda prompt, attempt, heard: "\n#### 3" if heard else "<<1+2="))
    for row in batch:
        acted, text = row["mask"].nonzero()[:, 0], row["action"].tolist()
        first, second = row["reward"].nonzero()[:, 0].tolist()
        assert row["reward"][[first, second]].tolist() == [1.0, 2.0] and float(row["score"]) == 3.0
        assert bool(row["mask"][first]) and not row["mask"][first + 1], "the last step before the tool's"
        assert chr(text[second]) == "3" and second == int(acted[-1]) - 1, "then comes the end token"


def test_several_rewards_are_weighted_and_each_is_kept_by_name_without_its_weight():
    def per_line(prompts, completions, **columns):
        return [[1.0, 2.0] if prompt[0] == "a" else None for prompt in prompts]

    def short(prompts, completions, **columns):
        return [10.0] * len(completions)

    batch = world(per_line, short, weights=[0.5, -1]).rollout(Parrot(lambda prompt, attempt: "x\ny"))
    for row in batch:
        first = chr(int(row["observation"][0])) == "a"
        acted = row["reward"][row["mask"]].tolist()
        assert acted == ([0.5, 0.0, 1.0, -10.0] if first else [0.0, 0.0, 0.0, -10.0])
        assert float(row["score"]) == (-8.5 if first else -10.0) == float(row["reward"].sum())
        assert float(row["reward/short"]) == 10.0 and bool(row["rated/short"])
        assert (float(row["reward/per_line"]), bool(row["rated/per_line"])) == ((3.0, True) if first else (0.0, False))


def test_functions_of_one_name_are_told_apart():
    def short(prompts, completions, **columns):
        return [0.0] * len(completions)

    assert Rewards([short, len, short]).names == ["short", "len", "short_2"]


def test_no_step_of_an_empty_text_earns_nothing():
    def none(prompts, completions, **columns):
        return [[] for _ in completions]

    batch = world(none).rollout(Parrot(lambda prompt, attempt: ""))
    assert not batch["reward"].any() and batch["score"].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("seed", range(3))
def test_the_token_that_completes_a_part_is_the_first_after_which_that_part_is_there(seed: int):
    """An oracle that decodes every beginning; characters of several tokens included."""
    found = texts(40, seed)
    tokenizer = train_tokenizer(found[:5], 300)
    for text, [ids] in ((text, tokenizer.encode([text])) for text in found):
        ids = [*ids, tokenizer.eos_id]
        ends = [*range(1, len(text) + 1)]
        begun = [tokenizer.decode([ids[: i + 1]])[0] for i in range(len(ids))]
        want = [next(i for i, part in enumerate(begun) if part.startswith(text[:end])) for end in ends]
        assert tokens_at(ids, ends, tokenizer.decode) == want


def test_what_a_reward_of_a_step_earns_reaches_only_the_steps_before_it():
    """The reward to go, by hand: with γ = 1 each token is credited with what comes from there on."""
    from rlkit import returns

    def per_line(prompts, completions, **columns):
        return [[1.0, 2.0] for _ in completions]

    batch = world(per_line).rollout(Parrot(lambda prompt, attempt: "x\ny"))
    to_go = returns.reward_to_go(batch["reward"], batch["done"], 1.0)
    assert to_go[batch["mask"]].view(2, 4).tolist() == [[3.0, 2.0, 2.0, 0.0]] * 2
    torch.testing.assert_close(batch["score"], to_go[batch["mask"]].view(2, 4)[:, 0])
