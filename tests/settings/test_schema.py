from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

from rlkit.api import Code, Count, Fraction, Positive, UserError
from rlkit.comparison.plan import Compare
from rlkit.evaluation import Evaluate
from rlkit.fields import Seed
from rlkit.language.network import LanguageNetwork
from rlkit.pages.choice import Play
from rlkit.policies import Network
from rlkit.scaffold import New
from rlkit.settings import plugins, schema
from rlkit.settings.config import Run
from rlkit.settings.schema import Typed, build
from rlkit.settings.synonyms import ELSEWHERE


@dataclass(frozen=True)
class Parent:
    lr: Positive = 3e-4  # step size of Adam
    gamma: Fraction = 0.99  # discount per step


@dataclass(frozen=True)
class Config(Parent):
    lr: Positive = 1e-3
    hidden: tuple[int, ...] = (64, 64)  # units of each layer
    goal: tuple[int, int] | Literal["corner"] = "corner"  # where the reward is
    scale: Literal["std", "none"] = "std"  # what the advantage is divided by
    source: str = "embedded"  # embedded, or a path
    path: str | None = None
    horizon: Count | None = 128
    double: bool = True
    kwargs: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    rates: list[float] = field(default_factory=list)
    seed: Seed = 0


def built(**values: Any) -> Config:
    return build(Config, values, "algo")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("lr", "1e-3", 0.001),  # YAML 1.1 takes this for text
        ("lr", "1", 1.0),
        ("lr", ".5", 0.5),
        ("gamma", "1", 1.0),
        ("hidden", "32", (32,)),
        ("hidden", "32,16", (32, 16)),
        ("hidden", "[32, 16]", (32, 16)),
        ("hidden", "", ()),
        ("hidden", "[]", ()),
        ("rates", "1e-3,2", [0.001, 2.0]),
        ("rates", "[1e-3, 2]", [0.001, 2.0]),
        ("rates", "5", [5.0]),
        ("rates", "", []),
        ("goal", "1,2", (1, 2)),
        ("goal", "corner", "corner"),
        ("scale", "none", "none"),
        ("source", "123", "123"),
        ("source", "no", "no"),
        ("source", "1e-3", "1e-3"),
        ("source", "[a]", "[a]"),
        ("source", "a: b # c", "a: b # c"),
        ("source", "", ""),
        ("path", "none", None),
        ("path", "null", None),
        ("path", "no", "no"),
        ("horizon", "none", None),
        ("horizon", "1e3", 1000),
        ("horizon", "1_000", 1000),
        ("horizon", "010", 10),
        ("double", "no", False),
        ("double", "false", False),
        ("double", "on", True),
        ("double", "1", True),
        ("kwargs", "{a: 1, b: [x, 2]}", {"a": 1, "b": ["x", 2]}),
        ("kwargs", "{a: on, b: 1e-3}", {"a": "on", "b": 1e-3}),
        ("words", "yes,12,1e-3", ("yes", "12", "1e-3")),
        ("words", "[yes, 12]", ("yes", "12")),
        ("seed", str(2**70), 2**70),
    ],
)
def test_a_text_is_read_as_the_field_wants_it(key: str, text: str, value: Any) -> None:
    found = getattr(built(**{key: text}), key)
    assert found == value
    assert type(found) is type(value)


def test_a_word_below_a_mapping_is_the_text_that_it_is() -> None:
    assert built(**{"kwargs.a": "on", "kwargs.b": "no", "kwargs.c": "true"}).kwargs == {"a": "on", "b": "no", "c": True}


@pytest.mark.parametrize("text", ["Give N after #### N.", "one\ntwo", " a blank ", "5 # 3", "# 3"])
def test_a_text_below_a_mapping_stays_as_it_was_typed(text: str) -> None:
    """It may be the prompt of a game: YAML would leave out what follows a #, and make one line of two."""
    assert built(**{"kwargs.a": text}).kwargs == {"a": text}
    assert built(**{"kwargs.a": f"'{text[:3]}' # note"}).kwargs == {"a": text[:3]}, "in quotes, YAML reads it"


def test_a_value_below_a_mapping_has_the_type_of_its_values() -> None:
    @dataclass(frozen=True)
    class Mappings:
        weights: dict[str, float] = field(default_factory=dict)
        files: dict[str, Path] = field(default_factory=dict)
        anything: dict[str, object] = field(default_factory=dict)

    found = build(Mappings, {"weights.a": "2", "files.a": "x.csv", "anything.a": "true"}, "env")
    assert found == Mappings({"a": 2.0}, {"a": Path("x.csv")}, {"a": True})
    for text in ("abc", "true", "[1]", "none"):
        with pytest.raises(UserError, match="is not allowed: give a number"):
            build(Mappings, {"weights.a": text}, "env")


def test_a_blank_that_a_mapping_lacks_is_named() -> None:
    @dataclass(frozen=True)
    class Given:
        kwargs: dict[str, object] = field(default_factory=dict)
        kind_weights: dict[str, float] = field(default_factory=dict)

    with pytest.raises(UserError, match=r"write 'env\.kind_weights=\{easy: 2, hard: 1\}'"):
        build(Given, {"kind_weights": Typed("{easy:2, hard:1}")}, "env")
    with pytest.raises(UserError, match=r"write 'env\.kwargs=\{numbers: 9, tiles: 4, seen: \}'"):
        build(Given, {"kwargs": Typed("{numbers:9, tiles:4, seen: }")}, "env")
    assert build(Given, {"kwargs": {"a:b": None}}, "env").kwargs == {"a:b": None}  # of a file, where it is meant


def test_a_list_of_names_is_the_text_with_commas_between_them() -> None:
    @dataclass(frozen=True)
    class Given:
        reward: Code = ""
        source: str = ""
        rewards: tuple[Code, ...] = ()

    names = ["mine.py:a", "mine.py:b"]
    assert build(Given, {"reward": names, "rewards": names}, "env") == Given(",".join(names), "", (*names,))
    for values in ({"reward": []}, {"reward": ["strict", 3]}, {"source": names}):
        with pytest.raises(UserError, match="is not allowed: give text"):
            build(Given, values, "env")


def test_values_of_yaml_are_read_by_the_same_rules() -> None:
    values = yaml.safe_load("{lr: 1e-3, hidden: [8, 8], goal: [0, 1], double: no, horizon: null, words: ['1', no_]}")
    config = built(**values)
    assert (config.lr, config.hidden, config.goal) == (0.001, (8, 8), (0, 1))
    assert (config.double, config.horizon, config.words) == (False, None, ("1", "no_"))


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("lr", "fast", "a number above 0"),
        ("lr", "0", "a number above 0"),
        ("lr", "nan", "a number above 0"),
        ("lr", "true", "a number above 0"),
        ("lr", "", "a number above 0"),
        ("gamma", "1.01", "a number from 0 to 1"),
        ("hidden", "64,big", "a list A,B,...: each a whole number"),
        ("hidden", "64,1.5", "a list A,B,...: each a whole number"),
        ("hidden", "64,true", "a list A,B,...: each a whole number"),
        ("rates", "1,x", "a list A,B,...: each a number"),
        ("rates", "1,nan", "a list A,B,...: each a number"),
        ("goal", "1,2,3", "2 values: a whole number, a whole number or corner"),
        ("scale", "sdt", "one of: std, none"),
        ("horizon", "0", "a whole number of at least 1 or none"),
        ("horizon", "2.5", "a whole number of at least 1 or none"),
        ("horizon", "", "a whole number of at least 1 or none"),
        ("horizon", "\u2028", "a whole number of at least 1 or none"),
        ("horizon", "# 3", "a whole number of at least 1 or none"),
        ("double", "maybe", "true or false"),
        ("kwargs", "3", "a mapping, {KEY: VALUE}: each KEY text, in quotes where it is a number, each VALUE any value"),
        (
            "kwargs",
            "{1: 2}",
            "a mapping, {KEY: VALUE}: each KEY text, in quotes where it is a number, each VALUE any value",
        ),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_told_what_is_allowed(key: str, text: str, allowed: str) -> None:
    with pytest.raises(UserError) as caught:
        built(**{key: text})
    assert str(caught.value) == f"algo.{key}={text} is not allowed: give {allowed}"


def test_a_truth_value_of_yaml_is_no_number() -> None:
    for values in ({"lr": True}, {"hidden": [64, True]}, {"goal": [False, 1]}):
        with pytest.raises(UserError, match="is not allowed: give "):
            built(**values)


def test_a_text_that_is_no_yaml_is_told_so() -> None:
    with pytest.raises(UserError, match=r"^algo\.hidden=\[1, cannot be read: give a list"):
        built(hidden="[1,")
    with pytest.raises(UserError, match=r"^algo\.kwargs=\{a cannot be read: give a mapping"):
        built(kwargs="{a")


def test_an_unknown_key_is_answered_with_the_nearest_one_and_the_list() -> None:
    with pytest.raises(UserError, match=r"^no key 'algo\.gama': did you mean gamma\? There are: lr, gamma, hidden,"):
        built(gama="1")
    with pytest.raises(UserError, match=r"^no key 'algo\.lr\.x'"):
        built(**{"lr.x": "1"})
    with pytest.raises(
        UserError, match=r"^no key 'sed': did you mean seed\? .* written algo\.KEY, env\.KEY, policy\.KEY"
    ):
        build(Run, {"sed": "1"}, "run")


def test_a_word_of_another_library_is_answered_with_our_key() -> None:
    with pytest.raises(UserError, match=r"^no key 'algo\.learning_rate': here it is algo\.lr; there are: lr, gamma"):
        built(learning_rate="1")
    with pytest.raises(UserError, match=r"^no key 'algo\.hidden_sizes': here it is policy\.hidden; there are"):
        built(hidden_sizes="1")
    with pytest.raises(UserError, match=r"^no key 'total_timesteps': here it is env_steps; there are: seed"):
        build(Run, {"total_timesteps": "1"}, "run")
    for name, word, ours in (
        ("ppo", "n_steps", "horizon"),
        ("dqn", "n_steps", "n_step"),
        ("ppo", "ent_coef", "entropy"),
        ("ppo", "clip_range_vf", "value_clip; there are: "),
        ("ppo", "batch_size", r"minibatches \(how many there are, not how large one is\); there are: "),
        ("grpo", "ppo_mini_batch_size", r"minibatches \(how many there are, not how large one is\); there are: "),
        ("ppo", "minibatch_size", r"minibatches \(how many there are, not how large one is\); there are: "),
        ("ppo", "cliprange_value", "value_clip; there are: "),
        ("ppo", "clip_vloss", r"value_clip \(a range such as 0\.2, not a switch\); there are: "),
        ("dqn", "eps", "epsilon; there are: "),
        ("sac", "ent_coef", r"temperature \(it is learned from there on, unless algo\.learn_temperature=false\)"),
        ("ppo", "vf_coef", r"value_coef \(of half the squared error, .*: twice that of Stable-Baselines3\)"),
        ("dqn", "target_update_interval", r"sync_every \(in optimizer steps, not environment steps\); there are: "),
        ("dqn", "exploration_final_eps", "epsilon_end; there are: "),
    ):
        with pytest.raises(UserError, match=rf"here it is algo\.{ours}"):
            build(plugins.load("algorithms", name).Config, {word: "1"}, "algo")
    with pytest.raises(UserError, match=r"^no key 'algo\.batch_size': there are: "):
        built(batch_size="1")


def test_every_key_that_is_given_for_a_word_of_another_library_is_there() -> None:
    classes = [plugins.load(kind, n).Config for kind in ("algorithms", "envs") for n in plugins.names(kind)]
    there = {key for cls in [*classes, Run, Network] for key in schema.settable(cls)}
    given = {ours.rpartition(".")[2] for words in ELSEWHERE.values() for ours in words.split()}
    assert given <= there


def test_a_dotted_key_goes_into_a_mapping() -> None:
    values = {"kwargs.size": "7", "kwargs": "{size: 3, name: a}", "kwargs.rate": "1e-2"}
    assert built(**values).kwargs == {"size": 7, "name": "a", "rate": 0.01}


def test_a_field_without_a_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needs:
        id: str

    with pytest.raises(UserError, match=r"^env\.id must be given: text"):
        build(Needs, {}, "env")


def test_a_check_across_fields_is_the_users_mistake() -> None:
    @dataclass(frozen=True)
    class Both:
        low: float = 0.0
        high: float = 1.0

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low={self.low} is above high={self.high}")

    with pytest.raises(UserError, match=r"^env: low=2\.0 is above high=1\.0"):
        build(Both, {"low": "2"}, "env")
    with pytest.raises(UserError, match="give iterations=3 or env_steps=4, not both"):
        build(Run, {"iterations": "3", "env_steps": "4"}, "run")


def test_a_comment_in_the_source_is_the_meaning_of_a_key_and_is_inherited() -> None:
    rows = dict(schema.explain(Config, {"scale": "none"}, "algo"))
    assert rows["algo.lr=0.001"] == "step size of Adam (a number above 0)"
    assert rows["algo.gamma=0.99"] == "discount per step (a number from 0 to 1)"
    assert rows["algo.scale=none"] == "what the advantage is divided by (one of: std, none)"
    assert rows["algo.path=none"] == "(text or none)"
    assert rows["algo.hidden=64,64"].startswith("units of each layer")


@dataclass(frozen=True)
class Moved:
    # not of a field
    rate: float = (
        0.5  # what a formatter
        # has moved
    )


def test_a_comment_that_a_formatter_moved_is_still_that_of_its_field() -> None:
    assert schema.comments(Moved) == {"rate": "what a formatter has moved"}


@pytest.mark.parametrize("cls", [Run, Network, LanguageNetwork, Evaluate, Compare, Play, New], ids=lambda x: x.__name__)
def test_every_key_of_the_commands_and_of_the_policies_has_a_meaning(cls: type) -> None:
    assert [key for key in schema.settable(cls) if not schema.comments(cls).get(key)] == []


@pytest.mark.parametrize("kind", ["algorithms", "envs"])
def test_every_key_of_every_plug_in_has_a_meaning_and_is_frozen(kind: plugins.Kind) -> None:
    for name in plugins.names(kind):
        cls = plugins.load(kind, name).Config
        assert cls.__dataclass_params__.frozen, name
        assert set(schema.comments(cls)) >= set(schema.settable(cls)), name
