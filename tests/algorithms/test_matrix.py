"""Every algorithm runs on every kind of environment that it claims, from the command line to the summary."""

import re
from pathlib import Path

import pytest
from support.marks import slow_after

from rlkit import run

ROOT = Path(__file__).parents[2]
SHORT = ["iterations=1", "threads=1", "evaluation_episodes=2", "validation_episodes=2"]
FAMILY = ["dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"]
CELLS = [
    ["algo=q_learning", "env=gridworld"],
    ["algo=dqn", "env=frozenlake"],
    *[[f"algo={name}", "env=gridworld"] for name in ("value_iteration", "policy_iteration", "monte_carlo", "td")],
    *[[f"algo={name}", "env=cliffwalking"] for name in ("sarsa", "expected_sarsa", "value_iteration")],
    ["algo=dqn", "env=mountaincar", "policy.normalize=true"],
    ["algo=a2c", "env=cartpole"],
    ["algo=a2c", "env=pendulum", "policy.normalize=true", "algo.normalize_reward=true", "algo.horizon=8"],
    ["algo=sac", "env=cartpole", "policy.normalize=true"],
    ["algo=td3", "env=pendulum", "policy.normalize=true"],
    ["algo=reinforce", "env=gridworld"],
    ["algo=ppo", "env=frozenlake"],
    ["algo=ppo", "env=gym", "env.id=Pendulum-v1"],
    ["algo=grpo", "env=cartpole", "algo.kl_coef=0.1"],
    ["algo=dpo", "env=cartpole"],
    *[[f"algo={name}", "env=cartpole"] for name in FAMILY],
    ["algo=ppo", "env=gsm8k", "env.rows=4"],
    ["algo=dpo", "env=preferences", "env.rows=4"],
]
MORE = [  # of the slow tests
    *[[f"algo={name}", "env=taxi"] for name in ("policy_iteration", "q_learning", "ppo")],
    ["algo=dqn", "env=acrobot", "algo.dueling=true", "algo.n_step=3", "algo.prioritized=true"],
    ["algo=dqn", "env=gym", "env.id=Acrobot-v1"],
    ["algo=sac", "env=pendulum", "algo.n_step=3", "algo.prioritized=true"],
    ["algo=sac", "env=frozenlake"],
    ["algo=td3", "env=gym", "env.id=MountainCarContinuous-v0"],
    ["algo=ppo", "env=mountaincar"],
    ["algo=reinforce", "env=pendulum", "algo.baseline=value", "env.rows=2"],
    ["algo=reinforce", "env=cartpole"],
    ["algo=grpo", "env=gridworld"],
    ["algo=grpo", "env=pendulum", "env.rows=2"],
    ["algo=dapo", "env=frozenlake"],
    ["algo=dpo", "env=frozenlake"],
    *[[f"algo={name}", "env=gsm8k", "env.rows=2"] for name in FAMILY],
    ["algo=grpo", "env=gsm8k", "env.rows=2", "algo.kl_coef=0.1", "algo.epochs=2"],
    *[[f"algo={name}", "env=gsm8k", "env.rows=4"] for name in ("a2c", "reinforce", "sft", "reward_model")],
    ["algo=dpo", "env=gsm8k", "env.rows=1", "algo.group=2"],
    *[[f"algo={name}", "env=preferences", "env.rows=4"] for name in ("sft", "reward_model")],
    ["algo=dpo", "env=preferences", "env.rows=4", "algo.loss=simpo", "algo.beta=2"],
]


@pytest.mark.parametrize("keys", slow_after(len(CELLS), [*CELLS, *MORE]), ids=lambda keys: " ".join(keys[:2]))
def test_every_cell_of_the_matrix_runs(tmp_path, keys):
    assert run.main([*keys, *SHORT, f"out={tmp_path / 'r'}"]) == 0
    assert (tmp_path / "r" / "summary.json").is_file()


@pytest.mark.parametrize("env", ["gsm8k", "arithmetic", "text", "reasoning"])
@pytest.mark.slow
def test_sft_learns_wherever_the_readme_says_that_rows_have_answers(tmp_path, env):
    (row,) = re.findall(r"^\| `sft` \|.*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert env in re.split(r"\W+", row)
    if env == "reasoning":
        pytest.importorskip("reasoning_gym", reason="pip install -e '.[reasoning]'", exc_type=ImportError)
    rows = "".join(f'{{"prompt": "{n} + 1?", "answer": "#### {n + 1}"}}\n' for n in range(20))
    (tmp_path / "rows.jsonl").write_text(rows)
    more = {"text": [f"env.source={tmp_path / 'rows.jsonl'}"], "reasoning": ["env.task=chain_sum", "env.train=8"]}
    words = ["algo=sft", f"env={env}", *more.get(env, []), "env.rows=2", "env.max_tokens=4", "env.test=2"]
    assert run.main([*words, *SHORT, "env.validation=2", f"out={tmp_path / 'r'}"]) == 0
