"""Half a million steps of PPO from the start of the process, beside PureJaxRL with the time in which it compiles.

python benchmarks/control/pure_jax.py [flags]

The settings of A (ppo_cartpole.py). PureJaxRL clips the value loss, which its ppo.py always does, and logs nothing.
"""

from ppo_cartpole import COMMON, A
from side_by_side import Table, parser, show

TABLE = Table("PPO CartPole A from the process start", {**COMMON, **A, "env_steps": 499_712}, ("rlkit", "PureJaxRL"))

if __name__ == "__main__":
    show(TABLE, parser(__doc__).parse_args(), "the end of the training")
