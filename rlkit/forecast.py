"""Predicts the peak memory of the largest iteration of a language model, before any text is written."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, runtime_checkable

import torch

from rlkit import memory
from rlkit.errors import UserError
from rlkit.scores import Split

MARGIN = 0.8  # a forecast may be a fifth too high: only if this share of it does not fit is it refused


@dataclass(frozen=True)
class Work:
    """Texts that are written or learned from together, at their greatest length."""

    prompts: int
    group: int  # texts that begin with the same prompt
    prompt: int  # tokens of the longest prompt
    written: int  # tokens of the longest text after it
    whole: bool = False  # learned from at once, whatever policy.micro_steps is
    replies: bool = False  # written by a game or a tool in part; as many tokens as the policy's own, as is assumed


@dataclass(frozen=True)
class Footprint:
    """Bytes beside those that are already allocated, and advice that lowers them."""

    size: int
    remedy: str


@runtime_checkable
class Workload(Protocol):
    """An environment that can estimate the amount of reading and writing."""

    def learned(self, group: int) -> Work:
        """The work of learning in one iteration with so many attempts per start; call `check` first."""
        ...

    def written(self, group: int, measured: Mapping[Split, int]) -> list[Work]:
        """The work of writing in an iteration, and in measurements of so many problems of these splits."""
        ...


@runtime_checkable
class Predicts(Protocol):
    """A policy that can estimate the memory of such work."""

    def longest(self, texts: Sequence[str]) -> int:
        """Tokens of the longest text."""
        ...

    def footprint(self, learned: Work, written: Sequence[Work]) -> Footprint | None:
        """The peak of the iteration; None where this policy has no estimate."""
        ...


@dataclass(frozen=True)
class Forecast:
    """Bytes of the device's memory."""

    taken: int  # bytes of this process before any text is written
    free: int
    coming: Footprint
    replies: bool = False  # of a length that nobody knows

    def __str__(self) -> str:
        peak, most = memory.gib(self.taken + self.coming.size), memory.gib(self.taken + self.free)
        if self.replies:
            return f"about {peak} at the peak, of {most}, with replies as long as turns"
        return f"at most about {peak} at the peak, of {most}"

    def check(self) -> None:
        """Refuse an iteration that will not fit.

        Raises: UserError where even 0.8 of the forecast is more than the free memory.
        """
        if MARGIN * self.coming.size > self.free:
            raise UserError(
                f"an iteration needs about {memory.gib(self.coming.size)} beside the model, "
                f"{memory.gib(self.free)} are free: {self.coming.remedy}"
            )


def forecast(
    policy: object,
    env: object,
    device: torch.device,
    keys: Mapping[str, object],
    measured: Mapping[Split, int],
    whole: bool = False,
) -> Forecast | None:
    """The memory of an iteration with these keys of an algorithm, or of a measurement of so many problems.

    whole: minibatches are not learned in parts.

    Returns: None where the policy is not a language model, or is computed by transformers.
    """
    if not isinstance(env, Workload) or not isinstance(policy, Predicts):
        return None
    group, minibatches = (count(keys.get(key)) for key in ("group", "minibatches"))
    learned = env.learned(group)
    learned = replace(learned, prompts=max(1, learned.prompts // minibatches), whole=whole)
    coming = policy.footprint(learned, env.written(group, measured))
    return None if coming is None else Forecast(*taken_and_free(device), coming, learned.replies)


def count(value: object) -> int:
    """An algorithm of the user's own may have a key of this name that is not a count."""
    return value if isinstance(value, int) and value >= 1 else 1


def taken_and_free(device: torch.device) -> tuple[int, int]:
    """Bytes taken and free: of a GPU's memory if the model is on one, else of this machine's."""
    if device.type == "cuda":
        mine = torch.cuda.memory_allocated(device)
        return mine, torch.cuda.mem_get_info(device)[0] + torch.cuda.memory_reserved(device) - mine
    return memory.taken(), memory.free()
