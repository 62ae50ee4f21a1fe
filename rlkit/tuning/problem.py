"""What is tuned: one algorithm on one environment, with its default keys and the searched ranges."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Ge, Le

from rlkit.comparison import grid, measuring, plan, rows
from rlkit.errors import UserError
from rlkit.fields import Count, Seed
from rlkit.paths import home
from rlkit.settings import assemble, config, idle, plugins, schema
from rlkit.settings.measured import only_evaluated
from rlkit.settings.sections import Sections
from rlkit.settings.synonyms import instead
from rlkit.tuning import space

USAGE = "python -m rlkit.tune algo=ppo env=cartpole (--help lists the keys)"
FIRST_SEED = 1000  # first seed of the runs of a trial; the final comparison uses other seeds
OF_TRIALS = {"evaluation_episodes": "1"}  # a trial is scored on validation, so its test score needs only one episode
Keys = dict[str, str]


@dataclass(frozen=True)
class Tune:
    """The keys of the command line; all other keys belong to the runs."""

    algo: str = ""  # an algorithm: a name, a dotted name or a .py path
    env: str = ""  # an environment: a name, a dotted name or a .py path
    trials: Count = 40  # number of settings to try; the first one is the default
    runs: Annotated[int, Ge(1), Le(plan.MOST_SEEDS)] = 2  # runs per trial, seeds from 1000 on; their mean is its score
    sampler: Literal["tpe", "random"] = "tpe"  # how Optuna chooses settings: TPE, or at random from the ranges
    pruner: Literal["median", "none"] = "median"  # median: stop trials early that stay below the median
    search: tuple[str, ...] = ()  # keys to search, such as algo.lr,algo.gamma; none: all keys that have a range
    sampler_seed: Seed = 0  # seed of the sampler
    seed: tuple[str, ...] = ("0-4",)  # fresh seeds for the final comparison of the best setting with the default
    seeds: Count | None = None  # number of fresh seeds, counted from 0; in place of seed
    out: str | None = None  # folder of the search; default tunings/ALGO-ENV
    workers: Count | Literal["ray"] | None = None  # runs at a time; none: cores/threads; ray: on a Ray cluster


def parse(words: Iterable[str]) -> tuple[Tune, Keys]:
    """Split a command line into the keys of the search and those of its runs."""
    words = list(words)
    schema.once(words)
    own: Keys = {}
    keys: Keys = {}
    known = schema.settable(Tune)
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or word.startswith("-"):
            raise UserError(f"'{word}' is not understood: write {USAGE}")
        if key == "resume":
            raise UserError("resume= is for one run: a search goes on by itself, with the same command")
        if "." not in key and key not in {**known, **schema.settable(config.Run), "config": ""}:
            raise UserError(f"no key '{key}': {instead(key, 'run', list({**known, **schema.settable(config.Run)}))}")
        (own if key in known else keys)[key] = value
    for key in ("algo", "env"):
        if not own.get(key):
            raise UserError(f"{key}= is missing: write {USAGE}")
    if {"seed", "seeds"} <= own.keys():
        raise UserError(f"give seed={own['seed']} or seeds={own['seeds']}, not both")
    return config.build(Tune, own, "tune"), keys


class Problem:
    """One algorithm on one environment.

    Raises: UserError for invalid combinations of keys, and for ranges that cannot be searched.
    """

    def __init__(self, tune: Tune, keys: Keys) -> None:
        self.tune, self.here = tune, Path.cwd()
        self.line = {name: self.single(name, keys) for name in ("algo", "env")}
        row, column = self.line["algo"], self.line["env"]
        given = {key: space.asked(key, text, row.plugin, column.plugin, {}) for key, text in keys.items()}
        self.fixed = {key: text for key, text in keys.items() if given[key] is None}
        self.asked = plan.Asked(plan.Compare((row.plugin,), (column.plugin,)), self.fixed, (), ())
        self.usual = yaml.safe_load(self.checked({}).text)
        measuring.check_alike(column.name, {row.name: self.usual["run"]})  # as it will be measured on fresh seeds
        if not self.parts.env.splits["validation"]:
            raise UserError(f"{self.parts.env.source}: trials are scored on validation problems, and none are held out")
        if only_evaluated(self.parts.algo.policy):
            raise UserError(
                f"algo={row.plugin} never changes the policy that trials are scored by: give rlkit.run the settings, "
                "and compare the exact rmse that it prints where a model is known"
            )
        declared = space.declared(self.classes, self.usual)
        ranged = {key: text for key, text in keys.items() if given[key] is not None}
        own = {key: space.asked(key, text, row.plugin, column.plugin, declared) for key, text in ranged.items()}
        self.space = self.chosen(declared, {key: found for key, found in own.items() if found is not None})

    def single(self, name: str, keys: Keys) -> rows.Line:
        """The algorithm or the environment as a row or column of a comparison."""
        plugin = {"algo": self.tune.algo, "env": self.tune.env}[name]
        if "," in plugin:
            raise UserError(f"{name}={plugin}: a search is for one algorithm on one environment: give one name")
        short = plugins.short(plugin)
        return rows.Line(short, short, plugin, frozenset(), {})

    def checked(self, chosen: Mapping[str, str], seed: int = FIRST_SEED, of_trial: bool = True) -> plan.Checked:
        """Check a run with these settings, of a trial or as the user asked for it.

        Raises: UserError where the run is impossible.
        """
        row = replace(self.line["algo"], keys={**(OF_TRIALS if of_trial else {}), **chosen})
        try:
            return plan.check(self.asked, row, self.line["env"], seed, False)
        finally:
            os.chdir(self.here)

    @cached_property
    def given(self) -> config.Given:
        """The configuration of a run with default settings."""
        keys = plan.over(plan.defaults(self.fixed), self.fixed)
        words = {"algo": self.line["algo"].plugin, "env": self.line["env"].plugin, "device": "cpu", **keys}
        return config.read([f"{key}={value}" for key, value in words.items()])

    @cached_property
    def parts(self) -> assemble.Parts:
        try:
            return assemble.assemble(self.given)
        finally:
            os.chdir(self.here)

    @cached_property
    def classes(self) -> dict[str, type]:
        """The dataclasses of the searched keys."""
        algo: type = plugins.load("algorithms", self.line["algo"].plugin).Config
        return {"algo": algo, "policy": config.network_class(self.parts.env.kind)}

    def facts(self, algo: Mapping[str, object]) -> dict[str, bool]:
        """For each condition in the types of fields, whether it holds with these keys of the algorithm."""
        built: object = config.build(self.classes["algo"], algo, "algo")
        env: object = config.build(plugins.load("envs", self.line["env"].plugin).Config, self.usual["env"], "env")
        return assemble.facts(self.given, built, env, self.parts.env, self.parts.algo.policy)

    def chosen(self, declared: dict[str, space.Range], own: dict[str, space.Range]) -> dict[str, space.Range]:
        """The searched ranges; those of the command line replace the declared ones."""
        known = {**declared, **own}
        for key in self.tune.search:
            if key not in known:
                told = f"{key} has no range of its own: give {key}=LOW..HIGH or {key}=VALUE,VALUE"
                raise UserError(f"{told}; ranges have: {', '.join(known)}")
            if key in self.fixed:
                raise UserError(f"search={key} and {key}={self.fixed[key]}: what has one value cannot be searched")
        picked = [key for key in known if key in own or not self.tune.search or key in self.tune.search]
        picked = [key for key in picked if key not in self.fixed]
        idle_keys = {key for key in picked if self.fruitless(key, known, picked)}
        wanted = {*own, *self.tune.search}
        for key in sorted(idle_keys & wanted):
            self.checked({key: self.other(key, known[key])})  # raises an error with the reason
        found = {key: known[key] for key in picked if key in wanted or key not in idle_keys}
        if not found:
            raise UserError(f"there is nothing to search: give a range, as in algo.lr=1e-4..1e-2; write {USAGE}")
        return found

    def fruitless(self, key: str, known: Mapping[str, space.Range], names: list[str]) -> bool:
        """Whether a key has no effect in any trial, or its range has no value but the default."""
        section = key.partition(".")[0]
        if section == "algo":
            facts = self.facts(self.usual["algo"])
            return space.fruitless(key, self.classes[section], self.usual, facts, names)
        try:
            self.checked({key: self.other(key, known[key])})
        except UserError:
            return True
        return False

    def default(self, key: str) -> str:
        """The default value of a key, as text."""
        section, _, name = key.partition(".")
        return schema.show(self.usual[section][name])

    @property
    def usually(self) -> dict[str, object]:
        """The default setting as Optuna's values, for the keys whose default lies in the range."""
        values = {key: found.value(self.default(key)) for key, found in self.space.items()}
        return {key: value for key, value in values.items() if value is not None}

    def other(self, key: str, found: space.Range) -> str:
        """A value of a range other than the default."""
        return found.other(self.default(key))

    def active(self, chosen: Keys) -> Keys:
        """The settings of a trial that have an effect. Raises: UserError for settings that contradict each other."""
        # env.rows and env.luck may be searched, too.
        sections: Sections = {section: dict(self.usual[section]) for section in (*self.classes, "env")}
        for key, text in chosen.items():
            section, _, name = key.partition(".")
            sections[section][name] = schema.Typed(text)
        found = dict(chosen)
        while gone := self.without_effect(sections, found):  # what needed one of these may have none either
            for key in gone:
                section, _, name = key.partition(".")
                sections[section][name] = self.usual[section][name]
                del found[key]
        return found

    def without_effect(self, sections: Sections, chosen: Keys) -> set[str]:
        """Those of the chosen keys that have no effect with these sections."""
        facts, gone = self.facts(sections["algo"]), set[str]()
        for section, cls in self.classes.items():
            mine = [key.partition(".")[2] for key in chosen if key.startswith(f"{section}.")]
            left = idle.idle(config.build(cls, sections[section], section), mine, facts)
            gone |= {f"{section}.{name}" for name, _ in left}
        return gone

    def jobs(self, number: int, chosen: Keys, folder: Path) -> list[grid.Job]:
        """The runs of a trial."""
        return [self.job(f"{number:04}", seed, chosen, folder) for seed in self.seeds]

    @property
    def seeds(self) -> list[int]:
        """The seeds of each trial's runs."""
        return list(range(FIRST_SEED, FIRST_SEED + self.tune.runs))

    def job(self, name: str, seed: int, chosen: Keys, folder: Path) -> grid.Job:
        found, row, column = self.checked(chosen, seed), self.line["algo"], self.line["env"]
        made = plan.job(row, column, seed, found, folder, self.here)
        return replace(made, folder=folder.absolute() / f"{name}-s{seed}")

    def fresh(self) -> list[int]:
        """The seeds of the final comparison. Raises: UserError for seeds that trials use."""
        seeds = plan.numbers(self.tune.seed if self.tune.seeds is None else (f"0-{self.tune.seeds - 1}",))
        if both := [seed for seed in seeds if seed in self.seeds]:
            raise UserError(f"seed={both[0]} is a seed of the trials: what they found is measured on others")
        return seeds

    def out(self) -> Path:
        name = f"{self.line['algo'].slug}-{self.line['env'].slug}"
        problem = self.usual["env"].get("id") or self.usual["env"].get("entry") or ""
        ending = f"-{rows.last(str(problem))}" if problem else ""
        return home(self.tune.out or f"tunings/{name}{ending}")
