"""benchmarks/control: the arithmetic of its tables on made-up lines, and that rlkit's own programs run."""

import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rlkit.settings import config
from rlkit.settings.assemble import assemble

FOLDER = Path(__file__).resolve().parents[1] / "benchmarks" / "control"
SMALL = {"ppo": {"env_steps": 512, "algo.horizon": 32}, "dqn": {"env_steps": 300, "algo.warmup_steps": 100}}


@pytest.fixture(autouse=True)
def reachable(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(FOLDER))
    yield
    for name in set(sys.modules) - before:
        if FOLDER in Path(getattr(sys.modules[name], "__file__", None) or "/").parents:
            del sys.modules[name]


@pytest.fixture
def driver() -> ModuleType:
    import side_by_side

    return side_by_side


def line(seconds: float, start: float = 2.0, **more: object) -> dict[str, Any]:
    return {"steps": 1000, "seconds": seconds, "start": start, "score": 500.0, "version": "one 1.0", "seed": 0, **more}


def test_a_ratio_is_taken_within_its_round(driver: ModuleType) -> None:
    """By hand: 3, 2 and 8 times; the ratio of the medians would be 4/2 = 2."""
    found = {"rlkit": [line(1.0), line(2.0), line(2.0)], "SB3": [line(3.0), line(4.0), line(16.0)]}
    assert driver.ratios(found, "SB3") == [3.0, 2.0, 8.0]
    assert driver.spread(driver.ratios(found, "SB3")) == "3.00 (2.00 to 8.00)"
    ours, theirs = driver.rows(found, "steps/s")[2:]
    assert ours == "| one 1.0 | 500 |  | 2.0 | 500 |"
    assert theirs == "| one 1.0 | 250 | 3.00 (2.00 to 8.00) | 2.0 | 500 |"


def test_updates_are_counted_where_there_are_any(driver: ModuleType) -> None:
    assert driver.rate(line(2.0)) == 500 and driver.rate(line(2.0, updates=100)) == 50


def test_whole_processes_are_compared_with_their_start(driver: ModuleType) -> None:
    """By hand: 1 + 2 of 4 + 2 seconds is half, 2 + 2 of 6 + 2, too; less is better."""
    goals = {"reached": True}, {"reached": False}
    found = {
        "rlkit": [line(1.0, **goals[0]), line(2.0, **goals[1])],
        "SB3": [line(4.0, **goals[0]), line(6.0, **goals[0])],
    }
    ours, theirs = driver.rows_from_start(found, "a greedy 475")[2:]
    assert ours == "| one 1.0 | 3.5 (3.0 to 4.0) |  | 2.0 | 1.5 | 1,000 | 500 | 1 of 2 |"
    assert theirs == "| one 1.0 | 7.0 (6.0 to 8.0) | 0.50 (0.50 to 0.50) | 2.0 | 5.0 | 1,000 | 500 | 2 of 2 |"


def test_the_floor_says_what_it_is_made_of(driver: ModuleType) -> None:
    parts = [
        {"environment": 1.0, "acting": 2.0},
        {"environment": 3.0, "acting": 2.0},
        {"environment": 2.0, "acting": 9.0},
    ]
    found = {"floor": [{"steps": 1000, "seconds": 0.01, "version": "floor", "parts": each} for each in parts]}
    row = "| floor: environment 2.0, acting 2.0 µs a step | 100,000 |  |  |  |"
    assert driver.rows(found, "steps/s")[2:] == [row]


def test_a_program_is_told_when_it_began_and_has_one_thread(driver: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    told = '"began": float(os.environ["BENCH_BEGAN"]), "threads": os.environ["OMP_NUM_THREADS"]'
    said = f"print(json.dumps({{{told}, **json.loads(sys.argv[1])}}))"
    program.write_text(f"import json, os, sys\nprint('noise')\n{said}\n")
    before = time.time()
    found = driver.run(driver.Side("made up", sys.executable, str(program)), {"seed": 3})
    assert before <= found["began"] <= time.time()
    assert (found["threads"], found["seed"]) == ("1", 3) and found["process"] > 0


def test_a_program_that_fails_ends_the_table_with_its_reason(driver: ModuleType, tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text("raise SystemExit('no such thing')\n")
    with pytest.raises(SystemExit, match=r"made up failed:\nno such thing"):
        driver.run(driver.Side("made up", sys.executable, str(program)), {})


def test_sides_that_are_not_there_are_left_out(
    driver: ModuleType, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = driver.parser("").parse_args(["--peers", sys.executable, "--jax", str(tmp_path / "none")])
    names = [side.name for side in driver.sides(asked, ("rlkit", "SB3", "CleanRL", "SBX", "floor"))]
    assert names == ["rlkit", "SB3", "floor"]
    said = capsys.readouterr().err
    assert "CleanRL is left out: give --cleanrl" in said and "SBX is left out: give --jax" in said
    asked = driver.parser("").parse_args(["--peers", sys.executable, "--cleanrl", str(tmp_path), "--only", "CleanRL"])
    assert [side.name for side in driver.sides(asked, ("rlkit", "SB3", "CleanRL"))] == ["CleanRL"]


def test_the_first_step_is_noted_and_the_method_put_back() -> None:
    from stopwatch import Stopwatch

    class Vector:
        calls = 0

        def step(self) -> int:
            self.calls += 1
            return self.calls

    vector, watch = Vector(), Stopwatch()
    watch.watch(vector, "step")
    assert watch.first is None and vector.step() == 1 and watch.first is not None
    first = watch.first
    assert "step" not in vars(vector) and vector.step() == 2 and watch.first == first


def test_updates_begin_after_the_warm_up() -> None:
    """By hand: 3,000 steps but 1,000, two updates each four."""
    from stopwatch import updates

    work = {"algo": "dqn", "env.rows": 2, "algo.steps": 2, "algo.updates": 2, "algo.warmup_steps": 1_000}
    assert updates(work, 3_000) == 1_000 and updates({"algo": "ppo"}, 3_000) is None


def test_the_floor_counts_the_products_of_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """By hand: forward Σ n·a·b; learning adds the gradients of all weights, and of the inputs of all layers but one."""
    import run_floor

    monkeypatch.setattr(run_floor, "product", lambda n, inner, m: n * inner * m)
    monkeypatch.setattr(run_floor, "activation", lambda n, width, name: 0)
    forward = 10 * (4 * 64 + 64 * 64 + 64 * 2)
    assert run_floor.network(10, [4, 64, 64, 2], "tanh", False) == forward
    assert run_floor.network(10, [4, 64, 64, 2], "tanh", True) == 3 * forward - 10 * 4 * 64


def tables() -> list[tuple[str, dict[str, Any]]]:
    import a2c_pendulum
    import dqn_cartpole
    import many_envs
    import ppo_atari
    import ppo_cartpole
    import pure_jax
    import q_learning

    several = [*ppo_cartpole.TABLES, *a2c_pendulum.TABLES, *many_envs.TABLES]
    return [
        (t.title, t.work) for t in [*several, ppo_atari.TABLE, dqn_cartpole.TABLE, pure_jax.TABLE, q_learning.TABLE]
    ]


@pytest.mark.slow
def test_rlkit_takes_the_keys_of_every_table() -> None:
    for title, work in tables():
        words = [f"{key}={json.dumps(x) if isinstance(x, list) else x}" for key, x in work.items()]
        parts = assemble(config.read([*words, "seed=0"]))
        assert parts.run.env_steps == work["env_steps"] and parts.env.rows == work["env.rows"], title
        parts.env.close()


@pytest.mark.slow
@pytest.mark.parametrize("algo", ["ppo", "dqn"])
def test_the_program_of_rlkit_trains(algo: str, driver: ModuleType) -> None:
    import dqn_cartpole
    import ppo_cartpole

    work = {"ppo": ppo_cartpole.TABLES[0].work, "dqn": dqn_cartpole.TABLE.work}[algo] | SMALL[algo]
    found = driver.run(driver.Side("rlkit", sys.executable, "run_rlkit.py"), {**work, "seed": 1})
    assert found["steps"] == work["env_steps"] and found.get("updates") == {"ppo": None, "dqn": 200}[algo]
    assert 0 < found["touched"] < found["start"] and found["seconds"] > 0 and 8 <= found["score"] <= 500
    assert found["start"] + found["seconds"] < found["process"] and found["version"].startswith("rlkit ")


@pytest.mark.slow
def test_the_program_of_rlkit_stops_at_a_score(driver: ModuleType) -> None:
    import solve_cartpole

    work = {**solve_cartpole.WORK, "until": 5.0, "every": 512, "seed": 0}
    found = driver.run(driver.Side("rlkit", sys.executable, "run_rlkit.py"), work)
    assert found["reached"] is True and found["steps"] == 512


@pytest.mark.slow
def test_the_floor_and_the_loop_by_hand_run(driver: ModuleType) -> None:
    import ppo_cartpole
    import q_learning

    work = {**ppo_cartpole.TABLES[0].work, "seed": 0}
    floor = driver.run(driver.Side("floor", sys.executable, "run_floor.py"), work)
    assert set(floor["parts"]) == {"environment", "acting", "learning"} and min(floor["parts"].values()) > 0
    assert floor["seconds"] == pytest.approx(1e-6 * sum(floor["parts"].values()) * work["env_steps"])
    small = {**q_learning.TABLE.work, "env_steps": 2_000, "seed": 0}
    assert driver.run(driver.Side("by hand", sys.executable, "run_by_hand.py"), small)["steps"] == 2_000
