"""From the start of the process to a greedy 475 on CartPole, PPO: python benchmarks/control/solve_cartpole.py [flags]

The settings of Z (ppo_cartpole.py), constant schedules, a seed a round. Each side is evaluated greedily on 20 episodes
every 2,048 steps and stops at a mean of 475. The seconds of these evaluations are taken off for every side; imports,
construction, logs, checkpoints and rlkit's measurement of the untouched policy (100 episodes) are in.
"""

import argparse
import statistics

from ppo_cartpole import COMMON, Z
from side_by_side import FIRST, Found, Line, Table, measure, middle, parser, ratios, spread

WORK = {**COMMON, **Z, "env_steps": 102_400, "until": 475.0, "every": 2_048}
TABLE = Table("Process start to a greedy 475 on CartPole, PPO Z", WORK, ("rlkit", "SB3", "CleanRL"))


def whole(line: Line) -> float:
    """Seconds from the start of the process until the score was reached."""
    return float(line["start"] + line["seconds"])


def rows(found: Found) -> list[str]:
    head = [
        "",
        "seconds to 475",
        f"{FIRST} takes so many times as long",
        "of them to the first step",
        "steps",
        "reached",
    ]
    lines = [head, ["---"] * len(head)]
    timed = {name: [{**line, "whole": whole(line)} for line in each] for name, each in found.items()}
    for name, each in timed.items():
        share = spread(ratios(timed, name, "whole")) if FIRST in timed and name != FIRST else ""
        reached = f"{sum(line['reached'] for line in each)} of {len(each)} seeds"
        steps = f"{statistics.median(line['steps'] for line in each):,.0f}"
        seconds = spread([line["whole"] for line in each], 1)
        lines.append([each[0]["version"], seconds, share, middle(each, "start", 1), steps, reached])
    return ["| " + " | ".join(cells) + " |" for cells in lines]


def main(asked: argparse.Namespace) -> None:
    print(f"\n{TABLE.title}: {asked.rounds} seeds\n", flush=True)
    print("\n".join(rows(measure(TABLE, asked))))


if __name__ == "__main__":
    main(parser(__doc__).parse_args())
