"""What is measured of completions of held-out problems: a score each, and metrics beside it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch
from torch import Tensor

from rlkit import returns
from rlkit.api import Judges
from rlkit.scores import Sample, Scores
from rlkit.text.grader import correct
from rlkit.text.problems import Problem
from rlkit.text.scoring import Rewards, columns_of
from rlkit.text.templates import RARE

COMPARED = 4  # attempts at a held-out problem, of which a reward model compares the best with the worst


@dataclass(frozen=True)
class Measuring:
    """The functions that measure; their signature is that of rewards.

    metric: accuracy where a score is 0 or 1, else return.
    """

    graded: Rewards = field(default_factory=lambda: Rewards([correct]))  # what they give is the score
    beside: Rewards = field(default_factory=lambda: Rewards([]))  # each is reported by its name
    metric: Literal["return", "accuracy"] = "accuracy"

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move what computes to the device, and refuse prompts that are too long for it."""
        for functions in (self.graded, self.beside):
            functions.prepare(prompts, max_tokens, device)

    def scores(
        self,
        problems: Sequence[Problem],
        prompts: Sequence[str],
        completions: Sequence[str],
        length: Tensor,
        counted: Mapping[str, Sequence[float]],
    ) -> Scores:
        """One completion of each problem; length: [N] tokens; counted: what else is reported of each, by name."""
        columns = columns_of(problems)
        found = self.graded(prompts, completions, columns)
        named = found.named if len(self.graded.names) > 1 else {}
        kinds = [problem.kind for problem in problems]
        return Scores(
            score=torch.tensor(found.score, dtype=torch.float64),
            length=length.double().cpu(),
            kinds=kinds if any(kinds) else None,
            groups=["rare" if kind in RARE else "common" for kind in kinds] if RARE.keys() & set(kinds) else None,
            samples=self.samples(problems, prompts, completions, found.score),
            items=[(problem.question, problem.answer) for problem in problems],
            metrics={**counted, **named, **self.beside.opinions(prompts, completions, columns)},
        )

    def samples(
        self, problems: Sequence[Problem], prompts: Sequence[str], completions: Sequence[str], scores: Sequence[float]
    ) -> list[Sample]:
        """Completions in words; an answer is told where scores say whether it is right."""
        graded = self.metric == "accuracy"
        return [
            Sample(
                prompt=str(prompt),
                completion=text,
                answer=problem.answer if graded else "",
                score=value,
                kind=problem.kind,
            )
            for prompt, problem, text, value in zip(prompts, problems, completions, scores, strict=True)
        ]

    def ranked(
        self, judge: Judges, problems: Sequence[Problem], prompts: Sequence[str], texts: Sequence[str], length: Tensor
    ) -> Scores | None:
        """Whether a reward model scores the best of a problem's COMPARED attempts above the worst.

        texts: the attempts, problem by problem; length: [N, COMPARED]. None where no problem has two that differ.
        """
        repeated = [i for i in range(len(problems)) for _ in range(COMPARED)]
        columns = columns_of([problems[i] for i in repeated])
        found = self.graded([prompts[i] for i in repeated], texts, columns).score
        best, worst, differ = returns.best_and_worst(torch.tensor(found).view(-1, COMPARED))
        chosen = differ.nonzero()[:, 0].tolist()
        if not chosen:
            return None
        sides = [[texts[i * COMPARED + int(which[i])] for i in chosen] for which in (best, worst)]
        high, low = (judge.judge([prompts[i] for i in chosen], side) for side in sides)
        kinds = [problems[i].kind for i in chosen]
        items = [(problems[i].question, *attempts) for i, *attempts in zip(chosen, *sides, strict=True)]
        length = length[chosen, best[chosen]].double().cpu()
        return Scores(ahead(high - low), length, kinds if any(kinds) else None, items=items)


def ahead(margin: Tensor) -> Tensor:
    """1 where the margin is positive, one half where it is 0, float64 on the CPU."""
    return (margin.sign().double().cpu() + 1) / 2
