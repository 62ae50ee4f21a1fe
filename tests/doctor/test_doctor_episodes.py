"""Checks of the score where episodes are longer than what lies between two looks."""

from support.sick import name

from rlkit.doctor import Doctor

START = [{"train/entropy": 0.7, "rollout/return": 20.0}, {"train/entropy": 0.1, "rollout/return": 300.0}]


def test_a_policy_that_explores_no_more_is_named_where_few_looks_have_a_score() -> None:
    silent = {"train/entropy": 0.001}
    lost, learned = (silent | {"rollout/return": score} for score in (9.0, 480.0))
    assert name(Doctor(), START + [lost, silent, silent] * 2) == [], "two scores are not enough"
    assert name(Doctor(), START + [lost, silent, silent] * 3) == ["entropy"]
    assert name(Doctor(), START + [silent] * 9) == [], "of these nobody knows what was learned"
    assert name(Doctor(), START + [lost, silent, learned, silent] * 5) == []
