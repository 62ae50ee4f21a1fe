"""Q-learning, 1,000,000 steps of FrozenLake, beside a loop by hand: python benchmarks/control/q_learning.py [flags]

rlkit plays 1,024 copies that share the table (its own settings for this pair); the loop by hand has one environment of
Gymnasium and a table in NumPy. The goal is a time, not a ratio: 1,024 updates at once are not 1,024 after each other.
"""

from side_by_side import Table, parser, show

WORK = {
    "algo": "q_learning",
    "env": "frozenlake",
    "env.rows": 1_024,
    "env_steps": 1_000_000,
    "algo.lr": 0.5,
    "algo.schedule": "linear",
    "algo.lr_end": 0.001,
    "algo.gamma": 0.999,
    "algo.epsilon_end": 0.2,
    "algo.epsilon_decay": 0.5,
    "algo.steps": 1,
    "algo.initial": 0.0,
}
TABLE = Table("Q-learning on FrozenLake", WORK, ("rlkit", "by hand", "floor"))

if __name__ == "__main__":
    asked = parser(__doc__).parse_args()
    show(TABLE, asked, "the end of the training")
