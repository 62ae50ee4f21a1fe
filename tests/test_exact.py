"""Dynamic programming against numbers worked by hand, brute force and graph search."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
import torch

from rlkit import exact
from rlkit.api import UserError
from rlkit.control import from_outcomes
from rlkit.settings import plugins

frozenlake, gridworld = plugins.load("envs", "frozenlake"), plugins.load("envs", "gridworld")
close = torch.testing.assert_close


def stay_or_stop():
    """State 0: action 0 ends with reward 1, action 1 stays with reward 1/2. State 1 is terminal."""
    outcomes = {0: {0: [(1.0, 1, 1.0, True)], 1: [(1.0, 0, 0.5, False)]}, 1: {a: [(1.0, 1, 0.0, True)] for a in (0, 1)}}
    return from_outcomes(outcomes, [1.0, 0.0], [1])


def waiting_room():
    """0 earns 1 and moves on half of the time; 1 earns 2 and ends in 2."""
    outcomes = {
        0: {0: [(0.5, 0, 1.0, False), (0.5, 1, 1.0, False)]},
        1: {0: [(1.0, 2, 2.0, True)]},
        2: {0: [(1.0, 2, 0.0, True)]},
    }
    return from_outcomes(outcomes, [1.0, 0.0, 0.0])


END, NAN = {0: [(1.0, 1, 0.0, True)]}, float("nan")


@pytest.mark.parametrize(
    ("outcomes", "start", "words"),
    [
        ({0: {0: [(0.9, 1, 1.0, True)]}, 1: END}, [1, 0], r"state 0, action 0 are \[0\.9\]"),
        (
            {0: {0: [(1.2, 1, 1.0, True), (-0.2, 0, 0.0, False)]}, 1: END},
            [1, 0],
            r"state 0, action 0 are \[1\.2, -0\.2\]",
        ),
        ({0: {0: [(1, 1, 1, True)], 1: [(1, 0, 0, False)]}, 1: END}, [1, 0], r"state 1, action 1 are \[\]"),
        ({0: {0: [(1.0, 1, 1.0, True)]}, 1: END}, [0.5, 0], r"start=\[0\.5, 0\.0\]"),
        ({0: {0: [(1.0, 1, 1.0, True)]}, 1: END}, [0.5, 0.5], r"start=\[0\.5, 0\.5\]"),
        (
            {0: {0: [(0.5, 1, 1, True), (0.5, 1, 0, False)]}, 1: END},
            [1, 0],
            r"state 1 ends the episode after some steps",
        ),
        ({1: END, 2: END}, [1, 0], r"the states of the outcomes are \[1, 2\] and so on: count them from 0"),
        ({}, [], r"the states of the outcomes are \[\]"),
        ({0: END, 1: END}, [1], r"start has 1 numbers, goal is \[\], and there are 2 states"),
        ({0: {0: [(1.0, -1, 0.0, True)]}, 1: END}, [1, 0], r"state 0, action 0 leads to state -1 with the reward 0\.0"),
        ({0: {0: [(1.0, 1, NAN, True)]}, 1: END}, [1, 0], r"state 0, action 0 leads to state 1 with the reward nan"),
        ({0: {0: [(NAN, 1, 0.0, True)]}, 1: END}, [1, 0], r"state 0, action 0 are \[nan\]"),
        ({0: END, 1: END | {3: END[0]}}, [1, 0], r"state 1 has an action 3, and state 0 has 1: give all the same"),
        ({0: END, 1: END}, [NAN, 0], r"start=\[nan, 0\.0\]"),
        ({0: {0: [(1.0, 1, 1.0)]}, 1: END}, [1, 0], r"action 0 has the outcome \(1\.0, 1, 1\.0\): give \{state: \{act"),
        ({0: {0: (1.0, 1, 1.0, True)}, 1: END}, [1, 0], r"action 0 has the outcome 1\.0: give"),
        ({0: {0: [(1.0, 1, "a", True)]}, 1: END}, [1, 0], r"action 0 has the outcome \(1\.0, 1, 'a', True\): give"),
        ([[[(1.0, 0, 0.0, True)]]], [1], r"the outcomes hold a list in place of a mapping: give"),
        ({0: END, 1: END}, 0, r"start=0 is not a list: give start a number for each state"),
    ],
)
def test_outcomes_that_are_no_model_are_refused(outcomes, start, words):
    with pytest.raises(UserError, match=words):
        from_outcomes(outcomes, start)


def test_numbers_of_numpy_are_fine():
    one, zero = np.int64(1), np.int64(0)
    outcomes = {zero: {zero: [(np.float32(1.0), one, np.float64(2.0), one == 1)]}, one: END}
    found = from_outcomes(outcomes, np.array([1.0, 0.0]), np.array([1]))
    assert found.terminal.tolist() == [False, True] and found.reward.tolist() == [[2.0], [0.0]]


def test_what_a_table_says_of_states_that_nothing_leads_to_is_no_concern():
    odd = {0: {0: [(1.0, 1, 1.0, True)]}, 1: END, 2: {0: [(1.0, 1, 5.0, False)]}}
    assert from_outcomes(odd, [1, 0, 0]).terminal.tolist() == [False, True, False]


def random_model(seed, states=4, actions=2):
    g = torch.Generator().manual_seed(seed)
    transition = torch.rand(states, actions, states, generator=g, dtype=torch.float64)
    reward = torch.randn(states, actions, generator=g, dtype=torch.float64)
    terminal = torch.arange(states) == states - 1
    start = torch.ones(states, dtype=torch.float64) / states
    return exact.Model(transition / transition.sum(-1, keepdim=True), reward, terminal, start)


def values(*numbers):
    return torch.tensor(numbers, dtype=torch.float64)


def test_values_of_two_states_worked_by_hand():
    model = stay_or_stop()
    close(exact.policy_values(model, torch.tensor([0, 0]), 0.9), values(1, 0))
    close(exact.policy_values(model, torch.tensor([1, 0]), 0.9), values(5, 0))  # ½ / (1 - 0.9)
    half = torch.full((2, 2), 0.5)
    close(exact.policy_values(model, half, 0.9), values(0.75 / 0.55, 0))  # V = ¾ + 0.45·V


def test_the_best_choice_depends_on_the_discount():
    model = stay_or_stop()
    close(exact.optimal_values(model, 0.9), values(5, 0))
    close(exact.optimal_values(model, 0.4), values(1, 0))
    assert exact.greedy(model, exact.optimal_values(model, 0.9), 0.9)[0] == 1
    assert exact.optimal_actions(model, 0.4)[0].tolist() == [True, False]
    assert exact.optimal_actions(model, 0.5)[0].tolist() == [True, True]  # ½ / (1 - ½) = 1: a tie


def test_values_of_three_states_worked_by_hand():
    model, policy = waiting_room(), torch.zeros(3, dtype=torch.long)
    close(exact.policy_values(model, policy, 0.5), values(2, 2, 0))  # V0 = 1 + ½(½V0 + ½·2)
    close(exact.policy_values(model, policy, 1.0), values(4, 2, 0))  # V0 = 1 + ½V0 + ½·2
    close(exact.q_values(model, values(2, 2, 0), 0.5), values(2, 2, 0)[:, None])


@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.95])
def test_the_linear_solve_is_the_fixed_point_of_the_bellman_equation(gamma):
    model = random_model(1)
    policy = torch.rand(4, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64).softmax(-1)
    v = torch.zeros(4, dtype=torch.float64)
    for _ in range(2000):
        v = (policy * exact.q_values(model, v, gamma)).sum(-1)
    close(exact.policy_values(model, policy, gamma), v)


TIES = (  # chances of the next state, rewards
    (
        [[[0, 1, 0], [0, 0.2, 0.8]], [[0.5, 0.5, 0], [0, 0.5, 0.5]], [[0.25, 0.75, 0], [1, 0, 0]]],
        [[2, 2], [1, 2], [2, 0]],
    ),
    (
        [[[0.2, 0.8, 0], [0.3, 0.7, 0]], [[0, 0.7, 0.3], [1, 0, 0]], [[1, 0, 0], [0.8, 0.2, 0]]],
        [[2, 0], [2, 2], [1, 2]],
    ),
    (
        [[[0, 0.8, 0.2], [0, 0.3, 0.7]], [[0.2, 0, 0.8], [0, 0.7, 0.3]], [[0, 0.25, 0.75], [0.2, 0.8, 0]]],
        [[1, 0], [1, 1], [1, 1]],
    ),
)


@pytest.mark.parametrize("gamma", [0.6, 0.99, 1.0])
def test_optimal_values_are_the_best_of_all_policies(gamma):
    model = random_model(4)
    tables = [torch.tensor(actions) for actions in itertools.product(range(2), repeat=4)]
    best = torch.stack([exact.policy_values(model, table, gamma) for table in tables]).amax(0)
    close(exact.optimal_values(model, gamma), best)


@pytest.mark.parametrize("gamma", [0.999, 0.9999, 0.99999])
def test_equally_good_policies_do_not_take_turns_forever(gamma, monkeypatch):
    """Near gamma = 1 a linear solve rounds by more than what ends the iteration."""
    calls, real = itertools.count(), exact.policy_values

    def counted(*given):
        assert next(calls) < 1000, "it never ends"
        return real(*given)

    monkeypatch.setattr(exact, "policy_values", counted)
    for chances, earned in TIES:
        transition, reward = (torch.tensor(x, dtype=torch.float64) for x in (chances, earned))
        model = exact.Model(transition, reward, torch.zeros(3, dtype=torch.bool), values(1, 0, 0))
        calls = itertools.count()
        best = exact.optimal_values(model, gamma)
        close(exact.q_values(model, best, gamma).amax(-1), best, rtol=1e-9, atol=0)


def test_undiscounted_values_of_a_policy_that_never_ends():
    model = stay_or_stop()
    with pytest.raises(ValueError, match="infinite"):
        exact.policy_values(model, torch.tensor([1, 0]), 1.0)
    assert exact.success(model, torch.tensor([1, 0])) == 0.0
    assert exact.success(model, torch.tensor([0, 0])) == 1.0
    assert exact.success(model, torch.full((2, 2), 0.5), steps=3) == pytest.approx(7 / 8)


def test_an_undiscounted_policy_that_comes_to_rest_has_values() -> None:
    """0 pays 1 a step until it comes to 1, where the episode goes on for nothing; 2 and 3 pay and earn in turn."""
    outcomes = {
        0: {0: [(0.5, 0, -1.0, False), (0.5, 1, -1.0, False)]},
        1: {0: [(1.0, 1, 0.0, False)]},
        2: {0: [(1.0, 3, -1.0, False)]},
        3: {0: [(1.0, 2, 1.0, False)]},
    }
    alone = {s: outcomes[s] for s in (0, 1)}
    model, table = from_outcomes(alone, [1.0, 0.0]), torch.zeros(2, dtype=torch.long)
    close(exact.policy_values(model, table, 1.0), values(-2, 0))
    close(exact.policy_values(model, table, 1 - 1e-9), values(-2, 0), atol=1e-6, rtol=0)  # the limit
    with pytest.raises(ValueError, match="earns rewards forever"):
        exact.policy_values(from_outcomes(outcomes, [1.0, 0.0, 0.0, 0.0]), torch.zeros(4, dtype=torch.long), 1.0)


def lake(**config):
    return frozenlake.make(frozenlake.Config(**config), 0, "cpu")


def clock_watching_optimum(outcomes, steps):
    """The same by plain loops over Gymnasium's table, in fractions of the machine's numbers."""
    now = dict.fromkeys(outcomes, Fraction(0))
    for _ in range(steps):
        now = {
            s: max(sum(Fraction(p) * (Fraction(r) if over else now[to]) for p, to, r, over in row[a]) for a in row)
            for s, row in outcomes.items()
        }
    return float(now[0])


def test_slippery_frozen_lake_has_the_known_optimum():
    model = lake().model()
    assert exact.optimal_success(model) == pytest.approx(14 / 17, abs=1e-10)
    assert exact.optimal_success(model, 100) == pytest.approx(0.74419, abs=1e-5)
    table = exact.greedy(model, exact.optimal_values(model, 0.999), 0.999)
    assert exact.success(model, table) == pytest.approx(14 / 17, abs=1e-10)
    assert exact.success(model, table, 100) == pytest.approx(0.74016, abs=1e-5)
    assert exact.success(model, table, 20) < exact.optimal_success(model, 20)


def test_the_time_limited_optimum_agrees_with_plain_loops_over_gymnasiums_table():
    from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv

    outcomes = FrozenLakeEnv(map_name="4x4", is_slippery=True).P
    for steps in (5, 6, 12):
        expected = clock_watching_optimum(outcomes, steps)
        assert exact.optimal_success(lake().model(), steps) == pytest.approx(expected, abs=1e-14)


def test_ice_that_is_not_slippery_is_crossed_in_six_steps():
    model = lake(slippery=False).model()
    table = exact.greedy(model, exact.optimal_values(model, 0.9), 0.9)
    assert exact.success(model, table, 6) == 1.0 and exact.success(model, table, 5) == 0.0
    close(model.start @ exact.optimal_values(model, 0.9), torch.tensor(0.9**5, dtype=torch.float64))


def test_frozen_lake_judges_a_policy_by_its_exact_success():
    env = lake()
    best = exact.greedy(env.model(), exact.optimal_values(env.model(), 0.999), 0.999)
    report = env.exact(best)
    assert report["success"] == pytest.approx(report["optimal"]) == pytest.approx(14 / 17)
    assert report["success_within_limit"] < report["optimal_within_limit"] < report["optimal"]
    assert env.exact(torch.zeros(16, dtype=torch.long))["success"] == 0.0  # always left: never gets away


def distances(goal, trap, size):
    """Shortest ways to the goal around the trap, by breadth-first search."""
    found, frontier = {goal: 0}, [goal]
    while frontier:
        cell = frontier.pop(0)
        for move in gridworld.MOVES:
            near = (cell[0] + move[0], cell[1] + move[1])
            if near not in found and near != trap and min(near) >= 0 and max(near) < size:
                found[near] = found[cell] + 1
                frontier.append(near)
    return found


@pytest.mark.parametrize(("goal", "trap"), [((7, 7), (4, 4)), ((0, 3), (1, 3)), ((5, 0), (5, 1))])
def test_gridworlds_optimal_actions_are_the_shortest_ways_around_the_trap(goal, trap):
    env = gridworld.make(gridworld.Config(goal=goal, trap=trap), 0, "cpu")
    best, optimal = exact.optimal_actions(env.model(), 0.9), exact.optimal_values(env.model(), 0.9)
    away = distances(goal, trap, 8)
    for cell, distance in away.items():
        if cell == goal:
            continue
        s = cell[0] * 8 + cell[1]
        arrive = [(cell[0] + move[0], cell[1] + move[1]) for move in gridworld.MOVES]
        assert best[s].tolist() == [away.get(to) == distance - 1 for to in arrive]
        assert float(optimal[s]) == pytest.approx(0.9 ** (distance - 1))


def test_gridworld_counts_every_optimal_action_as_agreement():
    env = gridworld.make(gridworld.Config(), 0, "cpu")
    best = exact.optimal_actions(env.model(), 0.99).double()
    for table in (best.argmax(-1), 3 - best.flip(-1).argmax(-1)):  # the first and the last of the ties
        report = env.exact(table)
        assert report["agreement"] == 1.0 and report["value"] == pytest.approx(report["optimal"])
    wrong = best.argmax(-1)
    wrong[0] = 0  # against the wall
    assert env.exact(wrong)["agreement"] == pytest.approx(61 / 62)


def test_values_of_a_billion_below_zero_are_no_forbidden_actions() -> None:
    gamma = 1 - 1e-9  # a policy that never ends is worth -1e9
    close(exact.epsilon_greedy(torch.tensor([[-1e9, -1e9 - 1]]).double(), 0.0), torch.tensor([[1.0, 0.0]]).double())
    cliff = plugins.load("envs", "cliffwalking")
    model = cliff.make(cliff.Config(), 0, torch.device("cpu")).model()
    close(float(exact.optimal_values(model, gamma).min()), -14.0, rtol=0, atol=1e-6)


def test_a_way_round_that_pays_is_found_where_staying_ties_with_it() -> None:
    """0 and 1 stay for nothing, or go to each other, which pays in 1 alone: values grow in every other sweep."""
    stay = {s: [(1.0, s, 0.0, False)] for s in (0, 1)}
    model = from_outcomes({s: {0: stay[s], 1: [(1.0, 1 - s, float(s), False)]} for s in (0, 1)}, [1.0, 0.0])
    with pytest.raises(ValueError, match=r"rewards can be earned forever; use gamma < 1$"):
        exact.optimal_values(model, 1.0)


def test_a_best_policy_goes_to_where_it_rests_and_not_round_for_nothing() -> None:
    """0 and 1 go to each other for nothing, 1 also to 2, which pays 1; 2 stays or goes to 3, the end, for nothing."""
    outcomes = {
        0: {a: [(1.0, 1, 0.0, False)] for a in (0, 1)},
        1: {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 2, 1.0, False)]},
        2: {0: [(1.0, 2, 0.0, False)], 1: [(1.0, 2, 0.0, False)]},
        3: {a: [(1.0, 3, 0.0, True)] for a in (0, 1)},
    }
    for end, actions in ((False, [0, 1, 0]), (True, [0, 1, 1])):
        outcomes[2][1] = [(1.0, 3 if end else 2, 0.0, end)]
        model = from_outcomes(outcomes, [1.0, 0.0, 0.0, 0.0], [3])
        found = exact.ending_actions(model, exact.q_values(model, exact.optimal_values(model, 1.0), 1.0))
        assert found[:3].tolist() == actions
        close(exact.policy_values(model, found, 1.0), torch.tensor([1.0, 1.0, 0.0, 0.0]).double())


@pytest.mark.slow
def test_a_state_that_pays_forever_has_no_undiscounted_value() -> None:
    """From 0 one comes to the end at −1. Action 0 of 2 stays at −1 forever, its action 1 to the end or to 2."""
    end = [(1.0, 1, 0.0, True)]
    to_end, stay = [(1.0, 1, -1.0, True)], [(1.0, 2, -1.0, False)]
    closed = from_outcomes({0: {0: to_end}, 1: {0: end}, 2: {0: stay}}, [1.0, 0.0, 0.0], [1])
    for epsilon in (0.0, 0.1):
        with pytest.raises(ValueError, match=r"some states pay forever; use gamma < 1$"):
            exact.soft_optimal_values(closed, 1.0, epsilon)
    close(exact.optimal_values(closed, 0.5), torch.tensor([-1.0, 0.0, -2.0]).double())
    # Slow, but it ends: −1 a step for 2,000 steps on average.
    slow = from_outcomes(
        {0: {0: to_end}, 1: {0: end}, 2: {0: [(0.9995, 2, -1.0, False), (0.0005, 1, -1.0, True)]}}, [1.0, 0.0, 0.0], [1]
    )
    close(exact.optimal_values(slow, 1.0), torch.tensor([-1.0, 0.0, -2000.0]).double(), rtol=1e-6, atol=1e-6)


def test_from_where_a_policy_surely_ends_or_rests() -> None:
    """0 rests for nothing, 1 pays and comes to 0, 2 pays forever or gambles between 1 and 3, and 3 pays forever."""
    outcomes = {
        0: {0: [(1.0, 0, 0.0, False)], 1: [(1.0, 0, -1.0, False)]},
        1: {0: [(1.0, 0, -5.0, False)], 1: [(1.0, 1, -1.0, False)]},
        2: {0: [(1.0, 2, -1.0, False)], 1: [(0.5, 1, -1.0, False), (0.5, 3, -1.0, False)]},
        3: {a: [(1.0, 3, -1.0, False)] for a in (0, 1)},
    }
    model = from_outcomes(outcomes, [1.0, 0.0, 0.0, 0.0])
    assert exact.ends_or_rests(model).tolist() == [True, True, False, False]
    outcomes[2][1][1] = (0.5, 2, -1.0, False)  # it may be repeated until it comes to 1
    assert exact.ends_or_rests(from_outcomes(outcomes, [1.0, 0.0, 0.0, 0.0])).tolist() == [True, True, True, False]
