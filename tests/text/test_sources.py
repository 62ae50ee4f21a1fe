"""Problems from files and from the hub: every row, held-out splits, and bad input named by line."""

import hashlib
import re
import sys

import pytest
from support.texts import write

from rlkit.api import UserError
from rlkit.settings import plugins
from rlkit.text.sources import hold_out

gsm8k = plugins.load("envs", "gsm8k")


def questions(count, start=0):
    return [{"question": f"{n} + 1?", "answer": f"#### {n + 1}", "level": n % 3} for n in range(start, start + count)]


def sizes(config):
    problems, _ = gsm8k.load(config)
    return [len(problems[split]) for split in ("train", "validation", "test")]


def test_a_file_without_a_sibling_holds_out_a_tenth_for_each_split(tmp_path):
    source = write(tmp_path / "mine.jsonl", questions(100))
    assert sizes(gsm8k.Config(source=source)) == [80, 10, 10]
    assert sizes(gsm8k.Config(source=source, validation=0, test=5)) == [95, 0, 5]
    problems, described = gsm8k.load(gsm8k.Config(source=source))
    assert len({problem.question for rows in problems.values() for problem in rows}) == 100
    assert described == "mine.jsonl (80 train, 10 validation, 10 test)"
    assert problems["train"][0].columns.keys() == {"level"}


def test_a_test_file_beside_it_is_the_test_split_and_every_row_can_be_trained_on(tmp_path):
    source = write(tmp_path / "train.jsonl", questions(100))
    write(tmp_path / "test.jsonl", questions(7, 1000))
    assert sizes(gsm8k.Config(source=source)) == [90, 10, 7]
    assert sizes(gsm8k.Config(source=source, validation=0)) == [100, 0, 7]


def test_what_is_not_read_of_the_files_of_a_dataset_is_said(tmp_path, capsys):
    source = write(tmp_path / "train.jsonl", questions(20))
    write(tmp_path / "test.jsonl", questions(7, 1000))
    write(tmp_path / "validation.jsonl", questions(5, 2000))
    _, described = gsm8k.load(gsm8k.Config(source=source, test=4))
    assert described == "train.jsonl and test.jsonl (18 train, 2 validation, 4 of 7 test)"
    told = "train.jsonl: validation.jsonl beside it is not read; the validation split is held out of train.jsonl\n"
    assert capsys.readouterr().err == told
    gsm8k.load(gsm8k.Config(source=source, validation=0))
    assert not capsys.readouterr().err


def test_a_column_that_a_prompt_seems_to_ask_for_is_named_here_too(tmp_path, capsys):
    source = write(tmp_path / "mine.jsonl", questions(20))
    gsm8k.make(gsm8k.Config(source=source, prompt="{question} ({level}) {answer}"), 0, "cpu")
    told = "env.prompt has {level}, which stays as it is: only {question} is filled in, no column\n"
    assert capsys.readouterr().err == told


def test_equal_questions_are_never_split(tmp_path):
    source = write(tmp_path / "mine.jsonl", questions(50) * 2)
    problems, _ = gsm8k.load(gsm8k.Config(source=source))
    assert not {p.question for p in problems["train"]} & {p.question for p in problems["test"] + problems["validation"]}


def test_rows_count_where_questions_repeat_and_equal_ones_are_held_out_together(tmp_path):
    """100 questions with 4 answers each: a tenth of the 400 rows at most, not 40 questions."""
    source = write(tmp_path / "mine.jsonl", questions(100) * 4)
    assert sizes(gsm8k.Config(source=source)) == [320, 40, 40]
    assert sizes(gsm8k.Config(source=source, validation=0, test=6)) == [396, 0, 4]
    assert sizes(gsm8k.Config(source=source, validation=1, test=3)) == [392, 4, 4]  # one question at least
    many = write(tmp_path / "many.jsonl", questions(5) * 20)
    assert sizes(gsm8k.Config(source=many)) == [60, 20, 20]


def test_a_question_of_too_many_rows_is_passed_over(tmp_path):
    """Which of the questions has the smallest hash does not matter."""
    for often in range(20):
        rows = questions(20) + questions(1, often) * 50
        assert sizes(gsm8k.Config(source=write(tmp_path / f"{often}.jsonl", rows))) == [56, 7, 7]


def test_without_repeats_the_splits_are_those_with_the_smallest_hashes():
    """As in every version before: a run that goes on finds what it held out."""
    texts = [f"{n} + 1?" for n in range(50)]
    ordered = sorted(texts, key=lambda text: hashlib.blake2b(text.encode(), digest_size=8).digest())
    found = dict(zip(texts, hold_out(texts, {"test": 5, "validation": 3, "more": 0}), strict=True))
    assert [found[text] for text in ordered] == ["test"] * 5 + ["validation"] * 3 + ["train"] * 42


GOOD = '{"question": "q", "answer": "#### 1"}\n'


@pytest.mark.parametrize(
    "text, words",
    [
        ("", "the file is empty"),
        ("\n\n", "the file is empty"),
        (GOOD + "{broken\n", r"data.jsonl:2: broken JSON"),
        (GOOD + "\n[1, 2]\n", r"data.jsonl:3: a JSON list"),
        (GOOD + '{"x": ' + "[" * 100 + "]" * 100 + "}", r"data.jsonl:2: broken JSON \(it is nested more than 100 deep"),
        (GOOD + '{"answer": "#### 1"}', r"data.jsonl:2: 'question' is missing"),
        (GOOD + '{"question": "q"}', r"data.jsonl:2: 'answer' is missing"),
        (GOOD + '{"question": "q", "answer": null}', r"data.jsonl:2: 'answer' is null"),
        (GOOD + '{"question": "  ", "answer": "#### 1"}', r"data.jsonl:2: 'question' is"),
        (GOOD + '{"question": "q", "answer": "it is 5"}', r"data.jsonl:2: the answer gives no number after '####'"),
        (
            GOOD + '{"question": "q", "answer": "it is 5 ####"}',
            r"data.jsonl:2: the answer gives no number after '####'",
        ),
    ],
)
def test_a_bad_file_is_named_with_its_line(tmp_path, text, words):
    path = tmp_path / "data.jsonl"
    path.write_text(text)
    with pytest.raises(UserError, match=words) as error:
        gsm8k.load(gsm8k.Config(source=str(path)))
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    "source, words",
    [("none.jsonl", "no such file"), ("embeded", "is not a source"), (".", "is a folder"), ("", "is not a source")],
)
def test_a_source_that_is_none_is_one_line(source, words):
    with pytest.raises(UserError, match=words):
        gsm8k.load(gsm8k.Config(source=source))


def test_bytes_that_are_not_text_are_refused(tmp_path):
    (tmp_path / "data.jsonl").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UserError, match="UTF-8"):
        gsm8k.load(gsm8k.Config(source=str(tmp_path / "data.jsonl")))


class Hub:
    """Stands in for the library `datasets`."""

    def get_dataset_config_names(self, name):
        return ["socratic", "main"]

    def load_dataset(self, name, configuration):
        assert configuration == "main"
        return {"train": questions(30), "test": questions(5, 100)}


def test_a_hub_dataset_is_read_like_a_file(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", Hub())
    assert sizes(gsm8k.Config(source="openai/gsm8k")) == [27, 3, 5]


@pytest.mark.parametrize(
    ("names", "chosen", "said"),
    [
        (["socratic", "main"], "main", "hub dataset a/b, configuration main of 2 ("),
        (["algebra", "geometry"], "algebra", "hub dataset a/b, configuration algebra of 2 ("),
        (["default"], "default", "hub dataset a/b ("),
    ],
)
def test_of_several_configurations_of_a_hub_dataset_the_read_one_is_named(monkeypatch, names, chosen, said):
    class Several(Hub):
        def get_dataset_config_names(self, name):
            return names

        def load_dataset(self, name, configuration):
            assert configuration == chosen
            return super().load_dataset(name, "main")

    monkeypatch.setitem(sys.modules, "datasets", Several())
    assert gsm8k.load(gsm8k.Config(source="a/b"))[1].startswith(said)


def test_other_splits_of_a_hub_dataset_are_not_read(monkeypatch):
    class Wide(Hub):
        def load_dataset(self, name, configuration):
            return {**super().load_dataset(name, configuration), "unlabelled": [{"question": "2 + 3?"}]}

    monkeypatch.setitem(sys.modules, "datasets", Wide())
    assert sizes(gsm8k.Config(source="a/b")) == [27, 3, 5]


@pytest.mark.parametrize("source", ["data/mine", "mine", "./data/mine", "~/mine"])
def test_a_folder_is_never_read_as_a_hub_dataset(tmp_path, monkeypatch, source):
    class Asked(Hub):
        def get_dataset_config_names(self, name):
            raise AssertionError("the library was asked")

    monkeypatch.setitem(sys.modules, "datasets", Asked())
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for folder in ("data/mine", "mine"):
        (tmp_path / folder).mkdir(parents=True)
        write(tmp_path / folder / "train.jsonl", questions(30))
    said = f"env.source={source} is a folder here: give its file of problems, as in env.source={source}/train.jsonl"
    with pytest.raises(UserError, match=f"^{re.escape(said)}$"):
        gsm8k.load(gsm8k.Config(source=source))
    assert sizes(gsm8k.Config(source=f"{source}/train.jsonl")) == [24, 3, 3]


def test_without_the_package_or_without_a_connection_the_error_says_what_to_do(monkeypatch):
    def offline(name):
        raise ConnectionError("no route\nto host")

    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UserError, match="pip install datasets"):
        gsm8k.load(gsm8k.Config(source="openai/gsm8k"))
    hub = Hub()
    hub.get_dataset_config_names = offline
    monkeypatch.setitem(sys.modules, "datasets", hub)
    with pytest.raises(UserError, match=r"ConnectionError: no route.*env.source=PATH.jsonl") as error:
        gsm8k.load(gsm8k.Config(source="openai/gsm8k"))
    assert "\n" not in str(error.value)


def test_questions_that_are_trained_on_and_measured_are_counted(tmp_path, capsys):
    source = write(tmp_path / "train.jsonl", questions(15))
    write(tmp_path / "test.jsonl", questions(8, start=12))
    gsm8k.load(gsm8k.Config(source=source))
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and ": 3 of 8 test questions are in the train split, too, so test measures " in told
    write(tmp_path / "test.jsonl", questions(8, start=15))
    gsm8k.load(gsm8k.Config(source=source))
    assert not capsys.readouterr().err


def test_questions_that_are_measured_several_times_are_counted(tmp_path, capsys):
    """One question in 20 rows had the interval of 20 problems, and a paired test of 20."""
    source = write(tmp_path / "train.jsonl", questions(20))
    write(tmp_path / "test.jsonl", [*questions(8, start=20), *questions(1, start=20)])
    gsm8k.load(gsm8k.Config(source=source))
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and ": 9 test rows hold 8 different questions, and each row counts as " in told
    write(tmp_path / "test.jsonl", [*questions(9, start=20), *questions(1, start=20)])
    gsm8k.load(gsm8k.Config(source=source))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("taken", ["prompts", "completions"])
def test_a_column_with_the_name_of_what_rewards_are_given_is_refused(tmp_path, taken):
    source = write(tmp_path / "t.jsonl", [{**questions(1)[0], taken: "x"}])
    with pytest.raises(UserError, match=f"t.jsonl:1: {taken}: rewards take an argument of that name; rename"):
        gsm8k.load(gsm8k.Config(source=source))
