"""Any Gymnasium environment: by its id, `env=gym env.id=Acrobot-v1`, or by its class, `env.entry=my_pkg.envs:MyEnv`."""

import difflib
import os
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Annotated

import gymnasium
import torch
from gymnasium.envs.registration import EnvSpec
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlkit import memory, outside, ranks
from rlkit.api import Count, Natural, Place, Reference, UserError
from rlkit.control import ControlEnv, Luck
from rlkit.control.contract import Uninformed, check_copies, check_statistics
from rlkit.control.masks import MaskInObservation, tells_mask
from rlkit.control.sendable import Sendable
from rlkit.control.vector import Vector
from rlkit.control.workers import end_with_parent, starting
from rlkit.control.wrapping import (
    DRAWN,
    Keywords,
    check_drawing,
    check_window,
    cut_before,
    longest,
    wrapped,
)
from rlkit.errors import one_line
from rlkit.fields import Needs
from rlkit.seeding import seed_global
from rlkit.terminal import warn

EXTRAS = {".box2d": "box2d", ".mujoco": "mujoco", ".classic_control": "classic-control"}  # of gymnasium
ELSEWHERE = {  # how ids begin that packages register which are not imported here
    "ALE/": "Atari games are env=atari, as in env=atari env.game=pong",
    "MiniGrid-": "it is a world of env=minigrid: give that with the same env.id",
}
MANY, TRIED = 4096, 32  # copies whose memory is checked before they are made, by that of some of them
UNNAMED = "<"  # begins the entry of an environment that was given in Python and has no name to import it by

Factory = Callable[..., gymnasium.Env]  # ...: its keywords are its own, and so are those of a registered class:
Wrapped = Annotated[Keywords, Needs("wrappers")]
Named = Annotated[str, Place("code")]  # MODULE:NAME; a module may be called model


@dataclass(frozen=True)
class Config:
    rows: Count = 8  # copies played side by side
    id: Named = ""  # a Gymnasium id, such as Acrobot-v1, or my_pkg:My-v0 where importing my_pkg registers it
    kwargs: Keywords = field(default_factory=dict)  # keyword arguments of the environment's constructor
    wrappers: tuple[Named, ...] = ()  # wrappers, the first innermost: names of gymnasium.wrappers, or FILE.py:NAME
    wrapper_kwargs: Wrapped = field(default_factory=dict)  # keyword arguments of each wrapper, by its NAME
    step_limit: Natural = 0  # steps inside of the wrappers that truncate an episode; 0: the environment's own limit
    entry: Named = ""  # in place of id: MODULE:NAME of a class, or of a function that makes an environment
    processes: bool = False  # run each copy in a process of its own, in training
    luck: Luck = "shared"  # randomness of attempts from one start: shared, or their own after the reset
    action_masks: bool = True  # use info["action_mask"], where the environment gives it

    def __post_init__(self) -> None:
        if self.id and self.entry:
            raise UserError(f"give env.id={self.id} or env.entry={self.entry}, not both")
        check_drawing(self.kwargs)

    @property
    def called(self) -> str:
        """The key that says which environment this is."""
        return f"env.entry={self.entry}" if self.entry else f"env.id={self.id}"


def known(name: str) -> EnvSpec:
    """The specification of an id, or the ids that look like it; the module in front of a colon is imported."""
    if not name:
        raise UserError("env=gym needs the id of a Gymnasium environment: give env.id=ID, as in env.id=Acrobot-v1")
    module, _, inner = name.rpartition(":")
    if module:
        imported(module, f"env.id={name}")
    try:
        return gymnasium.spec(inner)
    except (gymnasium.error.Error, ValueError) as error:
        ids = {known_id.lower(): known_id for known_id in gymnasium.registry}
        near = [ids[match] for match in difflib.get_close_matches(inner.lower(), ids, n=3)]
        hint = f"did you mean {', '.join(near)}?" if near else "see gymnasium.farama.org for the ids"
        for start, words in ELSEWHERE.items():
            if inner.startswith(start) and not any(known_id.startswith(start) for known_id in gymnasium.registry):
                hint = words
        raise UserError(f"env.id={name} is not a Gymnasium environment: {hint}") from error


def named(entry: str) -> Factory:
    """The class or function that an entry names."""
    if entry.startswith(UNNAMED):
        raise UserError(
            f"env.entry={entry} has no name to import it by: open the run in Python, with rlkit.load(FOLDER, env=...)"
        )
    module, _, name = entry.partition(":")
    if not module or not name:
        raise UserError(f"env.entry={entry} is not understood: give MODULE:NAME, as in env.entry=my_pkg.envs:MyEnv")
    *path, last = name.split(".")
    holder: object = imported(module, f"env.entry={entry}")
    for part in path:
        holder = getattr(holder, part, None)
    found: Factory | None = getattr(holder, last, None)
    if not callable(found):
        raise UserError(f"env.entry={entry}: {module} has no class or function {name}; define it there or correct it")
    return found


def imported(module: str, key: str) -> ModuleType:
    """A module that a key names; an error inside of it is raised as it is."""
    try:
        if not all(part.isidentifier() for part in module.split(".")):
            raise ModuleNotFoundError(name=module)  # such as a path
        return outside.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{module}.".startswith(f"{error.name}."):
            raise
        without = f"; a file is given as {Path(module).stem}:NAME" if module.endswith(".py") else ""
        raise UserError(
            f"{key}: there is no module '{error.name}' here (start in the folder that holds it, or install it){without}"
        ) from None


def check_memory(copies: Sequence[Callable[[], gymnasium.Env[object, object]]], rows: int) -> None:
    """Refuse copies for which there is no room, judged by what some of them take: a world of Box2D is 0.1 MB."""

    def begun(copy: Callable[[], gymnasium.Env[object, object]]) -> gymnasium.Env[object, object]:
        env = copy()
        env.reset(seed=0)
        return env

    begun(copies[0]).close()  # the first one loads what all of them use
    before = memory.taken()
    some = [begun(copy) for copy in copies[:TRIED]]
    each = max(0, memory.taken() - before) // len(some)
    for env in some:
        env.close()
    many = "" if len(copies) == rows else f", as {len(copies):,} copies side by side,"
    memory.check(each * len(copies), f"env.rows={rows}{many}", "give fewer")


def specification(config: Config, factory: Factory | None) -> EnvSpec:
    """What Gymnasium makes: a registered id, the class that `entry` names, or an object given in Python."""
    if factory is None and not config.entry:
        return known(config.id)
    make_it = factory or named(config.entry)
    # A function of our own: what a specification holds is copied, and a class may be one that cannot be. The keywords
    # stand in it, as `gymnasium.make` takes some of those that it is given, such as max_episode_steps, for its own.
    return EnvSpec(id="rlkit/entry", entry_point=lambda **kwargs: make_it(**kwargs), kwargs=config.kwargs)


def log_in_one_line(spec: EnvSpec) -> None:
    """MuJoCo's warnings are printed as rlkit's own; else they go to a file in the current folder."""
    if ".mujoco" not in str(spec.entry_point):
        return
    try:
        import mujoco
    except Exception as error:  # it also imports the library that should draw
        absent = isinstance(error, ModuleNotFoundError) and error.name == "mujoco"
        if not absent and (library := os.environ.get("MUJOCO_GL")):
            words = f"{type(error).__name__}: {one_line(error)}"
            raise UserError(
                f"MuJoCo cannot be imported with MUJOCO_GL={library} ({words}): unset it, or install what it names"
            ) from error
        if isinstance(error, ImportError):
            return  # `gymnasium.make` reports it
        raise
    if "MjModel" not in vars(mujoco):
        place = vars(mujoco).get("__file__") or next(iter(mujoco.__path__))  # a folder without code has no file
        raise UserError(
            f"Python finds {place} in the place of MuJoCo: rename it or start elsewhere, and install MuJoCo where it "
            "is missing (pip install 'gymnasium[mujoco]')"
        )

    def told(text: str) -> None:
        if "deprecated" not in text:  # of Gymnasium's models, which nobody here can change
            warn(f"MuJoCo: {one_line(text)}")

    mujoco.set_mju_user_warning(told)


def make_one(
    config: Config, factory: Factory | None = None, render_mode: str | None = None
) -> gymnasium.Env[object, object]:
    """One copy in its wrappers. Raises: UserError with the reason where it cannot be made."""
    return wrapped(bare(config, factory, render_mode), config.wrappers, config.wrapper_kwargs)


def bare(
    config: Config, factory: Factory | None = None, render_mode: str | None = None
) -> gymnasium.Env[object, object]:
    """One copy without the wrappers of `env.wrappers`."""
    spec = specification(config, factory)
    log_in_one_line(spec)
    limit = {"max_episode_steps": config.step_limit} if config.step_limit else {}
    keywords = {} if factory or config.entry else deepcopy(config.kwargs)
    if render_mode is not None:
        keywords["render_mode"] = render_mode
    try:
        return gymnasium.make(spec, disable_env_checker=True, **limit, **keywords)
    except (UserError, MemoryError):
        raise
    except (gymnasium.error.DependencyNotInstalled, ModuleNotFoundError) as error:
        extra = next((name for part, name in EXTRAS.items() if part in str(spec.entry_point)), None)
        remedy = f"pip install 'gymnasium[{extra}]'" if extra else one_line(error)
        raise UserError(f"{config.called} needs a package that is not installed: {remedy}") from error
    except Exception as error:  # whatever an environment raises
        own = factory is not None or config.entry  # what code that was named as such raises is raised as it is
        if own and not isinstance(error, gymnasium.error.Error | TypeError):
            raise
        words = f"{type(error).__name__}: {one_line(error)}"
        if render_mode is not None:  # without it, it was made before
            told = f"let it take render_mode={render_mode}, as Gymnasium's do"
            raise UserError(f"{config.called} cannot be drawn ({words}): {told}") from error
        raise UserError(f"{config.called} with env.kwargs={one_line(config.kwargs)} cannot be made: {words}") from error


def told(config: Config, factory: Factory | None) -> tuple[EnvSpec | None, int | None]:
    """What a copy says of itself: its specification, and the most steps of an episode."""
    one = make_one(config, factory)
    try:
        check_statistics(one, config.called)
        check_window(one, config.called)
        if config.step_limit and (own := cut_before(one, config.step_limit)) is not None:
            warn(
                f"{config.called} truncates its episodes by itself after {own} steps, so env.step_limit="
                f"{config.step_limit} changes nothing"
            )
        return one.spec, longest(one)
    finally:
        one.close()


def in_processes(
    copy: Callable[[], gymnasium.Env[object, object]], spec: EnvSpec | None, rows: int, seed: int, n: int
) -> Vector:
    """`n` copies, each in a process of its own, which is made with draws of its own."""
    trains, each = os.getpid(), n * ranks.size() // rows  # each: copies of a row
    first = ranks.part_of(rows).start * each
    if n >= MANY:  # a process takes its copy's memory at least
        check_memory([copy] * n, rows)

    def apart(number: int) -> gymnasium.Env[object, object]:
        end_with_parent(trains)
        if os.getpid() != trains:
            seed_global(seed, "copy", number)
        return Sendable(copy())

    with starting(f"env.rows={rows} with env.processes=true starts {n:,} processes"):
        together = AsyncVectorEnv([partial(apart, first + i) for i in range(n)], autoreset_mode=AutoresetMode.DISABLED)
    together.spec = spec  # it knows none of its own
    return together


def make(
    config: Config,
    seed: int,
    device: str | torch.device,
    reference: Reference | None = None,
    factory: Factory | None = None,
) -> ControlEnv:
    """A Gymnasium environment; `factory` makes one copy in place of id and entry."""
    check_copies(partial(make_one, config, factory), config.called)
    masked = config.action_masks and tells_mask(partial(make_one, config, factory), config.called)

    def copy(render_mode: str | None = None) -> gymnasium.Env[object, object]:
        made = make_one(config, factory, render_mode)
        return Uninformed(MaskInObservation(made) if masked else made, config.called)

    spec, most = told(config, factory)

    def vector(n: int, render_mode: str | None = None) -> Vector:
        copies = [partial(copy, render_mode)] * n
        if n >= MANY:
            check_memory(copies, config.rows)
        return SyncVectorEnv(copies, autoreset_mode=AutoresetMode.DISABLED)

    env = ControlEnv(
        vector,
        config.rows,
        seed,
        device,
        source=f"Gymnasium {config.entry or config.id}",
        evaluation_copies=max(config.rows, 16),
        reference=reference,
        drawn=partial(vector, 1, render_mode=DRAWN),
        luck=config.luck,
        limiting="give env.step_limit=N",
        # Those of a measurement may be many.
        trained=partial(in_processes, copy, spec, config.rows, seed) if config.processes else None,
    )
    env.longest = most
    return env
