"""A map to try algorithms on: each keeps a table on the same world, is stepped by hand, and sees the world change.

Nothing is computed here but what is shown: the four rooms are the algorithm's own, and `loop.walk` goes through them.
"""

import math
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, cast, get_type_hints

import torch

from rlkit.control.tabular import TabularEnv
from rlkit.errors import UserError
from rlkit.fields import Fraction
from rlkit.pages import maps
from rlkit.pages.learner import Learner
from rlkit.pages.server import Json, Site, number
from rlkit.policies import LearningRate, PolicyTable, Table, discount
from rlkit.settings import config, plugins, schema
from rlkit.settings.assemble import Assemble, Parts

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

MOST = 1000  # iterations of one request
LARGEST = 0.99  # discount that the page can set: policy iteration takes no 1
FIRST = "value_iteration"  # the tab that the page opens on
TITLES = {"q_learning": "Q-learning", "sarsa": "SARSA", "expected_sarsa": "Expected SARSA"}  # as people write them


class Lab:
    """The world, and every algorithm that keeps a table on it."""

    def __init__(self, words: Sequence[str], assemble: Assemble, first: str | None = None) -> None:
        self.words, self.assemble, self.lock = tuple(words), assemble, threading.Lock()
        self.fields: dict[str, object] = {}  # of the environment, as they were changed here
        self.given: dict[str, dict[str, object]] = {}  # of each algorithm, likewise
        self.learners: dict[str, Learner] = {}
        refused: dict[str, UserError] = {}
        for name in {*plugins.names("algorithms"), *([first] if first else [])}:
            try:
                parts = self.build(name, {}, {})
            except UserError as error:
                if name == first:
                    raise
                refused[name] = error  # not on such an environment
                continue
            if isinstance(parts.algo.policy, Table):
                self.learners[name] = self.learner(parts)
        if first is not None and first not in self.learners:
            raise UserError(f"algo={first} keeps no table to show: {plugins.nearest(first, self.learners)}")
        if not self.learners:
            raise refused[FIRST]  # for a key that is wrong for all
        # Dynamic programming, which has no learning rate, comes before what has to try.
        self.learners = dict(sorted(self.learners.items(), key=lambda x: (tries(x[1]), x[0] != FIRST, x[0])))
        self.refuse_idle()
        self.first = first or next(iter(self.learners))
        self.about = [
            {"name": n, "title": title(n), "summary": plugins.summary("algorithms", n)} for n in self.learners
        ]
        gamma = min(discount(self.learners[self.first].parts.algo.config), LARGEST)  # one for all
        self.rebuild({}, {name: {"gamma": gamma} for name in self.learners})

    def refuse_idle(self) -> None:
        """Refuse keys that do nothing, whichever algorithm of the page is looked at."""
        said: list[UserError] = []
        for name in self.learners:
            try:
                self.assemble(config.read([f"algo={name}", *self.words]))
                return
            except UserError as error:
                said.append(error)
        raise said[-1]  # of one that plays, where one does: fewer keys do nothing for it

    def build(self, name: str, fields: Mapping[str, object], given: Mapping[str, object]) -> Parts:
        """The algorithm on the environment as `rlkit.run` would put them together, with what was changed here."""
        asked = config.read([f"algo={name}", *self.words])
        asked.argv = ()  # a key may do nothing for one algorithm and something for the next, as env.rows does
        asked.env.update(fields)
        asked.algo.update(given)
        return self.assemble(asked)

    def learner(self, parts: Parts) -> Learner:
        policy, env = parts.algo.policy, parts.env
        if not isinstance(policy, Table) or not isinstance(env, TabularEnv) or env.grid is None:
            raise UserError(f"{parts.env.source} has no map with a table on it")
        policy.epsilon = config_number(parts.algo.config, "epsilon") or 0.0  # shown before the first rollout sets it
        world = maps.world(env.grid, env.model(), discount(parts.algo.config))
        return Learner(parts, policy, env, world, torch.tensor(world["optimal"]["values"], dtype=torch.float64))

    def rebuild(self, fields: Mapping[str, object], given: Mapping[str, Mapping[str, object]]) -> None:
        """Change these algorithms, for a change of the world all of them, or none; each learner keeps its table."""
        fields = {**self.fields, **fields}
        keys = {name: {**self.given.get(name, {}), **asked} for name, asked in given.items()}
        fresh = {name: self.learner(self.build(name, fields, keys[name])) for name in given}
        self.learners = {n: old.moved(fresh[n]) if n in fresh else old for n, old in self.learners.items()}
        self.fields, self.given = fields, self.given | keys
        self.chance = self.chances()

    # What the page asks for

    def site(self) -> Site:
        writes = {"step": self.step, "reset": self.reset, "world": self.alter, "tune": self.tune}
        return Site("lab.html", {"lab": self.show, "cell": self.cell}, writes)

    def show(self, request: Json) -> Json:
        """All there is to draw of one algorithm."""
        with self.lock:
            return self.snapshot(request.get("algo", self.first))

    def cell(self, request: Json) -> Json:
        """{"algo", "state"}: how the value of a state comes about: each action by the model, or the last update."""
        with self.lock:
            learner = self.named(request.get("algo", self.first))
            model, gamma = learner.env.model(), discount(learner.parts.algo.config)
            state = int(number(request, "state", 0, len(model.start) - 1))
            known = not tries(learner)
            return {
                "state": state,
                "gamma": gamma,
                "lr": learner.parts.algo.optimizer.param_groups[0]["lr"],
                "policy": isinstance(learner.policy, PolicyTable),  # V(s) is that of π, not of the best action
                "best": learner.policy.best()[state].tolist(),
                "q": learner.policy.q.weight[state].tolist(),
                "backups": maps.backups(learner.policy, model, gamma, state) if known else None,
                "update": learner.updates.get(state),
            }

    def step(self, request: Json) -> Json:
        """{"algo", "steps", "seconds"?}: walk so many iterations, or those that can be begun in this time."""
        with self.lock:
            learner, began = self.named(request.get("algo")), time.monotonic()
            seconds = number(request, "seconds", 0, 60) if "seconds" in request else math.inf
            for _ in range(int(number(request, "steps", 1, MOST))):
                learner.step()
                if time.monotonic() - began > seconds:
                    break
            return self.snapshot(request["algo"])

    def reset(self, request: Json) -> Json:
        """{"algo"}: forget what this algorithm has learned; the world and all settings stay."""
        with self.lock:
            self.named(request.get("algo"))
            name = request["algo"]
            self.learners[name] = self.learner(self.build(name, self.fields, self.given[name]))
            return self.snapshot(name)

    def alter(self, request: Json) -> Json:
        """{"algo", "gamma"?, "cells"?: {field: [row, column]}, "chances"?: {field: p}}: change the world for all."""
        with self.lock:
            self.named(request.get("algo"))
            fields: Json = {}
            for key, known in (("cells", self.cells()), ("chances", self.chance)):
                for name, value in _mapping(request, key).items():
                    if name not in known:
                        raise UserError(f"no field '{name}': {plugins.nearest(str(name), known)}")
                    fields[name] = value
            gamma = {"gamma": number(request, "gamma", 0, 1)} if "gamma" in request else {}
            self.rebuild(fields, dict.fromkeys(self.learners, gamma))
            return self.snapshot(request["algo"])

    def tune(self, request: Json) -> Json:
        """{"algo", "lr"?, "epsilon"?}: set the step size, or hold ε where it is put."""
        with self.lock:
            self.named(request.get("algo"))
            given: Json = {key: number(request, key, 0, 1) for key in ("lr", "epsilon") if key in request}
            if "epsilon" in given:
                given["epsilon_end"] = given["epsilon"]
            self.rebuild({}, {request["algo"]: given})
            return self.snapshot(request["algo"])

    def named(self, name: object) -> Learner:
        if str(name) not in self.learners:
            raise UserError(f"no algorithm '{name}' on this page: {plugins.nearest(str(name), self.learners)}")
        return self.learners[str(name)]

    def cells(self) -> dict[str, tuple[int, int]]:
        """The fields of the environment that say where something lies."""
        grid = self.learners[self.first].env.grid
        return dict(grid.cells) if grid else {}

    def chances(self) -> dict[str, Json]:
        """The fields of the environment that are probabilities, with their meaning."""
        given = config.read([f"algo={self.first}", *self.words]).env | self.fields
        module = plugins.load("envs", given["name"])
        hints, notes = get_type_hints(module.Config, include_extras=True), schema.comments(module.Config)
        built = config.build(module.Config, given, "env")
        known = [key for key, hint in hints.items() if hint == Fraction]
        return {key: {"value": getattr(built, key), "help": notes.get(key, "")} for key in known}

    def snapshot(self, name: str) -> Json:
        learner = self.named(name)
        algo = learner.parts.algo
        tunable = {"lr": algo.optimizer.param_groups[0]["lr"], "epsilon": learner.policy.epsilon}
        return {
            "algo": name,
            "algos": self.about,
            "source": learner.env.source,
            "gamma": discount(algo.config),
            "chances": self.chance,
            "tunable": {key: x for key, x in tunable.items() if config_number(algo.config, key) is not None},
            "world": learner.world,
            "learned": maps.learned(learner.policy),
            "iteration": learner.progress.iteration,
            "env_steps": learner.progress.env_steps,
            "metrics": learner.metrics,
            "curves": learner.curves(),
            "visits": None if learner.visits is None else learner.visits.tolist(),
            "agents": learner.agents,
        }


def tries(learner: Learner) -> bool:
    """Whether it learns from what it tries, at a step size; else it sweeps over the model."""
    return isinstance(learner.parts.algo.config, LearningRate)


def title(name: str) -> str:
    """An algorithm's name as people write it."""
    return TITLES.get(name) or plugins.short(name).replace("_", " ").capitalize()


def config_number(built: object, key: str) -> float | None:
    """A number of an algorithm's configuration, by the key that the page shows; None where it has no such key."""
    value = asdict(cast("DataclassInstance", built)).get(key)
    return value if isinstance(value, int | float) else None


def _mapping(request: Json, key: str) -> Json:
    value = request.get(key, {})
    if not isinstance(value, dict):
        raise UserError(f"{key} is not a mapping of fields to values")
    return value
