"""What is degenerate in a run, each with its remedy.

`CHECKS` says it all: a name, when it holds, what is then said, and for how many looks in a row it must hold before. A
number that is not there (the critic's, where there is none) is NaN, and no comparison with it holds.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

EPISODES = 500  # episodes before a score that never varies is called constant;
FEW = 10  # after a fifth of the run these are enough


class Numbers(dict[str, float]):
    """The measurements by name; a missing one is nan."""

    def __missing__(self, name: str) -> float:
        return math.nan


def fallen(x: Numbers) -> bool:
    """Whether the score is no higher than halfway between the first one and the best: nothing was learned, or lost."""
    return bool(x["score"] <= (x["first_score"] + x["best_score"]) / 2)


def beyond(x: Numbers) -> bool:
    """Whether actions lie at one bound of their space, in a small part or far beyond it, and nothing was learned so."""
    far = x["saturated"] > 0.95 or x["reach"] < 0.05 or x["reach"] > 20
    return bool(far and not x["last_score"] > (x["first_score"] + x["best_score"]) / 2)


def worth_differs(x: Numbers) -> bool:
    """Whether a discount makes episodes of one score differ in worth: some of them are paid later."""
    return bool(x["gamma"] < 1 and x["highest"] != 0 and x["fewest_steps"] < x["most_steps"])


@dataclass(frozen=True)
class Check:
    """One kind of problem, with its condition and its message."""

    wrong: Callable[[Numbers], bool]
    says: str  # what is seen and what to do, filled in with the numbers
    looks: int = 3  # in a row, before it is said
    needs: str = ""  # a look without this number tells nothing: it neither counts nor ends the row


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
        "every completion is its end token alone: check env.prompt and the model's chat format, see that the reward "
        "pays for more than shortness, or raise policy.temperature",
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
    "gradient": Check(
        lambda x: x["train/grad_norm"] > 1e4 * x["limit"] and 0 < x["train/kl"] < 1e-6,  # 0: there was one update
        "the gradient of {train/grad_norm:.2g} is cut down to {limit:g}, so that the policy hardly moves: scale the "
        "reward (algo.normalize_reward, if it is there), or raise algo.max_grad_norm",
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
        needs="score",  # there is none where no episode ended since the last look
    ),
    "explained_variance": Check(
        lambda x: (
            (x["train/explained_variance"] < -0.1 and x["spread"] > 0.05 and x["progress"] > 0.1)
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
        "space is [{low:.3g}, {high:.3g}]: rescale it to [-1, 1] (gymnasium.wrappers.RescaleAction); if it is that, or "
        "with sac and td3, lower algo.lr",
    ),
    "no_update": Check(
        lambda x: x["finished"] == 1 and x["learned"] == 0,
        "the run ended without one optimizer step, so nothing was learned: lower algo.warmup_steps, or make it longer",
        1,
    ),
    "target": Check(
        lambda x: x["finished"] == 1 and x["learned"] == 1 and x["target_copied"] == 0,
        "the run ended before the target network was copied once, so it learned from a random one: lower "
        "algo.sync_every, set algo.tau, or make the run longer",
        1,
    ),
    "constant_reward": Check(
        lambda x: (
            not beyond(x)
            and x["judged"] != 1  # a judge tells what is better, whatever the scores
            and x["fixed"] != 1  # such a policy chooses nothing
            and not worth_differs(x)
            and x["highest"] - x["lowest"] <= 1e-6 * abs(x["highest"])
            and x["episodes"] >= (FEW if x["progress"] >= 0.2 else EPISODES)
        ),
        "all {episodes:.0f} episodes so far scored {highest:g}, so no score tells what is better: check the reward, "
        "make the start easier, or explore more",
    ),
    "observation": Check(
        lambda x: x["outside"] > 1e-4,
        "component {component:.0f} of the observation leaves its space by {outside:.3g}: correct the environment's "
        "observation_space",
    ),
    "lr_large": Check(
        lambda x: x["train/update_ratio"] > 0.1 and x["moved"] > 0.5,  # a linear policy begins at nearly 0
        "one step changes the weights by {train/update_ratio:.2g} of their size (1e-3 is usual): lower algo.lr",
        1,
    ),
    "lr_small": Check(
        lambda x: (
            (x["train/update_ratio"] < 1e-7 < x["train/grad_norm"] and x["progress"] < 0.9)
            and not x["loss_left"] < 1e-6  # what is left to learn is rounding, too
        ),
        "one step changes the weights by {train/update_ratio:.2g} of their size, which rounding swallows: "
        "raise algo.lr",
    ),
    "reward_hacking": Check(
        lambda x: x["diverged"] == 1,
        "the return rose from {proxy_then:.3g} to {proxy_now:.3g} while GOLD fell from {gold_then:.3g} to "
        "{gold_now:.3g}: the reward is exploited; correct it, stop earlier, or raise algo.kl_coef (dpo: algo.beta)",
        1,
    ),
    "reward_slow": Check(
        lambda x: x["time/reward_share"] > 0.5 and x["scoring"] > 1,
        "scoring takes {scoring:.1f} s, {time/reward_share:.0%} of an iteration: let the reward function work on the "
        "whole batch, in parallel, or cache",
    ),
}
