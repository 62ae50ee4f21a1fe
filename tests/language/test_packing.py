"""Learning reads each prompt once and no padding: the values and gradients of the plain forward."""

import pytest
import torch
from support.small_model import TOKENIZER, model
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import buffers
from rlkit.language.model import LanguageModel
from rlkit.language.packing import pack
from rlkit.language.reward_model import RewardModel
from rlkit.seeding import generator

SHAPES = {
    "plain": {"tied": False},
    "tied": {"tied": True},
    "grouped queries": {"kv_heads": 1},
    "biases": {"kind": "qwen2", "kv_heads": 2},
    "normed queries": {"kind": "qwen3", "kv_heads": 1},
}
# Prompt lengths, completion lengths of each row's group, and the columns of padding
GROUPS = {
    "groups": ([3, 7, 1], [[4, 1, 9], [2, 2, 6], [5, 1, 1]], 0),
    "padded": ([2, 5], [[3, 8], [1, 4]], 6),
    "groups of one": ([4, 1, 6], [[5], [3], [1]], 0),
    "one row": ([3], [[4]], 2),
    "one token": ([1], [[1]], 0),
    "one group": ([5], [[1, 1, 1, 7]], 0),
    "nothing of their own": ([5, 2], [[1, 1], [1, 1]], 0),
    "uneven groups": ([5, 3], [[2, 3, 4], [6]], 0),
    "nobody acted in a row": ([4, 4], [[3, 0, 2], [0, 0, 5]], 0),
    "nobody acted": ([4, 2], [[0, 0], [0]], 1),
}


def texts(case: str, alike: bool = False) -> TensorDict:
    """Rows of random tokens in the layout of `generate`, shuffled; rows of a group begin with the same prompt."""
    prompts, lengths, padding = GROUPS[case]
    draw = generator(0, case)
    sizes = [size for size, group in zip(prompts, lengths, strict=True) for _ in group]
    written = [length for group in lengths for length in group]
    group = torch.tensor([i for i, rows in enumerate(lengths) for _ in rows])
    width = max(a + b for a, b in zip(sizes, written, strict=True)) + padding
    text = torch.randint(0, len(TOKENIZER), (len(sizes), width), generator=draw)
    start, length = torch.tensor(sizes)[:, None], torch.tensor(written)[:, None]
    begin = torch.randint(0, len(TOKENIZER), (len(prompts), width), generator=draw)[group]
    column = torch.arange(width)
    text = torch.where(column < start, begin, text[:1] if alike else text)
    mask = (column >= start - 1) & (column < start + length - 1)
    data = {"observation": text[:, :-1], "action": text[:, 1:], "mask": mask[:, :-1]}
    order = torch.randperm(len(text), generator=draw)
    return TensorDict(data, batch_size=len(text))[order]


def plain(policy: LanguageModel, batch: TensorDict) -> dict[str, torch.Tensor]:
    """What `evaluate` says, from the decoder's padded forward."""
    hidden = policy.decoder(batch["observation"])
    log_policy = (policy.decoder.logits(hidden) / policy.temperature).log_softmax(-1)
    out = {
        "log_prob": log_policy.gather(-1, batch["action"][..., None])[..., 0],
        "entropy": -(log_policy.exp() * log_policy).sum(-1),
        "value": policy.value_head(hidden)[..., 0],
    }
    return {key: x * batch["mask"] for key, x in out.items()}


def gradients(policy: torch.nn.Module, out: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    policy.zero_grad()
    draw = generator(0, "weights")
    sum((x * torch.randn(x.shape, generator=draw)).sum() / 10 for x in out.values()).backward()
    return {name: p.grad for name, p in policy.named_parameters() if p.grad is not None}


def network(kind: str = "tied") -> LanguageModel:
    out = model(spread=3.0, temperature=0.7, value_head=True, **SHAPES[kind])
    with torch.no_grad():
        for name, parameter in out.named_parameters():
            if parameter.dim() == 1 or "value_head" in name:
                parameter += 0.3 * torch.randn(parameter.shape, generator=generator(0, name))
    return out


def check(kind: str, batch: TensorDict) -> None:
    policy = network(kind)
    expected = plain(policy, batch)
    slopes = gradients(policy, expected)
    found = policy.evaluate(batch)
    assert_close(found, expected)
    if batch["mask"].any():
        assert_close(gradients(policy, found), slopes)


@pytest.mark.parametrize("kind", SHAPES)
def test_every_shape_of_model_gives_the_plain_values_and_gradients(kind: str) -> None:
    check(kind, texts("groups"))


@pytest.mark.parametrize("case", GROUPS)
def test_every_shape_of_batch_gives_the_plain_values_and_gradients(case: str) -> None:
    check("normed queries", texts(case))


def test_rows_that_are_all_equal_are_read_once_up_to_their_first_token() -> None:
    check("tied", texts("groups", alike=True))
    check("tied", texts("one row")[[0, 0, 0]])


def test_many_rows_take_several_tables() -> None:
    GROUPS["many"] = ([3, 6, 2] * 15, [[1, 5], [2], [7, 3]] * 15, 1)
    batch = texts("many")
    first, label = buffers.beginnings(batch["observation"], batch["mask"])
    packing = pack(batch["observation"], first + 1, buffers.last_step(batch["mask"]), label)
    assert len(packing.tables) == 4 and packing.tokens.numel() == 15 * (3 + 4 + 7 + 2 + 6 + 2)
    check("grouped queries", batch)


def test_a_packing_worked_by_hand() -> None:
    """Two rows share [7 8], one stands alone; the padding is 0."""
    text = torch.tensor([[7, 8, 1, 2, 0], [5, 6, 4, 0, 0], [7, 8, 3, 0, 0]])
    found = pack(text, torch.tensor([2, 1, 2]), torch.tensor([4, 3, 3]), torch.tensor([1, 0, 1]))
    assert found.tokens.tolist() == [[5, 7, 8, 1, 2, 6, 4, 3]]
    assert found.positions.tolist() == [[0, 0, 1, 2, 3, 1, 2, 2]]
    assert found.place.tolist() == [[1, 2, 3, 4], [0, 5, 6, 0], [1, 2, 7, 0]]  # 0 where nothing stands
    begun, ended = found.tables
    assert begun.own[begun.looks].tolist() == [0, 1, 2] and begun.bias is None
    assert ended.own[ended.looks].tolist() == [7, 3, 4, 5, 6]  # the shortest first
    assert ended.row.shape == (3, 16) and ended.row[:, :4].tolist() == [[1, 2, 7, 0], [1, 2, 3, 4], [0, 5, 6, 0]]
    assert ended.bias[1, 0, :, :4].tolist() == [[0, 0, 0, -torch.inf], [0, 0, 0, 0]]
    assert torch.cat([begun.own.flatten(), ended.own.flatten()])[found.back].tolist() == list(range(8))


def test_texts_that_differ_before_they_are_acted_on_share_nothing() -> None:
    text = torch.tensor([[7, 8, 1], [7, 9, 1], [7, 8, 2], [7, 8, 1]])
    mask = torch.tensor([[0, 1, 1], [0, 1, 1], [0, 1, 1], [1, 1, 1]], dtype=torch.bool)
    first, label = buffers.beginnings(text, mask)
    assert first.tolist() == [1, 1, 1, 0]
    assert label[0] == label[2] and len(set(label.tolist())) == 3


def test_the_summed_gradient_is_the_same_for_every_cut() -> None:
    policy, batch = network("grouped queries"), texts("groups")
    batch["weight"] = torch.randn(batch["mask"].shape, generator=generator(0, "weight")) / 10

    def gradient(steps: int | None, checkpointing: bool = False) -> dict[str, torch.Tensor]:
        policy.zero_grad()
        policy.decoder.checkpointing = checkpointing
        for part in buffers.split(batch, steps):
            out = policy.evaluate(part)
            ((out["log_prob"] + out["entropy"] + out["value"]) * part["weight"]).sum().backward()
        return {name: p.grad for name, p in policy.named_parameters()}

    whole = gradient(None)
    for steps in (1, 10, 20, 1000):
        assert_close(gradient(steps), whole)
    assert_close(gradient(20, checkpointing=True), whole)


def test_gradient_checkpointing_keeps_less_and_changes_no_bit() -> None:
    policy, batch = network("normed queries"), texts("groups")
    kept, slopes = [], []
    for policy.decoder.checkpointing in (False, True):
        sizes = []
        with torch.autograd.graph.saved_tensors_hooks(lambda x, sizes=sizes: sizes.append(x.numel()) or x, lambda x: x):
            out = policy.evaluate(batch)
        kept.append(sum(sizes))
        slopes.append(gradients(policy, out))
    assert kept[1] < kept[0] / 2
    assert all(torch.equal(slopes[0][name], slopes[1][name]) for name in slopes[0])


@pytest.mark.parametrize("case", ["groups", "padded", "one row", "nobody acted in a row"])
def test_a_reward_model_reads_the_last_token_of_each_text(case: str) -> None:
    judge, batch = RewardModel(network()), texts(case)
    with torch.no_grad():
        judge.value_head.weight.normal_(generator=generator(0, "head"))
    text = torch.cat([batch["observation"][:, :1], batch["action"]], 1)
    last = buffers.last_step(batch["mask"])
    expected = judge.value_head(judge.decoder(text)[torch.arange(len(text)), last])[:, 0]
    slopes = gradients(judge, {"r": expected})
    found = judge.score(batch)
    assert_close(found, expected)
    assert_close(gradients(judge, {"r": found}), slopes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_is_read_by_the_same_arithmetic_whoever_is_with_it(dtype: torch.dtype) -> None:
    """In bfloat16 another order of sums would move log-probabilities by more than GSPO's clip width."""
    GROUPS["long"] = ([24, 9, 17], [[5, 31, 12], [27, 2, 38], [11, 22, 7]], 0)
    policy, batch = network("grouped queries"), texts("long")
    policy.decoder.dtype = dtype
    whole = policy.evaluate(batch)["log_prob"]
    for rows in ([0, 1, 2, 3], [5, 7], [8, 6, 4], [4, 3, 0, 8, 1]):
        found = policy.evaluate(batch[rows])["log_prob"]
        assert_close(found, whole[rows], rtol=0, atol=1e-5)


def test_bfloat16_rounds_as_the_plain_forward_does() -> None:
    policy, batch = network("grouped queries"), texts("groups")
    exact = plain(policy, batch)["log_prob"]
    policy.decoder.dtype = torch.bfloat16
    rounded = (policy.evaluate(batch)["log_prob"] - exact).norm()
    hidden = policy.decoder(batch["observation"])
    log_policy = (policy.decoder.logits(hidden) / policy.temperature).log_softmax(-1)
    theirs = log_policy.gather(-1, batch["action"][..., None])[..., 0] * batch["mask"]
    assert 0 < rounded < 1.5 * (theirs - exact).norm()
