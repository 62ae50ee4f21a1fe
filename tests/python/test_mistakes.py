"""Mistakes in Python: each is one line that names what was given, before anything is left behind."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from support.resuming import differences

import rlkit
from rlkit import memory
from rlkit.comparison import conduct, plan

SHORT: dict[str, Any] = {"iterations": 1, "evaluation_episodes": 2, "validation_episodes": 2, "quiet": True}
TEXT: dict[str, Any] = {"iterations": 1, "algo.group": 2, "env.rows": 2, "env.max_tokens": 8, "env.train": 8}
TEXT |= {"env.test": 2, "env.validation": 2, "threads": 1, "quiet": True}


class Walk(gymnasium.Env[Any, Any]):
    """One number, two actions, five steps."""

    observation_space, action_space = Box(-9, 9, (1,), np.float32), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 0
        return np.zeros(1, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.at += 1
        return np.full(1, self.at, np.float32), float(action), self.at >= 5, False, {}


class Other(Walk):
    """Another one with the same spaces."""


class Wide(Walk):
    """Observations of another size."""

    observation_space = Box(-9, 9, (3,), np.float32)

    def reset(self, **keys: Any) -> tuple[Any, dict[str, Any]]:
        super().reset(**keys)
        return np.zeros(3, np.float32), {}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        return np.zeros(3, np.float32), *super().step(action)[1:]


@pytest.fixture(scope="module")
def walked(tmp_path_factory: pytest.TempPathFactory) -> rlkit.Run:
    return rlkit.train("ppo", Walk, out=tmp_path_factory.mktemp("walk") / "r", **SHORT)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> rlkit.Run:
    return rlkit.train("grpo", "gsm8k", out=tmp_path_factory.mktemp("told") / "r", **TEXT)


def refused(says: str, call: Callable[..., object], *words: Any, **keys: Any) -> None:
    with pytest.raises(rlkit.UserError, match=says) as error:
        call(*words, **keys)
    assert "\n" not in str(error.value) and len(str(error.value)) < 400


OBSERVATIONS: list[tuple[Any, str]] = [
    ([[1.0], [1.0, 2.0]], "an observation is not an array .* give numbers in lists of the same length"),
    ([np.nan], "holds a number that is not finite"),
    ([[0.0], [np.inf]], "holds a number that is not finite"),
    ([1e300], "holds a number that is not finite"),
    (["a"], "an observation of <U1 does not fit"),
    ([None], "an observation of object does not fit"),
    ([1j], "an observation of complex128 does not fit"),
    (np.zeros((2, 2)), r"an observation of shape \(2, 2\) does not fit"),
    (np.zeros((2, 2, 1)), "does not fit"),
    (None, r"an observation of shape \(\) does not fit"),
    ({"a": 1}, r"an observation of shape \(\) does not fit"),
]


@pytest.mark.parametrize(("observation", "says"), OBSERVATIONS, ids=str)
def test_an_observation_that_does_not_fit(observation: Any, says: str, walked: rlkit.Run) -> None:
    refused(says, walked.policy.predict, observation)


def test_tensors_are_read_as_their_numbers(walked: rlkit.Run) -> None:
    """What is differentiated, too, alone or in a list."""
    policy, grows = walked.policy, torch.ones(2, 1, requires_grad=True)
    expected = policy.predict(np.ones((2, 1))).tolist()
    assert policy.predict(grows).tolist() == policy.predict([*grows]).tolist() == expected


@pytest.mark.filterwarnings("error")
def test_observations_from_the_last_to_the_first_and_read_only_ones_are_read(walked: rlkit.Run) -> None:
    rows = np.array([[0.1], [0.9], [0.5]], dtype=np.float32)
    expected = walked.policy.predict(rows)
    assert (walked.policy.predict(rows[::-1]) == expected[::-1]).all()
    rows.flags.writeable = False
    assert (walked.policy.predict(rows) == expected).all()


def test_no_observations_are_no_actions(walked: rlkit.Run) -> None:
    found = walked.policy.predict(np.zeros((0, 1)))
    assert found.shape == (0,) and found.dtype.kind == "i"


def test_no_prompts_are_no_completions(told: rlkit.Run) -> None:
    assert told.policy.complete([]) == []


COMPLETE: list[tuple[Any, dict[str, Any], str]] = [
    (["2?"], {"n": 2.0}, "n=2.0 is not allowed: give a whole number of at least 1"),
    (["2?"], {"n": True}, "n=True is not allowed"),
    (["2?"], {"n": "2"}, "n='2' is not allowed"),
    (["2?"], {"n": None}, "n=None is not allowed"),
    (["2?"], {"max_tokens": 1.5}, "max_tokens=1.5 is not allowed"),
    (["2?"], {"n": 10**12}, "completions of 8 tokens needs .* GB, .* are free: ask for fewer"),
    (["2?", 3], {}, "a prompt is of type int: give a text, or a list of texts"),
    ([b"2?"], {}, "a prompt is of type bytes"),
    ([["2?"]], {}, "a prompt is of type list"),
    (None, {}, "a prompt is of type NoneType"),
    (3, {}, "a prompt is of type int"),
    (["\ud800"], {}, "is not a text: give texts of whole Unicode characters"),
    ([""], {}, "a prompt is empty"),
]


@pytest.mark.parametrize(("prompts", "keys", "says"), COMPLETE, ids=ascii)
def test_prompts_and_counts_that_are_none(prompts: Any, keys: Any, says: str, told: rlkit.Run) -> None:
    refused(says, told.policy.complete, prompts, **keys)


def test_an_array_of_prompts_and_a_numpy_count_are_fine(told: rlkit.Run) -> None:
    found = told.policy.complete(("2?", "3?"), n=np.int64(2), max_tokens=np.int64(2))  # type: ignore[arg-type]
    assert [len(texts) for texts in found] == [2, 2]


def test_more_completions_than_the_memory_holds(told: rlkit.Run, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = told.policy
    monkeypatch.setattr(memory, "free", lambda: 1000)
    refused("100 completions of 8 tokens needs", policy.complete, ["2?"], n=100)


@pytest.mark.parametrize(
    ("words", "keys", "says"),
    [
        ((None, "cartpole"), {}, "algo=None is not a name"),
        ((3, "cartpole"), {}, "algo=3 is not a name"),
        pytest.param(("ppo", lambda: Walk()), {}, "is not a name, and .*: give 'MODULE:NAME' of a class", id="lambda"),
        pytest.param((["ppo"], [Walk()]), {}, "is not a name", id="object"),
        ((Path("nowhere.py"), "cartpole"), {}, r"no algorithm file .*nowhere\.py"),
        (("ppo", Path("nowhere.py")), {}, r"no environment file .*nowhere\.py"),
        (("ppo", "cartpole"), {"seed": None}, "seed=None is not allowed: give whole numbers"),
        (("ppo", "cartpole"), {"seed": [True]}, "seed=True is not allowed"),
        (("ppo", ["CartPole-v1", "CartPole-v1"]), {}, "CartPole-v1:env.id is given twice"),
        (("ppo", ["CartPole-v1", "a/CartPole-v1"]), {}, "env.id=a/CartPole-v1 is not a Gymnasium environment"),
        (("ppo", "CartPol-v1"), {}, "did you mean CartPole-v1"),
    ],
    ids=str,
)
def test_what_cannot_be_compared(words: Any, keys: Any, says: str, tmp_path: Path) -> None:
    refused(says, rlkit.run_comparison, *words, out=tmp_path / "c", **{"seed": 0, **keys})
    assert not (tmp_path / "c").exists()


def test_the_number_of_seeds_takes_the_place_of_the_seeds(monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(asked: plan.Asked, command: str) -> NoReturn:
        raise rlkit.UserError(command)

    monkeypatch.setattr(conduct, "conduct", stop)
    refused("env=cartpole seeds=2$", rlkit.run_comparison, "ppo", "cartpole", seeds=2)
    refused("env=cartpole seed=0,1,2,3,4$", rlkit.run_comparison, "ppo", "cartpole")
    refused("give seed=0,1 or seeds=2, not both", rlkit.run_comparison, "ppo", "cartpole", range(2), seeds=2)


@pytest.mark.slow
def test_a_gymnasium_id_is_compared_and_nothing_is_printed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    keys = {"out": tmp_path / "c", "iterations": 1, "evaluation_episodes": 2, "evaluations": 0}
    found = rlkit.run_comparison("ppo", "CartPole-v1", 0, quiet=True, workers=1, **keys)
    assert capfd.readouterr().out == ""
    (run,) = found.runs
    assert "id: CartPole-v1" in (Path(str(run["folder"])) / "config.yaml").read_text()


@pytest.mark.parametrize(
    ("words", "keys", "says"),
    [
        (("ppo", "cartpole"), {"on_iteration": 3}, "on_iteration=3 is not understood: give a function"),
        (("ppo", "cartpole"), {"algo.name": "dqn"}, "'algo.name=dqn' is a second spelling: write algo=dqn"),
        (("ppo", "cartpole"), {"run.seed": 2}, "'run.seed=2' is a second spelling: write seed=2"),
        (("ppo", "CartPole-v1"), {"env.id": "x"}, "env.id=x would take the place of the argument env"),
        (("ppo", "cartpole"), {"env.name": "gym"}, "env.name=gym would take the place of the argument env"),
        (("ppo", "no_such_module:Walk"), {}, "env.entry=no_such_module:Walk: there is no module 'no_such_module' here"),
        (("ppo", f"{__name__}:Wolk"), {}, "env.entry=.*:Wolk: .* has no class or function Wolk"),
    ],
    ids=str,
)
def test_what_cannot_be_trained(words: Any, keys: Any, says: str, tmp_path: Path) -> None:
    refused(says, rlkit.train, *words, out=tmp_path / "r", **{**SHORT, **keys})
    assert not (tmp_path / "r").exists()


def test_a_run_that_goes_on_is_told_nothing_of_another(walked: rlkit.Run) -> None:
    refused("resume=x: this run itself is resumed", walked.resume, resume="x", quiet=True)
    refused("on_iteration='x' is not understood", walked.resume, on_iteration="x", quiet=True)


def test_trust_is_given_where_a_run_is_opened(walked: rlkit.Run) -> None:
    for method in (walked.evaluate, walked.resume):
        refused(r"trust=True: this run is open already; rlkit.load\(FOLDER, trust=...\) takes it", method, trust=True)


def test_a_key_of_evaluate_that_is_none_is_told_which_there_are(walked: rlkit.Run) -> None:
    refused("no key 'episode': did you mean episodes.*threads, seed$", walked.evaluate, episode=3)


def test_samples_of_a_control_run_are_named(walked: rlkit.Run) -> None:
    refused("samples counts correct answers", walked.evaluate, samples=2)
    refused("pass_at counts correct answers", walked.evaluate, pass_at=(1,))


@pytest.mark.slow
def test_another_environment_does_not_take_the_place_of_the_runs(walked: rlkit.Run, tmp_path: Path) -> None:
    refused(r"env= is .*:Other, and the run was made on .*:Walk: give that", rlkit.load, walked.folder, env=Other)
    refused("and the run was made on", rlkit.load, walked.folder, env=lambda: Walk())
    for same in (Walk, Walk()):
        assert rlkit.load(walked.folder, env=same).evaluate(episodes=2) == walked.evaluate(episodes=2)
    unnamed = rlkit.train("ppo", Walk(), out=tmp_path / "r", **SHORT)
    refused("env= has other observations or actions than", rlkit.load, unnamed.folder, env=Wide)
    refused("env= has other observations or actions than", rlkit.Run(unnamed.folder, factory=Wide).resume, quiet=True)


@pytest.mark.slow
def test_the_settings_of_torch_of_whoever_calls_are_not_those_of_the_run(tmp_path: Path) -> None:
    plain = rlkit.train("ppo", Walk, out=tmp_path / "plain", **SHORT)
    torch.set_default_dtype(torch.float64)
    try:
        with torch.inference_mode():
            found = rlkit.train("ppo", Walk, out=tmp_path / "other", **SHORT)
            assert found.policy.predict([0.5]) == plain.policy.predict([0.5])
            assert found.evaluate(episodes=2)["greedy"] == plain.evaluate(episodes=2)["greedy"]
            assert torch.get_default_dtype() == torch.float64 and torch.is_inference_mode_enabled()
        with torch.no_grad():
            found.resume(iterations=2, quiet=True)
            assert not torch.is_grad_enabled()
        with torch.device("meta"):
            rlkit.load(found.folder, trust=True).resume(iterations=3, quiet=True)
            assert torch.empty(1).device.type == "meta"
    finally:
        torch.set_default_dtype(torch.float32)
    for length in (2, 3):
        plain.resume(iterations=length, quiet=True)
    assert not differences(plain.folder, found.folder)


def test_texts_do_not_depend_on_the_settings_of_torch(told: rlkit.Run) -> None:
    one, other = (rlkit.load(told.folder).policy for _ in range(2))
    torch.set_default_dtype(torch.float64)
    try:
        found = one.complete(["2?"], n=3)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found == other.complete(["2?"], n=3)


def test_autocast_of_whoever_calls_is_not_of_the_run(told: rlkit.Run, walked: rlkit.Run, tmp_path: Path) -> None:
    """It would act, write and learn in bfloat16."""
    one, other = (rlkit.load(told.folder).policy for _ in range(2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found, action = one.complete(["2?"], n=3), walked.policy.predict([0.5])
        assert rlkit.train("ppo", "pendulum", out=tmp_path / "r", **SHORT).summary
        assert torch.is_autocast_enabled("cpu")
    assert found == other.complete(["2?"], n=3) and action == walked.policy.predict([0.5])


@pytest.mark.parametrize("value", [10**5000, [10**5000], {"a": 10**5000}], ids=["number", "list", "mapping"])
def test_a_number_that_python_cannot_write_is_one_line(value: Any, tmp_path: Path) -> None:
    says = "^env.kwargs is a number of thousands of digits: give a smaller one$"
    refused(says, rlkit.train, "ppo", "CartPole-v1", out=tmp_path / "r", **{"env.kwargs": value})
    words: tuple[Any, ...] = ("ppo", "cartpole", [10**5000])
    refused("^seed is a number of thousands", rlkit.run_comparison, *words, out=tmp_path / "c")


@pytest.mark.parametrize("given", [None, 3, b"runs/mine", ["runs/mine"]])
def test_what_is_no_path_is_no_run_folder(given: Any) -> None:
    with pytest.raises(rlkit.UserError, match=r"^.+ is not the path of a run folder: give text or a Path$"):
        rlkit.load(given)


def test_a_reward_itself_is_told_to_give_its_place(tmp_path: Path) -> None:
    def short(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
        return [1.0 for _ in completions]

    for given in (short, [short, "./mine.py:long"]):
        with pytest.raises(rlkit.UserError, match=r"env.reward is short itself, .* env.reward='./mine.py:short'"):
            rlkit.train("grpo", "text", out=tmp_path / "r", **TEXT, **{"env.reward": given})
    assert not (tmp_path / "r").exists()
