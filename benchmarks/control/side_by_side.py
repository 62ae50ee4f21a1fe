"""Runs the programs of one table in turn, each as a process of its own, and prints the table.

A round is every program once, with the round's seed; a ratio is taken within a round, and the table shows the median
over the rounds with the range. What is not at hand is left out, with the flag that would bring it in.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
PEERS, JAX = (HERE.parent / name / "bin" / "python" for name in (".peers", ".peers-jax"))
FIRST = "rlkit"  # the side that the others are compared with
FLOOR = "floor"
FLAGS = {"SB3": "--peers", "CleanRL": "--cleanrl", "SBX": "--jax", "PureJaxRL": "--purejaxrl"}

Line = dict[str, Any]  # what a program printed
Found = dict[str, list[Line]]  # side → its line of each round


@dataclass(frozen=True)
class Side:
    """One project: the python that has it, its program, and what the program finds in its environment."""

    name: str
    python: str
    script: str
    surroundings: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """The same work for several sides."""

    title: str
    work: dict[str, Any]
    sides: tuple[str, ...]
    unit: str = "steps/s"


def parser(about: str | None) -> argparse.ArgumentParser:
    """The flags of every table."""
    flags = argparse.ArgumentParser(description=about, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--rounds", type=int, default=5, help="how often each side runs (default 5)")
    flags.add_argument("--steps", type=int, help="environment steps of each run (default: the table's)")
    flags.add_argument("--peers", default=str(PEERS), help="python of the environment of benchmarks/requirements.txt")
    flags.add_argument("--jax", default=str(JAX), help="python of the environment of benchmarks/requirements-jax.txt")
    flags.add_argument("--cleanrl", default="", help="a checkout of CleanRL")
    flags.add_argument("--purejaxrl", default="", help="a checkout of PureJaxRL")
    flags.add_argument("--only", default="", help="sides that run, as in rlkit,SB3")
    flags.add_argument("--lines", default="", help="a file to which every line of every program is added")
    return flags


def sides(asked: argparse.Namespace, wanted: Sequence[str]) -> list[Side]:
    """The sides that can run here; rlkit and the floor always can."""
    own = asked.only.split(",") if asked.only else [*wanted]
    one = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    jax = {"PYTHONPATH": "", "JAX_PLATFORMS": "cpu", "XLA_FLAGS": one}
    known = {
        FIRST: Side(FIRST, sys.executable, "run_rlkit.py"),
        FLOOR: Side(FLOOR, sys.executable, "run_floor.py"),
        "SB3": Side("SB3", asked.peers, "run_sb3.py", {"PYTHONPATH": ""}),
        "CleanRL": Side("CleanRL", asked.peers, "run_cleanrl.py", {"PYTHONPATH": "", "CLEANRL": asked.cleanrl}),
        "SBX": Side("SBX", asked.jax, "run_sbx.py", jax),
        "PureJaxRL": Side("PureJaxRL", asked.jax, "run_purejaxrl.py", {**jax, "PUREJAXRL": asked.purejaxrl}),
        "by hand": Side("by hand", sys.executable, "run_by_hand.py"),
    }
    found = []
    for name in (name for name in wanted if name in own):
        side = known[name]
        checkout = [path for key, path in side.surroundings.items() if key in ("CLEANRL", "PUREJAXRL")]
        if Path(side.python).exists() and all(path and Path(path).is_dir() for path in checkout):
            found.append(side)
        else:
            print(f"{name} is left out: give {FLAGS[name]} (benchmarks/README.md)", file=sys.stderr)
    return found


def environment(side: Side) -> dict[str, str]:
    """What a program finds: one thread, and when it was started."""
    threads = dict.fromkeys(("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    surroundings = {key: os.path.abspath(x) if Path(x).is_dir() and x else x for key, x in side.surroundings.items()}
    return {**os.environ, **threads, **surroundings, "BENCH_BEGAN": repr(time.time())}


def run(side: Side, work: dict[str, Any]) -> Line:
    """One run of one side: what its program printed, and the seconds of the whole process."""
    began = time.perf_counter()
    done = subprocess.run(
        [side.python, str(HERE / side.script), json.dumps(work)], env=environment(side), capture_output=True, text=True
    )
    if done.returncode:
        sys.exit(f"{side.name} failed:\n{done.stderr}")
    line: Line = json.loads(done.stdout.splitlines()[-1])
    return line | {"process": time.perf_counter() - began}


def measure(table: Table, asked: argparse.Namespace) -> Found:
    """Every side in turn, `rounds` times."""
    here = sides(asked, table.sides)
    found: Found = {side.name: [] for side in here}
    work = table.work | ({"env_steps": asked.steps} if asked.steps else {})
    for seed in range(asked.rounds):
        for side in here:
            line = run(side, work | {"seed": seed})
            found[side.name].append(line)
            print(f"  round {seed + 1}, {side.name}: {json.dumps(line)}", file=sys.stderr, flush=True)
            if asked.lines:
                with open(asked.lines, "a", encoding="utf-8") as file:
                    file.write(json.dumps({"table": table.title, "side": side.name, **line}) + "\n")
    return found


def rate(line: Line) -> float:
    """Steps, or updates where the program counts them, in a second of training."""
    return float(line.get("updates", line["steps"]) / line["seconds"])


def ratios(found: Found, name: str, of: str = "rate") -> list[float]:
    """How many times faster rlkit is than a side, in each round; with `of` another of their figures, less is better."""
    pairs = zip(found[FIRST], found[name], strict=True)
    if of == "rate":
        return [rate(ours) / rate(theirs) for ours, theirs in pairs]
    return [float(ours[of] / theirs[of]) for ours, theirs in pairs]


def spread(values: Sequence[float], digits: int = 2) -> str:
    """`2.01 (1.94 to 2.03)`: the median and the range."""
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def middle(lines: Sequence[Line], key: str, form: str) -> str:
    """The median of one figure; nothing where the program has none."""
    values = [line[key] for line in lines if key in line]
    return format(statistics.median(values), form) if values else ""


def scored(lines: Sequence[Line]) -> str:
    """The median greedy score, which may be a share of episodes won or a sum of a thousand rewards."""
    return middle(lines, "score", ".0f" if any(abs(line.get("score", 0)) >= 100 for line in lines) else ".3g")


def markdown(head: Sequence[str], body: Sequence[Sequence[str]]) -> list[str]:
    return ["| " + " | ".join(cells) + " |" for cells in (head, ["---"] * len(head), *body)]


def rows(found: Found, unit: str) -> list[str]:
    """A table in Markdown: speed, rlkit's lead, start-up, score; the floor last."""
    head = ["", unit, f"{FIRST} is so many times as fast", "seconds to the first step", "greedy score"]
    body = []
    for name, each in found.items():
        speed = f"{statistics.median(rate(line) for line in each):,.0f}"
        lead = spread(ratios(found, name)) if FIRST in found and name != FIRST else ""
        body.append([label(name, each), speed, lead, middle(each, "start", ".1f"), scored(each)])
    return markdown(head, body)


def label(name: str, each: Sequence[Line]) -> str:
    """The version of a side; what the floor is made of, medians over the rounds."""
    if name != FLOOR:
        return str(each[0]["version"])
    parts = {part: statistics.median(line["parts"][part] for line in each) for part in each[0]["parts"]}
    return "floor: " + ", ".join(f"{part} {x:.1f}" for part, x in parts.items()) + " µs a step"


def rows_from_start(found: Found, until: str) -> list[str]:
    """A table of whole processes: seconds until the training ended, rlkit's share of them, start-up, score."""
    head = ["", f"seconds from the start to {until}", f"{FIRST} takes so many times as long"]
    head += ["to the first step", "of the training", "steps", "greedy score", "reached"]
    body = []
    timed = {name: [line | {"whole": whole(line)} for line in each] for name, each in found.items()}
    for name, each in timed.items():
        share = spread(ratios(timed, name, "whole")) if FIRST in timed and name != FIRST else ""
        goals = [line["reached"] for line in each if "reached" in line]
        reached = f"{sum(goals)} of {len(goals)}" if goals else ""
        columns = {"start": ".1f", "seconds": ".1f", "steps": ",.0f"}
        figures = [*(middle(each, key, form) for key, form in columns.items()), scored(each)]
        body.append([label(name, each), spread([line["whole"] for line in each], 1), share, *figures, reached])
    return markdown(head, body)


def whole(line: Line) -> float:
    """Seconds from the start of the process until the training ended."""
    return float(line.get("start", 0) + line["seconds"])  # the floor has no start


def show(table: Table, asked: argparse.Namespace, until: str = "") -> None:
    """Measure a table and print it; with `until`, what is timed is the process from its start."""
    print(f"\n{table.title}: {asked.steps or table.work['env_steps']:,} steps, {asked.rounds} rounds\n", flush=True)
    found = measure(table, asked)
    lines = rows_from_start(found, until) if until else rows(found, table.unit)
    print("\n".join(lines), flush=True)
