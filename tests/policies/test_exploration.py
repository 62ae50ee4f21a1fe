"""Random actions that last: their durations, who begins them, and that they survive a resume."""

from itertools import pairwise
from pathlib import Path

import pytest
import torch
from support.fakes import Walk, algorithm, cartpole, control, iterate, parameters

from rlkit import policies, progress, seeding
from rlkit.policies.exploration import Persistent


class Always:
    """Q says that the last of `actions` is best."""

    def __init__(self, actions: int, epsilon: float) -> None:
        self.actions, self.epsilon, self.generator = actions, epsilon, seeding.generator(0, "action")

    def __call__(self, observation: torch.Tensor) -> torch.Tensor:
        return torch.arange(self.actions).float().expand(len(observation), -1)


def played(explorer: Persistent, steps: int) -> torch.Tensor:
    """Actions, [rows, steps]."""
    rows = len(explorer.held)
    return torch.stack([explorer.act(torch.zeros(rows, 1)) for _ in range(steps)], 1)


def test_without_epsilon_the_policy_acts() -> None:
    assert played(Persistent(Always(5, 0.0), rows=3, longest=10, actions=5), 50).eq(4).all()


@pytest.mark.slow
def test_a_random_action_lasts_n_steps_with_probability_1_by_n_times_n_plus_1() -> None:
    # So many actions that two in a row rarely agree
    explorer = Persistent(Always(1000, 1.0), rows=200, longest=20, actions=1000)
    actions = played(explorer, 400)
    lengths = []
    for row in actions.tolist():
        starts = [0] + [t for t in range(1, 400) if row[t] != row[t - 1]]
        lengths += [min(b - a, 20) for a, b in pairwise(starts) if a < 300]
    count, total = torch.tensor(lengths).bincount(minlength=21), len(lengths)
    n = torch.arange(1, 20)
    expected = torch.cat([torch.zeros(1), 1 / (n * (n + 1)), torch.tensor([1 / 20])])  # the longest takes the rest
    deviation = (count - total * expected).abs()
    # Where two equal actions meet, once in a thousand, they count as one
    assert bool((deviation < 4 * (total * expected).sqrt() + 0.003 * total).all())
    assert count[0] == 0 and len(count) == 21


def test_a_random_action_begins_with_probability_epsilon_where_none_is_under_way() -> None:
    explorer = Persistent(Always(100, 0.2), rows=100, longest=1, actions=100)
    random = played(explorer, 400) != 99
    assert abs(random.float().mean() - 0.2 * 0.99) < 4 * (0.2 * 0.8 / 40_000) ** 0.5


def test_what_is_under_way_survives_a_resume(tmp_path: Path) -> None:
    def small() -> tuple:
        env = cartpole(2)
        given = {"steps": 4, "batch_size": 6, "updates": 2, "warmup_steps": 5, "hold": 50, "epsilon_end": 1.0}
        return algorithm("dqn", env, policies.Network((8,)), **given), env

    algo, env = small()
    while not algo.explorer.left.all():
        iterate(algo, env)
    progress.save(tmp_path, algo, env, progress.Progress())
    resumed, second = small()
    progress.restore(tmp_path, resumed, second)
    for _ in range(4):
        assert torch.equal(iterate(resumed, second)["action"], iterate(algo, env)["action"])
    assert torch.equal(parameters(resumed.policy), parameters(algo.policy))


def test_evaluating_leaves_what_is_under_way_alone() -> None:
    env = cartpole(3, step_limit=20)
    algo = algorithm("dqn", env, policies.Network((8,)), steps=5, hold=50, epsilon_end=1.0)
    algo.rollout(env)
    before = {key: x.clone() for key, x in algo.explorer.state_dict().items()}
    for greedy in (True, False):
        env.evaluate(algo.policy, 4, greedy=greedy)
    assert all(torch.equal(x, before[key]) for key, x in algo.explorer.state_dict().items())


@pytest.mark.parametrize("name", ["dqn", "q_learning"])
def test_random_actions_become_rarer_over_the_first_part_of_a_run(name: str) -> None:
    env, found = control(Walk, 1, 6), []
    algo = algorithm(name, env, policies.Network(()), epsilon=0.8, epsilon_end=0.2, epsilon_decay=0.5)
    for algo.progress in (0.0, 0.25, 0.5, 1.0):
        algo.rollout(env)
        found.append(algo.policy.epsilon)
    assert found == pytest.approx([0.8, 0.5, 0.2, 0.2])


def test_actions_are_held_from_two_steps_on() -> None:
    made = [algorithm("dqn", cartpole(1), policies.Network((8,)), hold=hold).explorer for hold in (1, 2)]
    assert made[0] is None and made[1].longest == 2


@pytest.mark.parametrize(
    ("held", "left"),
    [([-1, 0], [0, 0]), ([0, 3], [0, 0]), ([0, 0], [0, -1]), ([0, 0], [6, 0]), ([0], [0, 0]), ([0, 0], [0])],
)
def test_a_state_that_no_exploration_has_is_refused(held: list[int], left: list[int]) -> None:
    explorer = Persistent(Always(3, 0.5), rows=2, longest=5, actions=3)
    explorer.load_state_dict({"held": torch.tensor([0, 2]), "left": torch.tensor([0, 5])})
    with pytest.raises(ValueError, match="are held for"):
        explorer.load_state_dict({"held": torch.tensor(held), "left": torch.tensor(left)})
    assert explorer.left.tolist() == [0, 5]
