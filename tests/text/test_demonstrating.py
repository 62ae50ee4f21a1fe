"""Worked answers to learn from: what is said of rows that hold another text, too."""

import json
import math

import pytest
from support.parrot import Parrot
from support.resuming import REWARD

from rlkit import run
from rlkit.settings import plugins

text = plugins.load("envs", "text")
SAYS = (
    "40 of 40 rows have a 'completion' other than their 'answer', and the answer is what is trained on: to train on the"
)


def demonstrated(path, completion, shown=True):
    """An environment of rows with both; `shown`: its answers are learned from."""
    given = [{"prompt": f"say {n}", "answer": f" {n}", "completion": completion(n)} for n in range(40)]
    path.write_text("".join(json.dumps(row) + "\n" for row in given))
    env = text.make(text.Config(source=str(path), reward="correct", rows=2, validation=0, test=0), 0, "cpu")
    for _ in range(2 * shown):
        assert all(answer.strip().isdigit() for answer in Parrot().decode(env.demonstrations(Parrot())))


@pytest.mark.parametrize(
    "completion",
    [
        lambda n: f"It is {n}.",
        lambda n: [{"role": "assistant", "content": f"It is {n}."}],
        lambda n: [{"role": "assistant", "content": f"{n}"}, {"role": "user", "content": "So?"}],
    ],
)
def test_another_completion_beside_the_answer_is_told_once(tmp_path, capsys, completion):
    """TRL's SFTTrainer trains on it; a reward may read the column, so that it is not refused."""
    demonstrated(tmp_path / "rows.jsonl", completion)
    assert capsys.readouterr().err == f"{SAYS} completion, write its text as 'answer'\n"
    demonstrated(tmp_path / "rows.jsonl", completion, shown=False)
    assert not capsys.readouterr().err, "nothing learns from the answers"


@pytest.mark.parametrize(
    "completion",
    [
        lambda n: n,
        lambda n: f"{n}\n",
        lambda n: [{"role": "assistant", "content": f"{n}"}],
        lambda n: "",
        lambda n: None,
        lambda n: math.nan,  # as pandas writes a cell without a value
    ],
)
def test_a_completion_that_is_the_answer_or_empty_is_not_told(tmp_path, capsys, completion):
    demonstrated(tmp_path / "rows.jsonl", completion)
    assert not capsys.readouterr().err


def test_a_run_of_sft_tells_it_once(tmp_path, capsys):
    source, out = tmp_path / "rows.jsonl", tmp_path / "run"
    demonstrated(source, lambda n: f"It is {n}.", shown=False)
    words = ["algo=sft", "env=text", f"env.source={source}", "policy.model=tiny", "env.rows=2", "env.max_tokens=4"]
    assert run.main([*words, REWARD, "iterations=2", f"out={out}"]) == 0
    assert capsys.readouterr().err.count("a 'completion' other than their 'answer'") == 1
