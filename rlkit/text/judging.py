"""A judge says which of two completions is better; it is asked in both orders, and counts where it says the same.

Its convention is that of TRL 0.25 (`BasePairwiseJudge.judge`): given N prompts and N pairs of completions it returns N
numbers, 0 where the first of a pair is better, 1 where the second is, -1 where it has no preference. A judge that
prefers the same place in both orders has judged the place, not the text (Zheng et al. 2023, arXiv:2306.05685, section
3.4).
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from tensordict import TensorDict

from rlkit.errors import RewardFailed, UserError
from rlkit.named import named
from rlkit.text.given import called, listed, shown

FIRST, SECOND, NEITHER = 0, 1, -1
PAIRS, BOTH = "rollout/judge_pairs", "rollout/judge_both"  # batch keys: whether there is a pair, or a place was judged


@dataclass(frozen=True)
class Judged:
    """What a judge says of N pairs."""

    first: list[float]  # [N], 1: the first is better, 0: the second is, 0.5: it does not say
    both: list[bool]  # [N], it prefers the same place in both orders


class Judge:
    """A function that compares completions."""

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        self.function, self.name = function, name or str(getattr(function, "__name__", function))

    def __call__(self, prompts: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Judged:
        """Compare N pairs of completions; two that are equal are not asked for.

        Raises: RewardFailed where the function fails, or gives what is not a verdict.
        """
        asked = [i for i, (one, other) in enumerate(pairs) if one != other]
        texts = [list(pairs[i]) for i in asked]
        given = self._verdicts([prompts[i] for i in asked] * 2, texts + [text[::-1] for text in texts]) if asked else []
        first, both = [0.5] * len(pairs), [False] * len(pairs)
        for i, one, other in zip(asked, given[: len(asked)], given[len(asked) :], strict=True):
            both[i] = one == other != NEITHER
            if {one, other} == {FIRST, SECOND}:
                first[i] = float(one == FIRST)
        return Judged(first, both)

    def compare(self, batch: TensorDict, prompts: Sequence[str], completions: Sequence[str]) -> None:
        """Put into a batch [P, G, T] what the judge says of each two attempts that follow each other.

        preference [P, G]: 1 of the better attempt, 0 of the worse one, 0.5 of both where it does not say.

        Raises: UserError where G is odd.
        """
        starts, attempts = batch.batch_size
        if attempts % 2:
            raise UserError(
                f"env.judge compares attempts two by two, and there are {attempts} from each start: use algo=dpo or "
                "algo=reward_model with an even algo.group"
            )
        found = self(prompts[::2], list(zip(completions[::2], completions[1::2], strict=True)))
        device = batch["mask"].device
        first, both = torch.tensor(found.first, device=device), torch.tensor(found.both, device=device)
        batch["preference"] = torch.stack([first, 1 - first], -1).view(starts, attempts)
        for key, each in ((PAIRS, first != 0.5), (BOTH, both)):
            batch[key] = each.repeat_interleave(2).view(starts, attempts)

    def _verdicts(self, prompts: list[str], pairs: list[list[str]]) -> list[int]:
        try:
            inspect.signature(self.function).bind(prompts, pairs)
        except TypeError as error:
            raise RewardFailed(
                f"judge {self.name} cannot be called with prompts and completions ({error}); write def "
                f"{self.name}(prompts, completions)"
            ) from None
        given = called(f"judge {self.name}", self.function, prompts, pairs)
        return [self._verdict(value) for value in listed(f"judge {self.name}", given, "verdicts", len(pairs), "pairs")]

    def _verdict(self, value: object) -> int:
        """A probability or a truth value is none: nobody knows of which of the two it is."""
        if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
            value = value.item()
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and value in (FIRST, SECOND, NEITHER):
            return int(value)
        raise RewardFailed(
            f"judge {self.name} gave {shown(value)}; every verdict must be 0 (the first is better), 1 (the second is) "
            "or -1 (neither)"
        )


def load_judge(name: str) -> Judge:
    """./mine.py:function, or package.module:function."""
    return Judge(named("env.judge", name))
