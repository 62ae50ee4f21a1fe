"""What a review found at the edges of the Python API."""

import subprocess
import sys
from enum import Enum
from pathlib import Path

import pytest

import rlkit
from rlkit.evaluation import Evaluate
from rlkit.python.keys import asked
from rlkit.settings import config
from rlkit.settings.assemble import assemble

MINE = """from dataclasses import dataclass


@dataclass(frozen=True)
class Config:
    pass


class Mine:
    def __init__(self, config, env, network):
        self.policy = network.actor(env)


make = Mine
"""


def test_a_seed_is_a_whole_number(tmp_path: Path) -> None:
    with pytest.raises(rlkit.UserError, match=r"seed=0\.7 is not allowed: give whole numbers"):
        rlkit.run_comparison(algo="ppo", env="cartpole", seed=[0.7], out=str(tmp_path))  # type: ignore[list-item]


def test_a_plug_in_without_the_contract_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE)
    with pytest.raises(rlkit.UserError, match=r"Mine without saved, .*: let it inherit rlkit\.api\.Algorithm"):
        rlkit.train(str(tmp_path / "mine.py"), "cartpole", quiet=True, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


MAKES = {
    ("algo", "def make(config): return None"): r"its make cannot be called as make\(config, env, \.\.\.\) \(too many",
    ("algo", "def make(config, env, network): return None"): "makes a NoneType without saved, .*: let it inherit",
    ("env", "def make(config): return None"): r"its make cannot be called as make\(config, seed, device\) \(too many",
    ("env", "def make(config, seed, device): return None"): "makes a NoneType without rollout, .*: let it inherit",
}


@pytest.mark.parametrize(("kind", "make"), MAKES)
def test_a_make_of_another_form_is_refused(kind: str, make: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE.replace("make = Mine", make))
    mine = str(tmp_path / "mine.py")
    words = (mine, "cartpole") if kind == "algo" else ("ppo", mine)
    with pytest.raises(rlkit.UserError, match=MAKES[kind, make]) as error:
        rlkit.train(*words, quiet=True, out=tmp_path / "run")
    assert "\n" not in str(error.value) and not (tmp_path / "run").exists()


@pytest.mark.slow
def test_importing_the_api_leaves_the_global_random_state() -> None:
    code = "import random, rlkit\nbefore = random.getstate()\nrlkit.train\nassert random.getstate() == before"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_names_may_be_a_list_and_the_command_to_repeat_has_commas() -> None:
    values = {"env.reward": ("strict", "boxed"), "env.reward_weights": [1, 0.5], "policy.lora_targets": ["q_proj"]}
    text = assemble(asked("grpo", "gsm8k", {**values, "policy.model": "tiny", "policy.lora": 2})).text
    assert "env.reward=strict,boxed env.reward_weights=1,0.5 policy.lora_targets=q_proj " in text.partition("\n")[0]
    assert "  reward: strict,boxed\n" in text and "  lora_targets: q_proj\n" in text


class Device(Enum):
    CPU = "cpu"


class Name(str, Enum):  # noqa: UP042  # its text is Name.LINEAR, unlike that of a StrEnum
    CARTPOLE = "cartpole"
    LINEAR = "linear"
    STEPS = "env_steps"


class Rate(float, Enum):
    SLOW = 0.25


def test_a_member_of_an_enum_stands_for_its_value() -> None:
    keys = {"device": Device.CPU, "algo.lr": Rate.SLOW, "algo.schedule": Name.LINEAR, "policy.hidden": [Rate.SLOW, 8]}
    given = asked("ppo", Name.CARTPOLE, keys)
    repeat = ("algo=ppo", "env=cartpole", "device=cpu", "algo.lr=0.25", "algo.schedule=linear", "policy.hidden=0.25,8")
    assert given.argv == repeat
    assert asked("ppo", "cartpole", {Name.STEPS: 100}).argv == ("algo=ppo", "env=cartpole", "env_steps=100")
    assert type(given.run["device"]) is str and type(given.algo["lr"]) is float and given.policy["hidden"] == [0.25, 8]


def test_a_run_is_measured_with_every_seed_that_a_run_may_have() -> None:
    seed = 10**38 - 1
    assert config.build(config.Run, {"seed": str(seed)}, "run").seed == seed
    assert config.build(Evaluate, {"seed": str(seed)}, "evaluate").seed == seed
