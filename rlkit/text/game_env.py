"""Text games as an environment: an episode is a dialog between a game and the policy; each start is a game's seed."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

import torch
from tensordict import TensorDict

from rlkit import scores
from rlkit.api import Plays, State
from rlkit.buffers import flatten_groups, of_all, recorded
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.forecast import Predicts, Work
from rlkit.prompts import Prompt
from rlkit.scores import Reference, Sample, Scores, Split, Unit
from rlkit.seeding import derive, generator
from rlkit.text.ahead import refuse_ahead
from rlkit.text.asking import Asking
from rlkit.text.games import Make, Playing
from rlkit.text.placing import finish
from rlkit.text.plain import InWords
from rlkit.text.problems import Problem
from rlkit.text.turns import conversing, note, notes

LINE = ("\n",)  # in plain text, ends a turn by default
TRIED = 16  # games of each split whose first text is checked before training
SEEDS = 2**31  # limit of seeds for all generators


class GameEnv(InWords):
    """Dialogs. Each turn's reward is at the last token that the policy wrote in it; the score is their sum."""

    def __init__(
        self,
        make: Make,
        name: str,
        rows: int,
        seed: int,
        device: str | torch.device = "cpu",
        max_tokens: int = 256,
        turn_tokens: int | None = None,
        asking: Asking | None = None,
        stop: Sequence[str] | None = None,
        splits: Mapping[str, int] | None = None,
        metric: Literal["return", "accuracy"] = "return",
        source: str = "",
        reference: Reference | None = None,
    ) -> None:
        """make: creates a game for each episode; stop=None: a line break in plain text, nothing in chat turns.

        metric: accuracy is the share of games with a score of 1 or more.
        """
        self.make, self.name, self.rows, self.seed, self.device = make, name, rows, seed, torch.device(device)
        self.max_tokens, self.turn_tokens = max_tokens, turn_tokens
        self.longest: int | None = max_tokens
        self.asking, self.stop = asking or Asking(), stop
        self.splits: Mapping[str, int] = {"train": SEEDS, **(splits or {"validation": 64, "test": 200})}
        self.metric, self.source, self.reference = metric, source or f"game {name}", reference
        self.scoring: float = 0.0  # seconds that games took
        self._played, self._sampled = 0, 0  # starts of rollouts so far, and sampled evaluations
        self._longest = 0  # tokens of the longest first text so far

    def settled(self, policy: Plays) -> dict[str, object]:
        """The keys that depend on the policy, with their values for this one."""
        return self.asking.settled(policy) | {"stop": tuple(self.stops(policy))}

    def manner(self, policy: Plays) -> str:
        """How the policy is prompted, for the first screen; empty where there is no choice."""
        return self.asking.manner(policy)

    def check(self, policy: Plays) -> None:
        """Refuse a policy without turns, and games whose first text does not fit into its context."""
        writer = conversing(policy)
        refuse_ahead(policy, "games")
        self.asking.check(policy)
        seeds = [
            seed for split in ("validation", "test") for seed in self._seeds(split, min(TRIED, self.splits[split]))
        ]
        prompts = self._prompts(policy, Playing(self.name, self.make, seeds).first)
        between = self.asking.replies(policy)("")  # in plain text, it may be nothing
        writer.check([*prompts, between] if between else prompts, self.max_tokens)
        if isinstance(policy, Predicts):
            self._longest = policy.longest(prompts)

    def learned(self, group: int) -> Work:
        """The work of learning in one iteration, if games write about as much as the policy."""
        return Work(self.rows, group, self._longest, 2 * self.max_tokens, replies=True)

    def written(self, group: int, measured: Mapping[Split, int]) -> list[Work]:
        """The work of writing in one iteration, and in measurements of so many games."""
        learned = self.learned(group)
        return [learned, *(replace(learned, prompts=count, group=1) for count in measured.values() if count)]

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """`repeats` episodes of at most `steps` tokens of the policy's own from each of the next `rows` seeds.

        Returns [rows, T], or [rows, repeats, T]. rollout/turns [..] is the number of turns; `problem` [..] is the index
        of the start among all starts of the run.
        """
        first, self._played = self._played, self._played + self.rows
        limit = self.max_tokens if steps is None else min(steps, self.max_tokens)

        def play(mine: slice) -> TensorDict:
            starts = range(first + mine.start, first + mine.stop)
            seeds = [self._train(index) for index in starts for _ in range(repeats)]
            batch, _ = self._play(policy, seeds, repeats, limit)
            batch["problem"] = torch.tensor(starts, device=batch["mask"].device).unsqueeze(1).expand(batch.batch_size)
            if repeats == 1:
                batch = batch.squeeze(1)
            return batch

        batch = of_all(self.rows, play)
        return batch.update(recorded(policy, batch))

    def _play(
        self,
        policy: Plays,
        seeds: Sequence[int],
        repeats: int,
        limit: int,
        greedy: bool = False,
        draw: torch.Generator | None = None,
    ) -> tuple[TensorDict, list[Prompt]]:
        """Whole episodes with their rewards, `repeats` of each seed in a row; and the first text of each start."""
        writer, playing, stop = conversing(policy), Playing(self.name, self.make, seeds), self.stops(policy)
        for start in range(0, len(seeds), repeats):
            if len(set(playing.first[start : start + repeats])) > 1:
                raise UserError(
                    f"game {self.name}: reset({seeds[start]}) said two different texts: take all luck from the seed, "
                    "which the attempts of a group share"
                )
        prompts = self._prompts(policy, playing.first[::repeats])
        batch = writer.converse(
            prompts,
            playing.replies(self.asking.replies(policy), stop),
            repeats,
            limit,
            min(self.turn_tokens or limit, limit),
            greedy,
            generator=draw,
            stop=stop,
        )
        self.scoring += playing.seconds
        ends = batch.pop("turn_end")
        earned = [reward for row in playing.rewards for reward in row]
        scores = [sum(row) for row in playing.rewards]
        batch = finish(batch, torch.tensor(scores, device=ends.device).view(batch.batch_size))
        reward = torch.zeros(ends.shape, device=ends.device)
        reward[ends] = torch.tensor(earned, device=ends.device)
        batch["reward"] = reward
        note(batch, turns=[len(row) for row in playing.rewards])
        return batch, prompts

    def evaluate(
        self, policy: Plays, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """The scores of the first `episodes` games of a split; see `metric`."""
        usual = self.splits["test" if split == "train" else split]  # there are 2^31 training games
        count = min(episodes or usual, self.splits[split])
        if not count:
            raise UserError(f"{self.source}: no {split} games; hold some out with env.{split}=N")
        draw, seeds = generator(self.seed, "evaluate", split, self._sampled), self._seeds(split, count)
        self._sampled += not greedy
        return scores.of_all(count, lambda mine: self._scores(policy, seeds[mine], split, greedy, draw))

    def _scores(self, policy: Plays, seeds: Sequence[int], split: Split, greedy: bool, draw: torch.Generator) -> Scores:
        batch, prompts = self._play(policy, seeds, 1, self.max_tokens, greedy, draw)
        score = batch["score"].flatten().double().cpu()
        score = (score >= 1).double() if self.metric == "accuracy" else score
        return Scores(
            score=score,
            length=batch["mask"].sum(-1).flatten().double().cpu(),
            samples=self._samples(policy, batch, prompts, score.tolist()),
            items=[(split, str(seed)) for seed in seeds],
            metrics=notes(batch),
        )

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        """The first dialogs of a rollout, as texts."""
        rows = flatten_groups(rollout)[:limit]
        seeds = [self._train(index) for index in rows["problem"].tolist()]
        prompts = self._prompts(policy, Playing(self.name, self.make, seeds).first)
        return self._samples(policy, rows, prompts, rows["score"].tolist())

    def _samples(
        self, policy: Plays, batch: TensorDict, prompts: Sequence[Prompt], scores: Sequence[float]
    ) -> list[Sample]:
        dialogs = zip(prompts, conversing(policy).transcript(batch, special=True), scores, strict=True)
        return [Sample(prompt=str(p), completion=text, answer="", score=score, kind="") for p, text, score in dialogs]

    def ceiling(self, policy: Plays, episodes: int | None = None) -> Scores | None:
        return None

    def scored(self, policy: Plays) -> Unit:
        """The unit of scores: a game that is won or lost counts as a problem, also for pass@k."""
        return "problems" if self.metric == "accuracy" else "episodes"

    def state_dict(self) -> State:
        return {"played": self._played, "sampled": self._sampled}

    def load_state_dict(self, state: State) -> None:
        self._played, self._sampled = natural(state["played"]), natural(state["sampled"])

    def stops(self, policy: Plays) -> Sequence[str]:
        """The strings that end a turn of this policy."""
        if self.stop is not None:
            return self.stop
        return () if self.asking.chats(policy) else LINE

    def _prompts(self, policy: Plays, first: Sequence[str]) -> list[Prompt]:
        return self.asking.prompts([Problem(text, "") for text in first], policy)

    def _train(self, index: int) -> int:
        return derive(self.seed, "game", index) % SEEDS

    def _seeds(self, split: str, count: int) -> list[int]:
        """The seeds of the games; those held out are the same for every run, so that runs can be compared."""
        if split == "train":  # the first that this run plays
            return [self._train(index) for index in range(count)]
        return [derive(0, "game", split, index) % SEEDS for index in range(count)]
