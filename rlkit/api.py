"""The contracts between the parts: what the loop, the algorithms and the commands rely on. mypy checks every class."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol, runtime_checkable

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.errors import Exhausted as Exhausted
from rlkit.errors import RewardFailed as RewardFailed  # `as`: plug-ins import them from here, too, under mypy
from rlkit.errors import UserError as UserError
from rlkit.fields import Code as Code
from rlkit.fields import Count as Count
from rlkit.fields import File as File
from rlkit.fields import Folder as Folder
from rlkit.fields import Fraction as Fraction
from rlkit.fields import Natural as Natural
from rlkit.fields import NonNegative as NonNegative
from rlkit.fields import Place as Place
from rlkit.fields import Positive as Positive
from rlkit.fields import Schedule as Schedule
from rlkit.fields import Words as Words
from rlkit.scores import Reference as Reference
from rlkit.scores import Sample as Sample
from rlkit.scores import Scores as Scores
from rlkit.scores import Split as Split
from rlkit.scores import Unit as Unit

if TYPE_CHECKING:
    from gymnasium.spaces import Space

    from rlkit.exact import Model

    AnySpace = Space[Any]  # of whatever elements

Metrics = dict[str, Tensor | Callable[[], Tensor]]  # of a loss, per element; functions are called where it is logged
State = dict[str, Any]  # a state_dict: nested plain values and tensors; only its owner knows the keys


@runtime_checkable
class Plays(Protocol):
    """Whoever an environment lets play."""

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        """What the behavior policy knows of the steps it took: log_prob; with a critic value and next_value."""
        ...


@runtime_checkable
class Acts(Plays, Protocol):
    """Plays control problems."""

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """Choose one action per row, drawing from the policy's own generator. [rows, ...] → [rows(, d)]."""
        ...


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


class PolicyFactory(Protocol):
    """The `policy.` keys: a configuration that makes the policies of one kind of environment."""

    def actor(self, env: "Env") -> Stochastic: ...
    def actor_critic(self, env: "Env") -> Stochastic: ...
    def q_network(self, env: "Env", dueling: bool = False) -> ActionValues: ...
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
        Its notes: control has episode_return and episode_length [..., T] where done; text has problem [...].
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


class Algorithm(Protocol):
    """Four rooms: act, credit, remember, learn. `rlkit/loop.py` calls them and owns the optimizer step."""

    saved: ClassVar[tuple[str, ...]] = ("policy", "optimizer", "buffer")  # attributes that a checkpoint holds
    config: object  # of `policies.Optimization` the loop reads lr, schedule, warmup and max_grad_norm
    policy: Policy
    buffer: Buffer
    optimizer: torch.optim.Optimizer
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
