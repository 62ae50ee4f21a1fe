"""Tokens a second in turns beside one turn of the same length: python benchmarks/turns.py [rows=N] [key=value ...]

The keys are those of `rlkit.run`, and rounds=N; without any: tiny with fresh weights, which seldom ends a text by
itself. The rows of a conversation write turns of some tokens and read an answer after each; the single turn writes as
many tokens as such a row has in all. Both take turns, round by round; the ratio is the median of the rounds' ratios.
Tokens are those of the rows after the prompt, read ones included; how many were written is said beside it.
"""

import statistics
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial

from tensordict import TensorDict

from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.text.turns import Converses, conversing

KEYS = ["algo=grpo", "env=guess", "policy.fresh=true", "threads=1"]
PROMPT, ANSWER = "Ada has 1 to 7 books. How many books does Ada have?\n####", "\nAda has more.\n####"
SHAPES = ((3, 2), (3, 16), (8, 8), (4, 32))  # turns, and tokens that are written in each


def conversation(policy: Converses, rows: int, turns: int, tokens: int) -> TensorDict:
    left = [turns] * rows

    def answer(which: Sequence[int], texts: Sequence[str]) -> list[str | None]:
        for row in which:
            left[row] -= 1
        return [ANSWER if left[row] else None for row in which]

    return policy.converse([PROMPT], answer, rows, turns * tokens, tokens)


def timed(write: Callable[[], TensorDict]) -> tuple[float, TensorDict]:
    began = time.process_time()
    batch = write()
    return time.process_time() - began, batch


def length(batch: TensorDict) -> int:
    """Tokens after the prompt, over all rows: from the first that was written to the last."""
    mask = batch["mask"].flatten(0, 1)
    inside = mask.cumsum(-1).bool() & mask.flip(-1).cumsum(-1).flip(-1).bool()
    return int(inside.sum())


def main(words: list[str]) -> None:
    own = dict(word.split("=", 1) for word in words if word.startswith(("rows=", "rounds=")))
    keys = [word for word in words if word.partition("=")[0] not in own] or KEYS
    rows, rounds = int(own.get("rows", 128)), int(own.get("rounds", 7))
    policy = conversing(assemble(config.read(keys)).algo.policy)
    print("turns x tokens | tokens of a row, written | tokens/s in turns | in one turn | ratio (range)")
    for turns, tokens in SHAPES:
        ratios, speeds = [], []
        for _ in range(rounds + 1):
            seconds, batch = timed(partial(conversation, policy, rows, turns, tokens))
            total = length(batch)
            alone, single = timed(partial(policy.generate, [PROMPT], rows, max_tokens=total // rows))
            speeds.append((total / seconds, length(single) / alone))
            ratios.append(speeds[-1][0] / speeds[-1][1])
        here, there = (statistics.median(column) for column in zip(*speeds[1:], strict=True))
        written = int(batch["mask"].sum()) / rows
        ratio = f"{statistics.median(ratios[1:]):.2f} ({min(ratios[1:]):.2f} to {max(ratios[1:]):.2f})"
        print(f"{turns} x {tokens} | {total / rows:.0f}, {written:.0f} | {here:,.0f} | {there:,.0f} | {ratio}")


if __name__ == "__main__":
    main(sys.argv[1:])
