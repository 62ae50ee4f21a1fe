"""What is said of a key that there is not: ours for a word of other libraries, or the nearest in spelling."""

from rlkit.settings.plugins import nearest

ELSEWHERE = {  # words of other libraries, and our keys for them, of which the first that there is counts
    "learning_rate": "algo.lr",
    "discount": "algo.gamma",
    "discount_factor": "algo.gamma",
    "lam": "algo.gae_lambda",
    "lambda": "algo.gae_lambda",
    "n_steps": "algo.horizon algo.n_step algo.steps",
    "num_steps": "algo.horizon algo.steps",
    "rollout_steps": "algo.horizon algo.steps",
    "batch_size": "algo.minibatches",
    "num_minibatches": "algo.minibatches",
    "n_epochs": "algo.epochs",
    "num_epochs": "algo.epochs",
    "update_epochs": "algo.epochs",
    "ent_coef": "algo.entropy_coef",
    "vf_coef": "algo.value_coef",
    "clip_range": "algo.clip algo.clip_high",
    "clip_coef": "algo.clip algo.clip_high",
    "clip_eps": "algo.clip algo.clip_high",
    "buffer_size": "algo.capacity",
    "learning_starts": "algo.warmup_steps",
    "num_generations": "algo.group",
    "group_size": "algo.group",
    "target_update_interval": "algo.sync_every",
    "hidden_sizes": "policy.hidden",
    "net_arch": "policy.hidden",
    "n_envs": "env.rows",
    "num_envs": "env.rows",
    "max_episode_steps": "env.step_limit",
    "max_completion_length": "env.max_tokens",
    "max_new_tokens": "env.max_tokens",
    "total_timesteps": "env_steps",
    "total_steps": "env_steps",
    "timesteps": "env_steps",
    "epochs": "iterations",
    "output_dir": "out",
}


def instead(key: str, section: str, known: list[str]) -> str:
    """What is said of a key that its section has not; `known` is what it has."""
    for ours in ELSEWHERE.get(key.lower(), "").split():
        head, _, field = ours.rpartition(".")
        if section in ("run", "algo", "env", "policy") and (head != section or field in known):
            return f"here it is {ours}; there are: {', '.join(known)}"
    also = "; keys of the plug-ins are written algo.KEY, env.KEY, policy.KEY" if section == "run" else ""
    return f"{nearest(key, known)}{also}"
