"""Measurements on completions of held-out problems: a score each, and further metrics."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rlkit import returns
from rlkit.api import Judges, Tokens
from rlkit.scores import Sample, Scores
from rlkit.text.grader import BUILT_IN, correct
from rlkit.text.judging import Judge
from rlkit.text.problems import Problem
from rlkit.text.scoring import Rewards, columns_of, numbered
from rlkit.text.templates import RARE

COMPARED = 4  # attempts at a held-out problem; a reward model compares the best with the worst


@dataclass(frozen=True)
class Measuring:
    """The functions that measure completions; their signature is that of rewards.

    metric: accuracy where scores are 0 or 1, else return.
    packages: packages from outside that make or score the problems.
    embedded: whether they are the embedded problems, whose kinds are common or rare.
    """

    graded: Rewards = field(default_factory=lambda: Rewards([correct]))  # their sum is the score
    beside: Rewards = field(default_factory=lambda: Rewards([]))  # each is a metric with its name
    metric: Literal["return", "accuracy"] = "accuracy"
    judge: Judge | None = None  # if given, it decides which of two attempts is better, whatever their scores
    packages: tuple[str, ...] = ()
    embedded: bool = False

    def check_columns(self, columns: Collection[str]) -> None:
        """Refuse functions that cannot be called with these columns."""
        for functions in (self.graded, self.beside):
            functions.check_columns(columns)
        if self.judge is not None:
            self.judge.check()

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device, tokens: Tokens) -> None:
        """See `Rewards.prepare`."""
        for functions in (self.graded, self.beside):
            functions.prepare(prompts, max_tokens, device, tokens)

    def scores(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[str],
        completions: Sequence[str],
        length: Tensor,
        counted: Mapping[str, Sequence[float]],
    ) -> Scores:
        """Scores of one completion for each problem; length: [N] tokens; counted: further values of each, by name."""
        columns = columns_of(problems)
        found = self.graded(prompts, completions, columns)
        named = found.named if len(self.graded.names) > 1 else {}
        beside = self.beside.opinions(prompts, completions, columns)
        names = numbered([*counted, *named, *beside])
        reported = [*counted.values(), *named.values(), *beside.values()]
        kinds = [problem.kind for problem in problems]
        grouped = self.embedded and RARE.keys() & {*kinds}
        return Scores(
            score=torch.tensor(found.score, dtype=torch.float64),
            length=length.double().cpu(),
            kinds=kinds if any(kinds) else None,
            groups=["rare" if kind in RARE else "common" for kind in kinds] if grouped else None,
            samples=self.samples(problems, prompts, completions, found.score, named),
            items=[(problem.question, problem.answer) for problem in problems],
            metrics=dict(zip(names, reported, strict=True)),
        )

    def samples(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[str],
        completions: Sequence[str],
        scores: Sequence[float],
        named: Mapping[str, Sequence[float | None]],
    ) -> list[Sample]:
        """Completions as texts; the reference answer is included if a score compares with it.

        named: the rewards of each function, [N], where there are several.
        """
        functions = [*self.graded.functions, *self.beside.functions]
        graded = self.metric == "accuracy" or any(each in functions for each in BUILT_IN.values())
        found = [
            Sample(
                prompt=str(prompt),
                completion=text,
                answer=problem.answer if graded else "",
                score=value,
                kind=problem.kind,
            )
            for prompt, problem, text, value in zip(prompts, problems, completions, scores, strict=True)
        ]
        for i, sample in enumerate(found if named else []):
            sample["rewards"] = {name: values[i] for name, values in named.items()}
        return found

    def ranked(
        self, model: Judges, problems: Sequence[Problem], prompts: Sequence[str], texts: Sequence[str], length: Tensor
    ) -> Scores | None:
        """Whether a reward model scores the better of two of a problem's COMPARED attempts above the worse one.

        The two are the best and the worst by score, or two between which the judge decides. texts: the attempts,
        problem by problem; length: [N, COMPARED]. Returns: None where no problem has two different attempts.
        """
        repeated = [i for i in range(len(problems)) for _ in range(COMPARED)]
        asked = [prompts[i] for i in repeated]
        pairs = self._by_score(problems, repeated, asked, texts) if self.judge is None else self._by_judge(asked, texts)
        if not pairs:
            return None
        sides = [[texts[pair[side]] for pair in pairs] for side in (0, 1)]
        high, low = (model.judge([asked[best] for best, _ in pairs], side).clone() for side in sides)
        rows = [problems[repeated[best]] for best, _ in pairs]
        kinds = [problem.kind for problem in rows]
        items = [(problem.question, *attempts) for problem, *attempts in zip(rows, *sides, strict=True)]
        length = length.flatten()[[best for best, _ in pairs]].double().cpu()
        return Scores(ahead(high - low), length, kinds if any(kinds) else None, items=items)

    def _by_score(
        self, problems: Sequence[Problem], repeated: Sequence[int], prompts: Sequence[str], texts: Sequence[str]
    ) -> list[tuple[int, int]]:
        """Indices of the best and the worst of each problem's attempts, where their scores differ."""
        found = self.graded(prompts, texts, columns_of([problems[i] for i in repeated])).score
        best, worst, differ = returns.best_and_worst(torch.tensor(found).view(-1, COMPARED))
        places = zip(best.tolist(), worst.tolist(), strict=True)
        both = [(i * COMPARED + high, i * COMPARED + low) for i, (high, low) in enumerate(places)]
        return [pair for pair, unequal in zip(both, differ.tolist(), strict=True) if unequal]

    def _by_judge(self, prompts: Sequence[str], texts: Sequence[str]) -> list[tuple[int, int]]:
        """Indices of each two attempts between which the judge decides, the better one first."""
        assert self.judge is not None
        first = self.judge(prompts[::2], list(zip(texts[::2], texts[1::2], strict=True))).first
        return [(2 * i + (x < 0.5), 2 * i + (x > 0.5)) for i, x in enumerate(first) if x != 0.5]


def ahead(margin: Tensor) -> Tensor:
    """1 where the margin is positive, one half where it is 0, else 0; float64 on the CPU."""
    return (margin.sign().double().cpu() + 1) / 2
