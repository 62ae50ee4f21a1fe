"""Mixtures: which task is drawn, what its success changes, and that a copy goes on where the first one was."""

import json
from collections import Counter
from math import inf, nan
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.parrot import Parrot

from rlkit.api import UserError
from rlkit.settings import plugins
from rlkit.text import TextEnv, mixture
from rlkit.text.mixture import Mixture

KINDS = ["b", "a", "b", "b", "a"]
WEIGHTS = {"a": 2.0, "b": 1.0}
UNUSABLE = "the weights of a mixture are finite numbers of at least 0, one of them above it"


def fixed(monkeypatch: pytest.MonkeyPatch, *numbers: float) -> None:
    """Let place i of the stream draw number i."""
    monkeypatch.setattr(
        mixture, "numpy_generator", lambda seed, name, place: SimpleNamespace(random=lambda: numbers[place])
    )


def test_the_chances_of_tasks_are_their_weights_or_how_many_problems_they_have() -> None:
    assert Mixture(KINDS, 0, WEIGHTS).chances() == {"a": 2 / 3, "b": 1 / 3}
    assert Mixture(KINDS, 0, {}).chances() == {"a": 2 / 5, "b": 3 / 5}
    assert Mixture(KINDS, 0, {"b": 1.0}).chances() == {"a": 0.0, "b": 1.0}


def test_a_number_below_the_chance_of_the_first_task_draws_it(monkeypatch: pytest.MonkeyPatch) -> None:
    found = Mixture(KINDS, 0, WEIGHTS)
    fixed(monkeypatch, 0.1, 0.7, 0.66, 0.999, 0.0)  # the chance of a is 0.667
    assert [KINDS[index] for index in found.take(5)] == ["a", "b", "a", "b", "a"]


def test_a_task_that_is_never_drawn_stays_so() -> None:
    assert {KINDS[index] for index in Mixture(KINDS, 0, {"b": 1.0}).take(50)} == {"b"}


def test_tasks_are_drawn_by_their_weights_and_problems_once_an_epoch() -> None:
    found = Mixture(KINDS * 10, 3, WEIGHTS)
    drawn = found.take(3000)
    assert abs(sum(KINDS[index % 5] == "a" for index in drawn) / 3000 - 2 / 3) < 0.03, "3.5 standard deviations"
    times = Counter(index for index in drawn if KINDS[index % 5] == "a")
    assert len(times) == 20 and max(times.values()) - min(times.values()) <= 1


def test_draws_do_not_depend_on_how_many_are_taken_at_a_time() -> None:
    one, other = Mixture(KINDS, 5, WEIGHTS), Mixture(KINDS, 5, WEIGHTS)
    assert one.take(12) == [index for _ in range(4) for index in other.take(3)]
    assert one.take(12) != Mixture(KINDS, 6, WEIGHTS).take(24)[12:]


def test_success_moves_by_a_tenth_and_changes_the_chances() -> None:
    found = Mixture(KINDS, 0, {"a": 1.0, "b": 1.0}, "success")
    assert found.chances() == {"a": 0.5, "b": 0.5}, "nothing is known"
    notes = found.learn(["a", "a", "b"], [1.0, 0.5, 7.0])
    assert found.success == pytest.approx({"a": 0.525, "b": 0.55}), "0.5 + 0.1 (0.75 - 0.5); 7 counts as 1"
    a, b = 4 * 0.525 * 0.475 + 0.1, 4 * 0.55 * 0.45 + 0.1
    assert found.chances() == pytest.approx({"a": a / (a + b), "b": b / (a + b)})
    assert notes["a/drawn"] == [1, 1, 0] and notes["b/drawn"] == [0, 0, 1]
    assert notes["a/success"] == [found.success["a"]] * 3


def test_what_is_solved_or_hopeless_is_drawn_at_the_floor() -> None:
    found = Mixture(KINDS, 0, {"a": 1.0, "b": 1.0}, "success")
    for low in (1.0, 0.0):
        found.success = {"a": low, "b": 0.5}
        assert found.chances() == pytest.approx({"a": 0.1 / 1.2, "b": 1.1 / 1.2})


def test_without_a_curriculum_success_is_measured_and_changes_nothing() -> None:
    found = Mixture(KINDS, 0, WEIGHTS)
    found.learn(["a"], [1.0])
    assert found.success["a"] == pytest.approx(0.55) and found.chances() == {"a": 2 / 3, "b": 1 / 3}


def test_the_score_counts_whatever_rewards_are_called() -> None:
    found = Mixture(KINDS, 0, WEIGHTS)
    found.learn(["a", "b"], [1.0, 0.0])
    assert found.success == pytest.approx({"a": 0.55, "b": 0.45})


def test_a_task_that_is_new_begins_where_the_others_began() -> None:
    one, other = Mixture(["a", "b"], 5, {}, "success"), Mixture(["a", "b", "c"], 5, {}, "success")
    one.take(4)
    one.learn(["a"], [1.0])
    other.load_state_dict(one.state_dict())
    assert other.success == {**one.success, "c": 0.5} and other.drawn == one.drawn


@pytest.mark.parametrize(
    "damaged",
    [
        {"drawn": -5},
        {"drawn": 1.0},
        {"next": {"a": -1, "b": 0}},
        *({"success": {"a": x, "b": 0.5}} for x in (nan, inf, -3.0, 5.0, 1)),
    ],
    ids=str,
)
def test_a_state_that_no_mixture_has_is_refused(damaged: dict[str, object]) -> None:
    found = Mixture(["a", "b"], 0, {}, "success")
    with pytest.raises(TypeError):
        found.load_state_dict({**found.state_dict(), **damaged})


def test_a_copy_goes_on_where_the_first_one_was() -> None:
    one, other = (Mixture(KINDS, 5, WEIGHTS, "success") for _ in range(2))
    for _ in range(3):
        one.learn([KINDS[index] for index in one.take(4)], [1.0, 0.2, 0.0, 0.4])
    other.load_state_dict(json.loads(json.dumps(one.state_dict())))
    assert other.state_dict() == one.state_dict() and one.take(20) == other.take(20)


@pytest.mark.parametrize(
    ("kinds", "weights", "line"),
    [
        (["a", "a"], {}, "a mixture needs several kinds of problems, and here is one: a"),
        (
            ["a", ""],
            {},
            "a mixture needs the 'kind' of every row, a text or a number: one has none, or another value",
        ),
        (["a", "b"], {"c": 1.0}, "a weight is given for 'c', of which no problem is; there are: a, b"),
        (["a", "b"], {"a": -1.0, "b": 1.0}, UNUSABLE),
        *((["a", "b"], {"a": x, "b": x}, UNUSABLE) for x in (-1.0, 0.0, nan, inf, 1e308, 5e-324)),
        (["a", "b"], {"a": nan, "b": 1.0}, UNUSABLE),
    ],
)
def test_what_cannot_be_mixed_is_one_line(kinds: list[str], weights: dict[str, float], line: str) -> None:
    with pytest.raises(UserError) as error:
        Mixture(kinds, 0, weights)
    assert str(error.value) == line


def made(folder: Path, **settings: object) -> TextEnv:
    rows = [{"prompt": f"{kind} {n}", "answer": "1", "kind": kind} for n in range(60) for kind in ("easy", "hard")]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    text = plugins.load("envs", "text")
    return text.make(text.Config(source=str(folder / "rows.jsonl"), rows=8, **settings), 0, "cpu")


def test_rows_of_ones_own_are_mixed_by_their_kind(tmp_path: Path) -> None:
    env = made(tmp_path, kind_weights={"easy": 3.0, "hard": 1.0}, curriculum="success")
    solves = Parrot(lambda prompt, attempt: "1" if prompt.startswith("easy") else "0")
    shares = []
    for _ in range(60):
        batch = env.rollout(solves, repeats=2)
        kinds = [env.problems["train"][index].kind for index in batch["problem"][:, 0].tolist()]
        assert batch["rollout/easy/drawn"].tolist() == [[float(kind == "easy")] * 2 for kind in kinds]
        shares.append(float(batch["rollout/easy/drawn"].mean()))
    assert env.mixture is not None and env.mixture.success["easy"] > 0.99 and env.mixture.success["hard"] < 0.01
    assert abs(sum(shares) / len(shares) - 0.75) < 0.07, "both are at the floor, so that the weights decide"
    copy = made(tmp_path, kind_weights={"easy": 3.0, "hard": 1.0}, curriculum="success")
    copy.load_state_dict(env.state_dict())
    again = [made.rollout(solves)["problem"].tolist() for made in (env, copy)]
    assert again[0] == again[1]


def test_examples_that_leave_no_problem_are_named_before_the_mixture(tmp_path: Path) -> None:
    rows = [{"prompt": f"{i} + 1?\n", "answer": i + 1, "kind": "ab"[i % 2]} for i in range(6)]
    (tmp_path / "sums.jsonl").write_text("\n".join(map(json.dumps, rows)))
    text = plugins.load("envs", "text")
    config = text.Config(source=str(tmp_path / "sums.jsonl"), shots=6, kind_weights={"a": 1.0, "b": 3.0})
    with pytest.raises(UserError, match="no problem is left to train on"):
        text.make(config, 0, "cpu")
