"""What a class of the user's adds to an environment of rlkit: refused where a resumed run would lose it."""

from pathlib import Path
from typing import Any

import pytest
from support.state import holding

from rlkit.api import State, UserError
from rlkit.control import ControlEnv
from rlkit.held import fingerprints
from rlkit.progress import Progress, restore, save


class Counting(ControlEnv):
    seen: int
    best: dict[str, float]
    client: object


class Keeping(Counting):
    def state_dict(self) -> State:
        return super().state_dict() | {"seen": self.seen, "best": dict(self.best)}

    def load_state_dict(self, state: State) -> None:
        super().load_state_dict(state)
        self.seen, self.best = state["seen"], state["best"]


def playing(kind: type[Counting]) -> tuple[Any, Any, Progress]:
    algo, env = holding("seen", 0, saved=("seen",))
    env.__class__ = kind
    env.seen, env.best, env.client = 0, {}, object()
    return algo, env, Progress(held=fingerprints(algo, env))


def test_a_change_that_no_checkpoint_holds_is_refused(tmp_path: Path) -> None:
    algo, env, progress = playing(Counting)
    algo.rollout(env)
    env.client = object()
    save(tmp_path, algo, env, progress)
    env.seen, env.best["one"] = 1, 0.5
    with pytest.raises(UserError) as error:
        save(tmp_path, algo, env, progress)
    assert str(error.value) == (
        "Counting.seen, Counting.best: changed since the run began and would not be saved: give Counting a state_dict "
        "and a load_state_dict that add to those of ControlEnv"
    )


def test_with_a_state_of_its_own_it_comes_back(tmp_path: Path) -> None:
    algo, env, progress = playing(Keeping)
    env.seen, env.best["one"] = 1, 0.5
    save(tmp_path, algo, env, progress)
    again, second, _ = playing(Keeping)
    restore(tmp_path, again, second)
    assert (second.seen, second.best) == (1, {"one": 0.5})
