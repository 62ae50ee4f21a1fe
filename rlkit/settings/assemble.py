"""Put one algorithm and one environment together, as a configuration asks for."""

import os
import re
from collections.abc import Callable, Collection, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, is_dataclass, replace
from functools import cached_property, partial
from types import ModuleType
from typing import TYPE_CHECKING, Protocol, cast, runtime_checkable

import torch

from rlkit import memory, outside, ranks
from rlkit.api import Algorithm, Env, Plays, PolicyFactory
from rlkit.cores import cores
from rlkit.errors import UserError
from rlkit.fields import (
    AGAIN,
    ANSWERS,
    ASKED,
    ATTEMPTS,
    CONTROL,
    DEMONSTRATIONS,
    EXPLORES,
    GROUPS,
    INEXACT,
    PAIRS,
    PLAYED,
    SIDES,
    WEIGHED,
)
from rlkit.forecast import Forecast, count, forecast
from rlkit.paths import back
from rlkit.policies import LearningRate, PolicyModule, Table, ValueTable
from rlkit.policies.optimizers import check_apart
from rlkit.policies.own_encoder import check_encoders
from rlkit.scores import Split
from rlkit.seeding import seed_global
from rlkit.settings import config, idle, plugins, schema, trust
from rlkit.settings.contract import check_algorithm, check_contract, check_make, check_read_back
from rlkit.settings.given import KINDS
from rlkit.settings.measured import check_choice, check_splits

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

# The length of a run that says nothing about it.
STEPS, ITERATIONS = 100_000, 60  # control counts steps, text counts iterations


@runtime_checkable
class Settles(Protocol):
    """An environment with keys that mean something only beside a policy, such as env.chat=auto."""

    def settled(self, policy: Plays) -> dict[str, object]:
        """Those keys, with what they mean for this policy: what config.yaml says."""
        ...

    def manner(self, policy: Plays) -> str:
        """How the policy is asked, for the first screen; empty where there is no choice."""
        ...


@dataclass
class Parts:
    """One algorithm and one environment, put together."""

    run: config.Run
    algo: Algorithm
    env: Env
    resolved: Callable[[], str]
    predicted: Callable[[], Forecast | None]

    @cached_property
    def memory(self) -> Forecast | None:
        """What the run will take, as it is before the run begins; none: nobody can say."""
        return self.predicted()

    @cached_property
    def text(self) -> str:
        """The text of config.yaml, made where it is asked for: all files that it names are hashed for it."""
        return self.resolved()


Assemble = Callable[[config.Given], Parts]


def assemble(given: config.Given) -> Parts:
    """Load the plug-ins, validate their configurations and build them; what cannot be is refused here."""
    trust.check(given)
    outside.begin()
    modules = {section: plugins.load(kind, given.section(section)["name"]) for section, kind in KINDS.items()}
    for section, module in modules.items():
        for key in given.run.keys() & schema.settable(module.Config).keys() - schema.settable(config.Run).keys():
            raise UserError(f"no key '{key}' of the run: did you mean {section}.{key}?")
    run = config.build(config.Run, given.run, "run")
    env_config = config.build(modules["env"].Config, given.env, "env")
    algo_config = config.build(modules["algo"].Config, given.algo, "algo")
    for section, built in (("env", env_config), ("algo", algo_config)):
        if given.section(section)["name"] not in plugins.names(KINDS[section]):
            check_read_back(built, section)
    seed_global(run.seed)
    env = make_env(given, modules["env"], env_config, run)
    if run.iterations is None and run.env_steps is None:
        control = env.kind == "control"
        run = replace(run, env_steps=STEPS if control else None, iterations=None if control else ITERATIONS)
    torch.set_num_threads(threads(env.kind, run.threads))
    network = config.build(config.network_class(env.kind), given.policy, "policy")
    with back(given.here):  # relative paths start there, wherever the environment has gone
        with idle.reading(network) as read:
            algo = make_algorithm(given, modules["algo"], algo_config, env, network)
        trust.check_ran(
            {section: given.section(section)["name"] for section in KINDS},
            {"algo": algo_config, "env": env_config, "policy": network},
        )
    if ranks.size() > 1:
        check_divided(given.algo["name"], algo)
    refuse_idle(given, algo_config, env_config, network, env, algo.policy)
    if given.resume is None and given.folder is None:  # a run that is there is what it is
        check_new(given.algo["name"], algo, env, run)
    refuse_unread(given, network, read, algo)
    env.check(algo.policy)  # does every prompt fit?
    if isinstance(env, Settles):
        env_config = settle(env_config, env.settled(algo.policy))
    resolved = partial(config.resolved, given, run, algo_config, env_config, network)
    return Parts(run, algo, env, resolved, partial(predicted, algo, env, asdict(algo_config), run))


def predicted(algo: Algorithm, env: Env, keys: Mapping[str, object], run: config.Run) -> Forecast | None:
    """The memory of an iteration with these keys of the algorithm."""
    return forecast(algo.policy, env, env.device, keys, measured(env, run), not algo.divides)


def measured(env: Env, run: config.Run) -> dict[Split, int]:
    """On how many problems of each split a measurement of the run is."""
    asked: dict[Split, int | None] = {"test": run.evaluation_episodes, "validation": run.validation_episodes}
    return {split: min(env.splits[split], number or env.splits[split]) for split, number in asked.items()}


def settle(built: object, settled: dict[str, object]) -> object:
    """A configuration with the values that were found out; an environment's may lack some of the keys."""
    here = cast("DataclassInstance", built)
    return replace(here, **{key: x for key, x in settled.items() if key in schema.settable(type(here))})


def make_env(given: config.Given, module: ModuleType, built: object, run: config.Run) -> Env:
    """The environment, on the run's device."""
    name = given.env["name"]
    rows = asdict(built).get("rows") if is_dataclass(built) and not isinstance(built, type) else None
    if isinstance(rows, int):
        if over := rows % (many := ranks.size()):
            remedy = f"give env.rows={rows + many - over}" if given.resume is None else "start as many as divide it"
            raise UserError(f"env.rows={rows} cannot be divided among {many} ranks: {remedy}")
        memory.check(512 * rows, f"env.rows={rows}", "give fewer")  # no copy, and no prompt with its answer, takes less
    from_python = {} if given.factory is None else {"factory": given.factory}
    check_make(module.make, "envs", name, built, run.seed, torch.device("cpu"), **from_python)
    env: Env = module.make(deepcopy(built), run.seed, torch.device("cpu"), **from_python)  # config.yaml is of built
    check_contract(env, name, ("rollout", "evaluate", "kind", "splits", "seed"), "rlkit.api.Env, or be a ControlEnv")
    if env.seed != run.seed:  # all draws follow from it: runs of several seeds would be one and the same
        raise UserError(f"env={name} has the seed {env.seed} in place of {run.seed}: hand on the seed that make gets")
    env.device = device(run.device, env.kind)
    check_splits(env, run, idle.told(given.argv, "run"), new=given.resume is None)
    return env


def make_algorithm(
    given: config.Given, module: ModuleType, built: object, env: Env, network: PolicyFactory
) -> Algorithm:
    """The algorithm, with the policy that it makes of the network's keys."""
    name = given.algo["name"]
    check_make(module.make, "algorithms", name, built, env, network)
    algo: Algorithm = module.make(deepcopy(built), env, network)
    check_algorithm(algo, name)
    note_rates(algo)
    return algo


def check_new(name: str, algo: Algorithm, env: Env, run: config.Run) -> None:
    """Refuse encoders, and warn of networks, that would not learn as they should; refuse to choose among equals."""
    check_choice(run, algo.policy, name)
    check_encoders(algo.policy)
    if env.kind == "control":  # copies of a language model begin alike on purpose
        check_apart(algo)


def check_divided(name: str, algo: Algorithm) -> None:
    """Refuse what several ranks cannot learn together."""
    if isinstance(algo.policy, Table | ValueTable):
        raise UserError(f"algo={name} learns a table, which one process does: start it without torchrun")
    keys = asdict(cast("DataclassInstance", algo.config)) if is_dataclass(algo.config) else {}
    if count(keys.get("hold")) > 1 or keys.get("storage"):
        key = "storage" if keys.get("storage") else "hold"
        raise UserError(f"algo.{key} is for one process: leave it out, or start the run without torchrun")


def note_rates(algo: Algorithm) -> None:
    """Note the learning rate that each parameter group was made with, under the name that torch's schedulers use."""
    if isinstance(algo.config, LearningRate):
        for group in algo.optimizer.param_groups:
            group.setdefault("initial_lr", float(group["lr"]))


def refuse_idle(
    given: config.Given, algo: object, env_config: object, network: object, env: Env, policy: object
) -> None:
    """Refuse what a new run was asked for and would not do: keys that need others, and keys of no network."""
    if given.resume is not None:
        return
    holding = facts(given, algo, env_config, env, policy)
    for section, built in (("algo", algo), ("env", env_config), ("policy", network)):
        idle.refuse(built, idle.told(given.argv, section), section, holding)
    if not isinstance(policy, PolicyModule):
        return
    for key in idle.told(given.argv, "policy"):
        value = asdict(cast("DataclassInstance", network))[key]
        if value != schema.default(schema.settable(type(network))[key]) and (why := policy.idle(key)):
            raise UserError(f"policy.{key}={schema.show(value)} does nothing with {why}: leave it out")


def refuse_unread(given: config.Given, network: object, read: Collection[str], algo: Algorithm) -> None:
    """Refuse what a new run was asked for and an algorithm of the user's own did not look at. read: keys."""
    name = given.algo["name"]
    if given.resume is not None or name in plugins.names("algorithms"):
        return
    if any(part is network for part in (*vars(algo).values(), *vars(algo.policy).values())):
        return  # it may read them later
    fields = schema.settable(type(network))
    for key in idle.told(given.argv, "policy"):
        value = asdict(cast("DataclassInstance", network))[key]
        if key not in read and value != schema.default(fields[key]):
            raise UserError(
                f"policy.{key}={schema.show(value)} does nothing: {name} does not read network.{key}; leave it out"
            )


def facts(given: config.Given, algo: object, env_config: object, env: Env, policy: object) -> dict[str, bool]:
    """Whether the phrases in the types of fields hold; what an algorithm of the user's own plays, nobody knows."""
    name, values = given.algo["name"], asdict(cast("DataclassInstance", algo))
    own = name not in plugins.names("algorithms")
    named, shots = facts_of_name(name), asdict(cast("DataclassInstance", env_config)).get("shots")
    return named | {
        ASKED: named[ASKED] or bool(shots),  # which are problems of the train split
        CONTROL: env.kind == "control",
        GROUPS: own or (values.get("group", 1) > 1 and values.get("starts") != "own"),
        PAIRS: own or (name in ("dpo", "reward_model") and values["group"] % 2 == 0),
        INEXACT: isinstance(policy, PolicyModule)
        and (policy.dtype not in (torch.float32, torch.float64) or given.policy.get("engine") == "vllm"),
        WEIGHED: own or "sampler_cap" in values,
        EXPLORES: own or bool(values.get("epsilon_end") or (values.get("epsilon") and values.get("epsilon_decay"))),
        AGAIN: own or values.get("epochs", 1) > 1 or values.get("minibatches", 1) > 1,
    }


def facts_of_name(name: str) -> dict[str, bool]:
    """Those that the name of the algorithm decides."""
    own = name not in plugins.names("algorithms")
    return {
        PLAYED: name not in ("value_iteration", "policy_iteration"),
        DEMONSTRATIONS: own or name == "sft",
        ATTEMPTS: name != "sft",
        ASKED: name != "sft",
        SIDES: name != "sft",
        ANSWERS: name != "reward_model",
    }


def threads(kind: str, asked: int = 0) -> int:
    """Torch's, never more than cores: they would wait for each other. `asked` 0: one for small control networks.

    For text, 0 is what OpenMP may use. OMP_NUM_THREADS may be a list, one number for each level of nesting; other texts
    are ignored, as torch does.
    """
    first = os.environ.get("OMP_NUM_THREADS", "").partition(",")[0].strip()
    allowed = int(first) if re.fullmatch(r"[0-9]{1,4}", first) else 0
    return min(asked or (1 if kind == "control" else allowed) or cores(), cores())


def device(name: str, kind: str) -> torch.device:
    """`auto` takes a GPU for text where there is one; small control networks are faster on the CPU."""
    if name == "auto":
        return torch.device("cuda" if kind == "text" and torch.cuda.is_available() else "cpu")
    try:
        found = torch.device(name)
        torch.empty(1, device=found)
        if found.type not in ("cpu", "cuda", "mps"):
            raise RuntimeError(f"nothing is computed on {found.type}")
    except (RuntimeError, AssertionError, ImportError):  # the last: torch has no code for this kind
        raise UserError(f"device={name} cannot be used here: give auto, cpu, or cuda where there is a GPU") from None
    return found
