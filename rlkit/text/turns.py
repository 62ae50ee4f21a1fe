"""What tasks with several turns share: who can take turns, and what is counted in each row."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import TensorDict

from rlkit.api import Plays, Writes
from rlkit.buffers import last_step
from rlkit.errors import UserError
from rlkit.prompts import Reply, cut

NOTE = "rollout/"  # begins the keys of a batch that count something in each row, and the metrics that these become


@runtime_checkable
class Converses(Writes, Protocol):
    """Writes in turns, between which it reads."""

    def converse(
        self,
        prompts: Sequence[str],
        reply: Reply,
        repeats: int = 1,
        max_tokens: int = 64,
        turn_tokens: int | None = None,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        """`repeats` conversations after each prompt: what `generate` gives, and turn_end [P, G, T].

        max_tokens: that a row writes in all; turn_tokens: in one turn. mask is False where a reply stands.
        """
        ...

    def transcript(self, rollout: TensorDict, special: bool = False) -> list[str]:
        """All that stands in each row from the first token that was written to the last one, replies included.

        special: with special tokens.
        """
        ...


class OneTurn:
    """Completions of one turn: nobody answers."""

    def longest(self, max_tokens: int) -> int:
        """Tokens of a row in which the policy writes so many."""
        return max_tokens

    def check(self, policy: Plays, stop: Sequence[str]) -> None:
        """The policy can do it."""

    def write(
        self, policy: Writes, prompts: Sequence[str], stop: Sequence[str], repeats: int = 1, **how: Any
    ) -> tuple[TensorDict, list[str]]:
        """Completions as a batch and as texts up to a stop string; how: arguments of `Writes.generate`.

        Whether a stop string ended one is counted as rollout/stopped, where there are any.
        """
        batch = policy.generate(prompts, repeats, stop=stop, **how)
        return batch, self.noted(policy, batch, stop)

    def read(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[str]:
        """The texts of a batch up to a stop string."""
        return [text[:end] for text, end in self.ends(policy, batch, stop)]

    def noted(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[str]:
        """What `read` gives; rollout/stopped counts where it cut."""
        found = self.ends(policy, batch, stop)
        if stop:
            by_token = ended_by(batch, set(policy.tokenizer.stops(stop)) - set(policy.tokenizer.stop_ids))
            cut_off = [end < len(text) for text, end in found]
            note(batch, stopped=[a or b for a, b in zip(cut_off, by_token, strict=True)])
        return [text[:end] for text, end in found]

    def ends(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[tuple[str, int]]:
        """Each text, and where a stop string ends it."""
        return [(text, len(cut(text, stop))) for text in policy.decode(batch)]


def ended_by(batch: TensorDict, tokens: Collection[int]) -> list[bool]:
    """Whether each row, row-major, ends in one of some tokens, which are not text."""
    mask, action = batch["mask"].flatten(0, -2), batch["action"].flatten(0, -2)
    last = action.gather(-1, (last_step(mask) - 1).clamp(min=0).unsqueeze(-1))[:, 0].tolist()
    return [token in tokens for token in last]


def writing(policy: Plays) -> Writes:
    """The policy, if it reads and writes texts."""
    if not isinstance(policy, Writes):
        raise UserError(f"a {type(policy).__name__} writes no text; use algo=grpo, or a control environment")
    return policy


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


def notes(batch: TensorDict) -> dict[str, list[float]]:
    """What was counted, by name, [rows]."""
    return {key.removeprefix(NOTE): x.flatten().tolist() for key, x in batch.items() if key.startswith(NOTE)}
