"""A run on a machine that shares no files: what is sent, what comes home, and what is lost when the machine is."""

import errno
import io
import itertools
import json
import os
import signal
import sys
import tarfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from rlkit.api import UserError
from rlkit.comparison import away, grid, luggage, on_node, parcel
from rlkit.comparison.grid import Job
from rlkit.settings import places, sections

# Stands in for `python -m rlkit.run`, and hands on what starts the keeper.
PRETENDED = """#!{python} -IS
import json, os, signal, sys, time
if "-m" not in sys.argv:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
folder = sys.argv[3].partition("=")[2]
config = open(folder + "/config.yaml").read()
act = config.split("name: ")[1].split()[0]
os.makedirs(folder + "/checkpoints", exist_ok=True)
latest = folder + "/checkpoints/latest.safetensors"
begun = int(open(latest).read()) if os.path.exists(latest) else 0
print("goes on at", begun, "in", folder, flush=True)
metrics = open(folder + "/metrics.jsonl", "a")
def reach(iteration):
    print(json.dumps({{"iteration": iteration}}), file=metrics, flush=True)
    open(latest + ".new", "w").write(str(iteration))
    os.replace(latest + ".new", latest)
reach(begun + 1)
if act == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if act == "fails":
    sys.exit("rlkit: the reward is not finite")
if act == "counts":
    for iteration in range(begun + 2, 40):
        reach(iteration)
        time.sleep(0.01)
if act == "lasts" and not begun:
    def leave(*_):
        reach(begun + 2)
        sys.exit(1)
    signal.signal(signal.SIGTERM, leave)
    while True:
        signal.pause()
json.dump({{"finished": True, "out": folder}}, open(folder + "/summary.json", "w"))
"""


@pytest.fixture(autouse=True)
def pretended(tmp_path, monkeypatch):
    script = tmp_path / "python"
    script.write_text(PRETENDED.format(python=sys.executable))
    script.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(script))
    monkeypatch.setattr(away, "LOOK", 0.05)


class Machines:
    """This machine, as if it were another; `spoil` may put something in the place of a host."""

    def __init__(self, spoil: Callable[[on_node.Host], object] = lambda host: host) -> None:
        self.spoil, self.roots = spoil, list[Path]()

    @contextmanager
    def host(self, job: Job, stop: Path) -> Iterator[away.Host]:
        host = on_node.Host()
        self.roots.append(host.root)
        try:
            yield self.spoil(host)  # type: ignore[misc]
        finally:
            host.close()

    def goods(self, paths: tuple[Path, ...]) -> away.Parcel:
        return [packed(dict(each for path in paths for each in luggage.inside(path)))] if paths else []


def packed(files: Mapping[str, Path]) -> bytes:
    place = Path(os.environ["PYTEST_PARCEL"])
    parcel.pack_files(files.items(), place)
    return place.read_bytes()


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    monkeypatch.setenv("PYTEST_PARCEL", str(tmp_path / "parcel"))


def job(tmp_path: Path, algo: str = "works", **marks: str) -> Job:
    folder = tmp_path / "runs" / f"{algo}-e-s0"
    folder.parent.mkdir(exist_ok=True)
    run = {"seed": 0, "iterations": 10, "env_steps": None, "device": "auto", "threads": 1}
    config = {"run": run, "algo": {"name": algo}, "env": {"name": "e"}, **({"marks": marks} if marks else {})}
    return Job(algo, "e", 0, folder, (f"algo={algo}",), config, tmp_path)


def carried_out(one: Job, machines: Machines, stop: Path | None = None) -> str | None:
    return grid.carry_out(one, stop or one.folder.parent / "stop", lambda job, stop: away.execute(job, stop, machines))


def lines(one: Job) -> list[int]:
    return [json.loads(line)["iteration"] for line in (one.folder / "metrics.jsonl").read_text().splitlines()]


def until(true: Callable[[], bool]) -> None:
    while not true():  # however long it takes: pytest has the limit
        time.sleep(0.01)


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
    assert grid.tail(one.now) == ["running"] and grid.progress(one)[0] == 0.1 and grid.is_locked(one.folder)
    stop.touch()
    thread.join()
    assert found == ["stopped"] and lines(one) == [1, 2] and grid.state(one) == "cut off"
    stop.unlink()
    assert carried_out(one, Machines()) is None and lines(one) == [1, 2, 3]
    assert "goes on at 2" in one.console.read_text()


class Fails:
    """A host that is lost at a call, or answers it otherwise."""

    def __init__(self, host: on_node.Host, **methods: Callable[..., object]) -> None:
        self.host, self.methods = host, methods

    def __getattr__(self, name: str) -> object:
        return self.methods.get(name, getattr(self.host, name))


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

    machines = Machines(lambda host: Fails(host, pack=lost))
    assert carried_out(job(tmp_path), machines) == "lost 3 times: gone (ActorDiedError)"
    assert len(machines.roots) == 3 and grid.state(job(tmp_path)) == "waiting"


def test_what_arrives_in_part_or_changed_is_no_finished_run(tmp_path):
    machines = Machines(lambda host: Fails(host, chunk=lambda start: b"" if start else host.chunk(0)[:2000]))
    one = job(tmp_path)
    assert carried_out(one, machines) == "lost 3 times: what came home of the run is not what was sent"
    assert not (one.folder / "summary.json").exists() and grid.state(one) == "waiting"


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


def test_files_and_modules_of_ones_own_are_sent_along(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "own_mod.py").write_text("from .helper import x\n")
    data, model = tmp_path / "train.jsonl", tmp_path / "model"
    data.write_text("{}\n")
    model.mkdir()
    (model / "config.json").write_text("{}")
    names = [str(data), str(tmp_path / "test.jsonl"), str(model), "own_mod", "json.decoder"]
    one = job(tmp_path, **{name: places.mark(name) for name in names})
    one.config["env"] |= {"source": str(data), "reward": f"other,{data}:f", "model": f"model:{model}"}
    sent, needed = luggage.luggage(one)
    assert sent == {str(data): data, str(model): model, "own_mod": tmp_path / "own_mod.py"}
    assert needed == {name: places.mark(name) for name in ("own_mod", "json.decoder")}

    def looked(host: on_node.Host) -> object:
        def start(folder: str, directory: str, config: str) -> None:
            assert (host.root / str(tmp_path)[1:] / "own_mod.py").read_text() == "from .helper import x\n"
            (host.folder / "given").write_text(config)
            host.start(folder, directory, config)

        return Fails(host, start=start)

    machines = Machines(looked)
    assert carried_out(one, machines) is None
    home = sections.read(one.folder / "config.yaml")
    assert home["env"] == one.config["env"] and home["marks"] == one.config["marks"]


def test_on_the_way_paths_lie_in_the_folder_that_stands_for_the_root(tmp_path):
    found = luggage.moved({"a": ["/x/m.py:f,/x/m.pyx,b", 3], "b": "model:/x/m.py"}, "/tmp/r", ["/x/m.py"])
    assert found == {"a": ["/tmp/r/x/m.py:f,/x/m.pyx,b", 3], "b": "model:/tmp/r/x/m.py"}


def test_what_is_too_large_or_installed_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setattr(luggage, "MOST", 3)
    data = tmp_path / "train.jsonl"
    data.write_text("{}  \n")
    one = job(tmp_path, **{str(data): places.mark(str(data))})
    assert luggage.luggage(one) == ({}, one.config["marks"])
    assert carried_out(one, Machines()) is None  # it lies there under the same path
    other = replace(job(tmp_path, "other"), config={**one.config, "marks": {str(data): "00", "no_such.module": "11"}})
    told = carried_out(other, Machines())
    assert told and told.startswith(f"{data} is not on ") and told.endswith("put it there under the same path")
    other.config["marks"].pop(str(data))
    told = carried_out(other, Machines())
    assert told and told.endswith("as it is here: install it there, or give it as a .py file")


def tar_of(path: Path, *entries: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w") as tar:
        for entry, data in entries:
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return path


def entry(name: str, kind: bytes = tarfile.REGTYPE, target: str = "") -> tarfile.TarInfo:
    found = tarfile.TarInfo(name)
    found.type, found.linkname = kind, target
    return found


@pytest.mark.parametrize(
    "bad",
    [
        entry("../out"),
        entry("/etc/out"),
        entry("a/../../out"),
        entry("a", tarfile.SYMTYPE, "/etc/passwd"),
        entry("a", tarfile.LNKTYPE, "summary.json"),
        entry("a", tarfile.FIFOTYPE),
        entry("a", tarfile.DIRTYPE),
        entry("./a"),
        entry("a\\b"),
        entry(".lock"),
        entry("summary.json"),
    ],
)
def test_what_leads_out_of_the_folder_is_refused_before_anything_is_written(tmp_path, bad):
    home = tmp_path / "home"
    home.mkdir()
    path = tar_of(tmp_path / "t", (entry("summary.json"), b"{}"), (bad, b""))
    with pytest.raises(UserError, match=r"a run came back with '.*refused$"):
        parcel.bring(path, home)
    assert not [*home.iterdir()] and not (tmp_path / "out").exists()


def test_what_stands_in_the_way_of_a_folder_is_told(tmp_path):
    (tmp_path / "checkpoints").touch()
    with pytest.raises(UserError, match=r"^cannot write .*checkpoints: .*; make room, and the same command goes on$"):
        parcel.bring(tar_of(tmp_path / "t", (entry("checkpoints/latest.safetensors"), b"x")), tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith(".")) == []


def test_a_full_disk_there_is_told(monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(parcel, "pack", full)
    host = on_node.Host()
    with pytest.raises(UserError, match=r": no space left on the disk; its run cannot be sent$"):
        host.pack()
    host.close()


def test_a_link_here_is_not_written_through(tmp_path):
    home, elsewhere = tmp_path / "home", tmp_path / "elsewhere"
    for folder in (home, elsewhere):
        folder.mkdir()
    (home / "checkpoints").symlink_to(elsewhere)
    with pytest.raises(UserError, match="is a link, and nothing is written through one"):
        parcel.bring(tar_of(tmp_path / "t", (entry("checkpoints/latest.safetensors"), b"x")), home)
    assert not [*elsewhere.iterdir()]


class Killed(BaseException):
    """What `kill -9` is to a test in one process."""


@pytest.mark.parametrize("moment", range(4))
def test_at_no_moment_is_there_no_checkpoint(tmp_path, monkeypatch, moment):
    """Whoever unpacks a parcel may be killed between any two names that it gives."""
    home, count = tmp_path / "home", itertools.count()
    (home / "checkpoints").mkdir(parents=True)
    for name in ("latest", "iteration-1"):
        (home / "checkpoints" / f"{name}.safetensors").write_bytes(b"old")
    new = [(entry(f"checkpoints/{name}.safetensors"), b"new") for name in ("best", "latest")]

    def replace(*names: Path, real=os.replace) -> None:
        if next(count) == moment:
            raise Killed
        real(*names)

    with monkeypatch.context() as patched, suppress(Killed):
        patched.setattr(os, "replace", replace)
        parcel.bring(tar_of(tmp_path / "t", *new), home)
    there = {path.name: path.read_bytes() for path in (home / "checkpoints").iterdir()}
    assert there["latest.safetensors"] in (b"old", b"new")
    if moment > 1:  # it came to its end
        assert there == {"best.safetensors": b"new", "latest.safetensors": b"new"}
        assert [path.name for path in home.iterdir()] == ["checkpoints"]


@pytest.mark.parametrize("size", [0, 100, 700, 1100])
def test_a_parcel_that_is_cut_off_finishes_nothing(tmp_path, size):
    home = tmp_path / "home"
    home.mkdir()
    whole = tar_of(tmp_path / "t", (entry("a.txt"), b"x" * 600), (entry("summary.json"), b"{}")).read_bytes()
    (tmp_path / "t").write_bytes(whole[:size])
    with pytest.raises(UserError, match=r"damaged|cannot be read"):
        parcel.bring(tmp_path / "t", home)
    assert not (home / "summary.json").exists()


def test_a_folder_is_packed_as_it_was_at_one_moment(tmp_path):
    """`best` and `latest` are exchanged all the time: a parcel holds two that were there together."""
    folder = tmp_path / "run"
    (folder / "checkpoints").mkdir(parents=True)
    (folder / "link").symlink_to("/etc/passwd")
    (folder / ".lock").touch()
    names = [folder / "checkpoints" / f"{name}.safetensors" for name in ("best", "latest")]
    for path in names:
        path.write_text("0")
    over = threading.Event()

    def write() -> None:
        number = 0
        while not over.is_set():
            number += 1
            for path in names:  # best first
                path.with_name(f".{path.name}.00.new").write_text(str(number))
                os.replace(path.with_name(f".{path.name}.00.new"), path)
            time.sleep(0.002)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        for count in range(50):
            parcel.pack(folder, tmp_path / "t")
            parcel.unpack(tmp_path / "t", tmp_path / str(count))
            there = sorted(p.name for p in (tmp_path / str(count)).rglob("*") if p.is_file())
            assert there == ["best.safetensors", "latest.safetensors"]
            best, latest = (int((tmp_path / str(count) / "checkpoints" / path.name).read_text()) for path in names)
            assert best - latest in (0, 1)
    finally:
        over.set()
        thread.join()


def test_a_run_ends_with_whoever_watched_it(tmp_path):
    host = on_node.Host()
    config = luggage.config_text(job(tmp_path, "lasts"), str(host.root), [])
    host.start("/f", "/d", config)
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
