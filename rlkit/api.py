"""The contracts between the parts: what the loop, the algorithms and the commands rely on. mypy checks every class."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.capabilities import ActionValues as ActionValues
from rlkit.capabilities import Acts as Acts
from rlkit.capabilities import Choices as Choices
from rlkit.capabilities import Judges as Judges
from rlkit.capabilities import Judging as Judging
from rlkit.capabilities import Noted as Noted
from rlkit.capabilities import Plays as Plays
from rlkit.capabilities import Policy as Policy
from rlkit.capabilities import Recalls as Recalls
from rlkit.capabilities import Remembers as Remembers
from rlkit.capabilities import State as State
from rlkit.capabilities import Stochastic as Stochastic
from rlkit.capabilities import Tokens as Tokens
from rlkit.capabilities import TwinCritics as TwinCritics
from rlkit.capabilities import Values as Values
from rlkit.capabilities import Writes as Writes
from rlkit.errors import Exhausted as Exhausted
from rlkit.errors import RewardFailed as RewardFailed  # `as`: plug-ins import them from here, too, under mypy
from rlkit.errors import UserError as UserError
from rlkit.fields import Choose as Choose
from rlkit.fields import Code as Code
from rlkit.fields import Count as Count
from rlkit.fields import File as File
from rlkit.fields import Folder as Folder
from rlkit.fields import Fraction as Fraction
from rlkit.fields import Natural as Natural
from rlkit.fields import NonNegative as NonNegative
from rlkit.fields import Output as Output
from rlkit.fields import Place as Place
from rlkit.fields import Positive as Positive
from rlkit.fields import Schedule as Schedule
from rlkit.fields import Search as Search
from rlkit.fields import Words as Words
from rlkit.scores import Reference as Reference
from rlkit.scores import Sample as Sample
from rlkit.scores import Scores as Scores
from rlkit.scores import Split as Split
from rlkit.scores import Unit as Unit

if TYPE_CHECKING:
    from rlkit.exact import Model
    from rlkit.spaces import AnySpace as AnySpace

Metrics = dict[str, Tensor | Callable[[], Tensor]]  # of a loss, per element; functions are called where it is logged


class PolicyFactory(Protocol):
    """The `policy.` keys: a configuration that makes the policies of one kind of environment."""

    def actor(self, env: "Env") -> Stochastic: ...
    def actor_critic(self, env: "Env") -> Stochastic: ...
    def q_network(self, env: "Env", dueling: bool = False) -> ActionValues: ...
    def twin_critics(self, env: "Env", deterministic: bool = False) -> TwinCritics: ...
    def scorer(self, env: "Env") -> Judging: ...


class Env(Protocol):
    """A source of experience: `rows` starts at a time, copies of a control problem or prompts."""

    kind: Literal["control", "text"]  # which `policy.` keys fit
    metric: Literal["return", "accuracy"]  # what `evaluate` measures
    rows: int
    seed: int  # of all that is drawn; `rlkit.evaluate seed=` sets it after `make`, for what `evaluate` draws
    device: torch.device
    source: str  # one line for the run's first screen: what this is
    plays: bool  # False: attempts are stored, not the policy's own
    stored_reference: bool  # its attempts come with log π_ref
    longest: int | None  # steps of one attempt, where they are limited
    splits: Mapping[str, int]  # how many episodes or problems each split has
    scoring: float  # seconds that reward functions have taken so far
    observation_space: "AnySpace | None"  # None: token ids
    action_space: "AnySpace | None"

    @property
    def reference(self) -> Reference | None:
        """What scores of this environment are compared with, where that is known."""
        ...

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """Play `repeats` attempts of at most `steps` steps from each of `rows` starts; None plays whole episodes.

        Returns [rows, T], or [rows, repeats, T] when repeats > 1; attempts from one start share its reset state.
        Its notes: control has episode_return and episode_length [..., T] where one ended; text has problem [...].
        """
        ...

    def evaluate(
        self, policy: Plays, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Score whole episodes (or problems) of a split; changes nothing that a later rollout depends on.

        None: the environment's own number of episodes for the split.
        """
        ...

    def ceiling(self, policy: Plays, episodes: int | None = None) -> Scores | None:
        """Scores of the test split when the policy is made to reason first; None where that has no meaning."""
        ...

    def exact(self, policy: Plays, gamma: float) -> dict[str, float]:
        """What the policy is worth, computed from the model; empty where there is none."""
        ...

    def model(self) -> "Model | None":
        """The transition model, where it is known."""
        ...

    def scored(self, policy: Plays) -> Unit:
        """What a score of this policy is of."""
        ...

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        """The first rows of a rollout in words; empty on control."""
        ...

    def check(self, policy: Plays) -> None:
        """Refuse a policy that this environment does not fit, before anything is trained."""
        ...

    def close(self) -> None: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Demonstrates(Protocol):
    """An environment that can show how it is done."""

    def demonstrations(self, policy: Plays, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        """The next `rows` demonstrated attempts, [rows, T]."""
        ...


class Buffer(Protocol):
    """What is remembered. Iterating yields this iteration's minibatches, each with its `weight`."""

    def extend(self, rollout: TensorDict) -> None: ...
    def __iter__(self) -> Iterator[TensorDict]: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Lasting(Protocol):
    """A buffer that may keep files of its own, which checkpoints refer to and do not hold."""

    def save_is_due(self) -> bool:
        """Whether a checkpoint has to be written before more is remembered: the newest needs what would be lost."""
        ...

    def flush(self) -> None:
        """Have everything on the disk; called before a checkpoint is written."""
        ...

    def saved(self) -> None:
        """The checkpoint is written: what only the one before needed may go."""
        ...

    def close(self) -> None:
        """The run is over: others may have the files."""
        ...


class Algorithm(Protocol):
    """Four rooms: act, credit, remember, learn. `rlkit/loop.py` calls them and owns the optimizer step."""

    saved: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "buffer")  # attributes that a checkpoint holds
    config: object  # of `policies.Optimization` the loop reads lr, schedule, warmup and max_grad_norm
    policy: Policy
    buffer: Buffer
    optimizer: torch.optim.Optimizer
    divides: ClassVar[bool] = True  # ranks compute the gradient of a part of a minibatch each; False: each of all of it
    clip_width: float = math.inf  # how far a ratio may leave 1 before the loss acts on it; the doctor looks at it
    progress: float = 0.0  # the fraction of the run that is done, set by the loop before each iteration

    def rollout(self, env: Env) -> TensorDict:
        """Play: who chose which action with what probability."""
        ...

    def credit(self, rollout: TensorDict) -> TensorDict:
        """Say what each step was worth; called without gradient. Returns [B, T]."""
        ...

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        """One differentiable scalar Σ weight·each, and metrics per element (the loop averages over the mask)."""
        ...

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """After an optimizer step: move a target network, set priorities. learned: each micro-batch and its metrics."""
        return None
