"""A judge decides which of two completions is better. It is asked in both orders, and consistent verdicts count.

Its convention is that of TRL 0.25 (`BasePairwiseJudge.judge`): given N prompts and N pairs of completions it returns N
numbers, 0 where the first of a pair is better, 1 where the second is, -1 where it has no preference. A judge that
prefers the same position in both orders judged the position, not the text (Zheng et al. 2023, arXiv:2306.05685, section
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
from rlkit.text.given import called, listed, name_of, refuse_async, shown

FIRST, SECOND, NEITHER = 0, 1, -1
PAIRS, BOTH = "rollout/judge_pairs", "rollout/judge_both"  # a batch key: verdict, inconsistent verdict


@dataclass(frozen=True)
class Judged:
    """The verdicts on N pairs."""

    first: list[float]  # [N], 1: the first is better, 0: the second is, 0.5: no verdict
    both: list[bool]  # [N], whether it preferred the same position in both orders


class Judge:
    """A user's function that compares completions."""

    def __init__(self, function: Callable[..., object], name: str = "") -> None:
        self.function, self.name = function, name or name_of(function)

    def __call__(self, prompts: Sequence[str], pairs: Sequence[tuple[str, str]]) -> Judged:
        """Compare N pairs of completions; equal completions are not sent to the function.

        Raises: RewardFailed where the function fails or returns an invalid verdict.
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
        """Let the judge compare attempts 1 and 2, 3 and 4, and so on, and add the verdicts to a batch [P, G, T].

        preference [P, G]: 1 for the better attempt, 0 for the worse one, 0.5 for both without a verdict.

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

    def check(self) -> None:
        """Refuse a function that cannot be called. Raises: RewardFailed."""
        refuse_async(f"judge {self.name}", self.function)
        try:
            inspect.signature(self.function).bind([], [])
        except TypeError as error:
            raise RewardFailed(
                f"judge {self.name} cannot be called with prompts and completions ({error}); write def "
                f"{self.name}(prompts, completions)"
            ) from None
        except ValueError:  # a compiled function has no signature, and says at its call what it does not take
            pass

    def _verdicts(self, prompts: list[str], pairs: list[list[str]]) -> list[int]:
        self.check()
        asked = len(pairs)  # a judge may empty its list
        given = called(f"judge {self.name}", self.function, prompts, pairs)
        return [self._verdict(value) for value in listed(f"judge {self.name}", given, "verdicts", asked, "pairs")]

    def _verdict(self, value: object) -> int:
        """The verdict as an integer. A probability or a boolean is refused: it could mean either of the two."""
        if isinstance(value, np.ndarray | torch.Tensor) and value.ndim == 0:
            value = value.item()
        if isinstance(value, int | np.integer) and not isinstance(value, bool) and value in (FIRST, SECOND, NEITHER):
            return int(value)
        raise RewardFailed(
            f"judge {self.name} gave {shown(value)}; every verdict must be 0 (the first is better), 1 (the second is) "
            "or -1 (neither)"
        )


def load_judge(name: str) -> Judge:
    """Load ./mine.py:function, or package.module:function."""
    return Judge(named("env.judge", name))
