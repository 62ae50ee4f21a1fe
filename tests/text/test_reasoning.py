"""env=reasoning: tasks by name, their splits, their scorers, and what they make of texts that are not answers."""

import json
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path

import pytest
from support.parrot import Parrot
from support.resuming import cut, differences
from support.texts import reasoning_installed

from rlkit import loop, run
from rlkit.api import RewardFailed, UserError
from rlkit.settings import plugins
from rlkit.text import TextEnv, reasoning
from rlkit.text.process import Failed, Process

env_reasoning = plugins.load("envs", "reasoning")
SMALL = {"train": 6, "validation": 2, "test": 2, "rows": 2}
needs = pytest.mark.skipif(not reasoning_installed(), reason="reasoning-gym is not installed")


def made(*task: str, seed: int = 0, **settings: object) -> TextEnv:
    return env_reasoning.make(env_reasoning.Config(task=task, **{**SMALL, **settings}), seed, "cpu")


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        (" 7 ", "7"),
        ("3+4\n#### 7", "7"),
        ("#### 6\n#### 7\n8", "7\n8"),
        (r"so \boxed{7} #### 8", "7"),
        (r"\boxed{6} \boxed{ 7 }", "7"),
        (r"\boxed{7", r"\boxed{7"),
        (r"<answer>6</answer> \boxed{8} <answer> 7 </answer>", "7"),
        ("<answer>6 <answer>7</answer>", "7"),
        ("<answer>7</answer></answer>", "7"),
        ("<answer>7", "<answer>7"),
        ("7</answer>", "7</answer>"),
        ("", ""),
    ],
)
def test_the_last_answer_of_a_text_counts(text: str, answer: str) -> None:
    assert reasoning.answer_of(text) == answer


@needs
def test_every_task_is_there_by_name() -> None:
    tasks = reasoning.tasks()
    assert len(tasks) > 100 and {"chain_sum", "countdown", "sudoku"} <= set(tasks) and "composite" not in tasks


@needs
@pytest.mark.parametrize(
    ("task", "right"), [("word_sorting", "'[a-zA-Z, ]+'"), ("graph_color", "one of several texts")]
)
def test_a_built_in_reward_that_cannot_compare_with_the_answers_is_refused(task: str, right: str) -> None:
    """Every text would be wrong, the right one as well."""
    for key in ("reward", "metrics"):
        with pytest.raises(UserError, match=rf"env\.{key}=strict: strict .* answer of {task}, which is {right}: give"):
            made(task, **{key: "strict"})
    assert made("gcd", reward="own,strict", metrics="flexible").rewards.names == ["gcd", "strict"]


@needs
def test_the_problems_of_a_task_do_not_depend_on_the_seed_of_a_run_and_no_split_shares_any() -> None:
    one, other = made("chain_sum"), made("chain_sum", seed=7)
    assert one.problems == other.problems and {split: len(rows) for split, rows in one.problems.items()} == {
        "train": 6,
        "validation": 2,
        "test": 2,
    }
    questions = [row.question for rows in one.problems.values() for row in rows]
    assert len(set(questions)) == len(questions)


@needs
@pytest.mark.parametrize("key", [1, None, 2.5])
def test_an_option_that_is_no_text_is_one_line(key: object) -> None:
    with pytest.raises(UserError, match=rf"^env\.task_options: gcd has no option '{key}'; its options are: min_num"):
        made("chain_sum", "gcd", task_options={"gcd": {key: 2}})


@needs
@pytest.mark.slow  # it starts the process anew
def test_an_option_is_never_run_as_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONOPTIMIZE", "1")  # leaves out the assertions by which the package checks options
    reasoning.PROCESS.close()
    code = f"+open({str(tmp_path / 'ran')!r}, 'w').write('')+"
    with pytest.raises(UserError, match="basic_arithmetic does not take"):
        reasoning.check_options("basic_arithmetic", {"operators": [code, "+"], "min_terms": 6})
    assert not list(tmp_path.iterdir())


@needs
def test_a_task_of_few_questions_holds_out_none_that_is_trained_on() -> None:
    options = {"min_trials": 3, "max_trials": 4}
    found = reasoning.problems("coin_flip", options, {"train": 20, "validation": 4, "test": 4})
    asked = {split: [row.question for row in rows] for split, rows in found.items()}
    assert len(asked["train"]) == 20 > len(set(asked["train"])), "there are few"
    held_out = asked["validation"] + asked["test"]
    assert len(set(held_out)) == len(held_out) and not {*held_out} & {*asked["train"]}


@needs
@pytest.mark.slow
def test_another_process_makes_the_same_problems_in_another_order() -> None:
    other = Process(reasoning.CHILD, "x", "x", "x", {"PYTHONHASHSEED": "0"})
    for task in ("chain_sum", "codeio", "game_of_life"):  # codeio draws from the global generators, too
        first = [reasoning._ask(["entry", task, {}, 50, 4, index], 60) for index in range(3)]
        assert [other.ask(["entry", task, {}, 50, 4, index], 60) for index in (2, 1, 0)] == first[::-1]
    other.close()


@needs
def test_the_scorer_of_a_task_scores_it_and_the_share_of_solved_is_beside() -> None:
    env = made("chain_sum", "gcd", validation=4)
    answers = {row.question: row for rows in env.problems.values() for row in rows}

    def reply(prompt: str, attempt: int) -> str:
        row = answers[prompt.strip()]
        return f"<answer>{row.answer}{' or more' if row.kind == 'gcd' else ''}</answer>"

    found = env.evaluate(Parrot(reply), split="validation")
    assert found.kinds == ["chain_sum", "gcd"] * 4, "the first N are of all tasks"
    by = dict(zip(found.kinds, found.score.tolist(), strict=True))
    assert by["chain_sum"] == 1 and 0 < by["gcd"] < 1
    assert found.metrics["chain_sum"] == [1.0, None] * 4 and found.metrics["solved"] == [1.0, 0.0] * 4
    assert env.metric == "return"


@needs
def test_a_group_is_of_one_task_and_each_task_is_logged_by_its_name() -> None:
    env = made("chain_sum", "spell_backward", task_weights=(3.0, 1.0), rows=6)
    batch = env.rollout(Parrot(lambda prompt, attempt: "x"), repeats=3)
    drawn = batch["rollout/chain_sum/drawn"]
    assert bool((drawn == drawn[:, :1]).all()) and bool((batch["rated/chain_sum"] == drawn.bool()).all())
    assert bool((batch["rated/chain_sum"] ^ batch["rated/spell_backward"]).all())
    assert env.mixture is not None and env.mixture.chances() == {"chain_sum": 0.75, "spell_backward": 0.25}


@needs
def test_a_reward_of_ones_own_is_summed_with_the_tasks(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text("def one(prompts, completions, **columns): return [1.0 for _ in completions]\n")
    mine = f"{tmp_path / 'mine.py'}:one"
    env = made("chain_sum", "gcd", reward=f"own,{mine}", reward_weights=(1.0, 0.5), rows=4)
    batch = env.rollout(Parrot(lambda prompt, attempt: "x"))
    assert batch["score"].tolist() == [0.5] * 4
    assert env.evaluate(Parrot(lambda prompt, attempt: "x")).score.tolist() == [0.0] * 4, "the task alone is measured"


@needs
@pytest.mark.slow
def test_a_text_is_never_run_as_python_and_ends_in_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place, mark = [0, 2, 0], tmp_path / "ran"
    code = f"__import__('os').system('touch {mark}')"
    letters = "+".join(f"chr({ord(letter)})" for letter in f"open({str(mark)!r},'w')")
    for task in ("spiral_matrix", "binary_matrix", "n_queens", "string_insertion", "countdown", "puzzle24"):
        for text in (code, f"[{code}]", f"exec({letters})", "().__class__"):
            assert reasoning.score(task, {}, place, text) < 0.1, task
    assert reasoning.score("polynomial_multiplication", {}, place, f"exec({letters})") == 0 and not mark.exists()
    assert reasoning.score("countdown", {}, place, "9**9**9**9") < 0.1
    assert reasoning.score("prime_factorization", {}, place, "a × b") == 0, "its scorer raises"
    told = capsys.readouterr().err
    assert told.count("prime_factorization: its scorer gave nothing for an answer (ValueError: ") == 1


@pytest.mark.parametrize(("value", "score"), [(1 + 2e-16, 1.0), (1.0, 1.0), (-1e-17, 0.0), (0.25, 0.25)])
def test_a_score_is_a_number_from_0_to_1(value: float, score: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "_scores", {})
    monkeypatch.setattr(reasoning, "_ask", lambda question, seconds: value)
    assert reasoning.score("chain_sum", {}, [0, 1, 0], "7") == score


@pytest.mark.parametrize("value", [1.5, -0.1, float("nan"), "None", None])
def test_a_score_that_is_none_is_one_line(value: object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "_scores", {})
    monkeypatch.setattr(reasoning, "_ask", lambda question, seconds: value)
    with pytest.raises(
        RewardFailed, match=r"^reward chain_sum gave .*; the scorer of a task must give a number from 0"
    ):
        reasoning.score("chain_sum", {}, [0, 1, 0], "7")


def test_without_the_package_one_line_names_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reasoning, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"^env=reasoning needs the package reasoning-gym: pip install -c constraints"):
        reasoning.tasks()


def test_a_stop_string_does_not_take_the_end_of_an_answer_away() -> None:
    with pytest.raises(UserError, match=r"^env.stop=</answer>: the scorer does not see a stop string, and looks for"):
        env_reasoning.check_stops(["\n\n", "</answer>"])


def test_a_problem_that_cannot_be_made_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(question: list[object], seconds: float) -> object:
        if question[-1] == 3:
            raise Failed("ValueError: no such board")
        return [f"question {question[3]} {question[-1]}", "1"]

    monkeypatch.setattr(reasoning, "_ask", ask)
    monkeypatch.setattr(reasoning, "TELL", 0.0)
    assert len(reasoning.problems("sudoku", {}, {"train": 3, "test": 1})["train"]) == 3
    assert "sudoku: made 0 of 4 problems; it is slow, and env.train=N asks less" in capsys.readouterr().err
    with pytest.raises(UserError, match=r"^sudoku: problem 3 cannot be made \(ValueError: no such board\); give other"):
        reasoning.problems("sudoku", {}, {"train": 4})


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The words of a run of two tasks."""
    monkeypatch.setattr(loop, "LOGGED", {"control": 1, "text": 1})
    words = (
        "algo=grpo env=reasoning env.rows=2 algo.group=2 algo.minibatches=1 env.train=6 env.validation=2 env.test=2 "
    )
    words += "env.max_tokens=8 policy.model=tiny checkpoint_every=1 evaluations=1 threads=1"
    yield words.split()


@needs
@pytest.mark.slow
def test_a_mixture_of_three_tasks_that_is_killed_is_the_run_that_was_not(
    short: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = [
        *short,
        "iterations=4",
        "env.task=[chain_sum,gcd,spell_backward]",
        "env.task_weights=[2,1,1]",
        "env.curriculum=success",
    ]
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    cut(words, tmp_path / "cut", monkeypatch)
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")
    versions = json.loads((tmp_path / "whole" / "summary.json").read_text())["versions"]
    assert versions["reasoning-gym"] == version("reasoning-gym") and "math-verify" not in versions


@needs
@pytest.mark.parametrize("task", ["chain_sum", "leg_counting", "countdown"])
@pytest.mark.slow
def test_a_task_runs_from_end_to_end(task: str, short: list[str], tmp_path: Path) -> None:
    assert run.main([*short, f"env.task={task}", "iterations=1", f"out={tmp_path}"]) == 0
    assert (
        f'"source": "reasoning-gym: {task} (6 train, 2 validation, 2 test)"' in (tmp_path / "summary.json").read_text()
    )
