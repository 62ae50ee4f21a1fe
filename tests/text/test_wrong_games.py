"""What a wrong game, or a policy that takes no turns, is told."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.chatter import Chatter
from support.games import env, right
from support.parrot import Judge, Parrot

from rlkit.api import RewardFailed, UserError
from rlkit.language.network import LanguageNetwork
from rlkit.settings import plugins
from rlkit.text.asking import Asking
from rlkit.text.scoring import LARGEST


class Steps:
    """A game whose step is given."""

    def __init__(self, step: Any, reset: Any = lambda seed: "go") -> None:
        self.step, self.reset = step, reset


class Odd:
    """It is not a number, and neither true nor false."""

    def __float__(self) -> float:
        raise RuntimeError("no number")

    def __bool__(self) -> bool:
        raise RuntimeError("no truth")

    def __repr__(self) -> str:
        return "an odd one"


def failing(exception: BaseException) -> Any:
    def step(text: str) -> Any:
        raise exception

    return step


@pytest.mark.parametrize(
    "step, words",
    [
        (lambda text: "on", "step gave 'on'; return (text, reward, done), or (text, reward, terminated"),
        (lambda text: ("on", 1.0), "step gave ('on', 1.0); return"),
        (lambda text: (None, 1.0, False), "step gave None in place of a text; return a str"),
        (lambda text: (b"on", 1.0, False), "step gave b'on' in place of a text"),
        (lambda text: ("on", float("nan"), False), "gave a reward of nan; every reward must be a number from -"),
        (lambda text: ("on", "1", False), "gave a reward of '1'; every reward must be"),
        (lambda text: ("on", None, True), "gave a reward of None; every"),
        (lambda text: ("on", b"1", True), "gave a reward of b'1'; every"),
        (lambda text: ("on", memoryview(b"1"), True), "gave a reward of <memory at"),
        (lambda text: ("on", [1.0, 2.0], True), "gave a reward of [1.0, 2.0]; every"),
        (lambda text: ("on", 1e39, True), "gave a reward of 1e+39; every reward must be a number from -1e18"),
        (lambda text: ("on", -(10**400), True), "gave a reward of -1000"),
        (lambda text: ("on", Odd(), True), "gave a reward of an odd one; every"),
        (lambda text: ("on", LARGEST / 2, False), "the rewards of an episode sum to more than"),
        (lambda text: ("on", (-1) ** len(text) * LARGEST, False), "the rewards of an episode sum to more than"),
        (lambda text: ("on", 0.0, np.array([True, False])), "step gave array([ True, False]) for whether the episode"),
        (lambda text: ("on", 0.0, False, torch.tensor([True, False]), {}), "step gave tensor([ True, False]) for"),
        (lambda text: ("on", 0.0, Odd()), "step gave an odd one for whether the episode is over; give True or False"),
        (lambda text: ("on", True, 0.5), "step gave 0.5 for whether the episode is over; give True or False"),
        (lambda text: ("on", 0.0, "False"), "step gave 'False' for whether the episode is over; give True or False"),
        (failing(KeyError("so\nnot")), "raised KeyError: 'so\\nnot' (test_wrong_games.py, line"),
        (failing(GeneratorExit()), "raised GeneratorExit: nothing more (test_wrong_games.py, line"),
        (failing(SystemExit(0)), "raised SystemExit: 0 (test_wrong_games.py, line"),
        (failing(MemoryError()), "raised MemoryError: nothing more (test_wrong_games.py, line"),
    ],
)
def test_what_a_wrong_game_does_is_one_line(step: Any, words: str) -> None:
    world = env(lambda: Steps(step))
    with pytest.raises(RewardFailed) as error:
        world.rollout(Chatter(lambda *_: "x"))
    assert f"game count{':' if words.startswith(('step', 'the')) else ''} {words}" in str(error.value)
    assert "\n" not in str(error.value)


def test_a_reset_without_a_seed_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^game count: reset takes no seed: write def reset\(self, seed\)"):
        env(lambda: Steps(lambda text: ("on", 0.0, True), lambda: "go")).rollout(Chatter(lambda *_: "x"))


def test_a_game_that_says_nothing_needs_a_text_around_it() -> None:
    def silent() -> Steps:
        return Steps(lambda text: ("", 1.0, False))

    with pytest.raises(RewardFailed, match=r"^game count: step gave no text, and nothing else stands between two"):
        env(silent, asking=Asking("{question}")).rollout(Chatter(lambda *_: "x"))
    assert env(silent, max_tokens=8).rollout(Chatter(lambda *_: "x"))["score"].tolist() == [4.0] * 4


def test_a_game_beyond_the_context_is_said_to_be_so_where_nothing_stands_between_two_turns() -> None:
    policy = LanguageNetwork().build(0)
    world = env(
        lambda: Steps(lambda text: ("on", 1.0, False)), asking=Asking("{question}"), max_tokens=policy.decoder.context
    )
    with pytest.raises(UserError, match=r"^a prompt of . tokens \('go \.\.\.'\) and .* more exceed"):
        world.check(policy)


def test_a_reward_as_large_as_can_be_is_taken() -> None:
    batch = env(lambda: Steps(lambda text: ("on", -LARGEST, True))).rollout(Chatter(lambda *_: "x"))
    assert batch["score"].isfinite().all() and (batch["score"] < 0).all()


def test_a_text_of_a_class_of_ones_own_is_its_letters() -> None:
    class Text(str):
        def __getitem__(self, at: Any) -> Any:
            return 5

        def __str__(self) -> str:
            raise RuntimeError

    world = env(lambda: Steps(lambda text: (Text("on"), 0.0, False), lambda seed: Text("go")), max_tokens=4)
    chatter = Chatter(lambda *_: "x")
    assert {sample["prompt"] for sample in world.samples(world.rollout(chatter), chatter, 4)} == {"go\n"}


class Broken:
    """A game that cannot be made."""

    def __init__(self) -> None:
        raise ValueError("no board")


class Shy:
    """A game without a way to begin."""

    @property
    def reset(self) -> None:
        raise RuntimeError("not yet")

    def step(self, text: str) -> None: ...


def leaving(seed: int = 0) -> None:
    """A game that ends the program."""
    sys.exit(0)


@pytest.mark.parametrize(
    "make, words",
    [
        (Broken, "ValueError: no board"),
        (Shy, "RuntimeError: not yet"),
        (leaving, "SystemExit: 0"),
        (lambda: Steps(print, leaving), "SystemExit: 0"),
    ],
)
def test_a_game_that_raises_before_it_begins_is_one_line(make: Any, words: str) -> None:
    with pytest.raises(RewardFailed, match=rf"^game count raised {words} \(test_wrong_games.py, line \d+\)$"):
        env(make).rollout(Chatter(right))


@pytest.mark.parametrize(
    "kwargs, words",
    [
        (
            {"length": 1, "n": 9},
            r"={'length': 1, 'n': 9} \(got an unexpected keyword argument 'n'\); give what it takes",
        ),
        ({}, r"={} \(missing a required argument: 'length'\); give what it takes"),
    ],
)
def test_arguments_that_a_game_does_not_take_are_refused(tmp_path: Path, kwargs: dict[str, int], words: str) -> None:
    (tmp_path / "mine.py").write_text("class Game:\n    def __init__(self, length): ...\n")
    game = plugins.load("envs", "game")
    with pytest.raises(UserError, match=rf"game mine\.py:Game cannot be made with env\.kwargs{words}"):
        game.make(game.Config(game=f"{tmp_path / 'mine.py'}:Game", kwargs=kwargs), 0, "cpu")


def test_no_game_changes_what_another_one_was_given(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "import random\n\nclass Game:\n    def __init__(self, cards):\n        self.cards = cards\n\n"
        "    def reset(self, seed):\n        random.Random(seed).shuffle(self.cards)\n        return 'which?'\n\n"
        "    def step(self, text):\n        return '', self.cards[0], True\n"
    )
    game, cards = plugins.load("envs", "game"), [1, 2, 3, 4, 5, 6, 7]
    world = game.make(game.Config(game=f"{tmp_path / 'mine.py'}:Game", kwargs={"cards": cards}), 0, "cpu")
    found = [world.evaluate(Chatter(lambda *_: "x"), 8).score.tolist() for _ in range(2)]
    assert found[0] == found[1] and len({*found[0]}) > 1 and cards == [1, 2, 3, 4, 5, 6, 7]


def test_a_game_that_ignores_its_seed_or_is_none_is_refused() -> None:
    count = iter(range(100))

    def lucky() -> Steps:
        return Steps(lambda text: ("", 0.0, True), lambda seed: f"{next(count)}")

    with pytest.raises(UserError, match=r"game count: reset\(\d+\) said two different texts: take all luck from the"):
        env(lucky).rollout(Chatter(right), repeats=2)
    one = lucky()
    with pytest.raises(UserError, match="game count gives the same game each time: let it make a new one"):
        env(lambda: one).rollout(Chatter(right), repeats=2)
    with pytest.raises(UserError, match="game count makes a int without reset and step: give it reset"):
        env(lambda: 3).rollout(Chatter(right))
    with pytest.raises(UserError, match="game count makes a Steps without reset and step: give it reset"):
        env(lambda: Steps(3, None)).rollout(Chatter(right))
    with pytest.raises(RewardFailed, match="game count: reset gave 3 in place of a text; return a str"):
        env(lambda: Steps(print, lambda seed: 3)).rollout(Chatter(right))
    with pytest.raises(UserError, match=r"no test games; hold some out with env\.test=N"):
        env(splits={"validation": 1, "test": 0}).evaluate(Chatter(right), split="test")


@pytest.mark.parametrize("policy", [Parrot(), Judge(lambda prompt, completion: 0.0)])
def test_a_policy_that_takes_no_turns_is_refused(policy: Parrot) -> None:
    for ask in (env().check, env().rollout, env().evaluate):
        with pytest.raises(UserError, match=f"a {type(policy).__name__} writes no turns: use algo=grpo"):
            ask(policy)
