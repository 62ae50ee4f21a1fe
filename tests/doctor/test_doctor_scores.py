"""Episodes of one score: where that is a problem, and where a discount makes them differ or nothing is chosen."""

from pathlib import Path

import gymnasium
import pytest
from gymnasium.spaces import Discrete
from support.sick import name

import rlkit
from rlkit.doctor import Doctor

SAME = {"highest": 1.0, "lowest": 1.0, "progress": 0.5, "episodes": 50.0, "gamma": 0.99}


class Corridor(gymnasium.Env[int, int]):
    """Walk to the right end, where the reward is 1."""

    observation_space, action_space = Discrete(3), Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> tuple[int, dict[str, object]]:
        self.s = 0
        return self.s, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict[str, object]]:
        self.s = max(0, self.s + (1 if action else -1))
        return self.s, float(self.s == 2), self.s == 2, False, {}


@pytest.mark.parametrize("differs", [{}, {"gamma": 1.0}, {"most_steps": 3.0}, {"highest": 0.0, "lowest": 0.0}])
def test_a_discount_makes_episodes_differ_that_are_paid_after_different_times(differs: dict[str, float]) -> None:
    look = SAME | {"fewest_steps": 3.0, "most_steps": 9.0} | differs
    assert name(Doctor(), [look] * 5) == (["constant_reward"] if differs else [])


@pytest.mark.parametrize(
    ("algo", "settings", "named"),
    [
        ("q_learning", {"algo.gamma": 0.9}, []),
        ("q_learning", {"algo.gamma": 1.0}, ["constant_reward"]),
        ("td", {"algo.gamma": 1.0}, []),
    ],
)
def test_a_reward_at_the_goal_alone_is_a_signal(
    tmp_path: Path, algo: str, settings: dict[str, float], named: list[str]
) -> None:
    keys = {"env.step_limit": 50, "evaluation_episodes": 2, "out": str(tmp_path / "r"), "quiet": True}
    alarms = rlkit.train(algo, Corridor, env_steps=1000, **keys, **settings).summary["alarms"]
    assert [alarm["name"] for alarm in alarms] == named
