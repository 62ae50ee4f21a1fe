"""Worked answers for supervised training, in an order that is a pure function of the seed."""

from collections.abc import Callable, Sequence

from tensordict import TensorDict

from rlkit.api import Writes
from rlkit.errors import UserError
from rlkit.prompts import Prompt, data
from rlkit.terminal import warn
from rlkit.text.given import shown
from rlkit.text.problems import Problem, bare, is_direct
from rlkit.text.rows import refuse_told
from rlkit.text.shuffle import Shuffle
from rlkit.text.sources import told
from rlkit.text.templates import RARE


def tell_completions(problems: Sequence[Problem]) -> None:
    """Say in one line that answers are trained on, of rows with another `completion`: TRL's SFT trains on that."""
    rows = [x for x in problems if "completion" in x.columns]
    if others := sum(text_of(x.columns["completion"]) not in ("", x.answer) for x in rows):
        warn(
            f"{others:,} of {len(problems):,} rows have a 'completion' other than their 'answer', and the answer is "
            "what is trained on: to train on the completion, write its text as 'answer'"
        )


def text_of(completion: object) -> str:
    """The text of a completion in TRL's formats: a text, or a list of messages."""
    messages = completion if isinstance(completion, list) else [{"content": completion}]
    return "\n".join(told(x.get("content")) for x in messages if isinstance(x, dict)).strip()


class Demonstrations:
    """Problems with answers, each once per epoch; a batch holds answers of similar length.

    own: rows from outside, whose `kind` is none of the embedded problems, whatever it is called.
    """

    def __init__(
        self,
        make: Callable[[], Sequence[Problem]],
        seed: int,
        direct: float = 0.0,
        direct_from: float = 0.0,
        own: bool = False,
    ) -> None:
        self.make, self.seed, self.kept = make, seed, () if own else tuple(RARE)
        self.direct, self.direct_from = direct, direct_from
        self.drawn = 0
        self._shown: tuple[Sequence[Problem], Shuffle] | None = None  # created at the first call: only sft needs it

    def encoded(
        self, policy: Writes, ask: Callable[[Sequence[Problem]], list[Prompt]], rows: int, progress: float
    ) -> TensorDict:
        """The next `rows` worked answers [rows, T]; ask: turns problems into prompts.

        Raises: UserError at the first call where an answer does not fit into the policy's context.
        """
        if self._shown is None:
            pool, _ = self._pool()
            policy.check(ask(pool), [data(problem.worked) for problem in pool])
        problems, answers = self.take(rows, progress)
        return policy.encode(ask(problems), answers)

    def take(self, rows: int, progress: float) -> tuple[list[Problem], list[Prompt]]:
        """The next `rows` problems and answers; from `direct_from` on, a share `direct` shows only the final answer."""
        pool, shuffle = self._pool()
        shuffle.drawn = self.drawn
        problems = [pool[index] for index in shuffle.take(rows)]
        share = self.direct if progress >= self.direct_from else 0.0
        answers = [
            data(bare(problem) if is_direct(problem, self.seed, place, share, self.kept) else problem.worked)
            for place, problem in enumerate(problems, self.drawn)
        ]
        self.drawn += rows
        return problems, answers

    def _pool(self) -> tuple[Sequence[Problem], Shuffle]:
        if self._shown is None:
            pool = self.make()
            if not pool:
                raise UserError("there is nothing to demonstrate: raise env.demonstrations or env.rare_demonstrations")
            if not all(problem.answer for problem in pool):
                raise UserError(
                    "a row without an 'answer' demonstrates nothing: give every row one, a text or a number, or use "
                    "algo=grpo"
                )
            for problem in pool:
                if problem.turns:
                    refuse_told(f"the row {shown(problem.question)}", problem.columns)
            tell_completions(pool)
            lengths = [len(problem.question) + len(problem.answer) for problem in pool]
            self._shown = pool, Shuffle(len(pool), self.seed, "demonstrations", lengths)
        return self._shown
