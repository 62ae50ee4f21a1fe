"""What an environment of your own must keep to, looked up once on copies that nobody plays."""

import copy
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

import gymnasium
import numpy as np
from gymnasium.spaces import Box, Space
from gymnasium.vector import SyncVectorEnv, VectorWrapper
from gymnasium.wrappers import NormalizeObservation, NormalizeReward, OrderEnforcing, TimeLimit
from gymnasium.wrappers import vector as of_vectors

from rlkit import spaces
from rlkit.control.masks import layers, side_by_side, tell_unread
from rlkit.control.vector import Array, Vector
from rlkit.errors import UserError
from rlkit.seeding import drawn_apart
from rlkit.terminal import warn

if TYPE_CHECKING:
    from rlkit.api import AnySpace

One = gymnasium.Env[Any, Any]
Step = tuple[Any, Any, bool, bool, dict[str, Any]]  # what one gives
Game = Any  # a pettingzoo.ParallelEnv
RESET = "Gymnasium 1.0, (observation, info)"
STEP = "Gymnasium 1.0, (observation, reward, terminated, truncated, info)"
GAME = ("PettingZoo, (observations, infos)", "PettingZoo, (observations, rewards, terminations, truncations, infos)")
LARGEST = float(np.finfo(np.float32).max)  # a reward: rollouts are kept in float32
NUMBERS = "biuf"  # kinds of NumPy's types: bool, int, unsigned, float
SCALES = {  # wrappers that keep statistics, and what does the same in rlkit
    "policy.normalize": (NormalizeObservation, of_vectors.NormalizeObservation),
    "algo.normalize_reward": (NormalizeReward, of_vectors.NormalizeReward),
}


def check_copies(make: Callable[[], One], called: str) -> None:
    """Make two copies, reset both with one seed, and step one of them.

    Arguments:
        make: makes one copy.
        called: the key that says which environment this is.

    Raises: UserError where both are the same object, where spaces are missing, and where `reset` or `step` return
        something else than Gymnasium says; what the environment itself raises is raised as it is.
    """
    one, other = own(make()), own(make())
    try:
        if one.unwrapped is other.unwrapped:
            refuse_shared(called)
        with drawn_apart(0, "reset"):  # each run begins with seeded global generators
            first = check_one(one, called)
        with drawn_apart(0, "reset"):
            again = parts(other.reset(seed=0), 2, f"{called}: reset", RESET)[0]
        if not np.array_equal(first, spaces.one(one.observation_space, again), equal_nan=True):
            warn(
                f"{called}: two copies that are reset with the same seed begin in different states, so this run cannot "
                "be repeated: draw from self.np_random after super().reset(seed=seed)"
            )
    finally:
        one.close()
        other.close()


def with_ends(called: str, step: Callable[[Any], Step], action: Any) -> Step:
    """A step whose ends are checked, where Gymnasium would take any text for True."""
    found = step(action)
    if len(found) == 5:  # else it is said where it is read
        check_ends(found[2], found[3], called)
    return found


class Uninformed(gymnasium.Wrapper[Any, Any, Any, Any]):
    """Checks the ends, and gives no infos: Gymnasium stacks those of all copies, and cannot where types differ."""

    def __init__(self, env: One, called: str) -> None:
        super().__init__(env)
        self.called = called

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        return self.env.reset(seed=seed, options=options)[0], {}

    def step(self, action: Any) -> Step:
        found = with_ends(self.called, self.env.step, action)
        return (*found[:4], {}) if len(found) == 5 and isinstance(found[4], Mapping) else found


def checked(vector: Vector, called: str, n: int, others: Sequence[Vector] = ()) -> Vector:
    """With the ends checked that each copy gives in a step, where its copies are in this process.

    Only the step of a copy is replaced: who made the copy goes on reading and setting its attributes.

    Raises: UserError as `check_statistics` does, and where it has not `n` copies, or shares one with itself or others.
    """
    check_statistics(vector, called)
    if vector.num_envs != n:
        raise UserError(f"{called} has {vector.num_envs} copies where {n} were asked for: make as many as that")
    # All held at once: the next object may take the place of one that is gone.
    worlds = [world for each in (vector, *others) for world in (each.unwrapped, *(x.unwrapped for x in inside(each)))]
    if len({*map(id, worlds)}) < len(worlds):
        refuse_shared(called)
    for env in inside(vector):
        if not any(isinstance(x, Uninformed) for x in layers(env)):
            env.step = partial(with_ends, called, env.step)  # type: ignore[method-assign]
    return vector


def inside(vector: Vector) -> list[One]:
    """The copies of a vector environment that are Gymnasium's, and in this process."""
    inner = vector.unwrapped
    return [x for x in inner.envs if isinstance(x, gymnasium.Env)] if isinstance(inner, SyncVectorEnv) else []


def refuse_shared(called: str) -> NoReturn:
    raise UserError(f"{called} gives the same environment each time: let it make a new one, so that none is shared")


def check_statistics(env: One | Vector, called: str) -> None:
    """Raises: UserError where a wrapper of Gymnasium keeps statistics of copies, also in an environment of your own.

    Those of the copies that measure would move with each evaluation, and scores with them.
    """
    while isinstance(env, gymnasium.Wrapper | VectorWrapper):
        for key, kinds in SCALES.items():
            if isinstance(env, kinds):
                raise UserError(
                    f"{called} holds Gymnasium's {type(env).__name__}: other copies have other statistics, which "
                    f"change with each evaluation and are not saved; leave it out, and give {key}=true"
                )
        env = env.env
    for copy_ in env.envs if isinstance(env, SyncVectorEnv) else ():
        check_statistics(copy_, called)


def own(env: One) -> One:
    """Without what `gymnasium.make` wraps around it, which takes the right form for granted."""
    while isinstance(env, OrderEnforcing | TimeLimit):
        env = env.env
    return env


def check_one(env: One, called: str) -> Array:
    """Reset and step it once; returns what it saw first."""
    for name in ("observation_space", "action_space"):
        if not isinstance(getattr(env, name, None), Space):  # Gymnasium declares them and gives them no value
            raise UserError(f"{called} has no {name}: set one, such as a gymnasium.spaces.Box or Discrete")
    if not isinstance(env.metadata, Mapping):
        raise UserError(
            f"{called} has metadata of type {type(env.metadata).__name__}: write metadata = {{'render_modes': []}}, or "
            "leave it out"
        )
    check_mission(env.observation_space, called)
    spaces.check_spaces(env.observation_space, env.action_space)
    if type(env).step is gymnasium.Env.step:
        raise UserError(f"{called} has no step: write def step(self, action), which returns the 5 of {STEP}")
    try:
        inspect.signature(env.reset).bind(seed=0, options=None)  # as Gymnasium's vector environments call it
    except TypeError as error:
        raise UserError(
            f"{called}: reset cannot be called with seed and options ({error}): "
            "write def reset(self, *, seed=None, options=None)"
        ) from None
    found = parts(env.reset(seed=0), 2, f"{called}: reset", RESET)
    check_observation(env.observation_space, found[0], f"{called}: reset")
    check_info(found[-1], f"{called}: reset")
    first = spaces.one(env.observation_space, copy.deepcopy(found[0]))  # a copy: the step may write over it
    action = some_action(env.observation_space, env.action_space, *found)
    found = parts(env.step(action), 5, f"{called}: step", STEP)
    check_observation(env.observation_space, found[0], f"{called}: step")
    check_info(found[-1], f"{called}: step")
    check_ends(found[2], found[3], called)
    check_reward(found[1], f"{called}: step")
    return first


def check_mission(space: "AnySpace", called: str) -> None:
    """Raises: UserError that says how MiniGrid's worlds are played, whose observations hold a text, the mission."""
    if any(type(part).__name__.endswith("MissionSpace") for _, part in spaces.leaves(space)):
        way = "play it as env=minigrid with the same env.id, or give" if "MiniGrid-" in called else "give"
        raise UserError(
            f"{called} shows its mission as a text, which no network for control reads: {way} "
            "env.wrappers=minigrid.wrappers:ImgObsWrapper, which leaves it out"
        )


def check_game(game: Game, called: str) -> None:
    """Reset and step a game of several agents once.

    Raises: UserError where it has no agents, and where `reset` or `step` return something else than PettingZoo says.
    """
    if not game.possible_agents:
        raise UserError(f"{called} has no possible_agents: name the agents that play")
    seen, told = parts(game.reset(seed=0), 2, f"{called}: reset", GAME[0])
    here = [name for name in game.agents if name in seen]
    space = {name: (game.observation_space(name), game.action_space(name)) for name in here}
    for name in here:
        spaces.check_spaces(*space[name])
        check_observation(space[name][0], seen[name], f"{called}: reset, of {name},")
    tell_unread(told, (of_name[0] for of_name in space.values()), called)
    actions = {name: some_action(*space[name], seen[name], told.get(name)) for name in here}
    seen, rewards, *_ = parts(game.step(actions), 5, f"{called}: step", GAME[1])
    check_paid(rewards, here, called)
    for name in here:
        if name in seen:
            check_observation(space[name][0], seen[name], f"{called}: step, of {name},")
        check_reward(rewards[name], f"{called}: step, of {name},")


def check_paid(rewards: Mapping[Any, Any], acted: Iterable[Any], called: str) -> None:
    """Raises: UserError where an agent that acted has no reward: 0 would be learned and measured in its place."""
    if unpaid := [name for name in acted if name not in rewards]:
        raise UserError(
            f"{called}: step gave no reward of {unpaid[0]}, which acted in it: return one of each agent that acted, "
            "0 where it earned nothing"
        )


def check_ends(terminated: object, truncated: object, called: str) -> None:
    for name, flag in (("terminated", terminated), ("truncated", truncated)):
        if not isinstance(flag, bool | np.bool_):  # any other text than "" would end each episode
            raise UserError(f"{called}: step gave {name} of type {type(flag).__name__}: return True or False")


def check_reward(given: object, where: str) -> None:
    reward = np.asarray(given)
    if reward.shape != () or reward.dtype.kind not in NUMBERS:
        found = f"shape {reward.shape}" if reward.shape else f"type {type(given).__name__}"
        raise UserError(f"{where} gave a reward of {found}: return one number")
    if LARGEST < abs(float(reward)) < np.inf:
        raise UserError(
            f"{where} gave a reward of {float(reward):g}: return at most {LARGEST:.2g}, as float32 holds it"
        )


def some_action(seen: "AnySpace", space: "AnySpace", observation: Any, info: Any) -> Any:  # as the environment has them
    """An action at random, or where the environment says what is allowed, the first that is."""
    actions = copy.deepcopy(space)  # drawing from its own would move it
    actions.seed(0)
    counts = spaces.choices(actions)
    told = observation if spaces.masks_actions(seen) else info
    if counts is None or not isinstance(told, Mapping) or spaces.MASK not in told:
        return actions.sample()
    allowed = side_by_side(told[spaces.MASK])[None] > 0
    if allowed.shape[1] != sum(counts):  # said where it is read
        return actions.sample()
    shape, kind = spaces.action_shape(actions)
    chosen = spaces.executed(actions, spaces.lawful(actions, allowed, np.zeros((1, *shape), dtype=kind)))
    return alone(chosen)


def alone(action: Any) -> Any:  # as the space nests it
    """The only one of a batch."""
    return tuple(alone(part) for part in action) if isinstance(action, tuple) else action[0]


def parts(given: object, count: int, where: str, names: str) -> tuple[Any, ...]:
    if not isinstance(given, tuple) or len(given) != count:
        found = f"{len(given)} values" if isinstance(given, tuple) else f"a {type(given).__name__}"
        raise UserError(f"{where} returns {found}: return the {count} of {names}")
    return given


def check_observation(whole: "AnySpace", given: object, where: str) -> None:
    """Refuse an observation that lacks a part of its space, or is of another shape or type there."""
    for path, space in spaces.leaves(whole):
        here = f"{where}, at {'.'.join(path)}," if path else where
        try:
            part = spaces.inside(given, whole, path)
        except (KeyError, IndexError, TypeError):
            raise UserError(f"{here} gives nothing, and observation_space has {space}: make them the same") from None
        check_part(part, space, here)


def check_info(given: object, where: str) -> None:
    if not isinstance(given, Mapping):
        raise UserError(f"{where} gives an info of type {type(given).__name__}: return a dictionary")


def check_part(given: Any, space: "AnySpace", where: str) -> None:  # Any: whatever an environment gives
    try:
        array = np.asarray(given)
        shape, kind = array.shape, array.dtype.kind
    except ValueError:  # lists of different lengths
        shape, kind = None, "f"
    seen = f"{where} gives an observation of"
    if kind not in NUMBERS:
        raise UserError(f"{seen} type {array.dtype}: return an array of numbers")
    wanted = space.shape or ()
    if shape != wanted:
        raise UserError(f"{seen} shape {shape}, and observation_space has {wanted}: make them the same")
    if not np.can_cast(array.dtype, np.dtype(space.dtype), "same_kind"):  # 0.5 would become 0, and -1 a 255
        raise UserError(f"{seen} type {array.dtype}, and observation_space has {space.dtype}: make them the same")
    if isinstance(space, Box) and space.dtype == np.uint8 and (array > space.high).any():
        found = f"{seen} {array.max()}, and observation_space ends at {space.high.max()}"
        warn(f"{found}, by which images are divided: make them the same")
