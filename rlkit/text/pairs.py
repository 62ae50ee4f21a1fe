"""Stored preferences: prompts with two completions each, one of them preferred."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Literal

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import ranks
from rlkit.api import Judges, Plays, State, Stochastic, Writes
from rlkit.buffers import flatten_groups
from rlkit.counters import natural
from rlkit.errors import UserError
from rlkit.forecast import Predicts, Work
from rlkit.prompts import Prompt, Turn, data
from rlkit.scores import Reference, Sample, Scores, Split, Unit, of_all
from rlkit.text import splits
from rlkit.text.asking import Chats
from rlkit.text.env import TextEnv
from rlkit.text.measuring import ahead
from rlkit.text.placing import finish
from rlkit.text.plain import InWords
from rlkit.text.shuffle import Shuffle
from rlkit.text.turns import writing

EVALUATED = 32  # pairs that are compared at a time


@dataclass(frozen=True, slots=True)
class Pair:
    """A prompt with a chosen and a rejected completion, and log π_ref of each if it is known."""

    prompt: str
    chosen: str
    rejected: str
    ref: tuple[float, float] | None = None  # of the chosen and of the rejected side, including the end token
    turns: tuple[Turn, ...] = ()  # the conversation that became the prompt; empty if the prompt was text


class PairEnv(InWords):
    """Stored preferences: each start has two attempts, the chosen one (score 1) and the rejected one (score 0)."""

    metric: Literal["return", "accuracy"] = "accuracy"
    plays: bool = False  # attempts are stored, not sampled
    scoring: float = 0.0  # seconds of scoring: none, scores are stored
    longest: int | None = None
    reference: Reference | None = None

    def __init__(
        self,
        pairs: Mapping[str, Sequence[Pair]],
        rows: int,
        seed: int,
        device: str | torch.device = "cpu",
        source: str = "",
        problems: TextEnv | None = None,
    ) -> None:
        if not pairs["train"]:
            raise UserError(f"{source or 'the train split'}: no pair is left to train on; hold out fewer, or give more")
        self.pairs, self.problems = pairs, problems
        self.splits: Mapping[str, int] = (
            problems.splits if problems else {split: len(rows) for split, rows in pairs.items()}
        )
        self.rows, self._seed, self.device, self.source = rows, seed, torch.device(device), source
        self.stored_reference: bool = all(pair.ref is not None for pair in pairs["train"])
        self._longest = 0, 0  # tokens of the longest prompt and the longest side
        self._drawn = Shuffle(len(pairs["train"]), seed, "pairs")
        self._shown = Shuffle(len(pairs["train"]), seed, "demonstrations")

    @property
    def seed(self) -> int:
        """The seed of all draws; test problems share it."""
        return self._seed

    @seed.setter
    def seed(self, seed: int) -> None:
        self._seed = seed
        if self.problems is not None:
            self.problems.seed = seed

    def check(self, policy: Plays) -> None:
        """Refuse pairs that do not fit into the policy's context, before training."""
        prompts, completions = sides(writing(policy), [pair for pairs in self.pairs.values() for pair in pairs])
        writing(policy).check(prompts, completions)
        if isinstance(policy, Predicts):
            self._longest = policy.longest(prompts), policy.longest([text for text in completions if text] or [" "]) + 1
        if self.problems is not None:
            self.problems.check(policy)

    def learned(self, group: int) -> Work:
        """The work of learning in one iteration: both sides of its pairs."""
        return Work(self.rows, 2, *self._longest)

    def written(self, group: int, measured: Mapping[Split, int]) -> list[Work]:
        """The work of writing in measurements, if there are problems to solve."""
        return [] if self.problems is None else self.problems.written(1, measured)[1:]

    def rollout(self, policy: Plays, steps: int | None = None, repeats: int = 1) -> TensorDict:
        """The next `rows` pairs as [rows, 2, T], chosen first; attempts are stored, so they are always complete.

        ref_log_prob [rows, 2] of whole sides is included if it is stored. `problem` [rows, 2] is the index of the pair.
        """
        if repeats != 2 or steps is not None:
            given = f"{repeats} attempts" + (f" of {steps} steps" if steps is not None else "")
            raise UserError(f"stored pairs are two whole attempts, not {given}; use algo=dpo, or env=gsm8k")
        indices = self._drawn.take(self.rows)
        pairs = [self.pairs["train"][index] for index in indices]
        batch = _encode(writing(policy), pairs)
        device = batch["mask"].device
        batch["problem"] = torch.tensor(indices, device=device).unsqueeze(1).expand(-1, 2)
        if self.stored_reference:
            batch["ref_log_prob"] = torch.tensor([pair.ref for pair in pairs], device=device)
        return finish(batch, torch.tensor([1.0, 0.0], device=device).repeat(len(pairs), 1))

    def samples(self, rollout: TensorDict, policy: Plays, limit: int) -> list[Sample]:
        """The first sides of a rollout's pairs, as texts."""
        if "problem" not in rollout.keys():
            return []
        rows, found = flatten_groups(rollout)[:limit], []
        for index, score in zip(rows["problem"].tolist(), rows["score"].tolist(), strict=True):
            pair = self.pairs["train"][index]
            side = pair.chosen if score else pair.rejected
            found.append(Sample(prompt=pair.prompt, completion=side, answer=pair.chosen, score=score, kind=""))
        return found

    def evaluate(
        self, policy: Plays, episodes: int | None = None, split: Split = "validation", greedy: bool = True
    ) -> Scores:
        """Accuracy: the share of held-out problems solved, or if none of pairs with log π(chosen) > log π(rejected).

        For a reward model it is always the share of held-out pairs with r(chosen) > r(rejected). A tie counts one half.
        """
        if self.problems is not None and not isinstance(policy, Judges):
            return self.problems.evaluate(policy, episodes, split, greedy)
        pairs = self.pairs[split][:episodes]
        if not pairs:
            raise UserError(f"{self.source or 'this environment'}: no {split} pairs; hold some out with env.{split}=N")
        if ranks.layered():  # all ranks take part in each forward pass
            return self._compared(policy, pairs)
        return of_all(len(pairs), lambda mine: self._compared(policy, pairs[mine]))

    def _compared(self, policy: Plays, pairs: Sequence[Pair]) -> Scores:
        writer, margins, lengths = writing(policy), [], []
        for start in range(0, len(pairs), EVALUATED):
            part = pairs[start : start + EVALUATED]
            batch = _encode(writer, part)
            value = _judged(writer, part) if isinstance(writer, Judges) else _likelihood(policy, batch)
            margins.append(value[:, 0] - value[:, 1])
            lengths.append(batch["mask"][:, 0].sum(-1).double().cpu())
        items = [(pair.prompt, pair.chosen, pair.rejected) for pair in pairs]
        return Scores(score=ahead(torch.cat(margins)), length=torch.cat(lengths), items=items)

    def ceiling(self, policy: Plays, episodes: int | None = None) -> Scores | None:
        return self.problems.ceiling(policy, episodes) if self.problems else None

    def scored(self, policy: Plays) -> Unit:
        """The unit of scores: pairs for a reward model, and for a language model without problems to solve."""
        return self.problems.scored(policy) if self.problems else "pairs"

    def mark_of_data(self) -> str:
        """A fingerprint of all pairs."""
        return splits.mark(self.pairs)

    def demonstrations(self, policy: Plays, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        """The chosen sides of the next `rows` pairs, for supervised training [rows, T]."""
        pairs = [self.pairs["train"][index] for index in self._shown.take(rows or self.rows)]
        prompts, completions = sides(writing(policy), pairs)
        return writing(policy).encode(prompts[::2], completions[::2])

    def state_dict(self) -> State:
        solved = {"problems": self.problems.state_dict()} if self.problems else {}
        return {"pairs": self._drawn.drawn, "demonstrations": self._shown.drawn, **solved}

    def load_state_dict(self, state: State) -> None:
        self._drawn.drawn, self._shown.drawn = natural(state["pairs"]), natural(state["demonstrations"])
        if self.problems is not None:
            self.problems.load_state_dict(state["problems"])


def sides(policy: Writes, pairs: Sequence[Pair]) -> tuple[list[Prompt], list[Prompt]]:
    """Prompts and completions as this policy reads them, the chosen before the rejected side of each pair.

    Texts stay plain. A conversation is rendered by the model's chat template, with each side and without, as in TRL's
    `apply_chat_template`: the common beginning of all three is the prompt. Special tokens in a row's data are text.
    """
    chats = [pair for pair in pairs if pair.turns]
    rendered = iter(_rendered(policy, chats) if chats else [])
    found = [next(rendered) if x.turns else (data(x.prompt), data(x.chosen), data(x.rejected)) for x in pairs]
    prompts = [prompt for prompt, *_ in found for _ in range(2)]
    return prompts, [side for _, *both in found for side in both]


def _rendered(policy: Writes, pairs: Sequence[Pair]) -> list[tuple[Prompt, Prompt, Prompt]]:
    """The prompt and both sides of conversations, rendered."""
    if not isinstance(policy, Chats) or not policy.chats:
        raise UserError(
            "pairs of chat messages need a model with a chat template: give such a model with policy.model, a template "
            "with policy.template=FILE.jinja, or pairs of texts"
        )
    asked = policy.chat([pair.turns for pair in pairs], {})
    said = [(*x.turns, Turn("assistant", data(side))) for x in pairs for side in (x.chosen, x.rejected)]
    whole = policy.chat(said, {"add_generation_prompt": False})
    found = []
    for prompt, chosen, rejected in zip(asked, whole[::2], whole[1::2], strict=True):
        letters = zip(prompt, chosen, rejected, strict=False)
        end = sum(1 for _ in takewhile(lambda three: len({*three}) == 1, letters))
        found.append((prompt.part(0, end), chosen.part(end), rejected.part(end)))
    return found


def _encode(policy: Writes, pairs: Sequence[Pair]) -> TensorDict:
    """Both sides of each pair, chosen first: [len(pairs), 2, T]."""
    rows: TensorDict = policy.encode(*sides(policy, pairs)).view(len(pairs), 2)
    return rows


def _judged(policy: Judges, pairs: Sequence[Pair]) -> Tensor:
    """r of both sides [len(pairs), 2]."""
    return policy.judge(*sides(policy, pairs)).view(-1, 2).double().cpu()


@torch.no_grad()
def _likelihood(policy: Plays, batch: TensorDict) -> Tensor:
    """log π of both sides: [P, 2, T] → [P, 2]."""
    if not isinstance(policy, Stochastic):
        raise UserError(f"a {type(policy).__name__} does not tell log π of stored texts; use algo=dpo or algo=sft")
    return policy.evaluate(batch.flatten(), entropy=False)["log_prob"].sum(-1).view(-1, 2).double().cpu()
