"""Machines that share no files with this one, each of them a folder here; the runs there are pretended.

Tests that use them ask for the fixture `other_machines`.
"""

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from rlkit.comparison import away, grid, luggage, on_node, parcel
from rlkit.comparison.grid import Job

# Stands in for `python -m rlkit.run`, and hands on what starts the keeper.
PRETENDED = """#!{python} -IS
import json, os, signal, sys, time
if "-m" not in sys.argv:
    os.execv("{python}", ["{python}", *sys.argv[1:]])
folder = sys.argv[-2].partition("=")[2]
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
        time.sleep(0.01)  # a signal just before signal.pause() would wait for another
json.dump({{"finished": True, "out": folder}}, open(folder + "/summary.json", "w"))
"""


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


class Fails:
    """A host that is lost at a call, or answers it otherwise."""

    def __init__(self, host: on_node.Host, **methods: Callable[..., object]) -> None:
        self.host, self.methods = host, methods

    def __getattr__(self, name: str) -> object:
        return self.methods.get(name, getattr(self.host, name))
