"""Common parts of tasks with several turns: the interface of policies, and counters for each row."""

from collections.abc import Collection, Sequence
from typing import Any, Protocol, runtime_checkable

import torch
from tensordict import TensorDict

from rlkit.api import Judges, Plays, Writes
from rlkit.buffers import last_step
from rlkit.errors import UserError
from rlkit.prompts import Reply, cut

NOTE = "rollout/"  # prefix of batch keys that count something per row, and of their metrics


@runtime_checkable
class Converses(Writes, Protocol):
    """Writes several turns, and reads replies between them."""

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
        """`repeats` conversations after each prompt: the keys of `generate`, and turn_end [P, G, T].

        max_tokens: most tokens that a row writes in all; turn_tokens: in one turn. mask is False in replies.
        """
        ...

    def transcript(self, rollout: TensorDict, special: bool = False) -> list[str]:
        """The text of each row from the first written token to the last, including replies.

        special: keep special tokens.
        """
        ...


class OneTurn:
    """Completions of one turn, without replies."""

    def longest(self, max_tokens: int) -> int:
        """Most tokens of a row in which the policy writes so many."""
        return max_tokens

    def check(self, policy: Plays, stop: Sequence[str]) -> None:
        """Every policy that writes is accepted."""

    def write(
        self, policy: Writes, prompts: Sequence[str], stop: Sequence[str], repeats: int = 1, **how: Any
    ) -> tuple[TensorDict, list[str]]:
        """Completions as a batch, and as texts up to a stop string; how: arguments of `Writes.generate`.

        rollout/stopped counts the rows that a stop string ended, if there are stop strings.
        """
        batch = policy.generate(prompts, repeats, stop=stop, **how)
        return batch, self.noted(policy, batch, stop)

    def read(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[str]:
        """The texts of a batch up to a stop string."""
        return [text[:end] for text, end in self.ends(policy, batch, stop)]

    def noted(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[str]:
        """The texts of `read`; rollout/stopped counts those that were cut, unless a reward model had them written."""
        found = self.ends(policy, batch, stop)
        if stop and not isinstance(policy, Judges):  # it encoded the texts again, without what ended them
            by_token = ended_by(batch, set(policy.tokenizer.stops(stop)) - set(policy.tokenizer.stop_ids))
            cut_off = [end < len(text) for text, end in found]
            note(batch, stopped=[a or b for a, b in zip(cut_off, by_token, strict=True)])
        return [text[:end] for text, end in found]

    def ends(self, policy: Writes, batch: TensorDict, stop: Sequence[str]) -> list[tuple[str, int]]:
        """Each text, and the index of its end at a stop string."""
        return [(text, len(cut(text, stop))) for text in policy.decode(batch)]


def ended_by(batch: TensorDict, tokens: Collection[int]) -> list[bool]:
    """Whether each row, in row-major order, ends with one of these tokens, which are not text."""
    mask, action = batch["mask"].flatten(0, -2), batch["action"].flatten(0, -2)
    last = action.gather(-1, (last_step(mask) - 1).clamp(min=0).unsqueeze(-1))[:, 0].tolist()
    return [token in tokens for token in last]


def writing(policy: Plays) -> Writes:
    """The policy, if it reads and writes texts; else raises UserError."""
    if not isinstance(policy, Writes):
        raise UserError(f"a {type(policy).__name__} writes no text; use algo=grpo, or a control environment")
    return policy


def conversing(policy: Plays) -> Converses:
    """The policy, if it writes several turns; else raises UserError."""
    if not isinstance(policy, Converses):
        raise UserError(
            f"a {type(policy).__name__} writes no turns: use algo=grpo or another that trains a language model, or an "
            "environment without turns and tools"
        )
    return policy


def note(batch: TensorDict, **counts: Sequence[float]) -> None:
    """Store a count for each row of a batch, row-major; its mean is the metric rollout/NAME."""
    for name, values in counts.items():
        numbers = torch.tensor(values, dtype=torch.float32, device=batch["mask"].device)
        batch[f"{NOTE}{name}"] = numbers.view(batch.batch_size)


def notes(batch: TensorDict) -> dict[str, list[float]]:
    """The counts by name, [rows]."""
    return {key.removeprefix(NOTE): x.flatten().tolist() for key, x in batch.items() if key.startswith(NOTE)}
