"""Plug-ins beside the systems' formulas, on the same batches; the cases are in parity_cases.py."""

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers
from rlkit.settings import sections
from support.fakes import RaggedText, gradient_of, on_text, padded
from support.systems import Batch

SEEDS = range(3)
MOVES = (0.0, 0.3, 1.2)  # how far the policy went from the one that acted: ratios of 1, near 1, and up to 10²
GROUP, LENGTH = 4, 7


@dataclass
class Case:
    """What a system calls something, and the plug-in, preset and options that are the same thing here."""

    system: str
    call: str  # in the system's own words
    member: str
    preset: str | None
    options: dict[str, Any]
    formula: Callable[[Batch], Tensor]
    advantages: Callable[[Batch], Tensor] | None = None  # [B] or [B, T]
    empty: bool = False  # the system takes a row without tokens for what the plug-in takes it
    moves: tuple[float, ...] = MOVES
    settings: dict[str, Any] | None = None  # the call as fields of TRL's configuration, for test_parity_trl.py

    def __str__(self) -> str:
        return f"{self.system} {self.call}"

    @property
    def behind(self) -> dict[str, Any]:
        """The fields that the preset sets."""
        return sections.presets(self.member)[self.preset] if self.preset else {}

    @property
    def command(self) -> str:
        said = {"algo": self.member} | ({"algo.preset": self.preset} if self.preset else {})
        needed = self.options.get("baseline") == "group"  # any size is the same comparison, but then 1 is refused
        shown = {key: value for key, value in self.options.items() if key != "group" or needed}
        said |= {f"algo.{key}": str(value).lower() for key, value in shown.items()}
        said |= {"algo.minibatches": "2"} if "dual_clip" in self.options else {}  # with one update it does nothing
        return " ".join(f"{key}={value}" for key, value in said.items())


class Ragged(RaggedText):
    """Ragged text in which one group scores the same throughout and, if asked, one row has no token that counts."""

    longest = LENGTH
    empty = False

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        batch = self.batch(self.rows * repeats)
        if repeats > 1:
            score = batch["score"].view(self.rows, repeats)
            score[1] = score[1, :1]
        if self.empty:
            batch["mask"][0] = False
        batch["reward"] = batch["reward"].ne(0) * batch["score"].unsqueeze(1)
        batch.update(policy.record(batch))
        return batch.unflatten(0, (self.rows, repeats)) if repeats > 1 else batch


@dataclass
class Play:
    """A plug-in, the minibatch that it made of a rollout, and the systems' view of the same rollout."""

    algo: Any
    learned: TensorDict
    credited: TensorDict
    whole: TensorDict
    reference: Any
    scores: Tensor

    def batch(self) -> Batch:
        now = self.algo.policy.evaluate(self.whole)
        old, ref = self.whole["log_prob"], self.reference.evaluate(self.whole)["log_prob"]
        return Batch(now["log_prob"], old, ref, self.whole["mask"], self.scores, now["entropy"])


def play(case: Case, seed: int, move: float, empty: bool = False, ref_move: float = 0.3) -> Play:
    """Start at the reference, move to the behavior policy, play and credit, and move on."""
    env = Ragged(rows=4, seed=seed)
    env.empty = empty
    options = case.behind | {"group": GROUP} | case.options
    algo = on_text(case.member, env, **options)
    reference = copy.deepcopy(algo.policy)
    algo.policy.move(ref_move, seed=seed + 100)
    with torch.no_grad():
        rollout = padded(algo.rollout(env), 2 * (seed % 2))
        whole = buffers.flatten_groups(rollout.copy())
        credited = algo.credit(rollout.copy())
        algo.buffer.extend(credited)
        (learned,) = list(algo.buffer)
    algo.policy.move(move, seed=seed + 200)
    return Play(algo, learned, credited, whole, reference, rollout["score"].view(env.rows, -1))


def plays(case: Case) -> Iterator[Play]:
    for seed in SEEDS:
        for move in case.moves:
            yield play(case, seed, move, empty=case.empty and seed == 2)


def gap(a: Tensor, b: Tensor) -> float:
    """The largest difference, relative to the larger of 1 and the largest entry."""
    return ((a - b).abs().max() / b.abs().max().clamp(min=1)).item()


@dataclass
class Gaps:
    """The largest differences between a plug-in and a system over all batches."""

    value: float = 0.0
    gradient: float = 0.0
    advantage: float = 0.0


KNOWN: dict[str, Gaps] = {}


def compare(case: Case) -> Gaps:
    """Measured once a process."""
    if str(case) not in KNOWN:
        worst = KNOWN[str(case)] = Gaps()
        for p in plays(case):
            batch, ours = p.batch(), p.algo.loss(p.learned)[0]
            theirs = case.formula(batch)
            worst.value = max(worst.value, gap(ours.detach(), theirs.detach()))
            worst.gradient = max(worst.gradient, gap(gradient_of(p.algo, ours), gradient_of(p.algo, theirs)))
            if case.advantages is not None:
                expected = case.advantages(batch).detach()
                expected = (expected if expected.dim() == 2 else expected.unsqueeze(1)) * batch.mask
                worst.advantage = max(worst.advantage, gap(p.credited["advantage"], expected))
    return KNOWN[str(case)]
