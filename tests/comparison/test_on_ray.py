"""Comparisons and searches on a Ray cluster of several machines, all of them on this one; some of them are lost."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
import torch
from support.resuming import metrics, tensors

from rlkit import compare, tune
from rlkit.api import UserError
from rlkit.comparison import away, grid, on_node, on_ray, parcel
from rlkit.recording import checkpoint
from rlkit.settings import sections

TABLES = ["algo=q_learning,sarsa", "env=gridworld", "seed=0", "iterations=5", "evaluation_episodes=2"]
CONTROL = ["algo=ppo,a2c", "env=cartpole", "seed=0", "env_steps=20000", "evaluation_episodes=4", "checkpoint_every=2"]
CONTROL += ["validation_episodes=4"]
TUNED = ["algo=q_learning", "env=gridworld", "iterations=20", "runs=1", "trials=4", "seeds=1", "validation_episodes=3"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A machine without cores, from which all is asked, and one core on another."""
    ray = pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    found = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    found.add_node(num_cpus=1)
    before = os.environ.get("RAY_ADDRESS")
    os.environ["RAY_ADDRESS"] = found.address
    yield found
    os.environ.pop("RAY_ADDRESS")
    if before is not None:
        os.environ["RAY_ADDRESS"] = before
    ray.shutdown()
    found.shutdown()


def until(true: Callable[[], bool]) -> None:
    while not true():  # however long it takes: pytest has the limit
        time.sleep(0.05)


def assert_same(one: Path, other: Path) -> None:
    """Two comparisons hold the same runs, bit for bit, told by the same words."""
    names = sorted(path.name for path in (one / "runs").glob("*/"))
    assert names and names == sorted(path.name for path in (other / "runs").glob("*/"))
    for name in names:
        a, b = (tensors(checkpoint.load(out / "runs" / name)) for out in (one, other))
        assert a.keys() == b.keys() and [key for key in a if not torch.equal(a[key], b[key])] == [], name
        assert metrics(one / "runs" / name) == metrics(other / "runs" / name), name
        paths = [out / "runs" / name / "config.yaml" for out in (one, other)]
        there, here = (sections.read(path) for path in paths)
        assert there.pop("run") == here.pop("run") | {"device": "cpu", "out": str(paths[0].parent)}, name
        assert there == here and len({path.read_text().partition("\n")[0] for path in paths}) == 1, name


@pytest.mark.slow
def test_the_same_grid_and_files_of_ones_own_on_a_cluster(cluster, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    told = "import rlkit.algorithms.q_learning as base\nfrom rlkit.algorithms.q_learning import Config\n"
    told += "from .neighbor import said\nprint(said, 'rlkit-' in __file__)\n\n\ndef make(*given):\n"
    (tmp_path / "mine.py").write_text(told + "    return base.make(*given)\n")
    (tmp_path / "neighbor.py").write_text("said = 'sent along:'\n")
    words = ["algo=q_learning,sarsa,./mine.py", *TABLES[1:]]
    assert compare.main([*words, "workers=ray", "out=there"]) == 0
    assert compare.main([*words, "workers=1", "out=here"]) == 0
    assert_same(tmp_path / "there", tmp_path / "here")
    assert "sent along: True" in (tmp_path / "there" / "runs" / "mine-gridworld-s0.txt").read_text()
    assert compare.main([*words, "workers=ray", "out=there"]) == 0  # all of it is finished
    for line in (tmp_path / "there" / "index.html", tmp_path / "there" / "runs" / "mine-gridworld-s0" / "config.yaml"):
        assert "/rlkit-" not in line.read_text()


@pytest.mark.slow
def test_a_machine_that_dies_loses_no_finished_run_and_its_own_goes_on(cluster, tmp_path, capsys):
    dying = cluster.add_node(num_cpus=1)
    codes: list[int] = []
    words = [*CONTROL, f"out={tmp_path / 'there'}"]
    assert compare.main(["algo=q_learning", *TABLES[1:], "workers=ray", f"out={tmp_path / 'there'}"]) == 0
    finished = tmp_path / "there" / "runs" / "q_learning-gridworld-s0" / "summary.json"
    before = finished.read_bytes()
    thread = threading.Thread(target=lambda: codes.append(compare.main([*words, "workers=ray"])))
    thread.start()
    runs = [tmp_path / "there" / "runs" / f"{algo}-cartpole-s0" for algo in ("ppo", "a2c")]
    until(lambda: all((run / "metrics.jsonl").exists() for run in runs))  # one on each machine, both under way
    assert not any((run / "summary.json").exists() for run in runs)
    cluster.remove_node(dying, allow_graceful=False)
    thread.join()
    assert codes == [0] and finished.read_bytes() == before
    said = capsys.readouterr().out
    assert said.count("its machine is gone: it goes on elsewhere") == 1, said
    assert compare.main([*CONTROL, "workers=1", f"out={tmp_path / 'here'}"]) == 0
    for run in (*(tmp_path / "there" / "runs").glob("*gridworld*"), finished.parent):
        if run.is_dir():
            (tmp_path / "aside").mkdir(exist_ok=True)
            run.rename(tmp_path / "aside" / run.name)
    assert_same(tmp_path / "there", tmp_path / "here")


DRIVER = """
import sys
from rlkit import compare
from rlkit.comparison import away
away.OFTEN = away.LOOK = 0.1
away.SHARE = 0.5
sys.exit(compare.main(sys.argv[1:]))
"""


def begin(*words: str) -> "subprocess.Popen[str]":
    command = [sys.executable, "-c", DRIVER, *words]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [signal.SIGKILL, signal.SIGINT, pytest.param(signal.SIGTERM, marks=pytest.mark.campaign)]
)
def test_the_same_command_goes_on_where_it_was_killed_or_stopped(cluster, tmp_path, number):
    words = ["algo=ppo", *CONTROL[1:], "workers=ray", f"out={tmp_path / 'there'}"]
    process = begin(*words)
    latest = tmp_path / "there" / "runs" / "ppo-cartpole-s0" / "checkpoints" / "latest.safetensors"
    until(lambda: latest.exists() or process.poll() is not None)
    process.send_signal(number)
    said, _ = process.communicate()
    assert process.returncode == (-9 if number == signal.SIGKILL else 1), said
    assert not (latest.parent.parent / "summary.json").exists() and checkpoint.load(latest.parent.parent)
    process = begin(*words)
    said, _ = process.communicate()
    assert process.returncode == 0 and "1 to continue" in said, said
    assert "continued at iteration" in (tmp_path / "there" / "runs" / "ppo-cartpole-s0.txt").read_text()
    assert compare.main(["algo=ppo", *CONTROL[1:], "workers=1", f"out={tmp_path / 'here'}"]) == 0
    assert_same(tmp_path / "there", tmp_path / "here")


@pytest.mark.slow
def test_a_search_on_a_cluster_is_the_search_of_as_many_workers(cluster, tmp_path):
    pytest.importorskip("optuna")
    for out, workers in (("there", "ray"), ("here", "1")):
        assert tune.main([*TUNED, f"workers={workers}", f"out={tmp_path / out}"]) == 0
    texts = [(tmp_path / out / "best.yaml").read_text().partition("\nalgo:")[2] for out in ("there", "here")]
    assert texts[0] == texts[1] and texts[0]
    settings = [(tmp_path / out / "search.yaml").read_text() for out in ("there", "here")]
    assert settings[0] == settings[1] and "workers: 1" in settings[0]
    assert tune.main([*TUNED, "workers=ray", f"out={tmp_path / 'there'}"]) == 0  # all of it is finished


def job(**run: object) -> grid.Job:
    return grid.Job("a", "e", 0, Path("r"), (), {"run": {"device": "auto", "threads": 1, **run}}, Path())


def pretended(*resources: dict[str, float]) -> on_ray.Cluster:
    """A cluster of machines that have so much."""
    found = object.__new__(on_ray.Cluster)
    found.at_hand, found.packed = threading.Lock(), {}
    found.nodes = lambda: [{"Resources": each} for each in resources]  # type: ignore[method-assign]
    return found


def test_there_are_as_many_runs_at_a_time_as_the_machines_hold():
    cluster = pretended({"CPU": 4.0, "GPU": 1.0}, {"CPU": 3.0}, {})
    assert [cluster.room([each]) for each in (job(), job(threads=2), job(device="cuda"))] == [7, 3, 1]
    assert cluster.room([job(), job(device="cuda")]) == 7


def test_what_no_machine_has_is_refused():
    for run, told in (
        ({"device": "cuda"}, "no machine of the Ray cluster has 1 CPU and 1 GPU for a run: give other threads= or dev"),
        ({"threads": 7}, "no machine of the Ray cluster has 7 CPUs for a run: give other threads= or device="),
        ({"device": "cuda:1"}, "device=cuda:1: on a Ray cluster each run gets a GPU of its own: give device=cuda"),
    ):
        with pytest.raises(UserError, match=f"^{told}"):
            pretended({"CPU": 4.0}).room([job(), job(**run)])


def test_a_file_that_cannot_be_sent_is_told(tmp_path):
    cluster, data = pretended(), tmp_path / "data"
    cluster.ray = SimpleNamespace(put=bytes)
    data.write_text("")
    assert cluster.goods((data,)) is cluster.goods((data,)) != []
    refused = patch.object(parcel, "opened", side_effect=PermissionError(13, "Permission denied"))
    with refused, pytest.raises(UserError, match=r"^what the run names cannot be sent along: .*Permission denied$"):
        cluster.goods((data, data))


class RayError(Exception):
    cause: Exception | None = None


class RayTaskError(RayError):
    pass


def remote(answer: Callable[[], object], stop: Path, ready: Callable[[], bool] = lambda: True) -> on_ray.Remote:
    """An actor of a pretended Ray."""
    errors = SimpleNamespace(RayError=RayError, RayTaskError=RayTaskError)

    def wait(answers: list[object], timeout: float) -> tuple[list[object], list[object]]:
        return (answers, []) if ready() else ([], answers)

    ray = SimpleNamespace(exceptions=errors, wait=wait, get=lambda _: answer())
    actor = SimpleNamespace(pack=SimpleNamespace(remote=lambda: "answer"))
    return on_ray.Remote(ray, actor, stop)


def test_what_ray_raises_is_a_loss_and_what_the_machine_raises_a_line(tmp_path, monkeypatch):
    def fails(error: RayError, cause: Exception | None = None) -> Callable[[], object]:
        def answer() -> object:
            error.cause = cause
            raise error

        return answer

    stop = tmp_path / "stop"
    with pytest.raises(away.Lost, match=r"^its machine or its worker there is gone \(RayError\)$"):
        remote(fails(RayError()), stop).pack()
    with pytest.raises(UserError, match=r"^on its machine: the disk is full$"):
        remote(fails(RayTaskError(), OSError("the disk is full")), stop).pack()
    asked = iter([False, False, True])
    assert remote(lambda: (3, "digest"), stop, lambda: next(asked)).pack() == (3, "digest")
    stop.touch()
    with pytest.raises(away.Withdrawn):
        remote(lambda: None, stop, lambda: False).pack()
    monkeypatch.setattr(on_ray, "SILENT", 0.0)
    placed = remote(lambda: None, stop, lambda: False)
    placed.placed = True
    with pytest.raises(away.Lost, match="did not answer within 0 seconds"):
        placed.pack()


def test_a_cluster_that_is_down_is_told_at_once(monkeypatch):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    init = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "ray", init)
    for given in (address, f"ray://{address}"):
        monkeypatch.setenv("RAY_ADDRESS", given)
        with pytest.raises(UserError, match=rf"^no Ray cluster: nobody answers at {given} \(.*; fix RAY_ADDRESS or "):
            on_ray.joined()


@pytest.mark.parametrize("there", [True, False])
def test_workers_import_from_current_folder_where_we_do(tmp_path, monkeypatch, there):
    began = []
    pretended_ray = SimpleNamespace(is_initialized=lambda: False, init=lambda **_: began.append(os.getcwd()))
    monkeypatch.setitem(sys.modules, "ray", pretended_ray)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path)] * there + ["/usr"])
    on_ray.joined()
    assert began == [str(tmp_path) if there else sys.prefix] and os.getcwd() == str(tmp_path)


def test_without_rlkit_on_a_machine_one_line_says_so():
    versions = {key: x for key, x in on_node.versions().items() if key == "Python"}
    with pytest.raises(UserError, match=r"^node1 has rlkit none and this machine .*: install the same on all of the "):
        away.check_versions(on_node.Arrived("node1", "", versions))
    assert on_ray.probe()() == on_node.versions()


def test_a_run_gets_a_core_or_as_many_as_it_has_threads_and_a_gpu_where_it_asks():
    assert on_ray.needs(job()) == on_ray.needs(job(threads=0)) == {"CPU": 1}
    assert on_ray.needs(job(threads=4, device="cuda")) == {"CPU": 4, "GPU": 1}
