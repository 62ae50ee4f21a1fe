"""Stop strings: where a completion ends, whenever it was looked at."""

import pytest
import torch
from support import bytes_of_letters, small_model
from support.small_model import PROMPTS, TOKENIZER
from torch import Tensor

from rlkit.buffers import last_step
from rlkit.doctor.symptoms import of_texts
from rlkit.language import generate as engine
from rlkit.language import stopping
from rlkit.language.reward_model import RewardModel
from rlkit.language.stopping import Stopping
from rlkit.language.tokenizer import Tokenizer
from rlkit.seeding import generator
from rlkit.text.turns import OneTurn

STOPS = ("e", "an", "##", "\ufffdx", "12 ap")


def model():
    """Small, random, with many letters to choose from, and no end token but one that never comes."""
    policy = small_model.model(spread=4.0)
    policy.tokenizer = Tokenizer(TOKENIZER.core, TOKENIZER.eos_id, TOKENIZER.pad_id)
    return policy


def rows(batch, name: str) -> list[Tensor]:
    flat, mask = batch[name].flatten(0, -2), batch["mask"].flatten(0, -2)
    return [row[where] for row, where in zip(flat, mask, strict=True)]


def first_with(tokens: list[int], stop: tuple[str, ...]) -> int | None:
    """How many tokens it takes until a stop string is in the text, found one by one."""
    texts = TOKENIZER.decode([tokens[: n + 1] for n in range(len(tokens))])
    return next((n for n, text in enumerate(texts, 1) if any(s in text for s in stop)), None)


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("stop", [("e",), STOPS, ("Ä", "never there")])
def test_a_row_ends_at_the_first_token_that_completes_a_stop_string(stop: tuple[str, ...], greedy: bool) -> None:
    policy = model()
    whole, cut = (
        policy.generate(PROMPTS, 4, 40, greedy, generator=generator(0, "draw"), stop=given) for given in ((), stop)
    )
    ended = 0
    for i, (full, part) in enumerate(zip(rows(whole, "action"), rows(cut, "action"), strict=True)):
        end = first_with(full.tolist(), stop)
        assert part.tolist() == full[:end].tolist(), "a stop string changes nothing before it, and nothing in others"
        assert torch.allclose(rows(cut, "log_prob")[i], rows(whole, "log_prob")[i][:end], atol=1e-5)
        assert bool(cut["truncated"].flatten()[i]) == (end is None and bool(whole["truncated"].flatten()[i]))
        ended += end is not None
    assert (ended > 0) == ("e" in stop)


def test_how_often_is_looked_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for every in (1, 3, 8, 1000):
        monkeypatch.setattr(engine, "EVERY", every)
        monkeypatch.setattr(stopping, "EVERY", every)
        batch = model().generate(PROMPTS, 6, 30, generator=generator(1, "draw"), stop=STOPS)
        found.append((rows(batch, "action"), batch["truncated"]))
    for tokens, truncated in found[1:]:
        assert [x.tolist() for x in tokens] == [x.tolist() for x in found[0][0]]
        assert torch.equal(truncated, found[0][1])


def test_rows_are_dropped_as_soon_as_they_are_seen_to_end(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[int] = []
    step = engine.Writing._step

    def counted(writing: engine.Writing) -> None:
        steps.append(len(writing.row))
        step(writing)

    monkeypatch.setattr(engine.Writing, "_step", counted)
    model().generate(PROMPTS, 2, 100, stop=["e", "a", "o", "i", "p", " ", "s", "1", "\n", "r"])
    assert len(steps) < 40 and steps[-1] < steps[0]


def test_a_stop_string_may_be_spread_over_tokens_and_parts_of_letters() -> None:
    letters = Tokenizer(TOKENIZER.core, TOKENIZER.eos_id, TOKENIZER.pad_id)
    (tokens,) = letters.encode(["Bob says é東! and é東! again"])
    (before,) = letters.encode(["Bob says é東"])
    looked = Stopping(["é東!", "says a"], letters.decode)
    end = len(before) + 1
    assert looked.lengths([tokens, before, tokens[:end], []]) == [end, None, end, None]
    assert looked.lately([tokens[:n] for n in range(1, end + 1)]) == [False] * len(before) + [True]


SMILE = "😀".encode()


@pytest.mark.parametrize("after", [(SMILE, "a", "a"), (SMILE * 2,), (SMILE[:2],), (b"\xf0", "a", "a"), ()], ids=str)
def test_a_stop_string_is_found_before_letters_that_are_spelled_by_bytes(after: tuple[str | bytes, ...]) -> None:
    looked = Stopping(["\n"], bytes_of_letters.tokenizer().decode)
    row = bytes_of_letters.ids("a", b"\n", *after)
    assert looked.lengths([row, row[:1]]) == [2, None]


def test_a_space_that_a_decoder_drops_from_the_first_token_ends_a_stop_string() -> None:
    looked = Stopping(["a "], bytes_of_letters.tokenizer().decode)
    row = bytes_of_letters.ids("a", "▁b", "a")
    assert looked.may_end(row[1]) and not looked.may_end(row[2]) and looked.lengths([row]) == [2]


def test_a_special_token_as_a_stop_string_is_an_end_token() -> None:
    policy = model()
    core = policy.tokenizer.core
    number = core.token_to_id("<|endoftext|>")
    policy.tokenizer = Tokenizer(core, 5, 5)
    assert policy.tokenizer.stops(["<|endoftext|>", "e"]) == tuple(sorted((number, 5)))
    assert policy.stopping(["<|endoftext|>"]) is None
    assert policy.stopping(["<|endoftext|>", "e"]).texts == ("e",)
    assert policy.tokenizer.stop_token("e") is None and core.token_to_id("e") is not None


def test_a_row_that_a_special_token_of_env_stop_ends_counts_as_stopped() -> None:
    policy = model()
    policy.tokenizer = Tokenizer(policy.tokenizer.core, 5, 5)
    batch, _ = OneTurn().write(policy, PROMPTS, ["<|endoftext|>"], 8, max_tokens=24)
    number, last = policy.tokenizer.stop_token("<|endoftext|>"), last_step(batch["mask"].flatten(0, -2)) - 1
    ended = batch["action"].flatten(0, -2).gather(-1, last.unsqueeze(-1))[:, 0] == number
    assert batch["rollout/stopped"].flatten().tolist() == ended.float().tolist() and 0 < ended.float().mean() < 1
    found = of_texts(batch, policy)
    assert found["odd_ends"] == 0


def test_a_reward_model_reads_texts_up_to_the_stop_string() -> None:
    judge = RewardModel.on(model(), writes=True)
    whole = judge.generate(PROMPTS, 3, 30, generator=generator(0, "draw"))
    cut = judge.generate(PROMPTS, 3, 30, generator=generator(0, "draw"), stop=["e"])
    texts = [text.partition("e")[0] for text in judge.decode(whole)]
    assert judge.decode(cut) == texts and any("e" in text for text in judge.decode(whole))
    batch, found = OneTurn().write(judge, PROMPTS, ["e"], 3, max_tokens=30, generator=generator(0, "draw"))
    assert found == texts and "rollout/stopped" not in batch.keys(), "it does not know what ended them"
