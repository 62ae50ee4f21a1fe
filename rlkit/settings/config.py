"""yaml + command line → validated dataclasses.

Frozen dataclasses hold the vetted defaults, `configs/ALGO-ENV.yaml` says what a pair changes, the command line wins;
what comes out is written into the run folder, enough to repeat the run.
"""

import os
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, is_dataclass, replace
from pathlib import Path
from typing import Annotated, Literal

from annotated_types import Ge, Le

import rlkit
from rlkit.errors import UserError
from rlkit.fields import Count, Episodes, Natural, Seed
from rlkit.paths import back, home
from rlkit.recording.files import is_file
from rlkit.settings import places, plugins, repeat, schema, sections, strict_yaml, trust
from rlkit.settings.given import KINDS as KINDS  # `as`: others take it from here
from rlkit.settings.given import SECTIONS as SECTIONS
from rlkit.settings.given import Given as Given
from rlkit.settings.given import parse
from rlkit.settings.given import put as put
from rlkit.settings.moved import follow as follow
from rlkit.settings.plugins import nearest
from rlkit.settings.plugins import network_class as network_class
from rlkit.settings.schema import build as build
from rlkit.settings.sections import Section, Sections
from rlkit.settings.synonyms import instead

LONGEST = 4096  # characters of a path
Threads = Annotated[int, Ge(0), Le(256)]


@dataclass(frozen=True)
class Run:
    """What belongs to the run and to no plug-in."""

    seed: Seed = 0  # seed of every random draw of the run
    device: str = "auto"  # auto, cpu, cuda or cuda:N; auto takes a GPU where there is one
    out: str | None = None  # run folder; default runs/ALGO-ENV-sSEED-TIMESTAMP
    iterations: Count | None = None  # length of the run in iterations; text without a length: 60
    env_steps: Count | None = None  # least steps (text: tokens), in whole iterations; control's default: 100,000
    evaluate_every: Natural = 0  # iterations between evaluations on the validation split; 0: only at the end
    evaluations: Natural = 0  # number of evaluations, spread evenly over the run; in place of evaluate_every
    evaluation_episodes: Episodes | None = None  # episodes of the first and last test; none: the environment's
    validation_episodes: Episodes | None = None  # episodes of each evaluation; none: the environment's
    measure: Literal["latest", "best"] = "latest"  # parameters to test at the end: latest, or best on validation
    checkpoint_every: Natural = 0  # iterations between checkpoints; 0: at each evaluation, each minute, at the end
    keep: Natural = 1  # number of older checkpoints to keep, as iteration-N
    logger: Literal["none", "wandb"] = "none"  # tracker that gets the metrics, too
    threads: Threads = 0  # torch threads, up to the cores; 0: one for control, OMP_NUM_THREADS or all for text

    def __post_init__(self) -> None:
        if self.iterations is not None and self.env_steps is not None:
            raise UserError(f"give iterations={self.iterations} or env_steps={self.env_steps}, not both")
        if self.evaluate_every and self.evaluations:
            raise UserError(f"give evaluate_every={self.evaluate_every} or evaluations={self.evaluations}, not both")


def from_file(path: Path, line: Given) -> Given:
    """The keys of `config=FILE`: sections as in configs/ALGO-ENV.yaml, or a run's config.yaml without its folder.

    Raises: UserError for a file that is of another algorithm or environment than the command line names.
    """
    place = home(path)
    if not is_file(place):
        raise UserError(f"config={path}: there is no such file: {sections.instead_of(path)}")
    found = _from_yaml(place)
    if sections.by_run(place):
        as_then(place, found)
    for section in KINDS:
        one, other = line.section(section).get("name"), found.section(section).get("name", "")
        if not isinstance(other, str):
            what = f"{section}.name={schema.show(other)}"
            raise UserError(f"config={path}: {what} is not a text: write the name of a plug-in, or leave it out")
        if one and other and plugins.path_or_module(one) != plugins.path_or_module(other):
            raise UserError(f"config={path} is for {section}={other}, not {section}={one}: leave out one of the two")
    found.run = sections.without_folder(path, found.run)
    below = {} if "preset" in line.algo else preset({**line.algo, **found.algo})  # that of the line takes its place
    found.algo = below | found.algo
    found.algo.pop("preset", None)
    return found


def override(below: Given, above: Given) -> None:
    """Put the keys of `above` over those of `below`."""
    below.run = repeat.without_rivals(below.run, above.run)
    for name in SECTIONS:
        below.section(name).update(above.section(name))


def read(argv: Sequence[str]) -> Given:
    """Read a command line, with the pair's YAML below it, or with `resume=FOLDER` that run's configuration."""
    return complete(parse(argv))


def complete(line: Given) -> Given:
    """Put what was given over the pair's YAML, or over the configuration of the run that is continued."""
    line.argv = tuple(word for word in line.argv if not repeat.asks_nothing(word))
    line.run = {key: x for key, x in line.run.items() if not repeat.asks_nothing(f"{key}={schema.show(x)}")}
    if line.resume is not None:
        given = continued(line)
        line = changes(line, given)
    else:
        file = Given() if line.config is None else from_file(line.config, line)
        for section, noun in (("algo", "algorithm"), ("env", "environment")):
            if "name" not in {**file.section(section), **line.section(section)} and not line.help:
                raise UserError(f"which {noun}? Give {section}=NAME (python -m rlkit.run --help lists them)")
        if line.trust and line.config is None:
            raise UserError("trust= is for a run folder of someone else's: give it beside resume=FOLDER")
        given = pair(*(str({"name": "", **file.section(s), **line.section(s)}["name"]) for s in KINDS))
        override(given, file)
        given.algo.update(preset({**given.algo, **line.algo}))
        line.algo.pop("preset", None)
    override(given, line)
    given.resume, given.help, given.argv, given.factory = line.resume, line.help, line.argv, line.factory
    if line.config is not None and not line.trust:
        trust.check_file(line.config, given)
    if line.resume is None:
        refuse_strange(line, given)
    return given


def continued(line: Given) -> Given:
    """The configuration of the run that `resume` names, if its files are as they were; some may have moved."""
    assert line.resume is not None, "without it, this is a new run"
    if line.config is not None:
        raise UserError(f"config={line.config} is for a new run: resume={line.resume} goes on with its own keys")
    given = from_folder(line.resume)
    given.trust, given.factory = line.trust, line.factory
    follow(line, given)
    trust.check(given)
    return given


def at_new_places(folder: str | Path, line: Given) -> Given:
    """The configuration that a run folder holds, with the places where `line` says that its files lie now.

    Raises: UserError for a key that would make it another run.
    """
    given = continued(replace(line, resume=Path(folder)))
    changes(line, given, may=())
    return given


def refuse_strange(line: Given, given: Given) -> None:
    """Refuse a key that the run has not, and say which one of the named plug-ins is meant: this imports them."""
    known = schema.settable(Run)
    for key in line.run:
        if key not in known:
            names = {s: given.section(s)["name"] for s in KINDS if "name" in given.section(s)}
            loaded = {s: plugins.load(KINDS[s], name) for s, name in names.items()}
            there = {section: list(schema.settable(module.Config)) for section, module in loaded.items()}
            if not any(key in fields for fields in there.values()):  # else it is reported below
                raise UserError(f"no key '{key}': {instead(key, 'run', list(known), there)}")


def changes(line: Given, held: Given, may: Sequence[str] = repeat.RESUMABLE) -> Given:
    """The keys of `may` that change a run which is continued; what is given again must be what the run has.

    Raises: UserError for a key that would make it another run.
    """
    line.algo = preset({"name": held.algo["name"], **line.algo}) | line.algo
    line.algo.pop("preset", None)
    for section in SECTIONS:
        has = held.section(section)
        for key, value in line.section(section).items():
            name = key if section == "run" else section if key == "name" else f"{section}.{key}"
            if name in may:
                continue
            head, _, inner = key.partition(".")
            if head not in has:
                raise UserError(f"no key '{name}' in the run {held.folder}: {nearest(key, has)}")
            told, was = meant(held, section, key, value), meant(held, section, head, has[head])
            if inner and isinstance(told, dict) and isinstance(was, dict):
                told, was = told[inner], was.get(inner)
            elsewhere = name in repeat.MOVABLE and told and was
            if told != was and not elsewhere:
                what = ", ".join(may) or "where the files lie that it names"
                raise UserError(
                    f"{'resume continues' if may else 'this opens'} a run as it was: it has {name}={schema.show(was)}, "
                    f"not {schema.show(value)}; what may change is {what}"
                )
    run = {key: value for key, value in line.run.items() if key in repeat.RESUMABLE}
    policy = {key: value for key, value in line.policy.items() if f"policy.{key}" in repeat.RESUMABLE}
    algo = {key: value for key, value in line.algo.items() if f"algo.{key}" in repeat.MOVABLE}
    return replace(line, run=run, algo=algo, env={}, policy=policy)


def meant(held: Given, section: str, key: str, value: object) -> object:
    """What a value of a run's key stands for, as config.yaml has it; a text is read as the type of its field."""
    if section in KINDS and key == "name":
        return plugins.path_or_module(str(value))
    cls = keys_of(held, section)
    head, marked = key.partition(".")[0], places.marked(cls)
    found = schema.convert(cls, {key: value}, section)[head]
    return schema.plain(places.absolute(found, marked[head]) if head in marked else found)


def keys_of(held: Given, section: str) -> type:
    """The dataclass behind the keys of a section."""
    if section in KINDS:
        found: type = plugins.load(KINDS[section], str(held.section(section)["name"])).Config
        return found
    return trust.policy_keys(held) if section == "policy" else Run


def pair(algo: str, env: str) -> Given:
    """What `configs/ALGO-ENV.yaml` says about a pair; nothing where there is no such file."""
    for folder in rlkit.__path__:
        path = Path(folder, "configs", f"{algo}-{env}.yaml")
        if re.fullmatch(r"\w+-\w+", path.stem) and os.path.isfile(path):
            return _from_yaml(path)
    return Given()


def preset(algo: Section) -> Section:
    """The fields behind `algo.preset=SYSTEM`: what another system does under this algorithm's name.

    They stand above the pair's YAML and below the command line, and config.yaml holds what came out.
    """
    system = algo.pop("preset", None)
    if system is None or system == "none":
        return {}
    name = algo.get("name", "")
    known = sections.presets(name)
    if not isinstance(system, str) or system not in known:
        if plugins.is_short(name):  # nothing else is imported: it may be a stranger's
            plugins.load("algorithms", name)  # is there such an algorithm at all?
        raise UserError(f"no preset '{system}' of {name}: {nearest(str(system), known)}")
    return known[system]


def from_folder(folder: str | Path) -> Given:
    """Read back the configuration that a run folder holds; the folder may have been moved since."""
    path = home(folder) / "config.yaml"
    if not is_file(path):
        raise UserError(f"{folder} is not a run folder: it has no config.yaml; give a folder that rlkit.run wrote")
    given = _from_yaml(path)
    if not all(isinstance(given.section(section).get("name"), str) for section in KINDS):
        raise UserError(f"{path} names no algorithm and environment: it is not a run's config.yaml")
    given.run["out"], given.folder = str(path.parent), path.parent
    with_own_replay(given, path.parent)
    as_then(path, given)
    return given


def with_own_replay(given: Given, folder: Path) -> None:
    """Name the replay that lies in the run folder itself, however deep: it moved, or was copied, with it."""
    storage = given.algo.get("storage")
    names = Path(storage).parts[1:] if isinstance(storage, str) and len(storage) <= LONGEST else ()
    inside = (os.path.join(folder, *names[first:], x) for first in range(len(names)) for x in ("kept", "mask.ring"))
    if own := next(filter(os.path.isfile, inside), ""):
        given.algo["storage"] = os.path.realpath(os.path.dirname(own))


def as_then(path: Path, given: Given) -> None:
    """Complete what a run of an earlier version wrote: keys that came later have the value that says what it did."""
    given.algo = sections.with_later(sections.without_idle(path, given.algo))
    given.env, given.policy = sections.with_later(given.env), sections.with_later_layers(given.policy)


def resolved(given: Given, run: Run, algo: object, env: object, policy: object = None) -> str:
    """The text of config.yaml: every key of the built dataclasses, and the command that repeats the run."""
    values: Sections = {"run": asdict(run)}
    configs = {"algo": algo, "env": env, "policy": policy}
    with back(given.here):  # relative paths start there
        for section, config in configs.items():
            name = given.section(section).get("name")
            if name is not None:
                values[section] = {"name": plugins.path_or_module(name)}
            if is_dataclass(config) and not isinstance(config, type):
                marked, built = places.marked(type(config)), asdict(config)
                settable = {k: built[k] for k in schema.settable(type(config))}  # others the class sets itself
                keys = {k: places.absolute(x, marked[k]) if k in marked else x for k, x in settable.items()}
                values.setdefault(section, {}).update(keys)
        values |= trust.marks({section: given.section(section)["name"] for section in KINDS}, configs)
    text = strict_yaml.dump(schema.plain(values))
    return f"{repeat.line(given.argv)}\n{text}"


def _from_yaml(path: Path) -> Given:
    given, found = Given(), sections.read(path)
    for section, keys in found.items():
        if section in SECTIONS:
            given.section(section).update(keys)
        elif section not in ("marks", "code"):
            raise UserError(f"{path}: no section '{section}': {nearest(section, SECTIONS)}")
    marks = found.get("marks", {})
    for section, mark in found.get("code", {}).items():  # what 0.3 wrote: a mark for each plug-in given as a file
        name = given.section(section).get("name") if section in KINDS else None
        marks[name if isinstance(name, str) else ""] = mark
    if not all(isinstance(mark, str) and name for name, mark in marks.items()):
        raise UserError(f"{path}: its marks are not texts: write what the run wrote, or leave them out")
    given.marks = marks
    return given
