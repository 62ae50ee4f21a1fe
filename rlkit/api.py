"""The interfaces between the parts: the loop, algorithms and commands rely on them. mypy checks every class."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

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


class Elementwise(NamedTuple):
    """The metric f(x, y, ...), element by element, of tensors of one shape: computed only in logged iterations.

    The tensors of all minibatches are then put side by side, and the function of the first is called once.
    """

    function: Callable[..., Tensor]
    tensors: tuple[Tensor, ...]

    def __call__(self) -> Tensor:
        return self.function(*self.tensors)

    @property
    def shape(self) -> torch.Size:
        return self.tensors[0].shape

    def detach(self) -> "Elementwise":
        return Elementwise(self.function, tuple(x.detach() for x in self.tensors))


Metrics = dict[str, Tensor | Elementwise]  # of a loss, per element or per row


class PolicyFactory(Protocol):
    """The `policy.` keys: a configuration that creates the policies for one kind of environment."""

    def actor(self, env: "Env") -> Stochastic: ...
    def actor_critic(self, env: "Env") -> Stochastic: ...
    def q_network(self, env: "Env", dueling: bool = False) -> ActionValues: ...
    def twin_critics(self, env: "Env", deterministic: bool = False) -> TwinCritics: ...
    def scorer(self, env: "Env") -> Judging: ...


class Env(Protocol):
    """A source of experience: `rows` starts at a time, copies of a control problem or prompts."""

    kind: Literal["control", "text"]  # decides which `policy.` keys apply
    metric: Literal["return", "accuracy"]  # the quantity that `evaluate` measures
    rows: int
    seed: int  # seed of all draws; `rlkit.evaluate seed=` sets it after `make`, for the draws of `evaluate`
    device: torch.device
    source: str  # one line that describes the environment on the first screen
    plays: bool  # False: attempts are stored, not sampled from the policy
    stored_reference: bool  # whether attempts come with log π_ref
    longest: int | None  # most steps of an attempt, if limited
    splits: Mapping[str, int]  # split → number of episodes or problems
    scoring: float  # seconds that reward functions have taken so far
    observation_space: "AnySpace | None"  # None: token ids
    action_space: "AnySpace | None"

    @property
    def reference(self) -> Reference | None:
        """Reference scores for this environment, if known."""
        ...

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """Play `repeats` attempts of at most `steps` steps from each of `rows` starts; None plays whole episodes.

        Returns [rows, T], or [rows, repeats, T] when repeats > 1; attempts from one start share its reset state.
        Further keys: on control episode_return and episode_length [..., T] where one ended; on text problem [...].
        """
        ...

    def evaluate(
        self, policy: Plays, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Scores of whole episodes (or problems) of a split; later rollouts are not affected.

        episodes=None: the environment's own number of episodes for the split.
        """
        ...

    def ceiling(self, policy: Plays, episodes: int | None = None) -> Scores | None:
        """Test scores when the policy must reason before it answers; None where that does not apply."""
        ...

    def exact(self, policy: Plays, gamma: float) -> dict[str, float]:
        """Exact values of the policy, computed from the model; empty where there is no model."""
        ...

    def model(self) -> "Model | None":
        """The transition model; None where it is unknown."""
        ...

    def scored(self, policy: Plays) -> Unit:
        """The unit of this policy's scores."""
        ...

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        """The first rows of a rollout as texts; empty on control."""
        ...

    def check(self, policy: Plays) -> None:
        """Refuse a policy that this environment does not fit, before anything is trained."""
        ...

    def close(self) -> None: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Demonstrates(Protocol):
    """An environment with demonstrations."""

    def demonstrations(self, policy: Plays, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        """The next `rows` demonstrated attempts, [rows, T]."""
        ...


class Buffer(Protocol):
    """The memory of an algorithm. Iterating yields this iteration's minibatches, each with its `weight`."""

    def extend(self, rollout: TensorDict) -> None: ...
    def __iter__(self) -> Iterator[TensorDict]: ...
    def state_dict(self) -> State: ...
    def load_state_dict(self, state: State) -> None: ...


@runtime_checkable
class Lasting(Protocol):
    """A buffer that may keep its own files, which checkpoints refer to instead of containing them."""

    def save_is_due(self) -> bool:
        """Whether a checkpoint is due before data are added: adding overwrites data that the newest one needs."""
        ...

    def flush(self) -> None:
        """Write all data to the disk; called before a checkpoint is written."""
        ...

    def saved(self) -> None:
        """A checkpoint was written: data that only the previous one needed may be deleted."""
        ...

    def close(self) -> None:
        """The run is over: release the files."""
        ...


class Algorithm(Protocol):
    """The four steps act, credit, remember and learn. `rlkit/loop.py` calls them and owns the optimizer step."""

    saved: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "buffer")  # attributes that a checkpoint holds
    config: object  # of `policies.Optimization` the loop reads lr, schedule, warmup and max_grad_norm
    policy: Policy
    buffer: Buffer
    optimizer: torch.optim.Optimizer
    divides: ClassVar[bool] = True  # whether a loss may see a part of a minibatch: of a rank, or of micro_steps
    clip_width: float = math.inf  # how far a ratio may differ from 1 before the loss clips it; used by the doctor
    progress: float = 0.0  # fraction of the run that is done; the loop sets it before each iteration

    def rollout(self, env: Env) -> TensorDict:
        """Act: collect a rollout with the actions and their log-probabilities."""
        ...

    def credit(self, rollout: TensorDict) -> TensorDict:
        """Credit: compute the advantage or return of each step; called without gradient. Returns [B, T]."""
        ...

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        """One differentiable scalar Σ weight·each, and metrics per element (the loop averages over the mask)."""
        ...

    def after_step(self, learned: Sequence[tuple[TensorDict, dict[str, Tensor]]]) -> None:
        """Called after an optimizer step, e.g. to update a target network. learned: micro-batches and metrics.

        Step optimizers of your own here, and then set their gradients to zero: a loss may see a part of a minibatch.
        """
        return None
