"""Tools: calls in GSM8K's notation, functions of your own in a process that is bounded, and what is counted."""

import os
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from support.chatter import Chatter
from support.parrot import Judge, Parrot
from torch.testing import assert_close

from rlkit.api import UserError
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.text import Asking, Problem, TextEnv, load_tool
from rlkit.text.tools import Calling, asked_for
from rlkit.worker import Worker

MINE = """
import os, sys, time

def loud(text):
    print("this is not a result")
    sys.stdout.flush()
    return text.upper()

def megabyte(text):
    return "x" * 10**6

def hangs(text):
    time.sleep(60)

def hangs_once(text):
    if text == "1":
        time.sleep(60)
    return "later"

def raises(text):
    raise ValueError("not\\nso")

def number(text):
    return 7

def dies(text):
    os._exit(3)

def forks(text):
    os.fork()
    return text

def starts(text):
    import subprocess
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], stdin=subprocess.DEVNULL)
    return str(child.pid)

def half(text):
    return "\\ud800"
"""


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MINE)
    return tmp_path / "mine.py"


@pytest.mark.parametrize(
    "text, asked",
    [
        ("48/2=<<48/2=", None),  # the first = was outside; rows never get that far
        ("<<48/2=", "48/2"),
        ("Ann has <<48/2=", "48/2"),
        ("<<1+<<2=", "2"),
        ("48/2=", None),
        ("<<3>>4=", None),
        ("<<48/2=2", None),  # a token that spells more: the model wrote the result itself
        ("<<48/2", None),
        ("<<=", ""),
        ("", None),
    ],
)
def test_what_is_asked_for(text: str, asked: str | None) -> None:
    assert asked_for(text) == asked


def test_calls_are_answered_and_counted() -> None:
    calling = Calling(load_tool("calculator", 1.0), ["\n\n"], 3)
    assert calling([0, 1, 2], ["6*7=", "<<6*7=", "<<6*/7="]) == ["", "42>>", "?>>"]
    assert calling([0, 1, 2], ["#### 1", "<<1+1=", "x\n\n<<1+1="]) == ["", "2>>", None]
    assert calling.made == [0, 2, 1] and calling.failed == [0, 0, 1]


@pytest.mark.parametrize(
    "name, result, told",
    [
        ("loud", "3+4".upper() + ">>", ""),
        ("megabyte", "x" * 200 + ">>", ""),
        ("half", "?>>", ""),
        ("hangs", "?>>", "nothing came within 0.3 seconds; the model reads ?>>"),
        ("raises", "?>>", "it raised ValueError: not so; the model reads ?>>"),
        ("number", "?>>", "it gave a int in place of a text; the model reads ?>>"),
        ("dies", "?>>", "its process ended; the model reads ?>>"),
    ],
)
def test_whatever_a_tool_does_the_row_goes_on(
    mine: Path, name: str, result: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = load_tool(f"{mine}:{name}", 0.3)
    began = time.monotonic()
    assert [calls.result("3+4")[0] for _ in range(2)] == [result] * 2
    assert time.monotonic() - began < 10
    said = capsys.readouterr().err
    assert said.count("\n") == bool(told) and told in said


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_tool_that_forks_answers_each_question_once(mine: Path) -> None:
    calls = load_tool(f"{mine}:forks", 10)
    assert [calls.result(str(n))[0] for n in range(8)] == [f"{n}>>" for n in range(8)]


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="waits as on Linux")
def test_what_a_tool_started_ends_with_it(mine: Path) -> None:
    worker = Worker("env.tool", f"{mine}:starts", 20)
    watched = os.pidfd_open(int(worker("")))
    worker.end()
    assert select.select([watched], [], [], 20)[0], "it has ended"
    os.close(watched)


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.slow
def test_a_signal_to_the_group_of_a_run_does_not_reach_its_tool(mine: Path) -> None:
    program = (
        "import os, signal, sys; from rlkit.text import load_tool; calls = load_tool(sys.argv[1], 20.0);"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); print(calls.result('a')[0]);"
        "os.killpg(0, signal.SIGINT); print(calls.result('b')[0])"
    )
    command = [sys.executable, "-c", program, f"{mine}:loud"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, start_new_session=True)
    assert (done.stdout, done.stderr) == ("A>>\nB>>\n", "")


def test_after_a_hang_the_tool_is_started_again(mine: Path) -> None:
    calls = load_tool(f"{mine}:hangs_once", 0.3)
    assert [calls.result(text) for text in ("0", "1", "2")] == [
        ("later>>", False),
        ("?>>", True),
        ("later>>", False),
    ]


@pytest.mark.parametrize(
    "name, words",
    [
        ("calculater", "env.tool='calculater' names no code; allowed are calculator, PATH.py:NAME or"),
        ("./nowhere.py:f", "env.tool='./nowhere.py:f': there is no file .*nowhere.py; give the path"),
        ("rlkit.errors:nothing", "has no function or class 'nothing'; define it there"),
        ("no.such:f", "env.tool='no.such:f': No module named 'no'; give a .py file or a module"),
    ],
)
def test_a_tool_that_cannot_be_found_is_one_line(name: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        load_tool(name, 1.0)
    assert "\n" not in str(error.value)


def test_a_module_that_cannot_be_imported_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("1 / 0\n")
    with pytest.raises(UserError, match="cannot be imported: ZeroDivisionError: division by zero; fix it"):
        load_tool(f"{tmp_path / 'bad.py'}:f", 1.0)


def test_a_process_that_cannot_be_had_is_one_line(mine: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object, **__: object) -> None:
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr("subprocess.Popen", none)
    with pytest.raises(UserError, match=r"^env.tool: no process can be started \(Resource temporarily unavailable\)"):
        load_tool(f"{mine}:loud", 1.0)


def adds(count: int) -> list[Problem]:
    return [Problem(f"{n} + 2 =", f"#### {n + 2}") for n in range(count)]


def world(**settings) -> TextEnv:
    problems = {"train": adds(5), "validation": adds(4), "test": adds(3)}
    return TextEnv(problems, 5, 0, tool=load_tool("calculator", 1.0), **settings)


def test_the_grader_reads_what_the_tool_wrote_and_the_policy_learns_only_its_own() -> None:
    def say(prompt: str, attempt: int, heard: list[str]) -> str:
        if heard:
            return f"{heard[0].removesuffix('>>')}\n#### {heard[0].removesuffix('>>')}"
        return f"<<{prompt[0]}+{2 + attempt}="

    env, chatter = world(), Chatter(say)
    batch = env.rollout(chatter, repeats=2)
    assert batch["score"].tolist() == [[1.0, 0.0]] * 5
    assert (batch["rollout/tool_calls"] == 1).all() and not batch["rollout/tool_errors"].any()
    assert "turn_end" not in batch.keys()
    row = batch[0, 0]
    written = "".join(chr(i) for i in row["action"][row["mask"]] if i)
    first = int(row["mask"].nonzero()[0])
    read = "".join(chr(i) for i in row["action"][first:][~row["mask"][first:]] if i)
    assert read.endswith(">>") and read not in written
    assert row["terminated"].nonzero().tolist() == [[int(row["mask"].nonzero().max())]]
    record = told_by(env, batch, chatter)[0]
    assert record["completion"].startswith("<<") and ">>" in record["completion"]
    scores = env.evaluate(chatter, split="test")
    assert scores.score.tolist() == [1.0] * 3 and scores.metrics["tool_calls"] == [1.0] * 3


def test_a_stop_string_ends_what_the_policy_wrote_and_not_what_the_tool_did() -> None:
    turns = {"a": ["<<1/2=", "5. apples."], "b": ["x =", " <<1/2=", "5"], "c": ["<<1/2=", " <<1/4=", ".#"]}
    chatter = Chatter(lambda prompt, attempt, heard: turns[prompt][len(heard)])
    batch, texts = load_tool("calculator", 1.0).write(chatter, list(turns), ["."])
    assert texts == ["<<1/2=0.5>>5", "x = <<1/2=0.5>>5", "<<1/2=0.5>> <<1/4=0.25>>"]
    assert batch["rollout/stopped"].flatten().tolist() == [1.0, 0.0, 1.0]
    assert load_tool("calculator", 1.0).read(chatter, batch, ["."]) == texts


def test_a_row_that_spends_its_tokens_is_truncated_and_one_that_ends_is_not() -> None:
    says = {"a": ["1", "2"], "b": ["<<1/2=", "0123456789"], "c": ["x =", "y"], "d": ["0123456789"]}
    chatter = Chatter(lambda prompt, attempt, heard: says[prompt][len(heard)])
    batch, _ = load_tool("calculator", 1.0).write(chatter, list(says), ["#"], max_tokens=9)
    assert batch["truncated"].flatten().tolist() == [False, True, False, True]


@pytest.mark.slow
def test_tiny_is_truncated_with_a_tool_where_it_is_without_one() -> None:
    keys = [
        "algo=grpo",
        "env=gsm8k",
        "env.max_tokens=6",
        "env.rows=8",
        "algo.group=4",
        "env.test=4",
        "env.validation=4",
    ]
    cut = []
    for more in ([], ["env.tool=calculator"]):
        parts = assemble(config.read([*keys, *more]))
        cut.append(parts.env.rollout(parts.algo.policy, repeats=4)["truncated"])
    assert torch.equal(*cut) and 0 < cut[0].float().mean() < 1


def told_by(env: TextEnv, batch, policy) -> list:
    return env.samples(batch, policy, batch["score"].numel())


def test_a_policy_without_turns_and_a_stop_that_a_call_tears_are_refused() -> None:
    with pytest.raises(UserError, match="a Parrot writes no turns: use algo=grpo"):
        world().check(Parrot())
    with pytest.raises(UserError, match="a Judge writes no turns"):
        world().check(Judge(lambda prompt, completion: 0.0))
    with pytest.raises(UserError, match=r"env.stop='a=b' with env.tool: a turn ends at '='"):
        world(prompt=Asking(stop=("a=b",))).check(Chatter(lambda *_: ""))


@pytest.mark.slow
def test_tiny_calls_the_calculator_and_its_tokens_are_those_of_the_tool() -> None:
    """On the shipped model: what stands with mask False is the result of what stands before it, id by id."""
    policy = LanguageModel.load("tiny", value_head=True)
    problems = {split: adds(8) for split in ("train", "validation", "test")}
    env = TextEnv(problems, 8, 0, tool=load_tool("calculator", 1.0), prompt="Ann has {question}\nAnn has <<")
    policy.generator = generator(0, "x")
    batch = env.rollout(policy, repeats=4).flatten(0, 1)
    assert batch["rollout/tool_calls"].sum() >= 16
    calls = 0
    for row in batch:
        first, last = int(row["mask"].nonzero()[0]), int(row["mask"].nonzero().max())
        ids, acted = row["action"][first : last + 1].tolist(), row["mask"][first : last + 1].tolist()
        at = 0
        while at < len(ids):
            if acted[at]:
                at += 1
                continue
            end = acted.index(True, at)
            turn = policy.tokenizer.decode([ids[:at]])[0]
            asked = asked_for("<<" + turn.rpartition("<<")[2])
            result, _ = env.turns.result(asked)
            assert ids[at:end] == policy.tokenizer.encode([result])[0]
            calls, at = calls + 1, end
    assert calls > 0
    found = policy.evaluate(batch)
    assert_close(found["log_prob"].detach(), batch["log_prob"], rtol=1e-4, atol=1e-4)
    assert not found["log_prob"][~batch["mask"]].any() and not batch["value"][~batch["mask"]].any()
    logits = policy.decoder.logits(policy.decoder(batch["observation"])).detach().requires_grad_()
    chosen = logits.log_softmax(-1).gather(-1, batch["action"][..., None])[..., 0]
    torch.autograd.backward((chosen * batch["mask"]).sum())
    assert logits.grad is not None and not logits.grad[~batch["mask"]].any()
