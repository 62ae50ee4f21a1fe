"""The maps of the environments with a table, and the update of one of their cells."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support.served import serve

from rlkit import exact
from rlkit.control import TabularEnv
from rlkit.pages import maps
from rlkit.pages.learner import Learner, running_mean
from rlkit.policies import Table
from rlkit.settings import plugins

MAPS = ["gridworld", "frozenlake", "cliffwalking", "taxi"]


def made(name: str, **fields: Any) -> TabularEnv:
    module = plugins.load("envs", name)
    env: TabularEnv = module.make(module.Config(**fields), 0, torch.device("cpu"))
    return env


def sizes(env: TabularEnv) -> list[int]:
    assert env.grid is not None
    return [len(layer.choices) for layer in env.grid.layers]


@pytest.mark.parametrize("name", MAPS)
def test_a_move_of_the_map_is_the_move_of_the_model(name: str) -> None:
    env = made(name, **({"slippery": False} if name == "frozenlake" else {}))
    grid, model = env.grid, env.model()
    assert grid is not None
    many = torch.tensor(sizes(env)).prod().long().item() if sizes(env) else 1
    assert grid.rows * grid.columns * many == len(model.start)
    assert len(grid.moves) == len(grid.actions) == model.reward.shape[1]
    shut = {frozenset(pair) for pair in grid.walls}
    blocked = set()
    for state in (exact.reachable(model) & ~model.terminal).nonzero().flatten().tolist():
        cell = divmod(state // many, grid.columns)
        for action, (down, right) in enumerate(grid.moves):
            to = divmod(int(model.transition[state, action].argmax()) // many, grid.columns)
            there = (cell[0] + down, cell[1] + right)
            fell = name == "cliffwalking" and there in grid.marks["cliff"]
            if to != there and not fell and 0 <= there[0] < grid.rows and 0 <= there[1] < grid.columns:
                assert to == cell
                blocked.add(frozenset((cell, there)))
    assert blocked == shut


def test_what_lies_on_a_map_is_where_the_model_has_it() -> None:
    lake = made("frozenlake")
    drawn = maps.world(lake.grid, lake.model(), 0.99)  # type: ignore[arg-type]
    ends = {4 * r + c for name in ("hole", "goal") for r, c in drawn["marks"][name]}
    assert ends == set(lake.model().terminal.nonzero().flatten().tolist())
    cliff = made("cliffwalking")
    drawn = maps.world(cliff.grid, cliff.model(), 0.99)  # type: ignore[arg-type]
    assert {s for s, shut in enumerate(drawn["closed"]) if shut} == {12 * r + c for r, c in drawn["marks"]["cliff"]}


@pytest.mark.slow
def test_a_state_of_the_taxi_is_its_cell_and_its_layers() -> None:
    from gymnasium.envs.toy_text.taxi import TaxiEnv

    env, taxi = made("taxi"), TaxiEnv()
    assert env.grid is not None
    passenger, destination = env.grid.layers
    assert (len(passenger.choices), len(destination.choices)) == (5, 4)
    assert [list(cell) for cell in destination.choices.values() if cell] == [list(at) for at in taxi.locs]
    assert taxi.encode(2, 3, 4, 1) == ((2 * 5 + 3) * 5 + 4) * 4 + 1
    drawn = maps.world(env.grid, env.model(), 0.99)
    waiting = [s for s, shut in enumerate(drawn["closed"]) if shut]
    assert len(waiting) == 96 and all((s // 4) % 5 == s % 4 for s in waiting)  # they are there already


def test_the_sum_over_outcomes_is_the_update() -> None:
    env = made("frozenlake")
    model = env.model()
    policy = Table(16, 4, 0)
    with torch.no_grad():
        policy.q.weight.copy_(torch.rand(16, 4))
    values = policy.state_values().double()
    for state in (0, 6, 14):
        found = maps.backups(policy, model, 0.9, state)
        for action, one in enumerate(found):
            by_hand = sum(
                o["probability"] * (o["reward"] + 0.9 * o["value"] * (not o["over"])) for o in one["outcomes"]
            )
            expected = model.reward[state, action] + 0.9 * model.transition[state, action] @ (values * ~model.terminal)
            assert by_hand == pytest.approx(float(expected))
            assert sum(o["probability"] for o in one["outcomes"]) == pytest.approx(1)


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.slow) if name == "taxi" else name for name in MAPS[1:]]
)
@pytest.mark.slow
def test_a_sweep_writes_what_the_figure_says(name: str) -> None:
    with serve(f"env={name}") as client:
        before = client.post("step", algo="value_iteration", steps=3)
        open_ = [s for s, over in enumerate(before["world"]["terminal"]) if not over]
        open_ = open_[:: max(1, len(open_) // 8)]
        foretold = {s: client.get(f"/api/cell?algo=value_iteration&state={s}") for s in open_}
        after = client.post("step", algo="value_iteration", steps=1)
        for s, told in foretold.items():
            assert after["learned"]["q"][s] == pytest.approx([one["sum"] for one in told["backups"]])
        assert client("GET", "/api/cell?algo=value_iteration&state=100000")[0] == 400


@pytest.mark.slow
def test_the_last_step_of_a_table_is_told() -> None:
    with serve("env=gridworld", "env.rows=1") as client:
        now = client.post("step", algo="q_learning", steps=40)
        tried = [s for s, visits in enumerate(now["visits"]) if visits]
        for s in tried:
            told = client.get(f"/api/cell?algo=q_learning&state={s}")
            last = told["update"]
            assert told["backups"] is None
            assert last["now"] == pytest.approx(
                last["before"] + told["lr"] * (last["target"] - last["before"]), abs=1e-6
            )
        assert (
            client.get(f"/api/cell?algo=q_learning&state={next(s for s in range(64) if s not in tried)}")["update"]
            is None
        )


def test_the_mean_of_returns_runs() -> None:
    assert running_mean([(1, 1.0), (2, 3.0), (3, 5.0)], window=2) == [1, 2, 4]


def test_no_point_of_a_long_curve_lies_behind_its_last_iteration() -> None:
    told: Any = SimpleNamespace(change=[0.0] * 241, distance=[0.0] * 241, returns=[(241, 3.0)], altered=[])
    found = Learner.curves(told)
    assert (found["iteration"][-1], found["returns"], found["mean"]) == (241, [[241, 3.0]], [[241, 3.0]])
