"""The keys of a run of each kind."""

from pathlib import Path
from typing import Any

from support.resuming import REWARD

ROOT = Path(__file__).resolve().parents[2]
SHORT: dict[str, Any] = {"evaluation_episodes": 2, "validation_episodes": 2}
PPO: dict[str, Any] = {"iterations": 4, "evaluate_every": 2, **SHORT, "algo.lr": 1e-3, "policy.hidden": (8, 8)}
DQN: dict[str, Any] = {"iterations": 3, **SHORT, "algo.warmup_steps": 40, "algo.steps": 16, "algo.dueling": True}
TEXT: dict[str, Any] = {"iterations": 2, "algo.group": 4, "env.rows": 2, "env.max_tokens": 16, "env.train": 64}
TEXT |= {"env.test": 4, "env.validation": 4, "threads": 1, "env.reward": REWARD.partition("=")[2]}
RUNS = [("ppo", "cartpole", PPO), ("dqn", "cartpole", DQN), ("grpo", "gsm8k", TEXT)]
