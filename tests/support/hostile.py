"""Damaged and hostile files and folders, from a seed: one file of a run, a model or a source has gone wrong."""

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from support import damage
from support.forked import Stage
from support.lines import EVALUATED, SMALL, least

EVIL = """from pathlib import Path
Path({path!r}).write_text("ran")
def f(*args, **kwargs):
    return []
"""
JSON = {"says": damage.says_json}
WEIGHTS = {"other tensors": damage.other_tensors, "a big header": damage.big_header}
KINDS: dict[str, dict[str, damage.Way]] = {  # of file → what can be wrong with it
    "config.yaml": {**damage.YAML, **damage.BYTES, **damage.PLACES},
    "checkpoints/latest.safetensors": {**damage.CHECKPOINT, **damage.BYTES, **damage.PLACES},
    **{name: {**JSON, **damage.BYTES, **damage.PLACES} for name in ("metrics.jsonl", "before.json", "summary.json")},
    "completions.jsonl": {**JSON, **damage.BYTES, **damage.PLACES},
    ".lock": {**damage.BYTES, **damage.PLACES},
    "events": {**damage.BYTES, **damage.PLACES},
    "planted": damage.PLACES,  # a file that is about to be written
    "model/config.json": {**JSON, **damage.BYTES, **damage.PLACES},
    "model/tokenizer.json": {**JSON, **damage.BYTES, **damage.PLACES},
    "model/model.safetensors": {**WEIGHTS, **damage.BYTES, **damage.PLACES},
    "rows.jsonl": {**JSON, **damage.BYTES, **damage.PLACES},
    "pairs.jsonl": {**JSON, **damage.BYTES, **damage.PLACES},
}
MODEL = ("model/config.json", "model/tokenizer.json", "model/model.safetensors")
PLANTED = ("evaluation-test.json", ".config.yaml.new", ".summary.json.new", "summary.json.new", "checkpoints/.new",
           "checkpoints/iteration-2.safetensors", "checkpoints/best.safetensors", ".lock",
               "completions-test.jsonl")  # fmt: skip
COMMANDS = ("resume", "evaluate", "against", "play", "compare")
TEXT_RUN = [
    f"env.{key}={text}"
    for key, text in SMALL["env"].items()
    if key in ("rows", "max_tokens", "train", "test", "validation")
]
TEXT_RUN += ["iterations=1", *EVALUATED[2:]]


@dataclass(frozen=True)
class Case:
    """A file that has gone wrong in some way, and what is then asked of the folder."""

    index: int
    run: str  # which folder lies there
    file: str  # a pattern, from where the command starts
    way: str
    words: tuple[str, ...]
    stage: Stage
    how: damage.Way = field(compare=False, repr=False)
    long: bool = False

    def damage(self, box: Path, outside: Path, seed: int) -> None:
        """Let it go wrong."""
        path = next(box.glob(self.file), box / self.file)
        for folder in {box, box / self.run, path.parent}:
            if folder.is_dir():
                (folder / "evil.py").write_text(EVIL.format(path=str(outside / "ran.txt")))
        if not path.exists():
            path.parent.mkdir(exist_ok=True)
            path.touch()
        if path.is_dir():
            shutil.rmtree(path)
            path.touch()
        self.how(path, Random(f"{seed} {self.index}"), outside)


class Cases:
    """The cases of a seed, one after the other: the file, the way and the command that came least come first."""

    kinds = KINDS

    def __init__(self, seed: int) -> None:
        self.seed, self.index = seed, 0
        self.covered: dict[str, Counter[tuple[str, ...]]] = {kind: Counter() for kind in ("file", "way", "command")}

    def __iter__(self) -> Iterator[Case]:
        while True:
            yield self.case()
            self.index += 1

    def report(self) -> dict[str, tuple[int, int]]:
        """Of the files, and of the ways in which each can go wrong: how many were tried, of how many."""
        ways = sum(map(len, self.kinds.values()))
        return {"file": (len(self.covered["file"]), len(self.kinds)), "way": (len(self.covered["way"]), ways)}

    def case(self) -> Case:
        draw = Random(f"{self.seed} {self.index}")
        weights = [2 if name in ("config.yaml", "checkpoints/latest.safetensors") else 1 for name in KINDS]
        kind = draw.choices([*KINDS], weights)[0]
        _, way = least(draw, self.covered["way"], [(kind, way) for way in KINDS[kind]])
        self.covered["file"][kind,] += 1
        self.covered["way"][kind, way] += 1
        run = "words" if kind in (*MODEL, "completions.jsonl") else draw.choice(["table", "net", "words", "table"])
        file = draw.choice(PLANTED) if kind == "planted" else kind
        if kind in ("rows.jsonl", "pairs.jsonl"):
            return self._source(draw, kind, way)
        if kind in MODEL:
            return self._model(draw, kind, way)
        commands = (*COMMANDS, "config") if kind == "config.yaml" else COMMANDS
        _, command = least(draw, self.covered["command"], [(kind, command) for command in commands])
        self.covered["command"][kind, command] += 1
        words = {
            "resume": ("run", f"resume={run}", "iterations=4", "threads=1"),
            "evaluate": ("evaluate", run, "episodes=1"),
            "against": ("evaluate", "other", f"against={run}", "episodes=1"),
            "play": ("play", run, "open=false"),
            "compare": ("compare", run, "other", "out=report"),
            "config": ("run", f"config={run}/config.yaml", "threads=1"),
        }[command]
        slow = command == "compare" or (command in ("resume", "config") and run == "words")
        stage: Stage = "built" if slow and draw.random() < 0.7 else "whole"
        name = "events.out.tfevents.*" if file == "events" else file
        return self._made(run, f"{run}/{name}", kind, way, words, stage)

    def _source(self, draw: Random, kind: str, way: str) -> Case:
        env = "gsm8k" if kind == "rows.jsonl" else "preferences"
        algo = draw.choice(["sft", "grpo"] if env == "gsm8k" else ["dpo", "sft", "reward_model"])
        stage: Stage = "whole" if draw.random() < 0.3 else "built"
        idle = ("env.train",) if env == "gsm8k" else ("env.train", "env.max_tokens")
        keys = [word for word in TEXT_RUN if not word.startswith(idle)]
        words = ("run", f"algo={algo}", f"env={env}", f"env.source={kind}", *keys)
        return self._made("words", kind, kind, way, words, stage)

    def _model(self, draw: Random, kind: str, way: str) -> Case:
        named = draw.choice(["policy.model=words", "policy.model=words/model", "env.reward=model:words"])
        stage: Stage = "whole" if draw.random() < 0.3 else "built"
        words = ("run", "algo=grpo", "env=gsm8k", "algo.group=2", named, *TEXT_RUN)
        if kind == "model/config.json" and draw.random() < 0.3:
            words = ("plan", "model=words/model")
        return self._made("words", f"words/{kind}", kind, way, words, stage)

    def _made(self, run: str, file: str, kind: str, way: str, words: tuple[str, ...], stage: Stage) -> Case:
        return Case(self.index, run, file, way, words, stage, self.kinds[kind][way])
