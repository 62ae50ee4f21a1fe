"""The tables and sentences of a comparison: the terminal and the page say the same."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

from rlkit import statistics
from rlkit.comparison.caveats import listed, numbered
from rlkit.comparison.numbers import Results

NOTHING = "—"  # a cell without a number
MOST_DIGITS = 12  # behind the point
NAMED = 5  # names in a title; more of them are counted
Kind = Literal["all", "env", "pairs"]
KINDS = get_args(Kind)


@dataclass(frozen=True)
class Table:
    """A caption, the heads of the columns, and rows of text; the first column is a name."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    kind: Kind = "env"  # over all environments, of one, or pair by pair
    note: str = ""


def title(results: Results) -> str:
    algos, envs = list(results["algos"]), list(results["envs"])
    first = listed(algos) if len(algos) <= NAMED else f"{len(algos)} {results['rows']}"
    return f"{first} on {listed(envs) if len(envs) <= NAMED else f'{len(envs)} environments'}"


def size(results: Results) -> str:
    """What was compared: n algorithms × m environments, and how many runs."""
    n, m, runs = len(results["algos"]), len(results["envs"]), len(results["runs"])
    seeds = sorted({run["seed"] for run in results["runs"]})
    rows = results["rows"] if n > 1 else results["rows"].removesuffix("s")
    words = [f"{n} {rows} × {m} environment{'s' * (m > 1)}", f"{runs} run{'s' * (runs > 1)}"]
    return ", ".join([*words, f"seed{'s' * (len(seeds) > 1)} {numbered(seeds)}"])


def finding(results: Results) -> str:
    """What may be said of the first of the ranking against the others, and no more."""
    if len(results["algos"]) < 2:
        return ""
    if not results["shared"]:
        return "There is no ranking over all environments; the tables of each environment stand for themselves."
    best, *others = results["algos"]
    verdicts = {p["y"]: p["verdict"] for p in results["improvement"] if p["x"] == best}
    groups = [(word, [algo for algo in others if verdicts[algo] == word]) for word in dict.fromkeys(verdicts.values())]
    phrase = {
        "better": "separated from {}",
        "worse": "less likely than {} to score higher in a single run",
        "not separated": "not separated from {}",
        "too few runs": "not separated from {} (an environment with one run gives no interval)",
        "nothing in common": "not compared with {}",
    }
    said = "; ".join(phrase[word].format(listed(algos)) for word, algos in groups)
    also = f",{wider(results, best)}," if wider(results, best) else ""
    where = "" if len(results["shared"]) == len(results["envs"]) else f" on {listed(results['shared'])}"
    same = [algo for algo in results["algos"] if results["overall"][algo]["iqm"] == results["overall"][best]["iqm"]]
    if len(same) > 1:
        return f"{listed(same)} have the same, highest interquartile mean{where}: {best} is{also} {said}."
    but = "and" if groups[0][0] == "better" else "but"
    return f"{best} has the highest interquartile mean{where} {but} is{also} {said}."


def wider(results: Results, algo: str = "") -> str:
    """Words where a pair, of this algorithm if one is named, was compared in other environments than the ranking."""
    found = [p["envs"].keys() for p in results["improvement"] if algo in ("", p["x"], p["y"]) and p["envs"]]
    return " over the environments that both have" if any(envs != {*results["shared"]} for envs in found) else ""


def tables(results: Results) -> list[Table]:
    """Over all environments, in each, and pair by pair."""
    found = [over_all(results)] if results["shared"] else []
    found += [environment(results, env) for env in results["envs"]]
    return [*found, pairs(results)] if results["improvement"] else found


def over_all(results: Results) -> Table:
    next_best = {(p["x"], p["y"]): p for p in results["improvement"]}
    rows = []
    for i, algo in enumerate(results["algos"]):
        found = results["overall"][algo]
        pair = next_best.get((algo, results["algos"][i + 1])) if i + 1 < len(results["algos"]) else None
        against = NOTHING if pair is None or pair["value"] is None else f"{pair['value']:.2f}, {pair['verdict']}"
        rows.append(
            [algo, figure(found["iqm"], 3), interval(found["low"], found["high"], 3), str(found["runs"]), against]
        )
    shared = results["shared"]
    where = "over all environments" if 1 < len(shared) == len(results["envs"]) else f"on {listed(shared)}"
    words = [
        f"{env}: 0 is {r['low_is']} ({r['low']:.4g}), 1 is {r['high_is']} ({r['high']:.4g})"
        for env, r in ((env, results["envs"][env]["reference"]) for env in shared)
        if r is not None
    ]
    pairs = f" P(> next) is{wider(results)}, not only these." if wider(results) else ""
    note = f"IQM: interquartile mean. {'; '.join(words)}.{pairs}"
    return Table(f"Normalized score {where}", ["", "IQM", "95 %", "runs", "P(> next)"], rows, "all", note)


def environment(results: Results, env: str) -> Table:
    found = results["envs"][env]
    every = [x for c in found["algos"].values() for x in c["scores"]]
    digits = digits_of(every)
    rows = []
    for algo in results["algos"]:
        c = found["algos"].get(algo)
        if c is None:
            rows.append([algo, *[NOTHING] * 6])
            continue
        raw = [figure(c["mean"], digits), figure(c["iqm"], digits), interval(c["low"], c["high"], digits)]
        rows.append([algo, *raw, str(c["runs"]), f"{c['env_steps']:,.0f}", f"{c['seconds']:,.0f}"])
    return Table(f"{env}: {found['metric']}", ["", "mean", "IQM", "95 %", "runs", found["unit"], "seconds"], rows)


def pairs(results: Results) -> Table:
    """P(X > Y) of every pair of algorithms."""
    rows = []
    for p in results["improvement"]:
        value = NOTHING if p["value"] is None else f"{p['value']:.2f}"
        winner = {"better": p["x"], "worse": p["y"]}.get(p["verdict"])
        likely = p["chance"] if p["low"] is not None else None
        chance = NOTHING if likely is None else statistics.p_value(likely)
        said = f"{winner} is better" if winner else p["verdict"]
        rows.append([f"{p['x']} > {p['y']}", value, interval(p["low"], p["high"], 2), chance, said])
    return Table("Probability of improvement", ["", "P", "95 %", "p", ""], rows, "pairs")


def interval(low: float | None, high: float | None, digits: int) -> str:
    return NOTHING if low is None or high is None else f"{figure(low, digits)} to {figure(high, digits)}"


def digits_of(scores: Sequence[float]) -> int:
    """Digits behind the point of numbers that stand in a column; more where all of them are small."""
    largest = max(map(abs, scores))
    if 0 < largest < 0.01:
        return min(2 - math.floor(math.log10(largest)), MOST_DIGITS)
    return 3 if largest < 10 else 1


def figure(x: float, digits: int) -> str:
    """A number as it is written in a table; a very large one, and one that would be 0, by its first digits."""
    if abs(x) >= 1e9:
        return f"{x:.3e}"
    shown = round(x, digits)
    if not shown and abs(x) >= 10**-MOST_DIGITS:
        return f"{x:.2g}"
    return f"{shown + 0.0:.{digits}f}"  # without the sign of −0


READING = {  # figure → title and one sentence of how to read it
    "iqm": (
        "Interquartile means",
        "A point is the mean of the middle half of the runs, its bar the 95 % interval over seeds, a pale dot one run; "
        "dashed lines are the reference scores, where they are near.",
    ),
    "improvement": (
        "Probability of improvement",
        "How likely a run of the first algorithm scores higher than a run of the second. Gray separates nothing: the "
        "bar crosses 0.5, or chance does as much in 5 % of cases (p).",
    ),
    "profiles": (
        "Performance profiles",
        "At each normalized score, the fraction of runs above it with its 95 % band: the higher line did better there; "
        "where bands overlap, that may be chance.",
    ),
    "sample_efficiency": (
        "Sample efficiency",
        "The interquartile mean over seeds while learning, with its 95 % band, as far as all seeds reach: further left "
        "needs less experience. Held out: greedy, on validation episodes or problems that are not learned from; step 0 "
        "is the measurement before training, on the test split.",
    ),
    "wall_clock": (
        "Wall-clock time",
        "The same against time, evaluations included; a run that has ended keeps its score. It depends on the machine "
        "and on what else it did, so compare only runs that ran alike.",
    ),
}

METHOD = [
    "Every run is one greedy measurement after training, on test episodes or problems that no choice in the run looked "
    "at. The unit of statistics is the run (a seed), not the episode: the interval of a single run, in the list of "
    "runs, says how well that run is measured, and nothing about other seeds.",
    "IQM is the interquartile mean: the mean of the middle half of all runs of all environments, after each score is "
    "normalized, (score − low) / (high − low). Intervals are 95 % percentile intervals of 10,000 stratified bootstrap "
    "repetitions (bands: 2,000), which draw the runs of each environment anew. Medians of steps and seconds.",
    "The probability of improvement is P(X > Y) + ½ P(X = Y) for a run of each, averaged over the environments that "
    "both have. Two algorithms are called separated only if its interval leaves 0.5 out and a permutation test agrees "
    "(p < 0.05); of many pairs of equal algorithms one in twenty is still separated by chance.",
    "The measures are those of Agarwal, Schwarzer, Castro, Courville and Bellemare, “Deep Reinforcement Learning at "
    "the Edge of the Statistical Precipice”, NeurIPS 2021, arXiv:2108.13264. Intervals from few runs are too narrow: "
    "of normal scores in one environment they hold the true value 75 % of the time with 3 runs, 89 % with 5, 93 % with "
    "10. No interval covers what all runs share: the settings, how they were chosen, and the machine.",
]
