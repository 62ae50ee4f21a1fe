"""Writing in turns: rows are answered, read the answer in the same cache, and write on; a plain loop is the oracle."""

from collections.abc import Callable

import pytest
import torch
from support import templates
from support.sentence_pieces import sentence_piece
from support.small_model import PROMPTS, TOKENIZER, model
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit.api import UserError
from rlkit.language.model import LanguageModel
from rlkit.prompts import Reply, Turn, data, joined
from rlkit.seeding import generator

STOP = ["a", "e", "1", "s"]  # such frequent ones that a row has many turns


def answering(text: Callable[[int, int], str | None]) -> Reply:
    """Answers each row's n-th turn by `text(row, n)`."""
    count: dict[int, int] = {}

    def reply(rows, texts):
        for row in rows:
            count[row] = count.get(row, -1) + 1
        return [text(row, count[row]) for row in rows]

    return reply


def some(row: int, turn: int) -> str | None:
    return None if turn == 3 + row % 3 else ["", " and 12 pears.", "\n", "apples? 7"][(row + turn) % 4]


def talk(policy: LanguageModel, text: Callable[[int, int], str | None] = some, seed: int = 0, **keys) -> TensorDict:
    keys = {"repeats": 3, "max_tokens": 40, "stop": STOP, "generator": generator(seed, "draws"), **keys}
    return policy.converse(PROMPTS, answering(text), **keys)


def rows_of(batch: TensorDict) -> list[tuple[list[int], list[bool], list[bool]]]:
    """Of each row the ids after the prompt up to the last one that it wrote, which it wrote, and which end a turn."""
    found = []
    for row in batch.flatten(0, -1):
        acted = row["mask"].nonzero()[:, 0]
        part = slice(int(acted[0]), int(acted[-1]) + 1)
        found.append((row["action"][part].tolist(), row["mask"][part].tolist(), row["turn_end"][part].tolist()))
    return found


@torch.no_grad()
def by_hand(policy: LanguageModel, row: int, prompt: list[int], uniform: Tensor, budget: int, turn_tokens: int):
    """One row, read anew for each token; uniform [T]."""
    ids, acted, ends, turn, spent, turns = list(prompt), [], [], [], 0, 0
    while True:
        hidden = policy.decoder(torch.tensor([ids]))[0, -1]
        mass = (policy.decoder.logits(hidden) / policy.temperature).double().softmax(-1).cumsum(-1)
        token = int(torch.searchsorted(mass, uniform[spent].double() * mass[-1], right=True))
        ids, acted, turn, spent = [*ids, token], [*acted, True], [*turn, token], spent + 1
        said = TOKENIZER.decode([turn])[0]
        over = token == TOKENIZER.eos_id or any(stop in said for stop in STOP) or len(turn) == turn_tokens
        ends.append(over or spent == budget)
        if not ends[-1]:
            continue
        answer = some(row, turns)
        if answer is None or spent == budget:
            return ids[len(prompt) :], acted, ends, answer is not None
        more = TOKENIZER.encode([answer])[0]
        ids, turn, turns = [*ids, *more], [], turns + 1
        acted, ends = [*acted, *[False] * len(more)], [*ends, *[False] * len(more)]


@pytest.mark.parametrize("kind", ["llama", "qwen3"])
@pytest.mark.parametrize("turn_tokens", [None, 3])
def test_each_row_is_what_a_plain_loop_writes(kind: str, turn_tokens: int | None) -> None:
    policy = model(spread=3.0, kind=kind, kv_heads=1, temperature=0.9)
    batch = talk(policy, turn_tokens=turn_tokens)
    uniform = torch.rand(40, 9, generator=generator(0, "draws"))
    ids = policy.prompt_ids(PROMPTS)
    for row, found in enumerate(rows_of(batch)):
        *expected, cut = by_hand(policy, row, ids[row // 3], uniform[:, row], 40, turn_tokens or 40)
        assert found == tuple(expected)
        assert batch["truncated"].flatten()[row] == cut
    assert len({len(found[0]) for found in rows_of(batch)}) > 3  # they are not all alike
    assert_close(policy.evaluate(batch.flatten(0, 1))["log_prob"].detach(), batch.flatten(0, 1)["log_prob"])


def test_without_an_answer_it_is_what_generate_writes() -> None:
    policy = model()
    once = policy.generate(PROMPTS, 4, 30, generator=generator(1, "draws"))
    talked = policy.converse(PROMPTS, lambda rows, texts: [None] * len(rows), 4, 30, generator=generator(1, "draws"))
    for key in ("observation", "action", "mask"):
        assert torch.equal(once[key], talked[key]), key
    assert_close(once["log_prob"], talked["log_prob"])  # blocks of the cache may be wider: other rounding
    assert (talked["turn_end"].sum(-1) == 1).all() and not talked["truncated"].any()  # whoever answers says it is over


@pytest.mark.slow
def test_a_row_does_not_depend_on_its_neighbors() -> None:
    policy, small = model(), model(rows=1)
    assert rows_of(talk(policy)) == rows_of(talk(small))


def test_what_is_read_stands_in_the_row_bit_by_bit_and_has_no_gradient() -> None:
    policy = model()
    batch = talk(policy).flatten(0, 1)
    for row, (ids, acted, _) in enumerate(rows_of(batch)):
        read = [token for token, own in zip(ids, acted, strict=True) if not own]
        turns = sum(1 for _ in range(int(batch["turn_end"][row].sum()) - 1))
        expected = [token for turn in range(turns) for token in TOKENIZER.encode([some(row, turn) or ""])[0]]
        assert read == expected
    # The derivative of Σ log π by each target's logit is 0 where the row read.
    hidden = policy.decoder(batch["observation"])
    logits = policy.decoder.logits(hidden).detach().requires_grad_()
    chosen = logits.log_softmax(-1).gather(-1, batch["action"][..., None])[..., 0]
    (chosen * batch["mask"]).sum().backward()
    assert logits.grad is not None
    assert not logits.grad[~batch["mask"]].any() and logits.grad[batch["mask"]].abs().sum(-1).all()


def test_other_words_in_a_reply_change_what_follows_and_no_target() -> None:
    """Autograd through `evaluate`: a gap's own tokens are never targets, so as targets they may be any."""
    policy = model(value_head=True)
    batch = talk(policy).flatten(0, 1)
    junk = batch.clone()
    junk["action"] = torch.where(batch["mask"], batch["action"], 7)

    def gradient(rows: TensorDict) -> Tensor:
        policy.zero_grad()
        policy.evaluate(rows)["log_prob"].sum().backward()
        return torch.cat([p.grad.flatten() for p in policy.decoder.parameters() if p.grad is not None])

    assert torch.equal(gradient(batch), gradient(junk))


@pytest.mark.slow
def test_an_end_token_ends_a_turn_and_is_not_put_there_twice() -> None:
    policy = model()
    end = TOKENIZER.decode([[TOKENIZER.eos_id]], special=True)[0]
    # A template's own end token, also behind a space as Llama 2's writes it, and the same letters as data.
    replies = [f"{end} Bob", f" \n{end} Bob", data(f"{end} Bob"), f"a{end} Bob"]
    for text, twice in zip(replies, [False, False, True, True], strict=True):
        batch = policy.converse(
            PROMPTS, answering(lambda row, turn, text=text: text), 8, 60, generator=generator(0, "x")
        )
        after = 0
        for ids, acted, ends in rows_of(batch):
            for at in [at for at, last in enumerate(ends[:-1]) if last and ids[at] == TOKENIZER.eos_id]:
                size = acted[at + 1 :].index(True)
                after += 1
                spelled = TOKENIZER.encode([text])[0]
                rest = spelled if twice else spelled[spelled.index(TOKENIZER.eos_id) + 1 :]
                assert ids[at + 1 : at + 1 + size] == rest
        assert after > 3


def test_a_stop_string_that_is_a_special_token_is_not_put_there_twice() -> None:
    """A base model's end token is another than the one that its template writes: env.stop names that."""
    tokenizer = templates.ours(templates.qwen(), templates.CHATML)
    tokenizer.eos_id = tokenizer.core.token_to_id("<|endoftext|>")
    tokenizer.stop_ids = (tokenizer.eos_id,)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=256)
    (prompt,) = policy.chat([[Turn("user", data("a"))]], {})
    (reply,) = policy.chat([[Turn("user", data("b"))]], {})
    between = joined(["<|im_end|>\n", reply])
    rows = policy.converse([prompt], lambda rows, _: [between] * len(rows), 64, 48, 24, stop=["<|im_end|>"])
    told = tokenizer.decode(rows["action"][0].tolist(), special=True)
    assert any("<|im_end|>\n<|im_start|>user\nb" in text for text in told)
    assert not any("<|im_end|><|im_end|>\n" in text for text in told)


def test_a_mark_before_an_end_token_is_not_put_there_twice() -> None:
    """As Command R7B's template writes <|END_RESPONSE|> before the token that ends a turn."""
    tokenizer = templates.ours(templates.qwen(), templates.CHATML)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=256)
    between, rest = "<|fim_prefix|><|im_end|>\n<|im_start|>", tokenizer.encode(["\n<|im_start|>"])[0]
    turns = tokenizer.encode(["5<|fim_prefix|><|im_end|>", "<|fim_prefix|><|im_end|>", "5<|im_end|>", "<|im_end|>"])
    found = policy._respond(lambda rows, _: [between] * len(rows), tokenizer.stop_ids, [*range(4)], turns)
    whole = tokenizer.encode([between])[0]
    assert found == [rest, rest, whole, whole]


@pytest.mark.slow
def test_a_row_ends_where_the_context_does_and_nothing_is_lost() -> None:
    policy = model()  # a context of 128 tokens
    long = "Ann has 12 apples and 3 pears. " * 3
    batch = talk(policy, lambda row, turn: long, max_tokens=60, turn_tokens=4)
    assert batch["truncated"].all()
    assert batch["action"].shape[-1] + 1 <= 128
    spent = batch["mask"].sum(-1)
    assert (spent % 4 <= 4).all() and (spent < 60).any()
    endless = talk(policy, lambda row, turn: "a" * 10**6, turn_tokens=4)  # no room for it: the row ends with its turn
    assert endless["truncated"].all() and (endless["turn_end"].sum(-1) == 1).all()


def test_a_prompt_that_leaves_no_room_is_refused() -> None:
    with pytest.raises(UserError, match=r"a prompt of \d+ tokens and 127 more exceed the model's context of 128"):
        talk(model(), max_tokens=127)


def test_greedy_rows_need_no_draws_and_forbidden_tokens_hold_for_the_first() -> None:
    policy = model()
    one, two = (rows_of(talk(policy, greedy=True, generator=None)) for _ in range(2))
    assert one == two
    letters = [chr(code) for code in range(32, 127)]
    other = talk(policy, greedy=True, generator=None, forbid_first=letters)
    forbidden = {row[0] for row in TOKENIZER.encode(letters)}
    assert any(ids[0] in forbidden for ids, _, _ in one)
    assert not any(ids[0] in forbidden for ids, _, _ in rows_of(other))


def test_the_transcript_holds_what_all_sides_said() -> None:
    policy = model()
    batch = talk(policy)
    for text, (ids, _, _) in zip(policy.transcript(batch), rows_of(batch), strict=True):
        assert text == TOKENIZER.decode([ids])[0]


@pytest.mark.parametrize("kind", ["first", "always", "legacy"])
def test_a_reply_gets_no_space_where_sentencepiece_puts_one_before_a_text(kind: str) -> None:
    tokenizer = sentence_piece(kind)
    replies = {"24>>": ["2", "4", ">>"], " 24": ["▁24"], "": [], data("</s>2"): [*"</s>2"], "</s>=": ["</s>", "="]}
    if kind != "first":  # these put it after a special token as well
        replies["</s>="] = ["</s>", "▁", "="]
    found = tokenizer.encode_after(list(replies))
    assert [[tokenizer.core.id_to_token(i) for i in row] for row in found] == list(replies.values())
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64)
    batch = policy.converse(["48/2="], answering(lambda *_: "24>>"), max_tokens=2, turn_tokens=1)
    ((ids, acted, _),) = rows_of(batch)
    assert acted == [True, False, False, False, True] and ids[1:-1] == found[0]
