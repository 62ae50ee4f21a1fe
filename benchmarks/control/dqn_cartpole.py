"""DQN on CartPole with an update at each step, beside Stable-Baselines3, CleanRL and SBX: updates a second.

python benchmarks/control/dqn_cartpole.py [flags]

One environment, batches of 64, networks of 64 and 64 with ReLU, a buffer of 50,000, a warm-up of 1,000 steps, a target
copied each 500 updates. Not double, as the peers are not. CleanRL and SBX have no limit on gradients, and CleanRL has
a squared loss.
"""

from side_by_side import Table, parser, show

WORK = {
    "algo": "dqn",
    "env": "cartpole",
    "env.rows": 1,
    "env_steps": 30_000,
    "evaluate_every": 0,
    "measure": "latest",
    "policy.hidden": [64, 64],
    "policy.activation": "relu",
    "algo.lr": 1e-3,
    "algo.adam_eps": 1e-8,
    "algo.schedule": "constant",
    "algo.gamma": 0.99,
    "algo.double": False,
    "algo.n_step": 1,
    "algo.steps": 1,
    "algo.updates": 1,
    "algo.batch_size": 64,
    "algo.capacity": 50_000,
    "algo.warmup_steps": 1_000,
    "algo.tau": None,
    "algo.sync_every": 500,
    "algo.epsilon_end": 0.05,
    "algo.epsilon_decay": 0.2,
}
TABLE = Table("DQN CartPole, an update at each step", WORK, ("rlkit", "SB3", "CleanRL", "SBX", "floor"), "updates/s")

if __name__ == "__main__":
    show(TABLE, parser(__doc__).parse_args())
