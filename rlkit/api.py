"""The contracts between the rooms, as Protocols: documentation that type-checks. Nothing here does any work."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Protocol

import torch
from annotated_types import Ge, Gt, Le
from tensordict import TensorDict
from torch import Tensor

# Field types for plug-in configurations; a value outside the range is refused with one line.
Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]

Split = Literal["train", "validation", "test"]
Schedule = Literal["constant", "linear"]


class UserError(Exception):
    """The user's mistake: one line that says what was given, what is allowed and what to do. Exit code 2."""


class Exhausted(UserError):
    """Nothing is left to learn from: a mistake at the start of a run, its natural end later on."""


class RewardFailed(UserError):
    """A user's reward function raised, or gave what is no reward."""


@dataclass(frozen=True)
class Reference:
    """What counts as 0 and as 1 where scores of different domains are compared: (score − low) / (high − low)."""

    low: float
    high: float
    low_is: str  # in words: a random policy, the untouched model
    high_is: str  # the optimum, a published result, the ceiling


@dataclass
class Scores:
    """What `Env.evaluate` measured: one number an episode or problem, and what there is to tell about each."""

    score: Tensor  # [episodes], float64
    length: Tensor  # [episodes], steps or tokens
    kinds: list[str] | None = None  # the problem kind of each, for text
    groups: list[str] | None = None  # and the group its kind belongs to: common or rare
    samples: list[dict[str, Any]] = field(default_factory=list)  # prompt, completion, answer, score ... for text


class Policy(Protocol):
    """Whoever acts. Control policies have `act`; language models have `generate` (see `language/model.py`)."""

    memoryless: bool  # True: elements may be flattened and shuffled; False: rows stay whole
    micro_steps: int | None  # steps per micro-batch, padding included; None: a minibatch is never cut

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Choose one action per row, drawing from the policy's own generator."""
        ...

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        """What the behaviour policy knows of the steps it took: log_prob; with a critic value and next_value."""
        ...

    def evaluate(self, batch: TensorDict) -> dict[str, Tensor]:
        """With gradient, for each element: log_prob, entropy, and value with a critic."""
        ...


class Env(Protocol):
    """A source of experience: `rows` starts at a time, copies of a control problem or prompts."""

    rows: int
    seed: int
    device: torch.device
    kind: Literal["control", "text"]  # which policies fit: `policies.Network` or a language model
    metric: Literal["return", "accuracy"]  # what `evaluate` measures
    source: str  # one line for the run's first screen: what this is
    reference: Reference | None  # what scores of this environment are compared with, where that is known

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """Play `repeats` attempts of at most `steps` steps from each of `rows` starts; None plays whole episodes.

        Returns [rows, T], or [rows, repeats, T] when repeats > 1; attempts from one start share its reset state.
        """
        ...

    def evaluate(
        self, policy: Any, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Score whole episodes (or problems) of a split; changes nothing that a later rollout depends on.

        None: as many as the environment holds fit for the split.
        """
        ...

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class Buffer(Protocol):
    """What is remembered. Iterating yields this iteration's minibatches, each with its `weight`."""

    def extend(self, rollout: TensorDict) -> None: ...
    def __iter__(self) -> Iterator[TensorDict]: ...


class Algorithm(Protocol):
    """Four rooms: act, credit, remember, learn. The loop in `train.py` walks them and owns the optimiser step."""

    config: Any  # the loop reads lr, schedule, warmup and max_grad_norm from it, see `policies.Optimization`
    policy: Any
    buffer: Any
    optimizer: torch.optim.Optimizer
    progress: float  # the fraction of the run that is done, set by the loop before each iteration

    def rollout(self, env: Any) -> TensorDict:
        """Play: who chose which action with what probability."""
        ...

    def credit(self, rollout: TensorDict) -> TensorDict:
        """Say what each step was worth; called without gradient. Returns [B, T]."""
        ...

    def loss(self, batch: TensorDict) -> tuple[Tensor, dict[str, Tensor]]:
        """One differentiable scalar Σ weight·each, and metrics per element (averaged over the mask by the loop)."""
        ...
