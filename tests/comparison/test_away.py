"""A run on a machine that shares no files: what comes home, and what is lost when the machine is."""

import json
import os
import signal
import sys
import threading
from contextlib import closing
from pathlib import Path

import pytest
from support.other_machines import Fails, Machines, carried_out, job, lines, until

from rlkit.comparison import away, grid, luggage, on_node, view
from rlkit.settings import sections

pytestmark = pytest.mark.usefixtures("other_machines")


def test_a_run_comes_home_as_if_it_had_been_made_here(tmp_path):
    one, machines = job(tmp_path), Machines()
    assert carried_out(one, machines) is None
    assert json.loads((one.folder / "summary.json").read_text()) == {"finished": True, "out": str(one.folder)}
    assert one.console.read_text() == f"goes on at 0 in {one.folder}\n"
    assert lines(one) == [1] and grid.state(one) == "finished" and not one.now.exists()
    assert sections.read(one.folder / "config.yaml")["run"]["device"] == "cpu"
    assert (one.folder / "config.yaml").read_text().startswith("# rlkit ")
    assert sorted(path.name for path in one.folder.parent.iterdir()) == [one.name, f"{one.name}.txt"]
    until(lambda: not machines.roots[0].exists())


def test_progress_shows_here_and_a_stop_leaves_a_checkpoint_here(tmp_path):
    one, stop, found = job(tmp_path, "lasts"), tmp_path / "stop", list[str | None]()
    thread = threading.Thread(target=lambda: found.append(carried_out(one, Machines(), stop)))
    thread.start()
    until(lambda: (one.folder / "metrics.jsonl").exists() and lines(one) == [1])
    assert grid.tail(one.now) == ["running"] and view.progress(one)[0] == 0.1 and grid.is_locked(one.folder)
    stop.touch()
    thread.join()
    assert found == ["stopped"] and lines(one) == [1, 2] and grid.state(one) == "cut off"
    stop.unlink()
    assert carried_out(one, Machines()) is None and lines(one) == [1, 2, 3]
    assert "goes on at 2" in one.console.read_text()


def test_a_machine_that_is_lost_costs_what_had_not_come_home(tmp_path, monkeypatch):
    monkeypatch.setattr(away, "OFTEN", 0)
    one, lost = job(tmp_path, "lasts"), list[bool]()

    def spoiled(host: on_node.Host) -> object:
        if lost:
            return host

        def look(seconds: float) -> on_node.News:
            if (one.folder / "checkpoints" / "latest.safetensors").exists():
                lost.append(True)
                raise away.Lost("its machine is gone")
            return host.look(seconds)

        return Fails(host, look=look)

    machines = Machines(spoiled)
    assert carried_out(one, machines) is None and len(machines.roots) == 2
    said = one.console.read_text()
    assert "goes on at 0" in said and "its machine is gone: it goes on elsewhere" in said and "goes on at 1" in said
    assert lines(one) == [1, 2]
    until(lambda: not machines.roots[0].exists())  # the run there has ended, too


def test_what_came_with_a_checkpoint_is_not_told_again(tmp_path, monkeypatch):
    monkeypatch.setattr(away, "OFTEN", 0)
    monkeypatch.setattr(away, "SHARE", 1000)
    one, told, brought = job(tmp_path, "counts"), away.Trip.tell, list[int]()

    def tell(trip: away.Trip, news: on_node.News) -> None:
        told(trip, news)
        brought.append(trip.brought)
        path = one.folder / "metrics.jsonl"
        assert not path.exists() or lines(one) == [*range(1, len(lines(one)) + 1)]

    monkeypatch.setattr(away.Trip, "tell", tell)
    assert carried_out(one, Machines()) is None
    assert lines(one) == [*range(1, 40)] and len({*brought}) > 2, "no checkpoint came on the way"


def test_a_run_is_tried_on_so_many_machines_and_no_more(tmp_path):
    def lost(*_: object) -> None:
        raise away.Lost("gone (ActorDiedError)")

    one, machines = job(tmp_path), Machines(lambda host: Fails(host, pack=lost))
    assert carried_out(one, machines) == "lost 3 times: gone (ActorDiedError)"
    assert len(machines.roots) == 3 and grid.state(one) == "cut off"


def test_the_same_command_goes_on_where_nothing_but_metrics_came_home(tmp_path):
    def killed(*_: object) -> None:
        raise KeyboardInterrupt

    one = job(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        carried_out(one, Machines(lambda host: Fails(host, pack=killed)))
    assert lines(one) == [1] and not (one.folder / "checkpoints").exists()
    grid.check(one)
    assert carried_out(one, Machines()) is None and grid.state(one) == "finished"


def test_what_arrives_in_part_or_changed_is_no_finished_run(tmp_path):
    machines = Machines(lambda host: Fails(host, chunk=lambda start: b"" if start else host.chunk(0)[:2000]))
    one = job(tmp_path)
    assert carried_out(one, machines) == "lost 3 times: what came home of the run is not what was sent"
    assert not (one.folder / "summary.json").exists() and grid.state(one) == "cut off"


def test_a_run_that_fails_says_why_and_one_that_is_killed_goes_on_once(tmp_path):
    assert carried_out(job(tmp_path, "fails"), Machines()) == "rlkit: the reward is not finite"
    machines = Machines()
    assert carried_out(one := job(tmp_path, "dies"), machines) == "signal 9"
    assert len(machines.roots) == 2 and lines(one) == [1, 2]


def test_another_version_there_is_refused_in_one_line(tmp_path):
    there = on_node.Arrived("node7", "/nowhere", {**on_node.versions(), "torch": "2.12.0"})
    machines = Machines(lambda host: Fails(host, arrive=lambda: there))
    told = "node7 has torch 2.12.0 and this machine 2.13.0: install the same on all of the cluster"
    assert carried_out(job(tmp_path), machines) == told


def test_a_stop_before_there_is_room_leaves_nothing(tmp_path):
    def no_room() -> None:
        (tmp_path / "stop").touch()
        raise away.Withdrawn

    one = job(tmp_path)
    assert carried_out(one, Machines(lambda host: Fails(host, arrive=no_room)), tmp_path / "stop") == "stopped"
    assert grid.state(one) == "waiting"


@pytest.mark.parametrize("here", [True, False])
def test_run_imports_from_its_directory_where_the_comparison_does(tmp_path, monkeypatch, here):
    told = []
    with closing(on_node.Host()) as host:
        monkeypatch.setattr(host, "tell", lambda line: told.append(json.loads(line)["command"]))
        host.start("/f", "/d", "", here)
        run = ["-m", "rlkit.run", f"resume={host.folder}", "trust=true"]
        assert told == [[sys.executable, *([] if here else ["-P"]), *run]]


def test_a_run_ends_with_whoever_watched_it(tmp_path):
    host = on_node.Host()
    config = luggage.config_text(job(tmp_path, "lasts"), str(host.root), [])
    host.start("/f", "/d", config, False)
    until(lambda: bool(host.look(0.01).metrics))
    [run] = [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/cmdline") if runs_in(path, host.root)]
    host.close()
    until(lambda: not host.root.exists())
    with pytest.raises(ProcessLookupError):
        os.kill(run, signal.SIGKILL)


def runs_in(path: Path, root: Path) -> bool:
    try:
        return f"resume={root}".encode() in path.read_bytes()
    except OSError:
        return False
