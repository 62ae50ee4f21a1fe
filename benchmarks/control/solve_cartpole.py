"""From the start of the process to a greedy 475 on CartPole, PPO: python benchmarks/control/solve_cartpole.py [flags]

The settings of Z (ppo_cartpole.py), constant schedules, a seed a round. Each side is evaluated greedily on 20 episodes
every 2,048 steps and stops at a mean of 475. The seconds of these evaluations are taken off for every side; imports,
construction, logs, checkpoints and rlkit's measurement of the untouched policy (100 episodes) are in. The score in the
table is that of 20 other episodes.
"""

from ppo_cartpole import COMMON, Z
from side_by_side import Table, parser, show

WORK = {**COMMON, **Z, "env_steps": 102_400, "until": 475.0, "every": 2_048}
TABLE = Table("Process start to a greedy 475 on CartPole, PPO Z", WORK, ("rlkit", "SB3", "CleanRL"))

if __name__ == "__main__":
    show(TABLE, parser(__doc__).parse_args(), "a greedy 475")
