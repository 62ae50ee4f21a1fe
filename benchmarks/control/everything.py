"""Every table, one after the other: python benchmarks/control/everything.py [flags of every table]

The flags are passed on: `--steps` is better left out, as each table has its own.
"""

import subprocess
import sys

from side_by_side import HERE, parser

TABLES = (
    "ppo_cartpole",
    "dqn_cartpole",
    "a2c_pendulum",
    "sac_pendulum",
    "many_envs",
    "ppo_atari",
    "solve_cartpole",
    "pure_jax",
    "start",
    "q_learning",
    "comparison",
)

if __name__ == "__main__":
    parser(__doc__).parse_args()  # refuses what no table knows, before the first of them runs
    failed = [
        name for name in TABLES if subprocess.run([sys.executable, HERE / f"{name}.py", *sys.argv[1:]]).returncode
    ]
    sys.exit(f"failed: {', '.join(failed)}" if failed else 0)
