"""Games of several agents that break PettingZoo's contract, or give what is not read."""

from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict
from support.probes import Draws
from test_pettingzoo import Leaving, leaving

from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control.agents import Together
from rlkit.control.contract import check_game


class Late(Leaving):
    """One comes later."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        super().reset(seed)
        self.agents.remove("c")
        return self.look(), {}


def test_one_that_comes_later_is_refused() -> None:
    """Measured from the reset on, it would count as one that earns nothing."""
    with pytest.raises(UserError, match=r"^it: c is not in the game after its reset"):
        ControlEnv(lambda n: Together(Late, n, "it"), 6, agents=3, source="it").rollout(Draws(leaving()), steps=2)


@pytest.mark.parametrize(("at", "what"), [(0, "reset"), (1, "step")])
def test_one_in_the_game_that_sees_nothing_is_refused(monkeypatch: pytest.MonkeyPatch, at: int, what: str) -> None:
    """What stood there before, or zeros, would be taken for what it sees."""
    look = Leaving.look
    monkeypatch.setattr(
        Leaving, "look", lambda self: {k: x for k, x in look(self).items() if k != "b" or self.at != at}
    )
    with pytest.raises(UserError, match=rf"^it: {what} gave no observation of b, which was not terminated: return one"):
        leaving().rollout(Draws(leaving()), steps=2)


@pytest.mark.parametrize("said", [True, False])
def test_one_that_was_truncated_and_sees_nothing_is_refused(said: bool) -> None:
    """Its value would go on from what it saw before; where nothing says how it left, it counts as truncated."""

    class Cut(Leaving):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            _, rewards, ends, flags, infos = super().step(actions)
            return self.look(), rewards, flags, ends if said else flags, infos

    made = ControlEnv(lambda n: Together(Cut, n, "it"), 3, agents=3, source="it")
    with pytest.raises(UserError, match=r"^it: step gave no observation of a, which was not terminated: return one of"):
        made.rollout(Draws(made), steps=4)


def test_one_that_was_terminated_needs_no_last_observation() -> None:
    class Gone(Leaving):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            _, *rest = super().step(actions)
            return self.look(), *rest

    made = ControlEnv(lambda n: Together(Gone, n, "it"), 3, agents=3, source="it")
    assert made.rollout(Draws(made), steps=4)["terminated"].any()


def test_one_that_acted_and_has_no_reward_is_refused() -> None:
    class Later(Leaving):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            seen, rewards, *rest = super().step(actions)
            return seen, {name: x for name, x in rewards.items() if name != "b" or self.at < 2}, *rest

    line = r"^it: step gave no reward of b, which acted in it: return one of each agent that acted, 0 where it earned"
    with pytest.raises(UserError, match=line):
        ControlEnv(lambda n: Together(Later, n, "it"), 6, agents=3, source="it").rollout(Draws(leaving()), steps=2)


class Worded(Leaving):
    """Says in words that nobody is out."""

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        seen, rewards, ends, *rest = super().step(actions)
        return seen, rewards, dict.fromkeys(ends, "no"), *rest


def test_an_end_that_is_neither_true_nor_false_is_one_line() -> None:
    made = ControlEnv(lambda n: Together(Worded, n, "it"), 3, agents=3, source="it")
    with pytest.raises(UserError, match=r"^it: step gave terminated of type str: return True or False$"):
        made.rollout(Draws(made), steps=4)


class Nobody(Leaving):
    possible_agents = ()


class OldReset(Leaving):
    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        return super().reset(seed)[0]


class Wide(Leaving):
    def look(self) -> dict[str, Any]:
        return {name: np.zeros(2 + (self.at > 0), np.float32) for name in self.agents}


class Unpaid(Leaving):
    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        seen, _, *rest = super().step(actions)
        return seen, {}, *rest


class Lists(Leaving):
    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        seen, rewards, *rest = super().step(actions)
        return seen, {name: [x] for name, x in rewards.items()}, *rest


@pytest.mark.parametrize(
    ("game", "says"),
    [
        (Nobody, "it has no possible_agents: name the agents that play"),
        (OldReset, r"it: reset returns a dict: return the 2 of PettingZoo, \(observations, infos\)"),
        (Wide, r"it: step, of a, gives an observation of shape \(3,\), and observation_space has \(2,\)"),
        (Unpaid, "^it: step gave no reward of a, which acted in it"),
        (Lists, r"it: step, of a, gave a reward of shape \(1,\): return one number"),
    ],
)
def test_a_game_of_another_contract_is_one_line(game: type[Leaving], says: str) -> None:
    with pytest.raises(UserError, match=says):
        check_game(game(), "it")


class Told(Leaving):
    """Says in its infos what is allowed, as env=gym reads it."""

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        seen, _ = super().reset(seed)
        return seen, {name: {"action_mask": np.array([1, 0], np.int8)} for name in self.agents}


def test_a_mask_in_the_infos_of_agents_is_not_overlooked_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    check_game(Leaving(), "it")
    assert not capsys.readouterr().err
    check_game(Told(), "it")
    assert "it gives action_mask in its infos, which is not read, so all actions are allowed" in capsys.readouterr().err


class Placed(Leaving):
    """Shows where the agent is, under the name that its number would get."""

    def observation_space(self, agent: str) -> Any:
        return Dict({"agent": Box(0, np.inf, (2,))})


def test_the_number_of_an_agent_takes_the_place_of_nothing() -> None:
    with pytest.raises(UserError, match=r"^it: env.agent_number=true would take the place of the part agent"):
        Together(Placed, 3, "it", numbered=True)


def test_a_game_may_take_the_actions_out_of_their_dict() -> None:
    class Takes(Leaving):
        def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
            return super().step({name: actions.pop(name) for name in list(actions)})

    both = [
        ControlEnv(lambda n, game=game: Together(game, n, "it"), 3, agents=3, source="it") for game in (Leaving, Takes)
    ]
    found = [env.rollout(Draws(env), steps=6) for env in both]
    for key in ("reward", "terminated", "done", "mask"):
        assert torch.equal(found[0][key], found[1][key])
    assert bool((found[0]["reward"] != 0).any())
