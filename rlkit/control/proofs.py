"""What a replay must come back to: noted with a run's state, and compared where the run goes on."""

import hashlib
from collections.abc import Callable, Sequence

import numpy as np
import torch

from rlkit.api import State
from rlkit.control.vector import Array, Copies
from rlkit.terminal import warn

NOT_THERE = "its episodes in progress cannot be repeated exactly, so what follows is not quite what was cut off"
NOT_AGAIN = "a reset with the seed that it had begins elsewhere, so what follows is not quite what was cut off"

EARNS_ELSE = (
    "an earlier episode earns something else when it is played again, so what follows is not quite what was cut off"
)


class Past:
    """One whole episode, kept to be played again where the run goes on: its reward may depend on those before it.

    Only what earned something is kept, as two zeros are equal whatever was before. Another one takes its place each
    time that twice as many episodes have ended, so that noting costs nothing and there were some before.
    """

    def __init__(self) -> None:
        self.count, self.next = 0, 1  # episodes that ended so far; from how many on another one is kept
        self.kept: State = {}  # actions [K, rows], the row that played it, its reset seed, what it earned

    def note(
        self, done: Array, length: Array, copies: Copies, history: Sequence[Array], seed: Callable[[int], int]
    ) -> None:
        """Look at the episodes that ended in a rollout.

        Arguments:
            done, length: [T, rows].
            copies: what played.
            history: actions [t, rows], reaching back to the resets of these episodes.
            seed: the reset seed of a row's last whole episode.
        """
        self.count += int(done.sum())
        if self.count < self.next or copies.resets_alone:  # what resets itself is played from its very beginning
            return
        rows = np.flatnonzero(done.any(0) & (copies.ended != 0))
        if not rows.size:
            return
        row = int(rows[0])
        behind = int(done[::-1, row].argmax())  # steps after its last end
        actions = np.concatenate(history)
        end = len(actions) - behind
        taken = torch.from_numpy(actions[end - int(length[len(done) - 1 - behind, row]) : end].copy())
        self.kept = {"actions": taken, "row": row, "seed": seed(row), "earned": float(copies.ended[row])}
        self.next = 2 * self.count

    def state_dict(self) -> State:
        return {"past": {"count": self.count, "next": self.next, **self.kept}} if self.count else {}

    def load_state_dict(self, state: State, copies: Callable[[], Copies]) -> bool:
        """Play the episode again, on copies that played nothing before; whether it earns the same."""
        past = state.get("past", {"count": 0, "next": 1})  # 0.5 kept none
        if any(type(past[key]) is not int for key in ("count", "next")):
            raise TypeError("episodes are counted in whole numbers")
        self.count, self.next = past["count"], past["next"]
        self.kept = {key: x for key, x in past.items() if key not in ("count", "next")}
        if not self.kept:
            return True
        again = copies()
        try:
            earned = again.play(self.kept["actions"].numpy(), self.kept["seed"], self.kept["row"])
        finally:
            again.vector.close()  # each may have a process of its own
        return bool(earned == self.kept["earned"])


def fingerprint(observation: Array) -> str:
    return hashlib.blake2b(observation.tobytes(), digest_size=16).hexdigest()


def proof(copies: Copies) -> State:
    """What the copies see and have earned, and a fingerprint of what their newest resets gave."""
    seen, earned = torch.from_numpy(copies.observation.copy()), torch.from_numpy(copies.earned.copy())
    return {"observation": seen, "earned": earned, "reset": fingerprint(copies.first)}


def _bytes(x: torch.Tensor) -> bytes:
    return x.numpy().tobytes()


def compare(copies: Copies, state: State, source: str, repeats: bool) -> None:
    """Say in one line where copies that were brought back differ from the proof in `state`; repeats: and `Past`.

    What was earned is summed step by step in both, so the same rewards have the same sum to the last bit. Rewards
    differ where they depend on earlier episodes, as those of a wrapper with running statistics do.
    """
    now = proof(copies)
    # Bytes: a pole that stands still at -0.0 is not one at 0.0. 0.5 noted nothing that was earned.
    if any(_bytes(now[key]) != _bytes(state[key]) for key in ("observation", "earned") if key in state):
        warn(f"{source}: {NOT_THERE}")
    elif "reset" in state and now["reset"] != state["reset"]:  # 0.4 noted none
        warn(f"{source}: {NOT_AGAIN}")
    elif not repeats:
        warn(f"{source}: {EARNS_ELSE}")
