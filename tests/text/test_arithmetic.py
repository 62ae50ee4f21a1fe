"""The questions of two numbers: right answers, fixed rows, splits that share nothing."""

import hashlib
import re

import pytest

from rlkit.settings import plugins, schema

arithmetic = plugins.load("envs", "arithmetic")


def test_the_questions_are_always_the_same() -> None:
    rows = "\n".join(f"{x.question} {x.answer}" for x in arithmetic.questions())
    assert hashlib.sha256(rows.encode()).hexdigest().startswith("ca2e76952aed0e62")


def test_every_answer_is_right() -> None:
    for problem in arithmetic.questions():
        a, sign, b = re.fullmatch(r"What is (\d+) ([-+*]) (\d+)\?", problem.question).groups()
        assert problem.answer == f"#### {eval(f'{a}{sign}{b}')}"
        assert problem.kind == {"+": "sum", "-": "difference", "*": "product"}[sign]


@pytest.mark.parametrize("validation, test", [(200, 200), (0, 7), (5000, 5000)])
def test_splits_share_nothing(validation: int, test: int) -> None:
    config = schema.build(arithmetic.Config, {"validation": validation, "test": test}, "env")
    env = arithmetic.make(config, 0, "cpu")
    questions = {split: {x.question for x in rows} for split, rows in env.problems.items()}
    assert len(questions["train"]) == 1200 - min(validation, 1199) and len(questions["test"]) == min(test, 200)
    assert not questions["train"] & questions["test"] and not questions["train"] & questions["validation"]
