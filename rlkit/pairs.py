"""Stored preferences: prompts with two completions, of which one is preferred."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Scores, Split, UserError
from rlkit.language.shuffle import Shuffle
from rlkit.text import Record, TextEnv, ahead, finish, record

EVALUATED = 32  # pairs that are compared at a time


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt with two stored completions, of which one is preferred, and log π_ref of each where it is known."""

    prompt: str
    chosen: str
    rejected: str
    ref: tuple[float, float] | None = None  # of the chosen and of the rejected side, the end token included


class PairEnv:
    """Stored preferences: each start has two attempts, the chosen (score 1) and the rejected (score 0)."""

    kind: Literal["control", "text"] = "text"
    plays = False  # its attempts are nobody's own
    metric: Literal["return", "accuracy"] = "accuracy"

    def __init__(
        self,
        pairs: Mapping[str, Sequence[Pair]],
        rows: int,
        seed: int,
        device: str | torch.device = "cpu",
        source: str = "",
        problems: TextEnv | None = None,
    ) -> None:
        if not pairs["train"]:
            raise UserError(f"{source or 'the train split'}: no pair is left to train on; hold out fewer, or give more")
        self.pairs, self.problems = pairs, problems
        self.ceiling = problems.ceiling if problems else ()
        self.splits = problems.splits if problems else {split: len(rows) for split, rows in pairs.items()}
        self.rows, self.seed, self.device, self.source = rows, seed, torch.device(device), source
        self.has_reference = all(pair.ref is not None for pair in pairs["train"])
        self.last: list[Record] = []
        self._drawn = Shuffle(len(pairs["train"]), seed, "pairs")
        self._shown = Shuffle(len(pairs["train"]), seed, "demonstrations")

    def check(self, policy: Any) -> None:
        """Refuse pairs that do not fit into the policy's context, before anything is trained."""
        if hasattr(policy, "check"):
            policy.check(*_sides([pair for pairs in self.pairs.values() for pair in pairs]))
        if self.problems is not None:
            self.problems.check(policy)

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """The next `rows` pairs as [rows, 2, T], chosen first; nothing is played, so the attempts are always whole.

        ref_log_prob [rows, 2] is there where it is stored: of each whole side.
        """
        if repeats != 2 or steps is not None:
            given = f"{repeats} attempts" + (f" of {steps} steps" if steps is not None else "")
            raise UserError(f"stored pairs are two whole attempts, not {given}; use algo=dpo, or env=gsm8k")
        pairs = [self.pairs["train"][index] for index in self._drawn.take(self.rows)]
        batch = _encode(policy, pairs)
        self.last = [
            record(pair.prompt, text, pair.chosen, value)
            for pair in pairs
            for text, value in ((pair.chosen, 1.0), (pair.rejected, 0.0))
        ]
        device = batch["mask"].device
        if self.has_reference:
            batch["ref_log_prob"] = torch.tensor([pair.ref for pair in pairs], device=device)
        return finish(batch, torch.tensor([1.0, 0.0], device=device).repeat(len(pairs), 1))

    def evaluate(
        self,
        policy: Any,
        episodes: int | None = None,
        split: Split = "validation",
        greedy: bool = True,
        forbid_first: Sequence[str] = (),
    ) -> Scores:
        """Accuracy: held-out problems solved where there are any, else how often log π(chosen) > log π(rejected).

        Of a reward model it is always how often r(chosen) > r(rejected) on held-out pairs. A tie counts one half.
        """
        judge = getattr(policy, "judge", None)
        if judge is None and self.problems is not None:
            return self.problems.evaluate(policy, episodes, split, greedy, forbid_first)
        if forbid_first:
            raise ValueError("stored pairs are compared, not generated: there is no first token to forbid")
        pairs = self.pairs[split][:episodes]
        if not pairs:
            raise UserError(f"{self.source or 'this environment'}: no {split} pairs; hold some out with env.{split}=N")
        margins, lengths = [], []
        for start in range(0, len(pairs), EVALUATED):
            part = pairs[start : start + EVALUATED]
            batch = _encode(policy, part)
            value = _likelihood(policy, batch) if judge is None else _judged(judge, part)
            margins.append(value[:, 0] - value[:, 1])
            lengths.append(batch["mask"][:, 0].sum(-1).double().cpu())
        return Scores(score=ahead(torch.cat(margins)), length=torch.cat(lengths))

    def demonstrations(self, policy: Any, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        """The chosen sides of the next `rows` pairs, for supervised training [rows, T]."""
        pairs = [self.pairs["train"][index] for index in self._shown.take(rows or self.rows)]
        return policy.encode([pair.prompt for pair in pairs], [pair.chosen for pair in pairs])

    def state_dict(self) -> dict[str, Any]:
        solved = {"problems": self.problems.state_dict()} if self.problems else {}
        return {"pairs": self._drawn.drawn, "demonstrations": self._shown.drawn, **solved}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._drawn.drawn, self._shown.drawn = state["pairs"], state["demonstrations"]
        if self.problems is not None:
            self.problems.load_state_dict(state["problems"])


def _sides(pairs: Sequence[Pair]) -> tuple[list[str], list[str]]:
    """Prompts and completions, the chosen before the rejected side of each pair."""
    prompts = [pair.prompt for pair in pairs for _ in range(2)]
    return prompts, [side for pair in pairs for side in (pair.chosen, pair.rejected)]


def _encode(policy: Any, pairs: Sequence[Pair]) -> TensorDict:
    """Both sides of each pair, chosen first: [len(pairs), 2, T]."""
    return policy.encode(*_sides(pairs)).view(len(pairs), 2)


def _judged(judge: Callable[..., Tensor], pairs: Sequence[Pair]) -> Tensor:
    """r of both sides [len(pairs), 2]."""
    return judge(*_sides(pairs)).view(-1, 2).double().cpu()


@torch.no_grad()
def _likelihood(policy: Any, batch: TensorDict) -> Tensor:
    """log π of both sides: [P, 2, T] → [P, 2]."""
    return policy.evaluate(batch.flatten())["log_prob"].sum(-1).view(-1, 2).double().cpu()
