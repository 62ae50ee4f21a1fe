"""What a replay holds, and how long it waits for its first update: what the refusals say."""

import pytest
from support.fakes import algorithm, cartpole, iterate

from rlkit.api import UserError
from rlkit.policies import Network


@pytest.mark.parametrize("wanted", [0, 7, 20])
@pytest.mark.parametrize(("rows", "steps", "n_step"), [(1, 1, 1), (1, 1, 3), (2, 3, 1), (2, 3, 5), (3, 2, 4)])
def test_a_warmup_is_refused_if_it_is_over_before_the_first_update(
    rows: int, steps: int, n_step: int, wanted: int
) -> None:
    keys = {"steps": steps, "n_step": n_step, "warmup_steps": wanted, "batch_size": 4}
    env = cartpole(rows)
    algo, waited = algorithm("dqn", env, Network(hidden=(4,)), **keys), -1
    while not algo.updates:
        iterate(algo, env)
        waited += 1
    algorithm("dqn", env, Network(hidden=(4,)), **keys, warmup=waited + 1)
    if waited:
        told = rf"^algo\.warmup={waited} is over before .* takes {waited} iterations; give algo\.warmup={waited + 1} or"
        with pytest.raises(UserError, match=told):
            algorithm("dqn", env, Network(hidden=(4,)), **keys, warmup=waited)


def test_a_replay_that_cannot_hold_what_one_iteration_plays_is_refused_before_it_plays() -> None:
    """What earlier versions trained with less can still be measured."""
    told = r"^algo\.capacity=5 is less than the 6 steps that one iteration plays: give algo\.capacity=6 or more, or"
    small = algorithm("dqn", cartpole(2), Network(hidden=(4,)), capacity=5, steps=3)
    with pytest.raises(UserError, match=told):
        small.check_memory()
    algorithm("dqn", cartpole(2), Network(hidden=(4,)), capacity=6, steps=3).check_memory()
