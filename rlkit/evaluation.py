"""Measure a run: scores with intervals, pass@k, the distribution of returns, a paired test against another run."""

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from rlkit import statistics
from rlkit.api import Acts, Algorithm, Count, Env, Policy, Scores, Split, UserError
from rlkit.fields import Episodes, Seed
from rlkit.paths import as_written, home
from rlkit.policies import discount
from rlkit.progress import restore_policy
from rlkit.recording.files import parse, read_text, replacing, write_atomically
from rlkit.recording.twins import copied
from rlkit.recording.undo import as_before
from rlkit.scores import checked
from rlkit.seeding import drawn_apart
from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.settings.config import Threads
from rlkit.settings.given import Trust
from rlkit.settings.measured import own_checkpoint
from rlkit.statistics.episodes import Interval, interval, pass_at_k, summarize
from rlkit.terminal import say

LARGEST = 1 << 26  # most bytes of an evaluation-*.json, which holds the return of each episode
Report = dict[str, Any]  # evaluation-*.json: checkpoint, iteration, greedy, sampled, pass@K, exact, against


@dataclass(frozen=True)
class Evaluate:
    """How to measure a run: the keys of the command and of `run.evaluate`."""

    checkpoint: str | None = None  # latest, best, or another name in the folder; none: the one that the run measures
    episodes: Episodes | None = None  # number of episodes or problems; none: the environment's default
    split: Split = "test"  # split of episodes or problems to measure on
    pass_at: tuple[Count, ...] = ()  # text: estimate pass@k for these k
    samples: Count | None = None  # text: answers sampled per problem; none: the largest k of pass_at
    against: str | None = None  # RUN_FOLDER[:CHECKPOINT] to compare with, on the same episodes or problems
    video: str | None = None  # control: FILE.gif for a video of the first episode, played greedily
    device: str = "auto"  # auto, cpu, cuda or cuda:N; it may differ from the training device
    threads: Threads = 0  # torch threads, up to the cores; 0: one for control, OMP_NUM_THREADS or all for text
    seed: Seed | None = None  # seed of the episodes and of sampling; none: the run's own

    trust: Trust = False  # run code from outside rlkit that the folders name; changed: also if it was changed

    def __post_init__(self) -> None:
        if self.samples is not None and max(self.pass_at, default=0) > self.samples:
            raise UserError(f"pass@{max(self.pass_at)} needs as many answers: raise samples={self.samples}")


@dataclass
class Subject:
    """A run with the parameters of one of its checkpoints."""

    folder: Path  # absolute path
    called: Path  # the same path as typed
    checkpoint: str
    iteration: int  # iteration after which the parameters were saved
    given: config.Given
    env: Env
    algo: Algorithm

    @property
    def policy(self) -> Policy:
        return self.algo.policy


def opened(
    given: config.Given, folder: str | Path, checkpoint: str | None, asked: Evaluate, seed: int | None = None
) -> Subject:
    """A run at one of its checkpoints, on the requested device and with the requested starts.

    It is put together with its own seed, on which prompts and problems may depend; `seed` and `asked.seed` affect only
    the draws of the evaluation.

    `given` is the result of `config.from_folder`. checkpoint=None: the one that the run measures.
    """
    if checkpoint is None:
        checkpoint = own_checkpoint(given.run.get("measure"), folder)
    elif not checkpoint or Path(checkpoint).name != checkpoint:
        raise UserError(
            f"checkpoint={checkpoint} names none: give latest, best or iteration-N, as in {folder}/checkpoints"
        )
    given.run |= {"device": asked.device, "threads": asked.threads}
    given.by_itself()
    called = home(folder)
    held = called.absolute()  # now, as an environment may change the directory
    parts = assemble(given)
    with as_written(held, called):
        iteration = restore_policy(held, parts.algo, parts.env, checkpoint).iteration
    seed = asked.seed if seed is None else seed
    if seed is not None:
        parts.env.seed = seed
    if isinstance(parts.algo.policy, nn.Module):
        parts.algo.policy.eval()  # nobody trains it any more
    return Subject(held, called, checkpoint, iteration, given, parts.env, parts.algo)


def which(subject: Subject) -> str:
    """A phrase that names the measured checkpoint, and its relation to the one that the run measures."""
    own = own_of(subject)
    same = subject.checkpoint == own
    said = ": what the run itself measures" if same else f"; the run itself measures {own}"
    return f"checkpoint {subject.checkpoint}, of iteration {subject.iteration}{said}"


def own_of(subject: Subject) -> str:
    """The checkpoint that the run itself measures."""
    return own_checkpoint(subject.given.run.get("measure"), subject.folder)


def refuse(subject: Subject, asked: Evaluate) -> None:
    """Refuse keys that do not apply to this run."""
    if asked.pass_at or asked.samples:
        given = "pass_at" if asked.pass_at else "samples"
        if subject.env.scored(subject.policy) != "problems":
            raise UserError(f"{given} counts correct answers and this run writes none: leave it out")
        if subject.env.metric != "accuracy":
            raise UserError(f"{given} counts correct answers and the score of this run is a return: leave it out")
    if asked.samples and not asked.pass_at:
        raise UserError(f"samples={asked.samples} are answers that pass_at counts: give pass_at=1,8 or others, too")
    if asked.seed is not None and subject.env.scored(subject.policy) == "pairs" and not subject.env.plays:
        raise UserError(f"seed={asked.seed} is for what an evaluation draws, and stored pairs are not: leave it out")
    if asked.video is None:
        return
    if subject.env.kind == "text":
        raise UserError("video= shows a control problem and this run is text: its answers are in completions-*.jsonl")
    if not drawable(subject.env):
        kind = type(subject.env).__name__
        raise UserError(f"video= draws a rlkit.control.ControlEnv, and this run plays a {kind}: leave it out")
    path = home(asked.video)
    if path.suffix.lower() != ".gif":
        raise UserError(f"video={asked.video} is not written: give a name that ends in .gif")
    if not os.path.isdir(path.parent):
        raise UserError(f"video={asked.video}: there is no folder {path.parent}")


def drawable(env: Env) -> bool:
    """Whether rlkit can make copies of an environment and draw them."""
    from rlkit.control.env import ControlEnv  # a run on text needs none

    return isinstance(env, ControlEnv)


def measured(subject: Subject, asked: Evaluate) -> tuple[Report, Scores]:
    """The content of evaluation-*.json for the run itself, and the greedy scores.

    The result is the same each time: the counters of draws and the state of the policy are restored, and what draws
    from the global generators, such as an environment or a reward of somebody's own, draws by the seed and the split,
    as in the run itself.
    """
    env, drawn = subject.env, copied(subject.env.state_dict())
    try:
        with drawn_apart(env.seed, asked.split):
            return _measured(subject, asked)
    finally:
        env.load_state_dict(drawn)


def _measured(subject: Subject, asked: Evaluate) -> tuple[Report, Scores]:
    env, policy = subject.env, subject.policy
    found: Report = {"checkpoint": subject.checkpoint, "iteration": subject.iteration}
    greedy = scored(subject, asked)
    both = {"greedy": greedy}
    if env.scored(policy) != "pairs":  # a reward model writes no answers
        both["sampled"] = scored(subject, asked, greedy=False)
    for name, scores in both.items():
        each = found[name] = summarize(env.metric, scores, name == "greedy")
        if env.metric == "return":
            each["distribution"] = statistics.distribution(scores.score.numpy())
            if scores.truncated is not None:
                each["at_step_limit"] = float(scores.truncated.double().mean())
            each["returns"], each["lengths"] = scores.score.tolist(), scores.length.tolist()
    if asked.pass_at:
        n = asked.samples or max(asked.pass_at)
        with as_before(subject.algo, env):
            found |= pass_at(env, policy, asked.pass_at, n, asked.episodes, asked.split)
    with as_before(subject.algo, env):
        exact = env.exact(policy, discount(subject.algo.config))
    if exact:
        found["exact"] = {**exact}
    return found, greedy


def scored(subject: Subject, asked: Evaluate, greedy: bool = True) -> Scores:
    """One score for each episode or problem; the policy is then as it was."""
    with as_before(subject.algo, subject.env):
        return checked(subject.env, subject.env.evaluate(subject.policy, asked.episodes, asked.split, greedy))


def pass_at(
    env: Env, policy: Policy, ks: Sequence[int], n: int, episodes: int | None, split: Split
) -> dict[str, Interval]:
    """Sample n answers per problem; for each k, pass@k as a mean over problems with its interval."""
    found = [env.evaluate(policy, episodes, split, greedy=False).score.clone() for _ in range(n)]
    correct = (torch.stack(found) > 0.5).sum(0).tolist()  # [problems]
    return {f"pass@{k}": interval(np.array([pass_at_k(n, c, k) for c in correct])) for k in ks}


def place(folder: Path, what: str, ending: str, split: Split, checkpoint: str = "") -> Path:
    """evaluation-SPLIT.json, or evaluation-SPLIT-CHECKPOINT.json."""
    return folder / f"{what}-{split}{checkpoint and f'-{checkpoint}'}.{ending}"


def write(subject: Subject, found: Report, scores: Scores, asked: Evaluate) -> Path | None:
    """Write evaluation-*.json, and the greedy answers beside it. Returns: the path of the answers.

    The file name includes the checkpoint, unless it is the one that the run itself measures.
    """
    own = subject.checkpoint == own_of(subject)
    if own:
        make_way(subject, asked.split)
    name = "" if own else subject.checkpoint
    report = place(subject.folder, "evaluation", "json", asked.split, name)
    told = json.dumps(found, indent=1) + "\n"
    if not scores.samples:
        write_atomically(report, told)
        return None
    path = place(subject.folder, "completions", "jsonl", asked.split, name)
    with replacing(path) as answers:
        for record in scores.samples:
            answers.write((json.dumps(record, ensure_ascii=False) + "\n").encode("utf-8", "replace"))
        answers.flush()
        with replacing(report) as file:
            file.write(told.encode())
            file.flush()
            path.unlink(missing_ok=True)  # killed between the two files, it leaves no answers of an earlier evaluation
    return subject.called / path.name


def make_way(subject: Subject, split: Split) -> None:
    """Rename an earlier evaluation of another checkpoint: `measure` of the run may have changed since."""
    path = place(subject.folder, "evaluation", "json", split)
    try:
        held = parse(read_text(path, LARGEST))
    except (UserError, ValueError):
        return  # no file, or an unreadable one
    # An older version measured the latest checkpoint and did not record that.
    was = held.get("checkpoint", "latest") if isinstance(held, dict) else None
    if was == subject.checkpoint or was not in ("latest", "best"):
        return
    own = place(subject.folder, "evaluation", "json", split, was)
    if own.is_file() and own.stat().st_mtime >= path.stat().st_mtime:
        return  # that checkpoint was measured again meanwhile
    place(subject.folder, "completions", "jsonl", split, was).unlink(missing_ok=True)  # of an older evaluation
    for what, ending in (("evaluation", "json"), ("completions", "jsonl")):
        before, after = (place(subject.folder, what, ending, split, name) for name in ("", was))
        if before.is_file():
            os.replace(before, after)
            say(f"{subject.called / before.name} was of checkpoint {was}: it is {after.name} now")


def film(subject: Subject, asked: Evaluate, here: Path) -> Path:
    """Write a video of the first episode, played greedily, into the file of `video`; a relative path starts `here`."""
    from rlkit.control.env import ControlEnv
    from rlkit.control.video import frames, write_gif

    path, env, policy = home(asked.video or ""), subject.env, subject.policy
    held = here / path
    assert isinstance(env, ControlEnv) and isinstance(policy, Acts), "refused before"
    with as_before(subject.algo, env):
        drawn = frames(env, policy, 0, asked.split)
    with as_written(held, path), replacing(held) as file:
        write_gif(drawn, file)
    return path
