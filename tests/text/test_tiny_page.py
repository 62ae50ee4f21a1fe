"""What docs/tiny.md says of the embedded problems as a whole."""

import re
from pathlib import Path

import pytest

from rlkit.settings import plugins
from rlkit.text.templates import HEAD, RARE

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "tiny.md").read_text(encoding="utf-8")


@pytest.mark.slow
def test_their_words_steps_numbers_and_kinds() -> None:
    gsm8k = plugins.load("envs", "gsm8k")
    env = gsm8k.make(gsm8k.Config(), seed=0, device="cpu")
    problems = [problem for split in env.problems.values() for problem in split]
    words = [len(problem.question.split()) for problem in problems]
    numbers = [int(number) for problem in problems for number in re.findall(r"\d+", problem.question)]
    steps = {problem.answer.count("<<") for problem in problems}
    said = f"Thirteen kinds, {min(words)} to {max(words)} words, {min(steps)} to {max(steps)} steps"
    assert f"{said}, random numbers, most of them at most 20, none above {max(numbers)}." in PAGE
    assert len(HEAD) == 6 and len(RARE) == 7 and sum(number <= 20 for number in numbers) > len(numbers) / 2
    assert round(sum(problem.kind in RARE for problem in problems) / len(problems), 2) == 0.46
