"""On-policy memory: the newest rollout, for a few passes."""

from collections.abc import Iterator

import torch
from tensordict import TensorDict

from rlkit import seeding
from rlkit.api import State
from rlkit.buffers.splitting import batch_of, flatten_steps, refuse_taken
from rlkit.errors import UserError
from rlkit.losses import Over, reduction, truncated_importance

LOGGED = ("mask", "advantage", "return", "value")  # of the steps that were learned from


class Rollout:
    """On-policy memory: `epochs` passes over the newest rollout in `minibatches` parts, then forgotten.

    whole_rows   keep [B, T] (sequence models); otherwise steps are flattened to [N] and shuffled
    over, length the reduction that fixes each minibatch's weights, see `losses.reduction`
    drop_flat    leave out rows whose advantage is 0 everywhere once the weights are fixed: they would add exactly
                 nothing to a loss that is linear in the advantage, and cost a forward and a backward pass. The
                 metrics of the loss are then those of the rows that are left; where none is, nothing counts in them.
    sampler_cap  where an engine drew the actions by other probabilities (`sampler_log_prob`) than the policy's own, a
                 step weighs min(π_b/μ, cap) times as much, see `losses.truncated_importance`; none: all the same
    """

    def __init__(
        self,
        seed: int,
        epochs: int = 1,
        minibatches: int = 1,
        whole_rows: bool = True,
        over: Over = "token",
        length: int = 1,
        drop_flat: bool = False,
        sampler_cap: float | None = None,
    ) -> None:
        self.seed, self.epochs, self.minibatches, self.whole_rows = seed, epochs, minibatches, whole_rows
        self.over, self.length, self.drop_flat, self.sampler_cap = over, length, drop_flat, sampler_cap
        self.count = 0
        self.data: TensorDict | None = None

    def extend(self, rollout: TensorDict) -> None:
        refuse_taken(rollout, "weight")
        self.data = rollout if self.whole_rows else flatten_steps(rollout)
        self.count += 1

    def __iter__(self) -> Iterator[TensorDict]:
        assert self.data is not None, "extend before iterating"
        data, self.data = self.data, None
        if not len(data):  # a rollout of steps that only reset
            return
        shuffle = seeding.generator(self.seed, "shuffle", self.count)
        for left in reversed(range(self.epochs)):
            if self.minibatches == 1:  # a loss may write into its batch: another pass follows, or these are logged
                steps = {key: x.clone() if left or key in LOGGED else x for key, x in data.items()}
                whole = batch_of(steps, *data.batch_size, device=data.device)
                yield self.weigh(whole)  # the algorithm may keep what it gave
                continue
            order = torch.randperm(len(data), generator=shuffle).to(data["mask"].device)
            parts = min(self.minibatches, len(order))
            sizes = [len(order) // parts + (i < len(order) % parts) for i in range(parts)]
            # Tensor by tensor: a TensorDict takes twice as long.
            shuffled = [x.index_select(0, order).split(sizes) for x in data.values()]
            for size, part in zip(sizes, zip(*shuffled, strict=True), strict=True):
                minibatch = dict(zip(data.keys(), part, strict=True))
                yield self.weigh(batch_of(minibatch, size, *data.batch_size[1:], device=data.device))

    def weigh(self, batch: TensorDict) -> TensorDict:
        weight = reduction(batch["mask"], self.over, self.length)
        if self.sampler_cap and "sampler_log_prob" in batch.keys():
            weight = weight * truncated_importance(batch["log_prob"], batch["sampler_log_prob"], self.sampler_cap)
        batch = batch.set("weight", weight)
        if self.drop_flat:
            signal = (batch["advantage"] * batch["mask"]).flatten(1).abs().amax(1) > 0
            kept = signal.nonzero()[:, 0]  # numbers of rows: a GPU would be asked anew for each key of a mask
            batch = batch[kept] if len(kept) else unacted(batch[:1])
        return batch

    def state_dict(self) -> State:
        """The number of rollouts, and the one that an own algorithm has not learned from yet.

        Raises: UserError where a subclass gathers them in a form of its own and has no state_dict of its own.
        """
        data: object = self.data
        if not isinstance(data, TensorDict):
            if data is not None and type(self).state_dict is Rollout.state_dict:
                raise UserError(
                    f"{type(self).__name__} holds a {type(data).__name__} in data, which a resume would lose: give it "
                    "a state_dict and a load_state_dict of its own"
                )
            return {"count": self.count, "data": None}
        device = None if data.device is None else str(data.device)
        return {
            "count": self.count,
            "data": {"steps": dict(data.items()), "size": [*data.batch_size], "device": device},
        }

    def load_state_dict(self, state: State) -> None:
        self.count, self.data = state["count"], None
        held = state.get("data")  # which older checkpoints lack; a subclass may have put its own there
        if isinstance(held, dict) and held.keys() == {"steps", "size", "device"}:
            self.data = TensorDict(held["steps"], batch_size=held["size"], device=held["device"])


def unacted(batch: TensorDict) -> TensorDict:
    """The batch as if nobody had acted in it: its loss is 0, and no metric counts a step of it."""
    return batch.set("mask", torch.zeros_like(batch["mask"]))
