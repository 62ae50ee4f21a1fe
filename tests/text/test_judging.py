"""Judges: both orders, what they count as, and what they may not return."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.parrot import Judge as Model
from support.parrot import Parrot
from tensordict import TensorDict

from rlkit import run
from rlkit.api import UserError
from rlkit.doctor.symptoms import of_groups, of_notes
from rlkit.errors import RewardFailed
from rlkit.settings import plugins
from rlkit.text import Problem, TextEnv
from rlkit.text.judging import Judge, load_judge
from rlkit.text.measuring import Measuring

dpo = plugins.load("algorithms", "dpo")


def shorter(prompts: list[str], completions: list[list[str]]) -> list[int]:
    return [-1 if len(a) == len(b) else int(len(b) < len(a)) for a, b in completions]


def asked(prompts: list[str], completions: list[list[str]]) -> list[int]:
    """The one that repeats the prompt; else whatever stands first."""
    return [int(prompt in b and prompt not in a) for prompt, (a, b) in zip(prompts, completions, strict=True)]


def test_what_is_said_in_both_orders_counts_by_hand() -> None:
    pairs = [("a", "bb"), ("aa", "b"), ("aa", "bb"), ("same", "same")]
    found = Judge(shorter)(["?"] * 4, pairs)
    assert found.first == [1.0, 0.0, 0.5, 0.5] and found.both == [False] * 4
    found = Judge(asked)(["1", "2", "3"], [("so 1", "no"), ("no", "so 2"), ("no", "neither")])
    assert found.first == [1.0, 0.0, 0.5] and found.both == [False, False, True], "the third time it judged the place"
    found = Judge(lambda prompts, completions: [1] * len(prompts))(["1"], [("a", "b")])
    assert found.first == [0.5] and found.both == [True]
    found = Judge(lambda prompts, completions: [0, -1])(["1"], [("a", "b")])
    assert found.first == [0.5] and found.both == [False], "an opinion in one order alone is none"


def test_it_is_asked_once_for_all_pairs_that_differ_in_both_orders() -> None:
    calls = []

    def noting(prompts: list[str], completions: list[list[str]]) -> list[int]:
        calls.append((prompts, completions))
        return shorter(prompts, completions)

    Judge(noting)(["1", "2", "3"], [("a", "bb"), ("c", "c"), ("dd", "e")])
    assert calls == [(["1", "3", "1", "3"], [["a", "bb"], ["dd", "e"], ["bb", "a"], ["e", "dd"]])]
    Judge(noting)(["1"], [("a", "a")])
    assert len(calls) == 1, "nothing to ask"


@pytest.mark.parametrize("give", [list, tuple, np.array, torch.tensor])
def test_verdicts_may_be_any_sequence_of_whole_numbers(give: object) -> None:
    assert Judge(lambda p, c: give(shorter(p, c)))(["?"], [("a", "bb")]).first == [1.0]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (2, "gave a int for 2 pairs"),
        ([0], "gave 1 verdicts for 2 pairs; return a list with one for each"),
        ("01", "gave a str for 2 pairs"),
        ([0, 2], "gave 2; every verdict must be 0"),
        ([0, 0.7], "gave 0.7; every verdict"),
        ([0, 1.0], "gave 1.0; every verdict"),  # of a soft judge it says that the first is better
        ([0, True], "gave True; every verdict"),
        ([None, 1], "gave None; every verdict"),
        ([0, "x" * 200], r"gave 'x{76}\.\.\.; every"),
    ],
)
def test_what_is_no_verdict_is_one_line(given: object, words: str) -> None:
    with pytest.raises(RewardFailed, match=f"judge mine {words}") as error:
        Judge(lambda prompts, completions: given, "mine")(["?"], [("a", "b")])
    assert "\n" not in str(error.value)


def test_a_judge_that_raises_or_takes_something_else_is_one_line() -> None:
    with pytest.raises(RewardFailed, match=r"judge mine raised ZeroDivisionError: .*test_judging.py, line \d+\)"):
        Judge(lambda prompts, completions: 1 / 0, "mine")(["?"], [("a", "b")])
    with pytest.raises(RewardFailed, match=r"judge mine cannot be called .*; write def mine\(prompts, completions\)"):
        Judge(lambda texts: [0], "mine")(["?"], [("a", "b")])
    with pytest.raises(RewardFailed, match=r"^judge max raised TypeError: '>' not supported"):  # compiled: no signature
        Judge(max)(["?"], [("a", "b")])


def world(judge: Judge, **settings: object) -> TextEnv:
    problems = [Problem(f"{n}?", "#### 4") for n in range(6)]
    splits = {"train": problems, "validation": problems[:3], "test": problems}
    return TextEnv(splits, seed=0, prompt="{question}", measuring=Measuring(judge=judge), **{"rows": 2, **settings})


REPLIES = ["aaaa", "b", "cc", "dd"]  # b is shorter than aaaa; cc and dd are as long


def test_a_rollout_says_which_of_two_attempts_is_better_and_how_often_there_is_a_pair() -> None:
    env = world(Judge(shorter))
    batch = env.rollout(Parrot(lambda prompt, attempt: REPLIES[attempt]), repeats=4)
    assert batch["preference"].tolist() == [[0.0, 1.0, 0.5, 0.5]] * 2
    assert {key: float(x) for key, x in of_notes(batch).items()} == {
        "rollout/judge_pairs": 0.5,
        "rollout/judge_both": 0,
    }
    assert float(of_groups(batch)["rollout/equal_groups"]) == 0, "the scores are equal, the preferences are not"
    assert env.scoring > 0
    first = world(Judge(lambda prompts, completions: [0] * len(prompts)))
    batch = first.rollout(Parrot(lambda prompt, attempt: REPLIES[attempt]), repeats=4)
    assert (batch["preference"] == 0.5).all() and float(of_groups(batch)["rollout/equal_groups"]) == 1
    assert {key: float(x) for key, x in of_notes(batch).items()} == {"rollout/judge_pairs": 0, "rollout/judge_both": 1}


def test_the_pairs_are_those_of_the_judge() -> None:
    policy = Parrot(lambda prompt, attempt: REPLIES[attempt])
    pairs = dpo.best_pairs(world(Judge(shorter)).rollout(policy, repeats=4))
    assert pairs.batch_size[:2] == (2, 2), "where it does not say, there is no pair"
    assert policy.decode(pairs) == ["b", "aaaa"] * 2, "the better one first"
    silent = Judge(lambda prompts, completions: [0] * len(prompts))
    left = dpo.best_pairs(world(silent).rollout(policy, repeats=4))
    assert left.batch_size[:2] == (1, 2) and not left["mask"].any()
    judged = TensorDict(
        {"preference": torch.tensor([[0.0, 1.0]]), "score": torch.tensor([[1.0, 0.0]])}, batch_size=[1, 2]
    )
    judged["mask"] = torch.ones(1, 2, 3, dtype=torch.bool)
    assert dpo.best_pairs(judged)["score"].tolist() == [[0.0, 1.0]], "against the scores"


def test_an_odd_number_of_attempts_is_refused() -> None:
    for repeats in (1, 3):
        with pytest.raises(UserError, match=f"compares attempts two by two, and there are {repeats} from each start"):
            world(Judge(shorter)).rollout(Parrot(), repeats=repeats)


def test_a_reward_model_is_measured_by_what_the_judge_prefers() -> None:
    lengths = Model(lambda prompt, text: float(len(text)), lambda prompt, attempt: REPLIES[attempt])
    found = world(Judge(shorter)).evaluate(lengths)
    assert found.score.tolist() == [0.0] * 3, (
        "it prefers the longer one, and one of two pairs of each problem is judged"
    )
    assert found.items is not None and found.items[0] == ("0?", "b", "aaaa") and found.length.tolist() == [2.0] * 3
    with pytest.raises(UserError, match=r"of 3 validation problems none .*: env\.judge prefers none"):
        world(Judge(lambda prompts, completions: [-1] * len(prompts))).evaluate(lengths)


def test_the_share_of_pairs_that_a_reward_model_ranks_right_is_an_accuracy_whatever_is_rewarded() -> None:
    for policy, metric in (
        (Parrot(), "return"),
        (Model(lambda prompt, text: 0.0, lambda prompt, attempt: REPLIES[attempt]), "accuracy"),
    ):
        env = world(Judge(shorter))
        env.metric = "return"  # of rewards that are not right or wrong
        env.check(policy)
        assert env.metric == metric
    assert env.scored(policy) == "pairs" and env.evaluate(policy).score.tolist() == [0.5] * 3


MINE = """
def shorter(prompts, completions):
    return [-1 if len(a) == len(b) else int(len(b) < len(a)) for a, b in completions]

def words(prompts, completions, **columns):
    return [-len(text) for text in completions]
"""
SHORT = ["threads=1", "env.rows=2", "env.max_tokens=12", "evaluation_episodes=2", "validation_episodes=2"]


@pytest.mark.parametrize("algo", ["dpo", "reward_model"])
@pytest.mark.slow
def test_a_run_learns_from_a_judge_and_resumes_with_trust(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(MINE)
    words = [f"algo={algo}", "env=gsm8k", "env.train=64", "env.validation=8", "env.test=8", "algo.group=4", *SHORT]
    judge = ["env.judge=./mine.py:shorter"]
    assert run.main([*words, *judge, "iterations=2", "out=whole"]) == 0
    line = json.loads((tmp_path / "whole" / "metrics.jsonl").read_text().splitlines()[0])
    assert 0 <= line["rollout/judge_pairs"] <= 1 and line["rollout/judge_both"] == 0
    assert run.main([*words, *judge, "iterations=1", "out=half"]) == 0
    assert run.main(["resume=half", "iterations=2"]) == 2
    assert "half would run code from outside rlkit: env.judge=" in capsys.readouterr().err
    assert run.main(["resume=half", "iterations=2", "trust=true"]) == 0
    one, two = (load_file(tmp_path / name / "checkpoints" / "latest.safetensors") for name in ("whole", "half"))
    assert one.keys() == two.keys() and all(torch.equal(one[key], two[key]) for key in one)
    Path("mine.py").write_text(MINE + "# changed")
    assert run.main(["resume=half", "iterations=3", "trust=true"]) == 2
    assert "mine.py has changed since the run" in capsys.readouterr().err


def test_a_judge_is_a_function_of_a_file_or_a_module(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    assert load_judge(f"{tmp_path / 'mine.py'}:shorter").name == "shorter"
    with pytest.raises(UserError, match=r"env.judge='shorter' names no code; allowed are PATH.py:NAME"):
        load_judge("shorter")
