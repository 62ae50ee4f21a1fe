"""Requirements of algorithms: an environment that does not meet one is refused in one line."""

import math
from typing import Protocol, runtime_checkable

from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete

from rlkit import memory, spaces
from rlkit.api import Env, Policy, Remembers
from rlkit.errors import UserError
from rlkit.exact import Model

FINITE = (Discrete, MultiDiscrete, MultiBinary)  # spaces with finitely many elements


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


def step_size(env: Env, seen: int | None = None) -> int:
    """The bytes that one step takes in a rollout at least: observation, successor, action, reward and three flags.

    seen: those of observation and successor, where they are not kept as they are.
    """
    numbers = []
    if env.observation_space is not None and seen is None:
        numbers += [spaces.row(env.observation_space)] * 2
    if env.action_space is not None:
        numbers.append(spaces.action_shape(env.action_space))
    return sum(math.prod(shape) * dtype.itemsize for shape, dtype in numbers) + (seen or 0) + 7


@runtime_checkable
class Shares(Protocol):
    """An environment in which several agents may play an episode together, a row for each."""

    agents: int
    source: str


def refuse_groups(env: object, repeats: int) -> None:
    """Raises: UserError where groups are asked of agents that share an episode."""
    if repeats > 1 and isinstance(env, Shares) and env.agents > 1:
        raise UserError(
            f"{env.source}: its agents play each episode together, and a group compares attempts of one alone: use "
            "algo=ppo, or another algorithm without groups"
        )


def check_rollout(
    env: Env,
    key: str,
    value: int | None,
    steps: int | None,
    repeats: int = 1,
    policy: Policy | None = None,
    rollouts: int = 1,
) -> None:
    """Refuse so many rollouts of `steps` steps (none: whole episodes) that would not fit into memory.

    Arguments:
        key, value: what besides env.rows makes it long, as the user wrote it: algo.horizon, 128; "": nothing does.
        policy: whose network reads all steps at once, so that its widest layer counts; one of text reads a few rows.
    """
    refuse_groups(env, repeats)
    if policy is not None and env.kind != "control":
        return
    width = 0 if policy is None else max((len(p) for p in policy.parameters() if p.dim()), default=0)
    length = steps or min(env.longest or 512, 512)  # whole episodes: a lower bound
    needed = rollouts * env.rows * repeats * length * (step_size(env) + 8 * width)
    told = f"{key}={'none' if value is None else value} with " if key else ""
    copies = env.rows // env.agents if isinstance(env, Shares) else env.rows
    memory.check(needed, f"{told}env.rows={copies}", "give less")


def refuse_alone(env: Env, horizon: int | None, key: str, off: str) -> None:
    """Refuse to compare the advantages of a rollout with a single one; horizon: steps per row, none: whole episodes."""
    if env.kind == "control" and env.rows == 1 and (horizon or env.longest) == 1:
        raise UserError(
            f"{key} compares the advantages of a rollout, and here each rollout is a single step, which would teach "
            f"nothing: give env.rows=2 or more, or {key}={off}"
        )


def refuse_old_memory(policy: Policy, kl_coef: float, horizon: int | None) -> None:
    """Refuse a reference that would have to go on in the middle of an episode with the memory of another policy."""
    if kl_coef and horizon is not None and isinstance(policy, Remembers) and not policy.memoryless:
        raise UserError(
            f"algo.kl_coef={kl_coef} with policy.memory compares with a policy that remembers, from the start of an "
            "episode on: give algo.horizon=none, or leave algo.kl_coef out"
        )


def check_reach(env: Env, key: str, steps: int) -> None:
    """Refuse sums over more steps than an episode has."""
    if env.longest is not None and steps > env.longest:
        raise UserError(
            f"{key}={steps} exceeds the longest episode, which env.step_limit ends after {env.longest} steps: give "
            f"{key}={env.longest} or less, or longer episodes"
        )


def sizes(env: Env, algorithm: str, masks: bool = False) -> tuple[int, int]:
    """How many states and actions there are; an environment without a finite number of both is refused.

    masks: states may come with a mask of actions.
    """
    states, actions = env.observation_space, env.action_space
    if states is not None and isinstance(spaces.beside_mask(states), Discrete):
        if spaces.masks_actions(states) and not masks:
            raise UserError(
                f"{algorithm} knows no action masks, and the states come with one: give env.action_masks=false, or "
                "leave the mask out where the environment is your own"
            )
        states = spaces.beside_mask(states)
    if not isinstance(states, Discrete):
        given = "text" if states is None else f"a {type(states).__name__}{states.shape or ''}"
        instead = "algo=grpo" if states is None else "algo=dqn" if isinstance(actions, Discrete) else "algo=ppo"
        if states is not None and all(isinstance(part, FINITE) for _, part in spaces.leaves(states)):
            raise UserError(
                f"{algorithm} keeps a table and needs states that are one Discrete, not {given}: number them in a "
                f"wrapper of your own (env.wrappers=FILE.py:NAME), or use {instead}"
            )
        raise UserError(f"{algorithm} keeps a table and needs finitely many states, not {given}; use {instead}")
    if not isinstance(actions, Discrete):
        raise UserError(f"{algorithm} needs discrete actions and this environment has {actions}; use algo=ppo")
    states_, actions_ = int(states.n), int(actions.n)
    table = f"a table of {states_:,} states and {actions_:,} actions"
    memory.check(4 * states_ * actions_, table, "give a smaller problem, or a network: algo=dqn")
    return states_, actions_


def known_model(env: Env, what: str, instead: str) -> Model:
    """The environment's model; an environment without one is refused."""
    model = env.model()
    if model is None:
        there = "gridworld, frozenlake, cliffwalking and taxi have one"
        raise UserError(f"{what} needs the model of the environment and this one has none: {there}; or use {instead}")
    return model
