"""The doctor of a run: it measures each logged iteration, and names once what `CHECKS` finds wrong for long enough."""

import math
import time
from collections.abc import Callable, Collection, Mapping
from typing import TypedDict

import torch
from tensordict import TensorDict
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from rlkit import shards
from rlkit.api import Algorithm, Env, State
from rlkit.doctor import rivals, symptoms
from rlkit.doctor.checks import CHECKS, Numbers
from rlkit.meter import Meter
from rlkit.moments import takes_hooks

SAMPLE = 1024  # elements of each parameter on which an update is measured


class Alarm(TypedDict):
    """A problem that was named, as summary.json has it."""

    name: str
    iteration: int
    message: str


class Doctor:
    """Looks at a run whenever it is logged. What it remembers and what it has named are part of the checkpoint."""

    def __init__(self) -> None:
        self.alarms: list[Alarm] = []  # each name once a run
        self.streaks = dict.fromkeys(CHECKS, 0)  # for how many looks in a row each check was wrong
        self.past: dict[str, float] = {}  # what later looks are compared with
        self.update: list[float] = []  # ‖Δw‖ and ‖w‖ of the first optimizer step since the last look
        self.points: dict[str, list[list[float]]] = {}  # of each gold measure: the return and what it was, at each look
        self.penalties: Collection[str] = ()  # rewards that should fall
        self.began, self.scoring = 0.0, 0.0
        self.optimizer: torch.optim.Optimizer | None = None  # whose steps are measured
        self.hooks: list[RemovableHandle] = []

    def state_dict(self) -> State:
        return {name: vars(self)[name] for name in ("alarms", "streaks", "past", "update", "points")}

    def load_state_dict(self, state: State) -> None:
        self.alarms, self.streaks = state["alarms"], dict.fromkeys(CHECKS, 0) | state["streaks"]
        self.past, self.update, self.points = state["past"], state["update"], state.get("points", {})  # not in 0.5

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Measure the first step after each look. Plain SGD is left alone: on a table its step is α·δ by design.

        An algorithm may put another optimizer in the place of its own, and other memory behind parameters.
        """
        if optimizer is self.optimizer:
            return
        for hook in self.hooks:
            hook.remove()
        self.optimizer, self.hooks = optimizer, []
        if isinstance(optimizer, torch.optim.SGD) or not takes_hooks(optimizer):
            return
        before: list[Tensor] = []

        def sample() -> Tensor:
            parameters = [shards.mine(p.detach()) for group in optimizer.param_groups for p in group["params"]]
            return torch.cat([p.reshape(-1)[:SAMPLE] for p in parameters])

        def keep(*_: object) -> None:
            if not self.update:
                before.append(sample())

        def compare(*_: object) -> None:
            if before:
                w = before.pop()
                self.update = torch.stack([(sample() - w).norm(), w.norm()]).tolist()

        self.hooks = [optimizer.register_step_pre_hook(keep), optimizer.register_step_post_hook(compare)]

    def begin(self, algo: Algorithm, env: Env) -> None:
        """Start the clock of an iteration."""
        self.attach(algo.optimizer)
        self.began, self.scoring = time.perf_counter(), env.scoring

    def measure(
        self, algo: Algorithm, env: Env, rollout: TensorDict, credited: TensorDict, meter: Meter
    ) -> dict[str, float]:
        """The diagnostic statistics of the iteration that just ended, in one reading from the device."""
        x = symptoms.read(
            symptoms.of_texts(rollout, algo.policy)
            | symptoms.of_groups(rollout)
            | symptoms.of_notes(rollout)
            | symptoms.of_observations(rollout, env)
            | symptoms.of_actions(rollout, env)
            | symptoms.of_credit(credited)
            | symptoms.of_ratios(meter.ratios, algo.policy, algo.clip_width)
            | symptoms.of_sampler(rollout)
            | symptoms.of_target(algo)
        )
        self.penalties = env.penalties if isinstance(env, rivals.Weighs) else ()
        x |= {"progress": algo.progress, "longest": env.longest or math.nan}
        if self.update and self.update[1]:  # weights that are all 0 have no size
            x |= {"train/update_ratio": self.update[0] / self.update[1], "moved": self.update[0]}
        self.update = []
        if env.scoring:
            x["scoring"] = env.scoring - self.scoring
            x["time/reward_share"] = x["scoring"] / (time.perf_counter() - self.began)
        if meter.episodes:
            scores, lengths = zip(*meter.episodes, strict=True)
            for low, high, found in (("lowest", "highest", scores), ("fewest_steps", "most_steps", lengths)):
                self.past[low] = min(*found, self.past.get(low, math.inf))
                self.past[high] = max(*found, self.past.get(high, -math.inf))
            self.past["episodes"] = self.past.get("episodes", 0) + len(scores)
        return x

    def name(
        self, seen: Mapping[str, float], metrics: dict[str, float], iteration: int, tell: Callable[[str, str], None]
    ) -> dict[str, float]:
        """Name what has been wrong for long enough and was not named before; `metrics` with what is worth logging."""
        x = self.compared(Numbers({**seen, **metrics}))
        gold, apart = rivals.look(self.points, x, self.penalties)
        x.update(apart)
        # Your own loss may measure one of them itself: the checks look at that, and it stays in the line.
        found = {key: seen[key] for key in seen if "/" in key and key not in metrics and math.isfinite(seen[key])}
        cured = {name for name, good in (("no_update", "learned"), ("target", "target_copied")) if x[good] == 1}
        self.alarms = [alarm for alarm in self.alarms if alarm["name"] not in cured]  # the run was made longer
        named = {alarm["name"] for alarm in self.alarms}
        for name, check in CHECKS.items():
            if check.needs and math.isnan(x[check.needs]):
                continue
            self.streaks[name] = self.streaks[name] + 1 if check.wrong(x) else 0
            if self.streaks[name] >= check.looks and name not in named:
                message = check.says.format_map(x).replace("GOLD", gold[:40])
                self.alarms.append(Alarm(name=name, iteration=iteration, message=message))
                found[f"doctor/{name}"] = 1.0
                tell(name, message)
        return metrics | found

    def compared(self, x: Numbers) -> Numbers:
        """Add the numbers that need earlier iterations to compare with: scores, groups, entropy."""
        past = self.past
        if "rollout/return" in x:
            score = x["rollout/return"]
            past.setdefault("first_score", score)
            past["best_score"] = max(score, past.get("best_score", -math.inf))
            x["score"] = past["last_score"] = score
        past["learned"] = past.get("learned", 0.0) or float("train/loss" in x)
        if "train/loss" in x:
            first_loss = past.setdefault("first_loss", abs(x["train/loss"]))
            x["loss_left"] = abs(x["train/loss"]) / first_loss if first_loss else math.nan
        past["differed"] = past.get("differed", 0.0) or float(x["rollout/equal_groups"] < 1)
        if "train/entropy" in x:
            first, dimensions = past.setdefault("first_entropy", x["train/entropy"]), x.get("dimensions", 0)
            left = x["train/entropy"] / first if first else 1.0
            # A Gaussian's entropy has no zero: what is left of its σ says the same.
            x["entropy_left"] = math.exp(min(x["train/entropy"] - first, 0.0) / dimensions) if dimensions else left
        return Numbers(x | past)
