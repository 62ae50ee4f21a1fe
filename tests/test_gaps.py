"""Rows in which the policy pauses: credit flows over its own steps as if the row held nothing else."""

from collections.abc import Callable

import pytest
import torch
from support.fakes import RaggedText, on_text
from tensordict import TensorDict
from test_returns import episodes, gradients, looped_gae, table
from torch import Tensor
from torch.testing import assert_close

from rlkit import gaps, returns
from rlkit.language.model import LanguageModel

# Two turns of two steps, three words of somebody else between them, a prompt before and padding after.
MASK = torch.tensor([[False, True, True, False, False, False, True, True, False]])
DONE = torch.zeros_like(MASK).index_fill(-1, torch.tensor([7]), True)


def spread(x: Tensor, mask: Tensor, junk: float) -> Tensor:
    """The numbers of x [B, T] at the acted steps of mask [B, T'], in their order, and junk elsewhere."""
    return torch.full(mask.shape, junk, dtype=x.dtype).masked_scatter(mask, x)


def with_gaps(batch: dict[str, Tensor], seed: int = 0) -> tuple[dict[str, Tensor], Tensor]:
    """The same steps with up to three steps of nobody before, between and after them."""
    rows, time = batch["reward"].shape
    mask = torch.zeros(rows, 4 * time + 4, dtype=torch.bool)
    before = torch.randint(0, 4, (rows, time), generator=torch.Generator().manual_seed(seed))
    mask[torch.arange(rows)[:, None], (before + 1).cumsum(-1)] = True
    junk = {"reward": 0.0, "value": 7.7, "next_value": -5.5, "terminated": 0.0, "done": 0.0}
    wide = {key: spread(x.detach(), mask, junk[key]) for key, x in batch.items()}
    return wide, mask


def test_gae_over_two_turns_by_hand() -> None:
    reward, value = DONE.float(), table([0.0, 0.25, 0.5, 0.0, 0.0, 0.0, 0.5, 0.75, 0.0])
    after = gaps.following(value, MASK)
    assert after[MASK].tolist() == [0.5, 0.5, 0.75, 0.0]
    advantage, target = returns.gae(reward, value, after, DONE, DONE, 1.0, 0.5, MASK)
    # δ = 0.25, 0, 0.25, 0.25;  A = 0.25 + 0.1875/2, 0.375/2, 0.25 + 0.25/2, 0.25
    assert advantage[MASK].tolist() == [0.34375, 0.1875, 0.375, 0.25]
    assert_close(target[MASK], (advantage + value)[MASK])
    assert not advantage[~MASK].any() and not target[~MASK].any()


def test_the_length_of_a_gap_is_no_delay() -> None:
    reward = DONE.float()
    assert returns.reward_to_go(reward, DONE, 0.5, MASK)[MASK].tolist() == [0.125, 0.25, 0.5, 1.0]
    assert returns.total_return(reward, MASK, 0.5)[0, 0].item() == 0.125
    total, last, discount = returns.n_step(reward, DONE, 0.5, 3, MASK)
    assert total[MASK].tolist() == [0.0, 0.25, 0.5, 1.0] and last[MASK].tolist() == [6, 7, 7, 7]
    assert discount[MASK].tolist() == [0.125, 0.125, 0.25, 0.5]


@pytest.mark.parametrize("kind", [torch.bool, torch.int64, torch.float16])
def test_the_discount_counts_steps_whatever_rewards_are(kind: torch.dtype) -> None:
    found = returns.n_step(torch.ones(1, 4, dtype=kind), torch.zeros(1, 4, dtype=torch.bool), 0.5, 3)[2]
    assert found.tolist() == [[0.125, 0.125, 0.25, 0.5]]


def test_what_a_gap_earns_belongs_to_the_step_before_it() -> None:
    reward = table([9.0, 1.0, 0.0, 0.0, 2.0, 4.0, 0.0, 8.0, 9.0])  # before the first step and after the end: nobody's
    folded = table([0.0, 1.0, 6.0, 0.0, 0.0, 0.0, 0.0, 8.0, 0.0])
    value, after = torch.rand(2, 1, 9, generator=torch.Generator().manual_seed(0))
    for given in (reward, folded):
        assert returns.reward_to_go(given, DONE, 0.5, MASK)[MASK].tolist() == [5.0, 8.0, 4.0, 8.0]
        assert returns.total_return(given, MASK, 0.5)[0, 0].item() == 5.0
        assert returns.n_step(given, DONE, 0.5, 2, MASK)[0][MASK].tolist() == [4.0, 6.0, 4.0, 8.0]
    both = [returns.gae(given, value, after, DONE, DONE, 0.9, 0.8, MASK) for given in (reward, folded)]
    assert_close(both[0], both[1], rtol=0, atol=0)


def test_an_episode_that_ends_in_a_gap_ends_with_the_step_before_it() -> None:
    mask = torch.tensor([[True, True, False, False, True, True]])
    ends = torch.tensor([[False, False, True, False, False, False]])
    reward, value = table([0.0, 0.0, 1.0, 5.0, 2.0, 4.0]), table([0.5] * 6)  # 5: after the end, before the next start
    assert returns.reward_to_go(reward, ends, 0.5, mask)[mask].tolist() == [0.5, 1.0, 4.0, 4.0]
    no = torch.zeros_like(ends)
    for terminated, after_end in ((ends, 0.5), (no, 1.0)):
        advantage, _ = returns.gae(reward, value, value, terminated, ends, 1.0, 0.0, mask)
        assert advantage[mask].tolist() == [0.0, after_end, 2.0, 4.0]
    total, last, _ = returns.n_step(reward, ends, 0.5, 5, mask)
    assert total[mask].tolist() == [0.5, 1.0, 4.0, 4.0] and last[mask].tolist() == [1, 1, 5, 5]


def test_what_is_earned_after_the_last_acted_step_counts_in_every_return() -> None:
    reward, mask = table([0.0, 1.0, 5.0, 9.0]), torch.tensor([[True, True, False, False]])
    ends = torch.tensor([[False, False, True, False]])  # 9 comes after the end
    assert returns.reward_to_go(reward, ends, 0.5, mask).tolist() == [[3.0, 6.0, 0.0, 0.0]]
    assert returns.total_return(reward, mask, 0.5, ends).tolist() == [[3.0] * 4]
    assert returns.total_return(reward, mask, 0.5).tolist() == [[0.5] * 4]  # the end is not said


def test_reinforce_with_a_total_return_learns_from_what_is_earned_at_the_end() -> None:
    algo = on_text("reinforce", RaggedText(), returns="total", gamma=1.0, baseline="none")
    mask, ends = torch.tensor([[True, True, False]]), torch.tensor([[False, False, True]])
    rollout = TensorDict({"reward": torch.tensor([[0.0, 1.0, 5.0]]), "mask": mask, "done": ends}, batch_size=[1])
    assert algo.credit(rollout)["advantage"].tolist() == [[6.0, 6.0, 0.0]]


CREDIT: dict[str, Callable[..., tuple[Tensor, ...]]] = {
    "gae": lambda b, mask: returns.gae(**b, gamma=0.9, lam=0.8, mask=mask),
    "td": lambda b, mask: returns.gae(**b, gamma=0.9, lam=0.0, mask=mask),
    "mc": lambda b, mask: returns.gae(**b, gamma=0.9, lam=1.0, mask=mask),
    "to_go": lambda b, mask: (returns.reward_to_go(b["reward"], b["done"], 0.9, mask),),
    "n_step": lambda b, mask: returns.n_step(b["reward"], b["done"], 0.9, 3, mask)[::2],
    "total": lambda b, mask: (returns.total_return(b["reward"], mask | (mask.cumsum(-1) < 0), 0.9),),
}


@pytest.mark.parametrize("name", list(CREDIT))
def test_gaps_change_nothing_at_the_steps_that_are_acted_in_value_and_gradient(name: str) -> None:
    batch = episodes(rows=6, seed=4)
    wide, mask = with_gaps(batch)
    keys = ["reward"] if name in ("to_go", "n_step", "total") else ["reward", "value", "next_value"]
    inputs, wide_inputs = ([x[key].requires_grad_() for key in keys] for x in (batch, wide))
    close, far = CREDIT[name](batch, torch.ones_like(batch["done"])), CREDIT[name](wide, mask)
    for x, y in zip(close, far, strict=True):
        assert_close(y[mask].view_as(x), x)
        if x.requires_grad:
            weight = torch.linspace(-1, 2, x.numel(), dtype=x.dtype)
            through = torch.autograd.grad((y[mask] * weight).sum(), wide_inputs, retain_graph=True)
            for ours, theirs in zip(through, gradients(x, inputs), strict=True):
                assert_close(ours[mask].view_as(theirs), theirs)


@pytest.mark.parametrize("lam", [0.0, 0.9375, 1.0])
def test_gae_over_gaps_equals_torchrl_on_the_rows_without_them(lam: float) -> None:
    functional = pytest.importorskip("torchrl.objectives.value.functional")
    batch = episodes(rows=4, time=21, seed=5)
    wide, mask = with_gaps(batch, seed=1)
    last = {key: x.unsqueeze(-1) for key, x in batch.items()}
    theirs = functional.generalized_advantage_estimate(
        0.96875, lam, last["value"], last["next_value"], last["reward"], last["done"], last["terminated"]
    )
    ours = returns.gae(**wide, gamma=0.96875, lam=lam, mask=mask)
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x[mask].view_as(y), y)


def test_gae_over_gaps_equals_a_plain_loop_over_the_acted_steps() -> None:
    batch = episodes(rows=3, seed=6)
    wide, mask = with_gaps(batch, seed=2)
    assert_close(returns.gae(**wide, gamma=0.9, lam=0.7, mask=mask)[0][mask], looped_gae(batch, 0.9, 0.7).flatten())


@pytest.mark.parametrize("shape", [(13,), (5, 13), (2, 3, 13)])
def test_rows_without_gaps_are_left_as_they_are_to_the_last_bit(shape: tuple[int, ...]) -> None:
    draw = torch.Generator().manual_seed(7)
    reward, value, after = torch.randn(3, *shape, generator=draw)
    time = torch.arange(13)
    padded = (time > 1) & (time < 9) & torch.ones(shape, dtype=torch.bool)  # a prompt before, padding after
    ends = padded & (time == 8)
    stream = torch.rand(shape, generator=draw) < 0.3  # in a stream, the step after an end only resets
    resets = torch.cat([torch.zeros_like(stream[..., :1]), stream[..., :-1]], -1)
    for mask, done in ((padded, ends), (~resets, stream & ~resets), (torch.ones_like(stream), stream)):
        assert not gaps.gapped(mask, done)
        for x, y in zip(
            returns.gae(reward, value, after, done, done, 0.9, 0.8, mask),
            returns.gae(reward, value, after, done, done, 0.9, 0.8),
            strict=True,
        ):
            assert torch.equal(x, y)
        assert torch.equal(returns.reward_to_go(reward, done, 0.9, mask), returns.reward_to_go(reward, done, 0.9))
        for x, y in zip(returns.n_step(reward, done, 0.9, 3, mask), returns.n_step(reward, done, 0.9, 3), strict=True):
            assert torch.equal(x, y)


def test_the_next_value_is_that_of_the_next_acted_step() -> None:
    value = table([1.0, 2.0, 3.0, 4.0, 5.0])
    mask = torch.tensor([[True, False, False, True, True]])
    assert gaps.following(value, mask).tolist() == [[4.0, 4.0, 4.0, 5.0, 0.0]]
    whole = torch.ones_like(mask)
    assert gaps.following(value, whole).tolist() == [[2.0, 3.0, 4.0, 5.0, 0.0]]


def test_a_row_in_which_nobody_acted_gets_nothing() -> None:
    mask = torch.tensor([[False] * 5, [True, False, True, False, False]])
    x, no = torch.ones(2, 5), torch.zeros(2, 5, dtype=torch.bool)
    advantage, _ = returns.gae(x, x, x, no, no, 1.0, 1.0, mask)
    assert not advantage[0].any() and not returns.reward_to_go(x, no, 1.0, mask)[0].any()


MEMBERS: list[tuple[str, dict[str, object]]] = [
    ("ppo", {"gae_lambda": 0.8}),
    ("a2c", {"advantage": "gae"}),
    ("reinforce", {"baseline": "none"}),
    ("reinforce", {"returns": "total", "normalize_advantage": False}),
    ("reinforce_pp", {"gamma": 0.9}),
]


@pytest.mark.parametrize(("name", "config"), MEMBERS, ids=lambda x: x if isinstance(x, str) else "")
def test_an_algorithm_gives_the_acted_steps_the_same_credit_with_and_without_gaps(
    name: str, config: dict[str, object]
) -> None:
    batch = episodes(rows=4, seed=8)
    batch["done"] = batch["terminated"] = torch.zeros_like(batch["done"]).index_fill(-1, torch.tensor([12]), True)
    wide, mask = with_gaps(batch)
    given = {False: batch | {"mask": torch.ones_like(batch["done"])}, True: wide | {"mask": mask}}
    found = {}
    for gaps_in_it, data in given.items():
        algo = on_text(name, RaggedText(), **config)
        rollout = TensorDict({key: x.detach().unsqueeze(1) for key, x in data.items()}, batch_size=[4, 1])
        rollout = rollout if name == "reinforce_pp" else rollout.squeeze(1)
        credited = algo.credit(rollout)
        found[gaps_in_it] = credited["advantage"].view(4, -1)[data["mask"]]
    assert_close(found[True], found[False])


def test_a_language_model_tells_the_value_of_its_next_token_over_a_gap() -> None:
    model = LanguageModel.load("tiny", value_head=True)
    torch.nn.init.normal_(model.value_head.weight, generator=torch.Generator().manual_seed(0))
    batch = model.encode(["2 + 3?"], ["2 + 3 = 5"])
    batch["mask"][0, batch["mask"].int().argmax() + 1] = False
    recorded, mask = model.record(batch), batch["mask"]
    own, after = recorded["value"][mask], recorded["next_value"][mask]
    assert len(own) > 3 and (own != 0).all() and torch.equal(after, torch.cat([own[1:], torch.zeros(1)]))
