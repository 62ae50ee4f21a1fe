"""yaml + command line → validated dataclasses.

Frozen dataclasses hold the vetted defaults, `configs/ALGO-ENV.yaml` says what a pair changes, the command line wins;
what comes out is written into the run folder, enough to repeat the run.
"""

import re
import shlex
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field, is_dataclass
from pathlib import Path
from typing import Annotated, Literal

import yaml
from annotated_types import Ge, Le

import rlkit
from rlkit.api import Count, Natural, UserError
from rlkit.fields import Seed
from rlkit.recording.files import prepare_folder
from rlkit.settings import plugins, schema, sections
from rlkit.settings.plugins import nearest, short
from rlkit.settings.schema import build
from rlkit.settings.sections import Section, Sections

__all__ = ["Given", "Run", "build", "from_folder", "new_folder", "prepare_folder", "read", "resolved"]

SECTIONS = ("run", "algo", "env", "policy")
LENGTHS = ("iterations", "env_steps")
EXCLUSIVE = (LENGTHS, ("evaluate_every", "evaluations"))  # one takes the place of the other
RESUMABLE = (
    *LENGTHS,
    "evaluate_every",
    "evaluations",
    "validation_episodes",
    "checkpoint_every",
    "keep",
    "measure",
    "logger",
    "device",
    "threads",
)
KINDS: dict[str, plugins.Kind] = {"algo": "algorithms", "env": "envs"}
USAGE = "write KEY=VALUE, as in: python -m rlkit.run algo=ppo env=cartpole seed=1 (--help lists all)"

Factory = Callable[..., object]  # makes one gymnasium.Env; ...: its keywords and what it makes are checked then
Threads = Annotated[int, Ge(0), Le(1024)]


@dataclass(frozen=True)
class Run:
    """What belongs to the run and to no plug-in."""

    seed: Seed = 0  # every random draw of the run derives from it
    device: str = "auto"  # auto, cpu, cuda or cuda:N; auto takes a GPU where there is one
    out: str | None = None  # run folder; default runs/ALGO-ENV-sSEED-TIMESTAMP
    iterations: Count | None = None  # length of the run: rounds of the loop; text without a length: 60
    env_steps: Count | None = None  # or environment steps (tokens for text); control without a length: 100,000
    evaluate_every: Natural = 0  # iterations between evaluations on the validation split; 0: only at the end
    evaluations: Natural = 0  # or this many of them, spread evenly over the run
    evaluation_episodes: Count | None = None  # episodes or problems before and after; none: the environment's default
    validation_episodes: Count | None = None  # episodes or problems of each evaluation between
    measure: Literal["latest", "best"] = "latest"  # the parameters measured at the end: the last, or the best validated
    checkpoint_every: Natural = 0  # iterations between checkpoints; 0: at each evaluation, each minute, at the end
    keep: Natural = 1  # older checkpoints that are kept beside latest, as iteration-N
    logger: Literal["none", "wandb"] = "none"  # where the metrics go besides the run folder
    threads: Threads = 0  # torch threads; 0: one for control, OMP_NUM_THREADS or all cores for text

    def __post_init__(self) -> None:
        if self.iterations is not None and self.env_steps is not None:
            raise UserError(f"give iterations={self.iterations} or env_steps={self.env_steps}, not both")
        if self.evaluate_every and self.evaluations:
            raise UserError(f"give evaluate_every={self.evaluate_every} or evaluations={self.evaluations}, not both")


@dataclass
class Given:
    """What was asked for, by section: `configs/ALGO-ENV.yaml` with the command line over it, not yet validated."""

    run: Section = field(default_factory=dict)
    algo: Section = field(default_factory=dict)  # with its name under "name"
    env: Section = field(default_factory=dict)  # with its name under "name"
    policy: Section = field(default_factory=dict)
    code: Section = field(default_factory=dict)  # of a run folder: fingerprints of the plug-ins given as files
    resume: Path | None = None  # the run folder to continue
    help: bool = False
    argv: tuple[str, ...] = ()
    factory: Factory | None = None  # from Python: makes one copy of an environment that has no name

    def section(self, name: str) -> Section:
        """The keys of run, algo, env or policy."""
        return {"run": self.run, "algo": self.algo, "env": self.env, "policy": self.policy}[name]

    def override(self, other: "Given") -> None:
        """Put the other's keys over these."""
        self.run = without_rivals(self.run, other.run)
        for name in SECTIONS:
            self.section(name).update(other.section(name))


def without_rivals(below: Section, above: Section) -> Section:
    """The keys that stay when others are put over them: of two that exclude each other, the one above counts."""
    gone = {key for group in EXCLUSIVE if above.keys() & set(group) for key in group}
    return {key: value for key, value in below.items() if key not in gone}


def read(argv: Sequence[str]) -> Given:
    """Read a command line, with the pair's YAML below it, or with `resume=FOLDER` that run's configuration."""
    return complete(_parse(argv))


def complete(line: Given) -> Given:
    """Put what was given over the pair's YAML, or over the configuration of the run that is continued."""
    if line.resume is not None:
        given = from_folder(line.resume)
        check_resumed(line, given)
    else:
        for section, noun in (("algo", "algorithm"), ("env", "environment")):
            if "name" not in line.section(section) and not line.help:
                raise UserError(f"which {noun}? Give {section}=NAME (python -m rlkit.run --help lists them)")
        given = pair(line.algo.get("name", ""), line.env.get("name", ""))
        given.algo.update(preset(line.algo))
    given.override(line)
    given.resume, given.help, given.argv, given.factory = line.resume, line.help, line.argv, line.factory
    return given


def check_resumed(line: Given, held: Given) -> None:
    """Refuse what would change a run that is continued; what is given again must be what the run has."""
    line.algo = preset({"name": held.algo["name"], **line.algo}) | line.algo
    line.algo.pop("preset", None)
    for section in SECTIONS:
        has = held.section(section)
        for key, value in line.section(section).items():
            if section == "run" and key in RESUMABLE:
                continue
            name = key if section == "run" else section if key == "name" else f"{section}.{key}"
            head, _, inner = key.partition(".")
            if head not in has:
                raise UserError(f"no key '{name}' in the run {line.resume}: {nearest(key, has)}")
            was = has[head].get(inner) if inner and isinstance(has[head], dict) else has[head]
            if not schema.same(value, was):
                raise UserError(
                    f"resume continues a run as it was: it has {name}={schema.show(was)}, not {schema.show(value)}; "
                    f"what may change is {', '.join(RESUMABLE)}"
                )


def pair(algo: str, env: str) -> Given:
    """What `configs/ALGO-ENV.yaml` says about a pair; nothing where there is no such file."""
    for folder in rlkit.__path__:
        path = Path(folder, "configs", f"{algo}-{env}.yaml")
        if re.fullmatch(r"\w+-\w+", path.stem) and path.is_file():
            return _from_yaml(path)
    return Given()


def preset(algo: Section) -> Section:
    """The fields behind `algo.preset=SYSTEM`: what another system does under this algorithm's name.

    They stand above the pair's YAML and below the command line, and config.yaml holds what came out.
    """
    system = algo.pop("preset", None)
    if system is None:
        return {}
    name = algo.get("name", "")
    known = sections.presets(name)
    if system not in known:
        plugins.load("algorithms", name)  # is there such an algorithm at all?
        raise UserError(f"no preset '{system}' of {name}: {nearest(system, known)}")
    return known[system]


def from_folder(folder: str | Path) -> Given:
    """Read back the configuration that a run folder holds; the folder may have been moved since."""
    path = Path(folder).expanduser() / "config.yaml"
    if not path.is_file():
        raise UserError(f"{folder} is no run folder: it has no config.yaml; give a folder that rlkit.run wrote")
    given = _from_yaml(path)
    if "name" not in given.algo or "name" not in given.env:
        raise UserError(f"{path} names no algorithm and environment: it is not a run's config.yaml")
    given.run["out"] = str(path.parent)
    given.algo = sections.without_idle(path, given.algo)
    return given


def resolved(given: Given, run: Run, algo: object, env: object, policy: object = None) -> str:
    """The text of config.yaml: every key of the built dataclasses, and the command that repeats the run."""
    values: Sections = {"run": asdict(run)}
    for section, config in (("algo", algo), ("env", env), ("policy", policy)):
        name = given.section(section).get("name")
        if name is not None:
            values[section] = {"name": str(Path(name).resolve()) if name.endswith(".py") else name}
        if is_dataclass(config) and not isinstance(config, type):
            values.setdefault(section, {}).update(asdict(config))
    if code := {s: mark for s in KINDS if (mark := plugins.fingerprint(given.section(s)["name"]))}:
        values["code"] = code
    command = " ".join(_quoted(arg) for arg in given.argv if not arg.startswith("out="))
    text = yaml.safe_dump(schema.plain(values), sort_keys=False, allow_unicode=True)
    return f"# rlkit {rlkit.__version__}; to repeat: python -m rlkit.run {command}\n{text}"


def _quoted(word: str) -> str:
    """A word as a shell reads it, on one line: a line break would end the comment that it stands in."""
    if word.isprintable():
        return shlex.quote(word)
    escaped = {"\\": "\\\\", "'": "\\'"}
    return "$'" + "".join(escaped.get(c, c if c.isprintable() else ascii(c)[1:-1]) for c in word) + "'"


def new_folder(run: Run, given: Given) -> Path:
    """Make the folder of a new run: `out`, or runs/ALGO-ENV-sSEED-TIMESTAMP; never write into another run's folder."""
    if run.out is not None:
        folder = prepare_folder(run.out)
        if any(not path.name.startswith(".") for path in folder.iterdir()):  # a killed start leaves a lock behind
            raise UserError(f"out={run.out} is not empty: choose another folder, or continue it with resume={run.out}")
        return folder
    stem = f"{short(given.algo['name'])}-{short(given.env['name'])}-s{run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    prepare_folder("runs")
    number = 1
    while True:
        folder = Path("runs", stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # another run of the same second
            number += 1
        else:
            return prepare_folder(folder)


def _parse(argv: Sequence[str]) -> Given:
    given = Given(argv=tuple(argv))
    for word in argv:
        if word in ("--help", "-h"):
            given.help = True
            continue
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            raise UserError(without_dashes(word, [*argv, ""][argv.index(word) + 1]))
        if not equals:
            raise UserError(f"'{word}' is not understood: {USAGE}")
        put(given, key, value, word)
    for section in ("algo", "env"):
        if given.section(section).get("name") == "":
            raise UserError(f"{section}= is empty: give {section}=NAME (python -m rlkit.run --help lists them)")
    return given


def without_dashes(word: str, following: str) -> str:
    """The line for --KEY=VALUE, or for --KEY that a value follows."""
    key, equals, value = word.lstrip("-").partition("=")
    if not equals and following and "=" not in following and not following.startswith("-"):
        word, value = f"{word} {following}", following
    return (
        f"'{word}' is not understood: write {key or 'KEY'}={value or 'VALUE'}, without dashes (--help lists all keys)"
    )


def put(given: Given, key: str, value: object, word: str) -> None:
    """Take in one key of a command line, or one from Python; `word` is how it was written."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", key):
        raise UserError(f"'{word}' is not understood: {USAGE}")
    section, dot, rest = key.partition(".")
    if key == "resume":
        given.resume = Path(str(value))
    elif key in ("algo", "env"):
        given.section(key)["name"] = value
    elif key == "policy":
        raise UserError(f"'{word}' is not understood: keys of the policy are written policy.KEY=VALUE")
    elif not dot:
        given.run[key] = value
    elif section in SECTIONS:
        given.section(section)[rest] = value
    else:
        raise UserError(f"no section '{section}' for {word}: {nearest(section, SECTIONS)}")


def _from_yaml(path: Path) -> Given:
    given = Given()
    for section, keys in sections.read(path).items():
        if section not in (*SECTIONS, "code"):
            raise UserError(f"{path}: no section '{section}': {nearest(section, SECTIONS)}")
        setattr(given, section, keys)
    return given
