"""Whether two run folders hold the same run, to the last bit: for the tests of resuming."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from rlkit import loop, run
from rlkit.recording import checkpoint

REWARD = f"env.reward={Path(__file__).resolve()}:vowels"  # short answers differ in it, so there is something to learn


def vowels(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [sum(text.count(x) for x in "aeiou") / 10 for text in completions]


class Killed(BaseException):
    """What `kill -9` is to a test in one process: nothing in rlkit catches it."""


def cut(words: list[str], folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is killed before its third checkpoint."""

    def keep(training: loop.Training, real: Any = loop.Training.keep) -> None:
        if training.progress.iteration == 3:
            raise Killed
        real(training)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(loop.Training, "keep", keep)
        run.main([*words, f"out={folder}"])


def same(a: Any, b: Any) -> bool:
    """Equal in type and to the last bit, all the way down."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(_bits(a), _bits(b))
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, dict):
        return (
            list(a) == list(b)
            and all(type(x) is type(y) for x, y in zip(a, b, strict=True))
            and all(same(a[key], b[key]) for key in a)
        )
    return repr(a) == repr(b)


def _bits(x: torch.Tensor) -> torch.Tensor:
    return x.clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def differences(one: Path, other: Path) -> list[str]:
    """What differs between two finished runs but the time they took; empty where they are one and the same run."""
    found = [f"{name}: {where}" for name in ("latest", "best") for where in _checkpoints(one, other, name)]
    lines = [metrics(folder) for folder in (one, other)]
    found += [] if lines[0] == lines[1] and lines[0] else ["metrics.jsonl"]
    files = {
        path.relative_to(folder)
        for folder in (one, other)
        for name in ("model", "adapter")
        for path in (folder / name).glob("*")
    }
    for name in [Path("completions.jsonl"), *sorted(files)]:
        texts = [(folder / name).read_bytes() if (folder / name).is_file() else b"" for folder in (one, other)]
        found += [] if texts[0] == texts[1] else [str(name)]
    found += [] if points(one) == points(other) and points(one) else ["TensorBoard's points"]
    ends = [json.loads((folder / "summary.json").read_text()) | {"seconds": 0} for folder in (one, other)]
    return found + ([] if ends[0] == ends[1] else ["summary.json"])


def points(folder: Path) -> list[tuple[str, int, str]]:
    """Every point (tag, step, value) that TensorBoard reads in a run folder, less those that tell the time."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    read = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()  # 0: all of them
    tags = [tag for tag in sorted(read.Tags()["scalars"]) if not tag.startswith("time/")]
    return [(tag, x.step, repr(x.value)) for tag in tags for x in read.Scalars(tag)]


def logged(folder: Path) -> list[tuple[str, int]]:
    """(tag, step) of all that metrics.jsonl holds, in TensorBoard's order."""
    lines = _lines(folder / "metrics.jsonl")
    tags = {key for line in lines for key in line} - {"iteration", "env_steps", "seconds"}
    timeless = sorted(tag for tag in tags if not tag.startswith("time/"))
    return [(tag, line["env_steps"]) for tag in timeless for line in lines if tag in line]


def _checkpoints(one: Path, other: Path, name: str) -> list[str]:
    """The parts of two checkpoints that differ."""
    there = [(folder / "checkpoints" / f"{name}.safetensors").is_file() for folder in (one, other)]
    if not all(there):
        return [] if not any(there) else ["one of them is missing"]
    a, b = (checkpoint.load(folder, name) for folder in (one, other))
    assert a.keys() == b.keys() and a["parts"].keys() == b["parts"].keys()
    found = [key for key in a if key != "parts" and not same(a[key], b[key])]
    return found + [f"parts/{key}" for key in a["parts"] if not same(a["parts"][key], b["parts"][key])]


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def metrics(folder: Path) -> list[dict[str, Any]]:
    """What metrics.jsonl holds, less what tells the time."""
    lines = _lines(folder / "metrics.jsonl")
    return [{key: x for key, x in line.items() if key != "seconds" and not key.startswith("time/")} for line in lines]


def tensors(state: object, path: str = "") -> dict[str, torch.Tensor]:
    """Those of a state, by where they stand in it."""
    if isinstance(state, torch.Tensor):
        return {path: state}
    items = state.items() if isinstance(state, dict) else enumerate(state) if isinstance(state, list | tuple) else ()
    return {name: x for key, value in items for name, x in tensors(value, f"{path}.{key}").items()}
