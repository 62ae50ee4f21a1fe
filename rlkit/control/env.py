"""Control problems over Gymnasium vector environments: one rollout, evaluation and exact resume for all of them."""

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import ranks, scores, spaces
from rlkit.api import Acts, Plays, State
from rlkit.buffers import batch_of, recorded
from rlkit.control import contract, ends, parts, proofs, requirements
from rlkit.control.lesson import MEASURED, Lesson
from rlkit.control.plain import Played
from rlkit.control.recall import Recall, at_play
from rlkit.control.scoring import whole_episodes
from rlkit.control.vector import LIFE, Array, Copies, Luck, Vector, empty_tape, played, rows_first
from rlkit.policies.requirements import refuse_groups
from rlkit.scores import Reference, Scores, Split
from rlkit.seeding import derive, generators
from rlkit.terminal import warn

if TYPE_CHECKING:
    from rlkit.api import AnySpace

LONGEST_EPISODE = 10_000  # steps after which an episode is called endless, where no step limit is known


class ControlEnv(Played):
    """`rows` copies of a control problem; `vector(n)` makes a vector environment of n copies.

    With `steps=k` play continues where it stopped, through the ends of episodes; `steps=None` or `repeats > 1` plays
    fresh episodes, where attempts from one start share the reset seed: the first state, and all the luck of the episode
    unless `luck` is "own", which gives each attempt a stream of its own after the reset. Seeds are a pure function of
    (seed, row, episode), so resuming needs only the seeds and the actions since.
    """

    def __init__(
        self,
        vector: Callable[[int], Vector],
        rows: int,
        seed: int = 0,
        device: str | torch.device = "cpu",
        source: str = "",
        evaluation_copies: int = 128,
        reference: Reference | None = None,
        drawn: Callable[[], Vector] | None = None,
        luck: Luck = "shared",
        limiting: str = "wrap its copies in gymnasium.wrappers.TimeLimit",
        lesson: Lesson = MEASURED,
        agents: int = 1,
        trained: Callable[[int], Vector] | None = None,
    ) -> None:
        self.vector, self.trained = vector, trained or vector  # trained: makes what training plays, if others
        self.rows, self.seed, self.device = rows, seed, torch.device(device)
        self.luck, self.limiting, self.lesson = luck, limiting, lesson  # limiting: how an episode gets a step limit
        self.source, self.evaluation_copies = source, evaluation_copies  # where it comes from; episodes side by side
        self._reference = reference
        self.drawn = drawn or (lambda: vector(agents))  # makes one copy whose `render()` is a picture, if it can
        self.agents = agents  # of a copy: so many rows, side by side, are one episode
        self._copies: dict[tuple[str, int], Copies] = {}
        self._starts, self._started, self._played = 0, False, 0  # fresh rollouts; whether the stream was reset; steps
        self._past, self._first = proofs.Past(), ""  # and a fingerprint of the states in which fresh rollouts began
        self._memory: Tensor | None = None  # what a policy with memory knows of the episodes in progress [rows, size]
        self._mine = parts.part_of(rows, agents)  # the rows that are played here, the others by other ranks
        own = self._own = self._mine.stop - self._mine.start
        self._episodes = [0] * own
        self._history: deque[Array] = deque()  # actions [T, rows], reaching back to the oldest reset in progress
        self._length, self._return = np.zeros(own, dtype=np.int64), np.zeros(own)  # of the episode in progress
        stream = self._stream = self._make("stream", own, self._next_seed)
        spaces.check_spaces(stream.observation_space, stream.action_space)
        self.observation_space: AnySpace | None = stream.observation_space
        self.action_space: AnySpace | None = stream.action_space
        self.longest: int | None = requirements.step_limit(stream.vector)  # steps of one attempt, where limited
        if luck == "own":
            self._make("luck", 1).check_luck()

    @property
    def reference(self) -> Reference | None:
        """What counts as 0 and as 1 where returns of several environments are compared."""
        return self._reference

    @property
    def patience(self) -> int:
        """Steps after which an episode is called endless."""
        return max(LONGEST_EPISODE, self.longest or 0)

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """Play at most `steps` steps; returns [rows] or [rows, repeats] with time as dimension -1 of its entries.

        Keys: observation, action, reward, terminated, done, mask, next_observation [.., T (, d)], score [..], and what
        `policy.record` adds. An attempt that is cut at `steps` is done, not terminated. Where done is True,
        episode_return and episode_length [.., T] describe the episode that ended there, from its reset on.
        """
        rollout = parts.of_all(policy, self.rows, lambda _: self._rollout(policy, steps, repeats))
        if steps is None or repeats > 1:
            parts.adopt_draws(policy, self._played)
        with torch.no_grad():
            noted = recorded(policy, rollout)
        return rollout.update(noted) if len(noted.keys()) else rollout

    def _rollout(self, policy: Plays, steps: int | None, repeats: int) -> TensorDict:
        """What the rows that are played here did."""
        fresh = steps is None or repeats > 1
        if fresh:
            copies = self._make("fresh", self._own * repeats)
            self._begin(copies, repeats)
            self._starts += 1
        else:
            copies = self._stream
            if not self._started:
                copies.reset([self._seed("reset", self._number(row), 0) for row in range(self._own)])
                self._started = True
        player = at_play(requirements.acting(policy), copies, None if fresh else self._memory)
        tape = self._play(copies, player, steps, fresh)
        requirements.check_tape(tape, copies.observation_space, self.source, self._mine.start * repeats)
        self._note(tape, fresh)
        lead = (self._own, repeats) if repeats > 1 else (self._own,)
        data = rows_first(tape, lead, self.device)
        if isinstance(player, Recall):
            data["memory"] = player.first.view(*lead, 1, -1)  # before the first step
            self._memory = self._memory if fresh else player.memory.clone()
        data["score"] = data["reward"].sum(-1)
        self.lesson.teach(data)
        return batch_of(data, *lead, device=data["reward"].device)

    def evaluate(
        self, policy: Plays | Tensor, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Play whole episodes on copies of their own, from reset seeds that depend on (seed, split, episode) only.

        Where agents share an episode, its score is the mean over them, and its length that of the longest.
        `policy` may also be a table of actions [S]. Draws come from a stream of their own: the policy's generators
        are put back as they were.
        """
        acting = requirements.ActionTable(policy) if isinstance(policy, Tensor) else requirements.acting(policy)
        many = range(episodes or self.splits[split])
        return scores.of_all(len(many), lambda mine: self._measured(acting, many[mine], split, greedy))

    def _measured(self, policy: Acts, which: range, split: Split, greedy: bool) -> Scores:
        """The scores of some episodes of a split."""
        episodes = len(which)
        games = min(episodes, max(1, self.evaluation_copies // self.agents))
        copies = self._make("evaluate", games * self.agents)
        count = -(-episodes // games) * copies.n
        seeds = [self.episode_seed(split, which.start + i // self.agents) for i in range(count)]
        drawing = generators(policy).values()
        states = [generator.get_state() for generator in drawing]
        for generator in drawing:
            generator.manual_seed(self._seed("evaluate", split, "action"))
        act = partial(self._act, greedy=greedy)
        endless = partial(requirements.endless, self.source, self.patience, self.limiting)
        at_once = (seeds[first : first + copies.n] for first in range(0, count, copies.n))
        found = [whole_episodes(copies, policy, part, act, self.patience, endless, self.source) for part in at_once]
        for generator, state in zip(drawing, states, strict=True):
            generator.set_state(state)
        score, length, truncated = (
            torch.from_numpy(np.concatenate(part).reshape(-1, self.agents)[:episodes])
            for part in zip(*found, strict=True)
        )
        return Scores(score.mean(1), length.amax(1), truncated=truncated.any(1))

    def episode_seed(self, split: Split, episode: int) -> int:
        """The reset seed of an episode of `evaluate`."""
        return self._seed("evaluate", split, episode)

    def state_dict(self) -> State:
        """Plain numbers and tensors: counters, and for the episodes in progress the seeds and the actions since."""
        found = ranks.together(self._state)
        return found[0] if len(found) == 1 else {"ranks": found}

    def _state(self) -> State:
        state: State = {"starts": self._starts, "episodes": list(self._episodes), "started": self._started}
        state |= {"ages": self._stream.ages.tolist(), "length": self._length.tolist(), "return": self._return.tolist()}
        state["seeds"] = list(self._stream.seeds)
        if self._started:
            state |= proofs.proof(self._stream) | self._past.state_dict()  # what they lead to
        state |= {"first": self._first} if self._first else {}  # as a proof, too
        state |= {} if self._memory is None else {"memory": self._memory}
        if self._history:
            actions = np.concatenate(self._history)
            state["actions"] = torch.from_numpy(actions[len(actions) - self._stream.ages.max() :].copy())
        return state

    def load_state_dict(self, state: State) -> None:
        """Replay what `state_dict` noted: the following rollout is bitwise the one that would have followed there.

        That holds where a reset makes an environment forget what was before; where it does not, one line says so.
        """
        state = parts.state_of(state)
        requirements.check_rows(state, self._own, self.agents)
        self._starts, self._episodes, self._started = state["starts"], list(state["episodes"]), state["started"]
        self._length, self._history = np.array(state["length"], dtype=np.int64), deque()
        self._return = np.array(state["return"], dtype=np.float64)
        self._memory = state["memory"].to(self.device) if "memory" in state else None
        if self._started:
            actions = state["actions"].numpy() if "actions" in state else np.empty((0, self._own))
            repeats = self._past.load_state_dict(state, lambda: Copies(self.trained(self._own)))
            self._stream.replay(actions, state["seeds"], np.array(state["ages"]))
            if len(actions):
                self._history.append(actions)
            proofs.compare(self._stream, state, self.source, repeats)
        if "first" in state:
            self._reset(self._make("fresh", self._own), 1, self._starts - 1)
            if self._first != state["first"]:
                warn(f"{self.source}: {proofs.NOT_AGAIN}")

    def close(self) -> None:
        """Close every vector environment that was made."""
        for copies in self._copies.values():
            copies.vector.close()

    def _make(self, purpose: str, n: int, next_seed: Callable[[int], int] | None = None) -> Copies:
        if (purpose, n) not in self._copies:
            make, lives = (self.trained, self.lesson.lives) if purpose in ("stream", "fresh") else (self.vector, False)
            vector = contract.checked(make(n), self.source or "a copy", n, [x.vector for x in self._copies.values()])
            self._copies[purpose, n] = Copies(vector, next_seed, lives)
        return self._copies[purpose, n]

    def _seed(self, *names: str | int) -> int:
        return derive(self.seed, *names) % 2**31

    def _next_seed(self, row: int) -> int:
        self._episodes[row] += 1
        return self._seed("reset", self._number(row), self._episodes[row])

    def _number(self, row: int) -> int:
        """Of the copy that a row is of, among those of all ranks."""
        return int(self._mine.start + row) // self.agents

    def _seed_before(self, row: int) -> int:
        """Of the row's last whole episode: its copy plays another by now, unless other agents are still at it."""
        return self._seed("reset", self._number(row), self._episodes[row] - bool(self._stream.acting[row]))

    def _begin(self, copies: Copies, repeats: int) -> None:
        """Start fresh episodes, `repeats` from each reset seed."""
        refuse_groups(self, repeats)
        self._reset(copies, repeats, self._starts)
        requirements.check_groups(copies.observation, repeats, self.source or str(copies.vector))
        if self.luck == "own" and repeats > 1:
            numbers = range(self._mine.start * repeats, self._mine.stop * repeats)
            copies.reseed([self._seed("luck", *divmod(i, repeats), self._starts) for i in numbers])

    def _reset(self, copies: Copies, repeats: int, start: int) -> None:
        copies.reset([self._seed("start", self._number(i // repeats), start) for i in range(copies.n)])
        self._first = proofs.fingerprint(copies.observation[::repeats])

    def _act(self, policy: Acts, observation: Array, greedy: bool) -> Array:
        try:
            with torch.inference_mode():
                return requirements.chosen(policy, observation, self.device, greedy, self.action_space)
        except Exception:
            requirements.check_observed(self.observation_space, observation, self.source)  # whose fault is it?
            raise

    def _play(self, copies: Copies, policy: Acts, steps: int | None, fresh: bool) -> dict[str, Array]:
        """The hot path: arrays [T, n, ...], filled in place; what is not masked contributes nothing."""
        limit = steps or self.patience
        tape = empty_tape(steps or 512, copies)
        alive, t = copies.acting | (not fresh), 0
        act = requirements.prepared(policy, steps, copies.n) or partial(self._act, policy, greedy=False)
        while t < limit and (not fresh or alive.any()):
            if t == len(tape["reward"]):
                tape = {key: np.concatenate([array, np.zeros_like(array)]) for key, array in tape.items()}
            tape["observation"][t] = copies.observation
            tape["mask"][t] = alive & copies.acting
            tape["action"][t] = action = act(copies.observation).astype(copies.action_type, copy=False)
            successor, tape["reward"][t], tape["terminated"][t], done = copies.step(action)
            tape["next_observation"][t], tape["done"][t] = successor, done
            if copies.lives:
                tape[LIFE][t] = copies.lost
            if fresh:
                alive &= ~done
            t += 1
        self._played = t
        if fresh and steps is None and alive.any():
            raise requirements.endless(self.source, limit, self.limiting)
        return played(tape, t, alive if fresh else None)

    def _note(self, tape: dict[str, Array], fresh: bool) -> None:
        """Note the episodes that ended; of a stream also what is still in progress and how to come back to it."""
        done = tape["done"]
        if fresh:
            tape["episode_return"] = np.where(done, tape["reward"].sum(0, dtype=np.float64), 0.0).astype(np.float32)
            tape["episode_length"] = np.where(done, tape["mask"].sum(0), 0)
            return
        returned, self._return = ends.ended(done, self._return + tape["reward"].cumsum(0, dtype=np.float64))
        tape["episode_return"] = returned.astype(np.float32)
        tape["episode_length"], self._length = ends.ended(done, self._length + tape["mask"].cumsum(0))
        self._history.append(tape["action"].copy())
        if not done.any():
            return
        self._past.note(done, tape["episode_length"], self._stream, self._history, self._seed_before)
        kept = sum(map(len, self._history))
        while self._history and kept - len(self._history[0]) >= self._stream.ages.max():
            kept -= len(self._history.popleft())
