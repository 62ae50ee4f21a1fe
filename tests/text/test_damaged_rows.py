"""Rows and texts of a stranger's: each is read, or refused in one line; nothing hangs."""

import json
import os
import random
from pathlib import Path

import pytest
from support.parrot import Parrot
from support.small_model import model

from rlkit import memory
from rlkit.api import UserError
from rlkit.settings import plugins
from rlkit.text import TextEnv

MODULES = {name: plugins.load("envs", name) for name in ("gsm8k", "preferences", "text")}
ROWS = {
    "gsm8k": [{"question": f"{n} + 1?", "answer": f"So {n + 1}.\n#### {n + 1}", "level": n} for n in range(30)],
    "preferences": [{"prompt": f"{n}?", "chosen": f"{n}", "rejected": f"{n + 1}", "more": None} for n in range(30)],
    "text": [{"prompt": f"{n} + 1?", "answer": f"{n + 1}", "more": [n]} for n in range(30)],
}
VALUES = (
    "null", "true", "-1", "1e999", "NaN", '""', '" "', '"\\ud800"', '"\\udfff\\ud800"', '"\\ud83d\\ude00"', '"\\u0000"',
    '"#### "', '"#### 1e99"', '"#### 1/0"', '"' + "7" * 9000 + '"', '"#### ' + "7" * 9000 + '"', "[]", '["a"]', "{}",
    "9" * 9000, "[" * 5000 + "]" * 5000, '{"a": {"b": [1]}}', '"' + "\\u202e\\u001b[2J" + '"',
)  # fmt: skip


def damaged(kind: str, draw: random.Random) -> bytes:
    """The rows with one value, key, line or some bytes changed."""
    lines = [json.dumps(row) for row in ROWS[kind]]
    at, what = draw.randrange(len(lines)), draw.choice(("value", "value", "value", "lost", "line", "bytes", "cut"))
    key = draw.choice(list(ROWS[kind][0]))
    row = {**ROWS[kind][at], key: "HERE"}
    if what == "value":
        lines[at] = json.dumps(row).replace('"HERE"', draw.choice(VALUES))
    elif what == "lost":
        lines[at] = json.dumps({name: value for name, value in row.items() if name != key})
    elif what == "line":
        lines[at] = draw.choice(VALUES)
    data = bytearray("\n".join(lines).encode())
    place = draw.randrange(len(data))
    if what == "bytes":
        data[place : place + 2] = draw.randbytes(2)
    return bytes(data[:place] if what == "cut" else data)


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", MODULES)
def test_damaged_rows_are_read_or_are_one_line(kind: str, tmp_path: Path) -> None:
    draw, refused = random.Random(kind), 0
    policy, path = model(), tmp_path / "rows.jsonl"
    for _ in range(120):
        path.write_bytes(damaged(kind, draw))
        try:
            env = MODULES[kind].make(MODULES[kind].Config(source=str(path), rows=2), 0, "cpu")
            env.check(policy)
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 500
            refused += 1
    assert 30 < refused < 110


@pytest.mark.parametrize("kind", MODULES)
def test_half_a_character_is_refused_by_its_line(kind: str, tmp_path: Path) -> None:
    rows = ROWS[kind]
    text = json.dumps(rows[0]) + "\n" + json.dumps(rows[1]).replace("1", "\\ud800", 1)
    (tmp_path / "rows.jsonl").write_text(text)
    with pytest.raises(UserError, match=r"rows\.jsonl:2: broken JSON \(.*surrogates not allowed"):
        MODULES[kind].make(MODULES[kind].Config(source=str(tmp_path / "rows.jsonl")), 0, "cpu")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("kind", MODULES)
def test_a_pipe_is_no_file_of_rows(kind: str, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "rows.jsonl")
    with pytest.raises(UserError, match=r"rows\.jsonl: not a file; give a \.jsonl file"):
        MODULES[kind].make(MODULES[kind].Config(source=str(tmp_path / "rows.jsonl")), 0, "cpu")


def test_a_file_larger_than_the_memory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rows.jsonl").write_text("{}\n" * 1000)
    monkeypatch.setattr(memory, "free", lambda: 1000)
    with pytest.raises(UserError, match=r"rows\.jsonl needs .* are free: give a smaller file"):
        MODULES["gsm8k"].load(MODULES["gsm8k"].Config(source=str(tmp_path / "rows.jsonl")))


@pytest.mark.parametrize(
    "source", ["x" * 5000, "a/" * 3000, "a/" * 3000 + ".jsonl", "~nobody-here/x", "a\0b", "a\0.jsonl"]
)
def test_a_source_that_can_be_no_path_is_one_line(source: str) -> None:
    with pytest.raises(UserError, match=r"not a source|cannot be read|no such file") as error:
        MODULES["gsm8k"].load(MODULES["gsm8k"].Config(source=source))
    assert len(str(error.value)) < 300 or source.endswith(".jsonl")


@pytest.mark.parametrize("prompt", ["a/b" * 3000 + "{question}", "./x.py:f, model: {question}\n\n", "~x/{question}"])
def test_a_prompt_is_taken_as_it_is(prompt: str) -> None:
    module = MODULES["gsm8k"]
    env = module.make(module.Config(prompt=prompt, train=4, test=1, validation=1), 0, "cpu")
    assert isinstance(env, TextEnv)
    problem = env.problems["train"][0]
    assert env.asking.prompts([problem], Parrot())[0] == prompt.replace("{question}", problem.question)


def test_half_a_character_is_refused_wherever_it_comes_from() -> None:
    module = MODULES["gsm8k"]
    with pytest.raises(UserError, match=r"env\.prompt='\\udcff{question}' is not Unicode text; write it in UTF-8"):
        module.make(module.Config(prompt="\udcff{question}", train=4, test=1, validation=1), 0, "cpu")
    for writing in (lambda: model().generate(["a", "\ud800"]), lambda: model().encode(["a"], ["\ud800"])):
        with pytest.raises(UserError, match=r"'\\ud800' is not a text: give texts of whole Unicode characters"):
            writing()
