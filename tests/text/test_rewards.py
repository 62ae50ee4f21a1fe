"""Reward functions: TRL's signature, the user's own, and what a wrong one is told."""

import pytest
from support.parrot import Parrot, told

from rlkit.api import UserError
from rlkit.text import Problem, TextEnv, load_rewards, total


def test_rewards_have_trls_signature_and_are_summed_with_none_left_out():
    def length(prompts, completions, **columns):
        return [float(len(text)) for text in completions]

    def only_odd(prompts, completions, kind, level, **columns):
        assert level == [3 if name == "odd" else None for name in kind]
        return [1.0 if name == "odd" else None for name in kind]

    problems = [Problem("a", "#### 1", "odd", {"level": 3}), Problem("b", "#### 2", "even")]
    world = TextEnv({"train": problems, "validation": [], "test": []}, rows=2, seed=0, rewards=[length, only_odd])
    batch = world.rollout(Parrot(lambda prompt, attempt: "xyz" if prompt == "a\n" else "xy"))
    assert sorted(batch["score"].tolist()) == [2.0, 4.0]
    assert {record["prompt"]: record["score"] for record in told(world, batch)} == {"a\n": 4.0, "b\n": 2.0}


def test_a_reward_function_comes_from_a_file_or_a_module(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def half(prompts, completions, **columns):\n    return [0.5] * len(completions)\n"
    )
    functions = load_rewards(f"correct, {tmp_path / 'mine.py'}:half, rlkit.text.grader:correct")
    assert total(functions, ["p"], ["#### 1"], {"answer": ["#### 1"]}) == [2.5]


@pytest.mark.parametrize(
    "name, words",
    [
        ("corect", "is not a reward function"),
        ("./nowhere.py:f", "there is no file"),
        ("rlkit.text.grader:nothing", "has no function 'nothing'"),
        ("no.such.module:f", "No module named"),
        ("", "is not a reward function"),
    ],
)
def test_a_reward_that_cannot_be_found_is_one_line(name, words):
    with pytest.raises(UserError, match=words) as error:
        load_rewards(name)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "given, words",
    [
        ([1.0], "gave 1 rewards for 2"),
        (3.0, "gave a float"),
        ([1.0, float("nan")], "nan"),
        ([1.0, "x"], "'x'"),
        ([1.0, None], "None"),
    ],
)
def test_a_reward_that_answers_wrongly_is_named(given, words):
    def strange(prompts, completions, **columns):
        return given

    with pytest.raises(UserError, match=words):
        total([strange], ["p", "q"], ["a", "b"], {})


def test_a_reward_that_cannot_take_the_columns_is_told_how_to():
    def narrow(prompts, completions):
        return [1.0] * len(prompts)

    with pytest.raises(
        UserError, match=r"reward narrow cannot be called .* def narrow\(prompts, completions, \*\*columns\)"
    ):
        total([narrow], ["p"], ["c"], {"answer": ["a"]})


def test_a_reward_that_is_named_twice_is_refused() -> None:
    with pytest.raises(UserError, match=r"^env\.reward=correct, correct names correct more than once"):
        load_rewards("correct, correct")
