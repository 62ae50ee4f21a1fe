"""What a policy can do: play, act, write, judge, say its probabilities and values. Part of rlkit.api."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from tensordict import TensorDict
from torch import Tensor

State = dict[str, Any]  # a state_dict: nested plain values and tensors; only its owner knows the keys


@runtime_checkable
class Plays(Protocol):
    """A policy that an environment can play with."""

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        """What the behavior policy knows of the steps it took: log_prob; with a critic value and next_value."""
        ...


@runtime_checkable
class Acts(Plays, Protocol):
    """Plays control problems."""

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Choose one action per row, drawing from the policy's own generator. [rows, ...] → [rows(, d)]."""
        ...


@runtime_checkable
class Recalls(Protocol):
    """Can act by what it has seen since the episode began."""

    def start(self, rows: int) -> Tensor:
        """What is remembered before an episode's first step. [rows, size]"""
        ...

    def recall(self, observation: Tensor, memory: Tensor, greedy: bool = False) -> tuple[Tensor, Tensor]:
        """The action, and what is remembered then. [rows, ...], [rows, size] → [rows(, d)], [rows, size]."""
        ...


@runtime_checkable
class Remembers(Recalls, Protocol):
    """Acts by what it has seen since the episode began."""

    memoryless: bool  # True: it can remember, and does not


class Policy(Plays, Protocol):
    """What an algorithm trains. Implementations are `nn.Module`s."""

    name: str  # for the first screen of a run
    memoryless: bool  # True: elements may be flattened and shuffled; False: rows stay whole
    micro_steps: int | None  # steps per micro-batch, what rows begin with alike once; None: no cut
    dtype: torch.dtype  # the precision that log-probabilities are computed in
    generator: torch.Generator  # everything that acting draws

    def refresh(self) -> None:
        """Adopt the statistics observed so far; the loop calls it once per iteration, before anyone acts."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object: ...  # as nn.Module declares it


@runtime_checkable
class Stochastic(Policy, Protocol):
    """A policy that can say log π(a|s), with gradient."""

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        """For each element: log_prob, entropy, and value with a critic; 0 where the mask is False. [B, T]

        entropy=False: nobody asks for the entropy, which may be left out.
        """
        ...


@runtime_checkable
class Values(Protocol):
    """A policy that can say what a state is worth."""

    def value(self, observation: Tensor) -> Tensor:
        """V(s), or max_a Q(s, a). [..., observation] → [...]."""
        ...


class ActionValues(Policy, Acts, Values, Protocol):
    """Q(s, ·), acted on ε-greedily."""

    epsilon: float

    def __call__(self, observation: Tensor) -> Tensor:
        """[..., observation] → [..., A]."""
        ...

    def frozen(self) -> "ActionValues":
        """A copy for bootstrap targets that no optimizer moves."""
        ...


class Choices(NamedTuple):
    """What a policy may do in each of N states, as an expectation over K of its actions sees it.

    Of discrete actions K = A: all, each with its probability; of continuous ones K = 1: one that was drawn.
    """

    probability: Tensor  # of each in the expectation [N, K]; of one that was drawn 1
    log_prob: Tensor  # log π(a|s), [N, K]; 0 of a deterministic policy
    action: Tensor  # scaled to [-1, 1], with gradient [N, d]; of discrete actions all of them [N, K]


class TwinCritics(Policy, Acts, Values, Protocol):
    """An actor with two estimates of Q(s, a), for learning from replayed steps."""

    epsilon: float  # probability of a uniformly random action
    noise: float  # standard deviation of what is added to actions that are played, where their range is [-1, 1]

    @property
    def actor(self) -> torch.nn.Module: ...
    @property
    def critics(self) -> torch.nn.Module: ...

    def choices(self, observation: Tensor) -> Choices:
        """What the actor would do. [N, observation]"""
        ...

    def q(self, observation: Tensor, action: Tensor) -> Tensor:
        """Both estimates for the actions taken. [N, observation], [N(, d)] → [2, N]."""
        ...

    def q_of(self, observation: Tensor, choices: Choices, estimates: int = 2) -> Tensor:
        """Both estimates for all choices, or the first one alone. → [2, N, K], or [1, N, K]."""
        ...

    def entropy_target(self) -> float:
        """The entropy that a learned temperature aims at where no other is asked for."""
        ...

    def disturbed(self, action: Tensor, deviation: float, limit: float) -> Tensor:
        """action + clip(N(0, deviation²), ±limit), within [-1, 1]. [N, d] → [N, d]"""
        ...

    def frozen(self) -> "TwinCritics":
        """A copy for bootstrap targets that no optimizer moves."""
        ...


class Tokens(Protocol):
    """What a tokenizer tells: the ids that end a text, and texts for ids."""

    eos_id: int
    stop_ids: tuple[int, ...]

    def decode(self, rows: list[list[int]]) -> list[str]: ...
    def stops(self, texts: Sequence[str]) -> tuple[int, ...]: ...  # stop_ids, and the texts that are special tokens


@runtime_checkable
class Writes(Plays, Protocol):
    """Reads and writes texts: a language model."""

    @property
    def tokenizer(self) -> Tokens: ...
    def generate(
        self,
        prompts: Sequence[str],
        repeats: int = 1,
        max_tokens: int = 64,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        """`repeats` completions of each prompt: observation action log_prob mask [P, G, T], truncated [P, G].

        stop: strings of which the first in a completion ends it, with the token that completes the string.
        """
        ...

    def encode(self, prompts: Sequence[str], completions: Sequence[str]) -> TensorDict:
        """Given texts in the layout of `generate`, [B, T]."""
        ...

    def decode(self, rollout: TensorDict) -> list[str]:
        """The completions as texts, row by row."""
        ...

    def check(self, prompts: Sequence[str], after: int | Sequence[str]) -> None:
        """Refuse prompts that do not fit into the context with `after` more tokens, or with their completions."""
        ...

    def save(self, folder: Path) -> None:
        """Write a Hugging Face-format folder."""
        ...


@runtime_checkable
class Noted(Protocol):
    """Has something to say on the first screen of a run, beside its name."""

    @property
    def note(self) -> str:
        """Who writes its text, where that is another program; else empty."""
        ...


@runtime_checkable
class Judges(Writes, Protocol):
    """Scores whole texts: a reward model."""

    def judge(self, prompts: Sequence[str], completions: Sequence[str]) -> Tensor:
        """r(prompt, completion) of each text, without gradient. [N]"""
        ...

    def score(self, batch: TensorDict) -> Tensor:
        """r of each row of observation, action and mask [B, T], with gradient. [B]"""
        ...


class Judging(Policy, Judges, Protocol):
    """A reward model that is trained."""
