"""A trained policy for use in programs: NumPy in and out for control, texts in and out for text."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.spaces import Discrete, MultiBinary, MultiDiscrete
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from rlkit import spaces
from rlkit.api import Acts, Env, Judges, Plays, Remembers, Writes
from rlkit.errors import UserError, one_line
from rlkit.prompts import cut
from rlkit.python.surroundings import Turns, usual

if TYPE_CHECKING:
    from rlkit.api import AnySpace


Array = NDArray[Any]


@runtime_checkable
class Stops(Protocol):
    """A text environment with strings that end a completion."""

    def stops(self, policy: Plays) -> Sequence[str]:
        """Those texts."""
        ...


class Policy:
    """Acts on observations (`predict`) or completes texts (`complete`); it draws from a generator of its own."""

    def __init__(self, env: Env, module: Plays, turns: Turns | None = None) -> None:
        self.env, self.module = env, module  # the torch module itself, for everything else
        self._turns = turns or Turns()
        self._memory: Tensor | None = None  # recurrent state of the episode that `forget` began
        self._began = False

    def __repr__(self) -> str:
        return f"<the policy of an rlkit run: {'predict' if self.env.kind == 'control' else 'complete'}>"

    def predict(self, observation: Any, greedy: bool = True) -> Any:  # Any: what a space's actions are
        """Choose an action for one observation, or one for each in a batch.

        Arguments:
            observation: one observation of the environment, or a batch with one more dimension in front.
            greedy: the most likely action; False samples from the policy.

        Returns: the action for the environment's `step` (a NumPy integer, or an array clipped to the action space); for
            a batch, an array of actions, which is empty for an empty batch.

        Raises: UserError for a wrong shape, for numbers that are not finite, and for a run on text.

        Example:
            action = run.policy.predict(observation)
        """
        if not isinstance(self.module, Acts) or self.env.kind != "control":
            raise UserError("predict is for control and this run is text: use run.policy.complete([TEXT, ...])")
        space, of_actions = self.env.observation_space, self.env.action_space
        assert space is not None and of_actions is not None, "a control problem has spaces"
        rows, single = seen_rows(space, observation)
        if not len(rows):
            shape, dtype = spaces.action_shape(of_actions)
            return spaces.executed(of_actions, np.zeros((0, *shape), dtype))
        with self._turns, usual(), torch.inference_mode():
            given = torch.from_numpy(np.array(rows, order="C"))  # they may be read-only, or from the last to the first
            chosen = self._act(self.module, given.to(self.env.device), greedy).cpu().numpy()
        actions = spaces.executed(of_actions, chosen)
        if not single:
            return actions
        from rlkit.control.contract import alone  # a run on text loads no control

        return alone(actions)

    def forget(self) -> None:
        """Begin an episode: a policy with memory (policy.memory=gru) then remembers across calls of `predict`.

        Example:
            policy = run.policy  # keep this object: it holds the memory
            observation, _ = env.reset()
            policy.forget()
        """
        self._memory, self._began = None, True

    def _act(self, policy: Acts, observation: Tensor, greedy: bool) -> Tensor:
        if not isinstance(policy, Remembers) or policy.memoryless:
            return policy.act(observation, greedy=greedy)
        rows = len(observation)
        if not self._began or (self._memory is not None and len(self._memory) != rows):
            raise UserError(
                "this policy remembers an episode: keep it, as in policy = run.policy, call policy.forget() after each "
                "env.reset(), and then policy.predict with as many observations until the next reset"
            )
        before = policy.start(rows) if self._memory is None else self._memory
        action, memory = policy.recall(observation, before.clone(), greedy)
        self._memory = memory.clone()  # the policy may fill the same tensor for another
        return action

    def complete(
        self, prompts: Sequence[str], n: int = 1, greedy: bool = False, max_tokens: int | None = None
    ) -> list[list[str]]:
        """Write completions of prompts.

        Arguments:
            prompts: texts that the model gets unchanged, without the template of the environment.
            n: number of completions for each prompt.
            greedy: the most likely token each time; False samples from the model.
            max_tokens: most tokens of a completion; None: as in training.

        Returns: for each prompt its n completions, each cut at the stop strings of training (env.stop); an empty list
            for no prompts.

        Raises: UserError for a run on control, a reward model, and a prompt that is empty, too long or not a text.

        Example:
            run.policy.complete(["2 + 3?\\n"], n=4)
        """
        if isinstance(self.module, Judges):
            raise UserError("this run's policy is a reward model, which judges texts and writes none")
        if not isinstance(self.module, Writes):
            raise UserError("complete is for text and this run is control: use run.policy.predict(OBSERVATION)")
        for name, number in (("n", n), ("max_tokens", 1 if max_tokens is None else max_tokens)):
            if not isinstance(number, int | np.integer) or isinstance(number, bool) or number < 1:
                raise UserError(f"{name}={number!r} is not allowed: give a whole number of at least 1")
        texts = [prompts] if isinstance(prompts, str) else list(prompts) if isinstance(prompts, Iterable) else [prompts]
        for text in texts:
            if not isinstance(text, str):
                raise UserError(f"a prompt is of type {type(text).__name__}: give a text, or a list of texts")
        if not texts:
            return []
        with self._turns, usual(), torch.inference_mode():
            stop = self.env.stops(self.module) if isinstance(self.env, Stops) else ()
            written = self.module.generate(texts, n, max_tokens or self.env.longest or 64, greedy, stop=stop)
        rows = [cut(text, stop) for text in self.module.decode(written)]
        return [rows[i * n : (i + 1) * n] for i in range(len(texts))]


def detached(observation: Any) -> Any:  # Any: nested as the space is
    """The same with NumPy arrays in place of tensors, which may need a gradient or lie on another device."""
    if isinstance(observation, Tensor):
        return observation.detach().cpu().numpy()
    if isinstance(observation, Mapping):
        return {key: detached(inner) for key, inner in observation.items()}
    if not isinstance(observation, list | tuple):
        return observation
    found = [detached(inner) for inner in observation]
    return tuple(found) if isinstance(observation, tuple) else found


def read_mask(space: "AnySpace", observation: Any) -> Any:  # Any: nested as the space is
    """The same with a mask of 0 and 1 in one row: one of an info may be a tuple, and hold any numbers."""
    if not (spaces.masks_actions(space) and isinstance(observation, dict) and spaces.MASK in observation):
        return observation
    from rlkit.control.masks import side_by_side  # a run on text loads no control

    mask = observation[spaces.MASK]
    row = side_by_side(mask) if isinstance(mask, tuple) else array(mask)
    return observation | {spaces.MASK: (row > 0).astype(np.int8) if row.dtype.kind in "biuf" else row}


def array(observation: ArrayLike) -> Array:
    """The observation as an array; refuses lists of different lengths."""
    try:
        return np.asarray(observation)
    except ValueError as error:
        raise UserError(
            f"an observation is not an array ({one_line(error)}): give numbers in lists of the same length"
        ) from None


def seen_rows(space: "AnySpace", observation: Any) -> tuple[Array, bool]:  # Any: nested as the space is
    """A batch of observations as the policy reads them, and whether a single one was given."""
    observation = read_mask(space, detached(observation))
    if not spaces.is_composite(space):
        rows, single = batched(space, array(observation))
        return spaces.observed(space, rows), single
    nested: Any = observation
    alone, counts = [], set()
    for path, part in spaces.leaves(space):
        try:
            inner = spaces.inside(nested, space, path)
        except (KeyError, IndexError, TypeError):
            told = "what the environment returns"
            if spaces.beside_mask(space) is not space:  # it may have come in an info
                told = f"{{'{spaces.REST}': OBSERVATION, '{spaces.MASK}': info['{spaces.MASK}']}}"
            raise UserError(f"an observation has nothing at {'.'.join(path)}: give {told}") from None
        rows, single = batched(part, array(inner))
        alone.append(single)
        counts.add(len(rows))
    if all(alone):
        return spaces.one(space, nested)[None], True
    if any(alone):
        raise UserError("an observation mixes parts of one with parts of several: give one, or a batch in each part")
    if len(counts) > 1:
        numbers = " and ".join(map(str, sorted(counts)))
        raise UserError(f"an observation has parts of {numbers} observations: give as many in each part")
    return spaces.observed(space, nested), False


def batched(space: "AnySpace", observation: Array) -> tuple[Array, bool]:
    """Observations with a batch dimension in front, and whether it was added here."""
    shape = space.shape or ()
    if observation.shape not in (shape, (len(observation) if observation.ndim else 0, *shape)):
        raise UserError(f"an observation of shape {observation.shape} does not fit: give {shape}, or a batch of them")
    if isinstance(space, Discrete):
        low, high = int(space.start), int(space.start + space.n) - 1
        if observation.dtype.kind not in "iu" or not ((observation >= low) & (observation <= high)).all():
            raise UserError(f"an observation is not one of the environment's states: give {low} to {high}")
    elif isinstance(space, MultiDiscrete | MultiBinary):
        first, count = spaces.range_of(space)
        x = observation.reshape(len(observation) if observation.shape != shape else 1, len(count))
        if observation.dtype.kind not in "iub" or not ((x >= first) & (x < first + count)).all():
            raise UserError(f"an observation is not in the environment's {space}: give what the environment returned")
    elif observation.dtype.kind not in "fiub":
        raise UserError(f"an observation of {observation.dtype} does not fit: give numbers")
    elif not (np.abs(observation) <= np.finfo(np.float32).max).all():  # also False for NaN
        raise UserError("an observation holds a number that is not finite: give what the environment returned")
    elif spaces.dtype(space) == np.uint8 and not whole(observation, 1 if space.dtype == np.bool_ else 255):
        raise UserError(f"an observation is not in the environment's {space}: give what the environment returned")
    single = observation.shape == shape
    return (observation[None] if single else observation), single


def whole(x: Array, most: int) -> bool:
    """Whether all are whole numbers from 0 to `most`: an image in fractions of 1 would be read as black."""
    return bool(((x >= 0) & (x <= most) & (x % 1 == 0)).all())
