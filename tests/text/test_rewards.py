"""Reward functions: TRL's signature, the user's own, and what a wrong one is told."""

import asyncio
import gc
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from support.parrot import Parrot, told

from rlkit.api import UserError
from rlkit.text import Problem, TextEnv, correct, load_rewards, total
from rlkit.text.scoring import Rewards


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
    rewards = {record["prompt"]: record["rewards"] for record in told(world, batch)}
    assert rewards == {"a\n": {"length": 3.0, "only_odd": 1.0}, "b\n": {"length": 2.0, "only_odd": None}}
    alone = TextEnv({"train": problems, "validation": [], "test": []}, rows=2, seed=0, rewards=[length])
    assert not any("rewards" in record for record in told(alone, alone.rollout(Parrot(lambda prompt, attempt: "x"))))


class Short:
    """A reward that is an object."""

    def __init__(self, most):
        self.most = most

    def __call__(self, prompts, completions, **columns):
        return [float(len(text) < self.most) for text in completions]


def test_an_object_is_named_after_its_class():
    """Its own text holds an address, which is another in each process: metrics of a resumed run would be others."""
    objects = [Short(2), partial(correct), Short(3), partial(Short(4)), correct]
    rewards = Rewards(objects)
    assert rewards.names == ["Short", "correct", "Short_2", "Short_3", "correct_2"]
    found = rewards(["a"], ["xx"], {"answer": ["1"]}).named
    assert found == {"Short": [0.0], "correct": [0.0], "Short_2": [1.0], "Short_3": [1.0], "correct_2": [0.0]}


def test_what_raises_in_a_library_names_the_line_of_the_user(tmp_path):
    text = (
        "import json\n\ndef parsed(prompts, completions, **columns):\n    return [json.loads(x) for x in completions]\n"
    )
    (tmp_path / "mine.py").write_text(text)
    functions = load_rewards(f"{tmp_path / 'mine.py'}:parsed")
    with pytest.raises(UserError, match=r"reward parsed raised JSONDecodeError: .* \(mine.py, line 4\)$"):
        total(functions, ["?"], ["no json"], {})


def test_a_misspelled_column_is_told_its_name():
    def argument(prompts, completions, nme, **columns):
        return []

    def inside(prompts, completions, **columns):
        return columns["nme"]

    async def waiting(prompts, completions, **columns):
        return []

    with pytest.raises(UserError, match=r"\(missing a required argument: 'nme'\): did you mean name\?$"):
        Rewards([argument]).check_columns(["level", "name"])
    with pytest.raises(UserError, match="reward waiting is asynchronous: write def in place of async def"):
        Rewards([waiting]).check_columns([])
    with pytest.raises(
        UserError, match=r"KeyError: 'nme' \(test_rewards.py, line \d+\): did you mean the column name\?$"
    ):
        total([inside], ["?"], ["a"], {"level": [1], "name": ["Mia"]})


def test_a_column_of_another_meaning_is_no_hint():
    def argument(prompts, completions, solution, **columns):
        return []

    def inside(prompts, completions, **columns):
        return columns["solution"]

    with pytest.raises(UserError, match=r"'solution'\); write def argument\(prompts, completions, \*\*columns\)$"):
        Rewards([argument]).check_columns(["question", "answer"])
    with pytest.raises(UserError, match=r"KeyError: 'solution' \(test_rewards.py, line \d+\)$"):
        total([inside], ["?"], ["a"], {"question": ["?"], "answer": ["a"]})


def test_a_reward_function_comes_from_a_file_or_a_module(tmp_path):
    (tmp_path / "mine.py").write_text(
        "def half(prompts, completions, **columns):\n    return [0.5] * len(completions)\n"
    )
    functions = load_rewards(f"correct, {tmp_path / 'mine.py'}:half, rlkit.text.grader:correct")
    assert total(functions, ["p"], ["#### 1"], {"answer": ["#### 1"]}) == [2.5]


@pytest.mark.parametrize(
    "name, words",
    [
        ("corect", "env.reward='corect' names no code; allowed are correct, strict, .* model:RUN_FOLDER, PATH.py:NAME"),
        ("./nowhere.py:f", "there is no file"),
        ("rlkit.text.grader:nothing", "has no function or class 'nothing'"),
        ("no.such.module:f", "No module named"),
        ("", "env.reward='' names no code"),
        ("model:runs/judge", "a run loads it; give env.reward=model:runs/judge on its command line"),
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


class Unspeakable(Exception):
    def __str__(self):
        raise RuntimeError("no words")

    __repr__ = __str__


def test_what_a_reward_raises_or_gives_need_not_be_shown():
    def raises(prompts, completions):
        raise Unspeakable

    for function, words in (
        (
            raises,
            r"^reward raises raised Unspeakable: a Unspeakable that cannot be shown \(test_rewards.py, line \d+\)$",
        ),
        (lambda prompts, completions: [Unspeakable()], "gave a Unspeakable that cannot be shown; every reward must be"),
    ):
        with pytest.raises(UserError, match=words):
            total([function], ["?"], ["!"], {})


def test_a_reward_that_cannot_take_the_columns_is_told_how_to():
    def narrow(prompts, completions):
        return [1.0] * len(prompts)

    with pytest.raises(
        UserError, match=r"reward narrow cannot be called .* def narrow\(prompts, completions, \*\*columns\)"
    ):
        total([narrow], ["p"], ["c"], {"answer": ["a"]})


def test_a_compiled_reward_says_itself_what_it_does_not_take():
    with pytest.raises(UserError, match=r"^reward max raised TypeError: max expected at least 1 argument"):
        total([max], ["a"], ["b"], {})


def test_a_reward_that_is_there_twice_is_refused():
    with pytest.raises(UserError, match=r"env\.reward=correct, correct: correct is there twice; give each once"):
        load_rewards("correct, correct")


@pytest.mark.parametrize(
    "given", ["x" * 5000 + ".py:f", "a/" * 3000 + ".py:f", "~nobody-here/x.py:f", "a\0.py:f", "..x:f", "a b:f"]
)
def test_a_name_that_can_be_no_path_is_one_line(given):
    with pytest.raises(UserError, match=r"there is no file|No module named"):
        load_rewards(given)


@pytest.mark.parametrize(
    "given",
    [
        [np.array([1.0]), torch.tensor([[2.0]])],
        [np.float32(1), torch.tensor(2.0)],
        np.array([1.0, 2.0]),
        torch.tensor([[1.0], [2.0]]),
        (True, np.int64(2)),
    ],
    ids=repr,
)
def test_one_number_is_a_number_in_whatever_form(given):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert total([lambda prompts, completions: given], ["p", "q"], ["a", "b"], {}) == [1.0, 2.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            [np.zeros(2), 1.0],
            r"gave a list of 2 for a completion of 1 steps \(lines that are not empty\); every reward",
        ),
        ([torch.zeros(0), 1.0], "gave a list of 0 for a completion of 1 steps"),
        ([[], 1.0], "gave a list of 0 for a completion of 1 steps"),
        ([np.array([np.nan]), 1.0], "gave nan; every"),
        (["1.0", 1.0], "gave '1.0'; every"),
        ([[np.nan], 1.0], "gave nan; every reward must be a number from -1e18 to 1e18 or None"),
        ([[None], 1.0], "gave None; every"),
        ([[[1.0]], 1.0], r"gave \[1.0\]; every"),
        ([1e39, 1.0], r"gave 1e\+39; every reward must be a number from -1e18"),
        ([1 + 1j, 1.0], "every reward must be"),
        ([np.complex64(1j), 1.0], "every reward must be"),
        ([10**400, 1.0], "gave 1000.*; every reward must be a number from -1e18"),
        (np.array([10**400, 1]), "gave 1000.*; every reward must be a number from -1e18"),
        ([-(10**5000), 1.0], "gave a number of thousands of digits; every"),
        ("ab", "gave a str for 2 completions"),
        (b"11", "gave a bytes for 2 completions"),
        (bytearray(b"11"), "gave a bytearray for 2 completions"),
        (memoryview(b"11"), "gave a memoryview for 2 completions"),
        (np.array(1.0), "gave a ndarray for 2 completions"),
        (np.zeros((2, 3)), "gave a list of 3 for a completion of 1 steps"),
        (np.zeros(3), "gave 3 rewards for 2 completions"),
        ([np.zeros(5000), 1.0], "every reward must be"),
    ],
    ids=lambda given: str(given)[:40] if isinstance(given, str) else type(given).__name__,
)
def test_what_is_not_one_number_is_refused(given, words):
    with pytest.raises(UserError, match=words) as error:
        total([lambda prompts, completions: given], ["p", "q"], ["a", "b"], {})
    assert "\n" not in str(error.value) and len(str(error.value)) < 250


def test_what_one_reward_does_to_its_lists_reaches_no_other() -> None:
    def spoils(prompts: list[str], completions: list[str], answer: list[str]) -> list[float]:
        for given in (prompts, completions, answer):
            given[:] = ["#### 1"] * len(given)
        return [0.0] * len(completions)

    prompts, completions, columns = ["?"], ["#### 2"], {"answer": ["#### 3"]}
    assert total([spoils, correct], prompts, completions, columns) == [0.0]
    assert (prompts, completions, columns) == (["?"], ["#### 2"], {"answer": ["#### 3"]})


def test_what_is_inside_of_a_row_is_not_changed_either() -> None:
    def pops(prompts, completions, options):
        return [float(len(each) - len([each.pop()])) for each in options]

    columns = {"options": [[1, [2], {"three": 3}]]}
    assert total([pops, pops], ["?"], ["!"], columns) == [4.0], "3 - 1, twice"
    assert columns == {"options": [[1, [2], {"three": 3}]]}


def test_a_column_may_have_any_name() -> None:
    def named(prompts, completions, what, function, given):
        return [float(what[0] + function[0] + given[0])]

    assert total([named], ["?"], ["!"], {"what": [1], "function": [2], "given": [3]}) == [6.0]


class Stubborn(list):
    def __iter__(self):
        raise RuntimeError("no list")


class Odd(int):
    def __float__(self):
        raise RuntimeError("no number")


@pytest.mark.parametrize(
    ("given", "words"),
    [(Stubborn([1.0]), "raised RuntimeError: no list"), ([Odd(1)], "gave 1; every reward must be a number from -1e18")],
)
def test_what_a_class_of_ones_own_raises_is_one_line(given, words):
    with pytest.raises(UserError, match=words):
        total([lambda prompts, completions: given], ["?"], ["!"], {})


def test_a_reward_that_exits_is_one_line():
    with pytest.raises(UserError, match=r"reward exits raised SystemExit: 0 \(test_rewards.py, line \d+\)"):
        total([exits], ["?"], ["!"], {})


def exits(prompts, completions):
    raise SystemExit(0)


def canceled(prompts, completions):
    raise asyncio.CancelledError


async def late(prompts, completions):
    return [1.0]


def test_a_reward_that_is_cancelled_or_asynchronous_is_one_line():
    with pytest.raises(UserError, match=r"reward canceled raised CancelledError: nothing more \(test_rewards"):
        total([canceled], ["?"], ["!"], {})
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserError, match="reward late is asynchronous: write def in place of async def"):
            total([late], ["?"], ["!"], {})
        gc.collect()


def test_weights_do_not_lift_rewards_beyond_what_can_be_squared():
    def large(prompts, completions):
        return [9e17]

    with pytest.raises(UserError, match=r"sum to more than 1e\+18: give smaller weights"):
        Rewards([large], [2.0])(["?"], ["!"], {})
