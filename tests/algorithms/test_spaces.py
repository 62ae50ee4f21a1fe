"""Each kind of observation and of action: every algorithm learns an identity task in it, or refuses it by name."""

from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.vector.utils import concatenate, create_empty_array
from support.fakes import algorithm, iterate
from support.marks import slow_if
from torch.testing import assert_close

from rlkit import spaces
from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.policies import Network
from rlkit.policies.encoders import Image, of_leaf
from rlkit.python.policy import Policy

IMAGE = Box(0, 255, (6, 6, 1), np.uint8)
OBSERVATIONS: dict[str, Space[Any]] = {
    "box": Box(-1, 1, (2,)),
    "discrete": Discrete(2, start=5),
    "multi_discrete": MultiDiscrete([3, 2], start=[1, 4]),
    "multi_binary": MultiBinary(2),
    "image": IMAGE,
    "bits": Box(0, 1, (5, 5, 2), np.bool_),
    "dict": Dict({"image": IMAGE, "at": Discrete(2), "more": Dict({"speed": Box(-1, 1, (3,), np.float64)})}),
    "tuple": Tuple((Discrete(2, start=-1), MultiDiscrete([2, 2]), Box(0, 1, (2, 2)))),
}
ACTIONS: dict[str, Space[Any]] = {
    "discrete": Discrete(2, start=3),
    "multi_discrete": MultiDiscrete([2, 3], start=[0, 7]),
    "multi_binary": MultiBinary((2, 2)),
    "tuple": Tuple((Discrete(2, start=1), MultiBinary(2), MultiDiscrete([2, 2]))),
    "box": Box(-1, 1, (1,)),
}


def shown(space: Space[Any], bit: int, draw: np.random.Generator) -> Any:
    """An observation of the space in which a bit can be read, and else anything."""
    if isinstance(space, Dict):
        return {key: shown(part, bit, draw) for key, part in space.spaces.items()}
    if isinstance(space, Tuple):
        return tuple(shown(part, bit, draw) for part in space.spaces)
    if isinstance(space, Discrete):
        return int(space.start) + bit
    if isinstance(space, MultiDiscrete):
        return space.start + np.array([bit, draw.integers(2)])
    if isinstance(space, MultiBinary):
        return np.array([bit, draw.integers(2)], space.dtype)
    assert isinstance(space, Box)
    high = np.minimum(space.high.astype(np.float64), 255)
    seen = np.full(space.shape, 0.5 * bit) * high if space.dtype != np.bool_ else np.full(space.shape, bit)
    return seen.astype(space.dtype)


def right(space: Space[Any], action: Any, bit: int) -> float:
    """How much of an action is what the bit asks for."""
    assert space.contains(action), action
    if isinstance(space, Tuple):
        return float(np.mean([right(part, inner, bit) for part, inner in zip(space.spaces, action, strict=True)]))
    if isinstance(space, Box):
        return 1 - abs(float(action[0]) - (0.5 if bit else -0.5))
    start = space.start if isinstance(space, Discrete | MultiDiscrete) else 0
    return float(np.mean(np.asarray(action) - start == bit))


class Identity(gymnasium.Env[Any, Any]):
    """Eight steps; each shows a bit, and pays what of the action is the bit."""

    def __init__(self, observation: Space[Any], action: Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return self.show(), {}

    def show(self) -> Any:
        self.bit = int(self.np_random.integers(2))
        return shown(self.observation_space, self.bit, self.np_random)

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        reward, self.t = right(self.action_space, action, self.bit), self.t + 1
        return self.show(), reward, self.t == 8, False, {}


def identity(observation: Space[Any], action: Space[Any], rows: int = 8, **options: Any) -> ControlEnv:
    mode = options.get("mode", AutoresetMode.DISABLED)
    return ControlEnv(lambda n: SyncVectorEnv([lambda: Identity(observation, action)] * n, autoreset_mode=mode), rows)


CONFIGS: dict[str, dict[str, Any]] = {
    "ppo": {"horizon": 16, "lr": 0.01, "entropy_coef": 0.0},
    "a2c": {"horizon": 8, "lr": 0.01},
    "reinforce": {"lr": 0.02},
    "grpo": {"lr": 0.02, "group": 4},
    "dqn": {"lr": 0.005, "warmup_steps": 64, "steps": 8, "updates": 16, "sync_every": 20, "gamma": 0.5},
    "sac": {"lr": 0.005, "warmup_steps": 64, "steps": 8, "updates": 16, "gamma": 0.5, "batch_size": 64, "tau": 0.05},
    "td3": {"lr": 0.005, "warmup_steps": 64, "steps": 8, "updates": 16, "gamma": 0.5, "batch_size": 64, "tau": 0.05},
}
TAKES = {name: set(ACTIONS) for name in ("ppo", "a2c", "reinforce", "grpo")}
TAKES |= {"dqn": {"discrete"}, "sac": {"discrete", "box"}, "td3": {"box"}}
CONFIGS["sac"] |= {"capacity": 5000, "learn_temperature": False, "temperature": 0.02}
CONFIGS["td3"] |= {"capacity": 5000}
LONG = ("ppo", "grpo", "sac")  # what takes seconds for each kind of action


def learned(name: str, env: ControlEnv, iterations: int = 40, encoder: str = "auto") -> float:
    """The greedy return per step after some iterations."""
    torch.manual_seed(0)
    algo = algorithm(name, env, Network(hidden=(32,), encoder=encoder), **CONFIGS[name])
    for _ in range(iterations):
        iterate(algo, env)
    return float(env.evaluate(algo.policy, 16).score.mean()) / 8


def refuses(name: str, kind: str) -> None:
    with pytest.raises(UserError, match=str(type(ACTIONS[kind]).__name__)):
        algorithm(name, identity(OBSERVATIONS["box"], ACTIONS[kind]), Network(), **CONFIGS[name])


@pytest.mark.parametrize("kind", ACTIONS)
@pytest.mark.parametrize("name", [pytest.param(x, marks=pytest.mark.slow) if x in LONG else x for x in CONFIGS])
def test_every_kind_of_action_is_learned_or_refused(name: str, kind: str) -> None:
    if kind not in TAKES[name]:
        refuses(name, kind)
        return
    iterations = 150 if kind == "box" and name in ("a2c", "reinforce", "grpo") else 40  # a deviation has to shrink
    assert learned(name, identity(OBSERVATIONS["box"], ACTIONS[kind]), iterations) >= 0.85


OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.scale = float(space.high.max())
        self.layer = nn.Linear(int(torch.tensor(space.shape).prod()), 16)

    def forward(self, x):
        return self.layer(x.flatten(1).float() / self.scale).tanh()

make = Net
"""
PICTURES = ("image", "bits", "dict")
SLOW = [pytest.param(kind, marks=pytest.mark.slow) if kind in PICTURES else kind for kind in OBSERVATIONS]


@pytest.mark.parametrize("kind", slow_if(lambda kind: kind not in ("box", "tuple", "discrete"), OBSERVATIONS))
@pytest.mark.parametrize("name", ["ppo", *(pytest.param(x, marks=pytest.mark.slow) for x in ("dqn", "sac", "grpo"))])
def test_every_kind_of_observation_is_learned(name: str, kind: str) -> None:
    assert learned(name, identity(OBSERVATIONS[kind], ACTIONS["discrete"]), 30) >= 0.9


@pytest.mark.parametrize("kind", SLOW)
@pytest.mark.slow
def test_critics_of_continuous_actions_read_every_kind_of_observation(kind: str) -> None:
    assert learned("sac", identity(OBSERVATIONS[kind], ACTIONS["box"]), 40) >= 0.85


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), [("ppo", "image"), ("grpo", "box"), ("dqn", "image"), ("sac", "box")])
def test_a_network_of_ones_own_is_learned_with(name: str, kind: str, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(OWN)
    action = ACTIONS["box" if name == "sac" else "discrete"]
    assert learned(name, identity(OBSERVATIONS[kind], action), encoder=str(tmp_path / "net.py")) >= 0.85


@pytest.mark.parametrize(("iterations", "best"), [(5, -1.0), pytest.param(60, 0.9, marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_deterministic_actor_reads_images(iterations: int, best: float) -> None:
    assert learned("td3", identity(OBSERVATIONS["image"], ACTIONS["box"]), iterations) >= best


# What a policy sees


@pytest.mark.parametrize("kind", OBSERVATIONS)
def test_an_observation_and_its_parts_are_what_the_environment_gave(kind: str) -> None:
    space = OBSERVATIONS[kind]
    space.seed(0)
    given = [space.sample() for _ in range(5)]
    rows = spaces.observed(space, concatenate(space, given, create_empty_array(space, 5)))
    shape, dtype = spaces.row(space)
    assert rows.shape == (5, *shape) and rows.dtype == dtype
    for i, observation in enumerate(given):
        assert np.array_equal(spaces.one(space, observation), rows[i])
        for path, part, x in spaces.leaf_arrays(space, rows):
            inner = np.asarray(spaces.inside(observation, space, path), dtype=np.float64).reshape(-1)
            start = np.asarray(getattr(part, "start", 0)).reshape(-1)
            assert_close(
                torch.from_numpy(x[i].reshape(-1).astype(np.float64) + start),
                torch.from_numpy(inner),
                atol=1e-6,
                rtol=0,
            )


@pytest.mark.slow
def test_images_are_kept_in_bytes() -> None:
    for kind, size in (("image", 36), ("bits", 50), ("dict", 8 + 12 + 36)):
        env = identity(OBSERVATIONS[kind], ACTIONS["discrete"])
        algo = algorithm("dqn", env, Network(), **CONFIGS["dqn"])
        iterate(algo, env)
        kept = algo.buffer.store["observation"]
        assert kept.dtype == torch.uint8 and kept.shape[1] == size


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("kind", ["dict", "tuple", "image"])
def test_the_last_observation_of_an_episode_is_its_own(kind: str, mode: AutoresetMode) -> None:
    """In every way of resetting the same steps are seen, those that only reset aside."""
    found = []
    for each in (AutoresetMode.DISABLED, mode):
        env = identity(OBSERVATIONS[kind], ACTIONS["discrete"], rows=1, mode=each)
        algo = algorithm("ppo", env, Network(hidden=(4,)), horizon=30)
        rollout = algo.rollout(env)
        first = int(rollout["done"][0].int().argmax()) + 1
        assert first == 8
        found.append(rollout["next_observation"][0, : first - 1])
        assert torch.equal(rollout["next_observation"][0, : first - 1], rollout["observation"][0, 1:first])
    assert torch.equal(*found)


def test_the_gradient_of_several_choices_is_that_of_torch() -> None:
    from rlkit.policies import distributions

    draw = torch.Generator().manual_seed(0)
    logits = torch.randn(7, 9, generator=draw, dtype=torch.float64, requires_grad=True)
    sizes = (2, 3, 4)
    action = torch.stack([torch.randint(n, (7,), generator=draw) for n in sizes], -1)
    log_prob, entropy = distributions.categoricals(logits, action, sizes)
    parts = [torch.distributions.Categorical(logits=z) for z in logits.split(sizes, -1)]
    assert_close(log_prob, sum(p.log_prob(a) for p, a in zip(parts, action.unbind(-1), strict=True)))
    assert_close(entropy, sum(p.entropy() for p in parts))


@pytest.mark.parametrize("encoder", ["auto", "nature", "impala", "small", "flat"])
def test_networks_for_images(encoder: Any) -> None:
    for shape in ((84, 84, 3), (4, 84, 84)):
        env = identity(Box(0, 255, shape, np.uint8), ACTIONS["discrete"], rows=1)
        policy = Network(encoder=encoder, hidden=(8,)).q_network(env)
        with torch.no_grad():
            out = policy(torch.randint(256, (3, 84 * 84 * shape[0 if shape[0] == 4 else 2]), dtype=torch.uint8))
        assert out.shape == (3, 2) and out.isfinite().all()
        again = Network(encoder=encoder, hidden=(8,)).q_network(env)
        pairs = zip(policy.parameters(), again.parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)  # the same seed, whatever torch drew before


@pytest.mark.parametrize(
    ("channels", "shape"),
    [
        (3, (84, 84, 3)),
        (4, (4, 84, 84)),
        (20, (7, 7, 20)),
        (20, (20, 7, 7)),
        (3, (60, 80, 3)),
        (3, (3, 60, 80)),
        (9, (9, 9, 9)),
    ],
)
def test_convolutions_run_over_height_and_width(channels: int, shape: tuple[int, ...]) -> None:
    image = of_leaf(Box(0, 1, shape, np.bool_), "small")
    assert isinstance(image, Image)
    first = next(part for part in image.modules() if isinstance(part, torch.nn.Conv2d))
    assert first.in_channels == channels
    assert image(torch.ones(2, int(np.prod(shape)))).shape == (2, 32 * np.prod(shape) // channels)


@pytest.mark.parametrize(
    ("space", "encoder", "words"),
    [
        (Box(0, 255, (84, 84), np.uint8), "auto", "looks like an image without a channel"),
        (Box(0, 255, (84, 84), np.uint8), "nature", "height, width and channels"),
        (Box(0, 255, (10, 10, 3), np.uint8), "nature", "36 pixels and more"),
    ],
)
def test_images_that_do_not_fit_are_refused(space: Box, encoder: Any, words: str) -> None:
    with pytest.raises(UserError, match=words):
        Network(encoder=encoder).actor(identity(space, ACTIONS["discrete"], rows=1))


def test_a_part_that_is_missing_or_no_number_is_named() -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": Discrete(2)})
    with pytest.raises(FloatingPointError, match="not finite: the observation at a"):
        check({"a": np.array([[0.0, np.nan]]), "b": np.array([1])}, space)
    with pytest.raises(UserError, match=r"gave the observation 3 at b, which is not in Discrete\(2\)"):
        check({"a": np.zeros((1, 2)), "b": np.array([3])}, space)


def check(given: Any, space: Space[Any]) -> None:
    from rlkit.control import requirements

    requirements.check_observed(space, spaces.observed(space, given), "here")


def test_predict_takes_observations_with_parts() -> None:
    space = Dict({"a": Box(-1, 1, (2,)), "b": MultiDiscrete([2, 3])})
    env = identity(space, ACTIONS["tuple"], rows=1)
    policy = Policy(env, algorithm("ppo", env, Network()).policy)
    one = {"a": np.zeros(2), "b": np.array([1, 2])}
    assert ACTIONS["tuple"].contains(policy.predict(one))
    several = policy.predict({key: np.stack([x, x, x]) for key, x in one.items()})
    assert [len(part) for part in several] == [3, 3, 3]
    listed = policy.predict({"a": [[0.0, 0.0]], "b": [[1, 2]]})
    assert all(np.array_equal(part, first[:1]) for part, first in zip(listed, several, strict=True))
    assert [len(part) for part in policy.predict({"a": np.zeros((0, 2)), "b": np.zeros((0, 2), int)})] == [0, 0, 0]
    for wrong, says in (
        ({"a": np.zeros(2)}, "an observation has nothing at b"),
        ({"a": np.zeros(2), "b": np.array([1, 3])}, "is not in the environment's MultiDiscrete"),
        ({"a": np.zeros((2, 2)), "b": np.array([1, 2])}, "mixes parts of one with parts of several"),
        ({"a": np.zeros(3), "b": np.array([1, 2])}, "does not fit"),
        ({"a": np.zeros((2, 2)), "b": np.ones((3, 2), int)}, "has parts of 2 and 3 observations: give as many"),
    ):
        with pytest.raises(UserError, match=says):
            policy.predict(wrong)


@pytest.mark.parametrize(("kind", "wrong"), [(np.uint8, 0.5), (np.uint8, 256), (np.uint8, -1), (np.bool_, 2)])
def test_predict_refuses_an_image_that_is_not_of_its_bytes(kind: type, wrong: float) -> None:
    """In fractions of 1 it would be black."""
    space = Box(0, 1 if kind is np.bool_ else 255, (4, 4, 3), kind)
    env = identity(space, ACTIONS["discrete"], rows=1)
    policy = Policy(env, algorithm("ppo", env, Network()).policy)
    assert policy.predict(np.ones((2, 4, 4, 3), np.float32)).shape == (2,)
    with pytest.raises(UserError, match="is not in the environment's Box"):
        policy.predict(np.full((4, 4, 3), wrong))
