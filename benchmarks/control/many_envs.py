"""PPO on 64 and on 1,024 CartPoles beside CleanRL and Stable-Baselines3: python benchmarks/control/many_envs.py [flags]

The settings of A (ppo_cartpole.py) with more environments: rollouts of 128 steps, 4 epochs of 4 minibatches.
"""

from ppo_cartpole import COMMON, A
from side_by_side import Table, parser, show

SIDES = ("rlkit", "SB3", "CleanRL", "floor")
TABLES = tuple(
    Table(f"PPO CartPole, {rows:,} environments", {**COMMON, **A, "env.rows": rows, "env_steps": steps}, SIDES)
    for rows, steps in ((64, 204_800), (1_024, 393_216))
)

if __name__ == "__main__":
    asked = parser(__doc__).parse_args()
    for table in TABLES:
        show(table, asked)
