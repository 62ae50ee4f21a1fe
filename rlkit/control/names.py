"""What the components of an observation and the actions are called, by Gymnasium's id of the environment."""

import math
from dataclasses import dataclass

from gymnasium.spaces import Box, Discrete

from rlkit.control.env import ControlEnv
from rlkit.control.tabular import TabularEnv


@dataclass(frozen=True)
class Names:
    """Of one environment; empty where they are not known, and numbers stand in for them."""

    observation: tuple[str, ...] = ()
    action: tuple[str, ...] = ()


# x is along the way, z is up. The order is that of Gymnasium's documentation.
HOPPER = ("top", "thigh joint", "leg joint", "foot joint")
CHEETAH = ("back thigh", "back shin", "back foot", "front thigh", "front shin", "front foot")
ENGINES = ("none", "left engine", "main engine", "right engine")
LANDER = ("x", "y", "x speed", "y speed", "angle", "spin", "left leg touches", "right leg touches")
KNOWN = (
    ("CartPole-v1", Names(("cart position", "cart speed", "pole angle", "pole spin"), ("push left", "push right"))),
    (
        "Acrobot-v1",
        Names(
            ("cos θ₁", "sin θ₁", "cos θ₂", "sin θ₂", "spin of joint 1", "spin of joint 2"),
            ("torque −1", "torque 0", "torque +1"),
        ),
    ),
    ("MountainCar-v0", Names(("position", "speed"), ("push left", "no push", "push right"))),
    ("MountainCarContinuous-v0", Names(("position", "speed"), ("force",))),
    ("Pendulum-v1", Names(("cos θ", "sin θ", "spin"), ("torque",))),
    ("LunarLander-v3", Names(LANDER, ENGINES)),
    ("LunarLander-v3", Names(LANDER, ("main throttle", "side throttle"))),
    (
        "Hopper-v5",
        Names(
            (
                *("height", *(f"{part} angle" for part in HOPPER)),
                *("x speed", "z speed", *(f"{part} spin" for part in HOPPER)),
            ),
            tuple(f"{part} torque" for part in HOPPER[1:]),
        ),
    ),
    (
        "HalfCheetah-v5",
        Names(
            (
                *("height", "tip angle", *(f"{part} angle" for part in CHEETAH)),
                *("x speed", "z speed", "tip spin", *(f"{part} spin" for part in CHEETAH)),
            ),
            tuple(f"{part} torque" for part in CHEETAH),
        ),
    ),
    ("MiniGrid", Names((), ("turn left", "turn right", "forward", "pick up", "drop", "use", "done"))),
)


def of(env: ControlEnv) -> Names:
    """The names of an environment whose source says an id of `KNOWN`, as far as they fit its spaces."""
    if isinstance(env, TabularEnv):
        return Names(("state",), () if env.grid is None else env.grid.actions)
    found = [each for name, each in KNOWN if names_it(env.source, name)]
    seen, done = components(env.observation_space), components(env.action_space)
    fitting = next((each.observation for each in found if len(each.observation) == seen), ())
    return Names(fitting, next((each.action for each in found if len(each.action) == done), ()))


def names_it(source: str, name: str) -> bool:
    """Whether a source, such as "CartPole-v1 in numpy", is of this environment: a version is part of its name."""
    words = source.split()
    return name in words or (name == "MiniGrid" and any(word.startswith("MiniGrid-") for word in words))


def components(space: object) -> int:
    """How many numbers a Box has, or how many choices there are; 0 for what has no such names."""
    if isinstance(space, Box):
        return math.prod(space.shape)
    return int(space.n) if isinstance(space, Discrete) else 0
