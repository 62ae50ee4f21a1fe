"""Seconds from the start of a process: python benchmarks/control/start.py [flags]

To rlkit's first line, to the first step in an environment and to the end of `--help`, beside a process that only does
`import torch, gymnasium`, all in turn. The first line is read from the pipe of the command itself. rlkit steps an
environment first to measure the untouched policy; the first step of the training comes after that.
"""

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ppo_cartpole import COMMON, A
from side_by_side import FIRST, HERE, parser, run, sides, spread

IMPORTS = "import torch, gymnasium"
HELP = {
    "`rlkit --help`": ["-m", "rlkit", "--help"],
    "`rlkit run --help`": ["-m", "rlkit", "run", "--help"],
    "`rlkit run algo=ppo env=cartpole --help`": ["-m", "rlkit", "run", "algo=ppo", "env=cartpole", "--help"],
}
WORK = {**COMMON, **A, "env_steps": 1_024, "seed": 0}
Times = dict[str, float]


def surroundings() -> dict[str, str]:
    """This checkout first, one thread."""
    path = os.pathsep.join(filter(None, (str(HERE.parents[1]), os.environ.get("PYTHONPATH", ""))))
    return {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def whole(words: list[str]) -> float:
    """Seconds of a process."""
    began = time.perf_counter()
    subprocess.run([sys.executable, *words], env=surroundings(), stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - began


def first_line() -> float:
    """Seconds until the command has printed its first line."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["algo=ppo", "env=cartpole", f"env_steps={WORK['env_steps']}", f"out={Path(folder) / 'run'}"]
        command = [sys.executable, "-m", "rlkit.run", *words]
        began = time.perf_counter()
        with subprocess.Popen(command, env=surroundings(), stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            while not process.stdout.readline().strip():
                assert process.poll() is None, "the command printed nothing"
            found = time.perf_counter() - began
            process.communicate()
        return found


def once(asked: argparse.Namespace) -> Times:
    """One round."""
    found = {f"`{IMPORTS}`": whole(["-c", IMPORTS]), "rlkit, first line": first_line()}
    for side in sides(asked, ("rlkit", "SB3", "CleanRL")):
        line = run(side, WORK)
        if side.name == FIRST:
            found["rlkit, first step in an environment"] = line["touched"]
        found[f"{side.name}, first step of the training"] = line["start"]
    return found | {name: whole(words) for name, words in HELP.items()}


def rows(rounds: list[Times]) -> list[str]:
    """Medians, and ratios to the imports of the same round."""
    imports, lines = f"`{IMPORTS}`", ["| | seconds | times the imports |", "| --- | --- | --- |"]
    for name in rounds[0]:
        ratio = spread([times[name] / times[imports] for times in rounds])
        lines.append(f"| {name} | {statistics.median(times[name] for times in rounds):.2f} | {ratio} |")
    return lines


def main(asked: argparse.Namespace) -> None:
    print(f"\nSeconds from the start of a process, {asked.rounds} rounds\n", flush=True)
    found = []
    for number in range(asked.rounds):
        found.append(once(asked))
        print(f"  round {number + 1}: {found[-1]}", file=sys.stderr, flush=True)
    print("\n".join(rows(found)))


if __name__ == "__main__":
    main(parser(__doc__).parse_args())
