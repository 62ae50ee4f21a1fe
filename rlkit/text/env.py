"""Text environments: problems whose prompts a language model completes and a reward function scores."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Literal

import torch
from tensordict import TensorDict

from rlkit import buffers
from rlkit.api import Judges, Plays, State, Writes
from rlkit.buffers import flatten_groups
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.forecast import Predicts, Work
from rlkit.scores import Reference, Sample, Scores, Split, Unit, of_all
from rlkit.seeding import generator
from rlkit.text import splits
from rlkit.text.ahead import Begun, Next, begin_ahead, writes_ahead
from rlkit.text.asking import PROMPT, Asking
from rlkit.text.demonstrating import Demonstrations
from rlkit.text.grader import correct
from rlkit.text.measuring import COMPARED, Measuring
from rlkit.text.mixture import Mixture
from rlkit.text.placing import place, rewards_of
from rlkit.text.plain import InWords
from rlkit.text.problems import Problem
from rlkit.text.rewards import Reward
from rlkit.text.scoring import Rewards, Scored, columns_of
from rlkit.text.shuffle import Shuffle
from rlkit.text.turns import OneTurn, note, notes, writing


class TextEnv(InWords):
    """An episode is one completion: the prompt is the start, tokens are actions, the score is the reward at its end."""

    metric: Literal["return", "accuracy"]
    reference: Reference | None = None  # the untrained model and its ceiling, once measured

    def __init__(
        self,
        problems: Mapping[str, Sequence[Problem]],
        rows: int,
        seed: int,
        device: str | torch.device = "cpu",
        max_tokens: int = 64,
        rewards: Sequence[Reward] = (correct,),
        weights: Sequence[float] = (),
        prompt: str | Asking = PROMPT,
        source: str = "",
        demonstrations: Callable[[], Sequence[Problem]] | None = None,
        direct: float = 0.0,
        direct_from: float = 0.6,
        ceiling: Sequence[str] = (),
        measuring: Measuring | None = None,
        mixture: Mixture | None = None,
        tool: OneTurn | None = None,
    ) -> None:
        if not problems["train"]:
            raise UserError(
                f"{source or 'the train split'}: no problem is left to train on; hold out fewer, or give more"
            )
        self.problems, self.rewards = problems, Rewards(rewards, weights)
        self.asking = prompt if isinstance(prompt, Asking) else Asking(prompt)
        self.rows, self.seed, self.device = rows, seed, torch.device(device)
        self.max_tokens, self.source = max_tokens, source
        self.longest: int | None = max_tokens  # most steps of an attempt
        self.measuring = measuring or Measuring()
        self.metric = self.measuring.metric
        self.turns = tool or OneTurn()  # the tool that the policy may call
        self._forbidden = tuple(ceiling)  # first tokens that are forbidden when the ceiling is measured
        self.splits: Mapping[str, int] = {split: len(found) for split, found in problems.items()}
        self.mixture = mixture  # draws problems by task; it replaces the shuffle below, which shows all in each epoch
        self._prompts = Shuffle(len(problems["train"]), seed, "prompts")
        self.scoring: float = 0.0  # seconds that rewards took so far
        self._longest: dict[str, int] = {}  # split → tokens of its longest prompt, once checked
        self._sampled, self._next = 0, Next()  # number of sampled evaluations, each with new draws; the pending rollout
        pool = demonstrations or (lambda: self.problems["train"])
        self._demonstrations = Demonstrations(pool, seed, direct, direct_from, own=demonstrations is None)

    def settled(self, policy: Plays) -> dict[str, object]:
        """The keys that depend on the policy, with their values for this one."""
        return self.asking.settled(policy)

    def stops(self, policy: Plays) -> Sequence[str]:
        """The strings that end an answer."""
        return self.asking.stop

    def manner(self, policy: Plays) -> str:
        """How the policy is prompted, for the first screen; empty where there is no choice."""
        return self.asking.manner(policy)

    @property
    def packages(self) -> Sequence[str]:
        """Packages from outside that make or score the problems."""
        return self.measuring.packages

    @property
    def penalties(self) -> list[str]:
        """The names of rewards with a negative weight: lower values are better."""
        both = zip(self.rewards.names, self.rewards.weights, strict=True)
        return [name for name, weight in both if weight < 0]

    def check(self, policy: Plays) -> None:
        """Refuse prompts beyond the context of the policy or of a reward model, and rewards that these rows do not fit.

        Moves reward models to the device. The score of a reward model is an accuracy: how often it ranks a pair right.
        """
        if isinstance(policy, Judges):
            self.metric = "accuracy"
        self.asking.check(policy)
        self.turns.check(policy, self.asking.stop)
        self._next.on = writes_ahead(policy)
        asked = {split: self.asking.prompts(problems, policy) for split, problems in self.problems.items()}
        prompts = [prompt for split in asked.values() for prompt in split]
        writing(policy).check(prompts, self.max_tokens)
        if isinstance(policy, Predicts):
            self._longest = {split: policy.longest(found) for split, found in asked.items() if found}
        columns = dict.fromkeys(key for found in self.problems.values() for each in found for key in each.given())
        for functions in (self.rewards, self.measuring):
            functions.check_columns(columns)
            functions.prepare(prompts, self.max_tokens, self.device, writing(policy).tokenizer)

    def learned(self, group: int) -> Work:
        """The work of learning in one iteration; a demonstration counts as the longest completion."""
        whole = self.turns.longest(self.max_tokens)
        return Work(self.rows, group, self._longest.get("train", 0), whole, replies=whole > self.max_tokens)

    def written(self, group: int, measured: Mapping[Split, int]) -> list[Work]:
        """The work of writing in one iteration, and in measurements of so many problems."""
        learned = self.learned(group)
        solved = [(n, self._longest.get(key, 0)) for key, n in measured.items() if n]
        return [learned, *(replace(learned, prompts=n, group=1, prompt=longest) for n, longest in solved)]

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """`repeats` completions of at most `steps` tokens for each of the next `rows` prompts, scored by the rewards.

        Returns [rows, T], or [rows, repeats, T]; reward, terminated and done are at the last token of each completion.
        `problem` [..] is the index of each row's problem in the train split.
        """
        limit = self.max_tokens if steps is None else min(steps, self.max_tokens)
        begin = partial(self._begin, policy, repeats, limit)
        begun, version = self._next.take(policy, (repeats, limit), begin)
        batch = buffers.of_all(self.rows, lambda mine: self._attempts(policy, begun, mine, repeats, limit))
        if self.mixture is not None:
            kinds = [self.problems["train"][index].kind for index in begun.indices for _ in range(repeats)]
            note(batch, **self.mixture.learn(kinds, batch["score"].flatten().tolist()))
        batch.update(buffers.recorded(policy, batch))
        self._next.follow(batch, version, (repeats, limit), begin, self._drawn)
        return batch

    def _attempts(self, policy: Plays, begun: Begun, mine: slice, repeats: int, limit: int) -> TensorDict:
        """The result of `rollout` for the problems in `mine`."""
        writer, indices, stop = writing(policy), begun.indices[mine], self.asking.stop
        problems = [self.problems["train"][index] for index in indices]
        prompts = self.asking.prompts(problems, policy)
        batch, completions = begun.write(self.turns, writer, prompts, stop, repeats, limit)
        repeated = [i for i in range(len(problems)) for _ in range(repeats)]
        found = self.score([problems[i] for i in repeated], [prompts[i] for i in repeated], completions)
        batch, device = place(batch, found, writer.tokenizer.decode), batch["mask"].device
        self.judge(batch, [prompts[i] for i in repeated], completions)
        batch["problem"] = torch.tensor(indices, device=device).unsqueeze(1).expand(batch.batch_size)
        if repeats == 1:
            batch = batch.squeeze(1)
        return batch

    def _begin(self, policy: Plays, repeats: int, limit: int) -> Begun:
        """The next problems; the completions are begun, too, if the policy writes ahead."""
        indices = (self.mixture or self._prompts).take(self.rows)
        ask = partial(self.asking.prompts, [self.problems["train"][index] for index in indices], policy)
        return begin_ahead(policy, indices, ask, repeats, limit, self.asking.stop)

    def score(self, problems: Sequence[Problem], prompts: Sequence[str], completions: Sequence[str]) -> Scored:
        """The rewards of one completion of each problem; their time is added to `scoring`."""
        began = time.perf_counter()
        found = self.rewards(prompts, completions, columns_of(problems))
        self.scoring += time.perf_counter() - began
        return found

    def judge(self, batch: TensorDict, prompts: Sequence[str], completions: Sequence[str]) -> None:
        """Let the judge compare the attempts, if there is one; its time is added to `scoring`."""
        if self.measuring.judge is not None:
            began = time.perf_counter()
            self.measuring.judge.compare(batch, prompts, completions)
            self.scoring += time.perf_counter() - began

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        """The first rows of a rollout as texts; rows of demonstrations are skipped."""
        if "problem" not in rollout.keys():
            return []
        rows = flatten_groups(rollout)[:limit]
        problems = [self.problems["train"][index] for index in rows["problem"].tolist()]
        completions = self.turns.read(writing(policy), rows, self.asking.stop)
        prompts = self.asking.prompts(problems, policy)
        return self.measuring.samples(problems, prompts, completions, rows["score"].tolist(), rewards_of(rows))

    def evaluate(
        self, policy: Plays, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Scores of the first `episodes` problems of a split (None: all), by `measuring`.

        For a reward model: whether it scores the better of two attempts higher, for problems with different attempts.
        """
        if isinstance(policy, Judges):
            return self._compare(policy, self._held(split, episodes), split)
        return self._solve(writing(policy), self._held(split, episodes), split, greedy)

    def ceiling(self, policy: Plays, episodes: int | None = None) -> Scores | None:
        """Test scores when the model must reason before it answers; None where that cannot be enforced."""
        if not self._forbidden or isinstance(policy, Judges):
            return None
        return self._solve(writing(policy), self._held("test", episodes), "test", True, self._forbidden)

    def scored(self, policy: Plays) -> Unit:
        """The unit of scores: a language model solves problems, a reward model ranks pairs."""
        return "pairs" if isinstance(policy, Judges) else "problems"

    def mark_of_data(self) -> str:
        """A fingerprint of all problems, with those that are worked examples in each prompt."""
        return splits.mark({**self.problems, "shots": self.asking.shots})

    def _held(self, split: Split, episodes: int | None) -> Sequence[Problem]:
        problems = self.problems[split][:episodes]
        if not problems:
            raise UserError(
                f"{self.source or 'this environment'}: no {split} problems; hold some out with env.{split}=N"
            )
        return problems

    def _solve(
        self,
        policy: Writes,
        problems: Sequence[Problem],
        split: Split,
        greedy: bool,
        forbid_first: Sequence[str] = (),
    ) -> Scores:
        draw = generator(self.seed, "evaluate", split, self._sampled)
        self._sampled += not greedy
        return of_all(len(problems), lambda mine: self._solved(policy, problems[mine], greedy, forbid_first, draw))

    def _solved(
        self,
        policy: Writes,
        problems: Sequence[Problem],
        greedy: bool,
        forbid_first: Sequence[str],
        draw: torch.Generator,
    ) -> Scores:
        """The scores of some problems, by `measuring`."""
        prompts, stop = self.asking.prompts(problems, policy), self.asking.stop
        batch, completions = self.turns.write(
            policy, prompts, stop, max_tokens=self.max_tokens, greedy=greedy, forbid_first=forbid_first, generator=draw
        )
        lengths = batch["mask"].sum(-1).flatten()
        return self.measuring.scores(problems, prompts, completions, lengths, notes(batch))

    def _compare(self, policy: Judges, problems: Sequence[Problem], split: Split) -> Scores:
        """Compare COMPARED attempts per problem, drawn the same way each time: so before and after are comparable."""
        prompts, stop = self.asking.prompts(problems, policy), self.asking.stop
        write = partial(policy.generate, max_tokens=self.max_tokens, generator=generator(self.seed, "compare", split))
        batch = buffers.of_all(len(prompts), lambda mine: write(prompts[mine], COMPARED, stop=stop))
        texts = self.asking.before_stop(policy.decode(batch))
        found = self.measuring.ranked(policy, problems, prompts, texts, batch["mask"].sum(-1))
        if found is None:
            raise UserError(
                f"{self.source}: of {len(problems):,} {split} problems none has two attempts to compare: "
                f"{'no two have different scores' if self.measuring.judge is None else 'env.judge prefers none'}; "
                "measure more of them, raise env.max_tokens, or give a model whose attempts differ more"
            )
        return found

    def demonstrations(self, policy: Plays, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        """The next `rows` worked answers [rows, T]; from `direct_from` on, a share `direct` is only the result."""
        ask = partial(self.asking.prompts, policy=policy)
        return self._demonstrations.encoded(writing(policy), ask, rows or self.rows, progress)

    def _drawn(self) -> State:
        """The state that decides which problems come next."""
        mixed = {} if self.mixture is None else {"mixture": self.mixture.state_dict()}
        return {"prompts": self._prompts.drawn, **mixed}

    def state_dict(self) -> State:
        shown = {"demonstrations": self._demonstrations.drawn, "sampled": self._sampled}
        return {**self._drawn(), **shown, **self._next.before, **self._next.state_dict()}

    def load_state_dict(self, state: State) -> None:
        self._prompts.drawn, self._demonstrations.drawn = natural(state["prompts"]), natural(state["demonstrations"])
        self._sampled = natural(state["sampled"])
        if self.mixture is not None:
            self.mixture.load_state_dict(state["mixture"])
        self._next.load_state_dict(state)
