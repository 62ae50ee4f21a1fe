"""PPO with TorchRL's ClipPPOLoss: that library's loss module, rlkit's rollout, credit, minibatches and loop.

python -m rlkit.run algo=docs/examples/torchrl_ppo.py env=cartpole
"""

from dataclasses import dataclass

from tensordict import TensorDict
from torch import Tensor
from torchrl.objectives import ClipPPOLoss

from rlkit import buffers, policies, returns
from rlkit.api import Algorithm, Env, Metrics, PolicyFactory
from rlkit.errors import UserError
from rlkit.fields import Count, Fraction, NonNegative, Positive, Schedule
from rlkit.interop import to_torchrl


@dataclass(frozen=True)
class Config(policies.Optimization):
    lr: Positive = 2.5e-3  # learning rate
    schedule: Schedule = "linear"  # of the learning rate: constant, or linear to lr_end · lr at the end of the run
    horizon: Count = 128  # steps per row and rollout
    epochs: Count = 6  # passes over each rollout
    minibatches: Count = 4  # parts of each pass, one optimizer step each
    gamma: Fraction = 0.98  # discount per step
    gae_lambda: Fraction = 0.8  # 0: one-step TD error, 1: Monte-Carlo advantage
    clip: Positive = 0.2  # the ratio stays within 1 ± clip
    value_coef: NonNegative = 0.5  # weight of the value loss
    entropy_coef: NonNegative = 0.0  # weight of the entropy bonus


class TorchRLPPO(Algorithm):
    config: Config

    def __init__(self, config: Config, env: Env, network: PolicyFactory) -> None:
        if env.kind == "text":
            raise UserError("torchrl_ppo plays control environments and this one is text; use algo=ppo")
        self.config = config
        self.policy = network.actor_critic(env)
        self.buffer = buffers.Rollout(env.seed, config.epochs, config.minibatches, whole_rows=False)
        self.optimizer = policies.adam(self.policy, config)
        actor, critic = to_torchrl(self.policy)  # the same parameters
        module = ClipPPOLoss(
            actor,
            critic,
            clip_epsilon=config.clip,
            critic_coeff=config.value_coef / 2,  # its squared error is not halved
            entropy_coeff=config.entropy_coef,
            loss_critic_type="l2",
            normalize_advantage=False,  # done, over the whole rollout
        )
        self.terms = module.forward  # not the module itself: its state is the policy's, which is saved already

    def rollout(self, env: Env) -> TensorDict:
        return env.rollout(self.policy, steps=self.config.horizon)  # [B, T]

    def credit(self, rollout: TensorDict) -> TensorDict:
        c, r = self.config, rollout
        value = r["value"], r["next_value"]
        advantage, target = returns.gae(r["reward"], *value, r["terminated"], r["done"], c.gamma, c.gae_lambda)
        return rollout.update({"advantage": returns.standardize(advantage, r["mask"]), "return": target})

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        out = self.terms(to_torchrl(batch))
        loss = sum(out[key] for key in ("loss_objective", "loss_critic", "loss_entropy") if key in out.keys())
        shown = {"entropy": "entropy", "clip_fraction": "clip_fraction", "kl": "kl_approx"}
        return loss, {ours: out[theirs] for ours, theirs in shown.items()}


make = TorchRLPPO
