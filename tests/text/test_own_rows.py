"""env=text: rows of your own, their prompts, splits and columns, and what is measured of them."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.parrot import Parrot
from support.resuming import REWARD
from support.small_model import model

from rlkit import run
from rlkit.api import UserError
from rlkit.evaluation import Evaluate, refuse
from rlkit.prompts import Prompt, data
from rlkit.settings import plugins
from rlkit.statistics.episodes import summarize
from rlkit.text import Asking, TextEnv
from rlkit.text.rows import tasks_from
from rlkit.text.sources import problems_from

text = plugins.load("envs", "text")
SCORES = """
seen = []


def says(prompts, completions, word, **columns):
    seen.append((prompts, completions, word, columns))
    return [float(each in text) for each, text in zip(word, completions, strict=True)]


def length(prompts, completions, **columns):
    return [len(text) if text else None for text in completions]


def nan(prompts, completions, **columns):
    return [float("nan") for _ in completions]


def short(prompts, completions, **columns):
    return [[1.0] for _ in completions]
"""


def made(folder: Path, given: list[dict[str, object]], reward: str = "", **settings: object) -> TextEnv:
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    (folder / "mine.py").write_text(SCORES)
    names = ",".join(name if name.isidentifier() and name in ("strict", "flexible", "boxed", "correct") else
                     f"{folder / 'mine.py'}:{name}" for name in reward.split(",") if name)  # fmt: skip
    config = text.Config(source=str(folder / "rows.jsonl"), reward=names, **settings)
    return text.make(config, 0, "cpu")


def rows(count: int = 30, **more: object) -> list[dict[str, object]]:
    return [{"prompt": f"say {n}", "word": str(n), "level": {"hard": n % 2 == 0}, **more} for n in range(count)]


def test_a_reward_gets_every_column_as_it_is_and_no_other(tmp_path):
    env = made(tmp_path, rows(), "says", rows=3)
    batch = env.rollout(Parrot(lambda prompt, attempt: prompt.removeprefix("say ")), repeats=2)
    assert batch["score"].tolist() == [[1.0, 1.0]] * 3
    [function] = env.rewards.functions
    [(prompts, completions, word, columns)] = function.__globals__["seen"]
    assert [f"say {each}" for each in word] == prompts and completions == word
    assert columns == {"level": [{"hard": int(each) % 2 == 0} for each in word]}
    assert not set(columns) & {"question", "answer", "kind"}, "what the rows do not have"


def test_a_column_that_few_rows_have_is_given_for_all(tmp_path):
    (tmp_path / "test.jsonl").write_text('{"prompt": "say 0", "late": 1}\n')
    env = made(tmp_path, [{"prompt": f"say {n}"} for n in range(1, 9)] + [{"prompt": "say 9", "word": "9"}], "length")
    assert {tuple(sorted(x.given())) for found in env.problems.values() for x in found} == {("late", "word")}
    assert env.problems["test"][0].given() == {"late": 1, "word": None}


def test_a_prompt_is_given_as_it_is_or_in_a_template(tmp_path):
    env = made(tmp_path, rows(), "says", rows=1)
    assert env.asking.prompts(env.problems["test"], Parrot())[0] == env.problems["test"][0].question
    env = made(tmp_path, rows(), "says", rows=1, prompt="Now {question}!")
    assert env.asking.prompts(env.problems["test"], Parrot())[0] == f"Now {env.problems['test'][0].question}!"


def test_a_column_that_a_prompt_seems_to_ask_for_is_named(tmp_path, capsys):
    env = made(tmp_path, rows(), "says", prompt="{question} ({level})")
    assert env.asking.prompts(env.problems["test"], Parrot())[0].endswith(" ({level})")
    told = "env.prompt has {level}, which stays as it is: only {question} is filled in, no column\n"
    assert capsys.readouterr().err == told
    made(tmp_path, rows(), "says", prompt=r"{question} Write \boxed{level}, or {name}.")
    assert not capsys.readouterr().err


def test_what_is_a_special_token_elsewhere_is_text_in_a_row(tmp_path):
    policy = model()
    end = policy.tokenizer.core.id_to_token(policy.tokenizer.eos_id)
    env = made(tmp_path, [{"prompt": f"{n} {end}", "word": "x"} for n in range(9)], "says", rows=2)
    prompts = env.asking.prompts(env.problems["train"], policy)
    assert all(isinstance(prompt, Prompt) and prompt.data == ((0, len(prompt)),) for prompt in prompts)
    assert policy.tokenizer.eos_id not in policy.tokenizer.encode(prompts[:1])[0]


def test_evaluation_uses_the_rewards_with_their_weights_and_reports_each_and_the_metrics(tmp_path):
    weights = (1.0, 0.5)
    env = made(tmp_path, rows(), "says,length", reward_weights=weights, metrics=f"{tmp_path / 'mine.py'}:length")
    assert env.metric == "return" and env.scored(Parrot()) == "problems"
    parrot = Parrot(lambda prompt, attempt: prompt.removeprefix("say ") if prompt[-1] in "02468" else "")
    scores = env.evaluate(parrot)
    words = [problem.columns["word"] for problem in env.problems["validation"]]
    even = [int(word) % 2 == 0 for word in words]
    assert scores.score.tolist() == [1 + 0.5 * len(w) if e else 0.0 for w, e in zip(words, even, strict=True)]
    assert scores.metrics["length"] == [len(w) if e else None for w, e in zip(words, even, strict=True)]
    assert scores.metrics["says"] == [float(e) for e in even]
    assert scores.metrics.keys() == {"says", "length"}, "a reward that is named as a metric, too, is not measured twice"
    summary = summarize(env.metric, scores, True)
    lengths = [len(w) for w, e in zip(words, even, strict=True) if e]
    if lengths:
        assert summary["metrics"]["length"]["mean"] == pytest.approx(sum(lengths) / len(lengths))
    assert summary["metrics"]["says"]["mean"] == sum(even) / len(even)
    assert [sample["answer"] for sample in scores.samples] == [""] * len(words), "no answer is right or wrong here"


@pytest.mark.parametrize("nothing", [float("nan"), float("inf")])
def test_nan_is_no_answer_and_no_kind(tmp_path, nothing):
    """Pandas writes NaN for a cell without a value; it was learned as the text `nan`."""
    given: list[dict[str, object]] = [{"prompt": f"{n}?", "answer": f"x{n}", "kind": "easy"} for n in range(30)]
    gap = {"prompt": "none?", "answer": nothing, "kind": nothing}
    found = [problem for problem in tasks_from([("here", row) for row in [*given, gap]]) if problem.answer == ""]
    assert [(problem.question, problem.kind) for problem in found] == [("none?", "")]
    with pytest.raises(UserError, match="has no 'answer' that is a text or a number"):
        made(tmp_path, [*given, gap], "boxed")


def test_a_kind_may_be_a_number(tmp_path):
    kinds = [1, 2.5, "hard", None, True]
    given: list[dict[str, object]] = [{"prompt": f"{n}?", "answer": n, "kind": kinds[n % 5]} for n in range(30)]
    problems = made(tmp_path, given).problems["train"]
    assert {problem.kind for problem in problems} == {"1", "2.5", "hard", ""}
    assert {problem.columns["kind"] for problem in problems} == {*kinds}
    own = problems_from([("here", {"question": "?", "answer": "#### 1", "kind": 3})])
    assert own[0].kind == "3"
    mixed = [row | {"kind": n % 2} for n, row in enumerate(given)]
    env = made(tmp_path, mixed, rows=8, curriculum="success")
    assert {"rollout/0/drawn", "rollout/1/drawn"} <= set(env.rollout(Parrot()).keys())


@pytest.mark.parametrize(("reward", "metric"), [("strict", "accuracy"), ("", "accuracy"), ("strict,boxed", "return")])
def test_one_built_in_reward_is_an_accuracy(tmp_path, reward, metric):
    env = made(tmp_path, [{"prompt": f"{n}?", "answer": n} for n in range(30)], reward)
    assert env.metric == metric
    right = Parrot(lambda prompt, attempt: f"#### {prompt[:-1]} = \\boxed{{{prompt[:-1]}}}")
    scores = env.evaluate(right)
    assert set(scores.score.tolist()) == ({1.0} if metric == "accuracy" else {2.0})
    assert [f"{sample['answer']}?" for sample in scores.samples] == [sample["prompt"] for sample in scores.samples]
    assert made(
        tmp_path, [{"prompt": f"{n}?", "answer": n} for n in range(30)], "strict", reward_weights=(2.0,)
    ).metric == ("return")


def test_a_weight_makes_an_accuracy_a_return(tmp_path):
    assert (
        made(tmp_path, [{"prompt": f"{n}?", "answer": n} for n in range(30)], reward_weights=(2.0,)).metric == "return"
    )


def test_gsm8k_reports_strict_and_flexible_accuracy_whatever_is_rewarded(tmp_path):
    (tmp_path / "mine.py").write_text(SCORES)
    gsm8k = plugins.load("envs", "gsm8k")
    config = gsm8k.Config(train=8, test=6, validation=6, reward=f"{tmp_path / 'mine.py'}:length")
    env = gsm8k.make(config, 0, "cpu")
    answers = {f"{each.question}\n": each.answer.rpartition("#### ")[2] for each in env.problems["test"]}
    first = next(iter(answers))
    scores = env.evaluate(
        Parrot(lambda prompt, attempt: f"it is {answers[prompt]}" if prompt == first else f"#### {answers[prompt]}"),
        split="test",
    )
    assert env.metric == "accuracy" and scores.score.tolist() == [1.0] * 6
    assert scores.metrics == {"strict": [0.0] + [1.0] * 5, "flexible": [1.0] * 6}
    summary = summarize("accuracy", scores, True)
    assert (
        summary["metrics"]["strict"]["mean"] == pytest.approx(5 / 6) and summary["metrics"]["flexible"]["mean"] == 1.0
    )
    assert summary["metrics"]["flexible"]["low"] == summary["low"], "Wilson's interval, as that of the accuracy"


def test_a_file_beside_it_is_the_test_split_and_a_hash_holds_out_the_rest(tmp_path):
    (tmp_path / "test.jsonl").write_text("".join(json.dumps({"prompt": f"t{n}", "word": "x"}) + "\n" for n in range(5)))
    env = made(tmp_path, rows(), "says", validation=2)
    assert env.splits == {"train": 28, "validation": 2, "test": 5}
    again = made(tmp_path, rows()[::-1], "says", validation=2)
    assert {p.question for p in again.problems["validation"]} == {p.question for p in env.problems["validation"]}


CHAT = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "say 1"}]


class Chatty(Parrot):
    """Writes a conversation as lines."""

    chats = True

    def chat(self, conversations, options):
        return [Prompt("".join(f"{turn.role}: {turn.content}\n" for turn in turns), (), tuple(turns))
                for turns in conversations]  # fmt: skip


def test_a_conversation_is_asked_in_turns_with_its_own_system_message_or_ours():
    problems = tasks_from(
        [
            ("a", {"prompt": CHAT}),
            ("b", {"prompt": [*CHAT[1:], {"role": "assistant", "content": "1"}, CHAT[1]]}),
            ("c", {"prompt": "say 2"}),
        ]
    )
    asked = Asking(prompt="{question}!", chat=None, system="Ours.").prompts(problems, Chatty())
    assert asked == [
        "system: Be brief.\nuser: say 1\n",
        "system: Ours.\nuser: say 1\nassistant: 1\nuser: say 1\n",
        "system: Ours.\nuser: say 2!\n",
    ]
    assert all(turn.content == data(turn.content) for prompt in asked[:1] for turn in prompt.turns)
    assert problems[0].question == "system: Be brief.\nuser: say 1"
    shown = Asking(chat=None, shots=tuple(tasks_from([("s", {"prompt": CHAT, "answer": 5})])))
    assert shown.prompts(problems[:1], Chatty()) == ["system: Be brief.\nuser: say 1\nassistant: 5\nuser: say 1\n"]


@pytest.mark.parametrize("chat", [None, False])
def test_a_conversation_needs_a_model_with_a_chat_template(chat):
    with pytest.raises(UserError, match="a prompt of chat messages needs a model with a chat template"):
        Asking(chat=chat).prompts(tasks_from([("a", {"prompt": CHAT})]), Parrot())


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"question": "a"}, r"rows\.jsonl:1: 'prompt' is missing; every row needs a text there, or a list of messages"),
        ({"messages": [{"role": "user", "content": "a"}]}, r"\(this one has: \"messages\"\); of its 'messages',"),
        ({"prompt": " "}, r"'prompt' is \" \"; every row"),
        ({"prompt": 3}, "'prompt' is 3; every row"),
        ({"prompt": None}, "'prompt' is null; every row"),
        ({"prompt": "a", "completions": []}, "completions: rewards take an argument of that name; rename it"),
        ({"prompt": []}, "'prompt' is an empty list; give it messages"),
        ({"prompt": ["a"]}, "message 1 of 'prompt' is \"a\"; give an object with 'role' and 'content'"),
        ({"prompt": [{"role": "tool", "content": "a"}]}, "message 1 of 'prompt' has the role \"tool\"; allowed are"),
        ({"prompt": [{"content": "a"}]}, "message 1 of 'prompt' has the role null; allowed are system, user, assist"),
        ({"prompt": [*CHAT, {"role": "user", "content": ""}]}, "message 3 of 'prompt' has the content \"\"; every"),
        ({"prompt": [{"role": "user", "content": [{"type": "image"}]}]}, "message 1 of 'prompt' has the content"),
        ({"prompt": [{"role": "user", "content": "a", "tool_calls": [1]}]}, "has \"tool_calls\", too; only its role"),
        ({"prompt": CHAT[:1]}, "the last message of 'prompt' is of the system; a prompt ends with what the user says"),
    ],
)  # fmt: skip
def test_a_row_that_is_none_is_one_line(tmp_path, row, words):
    with pytest.raises(UserError, match=words) as error:
        made(tmp_path, [row, *rows()], "says")
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


def test_what_no_row_makes_sense_of_is_one_line(tmp_path):
    for settings, given, words in (
        ({}, rows(), r"env\.reward is missing, and no row of .*rows\.jsonl has an 'answer' to compare with; give"),
        ({}, rows(completion="7"), "has an 'answer' to compare with; call its 'completion' that, or give env"),
        ({}, rows(completion=[{"role": "assistant", "content": "7"}]), "write the text of its 'completion' there, or"),
        ({"reward": "strict"}, rows(), r"strict compares with a right answer, and the row \"say \d+\" has no 'answer'"),
        ({"reward": "strict"}, rows(answer=["7"]), r"has no 'answer' that is a text or a number; give every row one"),
        ({}, rows(answer="2x + 1"), "the answer \"2x \\+ 1\" is not one number, which flexible needs"),
        ({"reward": "says", "metrics": "boxed, strict"}, rows(), "boxed compares .* of your own: env.metrics=./mine"),
        ({"reward": "says", "metrics": "strict"}, rows(answer="two"), "is not one number, .* give env.metrics=boxed"),
        ({"reward": "says", "shots": 2}, rows(), r"env\.shots=2 shows rows with their answers: give every row"),
        ({"reward": "says", "prompt": "{question}!"}, [{"prompt": CHAT, "word": "x"}] * 5, r"env\.prompt does noth"),
        ({"reward": "says,length", "reward_weights": (1.0,)}, rows(), r"env\.reward_weights has 1 numbers and .* 2"),
    ):  # fmt: skip
        with pytest.raises(UserError, match=words) as error:
            made(tmp_path, given, **settings)
        assert "\n" not in str(error.value)
    with pytest.raises(UserError, match=r"env=text needs env\.source; allowed are PATH\.jsonl, or a hub id"):
        text.make(text.Config(), 0, "cpu")
    assert made(tmp_path, rows(answer="2x + 1"), "boxed").metric == "accuracy", "an expression is compared in a box"


@pytest.mark.parametrize(("reward", "words"), [("nan", "reward nan gave nan"), ("short", "gave a list of 1 for")])
def test_a_reward_that_is_none_is_one_line(tmp_path, reward, words):
    env = made(tmp_path, rows(), reward, rows=2)
    for ask in (env.rollout, env.evaluate):
        with pytest.raises(UserError, match=words):
            ask(Parrot(lambda prompt, attempt: "a\nb"))


def test_rows_without_an_answer_demonstrate_nothing(tmp_path):
    with pytest.raises(UserError, match="a row without an 'answer' demonstrates nothing: give every row one"):
        made(tmp_path, rows(), "says").demonstrations(Parrot())
    shown = made(tmp_path, rows(answer="5"), "says", rows=2).demonstrations(Parrot())
    assert Parrot().decode(shown) == ["5", "5"]


@pytest.mark.parametrize("column", ["tools", "chat_template_kwargs"])
def test_messages_that_a_template_should_read_with_more_are_not_demonstrated(tmp_path, column):
    """TRL's SFTTrainer gives these columns to the chat template, and its GRPOTrainer only to rewards."""
    given: dict[str, object] = {column: {"name": "x"}, "answer": "5"}
    assert len(made(tmp_path, rows(**given), "says", rows=2).demonstrations(Parrot())), "a text has no template"
    chats = [row | {"prompt": [{"role": "user", "content": row["prompt"]}]} for row in rows(**given)]
    with pytest.raises(UserError, match=f"user: say .*'{column}' is not given to the chat template here; leave it out"):
        made(tmp_path, chats, "says").demonstrations(Parrot())


def test_an_answer_is_demonstrated_with_the_space_between_it_and_the_prompt(tmp_path):
    given = [{"prompt": f"Question {n}\nAnswer:", "answer": f" {n}"} for n in range(30)]
    env, policy = made(tmp_path, given, "correct", rows=3, shots=1), model()
    batch = env.demonstrations(policy)
    for row in batch:
        own = row["mask"]
        ids = torch.cat([row["observation"][:1], row["action"]])[: int(own.nonzero()[-1]) + 1]
        (whole,) = policy.tokenizer.decode([ids.tolist()])
        assert re.fullmatch(r"Question \d+\nAnswer: \d+\n\nQuestion \d+\nAnswer: \d+", whole)


def test_what_cannot_be_demonstrated_is_refused_before_anything_is_measured(tmp_path, capsys):
    source, out = tmp_path / "rows.jsonl", tmp_path / "run"
    words = ["algo=sft", "env=text", f"env.source={source}", REWARD, "policy.model=tiny", "iterations=1", f"out={out}"]
    for answer, found in [("", "a row without an 'answer' demonstrates nothing"), ("7 " * 9999, "exceed the model's")]:
        rows = [{"prompt": f"{n} and {n} is", "answer": "5" if n % 2 else answer} for n in range(40)]
        source.write_text("".join(json.dumps(row) + "\n" for row in rows))
        assert run.main(words) == 2
        assert found in capsys.readouterr().err and not out.exists()


def test_a_reward_model_ranks_attempts_by_the_rewards(tmp_path):
    from support.parrot import Judge

    env = made(tmp_path, rows(), "length")
    judge = Judge(lambda prompt, completion: float(len(completion)), lambda prompt, attempt: "x" * (attempt + 1))
    assert env.evaluate(judge).score.tolist() == [1.0] * env.splits["validation"]


def test_a_share_of_right_answers_needs_right_answers(tmp_path):
    env = made(tmp_path, rows(), "says")
    subject: Any = SimpleNamespace(env=env, policy=Parrot())
    for asked in (Evaluate(pass_at=(1,)), Evaluate(samples=2)):
        with pytest.raises(UserError, match="counts correct answers and the score of this run is a return"):
            refuse(subject, asked)


def test_a_metric_with_the_name_of_a_reward_is_reported_beside_it(tmp_path):
    (tmp_path / "own.py").write_text("def strict(prompts, completions, **columns):\n    return [5.0] * len(prompts)\n")
    mine = f"{tmp_path / 'own.py'}:strict"
    env = made(tmp_path, [{"prompt": f"{n}?", "answer": "1"} for n in range(30)], "strict,flexible", metrics=mine)
    found = env.evaluate(Parrot(lambda prompt, attempt: "#### 1")).metrics
    assert found.keys() == {"strict", "flexible", "strict_2"}
    assert set(found["strict"]) == {1.0} and set(found["strict_2"]) == {5.0}
