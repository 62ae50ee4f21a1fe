"""What was asked for: the words of a command line, as keys by section; not yet validated."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlkit.errors import UserError
from rlkit.paths import home, start
from rlkit.settings import plugins, schema
from rlkit.settings.plugins import nearest
from rlkit.settings.sections import Section

SECTIONS = ("run", "algo", "env", "policy")
SECOND = {"algo.name": "algo", "env.name": "env"}  # spellings that config.yaml has and a command line has not
KINDS: dict[str, plugins.Kind] = {"algo": "algorithms", "env": "envs"}

USAGE = "write KEY=VALUE, as in: python -m rlkit.run algo=ppo env=cartpole seed=1 (--help lists all)"

HELP = ("--help", "-h")  # with `all` behind it: every key

Factory = Callable[..., object]  # makes one gymnasium.Env; ...: its keywords and what it makes are checked then
Trust = Literal[False, True, "changed"]  # run code that a folder names; changed: also what is not as it was


@dataclass
class Given:
    """What was asked for, by section: `configs/ALGO-ENV.yaml` with the command line over it, not yet validated."""

    run: Section = field(default_factory=dict)
    algo: Section = field(default_factory=dict)  # with its name under "name"
    env: Section = field(default_factory=dict)  # with its name under "name"
    policy: Section = field(default_factory=dict)
    folder: Path | None = None  # the run folder that these keys were read from
    marks: dict[str, str] = field(default_factory=dict)  # of files, folders and modules, as that run began
    trust: Trust = False  # run the code from outside rlkit that the folder names
    trusted: bool = False  # `trust.check` has seen it, and hashed all that the marks name
    resume: Path | None = None  # the run folder to continue
    config: Path | None = None  # a file of keys, which the command line stands above
    help: Literal["", "short", "all"] = ""  # the keys that people change first, or every key
    argv: tuple[str, ...] = ()
    here: Path = field(default_factory=start)  # where relative paths start: before any code of the user's ran
    factory: Factory | None = None  # from Python: makes one copy of an environment that has no name

    def section(self, name: str) -> Section:
        """The keys of run, algo, env or policy."""
        return {"run": self.run, "algo": self.algo, "env": self.env, "policy": self.policy}[name]

    def by_itself(self) -> None:
        """Measured or played, a run needs no server that wrote its text: rlkit's own engine writes."""
        for key in ("engine", "server", "exchange", "staleness"):
            self.policy.pop(key, None)

    def called(self, folder: Path) -> Path:
        """The run's folder as it was written, to be shown."""
        typed = home(str(self.run.get("out") or "runs"))
        below = not typed.is_absolute() and folder.is_relative_to(self.here)
        return folder.relative_to(self.here) if below else folder


def parse(argv: Sequence[str]) -> Given:
    given = Given(argv=tuple(argv))
    schema.once(argv)
    for before, word in zip(["", *argv], argv, strict=False):
        if word in HELP:
            given.help = given.help or "short"
            continue
        if word == "help=all" or (word == "all" and before in HELP):
            given.help = "all"
            continue
        key, equals, value = word.partition("=")
        if word.startswith("-"):
            raise UserError(without_dashes(argv, list(argv).index(word)))
        if not equals:
            raise UserError(f"'{word}' is not understood: {USAGE}")
        put(given, key, schema.Typed(value) if "." in key else value, word)
    for section in ("algo", "env"):
        if given.section(section).get("name") == "":
            raise UserError(f"{section}= is empty: give {section}=NAME (python -m rlkit.run --help lists them)")
    return given


def of_files(word: str) -> bool:
    """Whether a word behind a run's folder may say where a file of the run lies now: it is a key of a plug-in."""
    key = word.partition("=")[0]
    return key in KINDS or key.partition(".")[0] in SECTIONS[1:]


def without_dashes(argv: Sequence[str], first: int) -> str:
    """The whole line for one with --KEY=VALUE, or with --KEY that a value follows; `first` is the first of these."""
    words, odd, line, i = [*argv, ""], argv[first], [], 0
    while i < len(argv):
        word, following = words[i], words[i + 1]
        key, equals, value = word.lstrip("-").partition("=")
        i += 1
        if not word.startswith("-") or word in HELP:
            line.append(word)
            continue
        if not equals and following and "=" not in following and not following.startswith("-"):
            odd, value, i = (f"{word} {following}" if word == odd else odd), following, i + 1
        line.append(f"{key.replace('-', '_') or 'KEY'}={value or 'VALUE'}")
    dashed = [word for word in argv if word.startswith("-") and word not in HELP]
    told = " ".join(line) if len(dashed) > 1 else line[first]
    return f"'{odd}' is not understood: write {told}, without dashes (--help lists all keys)"


def put(given: Given, key: str, value: object, word: str) -> None:
    """Take in one key of a command line, or one from Python; `word` is how it was written."""
    if not re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", key):
        raise UserError(f"'{word}' is not understood: {USAGE}")
    section, dot, rest = key.partition(".")
    if key in SECOND or (dot and section == "run"):  # one spelling, so that no key is given twice under two
        raise UserError(f"'{word}' is a second spelling: write {SECOND.get(key, rest)}{word[len(key) :]}")
    if key == "resume":
        given.resume = Path(str(value))
    elif key == "config":
        given.config = Path(str(value))
    elif key == "trust":
        trusted = schema.validate(key, value, Trust)
        given.trust = "changed" if trusted == "changed" else bool(trusted)
    elif key in ("algo", "env"):
        given.section(key)["name"] = value
    elif key == "policy":
        raise UserError(f"'{word}' is not understood: keys of the policy are written policy.KEY=VALUE")
    elif not dot:
        given.run[key] = value
    elif section in SECTIONS:
        given.section(section)[rest] = value
    else:
        raise UserError(f"no section '{section}' for {word}: {nearest(section, SECTIONS[1:])}")
