"""Each frame is kept once: minibatches are those of a replay that keeps all, to the bit, in the memory of frames."""

from collections.abc import Iterator
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete
from gymnasium.wrappers import FrameStackObservation
from rlkit.algorithms._replay import OffPolicy
from support.fakes import algorithm, iterate
from support.resuming import same
from support.rollouts import IMAGE, Source, credits
from support.screens import Screen
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, memory, policies
from rlkit.api import UserError
from rlkit.buffers import frames as module
from rlkit.control import ControlEnv
from rlkit.recording import structure


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 4)
    monkeypatch.setattr(module, "PART", 4)


def both(kind: str, capacity: int, prioritized: bool, reach: int) -> tuple[buffers.Replay, buffers.Replay]:
    """A replay that keeps every observation, and one that keeps every frame."""
    found = []
    for frames in (None, buffers.frames_of(IMAGE[kind], capacity, reach)):
        sizes = (7, capacity, 6, 2, 1)
        found.append(buffers.Prioritized(*sizes, 0.6, 0.4, frames) if prioritized else buffers.Replay(*sizes, frames))
    return found[0], found[1]


def batches(memory: buffers.Replay) -> Iterator[dict[str, Tensor]]:
    for batch in memory:
        yield dict(batch.items())
        if isinstance(memory, buffers.Prioritized):
            memory.update(batch["index"], batch["reward"])


def holders(frames: buffers.Frames, memory: buffers.Replay) -> np.ndarray[Any, Any]:
    """How many steps, and recent frames, hold each frame: counted anew."""
    keys = ("observation", "next_observation") if memory.seen else ()  # no columns before the first step
    held = [memory.store[key][memory.places(memory.seen)].flatten() for key in keys]
    recent = torch.tensor([number for number, _ in frames.recent.values()], dtype=torch.int32)
    return torch.cat([*held, recent]).long().bincount(minlength=len(frames.holders)).numpy()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", IMAGE)
def test_minibatches_are_those_of_a_replay_that_keeps_all(kind: str, seed: int) -> None:
    draw = np.random.default_rng([seed, 1])
    rows, n, capacity = int(draw.integers(1, 4)), int(draw.integers(1, 5)), int(draw.integers(9, 40))
    source, credit = Source(kind, rows, seed), credits(n)
    plain, lean = both(kind, capacity, bool(seed % 2), int(draw.integers(1, 4)))
    for iteration in range(25):
        rollout = OffPolicy.credit(credit, source.rollout(int(draw.choice([1, 2, 3, 7, 30]))))
        plain.extend(rollout)
        lean.extend(rollout)
        assert same(list(batches(plain)), list(batches(lean))), iteration
        frames = lean.frames
        assert frames is not None and np.array_equal(frames.holders, holders(frames, lean))
        nobody = np.flatnonzero(frames.holders[: frames.used] == 0)
        assert sorted(frames.free) == nobody.tolist()  # each of them once, and no other
        if iteration % 8 == 7:  # as after a kill
            again = both(kind, capacity, bool(seed % 2), frames.reach)[1]
            again.load_state_dict(structure.decode(structure.encode(lean.state_dict(), "", kept := {}), kept))  # type: ignore[arg-type]
            assert same(again.state_dict(), lean.state_dict())
            lean = again
    assert plain.seen > 2 * capacity


def images(steps: int, side: int = 84, stack: int = 4) -> Iterator[TensorDict]:
    """One row of episodes of 200 steps; frames are numbered."""
    for first in range(0, steps, 100):
        number = torch.arange(first, first + 101)[:, None] - torch.arange(stack).flip(0)
        number = torch.maximum(number, number[:, -1:] // 200 * 200) % 2**16
        seen = torch.stack([number % 256, number // 256], -1).to(torch.uint8)  # [steps, stack, 2]
        flat = seen.repeat(1, 1, side * side // 2).flatten(1)
        data = {"observation": flat[:-1], "next_observation": flat[1:], "reward": torch.zeros(100)}
        data |= {key: torch.ones(100, dtype=torch.bool) for key in ("mask", "done", "terminated")}
        yield TensorDict({key: x[None] for key, x in data.items()}, batch_size=[1])


@pytest.mark.slow
def test_a_step_of_four_stacked_images_takes_the_memory_of_one() -> None:
    space, capacity = Box(0, 255, (4, 84, 84), np.uint8), 2_000
    memory = buffers.Replay(0, capacity, 4, 1, 1, buffers.frames_of(space, capacity, 2))
    for rollout in images(2 * capacity + 500):
        memory.extend(rollout)
    assert memory.frames is not None
    tensors = [*memory.store.values(), *memory.frames.blocks]
    kept = sum(x.untyped_storage().nbytes() for x in tensors) + memory.frames.holders.nbytes
    assert kept / capacity <= 1.1 * 84 * 84 + 100
    assert next(iter(memory))["observation"].shape == (4, 4 * 84 * 84)


def test_what_counts_as_large_and_how_it_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()

    def cut(*shape: int, dtype: Any = np.uint8) -> tuple[int, bool] | None:
        found = module.layout(Box(0, 255, shape, dtype))
        return None if found is None else (found.count, found.last)

    small = [cut(376, dtype=np.float32), cut(7, 7, 20), cut(10, 10, 10), module.layout(Discrete(9))]
    assert small == [None] * 4
    assert cut(4, 84, 84) == (4, False) and cut(84, 84, 4) == (4, True) and cut(84, 84, 1) == (1, True)
    assert cut(84, 84, 3) == cut(3, 84, 84) == cut(84, 84) == (1, False)  # colors, and gray
    assert cut(4, 64, 64, 3) == (4, False) and cut(1024, dtype=np.float32) == (1, False)
    assert cut(4, 42, 42) == (4, False) and cut(80, 8, 8) == (1, False)  # frames too small to be counted


def stacked(rows: int) -> ControlEnv:
    made = [lambda: FrameStackObservation(Screen(), 4)] * rows
    mode = gymnasium.vector.AutoresetMode.DISABLED
    return ControlEnv(lambda n: gymnasium.vector.SyncVectorEnv(made[:1] * n, autoreset_mode=mode), rows)


@pytest.mark.parametrize("n_step", [1, 3])
@pytest.mark.slow
def test_dqn_learns_the_same_from_frames(n_step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    keys: dict[str, Any] = {"warmup_steps": 8, "steps": 2, "capacity": 60, "batch_size": 8, "n_step": n_step}
    found = []
    for small in (10**9, 4):
        monkeypatch.setattr(module, "SMALL", small)
        env = stacked(rows=3)
        algo = algorithm("dqn", env, policies.Network(hidden=(8,)), **keys)
        for _ in range(30):
            iterate(algo, env)
        found.append({key: x.clone() for key, x in algo.policy.state_dict().items()})
    assert same(found[0], found[1])
    assert algo.buffer.store["observation"].dtype == torch.int32
    assert algo.buffer.frames.used < 60 * 8 / 7 + 3 * 12  # a frame for each step, a first one for each episode


def test_a_run_that_kept_every_observation_goes_on() -> None:
    source = Source("first", 2, 0)
    plain, lean = both("first", 20, True, 2)
    for _ in range(9):
        plain.extend(source.rollout(3))
    state = plain.state_dict()
    lean.load_state_dict(state)
    plain.load_state_dict(state)
    for _ in range(9):
        assert same(list(batches(plain)), list(batches(lean)))
        rollout = source.rollout(3)
        plain.extend(rollout)
        lean.extend(rollout)


def test_a_checkpoint_that_names_frames_that_are_not_there_is_refused() -> None:
    lean = both("first", 20, False, 2)[1]
    lean.extend(Source("first", 2, 0).rollout(3))
    state = lean.state_dict()
    state["store"]["observation"][0] = 10**6
    with pytest.raises(ValueError, match="there is no frame 1000000"):
        both("first", 20, False, 2)[1].load_state_dict(state)


def test_frames_that_do_not_fit_into_memory_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    lean, source = both("last", 30, False, 2)[1], Source("last", 1, 0)
    lean.extend(source.rollout(3))
    monkeypatch.setattr(memory, "free", lambda: 0)
    with pytest.raises(UserError, match=r"algo.capacity=30 steps with 32 frames needs 0.0 GB, 0.0 GB are free: start"):
        for _ in range(30):
            lean.extend(source.rollout(3))
