"""A reward model from preferences (Bradley & Terry 1952; InstructGPT, arXiv:2203.02155): a scalar head on the model.

P(w preferred to l) = σ(r_w − r_l). Pairs come stored (env=preferences) or from attempts of the frozen starting model
(env=gsm8k): the best and the worst of each graded group, or each two of which a judge (env.judge) prefers one. The run
folder is then a reward: env.reward=model:RUN_FOLDER.
"""

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, policies, preference_losses
from rlkit.api import Algorithm, Env, Judging, Metrics, PolicyFactory
from rlkit.fields import NonNegative

from .dpo import Pairs, best_pairs, two_sides


@dataclass(frozen=True)
class Config(Pairs):
    margin: NonNegative = 0.0  # by how much the score of the chosen side must be higher (arXiv:2307.09288)
    center_coef: NonNegative = 0.0  # weight of (r_w + r_l)², which keeps scores around 0 (arXiv:2312.09244)


class RewardModel(Algorithm):
    config: Config
    policy: Judging

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        self.policy = network.scorer(env)
        two_sides(config.group, env)
        self.config = config
        self.buffer = buffers.Rollout(env.seed, config.epochs, config.minibatches, over="row")
        self.optimizer = policies.adam(self.policy, config)

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, repeats=self.config.group)  # [P, G, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        pairs = best_pairs(rollout)  # [K, 2, T]
        return TensorDict(dict(pairs.items()), batch_size=pairs.batch_size[:1])  # rows are pairs: [K]

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        keys = ("observation", "action", "mask")
        rows = TensorDict({key: batch[key].flatten(0, 1) for key in keys}, batch_size=[2 * len(batch)])
        chosen, rejected = self.policy.score(rows).view(-1, 2).unbind(-1)  # [K] each
        each = preference_losses.bradley_terry(chosen, rejected, self.config.margin)
        each = each + self.config.center_coef * (chosen + rejected).square()
        valid = batch["weight"] > 0
        margin, score = (chosen - rejected)[valid], (chosen + rejected)[valid] / 2
        return (each * batch["weight"]).sum(), {"margin": margin, "pair_accuracy": margin > 0, "score": score}


make = RewardModel
