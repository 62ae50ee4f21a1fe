"""Numbers that mean nothing, because they are infinite or beyond any size, are refused with one line."""

import math
from dataclasses import dataclass
from typing import Any

import pytest

from rlkit.errors import UserError
from rlkit.fields import Count, Limit, NonNegative, Seed
from rlkit.policies import Network
from rlkit.settings import config, plugins
from rlkit.settings.config import Run
from rlkit.settings.schema import build

NINES = "9" * 400


@dataclass(frozen=True)
class Config:
    lr: NonNegative = 0.1
    clip: Limit | None = 0.2
    plain: float = 0.0
    whole: int = 0
    seed: Seed = 0
    sizes: tuple[Count, ...] = ()
    unlimited: float = math.inf  # somebody's own, whose default says what it means


def message(cls: type, key: str, text: Any, section: str = "algo") -> str:
    with pytest.raises(UserError) as caught:
        build(cls, {key: text}, section)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 300
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "text", "rest"),
    [
        ("lr", "inf", "give a number of at least 0, at most 1e37 in size"),
        ("lr", "1e300", "give a number of at least 0, at most 1e37 in size"),
        ("lr", "1e-300", "give a number of at least 0, at least 1e-37 in size"),
        ("lr", "9" * 5000, "give a number of at least 0, at most 1e37 in size"),
        ("clip", "1e300", "give a number above 0 or none, at most 1e37 in size, or inf"),
        ("plain", "-inf", "give a number, at most 1e37 in size"),
        ("whole", NINES, "give a whole number, at most 10^15"),
        ("whole", "-1" + "0" * 15 + "1", "give a whole number, at most 10^15"),
        ("whole", "9" * 5000, "give a whole number"),
        ("whole", "1e300", "give a whole number"),
        ("sizes", f"3,{NINES}", "give a list A,B,...: each a whole number of at least 1, at most 10^15"),
        ("seed", "9" * 5000, "give a whole number of at least 0"),
        ("sizes", "(8 9)", "give a list A,B,...: each a whole number of at least 1"),
    ],
)
def test_a_number_of_no_use_is_told_what_is_allowed(key: str, text: str, rest: str) -> None:
    assert message(Config, key, text).endswith(f" is not allowed: {rest}")


@pytest.mark.parametrize("text", ["{8,9}", "[" * 50_000], ids=["braces", "deep"])
def test_a_list_that_cannot_be_read_is_told_how_one_is_written(text: str) -> None:
    assert message(Config, "sizes", text).endswith("give a list A,B,...: each a whole number of at least 1")


def test_a_long_value_is_cut_in_the_message() -> None:
    assert message(Config, "whole", NINES).startswith(f"algo.whole={'9' * 40}... (400 characters) is not allowed")


def test_infinity_counts_where_it_means_something() -> None:
    built = build(Config, {"clip": "inf", "lr": "0", "seed": str(2**200), "unlimited": "inf", "whole": "1e15"}, "algo")
    assert built == Config(clip=math.inf, lr=0.0, seed=2**200, whole=10**15)
    assert build(Config, {"unlimited": math.inf}, "algo") == Config()  # as a config.yaml holds it


def test_only_what_limits_may_be_infinite() -> None:
    """Of all algorithms: no clip, no limit of the gradient. Everywhere else infinity is a mistake."""
    may = set()
    for name in plugins.names("algorithms"):
        cls = plugins.load("algorithms", name).Config
        for key in cls.__dataclass_fields__:
            try:
                built = build(cls, {key: "inf"}, "algo")
            except UserError as error:
                assert str(error).startswith((f"algo.{key}=inf is not allowed", f"algo.{key}=inf cannot")), error
            else:
                assert getattr(built, key) in (math.inf, "inf")  # or a folder of that name
                may |= {key} if getattr(built, key) == math.inf else set()
    limits = {"clip", "clip_low", "clip_high", "dual_clip", "kl_clip", "value_clip", "max_grad_norm", "sampler_cap"}
    assert may == limits


def test_a_decay_is_below_1() -> None:
    cls = plugins.load("algorithms", "ppo").Config
    for text in ("1", "1.5", "0"):
        assert message(cls, "beta2", text).endswith("give a number above 0 and below 1")


def test_a_step_to_the_target_network_is_no_longer_than_the_way() -> None:
    assert "above 0 and at most 1" in message(plugins.load("algorithms", "dqn").Config, "tau", "1.5")


def test_a_temperature_and_a_deviation_stay_where_float32_can_compute_with_them() -> None:
    from rlkit.language.network import LanguageNetwork

    for text in ("inf", "1e-300", "1e-6", "1e5"):
        assert message(LanguageNetwork, "temperature", text, "policy").endswith("give a number from 0.001 to 1000")
    for text in ("-inf", "100", "-100"):
        assert message(Network, "log_std", text, "policy").endswith("give a number from -20 to 20")


def test_the_length_of_a_run_is_bounded_and_its_seed_is_not() -> None:
    assert "at most 10^15" in message(Run, "iterations", NINES, "run")
    assert config.read(["algo=ppo", "env=cartpole", f"seed={2**200}"]).run["seed"] == str(2**200)
    assert build(Run, {"seed": str(2**200)}, "run").seed == 2**200


@pytest.mark.parametrize("text", ["[1", "[" * 50_000, "{a: " + "9" * 5000 + "}"], ids=["open", "deep", "digits"])
def test_a_value_below_a_mapping_that_cannot_be_read_is_one_line(text: str) -> None:
    cls = plugins.load("envs", "gym").Config
    assert message(cls, "kwargs.x", text, "env").startswith("env.kwargs.x=")
    assert message(cls, "kwargs", text, "env").startswith("env.kwargs=")
