"""Measure a run: python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...]

Greedy and sampled scores with 95 % intervals, pass@k and completions for text, the distribution of returns and a GIF
for control, and a paired test against another run or checkpoint. docs/evaluation.md explains each number.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from rlkit.console import guarded, loading
from rlkit.paths import as_written, back, home
from rlkit.terminal import say

if TYPE_CHECKING:
    from rlkit.against import Against
    from rlkit.api import Scores
    from rlkit.evaluation import Evaluate, Report, Subject
    from rlkit.settings.given import Given
    from rlkit.statistics.episodes import Interval

HELP = """python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...]     measure a run
python -m rlkit.evaluate RUN_FOLDER against=RUN_FOLDER  compare it with another
python -m rlkit.evaluate RUN_FOLDER video=FILE.gif      draw an episode, no more
python -m rlkit.evaluate RUN_FOLDER env.source=FILE     what it names has moved
The parameters are those that the run itself measured, or of checkpoint=NAME.
What is measured goes to evaluation-SPLIT.json in the first folder."""
USAGE = "write: python -m rlkit.evaluate RUN_FOLDER [KEY=VALUE ...] (--help lists the keys)"


def evaluate(argv: list[str]) -> int:
    with loading():
        from rlkit import against, evaluation
        from rlkit.recording.bars import bars
        from rlkit.settings import config, schema
        from rlkit.settings.help import print_pages

    if not argv or {"-h", "--help"} & set(argv):
        print_pages(HELP, [("the keys", schema.explain(evaluation.Evaluate, {}, "evaluate"))])
        return 0
    asked, line = read(argv)
    given = config.at_new_places(argv[0], line)
    kept = prepared(argv[0])  # before hours of measuring
    with bars("preparing"):
        subject = evaluation.opened(given, argv[0], asked.checkpoint, asked)
    with back(given.here):  # relative paths start there, wherever the environment has gone
        evaluation.refuse(subject, asked)
        say(evaluation.which(subject))
        other = None if asked.against is None else against.rival(subject, asked, against.place_of(asked.against), line)
    if other:
        say(f"against {other.called}: {evaluation.which(other)}")
    if asked.video is not None:  # before hours of measuring: drawing needs a package
        say(f"the first episode is in {evaluation.film(subject, asked, given.here)}")
        if only_draws(asked):
            return 0
    with bars():
        found, scores = evaluation.measured(subject, asked)
    if other is None:
        show(subject, found, scores, asked)
    else:
        with bars():
            found["against"], rivals = against.compared(subject, other, scores, asked)
        show_both(subject, other, scores, rivals, found)
    with as_written(subject.folder, subject.called):
        path = evaluation.write(subject, found, scores, asked) if kept else None
    if path:
        say(f"every greedy answer is in {path}")
    return 0


def prepared(folder: str) -> bool:
    """Whether results can be written into the folder. Raises: UserError where that should work and does not."""
    from rlkit.recording.files import prepare_folder

    if os.path.isdir(home(folder)) and not os.access(home(folder), os.W_OK):
        say(f"{folder} is read-only: what is measured is printed, and written nowhere")
        return False
    prepare_folder(folder)
    return True


def read(argv: Sequence[str]) -> "tuple[Evaluate, Given]":
    """Parse the keys after the run folder: how to measure, and where files of the run lie now."""
    from rlkit.errors import UserError
    from rlkit.evaluation import Evaluate
    from rlkit.settings import config, schema
    from rlkit.settings.given import of_files, parse

    folder, *words = argv
    if "=" in folder and not os.path.exists(home(folder)):
        raise UserError(f"which run? {USAGE}")
    strange = [word for word in words if "=" not in word]
    if strange:
        raise UserError(f"'{strange[0]}' is not understood: {USAGE}")
    schema.once(words)
    places = [word for word in words if of_files(word)]
    asked = config.build(Evaluate, dict(word.split("=", 1) for word in words if word not in places), "evaluate")
    line = parse(places)
    line.trust = asked.trust
    return asked, line


def only_draws(asked: "Evaluate") -> bool:
    """Whether video= is asked for and no key says what to measure."""
    return asked.episodes is None and not asked.pass_at and asked.against is None


def show(subject: "Subject", found: "Report", scores: "Scores", asked: "Evaluate") -> None:
    """Print the measurements."""
    from rlkit import statistics
    from rlkit.recording.log import table
    from rlkit.scores import unit_for

    env, greedy = subject.env, found["greedy"]
    what, number = env.scored(subject.policy), greedy["episodes"]
    scored = [(name, e) for name, e in found.items() if name in ("greedy", "sampled") or name.startswith("pass@")]
    rows = intervals(scored)
    table(f"{env.metric} on {asked.split}, {number} {unit_for(number, what)}", ["", "mean", "95 %"], rows)
    whole = [(name, found[name]) for name in ("greedy", "sampled") if found.get(name, {}).get("metrics")]
    beside = [(f"{x}, {name}", e) for name, each in whole for x, e in each["metrics"].items()]
    rows = intervals(beside)
    if rows:
        table("beside it", ["", "mean", "95 %"], rows)
    if "distribution" in greedy:
        names = [name for name in ("greedy", "sampled") if name in found]
        shapes = {name: found[name]["distribution"] for name in names}
        as_form = statistics.form(x for shape in shapes.values() for x in shape.values())
        keys = [key for key in shapes["greedy"] if key != "mean"]
        rows = [[key, *(f"{shapes[name][key]:{as_form}}" for name in names)] for key in keys]
        if "at_step_limit" in greedy:
            rows.append(["at the step limit", *(f"{found[name]['at_step_limit']:.0%}" for name in names)])
        table("distribution of the return", ["", *names], rows)
        say("\ngreedy returns and how many episodes had them")
        say("\n".join(f"  {line}" for line in statistics.histogram(scores.score.numpy())))
    for name, x in found.get("exact", {}).items():
        say(f"exact {name}: {x:.4f}")


def show_both(subject: "Subject", other: "Subject", scores: "Scores", rivals: "Scores", found: "Report") -> None:
    """Print two runs side by side, the result of the test, and pass@k of the first one."""
    from rlkit.against import labels, unlearned
    from rlkit.recording.log import table
    from rlkit.scores import unit_for
    from rlkit.statistics.episodes import summarize

    metric, what = subject.env.metric, other.env.scored(other.policy)
    against: Against = found["against"]
    names = labels(subject, other)
    sides = zip(names, (scores, rivals), strict=True)
    both = [(name, summarize(metric, x, True)) for name, x in sides]
    pairs = len(rivals.score)
    difference: Interval = {
        "mean": against["difference"],
        "low": against["low"],
        "high": against["high"],
        "episodes": pairs,
    }
    rows = intervals([*both, ("difference", difference)])
    table(f"greedy {metric}, both on the same {pairs} {unit_for(pairs, what)}", ["", "mean", "95 %"], rows)
    say(f"{against['wins']} better, {against['ties']} equal, {against['losses']} worse ({against['test']} test)")
    say(against["says"])
    if said := unlearned(subject, other):
        say(said)
    if passed := [(name, e) for name, e in found.items() if name.startswith("pass@")]:
        table(f"pass@k of {names[0]}", ["", "mean", "95 %"], intervals(passed))


def intervals(named: "Iterable[tuple[str, Interval]]") -> list[list[str]]:
    """The rows of a table: name, mean, 95 % interval."""
    from rlkit.statistics import form, within

    each = [*named]
    as_form = form(x for _, e in each for x in (e["mean"], e["low"], e["high"]))
    return [[name, f"{e['mean']:{as_form}}", within(e["low"], e["high"], e["episodes"], as_form)] for name, e in each]


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(evaluate, argv)


if __name__ == "__main__":
    sys.exit(main())
