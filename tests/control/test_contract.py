"""Environments that keep to another contract than Gymnasium's are told in one line, before a run begins."""

import itertools
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete
from rlkit.envs import gym
from support.probes import Draws

import rlkit
from rlkit import memory


class Good(gymnasium.Env[Any, Any]):
    observation_space, action_space = Box(-9, 9, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, bool(self.np_random.random() < 0.3), False, {}


class NoSpace(Good):
    observation_space = None  # type: ignore[assignment]


class NoStep(gymnasium.Env[Any, Any]):
    observation_space, action_space, reset = Good.observation_space, Good.action_space, Good.reset


class NoSeed(Good):
    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class NoOptions(Good):
    def reset(self, seed: int | None = None) -> Any:  # type: ignore[override]
        return super().reset(seed=seed)


class OldReset(Good):
    def reset(self, **keys: Any) -> Any:
        return super().reset(**keys)[0]


class OldStep(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, {}


class WideReset(Good):
    def reset(self, **keys: Any) -> Any:
        super().reset(**keys)
        return np.zeros(3, np.float32), {}


class Ragged(Good):
    def step(self, action: Any) -> Any:
        return [[1.0], [1.0, 2.0]], 1.0, True, False, {}


class ListReward(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), np.ones(1), True, False, {}


class NoneReward(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), None, True, False, {}


class TextEnd(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, "no", False, {}


class NumberCut(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, np.False_, 0.0, {}


class Nothing(Good):
    observation_space = Box(-1, 1, (0,), np.float32)


class NothingToDo(Good):
    action_space = Box(-1, 1, (2, 0), np.float32)


class Words(Good):
    def reset(self, **keys: Any) -> Any:
        super().reset(**keys)
        return np.array(["a"]), {}


class NoneObservation(Good):
    def step(self, action: Any) -> Any:
        return None, 1.0, True, False, {}


class Fractions(Good):
    observation_space = Box(0, 255, (1,), np.uint8)


class SignedBytes(Fractions):
    def reset(self, **keys: Any) -> Any:
        super().reset(**keys)
        return np.zeros(1, np.int8), {}


class RealChoice(Good):
    observation_space = Dict({"a": Discrete(3)})

    def reset(self, **keys: Any) -> Any:
        super().reset(**keys)
        return {"a": 1.0}, {}


class NoInfo(Good):
    def reset(self, **keys: Any) -> Any:
        return super().reset(**keys)[0], None


class ListInfo(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1.0, True, False, []


class Unseeded(Good):
    def reset(self, **keys: Any) -> Any:
        return np.array([next(STARTS)], np.float32), {}


class NoReward(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), np.nan, True, False, {}


class HugeReward(Good):
    def step(self, action: Any) -> Any:
        return np.zeros(1, np.float32), 1e300, True, False, {}


class NoMetadata(Good):
    metadata = None  # type: ignore[assignment]


class Later(Good):
    """Its third step returns something else than its first."""

    changed: tuple[Any, ...] = ()

    def reset(self, **keys: Any) -> Any:
        self.t = 0
        return super().reset(**keys)

    def step(self, action: Any) -> Any:
        self.t += 1
        whole = (np.zeros(1, np.float32), 1.0, self.t > 4, False, {})
        return whole if self.t < 3 else self.changed + whole[len(self.changed) :]


class LaterShape(Later):
    changed = (np.zeros(2, np.float32),)


class LaterReward(Later):
    changed = (np.zeros(1, np.float32), np.ones(2))


class LaterInfo(Later):
    changed = (np.zeros(1, np.float32), 1.0, False, False, None)


class LaterSix(Later):
    changed = (np.zeros(1, np.float32), 1.0, False, False, {}, 0)


class LaterText(Later):
    changed = (np.zeros(1, np.float32), 1.0, "no")


class LaterNumber(Later):
    changed = (np.zeros(1, np.float32), 1.0, False, 0)


class LaterBroken(Later):
    def step(self, action: Any) -> Any:
        if self.t == 2:
            raise ValueError("setting an array element with a sequence.")
        return super().step(action)


class Broken(Good):
    def step(self, action: Any) -> Any:
        raise ZeroDivisionError


ONE = Good()
STARTS = itertools.count()
BAD: dict[Any, str] = {
    NoStep: "NoStep has no step: write def step",
    NoSpace: "NoSpace has no observation_space: set one",
    NoSeed: r"reset cannot be called with seed and options \(got .* 'seed'\): write def reset\(self, \*, seed=None",
    NoOptions: r"reset cannot be called with seed and options \(got .* 'options'\): write def reset\(self, \*, seed",
    OldReset: "OldReset: reset returns a ndarray: return the 2 of Gymnasium 1.0",
    OldStep: "OldStep: step returns 4 values: return the 5 of Gymnasium 1.0",
    WideReset: r"reset gives an observation of shape \(3,\), and observation_space has \(1,\): make them the same",
    Ragged: r"step gives an observation of shape None, and observation_space has \(1,\)",
    ListReward: r"step gave a reward of shape \(1,\): return one number",
    NoneReward: "step gave a reward of type NoneType: return one number",
    TextEnd: "step gave terminated of type str: return True or False",
    NumberCut: "step gave truncated of type float: return True or False",
    Nothing: r"observation space Box\(.*\) is empty",
    NothingToDo: r"action space Box\(.*\) is empty",
    Words: "reset gives an observation of type <U1: return an array of numbers",
    Fractions: "reset gives an observation of type float32, and observation_space has uint8: make them the same",
    SignedBytes: "reset gives an observation of type int8, and observation_space has uint8",
    RealChoice: "reset, at a, gives an observation of type float64, and observation_space has int64",
    NoInfo: "reset gives an info of type NoneType: return a dictionary",
    ListInfo: "step gives an info of type list: return a dictionary",
    HugeReward: r"step gave a reward of 1e\+300: return at most 3.4e\+38, as float32 holds it",
    NoMetadata: r"NoMetadata has metadata of type NoneType: write metadata = \{'render_modes': \[\]\}, or leave it out",
    NoneObservation: "step gives an observation of type object: return an array of numbers",
}


def train(env: Any, out: Path) -> rlkit.Run:
    return rlkit.train("ppo", env, out=out, quiet=True, iterations=1, evaluation_episodes=2, **{"env.step_limit": 5})


@pytest.mark.parametrize("env", BAD, ids=lambda env: env.__name__)
def test_another_contract_is_one_line(env: Any, tmp_path: Path) -> None:
    with pytest.raises(rlkit.UserError, match=BAD[env]) as error:
        train(env, tmp_path / "r")
    assert "\n" not in str(error.value) and not (tmp_path / "r").exists()


class Strays(Good):
    """Its fourth number is none of its space."""

    observation_space = Discrete(5, start=2)  # type: ignore[assignment]

    def reset(self, **keys: Any) -> Any:
        self.t = 0
        return 2, {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return 2 if self.t < 4 else STRAYED[0], 1.0, self.t > 5, False, {}


STRAYED = [7]


@pytest.mark.parametrize("algo", ["ppo", "reinforce", "q_learning"])
@pytest.mark.parametrize("number", [7, 1])
def test_a_number_outside_of_its_space_is_one_line(algo: str, number: int, tmp_path: Path) -> None:
    STRAYED[0] = number
    told = rf"gave the observation {number}, which is not in Discrete\(5, start=2\): "
    with pytest.raises(rlkit.UserError, match=told):
        rlkit.train(algo, Strays, out=tmp_path, quiet=True, iterations=1, evaluation_episodes=1, **{"env.rows": 1})


@pytest.mark.parametrize("env", [LaterShape, LaterReward, LaterInfo, LaterSix], ids=lambda env: env.__name__)
def test_a_later_step_that_cannot_be_read_is_one_line(env: Any, tmp_path: Path) -> None:
    with pytest.raises(rlkit.UserError, match=r"^a step of the environment returned something else than its first one"):
        train(env, tmp_path)


@pytest.mark.parametrize("processes", [False, True])
@pytest.mark.parametrize(
    ("env", "told"), [(LaterText, "terminated of type str"), (LaterNumber, "truncated of type int")]
)
def test_a_later_end_that_is_neither_true_nor_false_is_one_line(env: Any, told: str, processes: bool) -> None:
    made = gym.make(gym.Config(rows=1, entry="mine", processes=processes), 0, "cpu", factory=env)
    with pytest.raises(rlkit.UserError, match=rf"^env\.entry=mine: step gave {told}: return True or False$"):
        made.rollout(Draws(made), steps=4)
    made.close()


def test_an_error_of_a_later_step_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"^setting an array element"):
        train(LaterBroken, tmp_path)


def test_an_environment_that_is_shared_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rlkit.UserError, match="gives the same environment each time: let it make a new one"):
        train(lambda: ONE, tmp_path / "r")


def test_an_error_of_its_own_is_raised_as_it_is(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError):
        train(Broken, tmp_path / "r")


def test_a_good_one_in_its_own_wrapper_is_not_touched(tmp_path: Path) -> None:
    assert train(lambda: gymnasium.wrappers.TimeLimit(Good(), 3), tmp_path / "r").summary


def test_a_reset_that_ignores_its_seed_is_told_once_before_the_run_begins(capsys: pytest.CaptureFixture[str]) -> None:
    for env in (Good, Unseeded):
        gym.make(gym.Config(entry="mine"), 0, "cpu", factory=env)
    told = capsys.readouterr().err
    assert told.startswith("env.entry=mine: two copies that are reset with the same seed begin in different states")
    assert told.count("\n") == 1


def test_a_reset_that_draws_from_global_generators_can_be_repeated(capsys: pytest.CaptureFixture[str]) -> None:
    """Each run, and each process of an environment, begins with them seeded."""

    class Global(Good):
        def reset(self, **keys: Any) -> Any:
            return np.random.uniform(-1, 1, 1).astype(np.float32) + 0 * super().reset(**keys)[0], {}

    gym.make(gym.Config(entry="mine"), 0, "cpu", factory=Global)
    assert not capsys.readouterr().err


def test_a_reward_that_is_no_number_is_said_to_be_of_an_evaluation_where_it_is() -> None:
    env = gym.make(gym.Config(rows=2, entry="mine"), 0, "cpu", factory=NoReward)
    told = rf"^not finite: the return of an evaluation's episode, that of reset seed {env.episode_seed('test', 0)} "
    with pytest.raises(FloatingPointError, match=told):
        env.evaluate(Draws(env), split="test")


class Counted(Good):
    begun = 0

    def reset(self, **keys: Any) -> Any:
        Counted.begun += 1
        return super().reset(**keys)


@pytest.mark.parametrize("processes", [False, True])
def test_copies_for_which_there_is_no_room_are_not_made(monkeypatch: pytest.MonkeyPatch, processes: bool) -> None:
    monkeypatch.setattr(gym, "MANY", 8)
    monkeypatch.setattr(memory, "free", lambda: 2**24)
    monkeypatch.setattr(Counted, "begun", 0)
    monkeypatch.setattr(memory, "taken", lambda: 2**22 * Counted.begun)  # as if each copy held four megabytes
    with pytest.raises(rlkit.UserError, match=r"^env\.rows=16 needs 0\.1 GB, 0\.0 GB are free: give fewer"):
        config = gym.Config(rows=16, entry="<Counted, given in Python>", processes=processes)
        gym.make(config, 0, "cpu", factory=Counted)
