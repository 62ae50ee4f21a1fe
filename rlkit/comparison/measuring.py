"""How the runs of a comparison were measured: by which parameters, chosen among how many, on how many episodes.

The best of k parameters, chosen on validation episodes, scores higher than the last ones of the same run, and the more
so the larger k is. Scores are comparable where all runs followed one rule.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from rlkit.comparison.numbers import Results
from rlkit.comparison.records import Record
from rlkit.errors import UserError

ALWAYS = ("measure", "evaluation_episodes")  # keys that two runs must share to be measured alike
OF_THE_BEST = ("evaluations", "validation_episodes")  # and those where parameters are chosen


def check_alike(env: str, runs: Mapping[str, Mapping[str, object]]) -> None:
    """Refuse to measure algorithms differently in one environment; `runs` holds the run section of each.

    Raises: UserError, naming the first key that differs.
    """
    first, one = next(iter(runs.items()))
    for algo, other in runs.items():
        best = other["measure"] == "best"
        for key in (*ALWAYS, *(OF_THE_BEST if best else ())):
            if other[key] != one[key]:
                mine, its = ("none" if x[key] is None else x[key] for x in (other, one))
                raise UserError(
                    f"on {env} {algo} is measured with {key}={mine}, {first} with {key}={its}: "
                    "give all algorithms of an environment the same"
                )
        if best and other["evaluate_every"]:
            raise UserError(
                f"measure=best with evaluate_every={other['evaluate_every']} would choose among more parameters of one "
                "algorithm than of another: give evaluations=N"
            )


def chosen(records: Iterable[Record]) -> str:
    """By which parameters these runs were measured: the last ones, or the best of so many."""
    runs = list(records)
    best = [r for r in runs if r.measure == "best"]
    found = ["its last parameters"] if len(best) < len(runs) else []
    if best:
        counts = sorted({r.candidates for r in best})
        number = f"{counts[0]} to {counts[-1]}" if len(counts) > 1 else str(counts[0])
        sizes = sorted({r.validation_episodes for r in best})
        where = " or ".join("the environment's" if size in ("", "None") else size for size in sizes)
        found.append(f"the best of {number} evaluations on {where} validation episodes")
    return " or ".join(found)


def rule(r: Record) -> tuple[str, int, str]:
    """By which parameters a run was measured, and how they were chosen."""
    return (r.measure, r.candidates, r.validation_episodes) if r.measure == "best" else (r.measure, 0, "")


def by_algorithm(records: Sequence[Record], env: str) -> dict[str, list[Record]]:
    runs: dict[str, list[Record]] = {}
    for r in records:
        if r.env == env:
            runs.setdefault(r.algo, []).append(r)
    return runs


def unequal(records: Sequence[Record]) -> Iterator[str]:
    """What is not comparable about how algorithms were measured: a sentence each."""
    for env in dict.fromkeys(r.env for r in records):
        runs = by_algorithm(records, env)
        if len({rule(r) for group in runs.values() for r in group}) > 1:
            said = "; ".join(f"{algo} by {chosen(group)}" for algo, group in runs.items())
            yield f"On {env} the runs were not measured alike: {said}. Choosing the best raises a score."
        sizes = {algo: sorted({r.episodes for r in group}) for algo, group in runs.items()}
        if len({tuple(size) for size in sizes.values()}) > 1:
            unit = next((r.scored for r in records if r.env == env and r.scored), "episodes")
            words = [f"{algo} on {' or '.join(map(str, size))}" for algo, size in sizes.items()]
            words[0] += f" test {unit}"
            yield f"On {env} the runs were not measured equally long: {'; '.join(words)}."


def sentence(records: Sequence[Record]) -> str:
    """The rule of a whole comparison, for its page."""
    rest = "and steps that were played to measure are not counted."
    rules = {env: chosen(r for r in records if r.env == env) for env in dict.fromkeys(r.env for r in records)}
    if list(unequal(records)):
        return f"Measured: not alike, as the warnings say. Every score is of the test split, {rest}"
    if {r.measure for r in records} == {"latest"}:
        return (
            "Measured: the last parameters of each run (measure=latest), once, on the test split. No validation result "
            f"chose them, {rest}"
        )
    one = set(rules.values())
    said = one.pop() if len(one) == 1 else "; ".join(f"on {env} {how}" for env, how in rules.items())
    return f"Measured: of each run {said} (measure=best), once, on the test split, which did not choose them, {rest}"


def without_curves(records: Iterable[Record], results: Results) -> Iterator[str]:
    """Environments of which nothing is drawn over steps and seconds, for want of points in some of the runs."""
    begun = dict.fromkeys(r.env for r in records if r.curves)
    if envs := [env for env in begun if results["envs"][env]["curve"] is None]:
        yield (
            f"No curves are drawn of {' and '.join(envs)}: each run there has to have three evaluations, or else two "
            "logged iterations with attempts that ended."
        )
