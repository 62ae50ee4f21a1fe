"""A checkpoint with a right checksum and another content: one line, and nothing is set that is not saved."""

import copy
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.resuming import REWARD

from rlkit import evaluate, run
from rlkit.api import UserError
from rlkit.recording import checkpoint

RUN = ["iterations=4", "evaluation_episodes=2", "validation_episodes=2", "threads=1", "measure=latest"]
DQN = ["algo=dqn", "env=cartpole", "algo.warmup_steps=16", "algo.capacity=64", "algo.batch_size=8", "algo.n_step=2"]
RUNS = {
    "table": ["algo=sarsa", "env=frozenlake", "env.rows=2"],
    "dqn": [*DQN, "algo.prioritized=true", "algo.hold=3", "policy.normalize=true", "env.rows=2"],
    "text": ["algo=ppo", "env=gsm8k", REWARD, "env.train=8", "env.test=2", "env.validation=2", "env.rows=2"],
}
RUNS["text"] += ["env.max_tokens=8", "algo.kl_coef=0.1"]
Change = Callable[[dict[str, Any]], Any]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("finished")
    for name, words in RUNS.items():
        assert run.main([*words, *RUN, f"out={folder / name}"]) == 0
    return {name: folder / name for name in RUNS}


def resumed(source: Path, folder: Path, change: Change, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    """Go on from a checkpoint that was changed and given a checksum that fits."""
    shutil.copytree(source, folder)
    state = checkpoint.load(folder)
    change(state)
    checkpoint.save(folder, state)
    capsys.readouterr()
    code = run.main([f"resume={folder}", "iterations=6", "trust=true"])
    return code, capsys.readouterr().err


def leaves(state: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all that a state holds."""
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    return [path, *(inner for key, item in items for inner in leaves(item, (*path, key)))]


def at(state: Any, path: tuple[Any, ...]) -> Any:
    for key in path:
        state = state[key]
    return state


SLOW = pytest.mark.slow
OTHER: list[Any] = ["text", None, [], {}, 2.5, -1, torch.zeros(3, 7), torch.tensor(float("nan")), 10**30]


# Every twelfth place of a table in each run of the tests, and all of all in the slow ones.
@pytest.mark.parametrize(
    ("name", "every"), [("table", 12), *(pytest.param(x, 1, marks=pytest.mark.slow) for x in RUNS)]
)
@pytest.mark.slow
def test_no_part_that_is_missing_or_of_another_kind_ends_in_a_traceback(
    name: str, every: int, finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    good = checkpoint.load(finished[name])
    places = [path for path in leaves(good) if 1 <= len(path) <= 3 and not isinstance(at(good, path[:-1]), tuple)]
    bad = []
    for number, path in [*enumerate(places)][::every]:
        value = OTHER[number % len(OTHER)]

        def change(state: dict[str, Any], path: tuple[Any, ...] = path, value: Any = value) -> None:
            inside = at(state, path[:-1])
            if value is None and isinstance(inside, dict):
                del inside[path[-1]]
            else:
                inside[path[-1]] = copy.deepcopy(value)

        code, told = resumed(finished[name], tmp_path / "r", change, capsys)
        shutil.rmtree(tmp_path / "r")
        if (code, told.count("\n")) not in ((0, 0), (0, 1), (1, 1), (2, 1)):
            bad.append((path, value, told[-300:]))
    assert not bad, "\n".join(map(repr, bad))


def put(*path: Any, value: Any) -> Change:
    def change(state: dict[str, Any]) -> None:
        at(state, path[:-1])[path[-1]] = value

    return change


def shorter(state: dict[str, Any]) -> None:
    state["parts"]["policy"]["q.weight"] = state["parts"]["policy"]["q.weight"][:-1]


def without(*path: Any) -> Change:
    def change(state: dict[str, Any]) -> None:
        del at(state, path[:-1])[path[-1]]

    return change


FOREIGN = {
    "of another seed": (put("run", "seed", value=7), "is of another run"),
    "of several seeds": (put("run", "seed", value=np.zeros(2)), "is of another run"),
    "of no seed": (put("run", value=np.zeros(2)), "is of another run"),
    "of half an update": (
        put("progress", "doctor", "update", value=[1.0]),
        "does not fit this run (ValueError: an",
    ),
    "without parts": (without("parts"), "its checkpoint is not that of a run"),
    "without the policy": (without("parts", "policy"), "its checkpoint has no 'policy', which Sarsa needs"),
    "with a part more": (put("parts", "critic", value={}), "its checkpoint has a 'critic', which Sarsa has not"),
    "of complex numbers": (
        lambda state: state["parts"]["policy"].update({"q.weight": state["parts"]["policy"]["q.weight"] * 1j}),
        "'policy' of its checkpoint does not fit this run (TypeError: q.weight is of complex64, not float32)",
    ),
    "of doubles": (
        lambda state: state["parts"]["policy"].update({"q.weight": state["parts"]["policy"]["q.weight"].double()}),
        "'policy' of its checkpoint does not fit this run (TypeError: q.weight is of float64, not float32)",
    ),
    "of whole numbers": (
        lambda state: state["parts"]["policy"].update({"q.weight": state["parts"]["policy"]["q.weight"].char()}),
        "'policy' of its checkpoint does not fit this run (TypeError: q.weight is of int8, not float32)",
    ),
    "of another shape": (shorter, "'policy' of its checkpoint does not fit this run (RuntimeError: Error(s) in"),
    "counting backwards": (
        put("progress", "iteration", value=-3),
        "'progress' of its checkpoint does not fit this run",
    ),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_what_is_foreign_is_named(
    what: str, finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = FOREIGN[what]
    code, told = resumed(finished["table"], tmp_path / "r", change, capsys)
    assert code == 2 and told.count("\n") == 1 and words in told


def test_only_what_is_declared_is_ever_set(
    finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def change(state: dict[str, Any]) -> None:
        state["numbers"] |= {"config": 1, "rollout": 2, "__class__": 3, "policy.forward": 4, "buffer.epochs": 5}

    code, told = resumed(finished["table"], tmp_path / "r", change, capsys)
    assert code == 0 and told.count("\n") == 1
    assert "has __class__, buffer.epochs, config, policy.forward, rollout, which Sarsa no longer saves" in told


def test_a_checkpoint_of_another_run_is_refused(
    finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for source, target in (("table", "dqn"), ("dqn", "table"), ("text", "dqn"), ("dqn", "text")):
        folder = tmp_path / f"{source}-{target}"
        shutil.copytree(finished[target], folder)
        for path in (folder / "checkpoints").iterdir():
            path.unlink()
        shutil.copy(finished[source] / "checkpoints" / "latest.safetensors", folder / "checkpoints")
        capsys.readouterr()
        assert run.main([f"resume={folder}", "iterations=6", "trust=true"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "is of another run" in told


REPLAYED: dict[str, tuple[Change, str]] = {
    "fewer steps": (lambda state: cut(state, "store", "reward"), "'buffer' of its checkpoint does not fit this run"),
    "no steps": (put("parts", "buffer", "store", "reward", value=0), "'buffer' of its checkpoint does not fit"),
    "doubles": (
        lambda state: doubled(state, "buffer", "store"),
        "steps of another kind than are played",
    ),
    "other moments": (
        lambda state: state["parts"]["optimizer"]["state"][0].update(
            exp_avg=state["parts"]["optimizer"]["state"][0]["exp_avg"].char()
        ),
        "'optimizer' of its checkpoint does not fit this run (TypeError: exp_avg is of int8, not float32)",
    ),
    "a key less": (
        without("parts", "buffer", "store", "reward"),
        "steps of another kind than are played",
    ),
    "a text that waits": (put("parts", "window", "waiting", "reward", value="text"), "'window' of its checkpoint does"),
    "doubles that wait": (lambda state: doubled(state, "window", "waiting"), "steps of another kind than are played"),
    "held by fewer rows": (put("parts", "explorer", "held", value=torch.zeros(1, dtype=torch.long)), "'explorer' of"),
    "frozen": (put("frozen", "policy", value=["none"]), "'frozen' of its checkpoint does not fit this run (ValueError"),
    "frozen by a number": (put("frozen", value=3), "'frozen' of its checkpoint does not fit this run (AttributeError"),
    "betas": (put("parts", "optimizer", "param_groups", 0, "betas", value=(0.9, "x")), "'optimizer' of its checkpoint"),
}


def cut(state: dict[str, Any], section: str, key: str) -> None:
    state["parts"]["buffer"][section][key] = state["parts"]["buffer"][section][key][:-1]


def doubled(state: dict[str, Any], part: str, section: str) -> None:
    state["parts"][part][section]["reward"] = state["parts"][part][section]["reward"].double()


@pytest.fixture(scope="module")
def replaying(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("replaying") / "run"
    words = ["algo.n_step=3", "algo.hold=4", "algo.capacity=60", "algo.warmup_steps=8", "env.rows=2", "algo.tau=none"]
    assert run.main(["algo=dqn", "env=cartpole", *words, "iterations=5", "evaluation_episodes=1", f"out={folder}"]) == 0
    return folder


@pytest.mark.parametrize("what", REPLAYED)
def test_a_replay_of_another_kind_is_one_line(
    what: str, replaying: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words = REPLAYED[what]
    code, told = resumed(replaying, tmp_path / "r", change, capsys)
    assert code == 2 and told.count("\n") == 1 and words in told


def test_a_replay_of_another_capacity_is_one_line(
    replaying: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(replaying, folder)
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("capacity: 60", "capacity: 50"))
    capsys.readouterr()
    assert run.main([f"resume={folder}", "iterations=8"]) == 2
    assert "'buffer' of its checkpoint does not fit this run" in capsys.readouterr().err


STRUCTURES = ['{"$tensor": "gone"}', '{"$items": [[[], 1]]}', '{"$items": [1]}', "[" * 10**5, "nan", "[]", "3"]


@pytest.mark.parametrize("structure", STRUCTURES)
def test_a_structure_that_fits_no_tensors_is_damage(structure: str, tmp_path: Path) -> None:
    metadata = {"iteration": "1", "structure": structure}
    (tmp_path / "checkpoints").mkdir()
    whole = metadata | {"checksum": checkpoint._checksum(metadata, {})}
    save_file({}, tmp_path / "checkpoints" / "latest.safetensors", whole)
    with pytest.raises(UserError, match=r"latest\.safetensors is damaged \((its structure|it is not a checkpoint)"):
        checkpoint.load(tmp_path)


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("without parts", "its checkpoint is not that of a run"),
        ("without the policy", "its checkpoint has no 'policy', which Sarsa needs"),
        ("of another shape", "'policy' of its checkpoint does not fit this run (RuntimeError: Error(s) in"),
        ("counting backwards", "'progress' of its checkpoint does not fit this run"),
    ],
)
def test_what_is_foreign_is_not_measured(
    what: str, words: str, finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(finished["table"], folder)
    state = checkpoint.load(folder)
    FOREIGN[what][0](state)
    for name in ("latest", "best"):
        checkpoint.save(folder, state, name)
        capsys.readouterr()
        assert evaluate.main([str(folder), "episodes=2", f"checkpoint={name}"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and words in told


def test_a_table_that_is_not_finite_is_not_measured(
    finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(finished["table"], folder)
    state = checkpoint.load(folder)
    for value in (math.nan, -math.inf):
        next(iter(state["parts"]["policy"].values())).view(-1)[0] = value
        checkpoint.save(folder, state)
        assert evaluate.main([str(folder), "episodes=2"]) == 2
        told = capsys.readouterr().err
        assert told.count("\n") == 1 and "its checkpoint holds what is not finite, policy." in told


def test_a_best_checkpoint_of_another_run_is_one_line(
    finished: dict[str, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "r"
    shutil.copytree(finished["table"], folder)
    shutil.copy(finished["dqn"] / "checkpoints" / "latest.safetensors", folder / "checkpoints" / "best.safetensors")
    state = checkpoint.load(folder)
    state["progress"]["best"] = 1e30
    checkpoint.save(folder, state)
    assert run.main([f"resume={folder}", "measure=best"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "its checkpoint is of another run ({'algorithm': 'DQN'" in told
