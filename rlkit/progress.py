"""The progress of a run, and saving and restoring everything that it consists of."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache
from pathlib import Path

import torch
from torch import nn

from rlkit import ranks, shards
from rlkit.api import Algorithm, Env, Lasting, State
from rlkit.attributes import check_alike, check_numbers, is_part, put_back, put_in_order, separate, state_of
from rlkit.bounds import check_actions, check_steps, check_types
from rlkit.counters import natural
from rlkit.doctor.doctor import Doctor
from rlkit.errors import UserError, one_line
from rlkit.finite import check_finite, leaves, sound, unsound
from rlkit.held import check_agreed, check_unchanged, is_own, learning, named, of_name, of_policy, owner
from rlkit.meter import Meter
from rlkit.moments import check_optimizer, freeze, frozen_in, options_of, shared_groups, types_kept
from rlkit.policies.base import Exploring
from rlkit.recording import checkpoint, twins
from rlkit.recording.checkpoint import fitting
from rlkit.recording.undo import drawing, plain
from rlkit.settings.config import Run
from rlkit.terminal import warn


@dataclass
class Progress:
    """The progress of a run, and measurements that are not logged yet."""

    iteration: int = 0
    env_steps: int = 0
    best: float = -math.inf  # the best validation score so far
    best_of: int = 0  # number of episodes or problems in that score; 0: unknown
    best_among: int | None = 0  # number of evaluations since the search for the best began; None: unknown
    ended: bool = False  # nothing was left to learn from
    logged: int = 0  # the iteration of the newest line of metrics.jsonl; 0: there is none, or it is unknown
    meter: Meter = field(default_factory=Meter)
    doctor: Doctor = field(default_factory=Doctor)
    interrupted: bool = False  # by Ctrl-C or a listener: the current parameters are measured
    terminated: int = 0  # the signal, such as SIGTERM, after which only a checkpoint is written
    measured: bool = False  # the result is measured and written: later signals stop nothing
    data: str = ""  # a fingerprint of the data that the run learns from; empty: it has none, or it is unknown
    held: dict[str, str] | None = None  # fingerprints of unsaved attributes of the algorithm when this process began,
    first: dict[str, str] = field(default_factory=dict)  # and when the run began; of algorithms of the user's own

    def state_dict(self) -> State:
        numbers = {"iteration": self.iteration, "env_steps": self.env_steps, "best": self.best, "ended": self.ended}
        numbers |= {"best_of": self.best_of, "logged": self.logged}
        if self.best_among is not None:
            numbers["best_among"] = self.best_among
        return numbers | {"data": self.data, "meter": self.meter.state_dict(), "doctor": self.doctor.state_dict()}

    def load_state_dict(self, state: State) -> None:
        """Raises: KeyError, TypeError or ValueError where this is not the progress of a run."""
        self.iteration, self.env_steps = (natural(state[key]) for key in ("iteration", "env_steps"))
        self.best, self.ended = float(state["best"]), bool(state["ended"])
        # rlkit 0.5 wrote none of these keys
        self.data = str(state.get("data", ""))
        self.best_of, self.logged = natural(state.get("best_of", 0)), natural(state.get("logged", 0))
        known = "best_among" in state or self.best == -math.inf
        self.best_among = natural(state.get("best_among", 0)) if known else None
        self.meter.load_state_dict(state["meter"])
        doctor = state["doctor"]
        if not all(isinstance(alarm["name"], str) and isinstance(alarm["message"], str) for alarm in doctor["alarms"]):
            raise TypeError("an alarm is not text")
        if len(doctor["update"]) not in (0, 2):
            raise ValueError("an update has two norms")
        points = [x for each in doctor.get("points", {}).values() for proxy, gold in each for x in (proxy, gold)]
        check_numbers([*doctor["streaks"].values(), *doctor["past"].values(), *doctor["update"], *points])
        self.doctor.load_state_dict(doctor)

    def over(self, run: Run, *stops: int) -> bool:
        """Whether the loop stops: the budget is spent, no data are left, or a stop was requested.

        stops: `interrupted` and `terminated`, after all ranks agreed on them.
        """
        asked = stops or (self.interrupted, self.terminated)
        self.interrupted |= bool(asked[0])  # a signal may have come since the ranks agreed: it is kept
        self.terminated = max(self.terminated, asked[1])
        return self.fraction(run) >= 1 or self.ended or any(asked)

    def count(self, steps: int) -> None:
        """Count an iteration, and the acted steps in its rollout."""
        self.iteration += 1
        self.env_steps += steps

    def fraction(self, run: Run) -> Fraction:
        """The fraction of the run that is done, exact: a float near k/N may fall on either side of it."""
        return share(self.iteration, run.iterations, self.env_steps, run.env_steps)


@lru_cache(maxsize=8)  # called several times per iteration
def share(iteration: int, iterations: int | None, env_steps: int, all_steps: int | None) -> Fraction:
    """The fraction of a run that ends after so many iterations or environment steps, whichever comes first."""
    done = [Fraction(iteration, iterations)] if iterations else []
    done += [Fraction(env_steps, all_steps)] if all_steps else []
    furthest = max(done)
    return furthest if furthest.numerator < furthest.denominator else Fraction(1)  # to compare fractions takes longer


def save(folder: Path, algo: Algorithm, env: Env, progress: Progress, name: str = "latest", keep: int = 0) -> None:
    """Save everything that a run consists of: the algorithm's `saved`, generators, environment, progress.

    Raises: UserError where state would be lost, Diverged where it is not finite; the previous checkpoint stays.
    """
    check_unchanged(algo, env, progress.held, progress.first)
    if (lasting := lasting_of(algo)) is not None:
        lasting.flush()
    state = {"run": identity(algo, env), **_content(algo, algo.saved)}
    state |= {"frozen": {key: frozen_in(x) for key, x in learning(algo).items()}}
    state |= {"generators": {key: state_of(x) for key, x in drawing(algo).items()}, "env": env.state_dict()}
    state |= {"progress": progress.state_dict()} | ({"ranks": ranks.size()} if ranks.size() > 1 else {})
    state |= {"first": progress.first or progress.held or {}} if is_own(algo) else {}
    check_agreed(algo, state)
    _write(algo, lambda: checkpoint.save(folder, state, name, keep, progress.iteration))
    ranks.saved = progress.iteration
    if lasting is not None:
        lasting.saved()


def lasting_of(algo: Algorithm) -> Lasting | None:
    """The buffer of an algorithm, if it may keep its own files."""
    buffer = vars(algo).get("buffer")  # a user's algorithm may have none, which is reported elsewhere
    return buffer if isinstance(buffer, Lasting) else None


def save_best(folder: Path, algo: Algorithm, env: Env, progress: Progress) -> None:
    """Save the policy as checkpoint `best`, to be measured and played; no run resumes from it.

    Raises: as `save` does.
    """
    check_unchanged(algo, env, progress.held, progress.first)
    state = {"run": identity(algo, env), **_content(algo, of_policy(algo, env)), "progress": progress.state_dict()}
    _write(algo, lambda: checkpoint.save(folder, state, "best", iteration=progress.iteration))


def _write(algo: Algorithm, write: Callable[[], None]) -> None:
    """The first rank writes; for a sharded policy, all ranks contribute their shards."""
    if shards.any_in(algo.policy.parameters()):
        ranks.together(write)
    else:
        ranks.by_first(write)


def _content(algo: Algorithm, keys: Sequence[str]) -> State:
    """The state of the attributes that `saved` names, of parts and of plain values.

    Raises: Diverged where it is not finite.
    """
    held = named(algo, keys)
    parts, numbers = {key: x.state_dict() for key, x in held.items() if is_part(x)}, plain(algo, keys)
    check_finite(algo, {**parts, **numbers})
    return {"parts": parts, "numbers": numbers, "at": algo.progress}


def restore(folder: Path, algo: Algorithm, env: Env, tidy: bool = False) -> Progress:
    """Restore a run to the state of `save`; tidy: see `checkpoint.load`.

    Only attributes that the algorithm declares as `saved` are set, whatever the file contains.

    Raises: UserError where the checkpoint does not belong to this run.
    """
    state = checkpoint.load(folder, tidy=tidy)
    check_content(folder, algo, env, state, algo.saved, ("generators", "env"))
    check_played(folder, algo, env, state)
    _put(folder, algo, state, algo.saved)
    if (dropped := sorted(state["numbers"].keys() - set(algo.saved))) and ranks.first():
        names = ", ".join(dropped[:5])
        warn(f"{folder}: its checkpoint has {names}, which {type(algo).__name__} no longer saves: the values are lost")
    with fitting(folder, "frozen"):
        for key, x in learning(algo).items():
            freeze(x, state.get("frozen", {}).get(key, frozen_in(x)))  # rlkit 0.5 wrote none
    with fitting(folder, "env"):
        if is_ours(env) and ranks.size() == 1:
            check_alike(state["env"], env.state_dict(), shapes=False)
        env.load_state_dict(state["env"])
    for key in (drawn := drawing(algo)):  # last, as an environment that is replayed may draw, too
        with fitting(folder, key):
            if key in state["generators"] or not key.startswith("global."):  # rlkit 0.5 wrote none of these
                put_back(drawn, key, state["generators"][key])
    if (before := state.get("ranks", 1)) != ranks.size() and ranks.first():
        many = f"{before} ranks" if before != 1 else "one process"
        warn(f"{folder} was trained by {many} and goes on with {ranks.size()}: up to rounding it is the same run")
    return _progress(folder, algo, state)


def restore_policy(folder: Path, algo: Algorithm, env: Env, name: str) -> Progress:
    """Restore the policy from any checkpoint, including `best`, to measure or play it.

    Exploration is not part of the learned policy: ε is set to 0.

    Raises: as `restore` does; UserError where it is not finite.
    """
    state = checkpoint.load(folder, name)
    wanted = of_policy(algo, env)
    check_content(folder, algo, env, state, list(filter(of_name, wanted)))
    absent = sorted({*wanted} - {*state["parts"], *state["numbers"], *filter(of_name, wanted)})
    if absent and ranks.first():
        warn(
            f"{folder}: its checkpoint {name}, of an older rlkit, has no {', '.join(absent)}: they are as they are made"
        )
    _put(folder, algo, state, [key for key in wanted if key not in absent])
    if isinstance(algo.policy, Exploring):
        algo.policy.epsilon = 0.0
    return _progress(folder, algo, state)


def _put(folder: Path, algo: Algorithm, state: State, keys: Sequence[str]) -> None:
    separate(algo, keys)
    share, put = shared_groups(named(algo, keys).values()), twins.ready(algo, state["numbers"], keys)
    for key in keys:
        there, last = owner(algo, key), key.rpartition(".")[2]
        made = options_of(there[last])
        with fitting(folder, key), types_kept(there[last]):
            if key in state["parts"]:
                if ours := is_ours(there[last]):
                    check_alike(state["parts"][key], there[last].state_dict(), shapes=True)
                check_types(state["parts"][key], there[last], ours or isinstance(there[last], nn.Module))
                there[last].load_state_dict(shards.parts_of(there[last], state["parts"][key]))
                if isinstance(there[last], nn.Module) and not shards.any_in(there[last].parameters()):
                    put_in_order(there[last], state["parts"][key])
            elif key in put:
                put[key]()
            if isinstance(there[last], torch.optim.Optimizer):
                check_optimizer(there[last], made)
    share()
    if bad := unsound(algo):
        raise not_sound(folder, bad)


def _progress(folder: Path, algo: Algorithm, state: State) -> Progress:
    progress = Progress()
    with fitting(folder, "at"):  # a policy may act by it; rlkit 0.5 wrote none
        check_numbers([at := state.get("at", algo.progress)])
        algo.progress = min(max(0.0, float(at)), 1.0)
    with fitting(folder, "progress"):
        check_alike(state["progress"], progress.state_dict(), shapes=False)
        progress.load_state_dict(state["progress"])
        progress.first = {str(key): str(mark) for key, mark in state.get("first", {}).items()}
    return progress


def identity(algo: Algorithm, env: Env) -> dict[str, object]:
    """The properties that distinguish checkpoints of different runs."""
    return {"algorithm": type(algo).__name__, "environment": type(env).__name__, "seed": env.seed}


def check_content(
    folder: Path, algo: Algorithm, env: Env, state: State, keys: Sequence[str], more: Sequence[str] = ()
) -> None:
    """Refuse a checkpoint of another run, one that lacks required state, and one with state that would be lost.

    keys: required names of `saved`; more: further required sections.
    """
    name = type(algo).__name__
    if not all(isinstance(state.get(section), dict) for section in ("parts", "numbers", "progress", *more)):
        raise UserError(f"{folder}: its checkpoint is not that of a run; start a new run")
    mine = identity(algo, env)
    there = state.get("run", mine)
    if not isinstance(there, dict) or any(one_line(there.get(key)) != str(x) for key, x in mine.items()):
        words = one_line(there)[:200]  # anything may stand in a file that was changed
        raise UserError(f"{folder}: its checkpoint is of another run ({words}, not {mine}); put its own back")
    held = state["parts"].keys() | state["numbers"].keys()
    for key in keys:
        # What is not part and is missing was not named in `saved` then: it had not changed, else it would be refused.
        if key not in held and is_part(owner(algo, key)[key.rpartition(".")[2]]):
            raise UserError(f"{folder}: its checkpoint has no '{key}', which {name} needs; start a new run")
    if strange := sorted(state["parts"].keys() - set(algo.saved)):
        raise UserError(f"{folder}: its checkpoint has a '{strange[0]}', which {name} has not; start a new run")


def check_played(folder: Path, algo: Algorithm, env: Env, state: State) -> None:
    """Refuse values that cannot have been saved, and steps that cannot be played here: no network could read them."""
    if bad := [name for name, x in leaves(state["parts"] | state["numbers"]) if not sound(x)]:
        raise not_sound(folder, bad)
    if env.observation_space is None or env.action_space is None:
        return
    for key, part in state["parts"].items():
        if is_ours(owner(algo, key)[key.rpartition(".")[2]]):
            with fitting(folder, key):
                check_steps(part, env.observation_space, env.action_space)
    if is_ours(env) and "actions" in state["env"]:
        with fitting(folder, "env"):
            check_actions(env.action_space, state["env"]["actions"].numpy(), "an episode in progress chose")


def not_sound(folder: Path, names: Sequence[str]) -> UserError:
    return UserError(f"{folder}: its checkpoint holds what is not finite, {', '.join(names[:5])}; train it anew")


def is_ours(x: object) -> bool:
    """Whether an object is of rlkit, whose states keep their types; those of plug-ins may change them."""
    return type(x).__module__.startswith("rlkit.") and not isinstance(x, nn.Module)  # a module looks for itself
