"""What policies can do: play, act, write, judge, give log-probabilities and values. Part of rlkit.api."""

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
        """The behavior policy's quantities for its steps: log_prob; with a critic also value and next_value."""
        ...


@runtime_checkable
class Acts(Plays, Protocol):
    """Plays control problems."""

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Choose one action per row, drawing from the policy's own generator. [rows, ...] → [rows(, d)]."""
        ...


@runtime_checkable
class Recalls(Protocol):
    """Can act on a memory of the episode so far."""

    def start(self, rows: int) -> Tensor:
        """The memory before an episode's first step: zeros, as it is set to 0 where an episode begins. [rows, size]"""
        ...

    def recall(self, observation: Tensor, memory: Tensor, greedy: bool = False) -> tuple[Tensor, Tensor]:
        """The action, and the new memory. [rows, ...], [rows, size] → [rows(, d)], [rows, size]."""
        ...


@runtime_checkable
class Remembers(Recalls, Protocol):
    """Acts on a memory of the episode so far."""

    memoryless: bool  # True: the memory is switched off


class Policy(Plays, Protocol):
    """The policy that an algorithm trains. Implementations are `nn.Module`s."""

    name: str  # for the first screen of a run
    memoryless: bool  # True: elements may be flattened and shuffled; False: rows stay whole
    micro_steps: int | None  # most steps per micro-batch; a shared beginning of rows counts once; None: no limit
    dtype: torch.dtype  # the precision that log-probabilities are computed in
    generator: torch.Generator  # source of all draws of actions

    def refresh(self) -> None:
        """Adopt the statistics observed so far; the loop calls it once per iteration, before any action."""
        ...

    def parameters(self, recurse: bool = True) -> Iterator[torch.nn.Parameter]: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state_dict: Mapping[str, Any], /) -> object: ...  # as nn.Module declares it


@runtime_checkable
class Stochastic(Policy, Protocol):
    """A policy that computes log π(a|s) with gradient."""

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        """For each element: log_prob, entropy, and value with a critic. [B, T]

        What stands where the mask is False counts nowhere: a language model gives 0 there, a network for control any
        number. entropy=False: the entropy is not needed and may be left out.
        """
        ...


@runtime_checkable
class Values(Protocol):
    """A policy that estimates the value of a state."""

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
    """The actions of a policy in each of N states, for an expectation over K of them.

    Discrete actions: K = A, all actions with their probabilities. Continuous actions: K = 1, one sampled action.
    """

    probability: Tensor  # weight in the expectation [N, K]; 1 for a sampled action
    log_prob: Tensor  # log π(a|s), [N, K]; 0 for a deterministic policy
    action: Tensor  # continuous: in [-1, 1] with gradient [N, d]; discrete: all actions [N, K]


class TwinCritics(Policy, Acts, Values, Protocol):
    """An actor with two estimates of Q(s, a), for learning from replayed steps."""

    epsilon: float  # probability of a uniformly random action
    noise: float  # standard deviation of the noise added to played actions, in units of [-1, 1]

    @property
    def actor(self) -> torch.nn.Module: ...
    @property
    def critics(self) -> torch.nn.Module: ...

    def choices(self, observation: Tensor) -> Choices:
        """The actor's actions. [N, observation]"""
        ...

    def q(self, observation: Tensor, action: Tensor) -> Tensor:
        """Both estimates for the actions taken. [N, observation], [N(, d)] → [2, N]."""
        ...

    def q_of(self, observation: Tensor, choices: Choices, estimates: int = 2) -> Tensor:
        """Both estimates for all choices, or only the first one. → [2, N, K], or [1, N, K]."""
        ...

    def entropy_target(self, choices: Choices) -> Tensor:
        """The default target entropy of a learned temperature, in each of the states of some choices. → [N]"""
        ...

    def disturbed(self, action: Tensor, deviation: float, limit: float) -> Tensor:
        """action + clip(N(0, deviation²), ±limit), within [-1, 1]. [N, d] → [N, d]"""
        ...

    def frozen(self) -> "TwinCritics":
        """A copy for bootstrap targets that no optimizer moves."""
        ...


class Tokens(Protocol):
    """A tokenizer: the ids that end a text, and texts for ids."""

    eos_id: int
    stop_ids: tuple[int, ...]

    def decode(self, rows: list[list[int]]) -> list[str]: ...
    def stops(self, texts: Sequence[str]) -> tuple[int, ...]: ...  # stop_ids, and special tokens among the texts


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

        stop: strings that end a completion, with the token that completes the first of them.
        """
        ...

    def encode(self, prompts: Sequence[str], completions: Sequence[str]) -> TensorDict:
        """Encode given texts in the layout of `generate`, [B, T]."""
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
    """Has a line for the first screen of a run, beside its name."""

    @property
    def note(self) -> str:
        """The program that writes its text, if it is another one; else empty."""
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
