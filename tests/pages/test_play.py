"""The map's page and the server: no browser is needed for any of this."""

import http.client
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import torch
from support.served import Client, serve

from rlkit import exact, play
from rlkit.api import UserError
from rlkit.pages.lab import Lab
from rlkit.pages.server import LONGEST_BODY
from rlkit.settings import plugins
from rlkit.settings.assemble import assemble

ROOT = Path(__file__).resolve().parents[2]
WRONG = [
    ({"algo": "value_iteration", "steps": 0}, "steps=0"),
    ({"algo": "value_iteration", "steps": "many"}, "steps"),
    ({"algo": "value_iteration", "steps": 1e300}, "1 to 1000"),
    ({"algo": "value_iterations", "steps": 1}, "did you mean value_iteration?"),
    ({"algo": ["value_iteration"], "steps": 1}, "no algorithm"),
    ({"steps": 1}, "no algorithm"),
]


@pytest.fixture
def lab() -> Iterator[Client]:
    with serve("env=gridworld") as client:
        yield client


@pytest.mark.slow
def test_the_map_offers_every_algorithm_that_keeps_a_table_and_models_first(lab: Client) -> None:
    names = [one["name"] for one in lab.get("/api/lab")["algos"]]
    assert names[:2] == ["value_iteration", "policy_iteration"]
    assert lab.get("/api/lab")["algo"] == "value_iteration"
    titles = {one["name"]: one["title"] for one in lab.get("/api/lab")["algos"]}
    assert (titles["q_learning"], titles["sarsa"], titles["value_iteration"]) == (
        "Q-learning",
        "SARSA",
        "Value iteration",
    )
    assert set(names[2:]) == {"q_learning", "sarsa", "expected_sarsa"}


@pytest.mark.slow
def test_a_key_that_does_nothing_for_one_algorithm_takes_none_from_the_map() -> None:
    """Dynamic programming plays no copies, of which env.rows is the number."""
    words = ["env=gridworld", "env.size=4", "env.goal=3,3", "env.trap=1,1"]
    usual = Lab(words, assemble).learners.keys()
    for first in (None, "value_iteration"):
        assert Lab([*words, "env.rows=1"], assemble, first).learners.keys() == usual
    with pytest.raises(UserError, match=r"^env\.luck=own does nothing: it needs an algorithm that plays several"):
        Lab([*words, "env.rows=1", "env.slip=0.2", "env.luck=own"], assemble)


@pytest.mark.slow
def test_sweeps_of_value_iteration_arrive_at_the_exact_optimum(lab: Client) -> None:
    first = lab.post("step", algo="value_iteration", steps=1)
    # One sweep of a deterministic map: the two neighbours of the goal are worth 1, nothing else anything.
    assert [s for s, v in enumerate(first["learned"]["values"]) if v == 1] == [55, 62]
    now = lab.post("step", algo="value_iteration", steps=40)
    model = play_env().model()
    optimal = exact.optimal_values(model, now["gamma"])
    torch.testing.assert_close(torch.tensor(now["learned"]["values"], dtype=torch.float64), optimal)
    assert now["learned"]["best"] == exact.optimal_actions(model, now["gamma"]).tolist()
    assert now["curves"]["change"][-1] == 0
    assert now["curves"]["distance"][-1] < 1e-12


def play_env(**fields: Any) -> Any:
    module = plugins.load("envs", "gridworld")
    return module.make(module.Config(**fields), 0, "cpu")


@pytest.mark.slow
def test_moving_the_goal_changes_the_optimum_and_keeps_the_table(lab: Client) -> None:
    before = lab.post("step", algo="value_iteration", steps=40)
    after = lab.post("world", algo="value_iteration", cells={"goal": [0, 3]})
    assert after["world"]["cells"] == {"goal": [0, 3], "trap": [4, 4]}
    expected = exact.optimal_values(play_env(goal=(0, 3)).model(), after["gamma"])
    torch.testing.assert_close(torch.tensor(after["world"]["optimal"]["values"], dtype=torch.float64), expected)
    assert after["iteration"] == 40
    kept = [s for s in range(64) if s not in (3, 36, 63)]
    assert [after["learned"]["values"][s] for s in kept] == [before["learned"]["values"][s] for s in kept]
    assert after["learned"]["values"][3] == 0  # what is over now is worth nothing any more
    assert lab.post("step", algo="value_iteration", steps=60)["curves"]["distance"][-1] < 1e-9  # it adapts


@pytest.mark.slow
def test_discount_and_slip_change_the_world_of_every_algorithm(lab: Client) -> None:
    before = lab.get("/api/lab?algo=policy_iteration")
    lab.post("world", algo="value_iteration", gamma=0.5, chances={"slip": 0.2})
    after = lab.get("/api/lab?algo=policy_iteration")
    assert (after["gamma"], after["chances"]["slip"]["value"]) == (0.5, 0.2)
    assert after["world"]["optimal"]["values"][0] < before["world"]["optimal"]["values"][0]
    solved = lab.post("step", algo="policy_iteration", steps=400)
    assert solved["curves"]["distance"][-1] < 1e-6
    assert solved["metrics"]["stable"] == 1


@pytest.mark.slow
def test_a_change_that_one_algorithm_refuses_changes_nothing(lab: Client) -> None:
    before = lab.get("/api/lab?algo=value_iteration")
    status, answer = lab("POST", "/api/world", {"algo": "value_iteration", "gamma": 1})
    assert status == 400
    assert "algo.gamma=1" in answer["error"]
    status, answer = lab("POST", "/api/world", {"algo": "value_iteration", "cells": {"goal": [4, 4]}})
    assert status == 400
    assert "the same cell" in answer["error"]
    assert lab.get("/api/lab?algo=value_iteration") == before


@pytest.mark.slow
def test_tuning_one_algorithm_leaves_the_others_as_they_are(lab: Client) -> None:
    other = lab.post("step", algo="sarsa", steps=5)
    lab.post("tune", algo="q_learning", lr=0.125)
    assert lab.get("/api/lab?algo=sarsa") == other
    lab.post("world", algo="q_learning", gamma=0.5)
    assert lab.get("/api/lab?algo=sarsa")["curves"]["altered"] == [*other["curves"]["altered"], 5]


def test_q_learning_plays_is_tuned_and_starts_over(lab: Client) -> None:
    now = lab.post("step", algo="q_learning", steps=50)
    rows = len(now["agents"])
    assert now["env_steps"] == 50 * rows == sum(now["visits"])
    assert now["tunable"]["epsilon"] > 0.9
    held = lab.post("tune", algo="q_learning", epsilon=0.25, lr=0.125)
    assert held["learned"] == now["learned"]
    stepped = lab.post("step", algo="q_learning", steps=1)
    assert stepped["tunable"] == {"lr": 0.125, "epsilon": 0.25}
    fresh = lab.post("reset", algo="q_learning")
    assert fresh["iteration"] == 0
    assert set(fresh["learned"]["values"]) == {0}
    assert lab.get("/api/lab?algo=value_iteration")["iteration"] == 0


@pytest.mark.slow
def test_a_wrong_request_is_one_line(lab: Client) -> None:
    for request, said in WRONG:
        status, answer = lab("POST", "/api/step", request)
        assert status == 400, request
        assert said in answer["error"]
        assert "\n" not in answer["error"]


def test_only_this_machine_s_own_pages_are_answered(lab: Client) -> None:
    port, step = lab.server.port, {"algo": "value_iteration", "steps": 1}
    assert lab.server.server_address[0] == "127.0.0.1"
    assert lab("GET", "/", Host="rebound.example")[0] == 403
    assert lab("GET", "/api/lab", Host=f"rebound.example:{port}")[0] == 403
    assert lab("POST", "/api/step", step, Origin="http://foreign.example")[0] == 403
    assert lab("POST", "/api/step", step, Origin="null")[0] == 403
    assert lab("POST", "/api/step", step, Content_Type="text/plain")[0] == 415
    assert lab("GET", "/api/lab", Host=f"localhost:{port}")[0] == 200
    assert lab("POST", "/api/step", step, Origin=f"http://127.0.0.1:{port}")[0] == 200
    assert lab.get("/api/lab?algo=value_iteration")["iteration"] == 1  # the refused ones did nothing


def test_bad_requests_get_their_status(lab: Client) -> None:
    assert lab("GET", "/../play.py")[0] == 404
    assert lab("GET", "/server.py")[0] == 404
    assert lab("GET", "/api/step")[0] == 404
    assert lab("POST", "/api/nothing", {})[0] == 404
    assert lab("POST", "/api/step", "{")[0] == 400
    assert lab("POST", "/api/step", "[" * 5000)[0] == 400
    assert lab("POST", "/api/step", "[]")[0] == 400
    assert lab("POST", "/api/step", " " * (LONGEST_BODY + 1))[0] == 413


@pytest.mark.slow
def test_the_page_may_load_nothing_from_elsewhere(lab: Client) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", lab.server.port)
    connection.request("GET", "/", headers={"X-Token": lab.server.token})
    reply = connection.getresponse()
    assert reply.headers["Content-Security-Policy"].startswith("default-src 'self'; ")
    assert "unsafe" not in reply.headers["Content-Security-Policy"]
    for path in (ROOT / "rlkit" / "pages").iterdir():
        if path.suffix in (".html", ".css", ".js"):
            text = path.read_text(encoding="utf-8").replace("http://www.w3.org/2000/svg", "")
            assert "//" not in text.replace("// ", ""), path
            assert len(text.splitlines()) <= 300, path
            assert "innerHTML" not in text, path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["env=cartpole"], "no map to play on: use env=cliffwalking or env=frozenlake or env=gridworld"),
        (["env=gridwold"], "did you mean gridworld?"),
        (["env=gridworld", "env.slipp=0.1"], "did you mean slip?"),
        (["env=gridworld", "env.slip=2"], "env.slip=2 is not allowed"),
        (["env=gridworld", "prot=1"], "did you mean port?"),
        (["env=gridworld", "port=70000"], "port=70000 is not allowed"),
        (["env=gridworld", "algo=ppo"], "algo=ppo keeps no table"),
        (["nowhere"], "not a run folder"),
        (["nowhere", "env=gridworld"], "is not understood"),
        (["algo=sarsa"], "which environment?"),
        (["env=gridworld", "seed=x"], "seed=x is not allowed"),
    ],
)
def test_a_wrong_command_is_one_line_and_exit_code_2(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert play.main(words) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


@pytest.mark.slow
def test_a_port_in_use_is_one_line(lab: Client, capsys: pytest.CaptureFixture[str]) -> None:
    assert play.main(["env=gridworld", f"port={lab.server.port}", "open=false"]) == 2
    assert "used by another program" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends the signal of Ctrl-C")
def test_ctrl_c_ends_it_quietly() -> None:
    command = [sys.executable, "-m", "rlkit.play", "env=gridworld", "open=false"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None and process.stderr is not None
        process.stdout.readline()  # the version
        address = urlsplit(process.stdout.readline().split()[0])
        connection = http.client.HTTPConnection(address.netloc)
        given = {"Content-Type": "application/json"}
        connection.request("POST", f"/api/step?{address.query}", '{"algo": "value_iteration", "steps": 5}', given)
        assert connection.getresponse().status == 200  # and the connection stays open, as a browser's does
        process.send_signal(signal.SIGINT)
        assert process.wait() == 0
        assert process.stderr.read() == ""
