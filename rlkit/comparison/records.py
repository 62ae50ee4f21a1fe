"""A run folder → what a comparison needs to know of it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeGuard

import numpy as np
import yaml

from rlkit.api import Reference, UserError
from rlkit.settings.plugins import short
from rlkit.statistics.runs import Array

CURVES = {"evaluation": ("eval/return", "eval/accuracy"), "training": ("rollout/return",)}
LARGEST = 1e100  # a number beyond it is no score: its square, and sums of it, have no value
REPEAT = "to repeat: "  # what stands before the command in the first line of config.yaml
MEASURING = ("evaluate_every", "evaluations", "validation_episodes")
NOT_SETTINGS = {"seed", "out", "device", "threads", "checkpoint_every", "keep", "logger", *MEASURING}


@dataclass(frozen=True)
class Curve:
    """How a run's score went."""

    env_steps: Array  # [n], increasing
    seconds: Array  # [n], since the run began
    value: Array  # [n]


@dataclass(frozen=True)
class Record:
    """One finished run."""

    algo: str
    env: str
    seed: int
    folder: Path
    metric: str  # return or accuracy
    score: float  # mean on the test split after training
    low: float  # its 95 % interval over episodes or problems
    high: float
    env_steps: int  # steps or tokens it learned from
    seconds: float  # wall time, evaluations included
    finished: bool = True
    reference: Reference | None = None  # what counts as 0 and as 1
    alarms: list[str] = field(default_factory=list)  # what the doctor found
    before: float | None = None  # the score before training
    episodes: int = 0  # how many episodes or problems the score is a mean of
    curves: Mapping[str, Curve] = field(default_factory=dict)  # evaluation: on validation episodes; training: attempts
    settings: Mapping[str, str] = field(default_factory=dict)  # the keys that may change the score, as text
    versions: Mapping[str, str] = field(default_factory=dict)
    command: str = ""  # what repeats it
    scored: str = ""  # what the score is of: episodes, problems, or the pairs that a reward model ranks


def read(folder: Path) -> Record:
    """Read a finished run; raises UserError where the folder holds none."""
    if not (folder / "config.yaml").is_file():
        raise UserError(f"{folder} is no run folder: it has no config.yaml; give folders that rlkit.run wrote")
    if not (folder / "summary.json").is_file():
        raise UserError(f"{folder} is not finished: it has no summary.json; continue it with resume={folder}")
    summary = _json(folder / "summary.json")
    if not summary.get("finished", True):
        raise UserError(f"{folder} was interrupted and is not finished; continue it with resume={folder}")
    before, after = (_dict(_dict(summary.get("evaluation")).get(when)) for when in ("before", "after"))
    score, low, high = _score(after, folder)
    command, settings = _config(folder / "config.yaml")
    try:
        return Record(
            algo=short(str(summary["algo"])),
            env=short(str(summary["env"])),
            seed=int(_number(summary, "seed")),
            folder=folder,
            metric=str(after.get("metric", "return")),
            score=score,
            low=low,
            high=high,
            env_steps=int(_number(summary, "env_steps")),
            seconds=_number(summary, "seconds"),
            reference=_reference(summary.get("reference")),
            alarms=[_alarm(alarm) for alarm in _list(summary.get("alarms"))],
            before=_number(before, "mean") if _is_number(before.get("mean")) else None,
            episodes=int(_number(after, "episodes")) if "episodes" in after else 0,
            curves=_curves(folder / "metrics.jsonl"),
            settings=settings,
            versions={str(key): str(value) for key, value in _dict(summary.get("versions")).items()},
            command=command,
            scored=str(summary.get("scored", "")),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'summary.json'} is damaged: {error!r}; run it again") from None


def _score(after: Mapping[str, object], folder: Path) -> tuple[float, float, float]:
    """The mean after training, and the ends of its interval."""
    mean = after.get("mean")
    if isinstance(mean, int | float) and abs(mean) > LARGEST:
        raise UserError(f"{folder} has a score beyond {LARGEST:g}, of which no mean can be taken; divide its rewards")
    if not _is_number(mean):
        raise UserError(f"{folder / 'summary.json'} holds no evaluation after training; run it again")
    low, high = (_number(after, key) if _is_number(after.get(key)) else float(mean) for key in ("low", "high"))
    return float(mean), low, high


def _json(path: Path) -> dict[str, object]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path} is damaged: {error}; run it again") from None
    if not isinstance(values, dict):
        raise UserError(f"{path} is damaged: it holds no object; run it again")
    return values


def _config(path: Path) -> tuple[str, dict[str, str]]:
    """The command in the first line of config.yaml, and its keys as algo.lr → 0.001."""
    try:
        text = path.read_text(encoding="utf-8")
        values = yaml.safe_load(text) or {}
        settings = {
            key if section == "run" else f"{section}.{key}": str(value)
            for section, keys in values.items()
            for key, value in keys.items()
            if section != "run" or key not in NOT_SETTINGS
        }
    except (OSError, ValueError, AttributeError, yaml.YAMLError) as error:
        raise UserError(f"{path} is damaged: {getattr(error, 'problem', None) or error}; run it again") from None
    _, found, command = text.partition("\n")[0].partition(REPEAT)
    return command.strip() if found else "", settings


def _curves(path: Path) -> dict[str, Curve]:
    """The curves of metrics.jsonl; lines that a power cut has torn are left out."""
    points: dict[str, list[list[float]]] = {name: [] for name in CURVES}
    lines = path.read_text(encoding="utf-8", errors="replace").splitlines() if path.is_file() else []
    for line in lines:
        try:
            record = _dict(json.loads(line))
        except ValueError:
            continue
        for name, keys in CURVES.items():
            for value in (record[key] for key in keys if key in record):
                row = [x for x in (record.get("env_steps"), record.get("seconds"), value) if _is_number(x)]
                if len(row) == 3:
                    points[name].append(row)
    return {name: Curve(*np.array(rows, dtype=np.float64).T) for name, rows in points.items() if rows}


def _reference(given: object) -> Reference | None:
    """None for a run that has none, and where low is not below high: nothing lies between them."""
    if given is None:
        return None
    values = _dict(given)
    low, high = _number(values, "low"), _number(values, "high")
    reference = Reference(low, high, str(values["low_is"]), str(values["high_is"]))
    return reference if -LARGEST <= reference.low < reference.high <= LARGEST else None


def _alarm(alarm: object) -> str:
    """`name: message`, or whatever text an alarm is."""
    values = _dict(alarm)
    return f"{values.get('name', 'alarm')}: {values.get('message', '')}" if values else str(alarm)


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _list(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _number(values: Mapping[str, object], key: str) -> float:
    """A number that must be there. Raises KeyError or TypeError."""
    value = values[key]
    if not isinstance(value, int | float) or (isinstance(value, int) and abs(value) > LARGEST):
        raise TypeError(f"{key} is {str(value)[:40]}")
    return float(value)


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST
