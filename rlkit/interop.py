"""Converts policies (with shared parameters) and batches to TorchRL and back.

actor, critic = to_torchrl(algo.policy)      an optimizer's step on one is a step on the other
loss = ClipPPOLoss(actor, critic)(to_torchrl(batch))
rollout = from_torchrl(next(iter(collector)))

TorchRL takes two seconds to import, so each function here imports what it uses.
"""

from typing import TYPE_CHECKING, overload

import torch
from gymnasium.spaces import Discrete, MultiBinary
from tensordict import TensorDict, TensorDictBase
from torch import Tensor, nn

from rlkit import spaces
from rlkit.api import Env, UserError
from rlkit.buffers.splitting import NOTES
from rlkit.policies import Actor, ActorCritic, QNetwork

if TYPE_CHECKING:
    from rlkit.api import AnySpace

LOG_PROBS = ("sample_log_prob", "action_log_prob")  # the old and the new name in TorchRL
UNSQUEEZED: dict[str, str | tuple[str, str]] = {  # entries that TorchRL keeps with a last dimension of 1
    "value": "state_value",
    "next_value": ("next", "state_value"),
    "reward": ("next", "reward"),
    "terminated": ("next", "terminated"),
    "done": ("next", "done"),
    "advantage": "advantage",
    "return": "value_target",
}


class Gaussian(nn.Module):
    """The mean and the standard deviation of an actor's continuous actions, as arguments of TorchRL's distributions."""

    def __init__(self, policy: Actor) -> None:
        super().__init__()
        self.actor, self.log_std = network(policy, policy.actor), policy.log_std

    def forward(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.actor(observation)
        return mean, self.log_std.exp().expand_as(mean)


def network(policy: Actor, head: nn.Module) -> nn.Module:
    """A network from observations to the output of a head, including layers that actor and critic share."""
    return head if type(policy.trunk) is nn.Identity else nn.Sequential(policy.trunk, head)


@overload
def to_torchrl(given: ActorCritic) -> tuple[nn.Module, nn.Module]: ...
@overload
def to_torchrl(given: Actor) -> nn.Module | tuple[nn.Module, nn.Module]: ...
@overload
def to_torchrl(given: QNetwork) -> nn.Module: ...
@overload
def to_torchrl(given: TensorDictBase) -> TensorDict: ...
def to_torchrl(given: object) -> object:
    """Convert a policy or a batch for TorchRL's modules.

    Actor        ProbabilisticActor: logits, or loc and scale → action, action_log_prob
    ActorCritic  that and a ValueOperator: (actor, critic)
    QNetwork     QValueActor over "categorical" actions: action_value → action, chosen_action_value
    TensorDict   of [B, T] or flattened [N]: observation, action, action_log_prob, state_value, ("next", "reward"), ...

    Modules share the policy's parameters; they act at random as ours do. Actions are numbers, not one-hot vectors:
    make TorchRL's environments with categorical_action_encoding=True. They read
    observations as the batches have them, one row of numbers each: TorchRL's FlattenObservation makes it of images.
    """
    if isinstance(given, TensorDictBase):
        return _batch(given)
    if isinstance(given, Actor | QNetwork) and given.allowed is not None:
        raise UserError("to_torchrl takes policies that choose among all actions, and this one keeps to an action_mask")
    if isinstance(given, QNetwork):
        from torchrl.modules import QValueActor

        return QValueActor(module=given, in_keys=["observation"], action_space="categorical", spec=None)
    if isinstance(given, Actor) and not given.memoryless:
        raise UserError("to_torchrl takes policies without memory, and this one has policy.memory=gru")
    if isinstance(given, Actor) and not (given.continuous or given.single):
        raise UserError("to_torchrl takes actions of one choice or of real numbers, and here they are several choices")
    if isinstance(given, ActorCritic):
        from torchrl.modules import ValueOperator

        return _actor(given), ValueOperator(network(given, given.critic), in_keys=["observation"])
    if isinstance(given, Actor):
        return _actor(given)
    raise UserError(
        f"to_torchrl takes a batch, an Actor, ActorCritic or QNetwork, and this is a {type(given).__name__}"
    )


def _actor(policy: Actor) -> object:
    from tensordict.nn import InteractionType, TensorDictModule
    from torchrl.modules import IndependentNormal, ProbabilisticActor

    keys = ["loc", "scale"] if policy.continuous else ["logits"]
    module = Gaussian(policy) if policy.continuous else network(policy, policy.actor)
    return ProbabilisticActor(
        TensorDictModule(module, in_keys=["observation"], out_keys=keys),
        in_keys=keys,
        distribution_class=IndependentNormal if policy.continuous else torch.distributions.Categorical,
        default_interaction_type=InteractionType.RANDOM,
        return_log_prob=True,
    )


def log_prob_key() -> str:
    """The name of the behavior policy's log-probability in the installed TorchRL, as its PPO losses define it."""
    from torchrl.objectives import ClipPPOLoss

    return str(ClipPPOLoss.default_keys().sample_log_prob)


def _batch(batch: TensorDictBase) -> TensorDict:
    shape, renamed = batch["mask"].shape, {"log_prob": log_prob_key(), "next_observation": ("next", "observation")}
    found = TensorDict({}, batch_size=shape, device=batch.device)
    for key, x in batch.items():
        if key in UNSQUEEZED:
            found[UNSQUEEZED[key]] = x.unsqueeze(-1)
        elif x.shape[: len(shape)] == shape:  # a score is of a row: it is the sum of the rewards
            found[renamed.get(key, key)] = x
    if "done" in batch.keys() and "terminated" in batch.keys():
        found["next", "truncated"] = (batch["done"] & ~batch["terminated"]).unsqueeze(-1)
    return found


def from_torchrl(batch: TensorDictBase, env: Env | None = None) -> TensorDict:
    """Convert a batch collected by TorchRL, [T] or [B, T], into a rollout [B, T]; a single row becomes [1, T].

    One-hot actions and observations become numbers, but for observations of bytes, which are bits or an image here.
    env: rlkit's environment of the same problem. Its spaces say what is one-hot. Several choices need that, and so do
    whole numbers in a batch of a few steps: if each vector happens to hold a single 1 and zeros, it looks one-hot.
    ("collector", "mask") becomes the mask. Where it lacks log_prob or value, `rollout.update(policy.record(rollout))`
    adds what the policy says.

    Raises: UserError where actions look like several choices as one-hot vectors, and env is not given.
    """
    batch = batch if batch.batch_dims > 1 else batch.unsqueeze(0)
    keys, shape = batch.keys(True, True), batch.batch_size
    data = {ours: batch[theirs].squeeze(-1) for ours, theirs in UNSQUEEZED.items() if theirs in keys}
    masks = [key for key in (("collector", "mask"), "mask") if key in keys]
    mask = batch[masks[0]].view(shape) if masks else torch.ones(shape, dtype=torch.bool, device=batch.device)
    seen, done = (env.observation_space, env.action_space) if env else (None, None)
    for ours, theirs in (("observation", "observation"), ("next_observation", ("next", "observation"))):
        x = batch[theirs]
        data[ours] = _read(x, mask, seen) if seen else x if x.dtype == torch.uint8 else _numbers(x, mask)
    if not done and _several(batch["action"], mask):
        raise UserError(
            "the actions look like several choices, each a one-hot vector: say how many values each has, with "
            "from_torchrl(batch, env=ENV) and rlkit's environment of the same problem"
        )
    data["action"] = _read(batch["action"], mask, done) if done else _numbers(batch["action"], mask)
    data["mask"] = mask
    for key in LOG_PROBS:
        if key in keys:
            data["log_prob"] = batch[key]
    data |= {key: batch[key] for key in NOTES if key in keys}
    if "next_value" in data:
        data["next_value"] = data["next_value"].masked_fill(data["terminated"], 0.0)
    data["reward"] = data["reward"] * data["mask"]
    data["score"] = data["reward"].sum(-1)
    return TensorDict(data, batch_size=shape[:1], device=batch.device)


def _read(x: Tensor, mask: Tensor, space: "AnySpace") -> Tensor:
    """Observations or actions as rlkit has those of a space: flat, and choices as numbers."""
    counts = spaces.choices(space)
    if x.dim() == mask.dim():
        return x
    flat = x.flatten(mask.dim())
    if counts is None or isinstance(space, MultiBinary) or flat.shape[-1] != sum(counts) or sum(counts) == len(counts):
        return flat
    numbers = torch.stack([part.long().argmax(-1) for part in torch.split(flat, [*counts], -1)], -1)
    return numbers.squeeze(-1) if isinstance(space, Discrete) else numbers


def _numbers(x: Tensor, mask: Tensor) -> Tensor:
    """The index of the 1 of one-hot vectors of two numbers or more; anything else as it is. Padding may be zeros."""
    vectors = x.dim() == mask.dim() + 1 and x.shape[-1] > 1 and not x.is_floating_point()
    one_hot = vectors and bool(((x == 1).sum(-1) == 1)[mask].all()) and bool(((x != 0).sum(-1) == 1)[mask].all())
    return x.long().argmax(-1) if one_hot else x


def _several(x: Tensor, mask: Tensor) -> bool:
    """Whether whole numbers look like several one-hot vectors: in each step the same number of ones, besides zeros."""
    if x.is_floating_point() or x.dim() == mask.dim() or not bool(mask.any()):
        return False
    ones = (x == 1).flatten(mask.dim()).sum(-1)[mask]
    bits = bool(((x == 0) | (x == 1)).flatten(mask.dim()).all(-1)[mask].all())
    return bits and bool((ones == ones[0]).all()) and 1 < int(ones[0]) < x[0, 0].numel()
