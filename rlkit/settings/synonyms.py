"""What is said of a key that there is not: ours for a word of other libraries, or the nearest in spelling."""

import difflib
from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType

SIZES = ("batch_size", "mini_batch_size", "minibatch_size", "ppo_mini_batch_size")  # of a minibatch
ELSEWHERE = {  # words of other libraries, and our keys for them, of which the first that there is counts
    "learning_rate": "algo.lr",
    "discount": "algo.gamma",
    "discount_factor": "algo.gamma",
    "lam": "algo.gae_lambda",
    "lambda": "algo.gae_lambda",
    "n_steps": "algo.horizon algo.n_step algo.steps",
    "num_steps": "algo.horizon algo.steps",
    "rollout_steps": "algo.horizon algo.steps",
    **dict.fromkeys(SIZES, "algo.minibatches"),
    "num_minibatches": "algo.minibatches",
    "n_epochs": "algo.epochs",
    "num_epochs": "algo.epochs",
    "update_epochs": "algo.epochs",
    "beta": "algo.beta algo.kl_coef",
    "ent_coef": "algo.entropy_coef algo.temperature",
    "vf_coef": "algo.value_coef",
    "clip_range": "algo.clip algo.clip_high",
    "clip_coef": "algo.clip algo.clip_high",
    "clip_eps": "algo.clip algo.clip_high",
    "clip_range_vf": "algo.value_clip",
    "cliprange_value": "algo.value_clip",
    "clip_vloss": "algo.value_clip",
    "eps": "algo.epsilon",
    "exploration_fraction": "algo.epsilon_decay",
    "exploration_initial_eps": "algo.epsilon",
    "exploration_final_eps": "algo.epsilon_end",
    "buffer_size": "algo.capacity",
    "learning_starts": "algo.warmup_steps",
    "num_generations": "algo.group",
    "group_size": "algo.group",
    "target_update_interval": "algo.sync_every",
    "gradient_steps": "algo.updates",
    "train_freq": "algo.steps",
    "action_noise": "algo.noise",
    "target_policy_noise": "algo.target_noise",
    "target_noise_clip": "algo.noise_clip",
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
    "output_dir": "out",
}

OTHERWISE = {  # words that mean something else than our key for them, and what the difference is
    **{(size, "algo.minibatches"): " (how many there are, not how large one is)" for size in SIZES},
    ("clip_vloss", "algo.value_clip"): " (a range such as 0.2, not a switch)",
    ("ent_coef", "algo.temperature"): " (it is learned from there on, unless algo.learn_temperature=false)",
    ("vf_coef", "algo.value_coef"): " (of half the squared error, as in CleanRL: twice that of Stable-Baselines3)",
    ("target_update_interval", "algo.sync_every"): " (in optimizer steps, not environment steps)",
}

OF_RUNS = {"epochs": "iterations"}  # only for a run: beside an algorithm it is a key that others have

STANDS_IN = {  # algorithms that people look for, and ours for the same purpose
    "ddpg": "algo=td3 came of it",
    "trpo": "algo=ppo came of it",
    **dict.fromkeys(("a3c", "impala"), "algo=a2c is actor-critic with all rows in step"),
    "vpg": "algo=reinforce is the plain policy gradient",
    **dict.fromkeys(("ddqn", "double_dqn"), "algo=dqn is double by default (algo.double)"),
    "rainbow": "algo=dqn has most of it as fields: double, dueling, prioritized, n_step",
    **dict.fromkeys(("ipo", "simpo"), "algo=dpo has it as algo.loss"),
    **dict.fromkeys(("kto", "orpo"), "algo=dpo learns from pairs, too"),
}


def instead(
    key: str, section: str, known: list[str], there: Mapping[str, Collection[str]] = MappingProxyType({})
) -> str:
    """What is said of a key that its section has not; `known` is what it has, `there` what named plug-ins have."""
    fields = {**there, section: known}
    named = [f"{head}.{key}" for head, names in there.items() if key in names]
    elsewhere = ELSEWHERE | (OF_RUNS if section == "run" else {})
    for ours in [*named, *elsewhere.get(key.lower(), "").split()]:
        head, _, field = ours.rpartition(".")
        if section in ("run", "algo", "env", "policy") and field in fields.get(head, [field]):
            otherwise = OTHERWISE.get((key.lower(), ours), "")
            return f"here it is {ours}{otherwise}; there are: {', '.join(known)}"
    also = "; keys of the plug-ins are written algo.KEY, env.KEY, policy.KEY" if section == "run" else ""
    return f"{nearest(key, known)}{also}"


def nearest(name: str, options: Iterable[str]) -> str:
    """Say what might have been meant and what exists: `did you mean dqn? There are: dqn, ppo`."""
    options = list(options)
    low = name.lower()
    close = [x for x in options if x.lower() == low] or [x for x in options if one_off(low, x)]
    close = close or difflib.get_close_matches(low, options, 1, 0.7)
    close = close or [x for x in options if min(len(x), len(low)) > 2 and (x.startswith(low) or low.startswith(x))]
    there = f"there are: {', '.join(options)}" if options else "there are none"
    return f"did you mean {close[0]}? {there[0].upper()}{there[1:]}" if close else there


def one_off(name: str, other: str) -> bool:
    """Whether one letter more, less, changed, or exchanged with its neighbor makes the one name of the other."""
    if abs(len(name) - len(other)) > 1:
        return False
    start = next((i for i, (a, b) in enumerate(zip(name, other, strict=False)) if a != b), min(len(name), len(other)))
    a, b = name[start:], other[start:]
    return a[1:] == b[1:] or a[1:] == b or a == b[1:] or (a[1::-1] == b[:2] and a[2:] == b[2:])
