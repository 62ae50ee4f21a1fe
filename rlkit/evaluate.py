"""Measure a run: python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...]

Greedy and sampled scores with 95 % intervals, pass@k and completions for text, the distribution of returns and a GIF
for control, and a paired test against another run or checkpoint. docs/evaluation.md says what each number means.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from rlkit import config, plugins, schema, statistics, usage
from rlkit.api import Count, Natural, Scores, Split, UserError
from rlkit.config import Threads
from rlkit.policies import discount
from rlkit.statistics import bootstrap, pass_at_k, summarize

__all__ = ["main", "summarize"]

HELP = """python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...]     measure a run
python -m rlkit.evaluate RUN_FOLDER against=RUN_FOLDER  compare it with another
What is measured goes to evaluation-SPLIT.json in the first folder."""
USAGE = "write: python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...] (--help lists the keys)"


@dataclass(frozen=True)
class Evaluate:
    """The keys of the command line."""

    checkpoint: str = "latest"  # latest, best, or another name from the folder checkpoints
    episodes: Count | None = None  # how many episodes or problems; none: the environment's default
    split: Split = "test"  # the episodes or problems to measure on
    pass_at: tuple[Count, ...] = ()  # text: estimate pass@k for these k
    samples: Count | None = None  # text: answers drawn for each problem; none: the largest k of pass_at
    against: str | None = None  # RUN_FOLDER[:CHECKPOINT] to compare with, on the same episodes or problems
    video: str | None = None  # control: FILE.gif, into which the first episode is drawn, played greedily
    device: str = "auto"  # auto, cpu, cuda or cuda:N, whatever the run was trained on
    threads: Threads = 0  # torch threads; 0: one for control, OMP_NUM_THREADS or all cores for text
    seed: Natural | None = None  # of the episodes' starts and of what is sampled; none: the run's own

    def __post_init__(self) -> None:
        if self.samples is not None and max(self.pass_at, default=0) > self.samples:
            raise UserError(f"pass@{max(self.pass_at)} needs as many answers: raise samples={self.samples}")


@dataclass
class Subject:
    """A run whose parameters are those of one of its checkpoints."""

    folder: Path
    checkpoint: str
    given: config.Given
    env: Any
    policy: Any
    gamma: float


def pass_at(
    env: Any, policy: Any, ks: Sequence[int], n: int, episodes: int | None, split: Split
) -> dict[str, dict[str, float]]:
    """Sample n answers a problem; for each k the mean over problems with a bootstrap interval."""
    scores = torch.stack([env.evaluate(policy, episodes, split, greedy=False).score for _ in range(n)])  # [n, problems]
    correct = (scores > 0.5).sum(0).tolist()
    rows = {}
    for k in ks:
        each = np.array([pass_at_k(n, c, k) for c in correct])
        low, high = bootstrap(each)
        rows[f"pass@{k}"] = {"mean": float(each.mean()), "low": low, "high": high}
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    from rlkit.run import guarded

    return guarded(evaluate, sys.argv[1:] if argv is None else list(argv))


def evaluate(argv: list[str]) -> int:
    from rlkit.checkpoint import write_atomically

    if not argv or {"-h", "--help"} & set(argv):
        usage.print_pages(HELP, [("the keys", schema.explain(Evaluate, {}, "evaluate"))])
        return 0
    asked = read(argv)
    subject = opened(argv[0], asked.checkpoint, asked)
    refuse(subject, asked)
    other = rival(subject, asked) if asked.against is not None else None
    if asked.video is not None:  # before hours of measuring: what draws may not be installed
        film(subject, asked)
    found, scores = measured(subject, asked)
    show(subject, found, scores, asked)
    if other:
        found["against"] = compared(subject, other, scores, asked)
    write_atomically(place(subject, "evaluation", "json", asked), json.dumps(found, indent=1) + "\n")
    if scores.samples:
        lines = [json.dumps(record, ensure_ascii=False) + "\n" for record in scores.samples]
        path = place(subject, "completions", "jsonl", asked)
        write_atomically(path, "".join(lines))
        print(f"every greedy answer is in {path}")
    return 0


def read(argv: Sequence[str]) -> Evaluate:
    """The keys that follow the run folder."""
    folder, *words = argv
    if "=" in folder and not Path(folder).expanduser().exists():
        raise UserError(f"which run? {USAGE}")
    strange = [word for word in words if "=" not in word]
    if strange:
        raise UserError(f"'{strange[0]}' is not understood: {USAGE}")
    return config.build(Evaluate, dict(word.split("=", 1) for word in words), "evaluate")


def opened(folder: str | Path, checkpoint: str, asked: Evaluate, seed: int | None = None) -> Subject:
    """A run as one of its checkpoints left it, on the device and with the starts that are asked for now."""
    from rlkit import checkpoint as checkpoints
    from rlkit.settings.assemble import assemble

    given = config.from_folder(folder)
    given.run |= {"device": asked.device, "threads": asked.threads}
    seed = asked.seed if seed is None else seed
    if seed is not None:
        given.run["seed"] = seed
    parts = assemble(given)
    folder = Path(folder).expanduser()
    saved = checkpoints.load(folder, checkpoint)["parts"]
    if "policy" in saved:  # the rest is for going on, not for measuring
        parts.algo.policy.load_state_dict(saved["policy"])
    return Subject(folder, checkpoint, given, parts.env, parts.algo.policy, discount(parts.algo.config))


def refuse(subject: Subject, asked: Evaluate) -> None:
    """Say at once what this run cannot give."""
    text = subject.env.kind == "text"
    if (asked.pass_at or asked.samples) and subject.env.scored(subject.policy) != "problems":
        raise UserError("pass_at counts correct answers and this run writes none: leave it out")
    if asked.video is None:
        return
    if text:
        raise UserError("video= shows a control problem and this run is text: its answers are in completions-*.jsonl")
    path = Path(asked.video).expanduser()
    if path.suffix.lower() != ".gif":
        raise UserError(f"video={asked.video} is not written: give a name that ends in .gif")
    if not path.parent.is_dir():
        raise UserError(f"video={asked.video}: there is no folder {path.parent}")


def measured(subject: Subject, asked: Evaluate) -> tuple[dict[str, Any], Scores]:
    """Everything that goes into evaluation-*.json about the run itself, and the greedy scores."""
    env, policy, found = subject.env, subject.policy, {}
    greedy = env.evaluate(policy, asked.episodes, asked.split)
    both = {"greedy": greedy}
    if env.scored(policy) != "pairs":  # what ranks texts writes none
        both["sampled"] = env.evaluate(policy, asked.episodes, asked.split, greedy=False)
    for name, scores in both.items():
        found[name] = summarize(env.metric, scores, name == "greedy")
        if env.metric == "return":
            found[name] |= {"distribution": statistics.distribution(scores.score.numpy())}
            if env.longest is not None:
                found[name]["at_step_limit"] = float((scores.length >= env.longest).double().mean())
            found[name] |= {"returns": scores.score.tolist(), "lengths": scores.length.tolist()}
    if asked.pass_at:
        n = asked.samples or max(asked.pass_at)
        found |= pass_at(env, policy, asked.pass_at, n, asked.episodes, asked.split)
    if exact := env.exact(policy, subject.gamma):
        found["exact"] = exact
    return found, greedy


def show(subject: Subject, found: dict[str, Any], scores: Scores, asked: Evaluate) -> None:
    from rlkit.log import table

    env, greedy = subject.env, found["greedy"]
    what = env.scored(subject.policy)
    rows = [interval(name, e) for name, e in found.items() if "low" in e]
    table(f"{env.metric} on {asked.split}, {greedy['episodes']} {what}", ["", "mean", "95 %"], rows)
    if "distribution" in greedy:
        names = [name for name in ("greedy", "sampled") if name in found]
        shapes = {name: found[name]["distribution"] for name in names}
        rows = [[key, *(f"{shapes[name][key]:.3f}" for name in names)] for key in shapes["greedy"] if key != "mean"]
        if "at_step_limit" in greedy:
            rows.append(["at the step limit", *(f"{found[name]['at_step_limit']:.0%}" for name in names)])
        table("distribution of the return", ["", *names], rows)
        print("\ngreedy returns and how many episodes had them")
        print("\n".join(f"  {line}" for line in statistics.histogram(scores.score.numpy())))
    for name, x in found.get("exact", {}).items():
        print(f"exact {name}: {x:.4f}")


def rival(subject: Subject, asked: Evaluate) -> Subject:
    """The run or checkpoint to compare with; what cannot be paired with ours is refused."""
    text = asked.against or ""
    head, colon, name = text.rpartition(":")
    named = bool(colon) and (Path(head).expanduser() / "config.yaml").is_file()
    folder, checkpoint = (head, name) if named else (text, "latest")
    if not folder or not checkpoint:
        raise UserError(f"against={text} is not understood: give RUN_FOLDER or RUN_FOLDER:CHECKPOINT")
    other = opened(folder, checkpoint, asked, subject.env.seed)
    ours, theirs = (world(s.given) for s in (subject, other))
    for key in [*ours, *theirs]:
        if ours.get(key) != theirs.get(key):
            given = f"{ours.get(key)} here, {theirs.get(key)} there"
            raise UserError(f"against={text} was trained on something else: {key} is {given}")
    kinds = subject.env.scored(subject.policy), other.env.scored(other.policy)
    if kinds[0] != kinds[1]:
        raise UserError(f"against={text} is scored by {kinds[1]} and this run by {kinds[0]}: they cannot be paired")
    writers = subject.given.policy.get("model"), other.given.policy.get("model")
    if kinds[0] == "pairs" and other.env.plays and writers[0] != writers[1]:
        raise UserError(f"against={text} ranks what {writers[1]} writes and this run what {writers[0]} writes")
    return other


def world(given: config.Given) -> dict[str, Any]:
    """What two runs must share to be measured on the same episodes: the environment and its keys except rows."""
    name = given.env["name"]
    built = config.build(plugins.load("envs", name).Config, given.env, "env")
    keys = {f"env.{key}": value for key, value in asdict(built).items() if key != "rows"}
    return {"env": name, **keys}


def compared(subject: Subject, other: Subject, scores: Scores, asked: Evaluate) -> dict[str, Any]:
    """The greedy scores of both, pair by pair, with a test; printed and returned for evaluation-*.json."""
    from rlkit.log import table

    metric, what, (ours, theirs) = subject.env.metric, other.env.scored(other.policy), labels(subject, other)
    rivals = other.env.evaluate(other.policy, asked.episodes, asked.split)
    if len(rivals.score) != len(scores.score):
        raise UserError(f"{theirs} was measured on other {what}: they cannot be paired")
    found = statistics.compare(metric, scores.score.numpy(), rivals.score.numpy())
    rows = [interval(name, summarize(metric, x, True)) for name, x in ((ours, scores), (theirs, rivals))]
    rows.append(interval("difference", {**found, "mean": found["difference"]}))
    table(f"greedy {metric}, both on the same {len(rivals.score)} {what}", ["", "mean", "95 %"], rows)
    print(f"{found['wins']} better, {found['ties']} equal, {found['losses']} worse ({found['test']} test)")
    says = statistics.verdict(found, ours, theirs)
    print(says)
    theirs_alone = summarize(metric, rivals, True)
    return {"folder": str(other.folder), "checkpoint": other.checkpoint, "theirs": theirs_alone, **found, "says": says}


def interval(name: str, e: dict[str, Any]) -> list[str]:
    """A row of a table: what it is, its mean, its 95 % interval."""
    return [name, f"{e['mean']:.3f}", f"{e['low']:.3f} to {e['high']:.3f}"]


def labels(subject: Subject, other: Subject) -> tuple[str, str]:
    """The shortest names that tell two subjects apart: folder, checkpoint, both, or the whole paths."""
    folders, checkpoints = [s.folder.resolve() for s in (subject, other)], [s.checkpoint for s in (subject, other)]
    if folders[0] == folders[1]:
        return (checkpoints[0], checkpoints[1]) if checkpoints[0] != checkpoints[1] else ("this", "itself")
    names = [folder.name for folder in folders]
    if names[0] == names[1]:
        names = [str(folder) for folder in folders]
    return tuple(n if c == "latest" else f"{n}:{c}" for n, c in zip(names, checkpoints, strict=True))  # type: ignore[return-value]


def place(subject: Subject, what: str, ending: str, asked: Evaluate) -> Path:
    """evaluation-SPLIT.json of the last checkpoint; another's is named, too, so that none overwrites the other."""
    named = "" if asked.checkpoint == "latest" else f"-{asked.checkpoint}"
    return subject.folder / f"{what}-{asked.split}{named}.{ending}"


def film(subject: Subject, asked: Evaluate) -> None:
    from rlkit.video import frames, write_gif

    path = Path(asked.video or "").expanduser()
    write_gif(frames(subject.env, subject.policy, 0, asked.split), path)
    print(f"the first episode is in {path}")


if __name__ == "__main__":
    sys.exit(main())
