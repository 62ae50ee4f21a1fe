"""SAC and TD3 on Pendulum with an update at each step, beside Stable-Baselines3: updates a second.

python benchmarks/control/sac_pendulum.py [flags]

One environment, ReLU, a buffer of 50,000, a warm-up of 500 steps, targets that follow by 0.005. Two hidden layers of
256 with batches of 256, as RL Baselines3 Zoo has SAC on this problem, and of 64 with batches of 64.
"""

from side_by_side import Table, parser, show

WORK = {
    "env": "pendulum",
    "env.rows": 1,
    "env_steps": 4_000,
    "evaluate_every": 0,
    "policy.activation": "relu",
    "algo.lr": 1e-3,
    "algo.schedule": "constant",
    "algo.gamma": 0.99,
    "algo.n_step": 1,
    "algo.steps": 1,
    "algo.updates": 1,
    "algo.capacity": 50_000,
    "algo.warmup_steps": 500,
    "algo.tau": 0.005,
}
SIDES = ("rlkit", "SB3", "floor")
TABLES = tuple(
    Table(
        f"{algo.upper()} Pendulum, layers of {size}, batches of {size}",
        {"algo": algo, **WORK, "policy.hidden": [size, size], "algo.batch_size": size},
        SIDES,
        "updates/s",
    )
    for algo in ("sac", "td3")
    for size in (256, 64)
)

if __name__ == "__main__":
    asked = parser(__doc__).parse_args()
    for table in TABLES:
        show(table, asked)
