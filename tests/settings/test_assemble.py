"""What surrounds a run when it is put together: threads, and what a help page knows of an environment."""

import enum
from contextlib import nullcontext
from dataclasses import dataclass, field, make_dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_type_hints

import pytest

from rlkit import cores, run
from rlkit.errors import UserError
from rlkit.settings import assemble, config, plugins, schema
from rlkit.settings.assemble import check_divided, threads
from rlkit.settings.contract import check_read_back
from rlkit.settings.help import show_help


@pytest.mark.parametrize(
    ("value", "expected"), [("3", 3), ("4,2", 4), (" 2 ,1", 2), ("", 0), ("abc", 0), ("-1", 0), ("0", 0), ("9" * 99, 0)]
)
def test_openmp_threads_are_read_as_openmp_reads_them(
    value: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", value)
    monkeypatch.setattr(assemble, "cores", lambda: 8)
    assert threads("text") == (expected or 8)
    assert threads("control") == 1


def test_a_run_has_no_more_threads_than_cores(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "16")
    monkeypatch.setattr(assemble, "cores", lambda: 3)
    assert [threads(kind, asked) for kind in ("text", "control") for asked in (0, 2, 256)] == [3, 2, 3, 1, 2, 3]


def test_the_header_says_that_fewer_threads_are_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=q_learning", "env=gridworld", "iterations=1", "evaluation_episodes=2", "threads=256"]
    assert run.main([*words, f"out={tmp_path / 'r'}"]) == 0
    there = cores.cores()
    said = " ".join(capsys.readouterr().out.split())
    assert f"threads: {there} (not 256: this process may use {there} cores)" in said


@pytest.mark.parametrize("hold", [None, "short", 1, 2])
def test_several_ranks_take_an_own_algorithm_with_a_key_that_ours_have_for_a_number(hold: object) -> None:
    algo = SimpleNamespace(policy=None, config=make_dataclass("Config", ["hold"])(hold))
    with pytest.raises(UserError, match=r"algo\.hold is for one process") if hold == 2 else nullcontext():
        check_divided("./mine.py", algo)


@pytest.mark.parametrize("env", ["lunarlander", "gym", "gsm8k"])
def test_help_shows_the_policys_keys_where_the_environment_cannot_be_made(
    env: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    module = plugins.load("envs", env)

    def make(config: object, seed: int, device: object) -> object:
        raise UserError("Box2D is not installed")

    make.__annotations__["return"] = get_type_hints(module.make)["return"]
    monkeypatch.setattr(module, "make", make)
    show_help(config.read(["algo=ppo", f"env={env}", "--help"]))
    page = capsys.readouterr().out
    assert ("policy.temperature=" in page) == (env == "gsm8k")
    assert ("policy.hidden=64,64" in page) == (env != "gsm8k")


def test_help_of_annotations_that_only_a_type_checker_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "typed.py").write_text(
        "from __future__ import annotations\nfrom typing import TYPE_CHECKING\nfrom rlkit.settings import plugins\n"
        "if TYPE_CHECKING:\n    from rlkit.control import ControlEnv\n"
        "cartpole = plugins.load('envs', 'cartpole')\nConfig = cartpole.Config\n"
        "def make(config, seed, device) -> ControlEnv:\n    return cartpole.make(config, 0, 'cpu')\n"
    )
    show_help(config.read(["algo=ppo", f"env={tmp_path}/typed.py", "--help"]))
    assert "policy.hidden=64,64" in capsys.readouterr().out


def test_help_of_an_environment_of_ones_own_makes_it_to_know_the_policy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, result in (("mine", "cartpole.make(config, 0, 'cpu')"), ("bare", "plugins.load('envs', '...')")):
        (tmp_path / f"{name}.py").write_text(
            "from rlkit.settings import plugins\ncartpole = plugins.load('envs', 'cartpole')\n"
            f"Config = cartpole.Config\ndef make(config, seed, device):\n    return {result}\n"
        )
        show_help(config.read(["algo=ppo", f"env={tmp_path}/{name}.py", "--help", "all"]))
    mine, _, bare = "".join(capsys.readouterr().out.split()).partition("bare.py")  # a long path is broken anywhere
    assert "policy.hidden=64,64" in mine and "policy.hidden" not in bare
    assert "itskeysdependontheenvironment,andnoenvironment'...'" in bare


@pytest.mark.parametrize(
    ("has", "lacks", "told"),
    [("config = config", "policy", "network.actor(env)"), ("policy = network.actor(env)", "config", "config")],
)
def test_an_algorithm_without_a_policy_or_its_config_is_one_line(
    has: str, lacks: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "mine.py"
    path.write_text(
        "from dataclasses import dataclass\n\nfrom rlkit.api import Algorithm\n\n\n"
        "@dataclass(frozen=True)\nclass Config:\n    lr: float = 1.0\n\n\n"
        "class Mine(Algorithm):\n    saved = ()\n\n"
        f"    def __init__(self, config, env, network):\n        self.{has}\n\n"
        "    def rollout(self, env): ...\n\n    def credit(self, rollout): ...\n\n    def loss(self, batch): ...\n\n\n"
        "make = Mine\n"
    )
    assert run.main([f"algo={path}", "env=cartpole", f"out={tmp_path / 'r'}"]) == 2
    said = capsys.readouterr().err
    assert said.endswith(f": Mine has no {lacks}; set it in its __init__: self.{lacks} = {told}\n"), said
    assert not (tmp_path / "r").exists()


class Side(enum.Enum):
    LEFT = "left"


@dataclass(frozen=True)
class Inner:
    size: int = 1


@pytest.mark.parametrize(
    ("hint", "value"), [(set[int], {1}), (Side, Side.LEFT), (Inner, Inner()), (bytes, b"a"), (float, float("nan"))]
)
def test_a_value_that_config_yaml_cannot_hold_is_refused_before_the_run(hint: Any, value: Any) -> None:
    cls = make_dataclass("Config", [("kept", hint, field(default_factory=lambda: value))], frozen=True)
    with pytest.raises(UserError, match=r"algo\.kept=.* could not be read back from config\.yaml: let its field"):
        check_read_back(cls(), "algo")


@pytest.mark.parametrize(("hint", "value"), [(int, None), (int, 2.5), (str, 3), (tuple[str, ...], "ab"), (Any, "3")])
def test_a_default_is_read_back_as_it_is_also_where_its_type_is_another(hint: Any, value: Any) -> None:
    cls = make_dataclass("Config", [("kept", hint, value)], frozen=True)
    check_read_back(cls(), "algo")
    assert schema.build(cls, {"kept": value}, "algo") == cls()


def test_a_run_of_a_config_with_a_set_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(
        "from dataclasses import dataclass\nfrom rlkit.settings import plugins\n"
        "cartpole = plugins.load('envs', 'cartpole')\n\n"
        "@dataclass(frozen=True)\nclass Config:\n    kinds: frozenset[int] = frozenset()\n\n"
        "def make(config, seed, device):\n    return cartpole.make(cartpole.Config(), seed, device)\n"
    )
    assert run.main(["algo=ppo", f"env={tmp_path}/mine.py", "iterations=1", f"out={tmp_path / 'r'}"]) == 2
    assert "rlkit: env.kinds=frozenset() could not be read back" in capsys.readouterr().err
    assert not (tmp_path / "r").exists()
