"""What tasks with several turns share: who can take turns, and what is counted in each row."""

from collections.abc import Sequence

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Converses, Plays
from rlkit.errors import UserError

NOTE = "rollout/"  # begins the keys of a batch that count something in each row, and the metrics that these become


def conversing(policy: Plays) -> Converses:
    """The policy, if it writes in turns."""
    if not isinstance(policy, Converses):
        raise UserError(
            f"a {type(policy).__name__} writes no turns: use algo=grpo or another that trains a language model, or an "
            "environment without turns and tools"
        )
    return policy


def note(batch: TensorDict, **counts: Sequence[float]) -> None:
    """Count something in each row of a batch, row-major; its mean is the metric rollout/NAME."""
    for name, values in counts.items():
        numbers = torch.tensor(values, dtype=torch.float32, device=batch["mask"].device)
        batch[f"{NOTE}{name}"] = numbers.view(batch.batch_size)


def notes(batch: TensorDict) -> dict[str, Tensor]:
    """What was counted, by name, [rows]."""
    return {key.removeprefix(NOTE): x.flatten().double().cpu() for key, x in batch.items() if key.startswith(NOTE)}
