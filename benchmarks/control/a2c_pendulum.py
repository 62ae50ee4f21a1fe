"""A2C on CartPole, and PPO on Pendulum with its normalizers, beside Stable-Baselines3.

python benchmarks/control/a2c_pendulum.py [flags]

A2C: 8 × 5 steps, RMSprop. Pendulum: 8 × 128 steps, 10 epochs of 16 minibatches, running statistics of observations and
of the discounted return (VecNormalize there, policy.normalize and algo.normalize_reward here).
"""

from side_by_side import Table, parser, show

A2C = {"algo": "a2c", "env": "cartpole", "env.rows": 8, "algo.horizon": 5, "algo.lr": 7e-4, "algo.gamma": 0.99}
PENDULUM = {"algo": "ppo", "env": "pendulum", "env.rows": 8, "algo.horizon": 128, "algo.epochs": 10}
PENDULUM |= {"algo.minibatches": 16, "algo.lr": 1e-3, "algo.schedule": "constant", "algo.gamma": 0.95}
PENDULUM |= {"algo.gae_lambda": 0.95, "policy.normalize": True, "algo.normalize_reward": True}
SIDES = ("rlkit", "SB3", "floor")
TABLES = (
    Table("A2C CartPole, 8 × 5 steps", {**A2C, "env_steps": 100_000}, SIDES),
    Table("PPO Pendulum with normalizers, 8 × 128 steps, batches of 64", {**PENDULUM, "env_steps": 102_400}, SIDES),
)

if __name__ == "__main__":
    asked = parser(__doc__).parse_args()
    for table in TABLES:
        show(table, asked)
