"""Without a discount, a policy is evaluated where its values exist, and refused in one line where they do not."""

import pytest
from support.fakes import algorithm

from rlkit.api import UserError
from rlkit.control import TabularEnv, from_outcomes

BOTH = pytest.mark.parametrize("name", ["td", "monte_carlo"])


@BOTH
@pytest.mark.parametrize(("epsilon", "value"), [(1.0, -12.0), (0.0, -3.0)])
def test_a_policy_that_comes_to_rest_is_evaluated(name: str, epsilon: float, value: float) -> None:
    """0-1-2 in a row, where a step costs 1; 3 behind them is never left and costs nothing."""
    to = [[0, 1], [0, 2], [1, 3], [3, 3]]
    outcomes = {s: {a: [(1.0, to[s][a], -1.0 * (s < 3), False)] for a in (0, 1)} for s in range(4)}
    env = TabularEnv(from_outcomes(outcomes, [1, 0, 0, 0]), 4)
    policy = algorithm(name, env, gamma=1.0, epsilon=epsilon).policy
    assert env.exact(policy, 1.0)["true_value"] == pytest.approx(value)


@BOTH
def test_a_policy_that_pays_forever_because_it_explores_is_refused(name: str) -> None:
    """To stay in one of two rooms costs nothing, to go to the other 1; there is no end."""
    outcomes = {s: {0: [(1.0, s, 0.0, False)], 1: [(1.0, 1 - s, -1.0, False)]} for s in (0, 1)}
    env = TabularEnv(from_outcomes(outcomes, [1, 0]), 4)
    with pytest.raises(UserError, match=r"^algo\.epsilon=0\.1 asks for a policy without values: .* use gamma < 1$"):
        algorithm(name, env, gamma=1.0, epsilon=0.1)
    assert env.exact(algorithm(name, env, gamma=1.0, epsilon=0.0).policy, 1.0)["true_value"] == 0
