"""What was asked for: keys by section, not yet validated, and whether code that they name may run."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from rlkit.settings import plugins
from rlkit.settings.sections import Section

SECTIONS = ("run", "algo", "env", "policy")
KINDS: dict[str, plugins.Kind] = {"algo": "algorithms", "env": "envs"}

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
    resume: Path | None = None  # the run folder to continue
    help: bool = False
    argv: tuple[str, ...] = ()
    factory: Factory | None = None  # from Python: makes one copy of an environment that has no name

    def section(self, name: str) -> Section:
        """The keys of run, algo, env or policy."""
        return {"run": self.run, "algo": self.algo, "env": self.env, "policy": self.policy}[name]
