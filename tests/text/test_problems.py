"""The embedded problems: right, deterministic, and held out by numbers."""

import re
from collections import Counter

import pytest

from rlkit.text import score
from rlkit.text.problems import KINDS, Problem, bare, demonstrations, embedded, is_direct, key_of, make, split_of
from rlkit.text.templates import HEAD, RARE, Draw

DATA = embedded()
ALL = [problem for problems in DATA.values() for problem in problems]
STEP = re.compile(r"<<(\d+)([-+*/])(\d+)=(\d+)>>(\d+)")
APPLY = {"+": int.__add__, "-": int.__sub__, "*": int.__mul__, "/": int.__truediv__}

FIRST_TEST = Problem(
    "Omar is 18 years old. Mia is 16 years older than Omar. How old was Mia 7 years ago?",
    "Mia is <<18+16=34>>34 years old.\nMia was <<34-7=27>>27 years old.\n#### 27",
    "age",
)
LAST_TRAIN = "Tom has 11 pens. Omar has 3 times as many pens as Tom. How many pens do they have together?"


def test_the_default_data_has_gsm8k_sizes():
    assert {split: len(problems) for split, problems in DATA.items()} == {
        "train": 7473,
        "validation": 512,
        "test": 1319,
    }


def test_no_two_splits_share_a_kind_with_the_same_numbers():
    keys = {split: {key_of(problem) for problem in problems} for split, problems in DATA.items()}
    assert not keys["train"] & keys["test"]
    assert not keys["train"] & keys["validation"]
    assert not keys["validation"] & keys["test"]
    assert {split_of(problem) for problem in demonstrations()} == {"train"}


def test_a_split_depends_on_the_numbers_and_not_on_the_words():
    one = Problem("Mia has 7 pens. Mia buys 5 more. How many pens does Mia have now?", "#### 12", "chain")
    other = Problem("Leo has 7 cups. Leo finds 5 more. How many cups does Leo have now?", "#### 12", "chain")
    assert split_of(one) == split_of(other)


def test_the_hash_sends_a_tenth_to_test_and_a_tenth_to_validation():
    draw = Draw(0)
    found = Counter(
        split_of(problem) for problem in {key_of(p): p for p in (make("items", draw) for _ in range(6000))}.values()
    )
    total = sum(found.values())
    assert found["test"] / total == pytest.approx(0.1, abs=0.02)
    assert found["validation"] / total == pytest.approx(0.1, abs=0.02)


def test_the_same_seed_gives_the_same_problems_and_another_seed_gives_others():
    again, other = embedded(train=50, validation=0, test=0), embedded(seed=1, train=50, validation=0, test=0)
    assert again["train"] == DATA["train"][:50]
    assert other["train"] != DATA["train"][:50]


def test_the_default_data_never_changes():
    assert DATA["test"][0] == FIRST_TEST
    assert DATA["train"][-1].question == LAST_TRAIN


def test_every_annotation_is_true_and_the_last_one_is_the_answer():
    for problem in ALL:
        steps = STEP.findall(problem.answer)
        assert 1 <= len(steps) <= 3
        for left, sign, right, value, shown in steps:
            assert APPLY[sign](int(left), int(right)) == int(value) == int(shown) > 0, problem
        assert bare(problem) == f"#### {steps[-1][-1]}"


def test_every_step_uses_only_numbers_of_the_question_or_of_earlier_steps():
    for problem in ALL:
        known = set(re.findall(r"\d+", problem.question))
        for left, _, right, value, _ in STEP.findall(problem.answer):
            assert {left, right} <= known, problem
            known.add(value)


def test_every_gold_answer_scores_one_and_the_next_number_scores_zero():
    for problem in ALL:
        answer = int(bare(problem)[5:])
        assert score(problem.answer, problem.answer) == 1.0
        assert score(bare(problem), problem.answer) == 1.0
        assert score(f"#### {answer + 1}", problem.answer) == 0.0


def test_questions_are_short_and_say_what_is_one_in_the_singular_nowhere():
    lengths = [len(problem.question.split()) for problem in ALL]
    assert min(lengths) >= 12 and max(lengths) <= 30
    assert not [p for p in ALL if re.search(r"(?<!\d)1 [a-z]+s\b", p.question)]


def test_chains_are_three_times_as_frequent_as_other_head_kinds_and_rare_kinds_have_their_share():
    kinds = Counter(problem.kind for problem in DATA["train"])
    assert set(kinds) == set(KINDS) and len(HEAD) == 6 and len(RARE) == 7
    assert sum(kinds[kind] for kind in RARE) / 7473 == pytest.approx(0.46, abs=0.02)
    for kind in set(HEAD) - {"chain"}:
        assert kinds["chain"] / kinds[kind] == pytest.approx(3.0, abs=0.5)
    for kind in RARE:
        assert kinds[kind] / 7473 == pytest.approx(0.46 / 7, abs=0.01)


@pytest.mark.parametrize("rare, expected", [(0.0, set(HEAD)), (1.0, set(RARE))])
def test_the_rare_share_may_be_none_or_all(rare, expected):
    kinds = {problem.kind for problem in embedded(train=400, validation=0, test=0, rare=rare)["train"]}
    assert kinds == expected


def test_demonstrations_hold_few_different_problems_of_each_rare_kind_each_repeated():
    shown = demonstrations(head=500, rare=10, repeat=30)
    counts = Counter(problem.kind for problem in shown)
    assert sum(counts[kind] for kind in HEAD) == 500
    for kind in RARE:
        assert counts[kind] == 300
        assert len({key_of(problem) for problem in shown if problem.kind == kind}) == 10
    assert shown == demonstrations(head=500, rare=10, repeat=30)


@pytest.mark.slow
def test_the_arithmetic_of_rare_kinds_is_mostly_seen_in_head_demonstrations():
    def operations(problems):
        return [step[:3] for problem in problems for step in STEP.findall(problem.answer)]

    seen = set(operations(problem for problem in demonstrations() if problem.kind in HEAD))
    needed = operations(problem for problem in DATA["test"] if problem.kind in RARE)
    assert sum(operation in seen for operation in needed) / len(needed) > 0.9


def test_direct_answers_are_a_pure_function_of_seed_index_and_share():
    problem = DATA["train"][0]
    first = [is_direct(problem, 3, index, 0.5) for index in range(50)]
    assert first == [is_direct(problem, 3, index, 0.5) for index in range(50)]
    assert first != [is_direct(problem, 4, index, 0.5) for index in range(50)]


def test_common_kinds_meet_the_share_and_rare_ones_keep_their_working():
    assert not any(is_direct(problem, 0, index, 0.0) for index, problem in enumerate(ALL[:500]))
    for kind, share in (("times", 0.6), ("days", 0.0)):
        drawn = sum(is_direct(Problem("", "", kind), 0, index, 0.6) for index in range(4000)) / 4000
        assert drawn == pytest.approx(share, abs=0.03)
