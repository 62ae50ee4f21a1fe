"""MiniGrid and MinAtar: what is seen of them, and what they lack."""

import sys
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from support.fakes import algorithm, environment, iterate

from rlkit.api import UserError
from rlkit.control.video import frames
from rlkit.policies import Network


def test_each_cell_has_a_bit_for_its_object_its_color_and_its_state() -> None:
    env = environment("minigrid", id="MiniGrid-DoorKey-5x5-v0", rows=2)
    assert env.longest == 250 and env.reference.high == 1.0
    algo = algorithm("ppo", env, Network(hidden=(8,)), horizon=8)
    rollout = iterate(algo, env)
    assert rollout["observation"].dtype == torch.uint8
    cells = rollout["observation"].view(2, 8, 7, 7, 20).long()
    assert (cells.sum(-1) == 3).all()
    one = gymnasium.make("MiniGrid-DoorKey-5x5-v0")
    image = one.reset(seed=env._seed("reset", 0, 0))[0]["image"]
    seen = np.stack([part.argmax(-1).numpy() for part in cells[0, 0].split([11, 6, 3], -1)], -1)
    assert np.array_equal(seen, image)


@pytest.mark.parametrize("game", ["asterix", "breakout", "freeway", "seaquest", "space_invaders"])
def test_every_game_is_played(game: str) -> None:
    env = environment("minatar", game=game, rows=2, step_limit=30)
    algo = algorithm("dqn", env, Network(hidden=(8,)), warmup_steps=8, steps=8, capacity=50, batch_size=4)
    for _ in range(5):
        iterate(algo, env)
    kept = algo.buffer.store["observation"]
    assert kept.dtype == torch.uint8 and kept.max() == 1 and env.longest == 30


def test_a_game_is_drawn_in_its_colors() -> None:
    env = environment("minatar", rows=1, step_limit=3)
    image = frames(env, Script(0))[0]["image"]
    assert image.shape == (200, 200, 3) and image.dtype == np.uint8
    cells = env.vector(1)
    cells.reset(seed=[env.episode_seed("test", 0)])
    state = cells.envs[0].get_wrapper_attr("game").state()
    assert np.array_equal(image.any(-1)[::20, ::20], state.any(-1)) and image.max() > 100


class Script:
    """Plays some actions one after the other, and then the last one."""

    def __init__(self, *actions: int) -> None:
        self.actions = list(actions)

    def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
        action = self.actions.pop(0) if len(self.actions) > 1 else self.actions[0]
        return torch.full((len(observation),), action)

    def record(self, batch: Any) -> dict[str, torch.Tensor]:
        return {}


@pytest.mark.parametrize("luck", ["shared", "own"])
def test_attempts_at_a_game_may_have_luck_of_their_own(luck: str) -> None:
    env = environment("minatar", game="asterix", rows=1, step_limit=60, luck=luck)
    seen = env.rollout(Script(1), repeats=8)["observation"][0]
    assert [len(seen[:, t].unique(dim=0)) > 1 for t in (0, 40)] == [False, luck == "own"]


@pytest.mark.parametrize("limit", [30, 300])
def test_a_world_ends_at_the_limit_and_pays_by_it(limit: int) -> None:
    env = environment("minigrid", id="MiniGrid-Empty-5x5-v0", rows=1, step_limit=limit)  # its own is 100
    assert env.longest == limit and env.evaluate(Script(1), 1).length.tolist() == [limit]
    assert env.evaluate(Script(2, 2, 1, 2), 1).score.item() == pytest.approx(1 - 0.9 * 5 / limit)


@pytest.mark.parametrize(("name", "package"), [("minigrid", "minigrid"), ("minatar", "minatar.gym")])
def test_a_missing_package_is_one_line(name: str, package: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UserError, match=rf"env={name} needs the package {name}: pip install"):
        environment(name)


def test_another_id_is_no_world() -> None:
    with pytest.raises(UserError, match=r"env\.id=CartPole-v1 is not a world of MiniGrid"):
        environment("minigrid", id="CartPole-v1")
    with pytest.raises(UserError, match=r"did you mean MiniGrid-Empty"):
        environment("minigrid", id="MiniGrid-Emtpy-8x8-v0")


@pytest.mark.slow
def test_ppo_finds_the_goal_of_an_empty_room() -> None:
    env = environment("minigrid", id="MiniGrid-Empty-5x5-v0", rows=16)
    algo = algorithm("ppo", env, Network(hidden=(64,), activation="relu"), horizon=64, lr=1e-3, minibatches=4)
    for _ in range(20):
        iterate(algo, env)
    assert float(env.evaluate(algo.policy, 20).score.mean()) >= 0.9


@pytest.mark.parametrize(("name", "plugin"), [("MiniGrid-None-v0", "env=minigrid"), ("ALE/None-v5", "env=atari")])
def test_an_id_that_another_package_registers_is_sent_to_its_environment(
    name: str, plugin: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = {key: spec for key, spec in gymnasium.registry.items() if not key.startswith(("MiniGrid", "BabyAI", "ALE"))}
    monkeypatch.setattr(gymnasium, "registry", own)  # as before those packages were imported
    with pytest.raises(UserError, match=plugin) as refused:
        environment("gym", id=name)
    assert "did you mean" not in str(refused.value)


def test_a_world_of_minigrid_with_its_mission_is_told_how_it_is_played() -> None:
    pytest.importorskip("minigrid")
    for name, way in (("MiniGrid-Empty-5x5-v0", "play it as env=minigrid .*"), ("BabyAI-GoToObj-v0", "give")):
        with pytest.raises(UserError, match=rf"shows its mission as a text, .*: {way} env\.wrappers=minigrid"):
            environment("gym", id=f"minigrid:{name}")
    env = environment("gym", id="minigrid:MiniGrid-Empty-5x5-v0", wrappers=("minigrid.wrappers:ImgObsWrapper",), rows=1)
    assert env.observation_space.shape == (7, 7, 3)
