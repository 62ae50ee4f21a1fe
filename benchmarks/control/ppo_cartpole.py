"""PPO on CartPole beside Stable-Baselines3 and CleanRL: python benchmarks/control/ppo_cartpole.py [flags]

A: 8 × 128 steps, 4 epochs of 4 minibatches, few updates a step. Z: 8 × 32 steps, 20 epochs of 1 minibatch, many (RL
Baselines3 Zoo). The same rate, discount, λ and networks (2 × 64, tanh) for all, constant schedules.
"""

from side_by_side import Table, parser, show

COMMON = {
    "algo": "ppo",
    "env": "cartpole",
    "env.rows": 8,
    "algo.schedule": "constant",
    "algo.clip_schedule": "constant",
}
A = {"algo.horizon": 128, "algo.epochs": 4, "algo.minibatches": 4}
A |= {"algo.lr": 2.5e-4, "algo.gamma": 0.99, "algo.gae_lambda": 0.95}
Z = {"algo.horizon": 32, "algo.epochs": 20, "algo.minibatches": 1}
Z |= {"algo.lr": 1e-3, "algo.gamma": 0.98, "algo.gae_lambda": 0.8}
SIDES = ("rlkit", "SB3", "CleanRL", "floor")
TABLES = (
    Table("PPO CartPole A, 8 × 128 steps, 4 epochs, 4 minibatches", {**COMMON, **A, "env_steps": 102_400}, SIDES),
    Table("PPO CartPole Z, 8 × 32 steps, 20 epochs, 1 minibatch", {**COMMON, **Z, "env_steps": 102_400}, SIDES),
)

if __name__ == "__main__":
    flags = parser(__doc__)
    flags.add_argument("--setting", choices=("A", "Z"), help="one of the two only")
    asked = flags.parse_args()
    for name, table in zip("AZ", TABLES, strict=True):
        if asked.setting in (None, name):
            show(table, asked)
