"""What an algorithm needs of an environment; one that does not have it is refused in one line."""

from gymnasium.spaces import Discrete

from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.exact import Model


def refuse_stored(env: Env, algorithm: str) -> None:
    """Refuse stored pairs for methods that learn from their own attempts."""
    if not env.plays:
        raise UserError(
            f"{algorithm} learns from its own attempts and here nothing is played; use algo=dpo, or env=gsm8k"
        )


def longest(env: Env, instead: str) -> int:
    """The most steps that one attempt may take; an environment without a limit is refused."""
    if env.longest is None:
        raise UserError(f"this environment does not say how long an attempt may be: set {instead}")
    return env.longest


def sizes(env: Env, algorithm: str) -> tuple[int, int]:
    """How many states and actions there are; an environment without a finite number of both is refused."""
    states, actions = env.observation_space, env.action_space
    if not isinstance(states, Discrete):
        given = "text" if states is None else f"a {type(states).__name__}{states.shape}"
        instead = "algo=grpo" if states is None else "algo=dqn" if isinstance(actions, Discrete) else "algo=ppo"
        raise UserError(f"{algorithm} keeps a table and needs finitely many states, not {given}; use {instead}")
    if not isinstance(actions, Discrete):
        raise UserError(f"{algorithm} needs discrete actions and this environment has {actions}; use algo=ppo")
    return int(states.n), int(actions.n)


def known_model(env: Env, what: str, instead: str) -> Model:
    """The environment's model; an environment without one is refused."""
    model = env.model()
    if model is None:
        there = "gridworld, frozenlake, cliffwalking and taxi have one"
        raise UserError(f"{what} needs the model of the environment and this one has none: {there}; or use {instead}")
    return model
