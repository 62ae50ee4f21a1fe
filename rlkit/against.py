"""The paired test against another run or checkpoint: which runs can be paired, and the result."""

import os
from dataclasses import asdict

from rlkit import statistics
from rlkit.api import Env, Scores, UserError
from rlkit.evaluation import Evaluate, Subject, opened, scored
from rlkit.paths import home
from rlkit.seeding import drawn_apart
from rlkit.settings import config, plugins, repeat, trust
from rlkit.settings.assemble import make_env
from rlkit.settings.measured import only_evaluated
from rlkit.statistics.episodes import Measured, Paired, summarize


class Against(Paired):
    """The result of a comparison with another run or checkpoint, in evaluation-*.json."""

    folder: str
    checkpoint: str
    theirs: Measured
    says: str


Place = tuple[str, str | None]  # a run folder and its checkpoint; None: the one that the run measures


def rival(subject: Subject, asked: Evaluate, place: Place, line: config.Given | None = None) -> Subject:
    """Open the run or checkpoint to compare with; refuse one that cannot be paired with this run.

    line: where files of both lie now, if they have moved.
    """
    text, (folder, checkpoint) = asked.against or "", place
    given = given_of(subject, folder)
    given.trust = asked.trust
    if line is not None:
        config.follow(line, given)
    other = opened(given, folder, checkpoint, asked, subject.env.seed)
    ours, theirs = (world(s.given) for s in (subject, other))
    for key in [*ours, *theirs]:
        if ours.get(key) != theirs.get(key):
            values = f"{ours.get(key)} here, {theirs.get(key)} there"
            raise UserError(f"against={text} was trained on something else: {key} is {values}")
    kinds = subject.env.scored(subject.policy), other.env.scored(other.policy)
    if kinds[0] != kinds[1]:
        raise UserError(f"against={text} is scored by {kinds[1]} and this run by {kinds[0]}: they cannot be paired")
    if kinds[0] == "pairs" and other.env.plays:
        check_writers(text, subject, other)
    if subject.env.kind == "control":
        other.env = twin(subject)
    return other


def given_of(subject: Subject, folder: str) -> config.Given:
    """The configuration in the other folder; an environment that a program gave for this run is used for both."""
    given = config.from_folder(folder)
    if given.env.get("entry") == subject.given.env.get("entry"):
        given.factory = subject.given.factory
    return given


def refuse_code(subject: Subject, folder: str) -> None:
    """Refuse a folder that names code from outside: a program states trust only by opening the run itself."""
    if found := trust.outside(given_of(subject, folder)):
        raise UserError(
            f"{folder} would run code from outside rlkit: {', '.join(found)}; "
            f"against=rlkit.load({folder!r}, trust=True) allows it"
        )


def twin(subject: Subject) -> Env:
    """A copy of the first run's environment: if a world depends on the run's seed, both runs play in the same world."""
    given = subject.given
    module = plugins.load("envs", given.env["name"])
    built, run = config.build(module.Config, given.env, "env"), config.build(config.Run, given.run, "run")
    env = make_env(given, module, built, run)
    env.seed = subject.env.seed
    return env


def check_writers(text: str, subject: Subject, other: Subject) -> None:
    """Refuse reward models whose attempts come from different writers, the frozen copies of their initial models."""
    ours, theirs = (writer(s) for s in (subject, other))
    for key in ours:
        if ours[key] != theirs[key]:
            raise UserError(
                f"against={text} ranks what {key}={theirs[key]} writes and this run what {key}={ours[key]} writes"
            )


def writer(subject: Subject) -> dict[str, object]:
    """The keys that determine how the untrained model of a run writes; random weights depend on the run's seed."""
    built = vars(config.build(config.network_class("text"), subject.given.policy, "policy"))
    keys = ("model", "temperature", "fresh", "adapter", "base_dtype", "dtype", "template")
    seed = {"seed": subject.given.run.get("seed", 0)} if built["fresh"] else {}
    return {f"policy.{key}": built[key] for key in keys} | seed


def place_of(against: str) -> Place:
    """Parse RUN_FOLDER[:CHECKPOINT]; an existing run folder with a colon in its name is that folder."""
    head, colon, name = against.rpartition(":")
    whole, named = (os.path.isfile(home(folder) / "config.yaml") for folder in (against, head))
    named = bool(colon) and named and not whole
    folder, checkpoint = (head, name) if named else (against, None)
    if not folder or checkpoint == "":
        raise UserError(f"against={against} is not understood: give RUN_FOLDER or RUN_FOLDER:CHECKPOINT")
    return folder, checkpoint


def world(given: config.Given) -> dict[str, object]:
    """The keys that two runs must share for the same episodes: the environment, and keys that change episodes."""
    name = given.env["name"]
    built = config.build(plugins.load("envs", name).Config, given.env, "env")
    keys = {f"env.{key}": value for key, value in asdict(built).items() if key not in ("rows", "luck")}
    return {"env": name, **{key: value for key, value in keys.items() if not repeat.in_processes(key, value)}}


def compared(subject: Subject, other: Subject, scores: Scores, asked: Evaluate) -> tuple[Against, Scores]:
    """A paired test of the greedy scores, for evaluation-*.json, and the scores of the other subject."""
    metric, what, (ours, theirs) = subject.env.metric, other.env.scored(other.policy), labels(subject, other)
    with drawn_apart(other.env.seed, asked.split):  # as this run was measured
        rivals = scored(other, asked)
    if len(rivals.score) != len(scores.score) or rivals.items != scores.items:
        raise UserError(f"{theirs} was measured on other {what}: they cannot be paired")
    found = statistics.compare(metric, scores.score.numpy(), rivals.score.numpy())
    says = statistics.verdict(found, ours, theirs)
    theirs_alone = summarize(metric, rivals, True)
    folder, checkpoint = str(other.called), other.checkpoint
    return {"folder": folder, "checkpoint": checkpoint, "theirs": theirs_alone, **found, "says": says}, rivals


def labels(subject: Subject, other: Subject) -> tuple[str, str]:
    """The shortest names that distinguish two subjects: folder, checkpoint, both, or whole paths."""
    folders, checkpoints = [s.folder.resolve() for s in (subject, other)], [s.checkpoint for s in (subject, other)]
    if folders[0] == folders[1]:
        return (checkpoints[0], checkpoints[1]) if checkpoints[0] != checkpoints[1] else ("this", "itself")
    names = [folder.name for folder in folders]
    if names[0] == names[1]:
        names = [str(folder) for folder in folders]
    ours, theirs = (n if c == "latest" else f"{n}:{c}" for n, c in zip(names, checkpoints, strict=True))
    return ours, theirs


def unlearned(subject: Subject, other: Subject) -> str:
    """Of which of two subjects the score says nothing of what was learned, in a line; empty where of none."""
    both = zip((subject, other), labels(subject, other), strict=True)
    fixed = [name for s, name in both if only_evaluated(s.policy)]
    return f"{' and '.join(fixed)}: learning changes values there, never the policy that is scored" if fixed else ""
