"""Where a search looks: ranges of fields and of the command line, and what is refused."""

from dataclasses import make_dataclass
from pathlib import Path
from typing import Annotated

import pytest

from rlkit.api import Choose, Search
from rlkit.errors import UserError
from rlkit.settings import plugins
from rlkit.tuning.problem import Problem, parse
from rlkit.tuning.space import Among, Between, asked, declared

TABLE = ["algo=q_learning", "env=gridworld", "iterations=3"]
PPO = ["algo=ppo", "env=cartpole", "env_steps=1000"]
TUNED = {
    "ppo": "cartpole",
    "dqn": "cartpole",
    "a2c": "cartpole",
    "reinforce": "cartpole",
    "sac": "pendulum",
    "td3": "pendulum",
}


def problem(*words: str) -> Problem:
    return Problem(*parse(words))


@pytest.mark.parametrize("algo", TUNED)
@pytest.mark.slow
def test_what_people_tune_declares_ranges_that_hold_the_default_and_can_be_run(algo: str) -> None:
    found = problem(f"algo={algo}", f"env={TUNED[algo]}", "env_steps=1000")
    assert {"algo.lr", "algo.gamma", "policy.hidden"} <= found.space.keys() and len(found.space) >= 5
    for key, where in found.space.items():
        assert where.value(found.default(key)) is not None, key
        ends = where.values if isinstance(where, Among) else map(where.text, (where.low, where.high))
        for text in ends:
            found.checked(found.active({key: text}))


def test_an_algorithm_of_ones_own_has_the_usual_ranges_and_its_own(tmp_path: Path) -> None:
    text = (Path(plugins.load("algorithms", "q_learning").__file__ or "")).read_text()
    text = text.replace("from .", "from rlkit.algorithms.").replace(
        "import Algorithm", "import Algorithm, Choose, Search"
    )
    text = text.replace("class Config(policies.StepSize):", "class Config(policies.StepSize):\n    lr: float = 0.5\n")
    text = text.replace("initial: float", "initial: Annotated[float, Search(-1, 1)]").replace(
        "from dataclasses", "from typing import Annotated\nfrom dataclasses"
    )
    (tmp_path / "mine.py").write_text(text)
    found = problem(f"algo={tmp_path / 'mine.py'}", "env=gridworld", "iterations=3")
    assert found.space["algo.lr"] == Between(1e-5, 0.5, log=True)  # as far as the default
    assert found.space["algo.initial"] == Between(-1, 1) and "algo.gamma" in found.space
    assert found.out() == Path("tunings/mine-gridworld")


@pytest.mark.parametrize(
    ("mark", "said"),
    [
        (Search(0, 1, log=True), r"Search\(0, 1, log=True\) in its type is not a range"),
        (Search(1, 0.5), r"Search\(1, 0.5\) in its type is not a range"),
        (Search(0, float("inf")), r"Search\(0, inf\) in its type is not a range"),
        (Search("0", 1), r"Search\(0, 1\) in its type is not a range"),  # type: ignore[arg-type]
    ],
)
def test_a_declared_range_that_is_none_is_refused(mark: Search, said: str) -> None:
    mine = make_dataclass("Config", [("x", Annotated[float, mark], 0.5)])
    with pytest.raises(UserError, match=rf"algo\.x: {said}"):
        declared({"algo": mine}, {"algo": {"x": 0.5}})


def test_a_text_that_a_comma_would_part_is_refused() -> None:
    """The comparison on fresh seeds would measure x and y as two settings, in place of the one that was found."""
    mine = make_dataclass("Config", [("x", Annotated[str, Choose("x,y", "z")], "z")])
    with pytest.raises(UserError, match=r"algo\.x=x,y is a text with a comma, which would be two values"):
        declared({"algo": mine}, {"algo": {"x": "z"}})
    pairs = make_dataclass("Config", [("x", Annotated[tuple[int, ...], Choose((1, 2), (3,))], (3,))])
    assert declared({"algo": pairs}, {"algo": {"x": (3,)}}) == {"algo.x": Among(("1,2", "3"))}


def test_one_value_is_not_searched() -> None:
    mine = make_dataclass(
        "Config", [("x", Annotated[float, Choose(0.5)], 0.5), ("y", Annotated[float, Choose(1)], 0.5)]
    )
    assert declared({"algo": mine}, {"algo": {"x": 0.5, "y": 0.5}}) == {"algo.y": Among(("1", "0.5"))}


@pytest.mark.parametrize(
    ("text", "range_"),
    [
        ("1e-4..1e-2", Between(1e-4, 1e-2, log=True)),  # as the declared one
        ("1e-4..1e-2:linear", Between(1e-4, 1e-2)),
        ("0.001 .. 0.1:log", Between(0.001, 0.1, log=True)),
        ("1e-3,3e-3", Among(("0.001", "0.003"))),
        ("1e-3", None),
    ],
)
def test_a_range_of_the_command_line(text: str, range_: object) -> None:
    declared = {"algo.lr": Between(1e-5, 1e-2, log=True)}
    assert asked("algo.lr", text, "ppo", "cartpole", declared) == range_


def test_ranges_of_other_fields() -> None:
    assert asked("algo.epochs", "2..8", "ppo", "cartpole", {}) == Between(2, 8, whole=True)
    assert asked("policy.hidden", "64,64", "ppo", "cartpole", {}) is None
    assert asked("policy.hidden", "64,64;32", "ppo", "cartpole", {}) == Among(("64,64", "32"))
    assert asked("algo.preset", "none,trl", "grpo", "cartpole", {}) is None  # several fields: one value
    assert asked("env.rows", "4,8", "ppo", "cartpole", {}) == Among(("4", "8"))
    assert asked("algo.gamma", "0.9..0.99", "ppo", "cartpole", {}) == Between(0.9, 0.99)


def test_numbers_of_a_trial_are_short_and_stay_inside() -> None:
    found = Between(0.00012344, 0.1, log=True)
    assert found.text(0.00012344001) == "0.00012344" and found.text(0.0123456) == "0.01235"
    assert Between(1, 9, whole=True).text(4) == "4" and Between(1, 9, whole=True).value("10") is None
    assert Between(0, 1).value("none") is None and found.value("0.01") == 0.01
    assert str(found) == "0.00012344..0.1:log" and str(Among(("64,64", "32"))) == "64,64;32"


def test_numbers_of_a_narrow_range_have_as_many_digits_as_tell_them_apart() -> None:
    found = Between(0.999, 0.99999)
    assert found.text(0.99951234) == "0.9995123" and found.text(0.99999) == "0.99999"
    assert Between(100_000.0, 100_100.0).text(100_049.26) == "100049.3"


def test_what_has_a_value_is_not_searched_and_search_picks() -> None:
    found = problem(*PPO, "algo.gamma=0.9", "algo.lr=1e-4..1e-3", "policy.hidden=32;16")
    assert "algo.gamma" not in found.space and found.fixed["algo.gamma"] == "0.9"
    assert found.space["algo.lr"] == Between(1e-4, 1e-3, log=True) and found.space["policy.hidden"] == Among(
        ("32", "16")
    )
    picked = problem(*PPO, "search=algo.lr,algo.clip", "algo.value_coef=0.1..1")
    assert list(picked.space) == ["algo.lr", "algo.clip", "algo.value_coef"]


@pytest.mark.slow
def test_what_can_do_nothing_is_not_searched() -> None:
    table = problem("algo=a2c", "env=gridworld", "iterations=3")
    assert "policy.normalize" not in table.space  # cells have no mean
    assert "algo.sync_every" not in problem("algo=dqn", "env=cartpole", "env_steps=1000").space  # its YAML has tau
    assert "algo.sync_every" in problem("algo=dqn", "env=cartpole", "env_steps=1000", "algo.tau=none").space
    found = problem("algo=a2c", "env=cartpole", "env_steps=1000")
    assert found.active({"algo.advantage": "mc", "algo.gae_lambda": "0.9"}) == {"algo.advantage": "mc"}
    both = {"algo.advantage": "gae", "algo.gae_lambda": "0.9"}
    assert found.active(both) == both
    assert found.active({"env.rows": "4", **both}) == {"env.rows": "4", **both}
    once = {"algo.epochs": "1", "algo.minibatches": "1", "algo.clip": "0.3"}
    assert problem(*PPO).active(once) == {key: once[key] for key in ("algo.epochs", "algo.minibatches")}


BAD = {
    "not a range": (
        ["algo.lr=1e-2..1e-4"],
        r"algo\.lr=1e-2\.\.1e-4 is not a range: give LOW\.\.HIGH, with LOW below HIGH",
    ),
    "outside of the field": (["algo.gamma=0.9..1.5"], r"algo\.gamma=1\.5 is not allowed: give a number from 0 to 1"),
    "no logarithm": (["algo.lr=0..1"], r"algo\.lr=0 is not allowed"),
    "no logarithm of 0": (["algo.gamma=0..1:log"], r"has no logarithm at its lower end: begin above 0, or give"),
    "a word": (["algo.schedule=1..2"], r"algo\.schedule=1\.\.2 is not allowed: give one of: constant, linear"),
    "a length": (["iterations=none", "env_steps=100,200"], r"what is searched are algo\.KEY, policy\.KEY"),
    "the problem": (["env.slip=0,0.5"], r"what is searched are algo\.KEY, policy\.KEY"),
    "a key below a key": (["algo.lr.x=1..2"], r"what is searched are algo\.KEY, policy\.KEY"),
    "one below a tuple": (["policy.hidden.x=1;2"], r"what is searched are algo\.KEY, policy\.KEY"),
    "a billion runs": (["runs=1000000000"], "runs=1000000000 is not allowed: give a whole number from 1 to 10000"),
    "a measure of the best": (["measure=best", "evaluate_every=1"], "give evaluations=N"),
    "a score that nothing changes": (["algo=td"], "algo=td never changes the policy that trials are scored by"),
    "an unknown key": (["algo.lrr=1..2"], r"no key 'algo\.lrr'"),
    "no range": (["search=algo.steps"], r"algo\.steps has no range of its own: give algo\.steps=LOW\.\.HIGH or"),
    "one value": (["search=algo.lr", "algo.lr=0.5"], r"search=algo\.lr and algo\.lr=0\.5: what has one value"),
    "nothing": (["algo.lr=0.5", "algo.gamma=0.9", "algo.schedule=constant"], "there is nothing to search"),
    "two names": (["env=gridworld,taxi"], "a search is for one algorithm on one environment"),
    "no name": (["env="], "env= is missing"),
    "an unknown algorithm": (["algo=qq_learning"], "did you mean q_learning"),
    "a resume": (["resume=x"], "a search goes on by itself"),
    "a word alone": (["x"], "'x' is not understood"),
    "a dash": (["--trials=3"], "is not understood"),
    "a key of none": (["trails=3"], "did you mean trials"),
    "seeds twice": (["seed=1", "seeds=2"], "not both"),
    "no trials": (["trials=0"], "trials=0 is not allowed"),
    "a sampler": (["sampler=grid"], "give one of: tpe, random"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_mistake_is_one_line(case: str) -> None:
    words, says = BAD[case]
    given = {word.partition("=")[0]: word for word in [*TABLE, *words]}.values()
    with pytest.raises(UserError, match=says) as error:
        problem(*given)
    assert "\n" not in str(error.value)


def test_a_range_that_does_nothing_is_refused_with_the_reason() -> None:
    with pytest.raises(UserError, match=r"algo\.sync_every=.* does nothing with algo\.tau"):
        problem("algo=dqn", "env=cartpole", "env_steps=1000", "algo.sync_every=50..100")


def test_seeds_of_trials_are_not_measured_on() -> None:
    with pytest.raises(UserError, match="seed=1001 is a seed of the trials"):
        problem(*TABLE, "seed=1,1001").fresh()
    assert problem(*TABLE, "seed=1,1002").fresh() == [1, 1002]


def test_a_key_that_needs_a_key_without_effect_is_left_out_too() -> None:
    ranges = ["algo.kl_coef=0,0.1", "algo.kl_target=0.01..0.1", "algo.kl_horizon=10..100"]
    found = problem("algo=ppo", "env=arithmetic", "iterations=2", *ranges)
    chosen = {"algo.kl_coef": "0", "algo.kl_target": "0.05", "algo.kl_horizon": "50"}
    assert found.active(chosen) == {"algo.kl_coef": "0"}
    penalized = chosen | {"algo.kl_coef": "0.1"}
    assert found.active(penalized) == penalized
