"""Control problems over Gymnasium vector environments: one rollout, evaluation and exact resume for all of them."""

import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete, Space
from gymnasium.vector import SyncVectorEnv, VectorEnv
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Reference, Scores, Split, UserError
from rlkit.copies import Array, Copies
from rlkit.seeding import derive

EPISODES = {"train": 20, "validation": 20, "test": 100}  # how many `evaluate` plays unless told
NOT_THERE = "its episodes in progress cannot be repeated exactly, so what follows is not quite what was cut off"
LONGEST_EPISODE = 100_000  # steps after which an episode that should end by itself is called endless


class _Table:
    """A deterministic policy that is nothing but a table: `actions[s]`."""

    def __init__(self, actions: Tensor) -> None:
        self.actions = actions

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        return self.actions[observation]


class ControlEnv:
    """`rows` copies of a control problem; `vector(n)` makes a vector environment of n copies.

    With `steps=k` play continues where it stopped, through the ends of episodes; `steps=None` or `repeats > 1` plays
    fresh episodes, where attempts from one start share the reset seed. The reset seed of an episode is a pure function
    of (seed, row, episode), so resuming needs only the seeds and the actions since.
    """

    kind: Literal["control", "text"] = "control"
    metric: Literal["return", "accuracy"] = "return"

    def __init__(
        self,
        vector: Callable[[int], VectorEnv],
        rows: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
        source: str = "",
        evaluation_copies: int = 128,
        reference: Reference | None = None,
        drawn: Callable[[], VectorEnv] | None = None,
    ) -> None:
        self.vector, self.rows, self.seed, self.device = vector, rows, seed, torch.device(device)
        self.source, self.evaluation_copies = source, evaluation_copies  # where it comes from; episodes side by side
        self._reference = reference
        self.drawn = drawn or (lambda: vector(1))  # makes one copy whose `render()` is a picture, where there is one
        self.finished: list[tuple[float, int]] = []  # (return, length) of the episodes that ended in the last rollout
        self._copies: dict[tuple[str, int], Copies] = {}
        self._starts = 0  # rollouts of fresh episodes so far
        self._episodes = [0] * rows
        self._history: deque[Array] = deque()  # actions [T, rows], reaching back to the oldest reset in progress
        self._ages = np.zeros(rows, dtype=np.int64)  # actions of each row since its reset
        self._length, self._return = np.zeros(rows, dtype=np.int64), np.zeros(rows)  # of the episode in progress
        stream = self._stream = self._make("stream", rows, self._next_seed)
        self.observation_space, self.action_space = _supported(stream.observation_space, stream.action_space)
        self._started = False
        self.longest = _step_limit(stream.vector)  # steps of one attempt, where they are limited

    @property
    def reference(self) -> Reference | None:
        """What counts as 0 and as 1 where returns of several environments are compared."""
        return self._reference

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """Play at most `steps` steps; returns [rows] or [rows, repeats] with time as dimension -1 of its entries.

        Keys: observation, action, reward, terminated, done, mask, next_observation [.., T (, d)], score [..], and what
        `policy.record` adds. An attempt that is cut at `steps` is done, not terminated.
        """
        fresh = steps is None or repeats > 1
        if fresh:
            n = self.rows * repeats
            copies = self._make("fresh", n)
            copies.reset([self._seed("start", i // repeats, self._starts) for i in range(n)])
            self._starts += 1
        else:
            copies = self._stream
            if not self._started:
                copies.reset([self._seed("reset", row, 0) for row in range(self.rows)])
                self._started = True
        tape = self._play(copies, policy, steps, fresh)
        _finite(tape, self.source)
        self._count(tape, fresh)
        lead = (self.rows, repeats) if repeats > 1 else (self.rows,)
        length = len(tape["reward"])
        data = {}
        for key, array in tape.items():
            rows_first = torch.from_numpy(np.ascontiguousarray(array.swapaxes(0, 1)))
            data[key] = rows_first.reshape(*lead, length, *array.shape[2:]).to(self.device)
        data["score"] = data["reward"].sum(-1)
        rollout = TensorDict(data, batch_size=lead, device=self.device)
        with torch.no_grad():
            rollout.update(policy.record(rollout))
        return rollout

    def evaluate(
        self, policy: Any, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Play whole episodes on copies of their own, from reset seeds that depend on (seed, split, episode) only.

        `policy` may also be a table of actions [S]. Draws come from a stream of their own: the policy's generators
        are put back as they were.
        """
        policy = _Table(policy) if isinstance(policy, Tensor) else policy
        episodes = episodes or EPISODES[split]
        copies = self._make("evaluate", min(episodes, self.evaluation_copies))
        seeds = [self.episode_seed(split, i) for i in range(-(-episodes // copies.n) * copies.n)]
        generators = [x for x in vars(policy).values() if isinstance(x, torch.Generator)]
        states = [generator.get_state() for generator in generators]
        for generator in generators:
            generator.manual_seed(self._seed("evaluate", split, "action"))
        parts = [self._score(copies, policy, seeds[i : i + copies.n], greedy) for i in range(0, len(seeds), copies.n)]
        for generator, state in zip(generators, states, strict=True):
            generator.set_state(state)
        score, length = (torch.from_numpy(np.concatenate(part)[:episodes]) for part in zip(*parts, strict=True))
        return Scores(score=score, length=length)

    def episode_seed(self, split: Split, episode: int) -> int:
        """The reset seed of an episode of `evaluate`."""
        return self._seed("evaluate", split, episode)

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and tensors: counters, and for the episodes in progress the seeds and the actions since."""
        state: dict[str, Any] = {"starts": self._starts, "episodes": list(self._episodes), "started": self._started}
        state |= {"ages": self._ages.tolist(), "length": self._length.tolist(), "return": self._return.tolist()}
        state["seeds"] = list(self._stream.seeds)
        if self._started:
            state["observation"] = torch.from_numpy(self._stream.observation.copy())  # what they lead to, as a proof
        if self._history:
            actions = np.concatenate(self._history)
            state["actions"] = torch.from_numpy(actions[len(actions) - self._ages.max() :].copy())
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Replay what `state_dict` noted: the following rollout is bitwise the one that would have followed there.

        That holds where a reset makes an environment forget what was before; where it does not, one line says so.
        """
        if len(state["episodes"]) != self.rows:
            raise UserError(
                f"the saved state has {len(state['episodes'])} rows, this environment {self.rows}: "
                f"set env.rows={len(state['episodes'])}"
            )
        self._starts, self._episodes, self._started = state["starts"], list(state["episodes"]), state["started"]
        self._ages, self._length = np.array(state["ages"]), np.array(state["length"])
        self._return, self._history = np.array(state["return"], dtype=np.float64), deque()
        if self._started:
            actions = state["actions"].numpy() if "actions" in state else np.empty((0, self.rows))
            self._stream.replay(actions, state["seeds"], self._ages)
            if len(actions):
                self._history.append(actions)
            if self._stream.observation.tobytes() != state["observation"].numpy().tobytes():
                print(f"{self.source}: {NOT_THERE}", file=sys.stderr)

    def close(self) -> None:
        """Close every vector environment that was made."""
        for copies in self._copies.values():
            copies.vector.close()

    def _make(self, purpose: str, n: int, next_seed: Callable[[int], int] | None = None) -> Copies:
        if (purpose, n) not in self._copies:
            self._copies[purpose, n] = Copies(self.vector(n), next_seed)
        return self._copies[purpose, n]

    def _seed(self, *names: str | int) -> int:
        return derive(self.seed, *names) % 2**31

    def _next_seed(self, row: int) -> int:
        self._episodes[row] += 1
        return self._seed("reset", row, self._episodes[row])

    def _act(self, policy: Any, observation: Array, greedy: bool) -> Array:
        return policy.act(torch.from_numpy(observation).to(self.device), greedy=greedy).cpu().numpy()

    def _play(self, copies: Copies, policy: Any, steps: int | None, fresh: bool) -> dict[str, Array]:
        """The hot path: arrays [T, n, ...], filled in place; what is not masked contributes nothing."""
        limit = steps or LONGEST_EPISODE
        tape = self._tape(steps or 512, copies)
        alive, t = np.ones(copies.n, dtype=bool), 0
        with torch.inference_mode():
            while t < limit and alive.any():
                if t == len(tape["reward"]):
                    tape = {key: np.concatenate([array, np.zeros_like(array)]) for key, array in tape.items()}
                tape["observation"][t] = copies.observation
                tape["mask"][t] = alive & copies.acting
                tape["action"][t] = action = self._act(policy, copies.observation, greedy=False)
                successor, tape["reward"][t], tape["terminated"][t], done = copies.step(action)
                tape["next_observation"][t], tape["done"][t] = successor, done
                if fresh:
                    alive &= ~done
                t += 1
        if fresh and steps is None and alive.any():
            raise endless(copies)
        tape = {key: array[:t] for key, array in tape.items()}
        tape["reward"] *= tape["mask"]
        tape["terminated"] &= tape["mask"]
        tape["done"] &= tape["mask"]
        if fresh:
            tape["done"][-1] |= alive
        return tape

    def _tape(self, length: int, copies: Copies) -> dict[str, Array]:
        observation = np.zeros((length, *copies.observation.shape), dtype=copies.observation.dtype)
        continuous = isinstance(self.action_space, Box)
        action_shape = (length, copies.n, *([int(np.prod(self.action_space.shape))] if continuous else []))  # type: ignore[arg-type]
        tape = {"observation": observation, "next_observation": np.zeros_like(observation)}
        tape["action"] = np.zeros(action_shape, dtype=np.float32 if continuous else np.int64)
        tape["reward"] = np.zeros((length, copies.n), dtype=np.float32)
        return tape | {key: np.zeros((length, copies.n), dtype=bool) for key in ("terminated", "done", "mask")}

    def _count(self, tape: dict[str, Array], fresh: bool) -> None:
        """Note the episodes that ended; of a stream also what is still in progress and how to come back to it."""
        done, steps = tape["done"], len(tape["done"])
        if fresh:
            returns, lengths = tape["reward"].sum(0, dtype=np.float64), tape["mask"].sum(0)
            self.finished = list(zip(returns.tolist(), lengths.tolist(), strict=True))
            return
        self.finished = []
        returns = self._return + tape["reward"].cumsum(0, dtype=np.float64)
        lengths = self._length + tape["mask"].cumsum(0)
        base_return, base_length = np.zeros(self.rows), np.zeros(self.rows, dtype=np.int64)
        for t, row in zip(*np.nonzero(done), strict=True):
            episode = returns[t, row] - base_return[row], lengths[t, row] - base_length[row]
            self.finished.append((float(episode[0]), int(episode[1])))
            base_return[row], base_length[row] = returns[t, row], lengths[t, row]
        self._return, self._length = returns[-1] - base_return, lengths[-1] - base_length
        # A vector env that resets itself can only be replayed from its very beginning.
        self._ages = self._ages + steps if self._stream.resets_alone else self._length
        self._history.append(tape["action"].copy())
        kept = sum(map(len, self._history))
        while self._history and kept - len(self._history[0]) >= self._ages.max():
            kept -= len(self._history.popleft())

    def _score(self, copies: Copies, policy: Any, seeds: Sequence[int], greedy: bool) -> tuple[Array, Array]:
        copies.reset(seeds)
        alive, score, length = np.ones(copies.n, dtype=bool), np.zeros(copies.n), np.zeros(copies.n, dtype=np.int64)
        with torch.inference_mode():
            while alive.any():
                _, reward, _, done = copies.step(self._act(policy, copies.observation, greedy))
                score += np.where(alive, reward, 0.0)
                length += alive
                alive &= ~done
                if length.max() >= LONGEST_EPISODE:
                    raise endless(copies)
        _finite({"reward": score[None]}, f"evaluation, {self.source}")
        return score, length


def _finite(tape: dict[str, Array], source: str) -> None:
    """Stop at the first number that is none, and say where it came from; tape: [T, n, ...]."""
    for key, array in sorted(tape.items()):  # the action first: a policy that diverged is not the environment's fault
        if array.dtype.kind == "f" and not np.isfinite(array).all():
            step, row, *component = np.argwhere(~np.isfinite(array))[0].tolist()
            where = f"component {component[0]} of " if component else ""
            advice = "try a smaller algo.lr" if key == "action" else "correct the environment, or end the episode there"
            raise FloatingPointError(
                f"not finite: {where}{key} at step {step} of row {row} of the rollout ({source}); "
                f"checkpoints written before are kept; {advice}"
            )


def _supported(observation: Space, action: Space) -> tuple[Space, Space]:
    for name, space in (("observation", observation), ("action", action)):
        if not isinstance(space, (Box, Discrete)):
            raise UserError(f"{name} space {space} is not supported; allowed are Box and Discrete: use another env")
    return observation, action


def _step_limit(vector: VectorEnv) -> int | None:
    """The step limit that the vector environment or the specification of its copies tells."""
    limit = getattr(vector, "step_limit", None)
    spec = vector.envs[0].spec if isinstance(vector, SyncVectorEnv) else vector.spec
    return limit or getattr(spec, "max_episode_steps", None)


def endless(copies: Copies) -> UserError:
    return UserError(f"{copies.vector}: an episode did not end in {LONGEST_EPISODE} steps; give it a step limit")
