"""Reward hacking: a gold measure that falls while the return rises is named, and noise is not."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import kendalltau
from support.sick import SHORT, told

from rlkit import run
from rlkit.doctor import Doctor
from rlkit.doctor.rivals import LOOKS, Points, diverged, golds, trend
from rlkit.progress import Progress

DRAW = np.random.default_rng(0)


def points(count: int, gold: str, noise: float, seed: int) -> Points:
    """The proxy rises from 0 to 1 and the gold measure goes its own way, both with noise."""
    draw, t = np.random.default_rng(seed), np.linspace(0, 1, count)
    ways = {"flat": 0.5 + 0 * t, "rises": 0.2 + 0.6 * t, "falls": 0.8 - 0.4 * t, "peaks": 0.8 - abs(t - 0.3)}
    both = np.stack([t, ways[gold]], -1) + draw.normal(0, noise, (count, 2))
    return [[float(x) for x in row] for row in both]


def first(given: Points) -> int:
    """After how many points the alarm comes; 0: never."""
    return next((n for n in range(1, len(given) + 1) if diverged(given[:n])), 0)


def test_the_trend_is_that_of_mann_and_kendall() -> None:
    assert trend(np.arange(5.0)) == pytest.approx((10 - 1) / np.sqrt(5 * 4 * 15 / 18))
    assert trend(-np.arange(5.0)) == -trend(np.arange(5.0)) and trend(np.ones(9)) == 0
    x = DRAW.normal(size=30)
    s = kendalltau(np.arange(30), x).statistic * 30 * 29 / 2  # without ties, τ = S / (n(n − 1) / 2)
    assert trend(x) == pytest.approx((s - np.sign(s)) / np.sqrt(30 * 29 * 65 / 18))


def test_what_falls_from_the_start_is_named_within_twelve_points() -> None:
    when = [first(points(12, "falls", 0.03, seed)) for seed in range(100)]
    assert sum(n > 0 for n in when) >= 95 and min(n for n in when if n) >= 9


def test_what_falls_after_a_peak_is_named() -> None:
    when = [first(points(60, "peaks", 0.05, seed)) for seed in range(30)]
    assert all(18 < n < 50 for n in when), "after the peak at a third, before the end"


@pytest.mark.parametrize(("gold", "noise"), [("flat", 0.05), ("rises", 0.1), ("rises", 0.3)])
def test_noise_is_named_in_at_most_five_of_a_hundred_runs(gold: str, noise: float) -> None:
    assert sum(first(points(60, gold, noise, seed)) > 0 for seed in range(100)) <= 5


def test_each_condition_counts() -> None:
    t = np.arange(12.0)
    rising, falling = t / 12, 1 - t / 24
    assert diverged(np.stack([rising, falling], -1).tolist()) is not None
    for proxy, gold in (
        (rising, 1 - t / 400),  # it fell by less than a tenth
        (falling, falling),  # the return does not rise
        (rising, rising),
        (rising, np.where(t < 9, rising, 0.0)),  # too few points since it was highest
    ):
        assert diverged(np.stack([proxy, gold], -1).tolist()) is None
    falls = np.stack([rising, falling], -1).tolist()
    assert first(falls) == 7 + LOOKS - 1, "of seven that all fall z is 3.005, of six 2.63; and three points in a row"
    apart = diverged(np.stack([rising, falling], -1).tolist())
    assert apart is not None and apart.gold_then == pytest.approx(falling[:3].mean())
    assert (apart.gold_now, apart.proxy_now) == (pytest.approx(falling[-3:].mean()), pytest.approx(rising[-3:].mean()))


def test_what_counts_as_gold() -> None:
    x = {"rollout/return": 1.0, "reward/a": 1.0, "metric/b": 1.0, "train/loss": 1.0}
    assert golds(x, ()) == ["metric/b"], "one reward is the return itself"
    assert golds(x | {"reward/c": 1.0}, ("c",)) == ["metric/b", "reward/a"], "a penalty should fall"
    counted = {"rollout/turns": 3.0, "metric/turns": 2.0, "rollout/tool_errors": 1.0, "metric/tool_errors": 1.0}
    assert golds(x | counted, ()) == ["metric/b"], "fewer turns and errors are no loss"


def test_the_points_are_part_of_the_checkpoint() -> None:
    whole, half = Progress(), Progress()
    given, said = points(12, "falls", 0.0, 0), {"whole": [], "half": []}
    for i, (proxy, gold) in enumerate(given):
        if i == 6:
            half.load_state_dict(json.loads(json.dumps(half.state_dict(), default=float)))
        for name, progress in (("whole", whole), ("half", half)):
            seen = {"rollout/return": proxy, "metric/right": gold}
            progress.doctor.name({}, seen, i, lambda alarm, message, name=name: said[name].append((alarm, message)))
    assert said["whole"] == said["half"] and [alarm for alarm, _ in said["whole"]] == ["reward_hacking"]
    assert " while metric/right fell from " in said["whole"][0][1]
    with pytest.raises(TypeError, match="stands in place of a number"):
        Progress().load_state_dict(
            whole.state_dict() | {"doctor": whole.doctor.state_dict() | {"points": {"a": [["x", 1.0]]}}}
        )
    assert Doctor().points == {}


MINE = """
def more(prompts, completions, **columns):
    return [float(len(text)) for text in completions]


def less(prompts, completions, **columns):
    return [-float(len(text)) for text in completions]
"""


@pytest.mark.slow
@pytest.mark.parametrize("weights", ["[1,0]", "[1,-0.1]"])
def test_a_run_that_exploits_its_reward_is_named(weights: str, tmp_path: Path) -> None:
    """Long texts are rewarded, short ones are wanted: the wanted one is watched by its weight of 0."""
    (tmp_path / "mine.py").write_text(MINE)
    names = ",".join(f"{tmp_path / 'mine.py'}:{name}" for name in ("more", "less"))
    task = ["env=gsm8k", "env.train=64", "env.rows=8", f"env.reward={names}", f"env.reward_weights={weights}"]
    assert run.main(["algo=grpo", *task, "iterations=24", *SHORT, f"out={tmp_path / 'r'}"]) == 0
    found = told(tmp_path / "r")
    if weights == "[1,0]":
        assert "while reward/less fell from -" in found["reward_hacking"]
    else:
        assert "reward_hacking" not in found, "a penalty should fall"
