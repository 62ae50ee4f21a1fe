"""Command lines by the thousand, from a seed: good, nearly good and strange ones, with the keys read from the schema.

The pair that was named least and the key that was set least come first, so that a few thousand lines name every pair,
set every key of every plug-in, and reach every corner of every type and range.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any, get_type_hints

import rlkit
from rlkit.comparison.plan import Compare
from rlkit.evaluation import Evaluate
from rlkit.language.network import LanguageNetwork
from rlkit.pages.choice import Play
from rlkit.planning.setting import Setting
from rlkit.policies import Network
from rlkit.scaffold import New
from rlkit.settings import plugins, schema
from rlkit.settings.assemble import facts_of_name
from rlkit.settings.config import KINDS, Run
from rlkit.settings.repeat import EXCLUSIVE
from rlkit.tuning.problem import Tune
from support import odd, values
from support.forked import Stage
from support.values import STRANGE

COMMANDS = {"run": 70, "help": 4, "resume": 5, "evaluate": 5, "compare": 6, "tune": 3, "plan": 2, "play": 3, "new": 2}
RUNS = {  # what evaluate, resume and compare are asked about: name → the words that make it
    "table": ("algo=q_learning", "env=gridworld", "algo.steps=4", "iterations=3", "checkpoint_every=1"),
    "other": ("algo=q_learning", "env=gridworld", "algo.steps=4", "iterations=3", "seed=1"),
    "net": ("algo=ppo", "env=cartpole", "algo.horizon=8", "algo.minibatches=1", "env.rows=2", "iterations=1"),
    "words": ("algo=grpo", "env=gsm8k", "algo.group=2", "env.rows=2", "env.max_tokens=4", "env.train=8",
        "iterations=1"),
}  # fmt: skip
SMALL = {  # what keeps a line cheap, where the plug-in has such a key
    "run": {"iterations": "1", "evaluation_episodes": "1", "validation_episodes": "1", "evaluations": "0",
        "threads": "1"},
    "env": {"rows": "2", "max_tokens": "4", "train": "8", "test": "2", "validation": "2", "step_limit": "12",
            "demonstrations": "8", "rare_demonstrations": "1", "rare_repeat": "1", "size": "4", "goal": "3,3",
                "trap": "2,2"},
    "algo": {"steps": "4", "horizon": "4", "group": "2", "minibatches": "1", "epochs": "1", "capacity": "64",
             "batch_size": "4", "warmup_steps": "4", "updates": "1", "tries": "1", "tolerance": "0.1"},
}  # fmt: skip
EVALUATED = ("env.test=2", "env.validation=2", "evaluation_episodes=1", "validation_episodes=1", "threads=1")
TEXT = ("arithmetic", "game", "gsm8k", "guess", "preferences", "reasoning", "text")
WHOLE_TEXT = 0.1  # share of the lines on text that play


@dataclass(frozen=True)
class Line:
    """One command line; equal seeds and indices are equal lines."""

    words: tuple[str, ...]  # as after `python -m rlkit`
    stage: Stage = "whole"
    long: bool = False  # it may ask for more work than one can wait for
    runs: tuple[str, ...] = ()  # which of RUNS lie where it starts
    output: str = "files"
    environ: dict[str, str] = field(default_factory=dict)
    place: str = "box"  # the name of the folder where it starts
    index: int = -1


class Lines:
    """The lines of a seed, one after the other, and what they have covered so far."""

    def __init__(self, seed: int) -> None:
        self.seed, self.index = seed, 0
        self.covered: dict[str, Counter[tuple[str, ...]]] = {
            kind: Counter() for kind in ("command", "stage", "pair", "key", "corner", "strange")
        }
        self.algos, self.envs = plugins.names("algorithms"), plugins.names("envs")
        self.fields = {("algo", name): values.known(plugins.load("algorithms", name).Config) for name in self.algos}
        self.fields |= {("env", name): values.known(plugins.load("envs", name).Config) for name in self.envs}
        for name, cls in {
            "run": Run,
            "evaluate": Evaluate,
            "compare": Compare,
            "play": Play,
            "new": New,
            "tune": Tune,
        }.items():
            self.fields[name, ""] = values.known(cls)
        self.fields["plan", ""] = values.known(Setting)
        self.fields["policy", "control"] = values.known(Network)
        self.fields["policy", "text"] = values.known(LanguageNetwork)
        self.pairs = [(algo, env) for algo in self.algos for env in self.envs]
        vetted = {path.stem for folder in rlkit.__path__ for path in Path(folder, "configs").glob("*.yaml")}
        self.vetted = [pair for pair in self.pairs if "-".join(pair) in vetted]

    def __iter__(self) -> Iterator[Line]:
        while True:
            draw = Random(f"{self.seed} {self.index}")
            command = draw.choices([*COMMANDS], [*COMMANDS.values()])[0]
            line = getattr(self, f"_{command}")(draw)
            chance = draw.random()
            output = draw.choice(["closed", "full", "broken", "ascii"]) if chance < 0.02 else "files"
            environ = draw.choice(odd.ENVIRONS) if 0.02 < chance < 0.05 else {}
            self.covered["command"][command,] += 1
            self.covered["stage"][line.stage,] += 1
            place = draw.choice(odd.PLACES) if draw.random() < 0.04 else "box"
            yield replace(line, output=output, environ=environ, place=place, index=self.index)
            self.index += 1

    def report(self) -> dict[str, tuple[int, int]]:
        """Pairs, keys, corners of types and ranges, strange values of keys: how many were tried, of how many."""
        of_keys = [(*place, key, classes) for place, keys in self.fields.items() for key, classes in keys.items()]
        corners = {(key, label) for *_, key, classes in of_keys for label in classes if label not in STRANGE}
        strange = {(key, label) for *_, key, classes in of_keys for label in classes if label in STRANGE}
        there = {"pair": len(self.pairs), "key": len(of_keys), "corner": len(corners), "strange": len(strange)}
        return {kind: (sum(times > 0 for times in self.covered[kind].values()), n) for kind, n in there.items()}

    def _run(self, draw: Random) -> Line:
        algo, env = self._pair(draw)
        kind = "text" if env in TEXT else "control"
        keys = self._small(algo, env)
        words = self._changed(draw, keys, {"algo": algo, "env": env, "policy": kind, "run": ""}, [45, 22, 13, 20])
        if env == "gym" and draw.random() < 0.5:
            words += draw.choice(odd.WRAPPED).split()
        if from_file := draw.random() < 0.03:
            words.append(f"config={draw.choice(odd.CONFIGS)}")
        plays = draw.random() < (WHOLE_TEXT if kind == "text" else 1.0)
        stage: Stage = "whole" if plays and (not is_long(words) or draw.random() < 0.2) else "built"
        return Line(("run", *words), stage, is_long(words), ("table",) if from_file else ())

    def _help(self, draw: Random) -> Line:
        if draw.random() < 0.3:
            return Line(
                (*draw.choice(["run", "evaluate", "compare", "play", "new", "list", "lst", ""]).split(), "--help")
            )
        return replace(line := self._run(draw), words=(*line.words, "--help"), long=False, stage="whole")

    def _resume(self, draw: Random) -> Line:
        name = draw.choice([*RUNS])
        algo, env = (word.partition("=")[2] for word in RUNS[name][:2])
        keys = {"iterations": "4", "threads": "1"}
        sections = {"run": "", "algo": algo, "env": env, "policy": "text" if env in TEXT else "control"}
        words = self._changed(draw, keys, sections, [60, 20, 10, 10], named=False)
        folder = draw.choice(odd.FOLDERS) if draw.random() < 0.15 else name
        stage: Stage = "built" if is_long(words) or name == "words" else "whole"
        return Line(("run", f"resume={folder}", *words), stage, runs=(name,))

    def _evaluate(self, draw: Random) -> Line:
        name = draw.choice([*RUNS])
        words = self._changed(draw, {"episodes": "1"}, {"evaluate": ""}, [1], named=False)
        words = [word.replace("RUN", name) for word in words]
        if (chance := draw.random()) < 0.15:
            words = [*(word for word in words if not word.startswith("video=")), f"video={draw.choice(odd.FILES)}"]
        folder = draw.choice(odd.FOLDERS) if chance > 0.7 else name
        return Line(("evaluate", folder, *words), long=is_long(words), runs=(name, "other"))

    def _compare(self, draw: Random) -> Line:
        if draw.random() < 0.4:
            folders = [draw.choice([*RUNS] if draw.random() < 0.7 else odd.FOLDERS) for _ in range(draw.randint(1, 4))]
            out = draw.choice(odd.OUTS) if draw.random() < 0.15 else "report"
            keys = self._changed(draw, {"out": out}, {"compare": ""}, [1], named=False)
            stage: Stage = "whole" if draw.random() < 0.3 else "built"
            return Line(("compare", *folders, *(keys if draw.random() < 0.3 else [])), stage, runs=tuple(RUNS))
        pairs = [self._pair(draw) for _ in range(draw.randint(1, 2))]
        algo, env = pairs[0]
        kind = "text" if env in TEXT else "control"
        keys = self._small(algo, env)
        sections = {"compare": "", "algo": algo, "env": env, "run": "", "policy": kind}
        words = self._changed(draw, keys, sections, [50, 15, 15, 10, 10], named=False)
        words = [f"{draw.choice([algo, env, 'nobody', ''])}:{word}" if draw.random() < 0.2 else word for word in words]
        if draw.random() < 0.15:
            words = [*(word for word in words if not word.startswith("out=")), f"out={draw.choice(odd.OUTS)}"]
        if draw.random() < 0.3:
            key = draw.choice([*self.fields["algo", algo]])
            words.append(f"algo.{key}={draw.choice(odd.RANGES)}")  # rows of settings
        if draw.random() < 0.1:
            pairs[-1] = (draw.choice(odd.NAMES), env)
        lists = {"algo": ",".join(pair[0] for pair in pairs), "env": ",".join(dict.fromkeys(pair[1] for pair in pairs))}
        named = {word.partition("=")[0] for word in words}
        given = [f"{key}={text}" for key, text in lists.items() if key not in named]
        return Line(("compare", *given, *words), "built")

    def _tune(self, draw: Random) -> Line:
        algo, env = self._pair(draw)
        sections = {"tune": "", "algo": algo, "env": env, "policy": "text" if env in TEXT else "control", "run": ""}
        words = self._changed(draw, self._small(algo, env), sections, [50, 15, 10, 15, 10], named=False)
        named = {word.partition("=")[0] for word in words}
        words = [f"{key}={name}" for key, name in (("algo", algo), ("env", env)) if key not in named] + words
        for section, name in (("algo", algo), ("policy", sections["policy"])):
            if draw.random() < 0.5:
                key = draw.choice([*self.fields[section, name]])
                words.append(f"{section}.{key}{draw.choice(['', '', '.x'])}={draw.choice(odd.RANGES)}")
        return Line(("tune", *words, *(["--help"] if draw.random() < 0.2 else [])), "built")

    def _plan(self, draw: Random) -> Line:
        keys = {"model": draw.choice(odd.MODELS)} if draw.random() < 0.5 else {}
        words = self._changed(draw, keys, {"plan": ""}, [1], named=False)
        return Line(("plan", *words), runs=("table", "words"))

    def _play(self, draw: Random) -> Line:
        algo, env = self._pair(draw)
        own = self._changed(draw, {"open": "false"}, {"play": "", "env": env}, [2, 3], named=False)
        name = draw.choice([*RUNS] if draw.random() < 0.5 else odd.FOLDERS)
        if draw.random() < 0.1:
            env = draw.choice(odd.NAMES)
        if draw.random() < 0.5:
            return Line(("play", name, *own), runs=tuple(RUNS))
        return Line(("play", f"env={env}", f"algo={algo}", *own), long=is_long(own))

    def _new(self, draw: Random) -> Line:
        kind = draw.choice(["algo", "env", "reward", "algo", "rewards", "ALGO", ""])
        name = draw.choice(["mine", "my_algo", "ppo", "os", "class", "1a", *odd.NAMES])
        words = self._changed(draw, {}, {"new": ""}, [1], named=False)
        return Line(("new", kind, name, *words))

    def _pair(self, draw: Random) -> tuple[str, str]:
        """The pair that was named least: of all, or of those that the project ships a configuration for."""
        pair = least(draw, self.covered["pair"], self.pairs if draw.random() < 0.4 else self.vetted)
        self.covered["pair"][pair] += 1
        return pair

    def _small(self, algo: str, env: str) -> dict[str, str]:
        """The keys that keep a pair's work small."""
        found = dict(SMALL["run"])
        for section, name in (("env", env), ("algo", algo)):
            there = self.fields[section, name].keys() - self._idle(algo, section, name)
            found |= {f"{section}.{key}": text for key, text in SMALL[section].items() if key in there}
        named = {"gym": {"env.id": "CartPole-v1"}, "game": {"env.game": "rlkit.envs.guess:Guess"}}
        named["reasoning"] = {"env.task": "chain_sum"}
        return found | named.get(env, {})

    def _idle(self, algo: str, section: str, name: str) -> set[str]:
        """The keys that do nothing with this algorithm, whatever the others are: a line with one is refused."""
        facts = facts_of_name(algo)
        hints = get_type_hints(plugins.load(KINDS[section], name).Config, include_extras=True)
        return {key for key, hint in hints.items() if not all(facts.get(need.key, True) for need in schema.needs(hint))}

    def _changed(
        self, draw: Random, keys: dict[str, str], sections: dict[str, str], weights: Sequence[int], named: bool = True
    ) -> list[str]:
        """The words of some keys, after a few changes: another value, an unknown key, one given twice, an odd word."""
        names = {section: sections[section] for section in ("algo", "env")} if named else {}
        extra: list[str] = []
        for _ in range(draw.choices((0, 1, 2, 3, 6), (6, 52, 25, 12, 5))[0]):
            change = draw.choices(("value", "unknown", "twice", "word", "name"), (82, 7, 5, 3, 3))[0]
            new = [6 if self._has_untried(*section) else 1 for section in sections.items()]
            section = draw.choices([*sections], [a * b for a, b in zip(weights, new, strict=True)])[0]
            key, text = self._value(draw, section, sections[section], tried=change == "value")
            dotted = f"{section}.{key}" if section in ("algo", "env", "policy") else key
            if change == "value":
                put(keys, dotted, text)
            elif change == "unknown":
                wrong = values.misspelt(draw, key) if draw.random() < 0.7 else key
                extra.append(f"{draw.choice(['algo.', 'env.', 'policy.', 'run.', '', 'algo.'])}{wrong}={text}")
            elif change == "twice" and keys:
                again = draw.choice([*keys])
                extra.append(f"{again}={keys[again] if draw.random() < 0.5 else text}")
            elif change == "word":
                extra.append(draw.choice(odd.WORDS))
            elif named:
                section = draw.choice(["algo", "env"])
                names[section] = draw.choice([values.misspelt(draw, names[section]), draw.choice(odd.NAMES)])
        words = [f"{key}={text}" for key, text in {**names, **keys}.items()] + extra
        if draw.random() < 0.2:
            draw.shuffle(words)
        return words

    def _has_untried(self, section: str, name: str) -> bool:
        """Whether a key of a section was in no line yet."""
        return not all(self.covered["key"][section, name, key] for key in self.fields[section, name])

    def _value(self, draw: Random, section: str, name: str, tried: bool) -> tuple[str, str]:
        """The key of a section that was set least, and a text from the class of values that it got least."""
        there = self.fields[section, name]
        *_, key = least(draw, self.covered["key"], [(section, name, key) for key in there])
        kind = "strange" if draw.random() < 0.3 or not there[key].keys() - STRANGE.keys() else "corner"
        classes = [(key, label) for label in there[key] if (label in STRANGE) == (kind == "strange")]
        _, label = least(draw, self.covered[kind], classes)
        self.covered["key"][section, name, key] += tried
        self.covered[kind][key, label] += tried
        return key, draw.choice(there[key][label])


def least(draw: Random, counts: Counter[Any], options: Sequence[Any]) -> Any:
    """One of the options that were drawn least."""
    fewest = min(counts[option] for option in options)
    return draw.choice([option for option in options if counts[option] == fewest])


def is_long(words: Sequence[str]) -> bool:
    """Whether a line may ask for more work than one can wait for."""
    if any(word in ("iterations=none", "env_steps=none") for word in words):
        return True
    sizes = [values.size(word.partition("=")[2]) for word in words]
    return max(sizes, default=0) > values.LARGE or sum(size >= values.LARGE for size in sizes) > 1  # two may multiply


def put(keys: dict[str, str], key: str, text: str) -> None:
    """Set a key; one that excludes it goes, so that a line stays a good one where its value is."""
    keys[key] = text
    for pair in EXCLUSIVE:
        if key in pair and not (key == "evaluations" and text == "0"):
            for other in pair:
                if other != key:
                    keys.pop(other, None)
