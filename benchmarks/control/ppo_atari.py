"""PPO on an Atari game beside Stable-Baselines3: python benchmarks/control/ppo_atari.py [flags]

RL Baselines3 Zoo's settings: 8 × 128 steps, 4 epochs of 4 minibatches, constant schedules. Stable-Baselines3 plays
`make_atari_env` with its CnnPolicy, in which actor and critic share all layers but the last, as rlkit's do. The
emulator has one thread on both sides. The score is a 0: none is measured.
"""

from side_by_side import Table, parser, show

WORK = {
    "algo": "ppo",
    "env": "atari",
    "env.game": "breakout",
    "env.rows": 8,
    "env.threads": 1,
    "algo.horizon": 128,
    "algo.epochs": 4,
    "algo.minibatches": 4,
    "algo.lr": 2.5e-4,
    "algo.clip": 0.1,
    "algo.gamma": 0.99,
    "algo.gae_lambda": 0.95,
    "algo.entropy_coef": 0.01,
    "algo.schedule": "constant",
    "algo.clip_schedule": "constant",
    "evaluation_episodes": 2,
    "validation_episodes": 2,
    "env_steps": 4_096,
}
TABLE = Table("PPO Atari Breakout, 8 × 128 steps, 4 epochs, 4 minibatches", WORK, ("rlkit", "SB3"))

if __name__ == "__main__":
    show(TABLE, parser(__doc__).parse_args())
