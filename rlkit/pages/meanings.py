"""What each metric of metrics.jsonl means, in a sentence that the curves show."""

from typing import Any

MEANINGS = {
    "eval/return": "Mean return of greedy validation episodes, played aside from training.",
    "eval/accuracy": "Share of validation problems that the greedy answer solves.",
    "eval/ceiling": "Accuracy of the untouched model when it is made to show its working.",
    "eval/score": "Mean score of greedy validation answers.",
    "eval/length": "Mean length of a validation episode: steps, or tokens of an answer.",
    "rollout/return": "Mean return of the training episodes that ended: the sum of rewards, with exploration.",
    "rollout/score": "Mean score of what was played for training, with sampling.",
    "rollout/length": "Mean length of a training episode: steps, or tokens of an answer.",
    "rollout/turns": "Mean number of turns that an episode had.",
    "rollout/truncated": "Share of attempts that were cut off at the largest length.",
    "rollout/stopped": "Share of attempts that ended by themselves.",
    "rollout/equal_groups": "Share of groups whose attempts all scored the same: nothing is learned from them.",
    "rollout/sampler_gap": "How far the log-probabilities of the engine that wrote lie from the learner's.",
    "rollout/judge_both": "Share of pairs on which the judge agreed with itself after the sides were exchanged.",
    "rollout/judge_pairs": "Number of pairs that the judge compared.",
    "train/loss": "What the optimizer makes small; compare it within one run only.",
    "train/kl": "How far the policy has moved from the one that acted, in nats per step or token.",
    "train/ref_kl": "How far the policy is from the reference model, in nats per token.",
    "train/kl_coef": "Weight of the penalty on the distance to the reference model.",
    "train/entropy": "How undecided the policy is, in nats per step or token; 0 means it always does the same.",
    "train/clip_fraction": "Share of steps or tokens whose ratio to the acting policy is clipped.",
    "train/grad_norm": "Length of the gradient before it is clipped.",
    "train/update_ratio": "Size of an update relative to the size of the parameters.",
    "train/ess": "Effective sample size: the share of samples that importance weights leave over.",
    "train/explained_variance": "Share of the variance of returns that the critic predicts: 1 is all, 0 a constant.",
    "train/value_loss": "Mean squared error of the critic.",
    "train/critic_loss": "Mean squared error of the critics' action values.",
    "train/actor_loss": "What the actor makes small: the negative value of its actions.",
    "train/td_error": "Mean temporal-difference error: how far a value is from its target.",
    "train/q": "Mean action value of what was learned from.",
    "train/value": "Mean value of the states that were learned from.",
    "train/delta": "Largest change of a value in this sweep.",
    "train/stable": "1 where improving the policy changed nothing any more.",
    "train/improvements": "How often the policy was improved so far.",
    "train/temperature": "Weight of the entropy beside the return, as it is tuned.",
    "train/pair_accuracy": "Share of pairs in which the chosen side is ranked above the rejected one.",
    "train/margin": "Mean difference between the chosen and the rejected side.",
    "train/nll": "Mean negative log-probability of a token that is learned, in nats.",
    "train/lr": "Learning rate of this iteration.",
    "time/env_steps_per_second": "Environment steps, or tokens that were written, per second of the whole loop.",
    "time/reward_share": "Share of the time that reward functions take.",
}
FAMILIES = {
    "metric/": "Mean of a measure of the task itself, on the validation split.",
    "reward/": "Mean of what this reward function gave, where it had an opinion.",
    "rollout/": "Measured in what was played for training.",
    "train/": "Reported by the algorithm's loss, averaged over what was learned from.",
    "eval/": "Measured on the validation split.",
    "time/": "Measured of the time that the run takes.",
}


def meaning(name: str) -> str:
    """The sentence of a metric; that of its family for one of a plug-in."""
    return MEANINGS.get(name) or next((said for start, said in FAMILIES.items() if name.startswith(start)), "")


def told(request: dict[str, Any]) -> dict[str, Any]:
    return {"metrics": MEANINGS, "families": FAMILIES}
