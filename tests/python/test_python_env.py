"""Gymnasium environments of your own: by class, function, id or object, from Python and from the command."""

import copy
import pickle
import threading
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, Sequence, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.processes import python

import rlkit
from rlkit import policies
from rlkit.control import ControlEnv
from rlkit.python.functions import several
from rlkit.python.keys import copies, line
from rlkit.python.policy import Policy
from rlkit.recording import checkpoint
from rlkit.settings import schema

SHORT: dict[str, Any] = {"iterations": 1, "evaluation_episodes": 3, "validation_episodes": 2, "quiet": True}
PACKAGE = """
import gymnasium
import numpy as np
from gymnasium.spaces import Box, Discrete


class Hill(gymnasium.Env):
    observation_space, action_space = Box(-9, 9, (2,), np.float64), Discrete(2, start=3)

    def __init__(self, size=3):
        self.size = size

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.at = self.np_random.uniform(-1, 1)
        return np.array([self.at, 1.0]), {}

    def step(self, action):
        assert action in (3, 4)
        self.at += 2 * int(action) - 7
        return np.array([self.at, 1.0]), float(self.at), abs(self.at) > self.size, False, {}


gymnasium.register("Hill-v0", Hill, max_episode_steps=9)
"""


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a package that registers an environment when it is imported."""
    folder = tmp_path_factory.mktemp("site")
    (folder / "hill_pkg").mkdir()
    (folder / "hill_pkg" / "__init__.py").write_text(PACKAGE)
    return folder


class Ladder(gymnasium.Env):  # type: ignore[type-arg]
    """Climb with a continuous action; nothing ends it."""

    observation_space = Discrete(5, start=2)
    action_space = Box(np.array([[-1.0, 0.0]], np.float32), np.array([[1.0, 2.0]], np.float32))

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict[str, Any]]:
        super().reset(seed=seed)
        self.at = 2 + int(self.np_random.integers(5))
        return self.at, {}

    def step(self, action: Any) -> tuple[int, float, bool, bool, dict[str, Any]]:
        assert self.action_space.contains(action), action
        self.at = min(6, max(2, self.at + int(action[0, 1] > 1) * 2 - 1))
        return self.at, float(self.at), False, False, {}


def make_ladder() -> Ladder:
    return Ladder()


def train(env: Any, out: Path, **keys: Any) -> rlkit.Run:
    return rlkit.train("ppo", env=env, out=out, **{**SHORT, "env.step_limit": 7, **keys})


def entry(run: rlkit.Run) -> str:
    (line,) = [line for line in (run.folder / "config.yaml").read_text().splitlines() if line.startswith("  entry: ")]
    return line.removeprefix("  entry: ").strip("'")


@pytest.mark.slow
def test_every_way_to_give_an_environment_is_the_same_run(tmp_path: Path) -> None:
    module = Ladder.__module__
    ways = {
        f"{module}:Ladder": Ladder,
        f"{module}:make_ladder": make_ladder,
        "<lambda, given in Python>": lambda: Ladder(),
        "<Ladder, given in Python>": Ladder(),
    }
    found = []
    for i, (named, env) in enumerate(ways.items()):
        run = train(env, tmp_path / str(i))
        assert entry(run) == named
        assert len(run.evaluate(episodes=3)["sampled"]["lengths"]) == 3
        assert set(run.evaluate(episodes=3)["sampled"]["lengths"]) == {7}, "the time limit"
        found.append({k: x.tolist() for k, x in checkpoint.load(run.folder)["parts"]["policy"].items()})
    assert all(parameters == found[0] for parameters in found)


def test_a_run_on_an_environment_without_a_name_names_the_call_that_continues_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    keys: dict[str, Any] = {"iterations": 2, "quiet": False, "on_iteration": lambda metrics: True}
    run = train(Ladder(), tmp_path / "run", **keys)
    assert f"\ninterrupted; continue with:\n  rlkit.load('{run.folder}', env=...).resume()\n" in capsys.readouterr().out
    assert len(rlkit.load(run.folder, env=Ladder).resume(quiet=True).metrics) == 2
    train(Ladder, tmp_path / "named", **keys)
    named = f"python -m rlkit.run resume={tmp_path / 'named'} trust=true"
    assert f"\ninterrupted; continue with:\n  {named}\n" in capsys.readouterr().out


@pytest.mark.slow
def test_what_has_a_name_loads_by_it_and_what_has_none_needs_the_environment(tmp_path: Path) -> None:
    named, unnamed = train(Ladder, tmp_path / "named"), train(Ladder(), tmp_path / "unnamed")
    with pytest.raises(rlkit.UserError, match=r"code from outside rlkit: env\.entry=.*Ladder; trust=true"):
        rlkit.load(named.folder)
    assert rlkit.load(named.folder, trust=True).policy.predict(2).shape == (1, 2)
    assert rlkit.load(named.folder, env=Ladder).policy.predict(2).shape == (1, 2)
    for trust in (False, True):
        with pytest.raises(rlkit.UserError, match=r"has no name to import it by: .*rlkit\.load\(FOLDER, env=\.\.\.\)"):
            rlkit.load(unnamed.folder, trust=trust)
    for env in (Ladder, Ladder(), make_ladder):
        loaded = rlkit.load(unnamed.folder, env=env)
        assert loaded.evaluate(episodes=3) == unnamed.evaluate(episodes=3)
    assert unnamed.evaluate(episodes=3, against=loaded)["against"]["ties"] == 3
    longer = loaded.resume(iterations=2, quiet=True).metrics
    assert [line["rollout/return"] for line in longer] == [
        line["rollout/return"] for line in train(Ladder, tmp_path / "longer", iterations=2).metrics
    ]
    with pytest.raises(rlkit.UserError, match="give the class, function or object"):
        rlkit.load(unnamed.folder, env="hill_pkg:Hill-v0")
    done = python(tmp_path, "-m", "rlkit", "evaluate", str(unnamed.folder))
    assert done.returncode == 2 and "has no name to import it by" in done.stderr


def test_an_action_is_in_the_environments_own_form(tmp_path: Path) -> None:
    policy = train(Ladder, tmp_path / "r").policy
    for greedy in (True, False):
        one, many = policy.predict(6, greedy=greedy), policy.predict([2, 3, 6], greedy=greedy)
        assert one.shape == (1, 2) and many.shape == (3, 1, 2) and many.dtype == np.float32
        assert all(Ladder.action_space.contains(action) for action in (one, *many))
    assert (policy.predict(np.int64(3)) == policy.predict(np.array([3]))[0]).all()
    for wrong, says in ((1, "give 2 to 6"), ([2, 7], "give 2 to 6"), (2.5, "give 2 to 6"), ([[2]], "does not fit")):
        with pytest.raises(rlkit.UserError, match=says):
            policy.predict(wrong)


@pytest.mark.slow
def test_a_registered_id_imports_its_module(package: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(package)
    run = train("hill_pkg:Hill-v0", tmp_path / "r", **{"env.step_limit": 0})
    assert max(run.evaluate(episodes=20)["sampled"]["lengths"]) <= 9
    assert run.policy.predict([0.5, 1.0]) in (3, 4)
    assert set(run.policy.predict(np.zeros((9, 2)), greedy=False)) <= {3, 4}
    with pytest.raises(rlkit.UserError, match=r"give \(2,\), or a batch"):
        run.policy.predict(np.zeros(3))
    sized = train("gym", tmp_path / "s", **{"env.entry": "hill_pkg:Hill", "env.kwargs": {"size": 100}})
    assert set(sized.evaluate(episodes=3)["sampled"]["lengths"]) == {7}
    with pytest.raises(rlkit.UserError, match="did you mean Hill-v0"):
        train("hill_pkg:Hull-v0", tmp_path / "x")
    with pytest.raises(rlkit.UserError, match=r"there is no module '\./hill\.py' here"):
        train("gym", tmp_path / "x", **{"env.id": "./hill.py:Hill-v0"})


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, 3, 1.0, [3, 4.5], [], {"a\u2028": "😀"}),
        *("none", "1", "true", "{", "two words", "a: b", "a #b", "a\nb", "\u2028: \x85"),
    ],
    ids=str,
)
def test_a_keyword_of_any_type_is_as_it_was_given_in_the_run_and_in_its_command(value: object) -> None:
    given = line({"env": "gym", "env.kwargs.size": value})
    word = given.argv[-1].removeprefix("env.kwargs.size=")
    for found in (given.env["kwargs.size"], word):
        read = schema.validate("env.kwargs.size", found, Any)
        assert (read, type(read)) == (value, type(value))


def test_keywords_of_several_values_are_problems_of_a_comparison() -> None:
    assert several("env.kwargs.size", [3, "4", None]) == '3;"4";null'
    assert several("gym:env.kwargs.size", [(3, 4), np.zeros(1)]) == "[3, 4];[0.0]"
    assert several("env.kwargs", {"size": np.arange(2)}) == '{"size": [0, 1]}'


def test_a_keyword_that_no_file_holds_is_refused(tmp_path: Path) -> None:
    for keys in ({"env.kwargs": {"size": object()}}, {"env.kwargs.size": object()}):
        with pytest.raises(rlkit.UserError, match=r"^env\.kwargs.* holds a value of type object, which config\.yaml"):
            train("CartPole-v1", tmp_path / "r", **keys)


@pytest.mark.slow
def test_the_command_finds_it_in_the_folder_where_it_is_given(package: Path, tmp_path: Path) -> None:
    words = ["algo=ppo", "env=gym", "iterations=1", "evaluation_episodes=2", "validation_episodes=2"]
    done = python(package, "-m", "rlkit", "run", *words, "env.id=hill_pkg:Hill-v0", f"out={tmp_path / 'r'}")
    assert done.returncode == 0, done.stderr
    done = python(package, "-m", "rlkit", "evaluate", str(tmp_path / "r"), "episodes=2", "trust=true")
    assert done.returncode == 0, done.stderr
    done = python(package, "-m", "rlkit", "run", *words, "env.id=hill_pgk:Hill-v0")
    assert done.returncode == 2 and "there is no module 'hill_pgk' here" in done.stderr and done.stderr.count("\n") == 1


def test_an_error_inside_of_a_module_is_not_the_users_mistake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "broken_pkg.py").write_text("import no_such_package\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_package"):
        train("broken_pkg:My-v0", tmp_path / "r")


class Mapped(Ladder):
    observation_space = Dict({"at": Sequence(Discrete(3))})  # type: ignore[assignment]


def locked() -> Ladder:
    env = Ladder()
    env.lock = threading.Lock()  # type: ignore[attr-defined]
    return env


BAD = {
    "a class of something else": (int, "is not an environment"),
    "a number": (3, "is not an environment"),
    "a function that makes something else": (lambda: 3, "must inherit from the gymnasium.Env class"),
    "an observation that is not supported": (Mapped, "observation space at at Sequence"),
    "an object that cannot be copied": (locked, "cannot be copied .*: give its class, or a function that makes one"),
    "an object with arguments": (Ladder, "cannot be made"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_environment_is_one_line(case: str, tmp_path: Path) -> None:
    env, says = BAD[case]
    keys: dict[str, Any] = {}
    if case == "an object that cannot be copied":
        env = env()
    if case == "an object with arguments":
        env, keys = env(), {"env.kwargs": {"size": 3}}
    with pytest.raises(rlkit.UserError, match=says) as error:
        train(env, tmp_path / "r", **keys)
    assert "\n" not in str(error.value) and not (tmp_path / "r").exists()


def test_a_vector_environment_is_refused(tmp_path: Path) -> None:
    vector = gymnasium.make_vec("CartPole-v1", 2)
    with pytest.raises(rlkit.UserError, match="give one environment"):
        train(vector, tmp_path / "r")
    vector.close()


def test_an_object_is_copied_and_never_stepped(tmp_path: Path) -> None:
    class Counting(Ladder):
        steps = 0

        def step(self, action: Any) -> Any:
            self.steps += 1
            return super().step(action)

    env = Counting()
    before = copy.deepcopy(vars(env))
    train(env, tmp_path / "r")
    assert vars(env).keys() == before.keys() and env.steps == 0


class Paying(Ladder):
    """It pays `pay` for each step."""

    pay = 1.0

    def step(self, action: Any) -> Any:
        observation, _, *rest = super().step(action)
        return observation, self.pay, *rest


def test_a_run_stays_on_the_object_as_it_was_given(tmp_path: Path) -> None:
    """Whoever gave it may go on with it: a run that was measured alike each time would not be."""
    env = Paying()
    run = train(env, tmp_path / "r")
    env.pay = 5.0
    assert run.evaluate(episodes=2)["greedy"]["mean"] == 7.0
    again = pickle.loads(pickle.dumps(run))
    assert again.evaluate(episodes=2)["greedy"]["mean"] == 7.0


def test_an_object_is_drawn_only_in_the_way_it_was_made_for() -> None:
    draw = copies(gymnasium.make("CartPole-v1", render_mode="rgb_array"))
    assert draw(render_mode="rgb_array").render_mode == "rgb_array"
    draw = copies(gymnasium.make("CartPole-v1"))
    with pytest.raises(rlkit.UserError, match=r"render_mode=None, so it cannot be drawn: make it with render_mode=rgb"):
        draw(render_mode="rgb_array")
    assert draw().render_mode is None


def test_predict_gives_an_action_as_its_tuples_are_nested() -> None:
    class Nested(Ladder):
        action_space = Tuple((Discrete(2), Tuple((Discrete(3, start=5), Discrete(4)))))  # type: ignore[assignment]

    env = ControlEnv(lambda n: SyncVectorEnv([Nested] * n, autoreset_mode=AutoresetMode.DISABLED), rows=1)
    policy = Policy(env, policies.Network(hidden=(4,)).actor(env))
    first, (second, third) = policy.predict(3)
    assert (int(first), (int(second), int(third))) in Nested.action_space


@pytest.mark.slow
def test_predict_takes_the_mask_of_an_info_beside_the_observation() -> None:
    run = rlkit.train("q_learning", "Taxi-v4", env_steps=64, **SHORT | {"iterations": None})
    observation, info = gymnasium.make("Taxi-v4").reset(seed=0)
    action = run.policy.predict({"observation": observation, "action_mask": info["action_mask"]})
    assert info["action_mask"][action]
    with pytest.raises(
        rlkit.UserError, match=r"give \{'observation': OBSERVATION, 'action_mask': info\['action_mask'\]\}"
    ):
        run.policy.predict(observation)
