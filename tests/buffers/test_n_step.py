"""n-step returns and the window that waits for them: by hand, by plain loops, at their limits, over many rollouts."""

import pytest
import torch
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import buffers, returns


def episodes(rows: int = 5, time: int = 13) -> tuple[Tensor, Tensor]:
    """Random rewards, and episodes that end anywhere."""
    draw = torch.Generator().manual_seed(0)
    reward = torch.randn(rows, time, generator=draw, dtype=torch.float64)
    return reward, torch.rand(rows, time, generator=draw) < 0.25


def looped(reward: Tensor, done: Tensor, gamma: float, n: int) -> tuple[Tensor, Tensor, Tensor]:
    """One number at a time, as the equation reads."""
    total, last, discount = torch.zeros_like(reward), torch.zeros_like(done, dtype=torch.long), torch.ones_like(reward)
    rows, time = reward.shape
    for b in range(rows):
        for t in range(time):
            for k in range(n):
                total[b, t] += gamma**k * reward[b, t + k]
                last[b, t], discount[b, t] = t + k, gamma ** (k + 1)
                if done[b, t + k] or t + k + 1 == time:
                    break
    return total, last, discount


def test_three_steps_with_an_end_in_the_middle_by_hand() -> None:
    reward = torch.tensor([[1.0, 2.0, 4.0, 8.0, 16.0]])
    done = torch.tensor([[False, True, False, False, False]])
    total, last, discount = returns.n_step(reward, done, 0.5, 3)
    # 1 + 2/2 | 2 | 4 + 8/2 + 16/4 | 8 + 16/2 | 16: the second ends its episode, the last two the window
    assert_close(total, torch.tensor([[2.0, 2.0, 12.0, 16.0, 16.0]]))
    assert last.tolist() == [[1, 1, 4, 4, 4]]
    assert_close(discount, torch.tensor([[0.25, 0.5, 0.125, 0.25, 0.5]]))


def test_one_step_is_the_reward_itself() -> None:
    reward, done = episodes()
    total, last, discount = returns.n_step(reward, done, 0.9, 1)
    assert torch.equal(total, reward) and torch.equal(discount, torch.full_like(reward, 0.9))
    assert torch.equal(last, torch.arange(13).expand(5, 13))


@pytest.mark.parametrize("n", [13, 1000])
def test_more_steps_than_the_window_has_are_the_reward_to_go(n: int) -> None:
    reward, done = episodes()
    total, last, _ = returns.n_step(reward, done, 0.9, n)
    assert_close(total, returns.reward_to_go(reward, done, 0.9))
    assert bool((done.gather(1, last) | (last == 12)).all())


@pytest.mark.parametrize("n", [2, 3, 5, 12])
def test_n_steps_equal_a_plain_loop_in_value_and_gradient(n: int) -> None:
    reward, done = episodes()
    reward.requires_grad_()
    ours = returns.n_step(reward, done, 0.9, n)
    theirs = looped(reward, done, 0.9, n)
    for x, y in zip(ours, theirs, strict=True):
        assert_close(x, y)
    weight = torch.linspace(-1, 2, reward.numel(), dtype=reward.dtype).view_as(reward)
    gradients = [torch.autograd.grad((total * weight).sum(), reward)[0] for total in (ours[0], theirs[0])]
    assert_close(*gradients)


def test_leading_dimensions_are_all_alike() -> None:
    reward, done = episodes(6)
    flat = returns.n_step(reward, done, 0.9, 3)
    for x, y in zip(returns.n_step(reward.view(2, 3, 13), done.view(2, 3, 13), 0.9, 3), flat, strict=True):
        assert torch.equal(x, y.view(2, 3, 13))


# The window


def stream(sizes: list[int], rows: int = 2) -> list[TensorDict]:
    """Rollouts of these lengths from one stream whose steps are numbered; `score` is a key of whole rows."""
    parts, start = [], 0
    for size in sizes:
        step = torch.arange(start, start + size) + 1000 * torch.arange(rows)[:, None]
        data = {"id": step, "mask": torch.ones_like(step, dtype=torch.bool), "score": torch.full((rows,), float(start))}
        parts.append(TensorDict(data, batch_size=[rows]))
        start += size
    return parts


@pytest.mark.parametrize("n", [0, 1, 2, 3, 7])
@pytest.mark.parametrize("sizes", [[1] * 12, [3] * 4, [2, 5, 1, 4], [12]])
def test_every_column_is_learned_once_in_order_with_its_successors_in_sight(n: int, sizes: list[int]) -> None:
    window, learned = buffers.Window(n), []
    for rollout in stream(sizes):
        joined = window.join(rollout)
        width = joined["id"].shape[1]
        assert torch.equal(joined["id"], torch.arange(width) + joined["id"][:, :1])  # without a gap
        assert joined["id"][0, -1] == rollout["id"][0, -1] and torch.equal(joined["score"], rollout["score"])
        ready = window.ready(joined)
        assert ready["id"].shape[1] == max(0, width - n)
        learned.append(ready["id"])
    assert torch.cat(learned, 1)[0].tolist() == list(range(12 - n))
    assert torch.cat(learned, 1)[1].tolist() == list(range(1000, 1012 - n))


def test_what_was_added_since_is_cut_with_the_rest() -> None:
    window = buffers.Window(1)
    (rollout,) = stream([4])
    joined = window.join(rollout)
    joined["target"] = joined["id"] + 0.5
    assert window.ready(joined)["target"].tolist() == [[0.5, 1.5, 2.5], [1000.5, 1001.5, 1002.5]]


def test_the_window_keeps_a_copy_that_later_writing_does_not_reach() -> None:
    window = buffers.Window(1)
    first, second = stream([2, 2])
    window.join(first)
    first["id"].zero_()
    assert window.join(second)["id"].tolist() == [[1, 2, 3], [1001, 1002, 1003]]


def test_the_window_resumes_exactly() -> None:
    one, other = buffers.Window(3), buffers.Window(3)
    first, second, third = stream([2, 2, 2])
    one.join(first), one.join(second)
    other.load_state_dict({"waiting": {key: x.clone() for key, x in one.state_dict()["waiting"].items()}})
    assert torch.equal(one.join(third)["id"], other.join(third)["id"])
