"""What is degenerate in a run: each logged iteration is looked at, and what is wrong is named once, with its remedy.

`CHECKS` says it all: a name, when it holds, what is then said, and for how many looks in a row it must hold before. A
number that is not there (the critic's, where there is none) is NaN, and no comparison with it holds.
"""

import math
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import TypedDict

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import shards
from rlkit.api import Algorithm, Env, State
from rlkit.doctor import rivals, symptoms
from rlkit.meter import Meter

SAMPLE = 1024  # elements of each parameter on which an update is measured
EPISODES = 500  # episodes before a score that never varies is called constant;
FEW = 10  # after a fifth of the run these are enough


class Alarm(TypedDict):
    """A problem that was named, as summary.json has it."""

    name: str
    iteration: int
    message: str


class Numbers(dict[str, float]):
    """The measurements by name; a missing one is nan."""

    def __missing__(self, name: str) -> float:
        return math.nan


def fallen(x: Numbers) -> bool:
    """Whether the score is no higher than halfway between the first one and the best: nothing was learned, or lost."""
    return bool(x["score"] <= (x["first_score"] + x["best_score"]) / 2)


def beyond(x: Numbers) -> bool:
    """Whether the actions lie at one bound of their space, or in a small part of it, and nothing was learned so."""
    far = x["saturated"] > 0.95 or x["reach"] < 0.05
    return bool(far and not x["last_score"] > (x["first_score"] + x["best_score"]) / 2)


@dataclass(frozen=True)
class Check:
    """One kind of problem, with its condition and its message."""

    wrong: Callable[[Numbers], bool]
    says: str  # what is seen and what to do, filled in with the numbers
    looks: int = 3  # in a row, before it is said


CHECKS = {
    "truncated": Check(
        lambda x: x["rollout/truncated"] == 1,
        "every completion is cut at {longest:.0f} tokens: raise env.max_tokens, or see that the model writes its end "
        "token (id {end_token:.0f})",
    ),
    "budget": Check(
        lambda x: 0.5 <= x["rollout/truncated"] < 1,
        "{rollout/truncated:.0%} of the completions are cut at {longest:.0f} tokens, so the budget decides what they "
        "score: raise env.max_tokens, or ask for shorter answers",
        10,
    ),
    "equal_groups": Check(
        lambda x: x["rollout/equal_groups"] == 1 and (not x["differed"] or fallen(x)),
        "in each of {groups:.0f} groups all scores are equal, so no advantage is left: raise algo.group, give "
        "easier or harder problems, or a finer reward",
    ),
    "first_ratio": Check(
        lambda x: x["first_ratio"] > x["tolerance"],
        "the ratio is off 1 by {first_ratio:.2g} before any update: who acts and who learns disagree; compare their "
        "temperature, precision, dropout, normalization",
        1,
    ),
    "sampler": Check(
        lambda x: x["rollout/sampler_gap"] > 0.1,
        "the engine's log-probabilities are {rollout/sampler_gap:.2g} nats a token off the learner's: compare their "
        "weights, temperature and precision, or give policy.dtype=float32",
    ),
    "eos_pad": Check(
        lambda x: x["odd_ends"] > 0,
        "{odd_ends:.0f} of {texts:.0f} texts do not end where their end token stands (id {end_token:.0f}): EOS and "
        "PAD are mixed up; build masks from lengths, never from ids",
        1,
    ),
    "eos_prompt": Check(
        lambda x: x["ended_prompts"] == x["texts"],
        "every prompt ends in an end token (id {end_token:.0f}), so all is over before it begins: let the "
        "tokenizer add none to prompts",
        1,
    ),
    "empty": Check(
        lambda x: x["empty"] == x["texts"],
        "every completion is its end token alone: check env.prompt and the model's chat format, or raise "
        "policy.temperature",
    ),
    "ess": Check(
        lambda x: x["train/ess"] < 0.1,
        "the importance weights are worth {train/ess:.1%} of their steps: lower algo.epochs or algo.lr",
    ),
    "advantage": Check(
        lambda x: x["advantage"] > 1e3 or (x["peak"] > 0.5 and x["steps"] >= 1000),
        "advantages reach {advantage:.3g}, and one of {steps:.0f} steps has {peak:.0%} of their variance: scale the "
        "reward, or let the algorithm do it, if it can (algo.normalize_reward, algo.normalize_advantage, algo.scale)",
    ),
    "kl": Check(
        lambda x: x["train/kl"] > 1,
        "the policy moves {train/kl:.3g} nats a step within one iteration: lower algo.lr or algo.epochs",
        1,
    ),
    "ref_kl": Check(
        lambda x: x["train/ref_kl"] > 10,
        "the policy is {train/ref_kl:.3g} nats a step away from where it started: raise algo.kl_coef, or lower algo.lr",
    ),
    "entropy": Check(
        lambda x: x["entropy_left"] < 0.01 and fallen(x),
        "{entropy_left:.2%} of the first entropy is left and the score is {score:.3g} (best {best_score:.3g}): it "
        "explores no more; raise algo.entropy_coef (sac: algo.temperature or algo.target_entropy), lower algo.lr",
    ),
    "explained_variance": Check(
        lambda x: (
            (x["train/explained_variance"] < 0 and x["spread"] > 0.05 and x["progress"] > 0.1)
            and not x["score"] > 0.1 * x["lowest"] + 0.9 * x["highest"]
        ),
        "the critic's explained variance is {train/explained_variance:.2f}, worse than a constant: lower algo.lr, "
        "raise algo.value_coef, normalize rewards or observations",
        10,
    ),
    "clip_fraction": Check(
        lambda x: x["train/clip_fraction"] > 0.9,
        "{train/clip_fraction:.0%} of the steps are clipped and teach nothing: lower algo.lr or algo.epochs, or widen "
        "the clip (algo.clip, or algo.clip_low and algo.clip_high)",
    ),
    "action_space": Check(
        beyond,
        "actions lie in [{lowest_action:.3g}, {highest_action:.3g}], component {action_component:.0f} of the action "
        "space is [{low:.3g}, {high:.3g}]: rescale it to [-1, 1], where a policy begins "
        "(gymnasium.wrappers.RescaleAction)",
    ),
    "no_update": Check(
        lambda x: x["finished"] == 1 and x["learned"] == 0,
        "the run ended without one optimizer step, so nothing was learned: lower algo.warmup_steps, or make it longer",
        1,
    ),
    "constant_reward": Check(
        lambda x: (
            not beyond(x)
            and x["highest"] - x["lowest"] <= 1e-6 * abs(x["highest"])
            and x["episodes"] >= (FEW if x["progress"] >= 0.2 else EPISODES)
        ),
        "all {episodes:.0f} episodes so far scored {highest:g}, so nothing can be learned from them: check the reward, "
        "make the start easier, or explore more",
    ),
    "observation": Check(
        lambda x: x["outside"] > 1e-4,
        "component {component:.0f} of the observation leaves its space by {outside:.3g}: correct the environment's "
        "observation_space",
    ),
    "lr_large": Check(
        lambda x: x["train/update_ratio"] > 0.1,
        "one step changes the weights by {train/update_ratio:.2g} of their size (1e-3 is usual): lower algo.lr",
        1,
    ),
    "lr_small": Check(
        lambda x: x["train/update_ratio"] < 1e-7 and x["train/grad_norm"] > 0 and x["progress"] < 0.9,
        "one step changes the weights by {train/update_ratio:.2g} of their size, which rounding swallows: "
        "raise algo.lr",
    ),
    "reward_hacking": Check(
        lambda x: x["diverged"] == 1,
        "the return rose from {proxy_then:.3g} to {proxy_now:.3g} while GOLD fell from {gold_then:.3g} to "
        "{gold_now:.3g}: the reward is exploited; correct it, stop earlier, or hold the policy nearer to its start "
        "(ppo and the GRPO family: algo.kl_coef, dpo: algo.beta)",
        1,
    ),
    "reward_slow": Check(
        lambda x: x["time/reward_share"] > 0.5 and x["scoring"] > 1,
        "scoring takes {scoring:.1f} s, {time/reward_share:.0%} of an iteration: let the reward function work on the "
        "whole batch, in parallel, or cache",
    ),
}


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

    def state_dict(self) -> State:
        return {name: vars(self)[name] for name in ("alarms", "streaks", "past", "update", "points")}

    def load_state_dict(self, state: State) -> None:
        self.alarms, self.streaks = state["alarms"], dict.fromkeys(CHECKS, 0) | state["streaks"]
        self.past, self.update, self.points = state["past"], state["update"], state.get("points", {})  # not in 0.5

    def attach(self, optimizer: torch.optim.Optimizer) -> None:
        """Measure the first step after each look. Plain SGD is left alone: on a table its step is α·δ by design."""
        if isinstance(optimizer, torch.optim.SGD):
            return
        parameters = [shards.mine(p.detach()) for group in optimizer.param_groups for p in group["params"]]
        sample = [p.view(-1)[:SAMPLE] for p in parameters if p.is_contiguous()]  # shares the memory
        before: list[Tensor] = []

        def keep(*_: object) -> None:
            if not self.update:
                before.append(torch.cat(sample))

        def compare(*_: object) -> None:
            if before:
                w = before.pop()
                self.update = torch.stack([(torch.cat(sample) - w).norm(), w.norm()]).tolist()

        optimizer.register_step_pre_hook(keep)
        optimizer.register_step_post_hook(compare)

    def begin(self, env: Env) -> None:
        """Start the clock of an iteration."""
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
        )
        self.penalties = env.penalties if isinstance(env, rivals.Weighs) else ()
        x |= {"progress": algo.progress, "longest": env.longest or math.nan}
        if self.update:
            x["train/update_ratio"] = self.update[0] / max(self.update[1], 1e-30)
            self.update = []
        if env.scoring:
            x["scoring"] = env.scoring - self.scoring
            x["time/reward_share"] = x["scoring"] / (time.perf_counter() - self.began)
        scores = [score for score, _ in meter.episodes]
        if scores:
            self.past["lowest"] = min(*scores, self.past.get("lowest", math.inf))
            self.past["highest"] = max(*scores, self.past.get("highest", -math.inf))
            self.past["episodes"] = self.past.get("episodes", 0) + len(scores)
        return x

    def name(
        self, seen: Mapping[str, float], metrics: dict[str, float], iteration: int, tell: Callable[[str, str], None]
    ) -> dict[str, float]:
        """Name what has been wrong for long enough and was not named before; `metrics` with what is worth logging."""
        x = self.compared(Numbers({**seen, **metrics}))
        gold, apart = rivals.look(self.points, x, self.penalties)
        x.update(apart)
        found = {key: value for key, value in seen.items() if "/" in key and math.isfinite(value)}
        if x["learned"]:  # since the run was resumed and made longer
            self.alarms = [alarm for alarm in self.alarms if alarm["name"] != "no_update"]
        named = {alarm["name"] for alarm in self.alarms}
        for name, check in CHECKS.items():
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
        past["differed"] = past.get("differed", 0.0) or float(x["rollout/equal_groups"] < 1)
        if "train/entropy" in x:
            first, dimensions = past.setdefault("first_entropy", x["train/entropy"]), x.get("dimensions", 0)
            left = x["train/entropy"] / first if first else 1.0
            # A Gaussian's entropy has no zero: what is left of its σ says the same.
            x["entropy_left"] = math.exp(min(x["train/entropy"] - first, 0.0) / dimensions) if dimensions else left
        return Numbers(x | past)
