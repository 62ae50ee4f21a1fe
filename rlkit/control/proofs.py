"""What a replay must come back to: noted with a run's state, and compared where the run goes on."""

import hashlib

import torch

from rlkit.api import State
from rlkit.control.vector import Array, Copies
from rlkit.terminal import warn

NOT_THERE = "its episodes in progress cannot be repeated exactly, so what follows is not quite what was cut off"
NOT_AGAIN = "a reset with the seed that it had begins elsewhere, so what follows is not quite what was cut off"


def fingerprint(observation: Array) -> str:
    return hashlib.blake2b(observation.tobytes(), digest_size=16).hexdigest()


def proof(copies: Copies) -> State:
    """What the copies see and have earned, and a fingerprint of what their newest resets gave."""
    seen, earned = torch.from_numpy(copies.observation.copy()), torch.from_numpy(copies.earned.copy())
    return {"observation": seen, "earned": earned, "reset": fingerprint(copies.first)}


def _bytes(x: torch.Tensor) -> bytes:
    return x.numpy().tobytes()


def compare(copies: Copies, state: State, source: str) -> None:
    """Say in one line where copies that were brought back differ from the proof in `state`.

    What was earned is summed step by step in both, so the same rewards have the same sum to the last bit. Rewards
    differ where they depend on earlier episodes, as those of NormalizeReward do.
    """
    now = proof(copies)
    # Bytes: a pole that stands still at -0.0 is not one at 0.0. 0.5 noted nothing that was earned.
    if any(_bytes(now[key]) != _bytes(state[key]) for key in ("observation", "earned") if key in state):
        warn(f"{source}: {NOT_THERE}")
    elif "reset" in state and now["reset"] != state["reset"]:  # 0.4 noted none
        warn(f"{source}: {NOT_AGAIN}")
