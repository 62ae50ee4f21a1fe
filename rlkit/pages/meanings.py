"""What each metric of metrics.jsonl means, in a sentence that the curves show."""

from typing import Any

MEANINGS = {
    "eval/return": "Mean return of greedy validation episodes, played beside training.",
    "eval/accuracy": "Share of validation problems that the greedy answer solves, or of pairs that are ranked right.",
    "eval/ceiling": "Accuracy of the untouched model on the test split where it must show its working first.",
    "eval/length": "Mean length of what is validated: steps of an episode, tokens of an answer or of the chosen side.",
    "rollout/return": "Mean return of the training episodes that ended, with exploration; on text the mean score.",
    "rollout/length": "Mean length of the training episodes that ended, in steps; on text in tokens.",
    "rollout/turns": "Mean number of turns that an episode had.",
    "rollout/truncated": "Share of attempts that were cut off at the largest length.",
    "rollout/stopped": "Share of attempts that ended at one of the texts of env.stop.",
    "rollout/equal_groups": "Share of starts whose attempts all scored the same, or none was preferred by env.judge.",
    "rollout/sampler_gap": "Mean absolute difference of a token's log-probability between engine and learner.",
    "rollout/staleness": "Mean age of the rows, in versions of the weights, where the next rollout is written ahead.",
    "rollout/tool_calls": "Mean number of tool calls of an attempt.",
    "rollout/tool_errors": "Mean number of tool calls of an attempt that gave no result.",
    "rollout/judge_both": "Share of pairs in which the judge preferred the same place in both orders: its bias.",
    "rollout/judge_pairs": "Share of pairs in which the judge decided for one side.",
    "train/loss": "What the optimizer minimizes; compare it within one run only.",
    "train/kl": "Estimated KL divergence to the policy that acted, in nats per step or token.",
    "train/ref_kl": "Estimated KL divergence to the reference model, in nats per step or token.",
    "train/kl_coef": "Weight of the penalty on the divergence from the reference model.",
    "train/entropy": "How undecided the policy is, in nats per step or token; 0 is certain among listed actions.",
    "train/clip_fraction": "Share of steps or tokens on which the clip of the ratio acts.",
    "train/grad_norm": "Length of the gradient before it is clipped.",
    "train/update_ratio": "Size of the first optimizer step since the last line, relative to the parameters.",
    "train/ess": "Effective sample size of the last minibatch; 1 if all importance weights are equal.",
    "train/explained_variance": "Share of the returns' variance that the critic predicts: 1 is all, 0 a constant.",
    "train/value_loss": "Half the mean squared error of the critic; with algo.value_clip its clipped form.",
    "train/critic_loss": "Half the mean squared error of the action values, summed over both critics.",
    "train/actor_loss": "What the actor minimizes: minus the value of its actions, for SAC less its weighted entropy.",
    "train/td_error": "Mean absolute difference between a value and its target.",
    "train/q": "Mean action value of what was learned from.",
    "train/value": "Mean value of the states that were learned from.",
    "train/delta": "Largest change of an action value in this sweep.",
    "train/stable": "1 where no action was better by more than algo.tolerance in the last improvement.",
    "train/improvements": "How often the policy was improved so far.",
    "train/temperature": "Weight of the entropy beside the return; algo.learn_temperature lets it change.",
    "train/pair_accuracy": "Share of training pairs in which the chosen side is ahead of the rejected one.",
    "train/margin": "How far the chosen side is ahead of the rejected one: in reward, or in log-probability gained.",
    "train/score": "Mean reward that the reward model gives, over both sides of a pair.",
    "train/signal": "Share of the groups played whose attempts scored differently.",
    "train/nll": "Mean negative log-probability of a token that is learned, in nats.",
    "time/env_steps_per_second": "Environment steps, or tokens of text, per second; validation is left out.",
    "time/reward_share": "Share of an iteration's time that the scoring of texts takes.",
}
FAMILIES = {
    "metric/": "Mean of a measure of the task itself, on the validation split.",
    "reward/": "Mean of what this reward function gave, where it gave anything.",
    "doctor/": "1 in the line of the iteration at which the alarm was raised.",
    "rollout/": "Measured on what was played for training.",
    "train/": "Reported by the algorithm's loss, averaged over what was learned from.",
    "eval/": "Measured on the validation split.",
    "time/": "Measured of the time that the run takes.",
}


def told(request: dict[str, Any]) -> dict[str, Any]:
    return {"metrics": MEANINGS, "families": FAMILIES}
