"""Steps that wait for their successors."""

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import State
from rlkit.buffers.splitting import NOTES, check_alike, check_columns


class Window:
    """Steps that wait for what comes after them: the last `n` columns of a stream, put in front of the next rollout.

    `join` gives [B, n + T] (at the start of the stream fewer), `ready` all of it but the last n columns: those whose n
    successors are known. So each column is learned once, n steps late; what is still waiting is part of the state.
    """

    def __init__(self, n: int) -> None:
        self.n = n
        self.waiting: dict[str, Tensor] = {}

    def join(self, rollout: TensorDict) -> TensorDict:
        """Put the waiting columns in front, and keep the last n of both. Keys of whole rows are the rollout's own."""
        if not self.n:
            return rollout
        mask = rollout["mask"]
        timed = {key: x for key, x in rollout.items() if x.shape[:2] == mask.shape and key not in NOTES}
        if self.waiting:
            check_alike(self.waiting, timed, 2)  # of a checkpoint that was changed they are not
            timed = {key: torch.cat([self.waiting[key].to(x.device), x], 1) for key, x in timed.items()}
        self.waiting = {key: x[:, -self.n :].clone() for key, x in timed.items()}
        rows = {key: x for key, x in rollout.items() if x.shape[:2] != mask.shape}
        return TensorDict({**rows, **timed}, batch_size=rollout.batch_size)

    def ready(self, joined: TensorDict) -> TensorDict:
        """The columns of a joined rollout (with what was added to it since) that may be learned now."""
        if not self.n:
            return joined
        mask = joined["mask"]
        width = max(0, mask.shape[1] - self.n)
        cut = {key: x[:, :width] if x.shape[:2] == mask.shape else x for key, x in joined.items()}
        return TensorDict(cut, batch_size=joined.batch_size)

    def state_dict(self) -> State:
        return {"waiting": self.waiting}

    def load_state_dict(self, state: State) -> None:
        self.waiting = check_columns(state["waiting"])
        if any(x.dim() < 2 or x.shape[1] > self.n for x in self.waiting.values()):
            raise ValueError(f"more than {self.n} columns wait")
