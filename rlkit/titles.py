"""Plug-ins as papers write them: PPO for ppo, CartPole for cartpole. A name that is not listed stays as it is."""

ALGORITHMS = {
    "a2c": "A2C",
    "bnpo": "BNPO",
    "cispo": "CISPO",
    "dapo": "DAPO",
    "dpo": "DPO",
    "dqn": "DQN",
    "dr_grpo": "Dr. GRPO",
    "expected_sarsa": "Expected SARSA",
    "gmpo": "GMPO",
    "grpo": "GRPO",
    "gspo": "GSPO",
    "monte_carlo": "Monte Carlo",
    "policy_iteration": "Policy iteration",
    "ppo": "PPO",
    "q_learning": "Q-learning",
    "reinforce": "REINFORCE",
    "reinforce_pp": "REINFORCE++",
    "reward_model": "Reward model",
    "rloo": "RLOO",
    "sac": "SAC",
    "sapo": "SAPO",
    "sarsa": "SARSA",
    "sft": "SFT",
    "td": "TD",
    "td3": "TD3",
    "value_iteration": "Value iteration",
}

ENVIRONMENTS = {
    "acrobot": "Acrobot",
    "arithmetic": "Arithmetic",
    "atari": "Atari",
    "cartpole": "CartPole",
    "cliffwalking": "CliffWalking",
    "frozenlake": "FrozenLake",
    "game": "Game in words",
    "gridworld": "Grid world",
    "gsm8k": "Word problems",  # most are not those of GSM8K
    "guess": "Guess a number",
    "gym": "Gymnasium",
    "halfcheetah": "HalfCheetah",
    "hopper": "Hopper",
    "lunarlander": "LunarLander",
    "minatar": "MinAtar",
    "minigrid": "MiniGrid",
    "mountaincar": "MountainCar",
    "pendulum": "Pendulum",
    "pettingzoo": "PettingZoo",
    "preferences": "Preferences",
    "reasoning": "Reasoning",
    "taxi": "Taxi",
    "text": "Text",
    "torchrl": "TorchRL",
}


def algorithm(name: str) -> str:
    """`PPO lr=0.001` of the row `ppo lr=0.001`."""
    return _titled(name, ALGORITHMS)


def environment(name: str, source: str = "") -> str:
    """`CartPole` of the column `cartpole`, and `Acrobot-v1` of `gym:Acrobot-v1`.

    source: where its problems are from, as env.source has it: of a path, the file and its folder may name them.
    """
    head, blank, settings = name.partition(" ")
    if head == "gsm8k" and any("gsm8k" in part for part in source.lower().split("/")[-2:]):
        return f"GSM8K{blank}{settings}"
    plugin, colon, problem = name.partition(":")
    return problem if colon and plugin == "gym" and problem else _titled(name, ENVIRONMENTS)


def _titled(name: str, titles: dict[str, str]) -> str:
    """The name of a plug-in at the beginning, where nothing or a setting follows it, as papers write it."""
    for sign in (" ", ":"):
        head, found, rest = name.partition(sign)
        if head in titles:
            return f"{titles[head]}{found}{rest}"
    return name
