"""The Python API: what the command does, in this process."""

import importlib.util
import json
import multiprocessing
import subprocess
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support import fakes
from support.processes import python
from support.resuming import differences
from support.trained import PPO, ROOT, RUNS, SHORT

import rlkit
from rlkit import run
from rlkit.python.functions import environments


@pytest.fixture(scope="module")
def commanded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same runs as commands, in a process of their own."""
    root, commands = tmp_path_factory.mktemp("commands"), []
    for algo, env, keys in reversed(RUNS):
        values = {key: ",".join(map(str, x)) if isinstance(x, tuple) else x for key, x in keys.items()}
        words = [f"algo={algo}", f"env={env}", *(f"{key}={x}" for key, x in values.items()), f"out={root / algo}"]
        commands.append(words)
    done = python(ROOT, "-c", f"from rlkit import run\nassert [run.main(words) for words in {commands!r}] == [0, 0, 0]")
    assert done.returncode == 0, done.stderr
    return root


@pytest.mark.slow
@pytest.mark.parametrize("algo", [algo for algo, *_ in RUNS])
def test_it_is_the_run_of_the_command_bit_for_bit(algo: str, trained: dict[str, rlkit.Run], commanded: Path) -> None:
    ours, theirs = trained[algo].folder, commanded / algo
    assert not differences(ours, theirs)
    one, other = ((f / "config.yaml").read_text().replace(str(f), "").partition("\n")[2] for f in (ours, theirs))
    assert one == other
    files = [{path.name for path in f.iterdir() if "tfevents" not in path.name} for f in (ours, theirs)]
    assert files[0] == files[1]


@pytest.mark.slow
def test_the_first_line_of_its_configuration_repeats_it(trained: dict[str, rlkit.Run]) -> None:
    said = (trained["ppo"].folder / "config.yaml").read_text().partition("\n")[0]
    assert said.endswith(
        "python -m rlkit.run algo=ppo env=cartpole iterations=4 evaluate_every=2 evaluation_episodes=2 "
        "validation_episodes=2 algo.lr=0.001 policy.hidden=8,8"
    )


def test_a_run_can_be_pickled_after_its_policy_was_used(trained: dict[str, rlkit.Run]) -> None:
    import pickle

    run = trained["ppo"]
    action = run.policy.predict(np.zeros(4))
    assert run._opened is not None
    copy = pickle.loads(pickle.dumps(run))
    assert copy.folder == run.folder and copy._opened is None and run._opened is not None
    assert copy.policy.predict(np.zeros(4)) == action


WRONG: list[tuple[str, Any, dict[str, Any]]] = [
    ("dqm", "cartpole", {}),
    ("ppo", "cartpol", {}),
    ("ppo", "cartpole", {"sed": 1}),
    ("ppo", "cartpole", {"algo.lrr": 1e-3}),
    ("ppo", "cartpole", {"algo.lr": -0.5}),
    ("ppo", "cartpole", {"algo.gamma": 1.5}),
    ("ppo", "cartpole", {"policy.hidden": (8, 0)}),
    ("dqn", "pendulum", {}),
    ("ppo", "cartpole", {"iterations": 1, "env_steps": 2}),
    ("ppo", "gym", {"env.id": "Acrobt-v1"}),
]


@pytest.mark.parametrize(("algo", "env", "keys"), WRONG, ids=str)
def test_a_mistake_is_the_line_of_the_command(
    algo: str, env: Any, keys: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(rlkit.UserError) as error:
        rlkit.train(algo, env, out=tmp_path / "r", **keys)
    words = {key: ",".join(map(str, x)) if isinstance(x, tuple) else x for key, x in keys.items()}
    capsys.readouterr()
    assert run.main([f"algo={algo}", f"env={env}", *(f"{key}={x}" for key, x in words.items())]) == 2
    assert capsys.readouterr().err == f"rlkit: {error.value}\n"
    assert not (tmp_path / "r").exists()


def test_numbers_of_numpy_and_lists_are_values_too(tmp_path: Path) -> None:
    keys = {"seed": np.int64(3), "algo.lr": np.float32(0.5), "policy.hidden": [4, np.int64(2)], "algo.epochs": 2}
    found = rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / "r", iterations=1, **SHORT, **keys)
    assert "seed: 3\n" in (found.folder / "config.yaml").read_text()
    assert found.summary is not None and found.summary["seed"] == 3


def test_a_run_tells_what_it_measured(trained: dict[str, rlkit.Run]) -> None:
    found = trained["ppo"]
    assert [line["iteration"] for line in found.metrics] == [1, 2, 3, 4]
    assert found.summary == json.loads((found.folder / "summary.json").read_text())
    assert found.folder.is_absolute()
    assert repr(found).startswith("<rlkit run: ppo on cartpole, seed 0, 1,024 steps, test return ")
    assert "\n" not in repr(found)


def test_evaluate_is_what_the_command_writes(trained: dict[str, rlkit.Run], tmp_path: Path) -> None:
    for name, keys in (("ppo", {"checkpoint": "best", "seed": 5}), ("grpo", {"pass_at": (1, 2), "threads": 1})):
        there = {path.name for path in trained[name].folder.iterdir()}
        found = trained[name].evaluate(episodes=3, split="validation", **keys)
        assert {path.name for path in trained[name].folder.iterdir()} == there, "it writes nothing"
        copy = tmp_path / name
        assert subprocess.run(["cp", "-r", trained[name].folder, copy]).returncode == 0
        values = {key: ",".join(map(str, x)) if isinstance(x, tuple) else x for key, x in keys.items()}
        words = ["episodes=3", "split=validation", "trust=true", *(f"{key}={x}" for key, x in values.items())]
        assert rlkit_evaluate(str(copy), *words) == 0
        (written,) = copy.glob("evaluation-validation*.json")
        assert json.loads(written.read_text()) == json.loads(json.dumps(found))


def rlkit_evaluate(*words: str) -> int:
    from rlkit import evaluate

    return evaluate.main(words)


@pytest.mark.slow
def test_two_runs_are_tested_against_each_other(trained: dict[str, rlkit.Run], tmp_path: Path) -> None:
    other = rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / "r", **{**PPO, "iterations": 1})
    found = trained["ppo"].evaluate(episodes=3, against=other)["against"]
    assert found == trained["ppo"].evaluate(episodes=3, against=str(other.folder))["against"]
    assert found["folder"] == str(other.folder) and found["wins"] + found["ties"] + found["losses"] == 3
    with pytest.raises(rlkit.UserError, match="env is cartpole here, gsm8k there"):
        trained["ppo"].evaluate(against=trained["grpo"])


@pytest.mark.slow
def test_complete_writes_texts(trained: dict[str, rlkit.Run]) -> None:
    policy = rlkit.load(trained["grpo"].folder, trust=True).policy
    found = policy.complete(["2 + 3?\n", "4 apples and 5 more?\n"], n=3)
    assert [len(texts) for texts in found] == [3, 3] and all(isinstance(x, str) for texts in found for x in texts)
    assert policy.complete(["2 + 3?\n"], n=2, greedy=True)[0][0] == policy.complete("2 + 3?\n", greedy=True)[0][0]
    again = rlkit.load(trained["grpo"].folder, trust=True).policy
    assert again.complete(["2 + 3?\n", "4 apples and 5 more?\n"], n=3) == found
    short = policy.complete(["Tom has 4 apples."], greedy=True, max_tokens=1)[0][0]
    assert policy.complete(["Tom has 4 apples."], greedy=True)[0][0].startswith(short)
    for wrong in ({"n": 0}, {"max_tokens": 0}):
        with pytest.raises(rlkit.UserError, match="whole number of at least 1"):
            policy.complete(["2?"], **wrong)


def test_complete_ends_where_the_run_ended_answers(trained: dict[str, rlkit.Run]) -> None:
    """With env.stop nothing was learned of what stands behind such a text."""
    policy = rlkit.load(trained["grpo"].folder, trust=True).policy
    (free,) = policy.complete("Tom has 4 apples. How many has he?\n", greedy=True, max_tokens=16)[0]
    stop = free[3:5]
    env: Any = policy.env
    env.asking = replace(env.asking, stop=(stop,))
    (ended,) = policy.complete("Tom has 4 apples. How many has he?\n", greedy=True, max_tokens=16)[0]
    assert len(stop) == 2 and ended == free[: free.index(stop)]


def test_a_reward_model_writes_nothing(tmp_path: Path) -> None:
    keys = {"iterations": 1, "env.rows": 2, "env.train": 64, "env.test": 4, "env.validation": 4}
    judge = rlkit.train("reward_model", "preferences", quiet=True, out=tmp_path / "r", **keys)
    with pytest.raises(rlkit.UserError, match="is a reward model, which judges texts and writes none"):
        judge.policy.complete(["2 + 3?"])


def test_each_policy_does_its_own(trained: dict[str, rlkit.Run]) -> None:
    with pytest.raises(rlkit.UserError, match=r"use run\.policy\.predict"):
        trained["ppo"].policy.complete(["2 + 3?"])
    with pytest.raises(rlkit.UserError, match=r"use run\.policy\.complete"):
        trained["grpo"].policy.predict(np.zeros(4))


@pytest.mark.parametrize("name", ["ppo", "dqn"])
def test_what_is_predicted_greedily_is_what_evaluate_plays(name: str, trained: dict[str, rlkit.Run]) -> None:
    import gymnasium

    policy = trained[name].policy
    env, score = gymnasium.make("CartPole-v1"), 0.0
    from rlkit.settings import plugins

    module = plugins.load("envs", "cartpole")
    made = module.make(module.Config(), 0, "cpu")
    observation, _ = env.reset(seed=made.episode_seed("test", 0))
    batch = np.stack([made_observation := np.asarray(observation), made_observation + 0.1])
    assert policy.predict(batch).tolist() == [int(policy.predict(x)) for x in batch]
    done = False
    while not done:
        action = policy.predict(observation)
        assert isinstance(action, np.integer)
        observation, reward, terminated, truncated, _ = env.step(action)
        score, done = score + float(reward), terminated or truncated
    assert score > 0


def test_a_run_says_which_problem_it_plays(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {}\nalgo: {name: ppo}\nenv: {name: gym, id: Acrobot-v1}\n")
    assert repr(rlkit.load(tmp_path)).startswith("<rlkit run: ppo on gym:Acrobot-v1, seed 0, not finished")


def test_drawn_actions_come_from_the_policys_own_generator(trained: dict[str, rlkit.Run]) -> None:
    one, other = (rlkit.load(trained["ppo"].folder).policy for _ in range(2))
    torch.manual_seed(0)
    drawn = one.predict(np.zeros((64, 4)), greedy=False)
    assert set(drawn.tolist()) == {0, 1}
    torch.manual_seed(1)
    assert (other.predict(np.zeros((64, 4)), greedy=False) == drawn).all()


@pytest.mark.parametrize(
    "evaluation", ["[]", "{}", "7", '{"before": 1, "after": {}}', '{"before": {"mean": "x"}, "after": {"mean": 1}}']
)
def test_a_strangers_run_with_a_damaged_summary_can_be_printed(evaluation: str, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text("run: {seed: 3}\nalgo: {name: ppo}\nenv: {name: cartpole}\n")
    (tmp_path / "summary.json").write_text(f'{{"env_steps": 1, "evaluation": {evaluation}}}')
    assert "ppo on cartpole, seed 3, with a damaged summary.json, in " in repr(rlkit.load(tmp_path))
    after = '{"mean": 1.5, "metric": "\\u001b[2J"}'
    (tmp_path / "summary.json").write_text(f'{{"env_steps": 1, "evaluation": {{"before": {after}, "after": {after}}}}}')
    assert "1.5 → 1.5" in repr(rlkit.load(tmp_path)) and "\x1b" not in repr(rlkit.load(tmp_path))
    (tmp_path / "summary.json").write_text("[")
    assert "damaged" in repr(rlkit.load(tmp_path))


@pytest.mark.slow
def test_a_run_without_a_checkpoint_has_no_policy_and_can_go_on(tmp_path: Path) -> None:
    def fail(metrics: dict[str, float]) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rlkit.train("ppo", "cartpole", quiet=True, on_iteration=fail, out=tmp_path / "r", iterations=2, **SHORT)
    found = rlkit.load(tmp_path / "r")
    assert found.summary is None and len(found.metrics) == 1 and "not finished" in repr(found)
    with pytest.raises(rlkit.UserError, match=r"has no checkpoint yet.*run\.resume\(\)"):
        found.policy  # noqa: B018
    assert found.resume(quiet=True).policy.predict(np.zeros(4)) in (0, 1)


def test_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(rlkit.UserError, match="is not a run folder"):
        rlkit.load(tmp_path)
    with pytest.raises(rlkit.UserError, match=r"use rlkit\.load\(FOLDER\)\.resume\(\)"):
        rlkit.train("ppo", "cartpole", resume=tmp_path)
    with pytest.raises(rlkit.UserError, match="has no checkpoint 'first'"):
        found = rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / "r", iterations=1, **SHORT)
        rlkit.load(found.folder, checkpoint="first")


@pytest.mark.slow
def test_a_comparison_gives_its_tables_as_data(tmp_path: Path) -> None:
    words: dict[str, Any] = {"out": tmp_path / "c", "workers": 2, "iterations": 2, "evaluation_episodes": 2}
    words |= {"evaluations": 0, "sarsa:algo.gamma": 0.8}
    found = rlkit.run_comparison(["q_learning", "sarsa"], "gridworld", seed=range(2), **words)
    assert found.missing == [] and found.folder == tmp_path / "c" and (tmp_path / "c" / "index.html").is_file()
    assert {(row["algo"], row["env"], row["runs"]) for row in found.scores} == {
        ("q_learning", "gridworld", 2),
        ("sarsa", "gridworld", 2),
    }
    assert {"mean", "iqm", "low", "high", "env_steps", "seconds", "metric"} <= found.scores[0].keys()
    assert [{row["x"], row["y"]} for row in found.pairs] == [{"q_learning", "sarsa"}]
    assert found.results == json.loads((tmp_path / "c" / "results.json").read_text())
    assert all(rlkit.load(row["folder"]).summary for row in found.runs) and len(found.runs) == 4
    assert "gamma: 0.8" in (tmp_path / "c/runs/sarsa-gridworld-s0/config.yaml").read_text()
    done: list[rlkit.Comparison] = []  # the same call again finds all of it, off the main thread, too
    thread = threading.Thread(
        target=lambda: done.append(rlkit.run_comparison(["q_learning", "sarsa"], ["gridworld"], "0-1", **words))
    )
    thread.start()
    thread.join()
    assert done[0].scores == found.scores
    with pytest.raises(rlkit.UserError, match="did you mean workers"):
        rlkit.run_comparison("ppo", "cartpole", wrokers=2)
    with pytest.raises(rlkit.UserError, match="is not a name"):
        rlkit.run_comparison(["ppo"], [object()])  # type: ignore[list-item]


def test_a_class_in_a_module_is_compared_by_its_name() -> None:
    assert environments(fakes.Walk) == ["env=gym", "gym:env.entry=support.fakes:Walk"]


def every_function(folder: str) -> None:
    """Each function of the API twice; what cannot be repeated raises."""
    keys: dict[str, Any] = {"iterations": 2, **SHORT}
    for i in range(2):
        out = Path(folder) / str(i)
        assert "ppo" in rlkit.list_algorithms() and "cartpole" in rlkit.list_environments()
        found = rlkit.train("q_learning", "gridworld", quiet=True, out=out / "run", **keys)
        assert rlkit.load(found.folder).policy.predict(0) == found.policy.predict([0, 1])[0]
        assert found.evaluate(episodes=2) == rlkit.load(found.folder).evaluate(episodes=2)
        assert len(found.resume(iterations=3, quiet=True).metrics) == 3
        scores = rlkit.run_comparison(
            "q_learning", "gridworld", 0, out=Path(folder) / "c", **keys, evaluations=0
        ).scores
        assert scores[0]["runs"] == 1
        assert issubclass(rlkit.UserError, Exception) and rlkit.Run and rlkit.Comparison
        names = {name for name in rlkit.__all__ if not name.startswith("_")}
        assert names == {
            "Comparison", "Run", "UserError", "list_algorithms", "list_environments", "load", "run_comparison", "train",
        }  # fmt: skip


@pytest.mark.slow
def test_every_function_can_be_called_again_here_and_in_a_spawned_process(tmp_path: Path) -> None:
    every_function(str(tmp_path / "here"))
    process = multiprocessing.get_context("spawn").Process(target=every_function, args=(str(tmp_path / "there"),))
    process.start()
    process.join()
    assert process.exitcode == 0


def test_no_name_of_the_api_is_a_module() -> None:
    for name in rlkit.__all__:
        assert importlib.util.find_spec(f"rlkit.{name}") is None, name
    assert set(rlkit.__all__) <= set(dir(rlkit))
    with pytest.raises(AttributeError, match="no attribute 'tarin'"):
        rlkit.tarin  # type: ignore[attr-defined]  # noqa: B018


def test_importing_it_imports_nothing_heavy() -> None:
    code = "import sys, rlkit; rlkit.list_algorithms(); rlkit.UserError\n"
    code += "sys.exit(', '.join({'torch', 'numpy', 'gymnasium', 'pydantic', 'rich'} & sys.modules.keys()) or 0)"
    done = python(ROOT, "-c", code)
    assert done.returncode == 0, done.stderr
