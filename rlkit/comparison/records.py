"""A run folder → what a comparison needs to know of it."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from rlkit.api import Reference, UserError
from rlkit.comparison import names
from rlkit.comparison.marks import MARKS, content
from rlkit.recording.files import HUGE, LARGEST, is_file, is_number, read_object, read_text
from rlkit.recording.writers import records
from rlkit.settings import repeat, sections
from rlkit.settings.plugins import short
from rlkit.statistics.runs import Array

CURVES = {"evaluation": ("eval/return", "eval/accuracy"), "training": ("rollout/return",)}
REPEAT = "to repeat: "  # what stands before the command in the first line of config.yaml
PROBLEMS = ("id", "entry", "game", "task")  # keys of an environment that say which problem it plays
CHOOSING = set(repeat.VALIDATION)  # change a score under measure=best only
NOT_SETTINGS = {"seed", "out", "device", "threads", "checkpoint_every", "keep", "logger", *repeat.MOVABLE}


@dataclass(frozen=True)
class Curve:
    """How a run's score went."""

    env_steps: Array  # [n], increasing
    seconds: Array  # [n], since the run began
    value: Array  # [n]
    gaps: int = 0  # measurements that gave no number: there the curve keeps the value before


@dataclass(frozen=True)
class Record:
    """One finished run."""

    algo: str  # what its row is called: the algorithm, with the settings that tell it from other rows
    env: str  # what its column is called
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
    measure: str = "latest"  # whose score it is: of the last parameters, or of the best validated
    candidates: int = 0  # among how many evaluations the best was chosen
    validation_episodes: str = ""  # on how many episodes or problems each; empty for the last parameters
    scored: str = ""  # what the score is of: episodes, problems, or the pairs that a reward model ranks
    plugin: str = ""  # the algorithm
    kind: str = ""  # of the environment: control or text; rlkit 0.5 wrote nothing of it
    longer: bool = False  # whether a resume gave it another length


def read(folder: Path) -> Record:
    """Read a finished run; raises UserError where the folder holds none."""
    summary = _finished(folder)
    before, after = (_dict(_dict(summary.get("evaluation")).get(when)) for when in ("before", "after"))
    score, low, high = _score(after, folder)
    config, found = sections.read(folder / "config.yaml"), _curves(folder / "metrics.jsonl")
    called, alarms = names.read(folder.absolute()), summary.get("alarms")
    best = config.get("run", {}).get("measure") == "best"
    candidates, validated_on = _search(summary, config, found)
    head, command = _first_line(folder / "config.yaml")
    try:
        return Record(
            algo=called.get("algo") or names.readable(short(_text(summary, "algo"))),
            env=called.get("env") or names.readable(task(_text(summary, "env"), config.get("env", {}))),
            seed=int(_number(summary, "seed")),
            folder=folder,
            metric=_metric(summary, after),
            score=score,
            low=low,
            high=high,
            env_steps=int(_number(summary, "env_steps")),
            seconds=_number(summary, "seconds"),
            reference=_reference(summary.get("reference")),
            alarms=[_alarm(alarm) for alarm in (alarms if isinstance(alarms, list) else [])],
            before=_number(before, "mean") if is_number(before.get("mean")) else None,
            episodes=int(_number(after, "episodes")) if "episodes" in after else 0,
            curves=_from_step_0(found, before),
            settings=_settings(config, NOT_SETTINGS if best else NOT_SETTINGS | CHOOSING),
            versions={str(key): str(value) for key, value in _dict(summary.get("versions")).items()},
            command=command,
            measure="best" if best else "latest",
            candidates=candidates if best else 0,
            validation_episodes=validated_on if best else "",
            scored=str(summary.get("scored", "")),
            plugin=short(_text(summary, "algo")),
            kind=str(summary.get("kind", "")),
            longer=repeat.LONGER in head,
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(f"{folder / 'summary.json'} is damaged: {error!r}; run it again") from None


def apart(found: Sequence[Record]) -> list[Record]:
    """The same runs, where a column of several problems becomes a column of each, and a row of several plug-ins, too.

    Problems that end alike have their whole ids (one/Maze-v0, two/Maze-v0), problems of several sources the source.
    """
    problems: dict[str, dict[str, str]] = {}  # column → what tells a problem from others → the problem
    for r in found:
        problems.setdefault(r.env, {}).setdefault(content(r.settings, _problem(r)), _problem(r))
    whole = [problems[r.env][content(r.settings, _problem(r))] for r in found]
    both = zip(found, whole, strict=True)
    found = [replace(r, env=_whole(r.env, problem)) if len(problems[r.env]) > 1 else r for r, problem in both]
    columns = [r.env for r in found]
    for key, sign in (("env.source", " source="), ("env.name", " ")):
        columns = _parted(found, columns, key, sign)
    rows = _parted(found, [r.algo for r in found], "algo.name", " ")
    return [replace(r, algo=row, env=column) for r, row, column in zip(found, rows, columns, strict=True)]


def _parted(found: Sequence[Record], called: Sequence[str], key: str, sign: str) -> list[str]:
    """What runs are called, with the value of a key where runs of one name have several: `gsm8k source=train.jsonl`.

    Of a path the last part, or the whole where two end alike. Files with the same content are one value.
    """
    values: dict[str, dict[str, str]] = {}  # name → what a value stands for → the value
    for r, name in zip(found, called, strict=True):
        if value := r.settings.get(key, ""):
            values.setdefault(name, {}).setdefault(_content(r, key), value)
    names_of = []
    for r, name in zip(found, called, strict=True):
        whole = values.get(name, {}).get(_content(r, key), "")
        others = {*values.get(name, {}).values()}
        ends = [value.rpartition("/")[2] for value in others]
        end = whole.rpartition("/")[2]
        plain = len(others) < 2 or whole in ("", name)
        names_of.append(name if plain else names.readable(f"{name}{sign}{end if ends.count(end) == 1 else whole}"))
    return names_of


def _content(r: Record, key: str) -> str:
    """What tells a value from others; of a source of problems test.jsonl beside it, which they are measured on."""
    value = r.settings.get(key, "")
    test = os.path.join(os.path.dirname(value), "test.jsonl")
    return content(r.settings, test if key == "env.source" and r.settings.get(f"{MARKS}{test}") else value)


def _problem(r: Record) -> str:
    """The key that says which problem was played; empty where there is none."""
    given = (r.settings.get(f"env.{key}", "None") for key in PROBLEMS)
    return next((problem for problem in given if problem != "None"), "")


def _whole(env: str, problem: str) -> str:
    """gym:one/Maze-v0 for gym:Maze-v0; a name without the problem stays."""
    end = f":{problem.rpartition('/')[2]}"
    found = problem and f"{env} ".count(f"{end} ")  # settings may follow it
    return names.readable(f"{env} ".replace(f"{end} ", f":{problem} ", 1).rstrip()) if found else env


def _finished(folder: Path) -> dict[str, object]:
    """The summary of a finished run; raises UserError where there is none."""
    if not is_file(folder / "config.yaml"):
        if is_file(folder / "search.yaml"):
            raise UserError(f"{folder} is a search's folder: give its comparison, {folder / 'fresh'} (or fresh-N)")
        raise UserError(f"{folder} is not a run folder: it has no config.yaml; give folders that rlkit.run wrote")
    if not is_file(folder / "summary.json"):
        raise UserError(f"{folder} is not finished: it has no summary.json; continue it with resume={folder}")
    summary = read_object(folder / "summary.json")
    if not summary.get("finished", True):
        raise UserError(f"{folder} was interrupted and is not finished; continue it with resume={folder}")
    return summary


def _score(after: Mapping[str, object], folder: Path) -> tuple[float, float, float]:
    """The mean after training, and the ends of its interval."""
    mean = after.get("mean")
    if isinstance(mean, int | float) and abs(mean) > HUGE:
        raise UserError(f"{folder} has a score beyond {HUGE:g}, of which no mean can be taken; divide its rewards")
    if not is_number(mean):
        raise UserError(f"{folder / 'summary.json'} holds no evaluation after training; run it again")
    low, high = (_number(after, key) if is_number(after.get(key)) else float(mean) for key in ("low", "high"))
    return float(mean), low, high


def _metric(summary: Mapping[str, object], after: Mapping[str, object]) -> str:
    """Return or accuracy; rlkit 0.5 called that of a reward model a return where the rewards were the user's own."""
    ranks = summary.get("scored") == "pairs" or short(_text(summary, "algo")) == "reward_model"
    return "accuracy" if ranks else names.readable(_text({"metric": "return", **after}, "metric"))


def _search(summary: Mapping[str, object], config: sections.Sections, curves: Mapping[str, Curve]) -> tuple[int, str]:
    """Among how many evaluations the best was looked for, and on how many episodes each.

    As the summary has it, since a resume may begin the search anew. rlkit 0.5 wrote nothing of it: then all evaluations
    count, and the number is that of config.yaml.
    """
    found = _dict(summary.get("best"))
    if is_number(found.get("of")) and is_number(found.get("episodes")):
        return int(_number(found, "of")), str(int(_number(found, "episodes")))
    count = len(curves["evaluation"].value) if "evaluation" in curves else 0
    return count, str(config.get("run", {}).get("validation_episodes", ""))


def _first_line(path: Path) -> tuple[str, str]:
    """Of a config.yaml: what its first line says of the run, and the command there that repeats it."""
    head, _, command = read_text(path, LARGEST).partition("\n")[0].partition(REPEAT)
    return head, command.strip()


def _settings(config: sections.Sections, left_out: set[str]) -> dict[str, str]:
    """Every key that may have changed the score, as text: algo.lr → 0.001."""
    found = {
        key if section == "run" else f"{section}.{key}": value
        for section, keys in config.items()
        for key, value in keys.items()
    }
    left_out = left_out | {key for key, value in found.items() if repeat.in_processes(key, value)}
    return {key: str(value) for key, value in found.items() if key not in left_out}


def task(name: str, env: Mapping[str, object]) -> str:
    """An environment's name; one plug-in that plays many problems is named by its problem, as gym:Acrobot-v1."""
    problem = next((env[key] for key in PROBLEMS if env.get(key)), None)
    words = ", ".join(map(str, problem)) if isinstance(problem, list) else str(problem)
    return f"{short(name)}:{words.rpartition('/')[2]}" if problem else short(name)


def _curves(path: Path) -> dict[str, Curve]:
    """The curves of metrics.jsonl; what is not a line of it, torn by a power cut, say, is left out."""
    points: dict[str, list[list[float]]] = {name: [] for name in CURVES}
    gaps = dict.fromkeys(CURVES, 0)
    for record in records(path) if os.path.isfile(path) else ():
        for name, keys in CURVES.items():
            for value in (record[key] for key in keys if key in record):
                row = [x for x in (record.get("env_steps"), record.get("seconds"), value) if is_number(x)]
                if len(row) == 3:
                    points[name].append(row)
                gaps[name] += not is_number(value)
    return {name: _curve(rows, gaps[name]) for name, rows in points.items() if rows}


def _from_step_0(found: Mapping[str, Curve], before: Mapping[str, object]) -> dict[str, Curve]:
    """The same curves; held-out evaluations begin with what was measured before training."""
    held = found.get("evaluation")
    if held is None or not is_number(before.get("mean")):
        return dict(found)
    env_steps, seconds = (np.concatenate([[0.0], x]) for x in (held.env_steps, held.seconds))
    value = np.concatenate([[_number(before, "mean")], held.value])
    return {**found, "evaluation": Curve(env_steps, seconds, value, held.gaps)}


def _curve(rows: list[list[float]], gaps: int) -> Curve:
    env_steps, seconds, value = np.array(rows, dtype=np.float64).T
    return Curve(np.maximum.accumulate(env_steps), np.maximum.accumulate(seconds), value, gaps)  # a clock may go back


def _reference(given: object) -> Reference | None:
    """None for a run that has none, and where no score could be divided by what lies between low and high."""
    if given is None:
        return None
    values = _dict(given)
    low, high = values["low"], values["high"]
    if not (is_number(low) and is_number(high) and high - low > 1 / HUGE):
        return None
    return Reference(low, high, str(values["low_is"]), str(values["high_is"]))


def _alarm(alarm: object) -> str:
    """`name: message`, or whatever text an alarm is."""
    values = _dict(alarm)
    return f"{values.get('name', 'alarm')}: {values.get('message', '')}" if values else str(alarm)


def _dict(value: object) -> dict[str, object]:
    return value if isinstance(value, dict) else {}


def _text(values: Mapping[str, object], key: str) -> str:
    """A text that must be there. Raises KeyError or TypeError."""
    value = values[key]
    if not isinstance(value, str):
        raise TypeError(f"{key} is {str(value)[:40]}")
    return value


def _number(values: Mapping[str, object], key: str) -> float:
    """A number that must be there. Raises KeyError or TypeError."""
    value = values[key]
    if not is_number(value):
        raise TypeError(f"{key} is {str(value)[:40]}")
    return value
