"""The game of our own: its optimum, its share of games won, and how tiny plays it."""

from typing import Any

import pytest
import torch
from support.chatter import Chatter

from rlkit.language.model import LanguageModel
from rlkit.settings import plugins

guess = plugins.load("envs", "guess")


def search(numbers: int) -> Any:
    """Binary search over 1 to N by what the game says."""

    def say(prompt: str, attempt: int, heard: list[str]) -> str:
        low, high = 1, numbers
        for text in heard:
            middle = (low + high) // 2
            low, high = (middle + 1, high) if "more" in text else (low, middle - 1)
        return f" {(low + high) // 2}"

    return say


@pytest.mark.parametrize("numbers, guesses", [(7, 3), (8, 3), (10, 4), (5, 2), (20, 4), (2, 1)])
def test_binary_search_wins_what_the_optimum_says(numbers: int, guesses: int) -> None:
    wins = 0
    for number in range(1, numbers + 1):
        game = guess.Guess(numbers, guesses)
        game.reset(0)
        game.number, heard, done = number, [], False
        while not done:
            text, reward, done = game.step(search(numbers)("", 0, heard))
            heard.append(text)
        wins += reward == 1.0
    assert wins / numbers == guess.optimum(numbers, guesses)


def test_guess_measures_the_share_of_games_won() -> None:
    world = guess.make(guess.Config(numbers=7, guesses=3, test=50), 0, "cpu")
    scores = world.evaluate(Chatter(search(7)), split="test")
    assert scores.score.tolist() == [1.0] * 50 and world.metric == "accuracy"
    lost = world.evaluate(Chatter(lambda *_: "none"), split="test")
    assert not lost.score.any() and lost.metrics["turns"] == [3.0] * 50
    assert world.reference.high == 1.0 and "binary search wins 1.000" in world.source
    numbers = [guess.Guess(7, 3) for _ in range(700)]
    counts = [0] * 8
    for seed, game in enumerate(numbers):
        game.reset(seed)
        counts[game.number] += 1
    assert counts[0] == 0 and min(counts[1:]) > 60


def test_a_turn_has_room_for_the_digits_of_each_number(capsys: pytest.CaptureFixture[str]) -> None:
    def world(**given: int) -> Any:
        return guess.make(guess.Config(**given), 0, "cpu")

    assert world().turn_tokens == 2 and world(numbers=1000, guesses=5).turn_tokens == 4
    assert world(numbers=1000, guesses=5, turn_tokens=3).turn_tokens == 3
    assert not capsys.readouterr().err
    world(numbers=1000, guesses=10)
    assert "env.guesses=10 of 4 tokens each may not fit env.max_tokens=24" in capsys.readouterr().err
    world(numbers=1000, guesses=10, max_tokens=40)
    assert not capsys.readouterr().err


def test_tiny_plays_and_its_log_probabilities_are_those_of_the_learner() -> None:
    policy = LanguageModel.load("tiny")
    world = guess.make(guess.Config(rows=4), 0, "cpu")
    world.check(policy)
    batch = world.rollout(policy, repeats=4)
    flat = batch.flatten(0, 1)
    torch.testing.assert_close(policy.evaluate(flat)["log_prob"].detach(), flat["log_prob"], rtol=1e-4, atol=1e-4)
    assert 1 < flat["rollout/turns"].mean() <= 3 and 0 < flat["score"].mean() < 1
