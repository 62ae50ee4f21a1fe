"""A replay in files draws what one in memory draws, also after kills; what is not its own folder is refused."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from rlkit.algorithms._replay import OffPolicy
from support.resuming import same
from support.rollouts import IMAGE, Source, credits
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers
from rlkit.api import State, UserError
from rlkit.buffers import frames as module
from rlkit.buffers import storage as files
from rlkit.recording import structure

MOST = 30  # steps of a rollout


@pytest.fixture(autouse=True)
def all_are_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SMALL", 4)
    monkeypatch.setattr(module, "PART", 4)


def replay(folder: Path | None, prioritized: bool = False, framed: bool = True) -> buffers.Replay:
    """One of 40 steps, in memory where there is no folder."""
    storage = None if folder is None else buffers.Storage(folder, MOST, 40)
    frames = buffers.frames_of(IMAGE["last"], 40, 2, storage) if framed else None
    if prioritized:
        return buffers.Prioritized(7, 40, 6, 2, 1, 0.6, 0.4, frames, storage)
    return buffers.Replay(7, 40, 6, 2, 1, frames, storage)


def batches(memory: buffers.Replay) -> list[dict[str, Tensor]]:
    found = []
    for batch in memory:
        found.append(dict(batch.items()))
        if isinstance(memory, buffers.Prioritized):
            memory.update(batch["index"], batch["reward"])
    return found


def written(state: State) -> State:
    """What a checkpoint makes of a state."""
    held: dict[str, Tensor] = {}
    encoded = structure.encode(state, "", held)
    found = structure.decode(encoded, {key: x.clone() for key, x in held.items()})
    assert isinstance(found, dict)
    return found


def save(memory: buffers.Replay) -> State:
    """Write a checkpoint."""
    memory.flush()
    state = written(memory.state_dict())
    memory.saved()
    return state


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.slow
def test_a_replay_in_files_that_is_killed_again_and_again_draws_what_one_in_memory_draws(
    seed: int, tmp_path: Path
) -> None:
    draw, prioritized, framed = np.random.default_rng(seed), bool(seed % 2), seed < 3
    source, credit = Source("last", 2, seed), credits(3)
    plain, disk = replay(None, prioritized, framed), replay(tmp_path / "ring", prioritized, framed)
    rollouts = [OffPolicy.credit(credit, source.rollout(int(draw.integers(1, 15)))) for _ in range(40)]
    wanted = [plain.extend(rollout) or batches(plain) for rollout in rollouts]
    i, kept, state, kills = 0, 0, save(disk), 0  # a checkpoint before the first step: n-step sums make it wait
    while i < len(rollouts):
        disk.extend(rollouts[i])
        assert same(batches(disk), wanted[i]), i
        i += 1
        if disk.save_is_due() or draw.random() < 0.2:
            kept, state = i, save(disk)
        elif draw.random() < 0.5 and kills < 20:
            disk.close()  # as the system does
            disk, i, kills = replay(tmp_path / "ring", prioritized, framed), kept, kills + 1
            disk.load_state_dict(state)
    assert kills > 5 and plain.seen > 160
    assert disk.state_dict()["store"]["reward"].shape == (0,)  # the files are not part of a checkpoint


@pytest.mark.slow
def test_a_replay_does_not_depend_on_when_checkpoints_are_written(tmp_path: Path) -> None:
    source, credit, draw = Source("last", 2, 0), credits(3), np.random.default_rng(0)
    often, seldom = replay(tmp_path / "often"), replay(tmp_path / "seldom")
    for _ in range(40):
        rollout = OffPolicy.credit(credit, source.rollout(7))
        for memory, chance in ((often, 0.5), (seldom, 0.0)):
            memory.extend(rollout)
            if memory.save_is_due() or draw.random() < chance:
                save(memory)
        assert same(written(often.state_dict()), written(seldom.state_dict()))


def test_what_the_newest_checkpoint_needs_is_not_written_over(tmp_path: Path) -> None:
    memory, source = replay(tmp_path), Source("last", 2, 0)
    for _ in range(9):
        memory.extend(source.rollout(5))
        if memory.save_is_due():
            save(memory)
    save(memory)
    for _ in range(8):
        memory.extend(source.rollout(5))
        if memory.save_is_due():
            break
    with pytest.raises(RuntimeError, match="the places of those that the newest checkpoint needs"):
        for _ in range(8):
            memory.extend(source.rollout(5))


@pytest.fixture
def ring(tmp_path: Path) -> tuple[Path, State]:
    """The folder of a run that was killed, and its checkpoint."""
    memory, source = replay(tmp_path / "ring"), Source("last", 2, 0)
    for _ in range(10):
        memory.extend(source.rollout(5))
        state = save(memory)
    memory.close()
    return tmp_path / "ring", state


def opened(folder: Path, state: State) -> buffers.Replay:
    memory = replay(folder)
    memory.load_state_dict(state)
    memory.close()
    return memory


def remove(folder: Path) -> None:
    shutil.rmtree(folder)


def lose(folder: Path) -> None:
    (folder / "reward.ring").unlink()


def cut(folder: Path) -> None:
    os.truncate(folder / "frames-0.ring", 100)


def change_step(folder: Path) -> None:
    torch.from_file(str(folder / "reward.ring"), shared=True, size=100, dtype=torch.float32).add_(1)


def change_frame(folder: Path) -> None:
    data = bytearray((folder / "frames-0.ring").read_bytes())
    (folder / "frames-0.ring").write_bytes(bytes(x ^ 1 for x in data))


def link(folder: Path) -> None:
    (folder / "reward.ring").rename(folder.parent / "elsewhere")
    (folder / "reward.ring").symlink_to(folder.parent / "elsewhere")


def go_on(folder: Path) -> None:
    """As another run that was continued from the same checkpoint, or a later one."""
    data = np.fromfile(folder / "action.ring" if (folder / "action.ring").exists() else folder / "done.ring", np.uint8)
    (folder / "done.ring").write_bytes(np.roll(data, 7).tobytes())


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (remove, r"needs it \(there is no such folder\): put it back as it was, give algo.storage=FOLDER"),
        (lose, r"\(reward.ring cannot be read: no such file or directory\)"),
        (cut, r"\(frames-0.ring has 100 bytes, not [\d,]+\)"),
        (change_step, r"\(it holds other steps\)"),
        (change_frame, r"\(it holds other frames\)"),
        (go_on, r"\(it holds other steps\)"),
        (link, r"reward.ring is a link, and links in a folder that rlkit writes are refused"),
        (lambda folder: os.link(folder / "reward.ring", folder / "x"), r"\(reward.ring has a second name, a hard link"),
    ],
)
def test_files_that_are_not_those_of_the_checkpoint_are_refused(
    damage: Callable[[Path], None], said: str, ring: tuple[Path, State]
) -> None:
    opened(*ring)
    damage(ring[0])
    with pytest.raises(UserError, match=said):
        opened(*ring)


def test_an_older_checkpoint_is_refused_once_its_steps_are_gone(ring: tuple[Path, State]) -> None:
    memory, source = opened(*ring), Source("last", 2, 1)
    for _ in range(10):
        memory.extend(source.rollout(5))
        save(memory)
    with pytest.raises(UserError, match="it holds other"):
        opened(*ring)


def first_steps(folder: Path) -> buffers.Replay:
    memory = replay(folder)
    memory.extend(Source("last", 2, 5).rollout(5))
    return memory


def test_a_folder_is_for_one_run(ring: tuple[Path, State], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds the replay of another run, which could not go on without it"):
        first_steps(ring[0])
    opened(*ring)  # nothing has happened to it
    fresh = first_steps(tmp_path / "fresh")
    with pytest.raises(UserError, match="is being written by another run: give each a folder of its own"):
        first_steps(tmp_path / "fresh")
    fresh.close()
    first_steps(tmp_path / "fresh").close()  # killed before its first checkpoint: nobody needs what is there


def test_what_is_no_replay_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("years")
    with pytest.raises(UserError, match=r"holds thesis.txt, which is not part of a replay: give an empty folder"):
        first_steps(tmp_path)
    with pytest.raises(UserError, match=r"thesis.txt/ring cannot be made: a file is in the way"):
        first_steps(tmp_path / "thesis.txt" / "ring")
    (tmp_path / "links").mkdir()
    (tmp_path / "links" / ".lock").symlink_to(tmp_path / "thesis.txt")
    with pytest.raises(UserError, match="is a link, and links in a folder that rlkit writes are refused"):
        first_steps(tmp_path / "links")
    assert os.listdir(tmp_path / "links") == [".lock"] and (tmp_path / "thesis.txt").read_text() == "years"


def test_a_disk_that_is_too_small_is_refused_before_anything_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    with monkeypatch.context() as patched:
        patched.setattr(files.shutil, "disk_usage", lambda folder: usage)
        with pytest.raises(
            UserError, match=r"needs 0.0 GB, 0.0 GB are free: give a smaller algo.capacity, or a folder"
        ):
            first_steps(tmp_path)
    assert {*os.listdir(tmp_path)} <= {".lock"}  # which older versions of filelock remove
    taken: Any = OSError(28, "full")

    def full(*_: Any) -> None:
        raise taken

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(UserError, match=r"frames-0.ring: no space left on the disk; make room there and resume"):
        first_steps(tmp_path / "full")


def test_a_disk_that_fills_up_or_goes_away_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = first_steps(tmp_path / "full")

    def full(*_: Any) -> None:
        raise OSError(28, "full")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        with pytest.raises(UserError, match=r"^cannot write .*/kept: no space left on the disk; fix that and resume"):
            save(memory)
    state = save(memory)
    (tmp_path / "full").rename(tmp_path / "gone")
    with pytest.raises(
        UserError, match=r"^cannot write .*\.ring: no such file or directory; fix that and resume the r"
    ):
        save(memory)
    memory.close()
    (tmp_path / "gone").rename(tmp_path / "full")
    opened(tmp_path / "full", state)


def test_a_lock_that_cannot_be_had_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> None:
        raise NotImplementedError

    monkeypatch.setattr(files.FileLock, "acquire", refused)
    with pytest.raises(UserError, match="cannot be locked: it has no locks; give a folder on another disk"):
        first_steps(tmp_path)


def test_a_folder_whose_name_is_not_utf_8_is_one_line(tmp_path: Path) -> None:
    folder = tmp_path / os.fsdecode(b"\xff")
    with pytest.raises(UserError, match="is not a name in UTF-8, which torch needs: give another folder"):
        first_steps(folder)
    assert not folder.exists()


def test_steps_without_frames_are_kept_in_files_too(tmp_path: Path) -> None:
    memory = replay(tmp_path, framed=False)
    step = torch.arange(20).view(1, -1)
    data = {"id": step, "mask": step >= 0, "observation": step[..., None].float()}
    memory.extend(TensorDict(data, batch_size=[1]))
    assert sorted(os.listdir(tmp_path)) == [".lock", "id.ring", "mask.ring", "observation.ring"]
    assert set(next(iter(memory))["id"].tolist()) <= set(range(20))
