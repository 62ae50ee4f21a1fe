"""What a reader of a comparison has to know before believing it: one sentence each."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median

from rlkit import titles
from rlkit.comparison import measuring, naming
from rlkit.comparison.marks import MARKS, content
from rlkit.comparison.numbers import Results
from rlkit.comparison.records import Record
from rlkit.settings import config, places, plugins

WIDE = 40  # characters of a value that are shown, or more where it takes more to tell it from another
FEW = 5  # runs below which the interval of an algorithm is known to be too narrow
SIMILAR = 1.15  # lengths whose ratio is below this count as the same
NOT_THE_TASK = {"env.rows", "env.luck"}  # what is played side by side, and how, belongs to the algorithm
STARTS = {"policy.model", "policy.adapter", "policy.fresh", "policy.template"}  # what a language model begins with


def caveats(records: Sequence[Record], results: Results) -> list[str]:
    """Everything that makes the numbers mean less than they seem to."""
    return [
        *([f"Missing: {'; '.join(results['missing'])}."] if results["missing"] else []),
        *empty_cells(results),
        *few_runs(results),
        *unequal_seeds(results),
        *unequal_lengths(results),
        *shorter(records),
        *lengthened(records),
        *gaps(records, results),
        *measuring.without_curves(records, results),
        *measuring.unequal(records),
        *references(records, results),
        *unmoved(records, results),
        *unequal_settings(records),
        *naming.twice(records),
        *one_problem(records, results),
        *unnamed(records),
        *unequal_starts(records),
        *tuned_for_one(records),
        *unequal_versions(records),
        *alarms(records),
    ]


def listed(words: Sequence[str]) -> str:
    """a, b and c."""
    return " and ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else "".join(words)


def empty_cells(results: Results) -> Iterator[str]:
    empty = [(a, e) for e, env in results["envs"].items() for a in results["algos"] if a not in env["algos"]]
    for algo in results["algos"]:
        envs = [env for a, env in empty if a == algo]
        if envs:
            yield f"{algo} has no finished run on {listed(envs)}."
    if empty and results["shared"]:
        shared = listed(results["shared"])
        yield f"Numbers over all environments are over those that all {results['rows']} share: {shared}."
    elif empty:
        yield f"No environment is shared by all {results['rows']}, so there is no number over all environments."


def few_runs(results: Results) -> Iterator[str]:
    counts = {(a, e): c["runs"] for e, env in results["envs"].items() for a, c in env["algos"].items()}
    single = [f"{a} on {e}" for (a, e), n in counts.items() if n == 1]
    if single:
        every = 1 < len(single) == len(counts)
        which = listed(single) if not every else f"each of the {results['rows']} in each environment"
        yield f"There is one run of {which}: it has no interval over seeds, and nothing can be claimed from it."
    least = min((n for n in counts.values() if n > 1), default=FEW)
    if least < FEW:
        yield (
            f"Some intervals come from {least} runs only and are too narrow: resampling cannot show what no run did. "
            "Give five seeds or more, ten for a close race."
        )


def unequal_seeds(results: Results) -> Iterator[str]:
    for env, found in results["envs"].items():
        seeds = {algo: c["seeds"] for algo, c in found["algos"].items()}
        for algo, each in seeds.items():
            twice = sorted({seed for seed in each if each.count(seed) > 1})
            if twice:
                yield f"{algo} on {env} has several runs of seed {numbered(twice)}; they may not be independent."
        if len({tuple(each) for each in seeds.values()}) > 1:
            words = "; ".join(f"{algo} {numbered(each)}" for algo, each in seeds.items())
            yield f"On {env} the {results['rows']} have different seeds: {words}."
    cells = [results["envs"][env]["algos"] for env in results["shared"]]
    if any(len({found[algo]["runs"] for found in cells}) > 1 for algo in results["algos"]):
        yield "An environment with more runs of an algorithm weighs more in its IQM over all environments."


def numbered(seeds: Sequence[int]) -> str:
    """0 to 4 and 7: three or more in a row by their ends."""
    rows: list[list[int]] = []
    for seed in seeds:
        if rows and seed == rows[-1][-1] + 1:
            rows[-1].append(seed)
        else:
            rows.append([seed])
    parts = [[f"{row[0]} to {row[-1]}"] if len(row) > 2 else map(str, row) for row in rows]
    return listed([word for part in parts for word in part])


def unequal_lengths(results: Results) -> Iterator[str]:
    for env, found in results["envs"].items():
        lengths = {algo: c["env_steps"] for algo, c in found["algos"].items()}
        if max(lengths.values()) > SIMILAR * min(lengths.values()):
            words = listed([f"{algo} {length:,.0f}" for algo, length in lengths.items()])
            yield f"On {env} the {results['rows']} learned from different numbers of {found['unit']}: {words}."


def shorter(records: Sequence[Record]) -> Iterator[str]:
    """Runs that learned from less than the others of their cell, as the median of a table does not show."""
    for algo, env in dict.fromkeys((r.algo, r.env) for r in records):
        group = sorted((r for r in records if (r.algo, r.env) == (algo, env)), key=lambda r: r.seed)
        usual = median(r.env_steps for r in group)
        less = [f"{r.env_steps:,} (seed {r.seed})" for r in group if SIMILAR * r.env_steps < usual]
        if less:
            unit = "tokens" if group[0].kind == "text" else "steps"
            yield f"Of {algo} on {env} the median run learned from {usual:,.0f} {unit}, and some from {listed(less)}."


def lengthened(records: Sequence[Record]) -> Iterator[str]:
    """Runs that a resume gave another length: a schedule of the whole run went otherwise before."""
    for algo, env in dict.fromkeys((r.algo, r.env) for r in records if r.longer):
        seeds = sorted({r.seed for r in records if r.longer and (r.algo, r.env) == (algo, env)})
        yield (
            f"{algo} on {env}, seed {numbered(seeds)}: a resume changed the length, so a learning rate or an "
            "exploration that follows it differs from that of a run which had this length from the start."
        )


def gaps(records: Sequence[Record], results: Results) -> Iterator[str]:
    """Curves in which a validation that gave no number cannot be seen."""
    for r in records:
        drawn = results["envs"][r.env]["curve"] == "evaluation"
        if found := r.curves["evaluation"].gaps if drawn else 0:
            many = f"{found} validations" if found > 1 else "one validation"
            yield f"{r.algo} on {r.env}, seed {r.seed}: {many} gave no number; there its curve keeps the value before."


def references(records: Sequence[Record], results: Results) -> Iterator[str]:
    for env, found in results["envs"].items():
        reference = found["reference"]
        if reference is None:
            unmoved = all(r.before == r.score for r in records if r.env == env)
            same = "the same as before training" if unmoved else "the same"
            yield f"All runs on {env} scored {same}, so it is left out over all environments."
            continue
        if reference["range"]:
            yield (
                f"{env} has no reference score. There 0 is {reference['low_is']} ({reference['low']:.4g}) and 1 "
                f"{reference['high_is']} ({reference['high']:.4g}): this scale belongs to these runs alone."
            )
        elif len({r.reference for r in records if r.env == env}) > 1:
            yield f"The runs on {env} have different references (other models or settings): their median is used."


def unmoved(records: Sequence[Record], results: Results) -> Iterator[str]:
    """Rows whose every score is that before training: a prediction never changes the policy that is measured."""
    for env, found in results["envs"].items():
        rows = measuring.by_algorithm(records, env)
        still = [algo for algo, runs in rows.items() if all(r.before == r.score for r in runs)]
        if still and found["reference"] is not None:
            yield (
                f"On {env} every run of {listed(still)} scored exactly what it scored before training: "
                "that is also the score of the policy it began with, and says nothing of what was learned."
            )


def unequal_settings(records: Sequence[Record]) -> Iterator[str]:
    """Runs of one algorithm that are not repetitions of each other, and environments that are not the same task."""
    for algo, env in dict.fromkeys((r.algo, r.env) for r in records):
        group = [r.settings for r in records if (r.algo, r.env) == (algo, env) and r.settings]
        for key, values in differing(group):
            if not key.startswith(MARKS):
                yield f"The runs of {algo} on {env} are not repetitions of each other: {key} is {values}."
    for env in dict.fromkeys(r.env for r in records):
        group = [r.settings for r in records if r.env == env and r.settings]
        for key, values in differing(group):
            if key.startswith(MARKS):
                yield f"{key.removeprefix(MARKS)} has changed between the runs on {env}."
            elif key.startswith("env.") and key not in NOT_THE_TASK:
                yield f"The runs on {env} were not given the same task: {key} is {values}."


def one_problem(records: Sequence[Record], results: Results) -> Iterator[str]:
    """Columns of one problem, as `cartpole` and a later `cartpole max_steps=500` are."""
    columns: dict[str, list[str]] = {}
    for env in results["shared"]:
        given = next((r.settings for r in records if r.env == env and r.settings), {})
        keys = sorted(key for key in given if key.startswith("env.") and key not in NOT_THE_TASK)
        task = repr([(key, given[key], given.get(f"{MARKS}{given[key]}")) for key in keys])
        columns.setdefault(task if keys else env, []).append(env)
    for same in columns.values():
        if len(same) > 1:
            yield f"{listed(same)} are one problem: it weighs {len(same)} times in the numbers over all environments."


def unnamed(records: Sequence[Record]) -> Iterator[str]:
    """Columns of environments that a program gave: two notebooks, or two lambdas, may mean two problems by one name."""
    given = [r.env for r in records if r.settings.get("env.entry", "").startswith(places.PYTHON)]
    for env in dict.fromkeys(env for env in given if given.count(env) > 1):
        yield f"{env}: nothing tells whether this was the same environment in each of its runs."


def unequal_starts(records: Sequence[Record]) -> Iterator[str]:
    """Algorithms that trained different language models; a row with a name of its own says what it is."""
    plain = [r for r in records if r.settings and r.algo in (r.plugin, titles.algorithm(r.plugin))]
    for env in dict.fromkeys(r.env for r in plain):
        first = {r.algo: r.settings for r in reversed(plain) if r.env == env}
        for key, values in differing([*reversed(first.values())]):
            if key in STARTS:
                yield f"On {env} {listed([*reversed(first)])} began with different models: {key} is {values}."


def tuned_for_one(records: Sequence[Record]) -> Iterator[str]:
    """An algorithm with the settings of a pair's YAML beside one of the user's that has its keys and other values."""
    algos, envs = plugins.names("algorithms"), plugins.names("envs")
    cells = {(r.env, r.algo): r.settings for r in reversed(records) if "algo.name" in r.settings}
    for (env, algo), settings in sorted(cells.items()):
        pair = (settings["algo.name"], settings.get("env.name", ""))
        if pair[0] not in algos or pair[1] not in envs:
            continue
        given = config.pair(*pair)
        keys = [f"{section}.{key}" for section, found in (("env", given.env), ("algo", given.algo)) for key in found]
        different: dict[str, list[str]] = {}
        for (where, own), others in sorted(cells.items()):
            if where != env or others["algo.name"] in algos or not others.keys() >= {*keys} <= settings.keys():
                continue
            if differ := [f"{key} ({settings[key]} and {others[key]})" for key in keys if settings[key] != others[key]]:
                different.setdefault(listed(differ), []).append(own)
        for keys_, own_rows in different.items():
            yield (
                f"On {env} {algo} has the settings of configs/{'-'.join(pair)}.yaml, and {listed(own_rows)} "
                f"others: {keys_}. Give both the same keys, or NAME:config=FILE, to see what the algorithm changes."
            )


def differing(group: Sequence[Mapping[str, str]]) -> Iterator[tuple[str, str]]:
    """Keys with several values; one that an older version did not write says nothing.

    Files of several places with the same content, by their marks, are one value.
    """
    for key in dict.fromkeys(key for settings in group for key in settings):
        given = [settings for settings in group if key in settings]
        values = dict.fromkeys(settings[key] for settings in given)
        if len({content(settings, settings[key]) for settings in given}) == 1:
            continue
        if len(values) > 1:
            yield key, listed(apart(list(values)))
        elif ".py" not in (value := next(iter(values))):  # a module of two folders; a file that changed has a mark
            yield key, f"{value} with different files"


def apart(values: Sequence[str]) -> list[str]:
    """Different texts, long ones cut so that they still differ: … stands for what all share, and for the rest."""
    alike = [same(*pair) for pair in pairwise(sorted(values))]  # neighbors in order share the most
    shared, most = min(alike, default=0), max(alike, default=0)
    start = shared - WIDE // 4 if shared >= WIDE else 0
    end = start + WIDE * max(1, -(-(most + 1 - start) // WIDE))
    return [f"{'…' if start else ''}{value[start:end]}{rest(value, end)}" for value in values]


def rest(value: str, end: int) -> str:
    """What is shown of a text behind `end`: of a path the last part, which says what it leads to."""
    name = f"/{value.rpartition('/')[2][-WIDE:]}" if "/" in value and " " not in value else ""
    return value[end:] if len(value) - end <= len(name) + 1 else f"…{name}"


def same(one: str, other: str) -> int:
    """How many letters two texts begin with alike."""
    letters = enumerate(zip(one, other, strict=False))
    return next((i for i, (a, b) in letters if a != b), min(len(one), len(other)))


def unequal_versions(records: Sequence[Record]) -> Iterator[str]:
    for package in dict.fromkeys(name for r in records for name in r.versions if name != "python"):
        found = sorted({r.versions[package] for r in records if package in r.versions})
        if len(found) > 1:
            yield f"The runs were made with several versions of {package}: {listed(found)}."


def alarms(records: Sequence[Record]) -> Iterator[str]:
    """What the doctor found, once for all seeds of an algorithm in an environment, with the figures of one."""
    found: dict[tuple[str, str, str], list[tuple[int, str]]] = {}
    for r in records:
        for alarm in r.alarms:
            found.setdefault((r.algo, r.env, alarm.partition(":")[0]), []).append((r.seed, alarm))
    for (algo, env, _), group in found.items():
        seeds = listed([str(seed) for seed in sorted({seed for seed, _ in group})])
        first, text = group[0]
        whose = f" (figures of seed {first})" if any(other != text for _, other in group) else ""
        yield f"{algo} on {env}, seed {seeds}{whose}: {text}"
