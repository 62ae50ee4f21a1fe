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
    """What the copies see, and a fingerprint of what their newest resets gave."""
    return {"observation": torch.from_numpy(copies.observation.copy()), "reset": fingerprint(copies.first)}


def compare(copies: Copies, state: State, source: str) -> None:
    """Say in one line where copies that were brought back differ from the proof in `state`."""
    if copies.observation.tobytes() != state["observation"].numpy().tobytes():
        warn(f"{source}: {NOT_THERE}")
    elif "reset" in state and fingerprint(copies.first) != state["reset"]:  # 0.4 noted none
        warn(f"{source}: {NOT_AGAIN}")
