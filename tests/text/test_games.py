"""Games in words: what they are asked, where their rewards land, and what a wrong one is told."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.chatter import Chatter
from support.parrot import Judge, Parrot
from support.templates import TEMPLATES
from test_asking import Talker

from rlkit import returns
from rlkit.api import RewardFailed, UserError
from rlkit.language.model import LanguageModel
from rlkit.prompts import Prompt
from rlkit.settings import plugins
from rlkit.text import Asking, GameEnv
from rlkit.text.scoring import LARGEST

guess = plugins.load("envs", "guess")


class Count:
    """Say the next number; each right one earns 1, and the third ends the game."""

    def reset(self, seed: int) -> str:
        self.at = seed % 5
        return f"{self.at}"

    def step(self, text: str) -> tuple[Any, ...]:
        right = text == str(self.at + 1)
        self.at += 1
        return f"{self.at}", float(right), self.at % 5 == 3


def env(make: Any = Count, **settings: Any) -> GameEnv:
    return GameEnv(make, "count", 4, 0, **{"max_tokens": 60, **settings})


def right(prompt: str, attempt: int, heard: list[str]) -> str:
    last = (heard or [prompt])[-1].strip()
    return str(int(last) + 1) if attempt == 0 else "?"


def test_a_turn_earns_its_reward_on_its_last_token_and_the_score_is_the_sum() -> None:
    world, chatter = env(), Chatter(right)
    batch = world.rollout(chatter, repeats=2)
    assert batch.batch_size == (4, 2)
    for row, attempt in ((row, attempt) for start in batch for attempt, row in enumerate(start)):
        turns = int(row["rollout/turns"])
        assert row["score"] == row["reward"].sum() == (turns if attempt == 0 else 0)
        ends = row["reward"].nonzero()[:, 0].tolist()
        assert all(row["mask"][end] and not row["mask"][end + 1 : end + 2].any() for end in ends)
        last = int(row["mask"].nonzero().max())
        assert row["terminated"].nonzero().tolist() == row["done"].nonzero().tolist() == [[last]]
    # Every later turn counts less by γ for each token that the policy itself wrote, whatever was said between.
    row = batch[0, 0]
    to_go = returns.reward_to_go(row["reward"], row["done"], 0.5, row["mask"])
    assert to_go[row["reward"] > 0].tolist() == pytest.approx(
        [sum(0.25**k for k in range(int(row["rollout/turns"]) - turn)) for turn in range(int(row["rollout/turns"]))]
    )  # a number and its end: two tokens


def test_plain_text_puts_the_prompt_around_what_is_said() -> None:
    heard: list[tuple[str, list[str]]] = []

    def say(prompt: str, attempt: int, said: list[str]) -> str:
        heard.append((prompt, list(said)))
        return "x"

    world = env(asking=Asking("Q: {question}\nA:"), turn_tokens=9)
    chatter = Chatter(say)
    world.rollout(chatter)
    assert all(prompt == f"Q: {prompt[3]}\nA:" for prompt, _ in heard)
    assert {text for _, said in heard for text in said} <= {f"Q: {n}\nA:" for n in range(12)}
    assert chatter.calls[0] == {"max_tokens": 60, "turn_tokens": 9, "stop": ("\n",)}


def test_what_stands_after_a_stop_string_is_not_played() -> None:
    world = env(stop=["!"])
    batch = world.rollout(Chatter(lambda prompt, attempt, heard: f"{int((heard or [prompt])[-1]) + 1}!9"))
    assert (batch["score"] == batch["rollout/turns"]).all()


def test_attempts_of_a_group_share_the_games_seed_and_a_resumed_run_plays_on() -> None:
    world, chatter = env(), Chatter(right)
    first = world.rollout(chatter, repeats=3)
    state = json.loads(json.dumps(world.state_dict()))
    again, resumed = world.rollout(chatter), env()
    resumed.load_state_dict(state)
    for key, x in resumed.rollout(chatter).items():
        assert torch.equal(x, again[key])
    assert first["problem"].tolist() == [[n] * 3 for n in range(4)] and again["problem"].tolist() == [4, 5, 6, 7]
    starts = first["observation"][..., 0]
    assert (starts == starts[:, :1]).all() and len(starts[:, 0].unique()) > 1
    other = GameEnv(Count, "count", 4, 1, max_tokens=60)
    assert other.rollout(chatter)["observation"][:, 0].tolist() != starts[:, 0].tolist()


def test_evaluation_plays_the_same_games_for_every_run_and_others_for_each_split() -> None:
    one, two = env(), GameEnv(Count, "count", 2, 7, max_tokens=60)
    chatter = Chatter(right)
    found = {split: one.evaluate(chatter, 30, split) for split in ("validation", "test")}
    assert found["test"].items == two.evaluate(chatter, 30, "test").items != found["validation"].items
    assert not set(found["test"].items) & set(found["validation"].items)
    assert found["test"].score.tolist() == found["test"].metrics["turns"]
    sample = found["test"].samples[0]
    assert sample["prompt"].strip().isdigit() and "\n" in sample["completion"]
    assert one.metric == "return" and one.scored(chatter) == "episodes"


def test_samples_show_the_whole_dialog() -> None:
    world, chatter = env(), Chatter(right)
    batch = world.rollout(chatter)
    for sample, turns in zip(world.samples(batch, chatter, 3), batch["rollout/turns"].tolist(), strict=False):
        start = int(sample["prompt"])
        dialog = "".join(f"{start + n + 1}{start + n + 1}\n" for n in range(int(turns)))
        assert sample["completion"] == dialog[: len(sample["completion"])]
        assert sample["score"] == turns


class Steps:
    """A game whose step is given."""

    def __init__(self, step: Any, reset: Any = lambda seed: "go") -> None:
        self.step, self.reset = step, reset


class Odd:
    """It is no number, and neither true nor false."""

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
        (lambda text: ("on", [1.0, 2.0], True), "gave a reward of [1.0, 2.0]; every"),
        (lambda text: ("on", 1e39, True), "gave a reward of 1e+39; every reward must be a number from -1e18"),
        (lambda text: ("on", -(10**400), True), "gave a reward of -1000"),
        (lambda text: ("on", Odd(), True), "gave a reward of an odd one; every"),
        (lambda text: ("on", LARGEST / 2, False), "the rewards of an episode sum to more than"),
        (lambda text: ("on", (-1) ** len(text) * LARGEST, False), "the rewards of an episode sum to more than"),
        (lambda text: ("on", 0.0, np.array([True, False])), "step gave array([ True, False]) for whether the episode"),
        (lambda text: ("on", 0.0, False, torch.tensor([True, False]), {}), "step gave tensor([ True, False]) for"),
        (lambda text: ("on", 0.0, Odd()), "step gave an odd one for whether the episode is over; give True or False"),
        (failing(KeyError("so\nnot")), "raised KeyError: 'so\\nnot' (test_games.py, line"),
        (failing(SystemExit(0)), "raised SystemExit: 0 (test_games.py, line"),
        (failing(MemoryError()), "raised MemoryError: nothing more (test_games.py, line"),
    ],
)
def test_what_a_wrong_game_does_is_one_line(step: Any, words: str) -> None:
    world = env(lambda: Steps(step))
    with pytest.raises(RewardFailed) as error:
        world.rollout(Chatter(lambda *_: "x"))
    assert f"game count{':' if words.startswith(('step', 'the')) else ''} {words}" in str(error.value)
    assert "\n" not in str(error.value)


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
    with pytest.raises(RewardFailed, match=rf"^game count raised {words} \(test_games.py, line \d+\)$"):
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


def test_a_game_may_speak_gymnasiums_way() -> None:
    class Gym:
        def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[str, dict]:
            self.seed = seed
            return f"seed {seed}", {}

        def step(self, text: str) -> tuple[Any, ...]:
            return "on", torch.tensor(0.5), False, text == "end", {}

    world = env(Gym, max_tokens=8)
    batch = world.rollout(Chatter(lambda prompt, attempt, heard: "end" if heard else "a"))
    assert batch["score"].tolist() == [1.0] * 4 and not batch["truncated"].any()
    assert len({tuple(row) for row in batch["observation"][:, :14].tolist()}) == 4
    cut = env(Gym, max_tokens=6).rollout(Chatter(lambda *_: "a"))  # two tokens a turn
    assert cut["truncated"].all() and cut["rollout/turns"].tolist() == [3.0] * 4
    assert cut["terminated"].sum() == 4  # a limit of tokens is part of the task


def test_a_game_that_ignores_its_seed_or_is_none_is_refused() -> None:
    count = iter(range(100))
    lucky = Steps(lambda text: ("", 0.0, True), lambda seed: f"{next(count)}")
    with pytest.raises(UserError, match=r"game count: reset\(\d+\) said two different texts: take all luck from the"):
        env(lambda: lucky).rollout(Chatter(right), repeats=2)
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


# In chat turns


@pytest.mark.parametrize(
    "name, between, after",
    [
        ("chatml", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
        ("smollm2", "<|im_end|>\n<|im_start|>user\n", "<|im_end|>\n<|im_start|>assistant\n"),
        ("mistral", "</s>[INST] ", " [/INST]"),
    ],
)
def test_in_chat_a_reply_stands_in_the_templates_own_marks(name: str, between: str, after: str) -> None:
    from rlkit.language.chat import ChatTemplate
    from rlkit.language.folders import TINY
    from rlkit.language.tokenizer import Tokenizer

    core = Tokenizer.load(TINY, 545).core
    template = ChatTemplate(TEMPLATES[name], "here", (("bos_token", "<s>"), ("eos_token", "</s>")))
    policy = Talker()
    policy.chat = lambda conversations, options: template.prompts(conversations, core, options)
    said = "so <|im_end|> it is"
    reply = Asking(chat=None).replies(policy)(said)
    assert reply == between + said + after and isinstance(reply, Prompt)
    assert [reply[start:end] for start, end in reply.data] == [said]


def test_a_template_that_forgets_is_refused() -> None:
    policy = Talker()
    policy.chat = lambda conversations, options: [Prompt(turns[-1].content) for turns in conversations]
    with pytest.raises(UserError, match=r"the chat template leaves out what was said before: give env\.chat=false"):
        Asking(chat=None).replies(policy)


def test_in_chat_nothing_but_the_end_token_ends_a_turn() -> None:
    class Both(Chatter, Talker):
        pass

    world, chatter = env(asking=Asking(chat=None)), Both(lambda *_: "x")
    world.rollout(chatter)
    assert chatter.calls[0]["stop"] == () and world.settled(chatter)["stop"] == ()
    assert env().settled(Chatter(right))["stop"] == ("\n",)


# The game of our own


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


def test_tiny_plays_and_its_log_probabilities_are_those_of_the_learner() -> None:
    policy = LanguageModel.load("tiny")
    world = guess.make(guess.Config(rows=4), 0, "cpu")
    world.check(policy)
    batch = world.rollout(policy, repeats=4)
    flat = batch.flatten(0, 1)
    torch.testing.assert_close(policy.evaluate(flat)["log_prob"].detach(), flat["log_prob"], rtol=1e-4, atol=1e-4)
    assert 1 < flat["rollout/turns"].mean() <= 3 and 0 < flat["score"].mean() < 1
