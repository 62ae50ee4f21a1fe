"""What counts as 0 and as 1 in an environment: exact for tables, measured and published for control."""

import pytest
import torch
from support.fakes import environment
from tensordict import TensorDict

from rlkit import exact
from rlkit.exact import Model
from rlkit.seeding import generator


class Uniform:
    """Any of n actions alike."""

    def __init__(self, n: int) -> None:
        self.n, self.draw = n, generator(0, "uniform")

    def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
        return torch.randint(self.n, (len(observation),), generator=self.draw)

    def record(self, batch: TensorDict) -> dict[str, torch.Tensor]:
        return {}


def test_what_is_earned_within_a_step_limit_is_worked_out_backwards() -> None:
    """State 0: stay for 1, or leave for 5 to state 1, where each step costs 2."""
    transition = torch.zeros(2, 2, 2, dtype=torch.float64)
    transition[0, 0, 0] = transition[0, 1, 1] = 1.0
    transition[1, :, 1] = 1.0
    reward = torch.tensor([[1.0, 5.0], [-2.0, -2.0]], dtype=torch.float64)
    model = Model(transition, reward, torch.zeros(2, dtype=torch.bool), torch.tensor([1.0, 0.0]).double())
    assert exact.values_within(model, 0).tolist() == [0, 0]
    assert exact.values_within(model, 1).tolist() == [5, -2]  # at the end one leaves
    assert exact.values_within(model, 3).tolist() == [7, -6]  # stay, stay, leave
    assert exact.values_within(model, 3, torch.tensor([1, 0])).tolist() == [1, -6]  # leave at once
    assert exact.values_within(model, 2, torch.full((2, 2), 0.5)).tolist() == [3.5, -4]  # 3 + (3 − 2) / 2


def test_a_table_is_measured_between_random_play_and_its_optimum() -> None:
    cliff = environment("cliffwalking").reference
    assert cliff.high == -13 and cliff.low < -4000  # a random walk falls, and begins again
    lake = environment("frozenlake")
    assert lake.reference.high == pytest.approx(exact.optimal_success(lake.model(), 100))
    assert environment("gridworld", start=(0, 0)).reference.high == 1.0


@pytest.mark.slow
def test_the_lower_reference_of_a_table_is_what_random_play_earns() -> None:
    env = environment("gridworld")
    scores = env.evaluate(Uniform(4), 4000).score
    assert env.reference.low == pytest.approx(float(scores.mean()), abs=4 * float(scores.std()) / 4000**0.5)


@pytest.mark.slow
def test_the_lower_reference_of_control_is_what_random_play_earns() -> None:
    env = environment("cartpole")
    scores = env.evaluate(Uniform(2), 4000).score
    assert env.reference.low == pytest.approx(float(scores.mean()), abs=4 * float(scores.std()) / 4000**0.5)


@pytest.mark.parametrize("name", ["cartpole", "acrobot", "mountaincar", "pendulum"])
def test_a_published_reference_is_of_the_published_step_limit_only(name: str) -> None:
    published = environment(name).reference
    assert published.low < published.high and "Zoo" in published.high_is
    assert environment(name, step_limit=50).reference is None


def test_an_environment_by_its_id_has_no_reference() -> None:
    assert environment("gym", id="CartPole-v1").reference is None
