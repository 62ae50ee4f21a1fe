import errno
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from support.resuming import Killed, same
from torch import nn

from rlkit import ranks
from rlkit.api import UserError
from rlkit.recording import checkpoint
from rlkit.recording.files import tidy, write_atomically


def file(folder: Path, name: str = "latest") -> Path:
    return folder / "checkpoints" / f"{name}.safetensors"


def test_what_is_saved_is_loaded_to_the_last_bit(tmp_path: Path) -> None:
    generator = torch.Generator().manual_seed(3)
    state = {
        "tensors": {
            "float": torch.tensor([1.5, float("nan"), float("inf"), -0.0]),
            "bfloat16": torch.randn(3, 2, generator=generator).bfloat16(),
            "bool": torch.tensor([[True, False]]),
            "scalar": torch.tensor(7),
            "empty": torch.zeros(0, 4, dtype=torch.float64),
            "view": torch.arange(12).reshape(3, 4).T,
            "expanded": torch.zeros(()).expand(1),
            "generator": generator.get_state(),
        },
        "arrays": [np.arange(6, dtype=np.int16).reshape(2, 3)[:, ::2], np.float32(0.1), np.int64(-3), np.array(2.0)],
        "numbers": [0, -1, 2**63, 2**127 + 1, -(2**200), True, False, None, 0.1, 1e-300, float("nan"), float("-inf")],
        "texts": ["", 'é\u2028\n"', "$tensor"],
        "tuples": ((), (1, (2.0, "a")), [()]),
        "keys": {0: {"step": 1}, 1: [], -5: None, "1": 2, (1, "a"): 3, None: 4, 2**70: 6},
        "dollars": {"$tensor": "a key that looks like one of ours", "$same": 0},
        "nested": {"$items": [[1, 2]], "": {}},
        "a/b": {"c": torch.ones(1)},
        "a": {"b/c": torch.zeros(1), "b": {"c": torch.full((1,), 2.0)}},
    }
    checkpoint.save(tmp_path, state)
    assert same(checkpoint.load(tmp_path), state)


def test_a_generator_goes_on_where_it_was(tmp_path: Path) -> None:
    generator, numpy_generator = torch.Generator().manual_seed(1), np.random.default_rng(1)
    state = {"torch": generator.get_state(), "numpy": numpy_generator.bit_generator.state}
    checkpoint.save(tmp_path, state)
    wanted = torch.rand(3, generator=generator), numpy_generator.random(3)
    loaded = checkpoint.load(tmp_path)
    generator.set_state(loaded["torch"])
    numpy_generator.bit_generator.state = loaded["numpy"]
    torch.testing.assert_close(torch.rand(3, generator=generator), wanted[0], rtol=0, atol=0)
    assert (numpy_generator.random(3) == wanted[1]).all()


def test_training_goes_on_bitwise_from_a_checkpoint(tmp_path: Path) -> None:
    def fresh() -> tuple[nn.Linear, torch.optim.Adam]:
        model = nn.Linear(5, 3)
        with torch.no_grad():
            model.weight.copy_(torch.linspace(-1, 1, 15).reshape(3, 5))
            model.bias.zero_()
        return model, torch.optim.Adam(model.parameters(), lr=0.1, amsgrad=True)

    def steps(model: nn.Linear, optimizer: torch.optim.Adam, start: int, end: int) -> None:
        for i in range(start, end):
            optimizer.zero_grad()
            model(torch.full((2, 5), 0.1 * i)).square().sum().backward()
            optimizer.step()

    one = fresh()
    steps(*one, 0, 10)
    two = fresh()
    steps(*two, 0, 4)
    checkpoint.save(tmp_path, {"model": two[0].state_dict(), "optimizer": two[1].state_dict()})
    three, state = fresh(), checkpoint.load(tmp_path)
    three[0].load_state_dict(state["model"])
    three[1].load_state_dict(state["optimizer"])
    steps(*three, 4, 10)
    assert torch.equal(one[0].weight, three[0].weight)
    assert torch.equal(one[0].bias, three[0].bias)


def test_tied_tensors_and_slices_of_one_memory_are_saved_each_for_itself(tmp_path: Path) -> None:
    x = torch.arange(6.0)
    checkpoint.save(tmp_path, {"a": x, "b": x, "c": x[2:4], "d": x[:2]})
    loaded = checkpoint.load(tmp_path)
    assert same(loaded, {"a": x, "b": x, "c": torch.tensor([2.0, 3.0]), "d": torch.tensor([0.0, 1.0])})


def save_many(folder: Path, iterations: range, keep: int) -> None:
    folder.mkdir(exist_ok=True)
    for iteration in iterations:
        state = {"iteration": iteration, "x": torch.full((100,), float(iteration))}
        checkpoint.save(folder, state, keep=keep, iteration=iteration)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in (folder / "checkpoints").iterdir())


def test_the_newest_older_ones_stay_beside_latest(tmp_path: Path) -> None:
    for keep in (0, 1, 3):
        save_many(tmp_path / str(keep), range(8, 13), keep)
        older = [f"iteration-{n}.safetensors" for n in range(12 - keep, 12)]
        assert names(tmp_path / str(keep)) == sorted([*older, "latest.safetensors"])  # by number, not by letter
    assert checkpoint.load(tmp_path / "3", "iteration-9")["iteration"] == 9
    save_many(tmp_path / "3", range(12, 13), 3)  # of the same iteration it is replaced
    assert len(names(tmp_path / "3")) == 4
    save_many(tmp_path / "3", range(13, 14), 1)
    assert names(tmp_path / "3") == ["iteration-12.safetensors", "latest.safetensors"]
    checkpoint.save(tmp_path / "3", {}, "best", iteration=14)
    assert len(names(tmp_path / "3")) == 3


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ESTALE, os.strerror(errno.ESTALE)),  # a network disk
        OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
        RuntimeError("unable to open file <x> in read-only mode: Too many open files (24)"),  # torch's words
    ],
)
def test_what_the_system_cannot_read_now_is_not_taken_for_damaged(
    error: Exception, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for iteration in (1, 2):
        checkpoint.save(tmp_path, {"x": torch.ones(1)}, keep=1, iteration=iteration)
    before = names(tmp_path)

    def fail(*args: Any, **keys: Any) -> None:
        raise error

    with monkeypatch.context() as patched, pytest.raises(UserError, match=r"latest.safetensors cannot be read: \w+"):
        patched.setattr(checkpoint, "safe_open", fail)
        checkpoint.load(tmp_path, tidy=True)
    assert names(tmp_path) == before and checkpoint.load(tmp_path) == {"x": torch.ones(1)}


def test_a_bad_sector_says_that_an_older_one_can_stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save_many(tmp_path, range(1, 3), keep=1)

    def fail(*args: Any, **keys: Any) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched, pytest.raises(UserError, match=r"output error; .* move it away, and resume"):
        patched.setattr(checkpoint, "safe_open", fail)
        checkpoint.load(tmp_path)
    file(tmp_path).rename(tmp_path / "away")
    assert checkpoint.load(tmp_path)["iteration"] == 1


def test_older_ones_stand_in_for_damaged_ones_which_are_set_aside(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    save_many(tmp_path, range(1, 5), keep=3)
    for name in ("latest", "iteration-3"):
        file(tmp_path, name).write_bytes(b"")
    before = names(tmp_path)
    assert checkpoint.load(tmp_path)["iteration"] == 2 and names(tmp_path) == before  # whoever only looks
    capsys.readouterr()
    assert checkpoint.load(tmp_path, tidy=True)["iteration"] == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "latest.safetensors is damaged" in told
    assert "iteration-3.safetensors is damaged" in told and "going on from iteration-2" in told
    assert {"latest.damaged", "iteration-3.damaged", "iteration-2.safetensors"} < set(names(tmp_path))
    save_many(tmp_path, range(3, 5), keep=1)
    assert {"latest.damaged", "iteration-3.safetensors", "latest.safetensors"} < set(names(tmp_path))
    assert checkpoint.load(tmp_path)["iteration"] == 4 and not capsys.readouterr().err
    file(tmp_path).unlink()  # killed between the two renames
    assert checkpoint.resumable(tmp_path) and checkpoint.load(tmp_path)["iteration"] == 3
    assert "latest.safetensors is missing: going on from iteration-3" in capsys.readouterr().err
    with monkeypatch.context() as patch:  # of several ranks, the first one alone says it, as it locks the folder
        patch.setattr(ranks, "size", lambda: 2)
        assert checkpoint.load(tmp_path)["iteration"] == 3 and not capsys.readouterr().err


def damage(data: bytes, draw: np.random.Generator) -> bytes:
    """The file torn at a random place, or some of its bytes changed, or a stretch of it never written."""
    at = int(draw.integers(len(data)))
    if draw.random() < 0.4:
        return data[:at]
    if draw.random() < 0.3:
        return data[:at] + bytes(min(64, len(data) - at)) + data[at + 64 :]
    changed = bytearray(data)
    for place in draw.integers(len(data), size=draw.integers(1, 4)):
        changed[place] ^= 1 << int(draw.integers(8))
    return bytes(changed)


def test_no_damage_is_ever_loaded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    draw = np.random.default_rng(0)
    save_many(tmp_path, range(1, 3), keep=1)
    good, wanted = file(tmp_path).read_bytes(), checkpoint.load(tmp_path)
    older = file(tmp_path, "iteration-1").read_bytes()
    for _ in range(150):
        data = damage(good, draw)
        file(tmp_path).write_bytes(data)
        found = checkpoint.load(tmp_path)
        told = capsys.readouterr().err
        assert found["iteration"] == 1 or (same(found, wanted) and not told)
        assert found["iteration"] == 2 or told.count("\n") == 1
        assert found["iteration"] == 1 or data == good
        file(tmp_path).write_bytes(damage(good, draw))
        file(tmp_path, "iteration-1").write_bytes(older[: int(draw.integers(len(older)))])
        if file(tmp_path).read_bytes() != good:
            with pytest.raises(UserError, match=r"latest.* is damaged .*iteration-1.* is damaged .*start the run"):
                checkpoint.load(tmp_path)
        file(tmp_path, "iteration-1").write_bytes(older)


def test_no_good_checkpoint_is_the_users_to_know(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no checkpoint 'latest': there are none"):
        checkpoint.load(tmp_path)
    checkpoint.save(tmp_path, {}, "best")
    assert not checkpoint.resumable(tmp_path)
    with pytest.raises(UserError, match="has no checkpoint 'latest': there are best"):
        checkpoint.load(tmp_path)
    file(tmp_path, "best").write_bytes(b"not a checkpoint")
    with pytest.raises(UserError, match=r"best\.safetensors is damaged .* give checkpoint=latest, or"):
        checkpoint.load(tmp_path, "best")
    save_file({"x": torch.ones(1)}, file(tmp_path, "best"))
    with pytest.raises(UserError, match="it is not a checkpoint of rlkit"):
        checkpoint.load(tmp_path, "best")


def test_a_failed_write_keeps_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint.save(tmp_path, {"version": 1})

    def full(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(UserError, match=r"no space left on the disk; the checkpoint before it is kept"):
        checkpoint.save(tmp_path, {"version": 2})
    with pytest.raises(UserError, match=r"summary\.json: no space left on the disk"):
        write_atomically(tmp_path / "summary.json", "{}")
    assert checkpoint.load(tmp_path)["version"] == 1
    assert [path.name for path in tmp_path.rglob("*.*")] == ["latest.safetensors"]


def save_until(stop: int, folder: Path, state: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> bool:
    """Save, but be killed at the `stop`-th step that touches the disk; say whether the end was reached."""
    calls = iter(range(1000))

    def step(real: Callable[..., Any], *args: Any) -> Any:
        if next(calls) == stop:
            raise Killed
        return real(*args)

    with monkeypatch.context() as patch:
        for owner, name in ((os, "replace"), (os, "fsync"), (checkpoint, "save_file")):
            patch.setattr(owner, name, partial(step, getattr(owner, name)))
        try:
            checkpoint.save(folder, state, keep=1, iteration=state["version"])
        except Killed:
            return False
    return True


def test_a_run_killed_while_saving_leaves_a_good_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ends = []
    for stop in range(6):
        folder = tmp_path / str(stop)
        folder.mkdir()
        checkpoint.save(folder, {"version": 1}, keep=1, iteration=1)
        ends.append(save_until(stop, folder, {"version": 2}, monkeypatch))
        assert checkpoint.load(folder)["version"] in ((2,) if ends[-1] else (1, 2))
        checkpoint.save(folder, {"version": 3}, keep=1, iteration=3)
        assert checkpoint.load(folder)["version"] == 3
        tidy(folder)
        before = 1 if stop < 4 and not ends[-1] else 2
        assert names(folder) == [f"iteration-{before}.safetensors", "latest.safetensors"]
    assert ends == [False] * 5 + [True]  # it has five steps: write, to disk, two renames, to disk
