"""Layers that actor and critic share: the numbers of one network with two heads, where they are shared, old runs."""

import shutil
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Space
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.fakes import algorithm, credited, gradient_of, iterate
from support.resuming import differences
from torch import nn
from torch.testing import assert_close

from rlkit.control import ControlEnv
from rlkit.control.contract import check_observation
from rlkit.policies import ActorCritic, Network
from rlkit.policies.encoders import AT_ONCE, Image, is_image, of_image, of_leaf, sides
from rlkit.run import main

IMAGE = Box(0, 255, (3, 6, 6), np.uint8)
PARTS = Dict({"action_mask": MultiBinary(2), "seen": IMAGE, "speed": Box(-1, 1, (2,))})
WORDS = ["algo=ppo", "env=minigrid", "env.rows=2", "env.step_limit=20", "algo.horizon=16", "algo.minibatches=2"]
WORDS += ["evaluation_episodes=2", "validation_episodes=2", "policy.hidden=8"]


class Noise(gymnasium.Env[Any, Any]):
    """What its space samples, in episodes of three steps; every other one is truncated."""

    action_space = Discrete(2)

    def __init__(self, space: Space[Any]) -> None:
        self.observation_space, self.episodes = space, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        self.time, self.episodes = 0, self.episodes + 1
        return self.shown(), {}

    def shown(self) -> Any:
        seen = self.observation_space.sample()
        return {**seen, "action_mask": np.array([1, self.time % 2])} if isinstance(seen, dict) else seen

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.time += 1
        over = self.time == 3
        return self.shown(), float(action), over and self.episodes % 2 == 0, over and self.episodes % 2 == 1, {}


def noise(space: Space[Any]) -> ControlEnv:
    return ControlEnv(lambda n: SyncVectorEnv([lambda: Noise(space)] * n, autoreset_mode=AutoresetMode.DISABLED), 4)


class ByHand(nn.Module):
    """The network of two convolutions, one hidden layer and two heads, as torch has them."""

    def __init__(self, policy: ActorCritic) -> None:
        super().__init__()
        self.features = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.Flatten(),
            nn.Linear(32 * 36, 8), nn.Tanh(),
        )  # fmt: skip
        self.actor, self.critic = nn.Linear(8, 2), nn.Linear(8, 1)
        for mine, theirs in zip(self.parameters(), in_order(policy), strict=True):
            mine.data.copy_(theirs)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = self.features(observation.reshape(-1, 3, 6, 6) / 255)
        return self.actor(x), self.critic(x)[:, 0]


def in_order(policy: ActorCritic) -> list[nn.Parameter]:
    return [p for part in (policy.trunk, policy.actor, policy.critic) for p in part.parameters()]


def test_values_and_gradients_are_those_of_one_network_with_two_heads() -> None:
    env = noise(IMAGE)
    algo = algorithm("ppo", env, Network(hidden=(8,)), epochs=1, minibatches=1, horizon=7, entropy_coef=0.1)
    rollout = env.rollout(algo.policy, steps=7)
    net = ByHand(algo.policy)
    assert sum(p.numel() for p in algo.policy.parameters()) == sum(p.numel() for p in net.parameters())

    logits, value = net(rollout["observation"])
    chosen = torch.distributions.Categorical(logits=logits)
    assert_close(rollout["value"].flatten(), value)
    assert_close(rollout["log_prob"].flatten(), chosen.log_prob(rollout["action"].flatten()))
    after = net(rollout["next_observation"])[1].view(4, 7).masked_fill(rollout["terminated"], 0)
    assert (rollout["done"] & ~rollout["terminated"]).any(), "an episode was truncated"
    assert_close(rollout["next_value"], after)

    batch = credited(algo, rollout)
    found = gradient_of(algo, algo.loss(batch)[0])
    logits, value = net(batch["observation"])
    chosen = torch.distributions.Categorical(logits=logits)
    ratio = (chosen.log_prob(batch["action"]) - batch["log_prob"]).exp()
    loss = (value - batch["return"]).square() / 2 * 0.5 - ratio * batch["advantage"] - 0.1 * chosen.entropy()
    (loss * batch["weight"]).sum().backward()
    names = {id(p): i for i, p in enumerate(algo.policy.parameters())}
    parts = found.split([p.numel() for p in algo.policy.parameters()])
    for mine, theirs in zip(net.parameters(), in_order(algo.policy), strict=True):
        assert_close(mine.grad.flatten(), parts[names[id(theirs)]])


@pytest.mark.parametrize("keys", [{}, {"memory": "gru", "memory_size": 5}])
@pytest.mark.parametrize("space", [IMAGE, PARTS], ids=["image", "parts"])
def test_images_are_read_once_and_learned_from(space: Space[Any], keys: Any) -> None:
    env, read = noise(space), []
    algo = algorithm("ppo", env, Network(hidden=(8,), **keys), horizon=7, lr=0.01)
    policy = algo.policy
    convolutions = [module for module in policy.modules() if isinstance(module, nn.Conv2d)]
    assert len(convolutions) == 2, "those of one network"
    convolutions[0].register_forward_hook(lambda module, given, out: read.append(len(out)))
    rollout = env.rollout(policy, steps=7)
    ends = int((rollout["done"][:, :-1]).sum()) + 4
    assert sorted(read) == sorted([4] * 7 + [28, ends]), "acting, the rollout, and what follows the ends"
    read.clear()
    now = policy.evaluate(rollout)
    assert read == [28]
    assert_close(now["value"], rollout["value"])
    assert_close(now["log_prob"], rollout["log_prob"])
    if space is PARTS:
        assert (rollout["action"][:, ::3] == 0).all(), "the second action is forbidden in every first step"
    before = [p.clone() for p in policy.parameters()]
    iterate(algo, env)
    assert not any(torch.equal(a, b) for a, b in zip(before, policy.parameters(), strict=True))


@pytest.mark.parametrize(
    ("space", "keys", "shared"),
    [
        (IMAGE, {}, True),
        (IMAGE, {"dtype": "float64"}, True),
        (IMAGE, {"share": "none"}, False),
        (IMAGE, {"encoder": "flat"}, False),
        (IMAGE, {"memory": "gru", "share": "none"}, False),
        (PARTS, {}, True),
        (Box(-1, 1, (3,)), {}, False),
        (Box(-1, 1, (3,)), {"memory": "gru"}, False),
        (Box(-1, 1, (3,)), {"share": "all", "normalize": True}, True),
        (Box(-1, 1, (3,)), {"share": "all", "hidden": ()}, True),
        (Box(-1, 1, (3,)), {"encoder": "OWN"}, True),
        (Box(-1, 1, (3,)), {"encoder": "OWN", "share": "none"}, False),
    ],
)
def test_what_learns_in_front_of_the_layers_is_shared(
    space: Space[Any], keys: dict[str, Any], shared: bool, tmp_path: Path
) -> None:
    (tmp_path / "net.py").write_text("from torch import nn\nmake = lambda space: nn.Linear(space.shape[0], 4)\n")
    keys = {key: str(tmp_path / "net.py") if x == "OWN" else x for key, x in keys.items()}
    env = noise(space)
    policy = Network(**{"hidden": (8, 8), **keys}).actor_critic(env)
    assert (policy.width is not None) == shared == (not isinstance(policy.trunk, nn.Identity))
    rollout = env.rollout(policy, steps=4)
    assert_close(policy.evaluate(rollout)["value"], rollout["value"])
    observation = rollout["observation"][:, 0]
    if policy.memoryless:
        assert_close(policy.value(observation), rollout["value"][:, 0])
    again = Network(**{"hidden": (8, 8), **keys}).actor_critic(noise(space))
    assert_close(again.state_dict(), Network(**{"hidden": (8, 8), **keys}).actor_critic(env).state_dict())


@pytest.mark.parametrize("shape", [(4, 40, 40), (40, 40, 4)])
@pytest.mark.parametrize("name", ["nature", "small", "impala"])
def test_neither_the_order_in_memory_nor_parts_of_a_batch_change_an_image(name: str, shape: tuple[int, ...]) -> None:
    image = of_image(Box(0, 255, shape, np.uint8), name)
    draw = torch.Generator().manual_seed(0)
    rows = torch.randint(256, (AT_ONCE + 3, 6400), generator=draw, dtype=torch.uint8)
    kept = rows.clone()
    with torch.no_grad():
        found = image(rows)
    x = rows[-5:].reshape(-1, *shape) / 255
    assert_close(found[-5:], image.inner(x if shape[0] == 4 else x.movedim(-1, 1).contiguous()))
    assert torch.equal(rows, kept)
    assert_close(image(rows[:2].view(2, 1, -1)).detach(), found[:2, None])


def test_bytes_become_fractions_of_the_highest_value_of_their_space() -> None:
    """Divided by 255, planes of 0 and 1 are hardly seen: ppo learned nothing from them."""
    space = Box(0, 1, (6, 6, 2), np.uint8)
    image, bits = (of_image(Box(0, 1, (6, 6, 2), kind), "small") for kind in (np.uint8, np.bool_))
    bits.load_state_dict({key: x for key, x in image.state_dict().items() if key != "divisor"})
    x = torch.randint(2, (3, 72), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    assert torch.equal(image(x), bits(x))
    image.load_state_dict(bits.state_dict())  # of a run of 0.5, which goes on as it was
    again = of_image(space, "small")
    again.load_state_dict(image.state_dict())
    for network in (image, again):
        assert_close(network(x), network.inner(x.view(3, 6, 6, 2).movedim(-1, 1) / 255))


def test_images_beyond_the_highest_value_of_their_space_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    """They would be read as ones of up to 255, in place of 1."""
    space = Box(0, 1, (6, 6, 2), np.uint8)
    check_observation(space, np.ones(space.shape, np.uint8), "it: reset")
    assert not capsys.readouterr().err
    check_observation(space, np.full(space.shape, 255, np.uint8), "it: reset")
    told = "it: reset gives an observation of 255, and observation_space ends at 1, by which images are divided: make "
    assert capsys.readouterr().err.startswith(told)


@pytest.mark.parametrize("shape", [(4, 40, 48, 3), (4, 3, 40, 48), (4, 40, 48, 1)])
def test_a_stack_of_images_is_one_with_the_channels_of_all(shape: tuple[int, ...]) -> None:
    space = Box(0, 255, shape, np.uint8)
    assert is_image(space)
    image = of_leaf(space, "auto")
    assert isinstance(image, Image) and (image.bytes, sides(space)) == (True, (40, 48))
    x = torch.randint(256, (5, *shape), generator=torch.Generator().manual_seed(0), dtype=torch.uint8)
    frames = [frame.permute(0, 3, 1, 2) if shape[1] == 40 else frame for frame in x.unbind(1)]
    assert_close(image(x.flatten(1)), image.inner(torch.cat(frames, 1) / 255))


@pytest.mark.slow
def test_a_run_from_before_goes_on_apart(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, same = tmp_path / "old", tmp_path / "same"
    assert main([*WORDS, "policy.share=none", "iterations=1", f"out={old}"]) == 0
    shutil.copytree(old, same)
    config = old / "config.yaml"
    text = config.read_text()
    assert "  share: none\n" in text
    config.write_text(text.replace("  share: none\n", ""))
    assert main([f"resume={old}", "iterations=2"]) == 0
    assert main([f"resume={same}", "iterations=2"]) == 0
    assert not differences(same, old)
    assert "  share: none\n" in config.read_text()
    config.write_text(config.read_text().replace("share: none", "share: all"))
    capsys.readouterr()
    assert main([f"resume={old}", "iterations=3"]) == 2
    (line,) = capsys.readouterr().err.strip().splitlines()
    assert "'policy' of its checkpoint does not fit this run" in line


@pytest.mark.parametrize("algo", ["grpo", "dqn"])
def test_without_actor_and_critic_there_is_nothing_to_share(algo: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"algo={algo}", "env=cartpole", "policy.share=all"]) == 2
    reason = {"grpo": "a policy without critic", "dqn": "a network without actor"}[algo]
    assert f"policy.share=all does nothing with {reason}: leave it out" in capsys.readouterr().err
