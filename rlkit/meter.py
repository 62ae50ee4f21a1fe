"""What the loop measures of itself: averages of what was learned and played, and its pace."""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import ranks
from rlkit.api import Elementwise, Metrics, State
from rlkit.attributes import check_numbers
from rlkit.errors import UserError
from rlkit.scores import RATED, REWARD

OURS = ("loss", "grad_norm", "update_ratio", "ess")  # metrics of what the loop itself learns, and its doctor finds
FIRST = 5.0  # seconds until the first checkpoint
SHARE = 20  # times as long as saving took, nothing is saved: it takes 5 % of the time at most


Counted = tuple[Tensor | Elementwise, Tensor | None]  # a metric of a batch, and the steps that count, if not all
Ratio = tuple[Tensor | Elementwise, Tensor]  # ρ = π/π_b of a part of a minibatch, and its mask


class Meter:
    """Averages per-element metrics over many batches as tensors; nothing is read back before `read`."""

    def __init__(self) -> None:
        self.watched: list[Tensor] = []  # numbers that are finite as long as the parameters are
        self.waiting: dict[str, list[Counted]] = {}  # what is not yet in the sums
        self.ratios: list[list[Ratio]] = []  # of the first and the last minibatch, in this rank's parts
        self.sums: dict[str, Tensor] = {}
        self.counts: dict[str, Tensor | int] = {}
        self.episodes: list[tuple[float, int]] = []  # (return, length) of those that ended
        self.unwritten: dict[str, dict[str, float]] = {}  # what was measured in an iteration whose validation failed

    def add(self, metrics: Mapping[str, Tensor | Elementwise], mask: Tensor | None = None) -> None:
        """Count some metrics; a `ratio` of each element is kept as it is instead, for the doctor."""
        mask = None if mask is None else mask.clone()
        for name, x in metrics.items():
            if name == "ratio" and mask is not None and x.shape == mask.shape:
                self.ratios[-1].append((as_now(x), mask))
                continue
            masked = mask is not None and mask.dim() > 1 and x.shape == mask.shape
            self.waiting.setdefault(name, []).append((as_now(x), mask if masked else None))

    def begin(self) -> None:
        """The parts of a minibatch follow; this rank may have none."""
        self.ratios = [*self.ratios[:1], []]

    def settle(self) -> None:
        """Sum up what waits: one operation for all batches, since to begin one takes longer than to compute it."""
        waiting, self.waiting = self.waiting, {}
        for name, found in waiting.items():
            for masked in (False, True):
                batches = [(x, mask) for x, mask in found if (mask is not None) == masked]
                if batches:
                    self._sum(name, side_by_side([x for x, _ in batches]), [m for _, m in batches if m is not None])

    def _sum(self, name: str, x: Tensor, masks: list[Tensor]) -> None:
        count: Tensor | int = x.numel()
        if masks:
            mask = side_by_side(masks)
            x, count = torch.where(mask, x, 0), mask.sum()  # not x·mask: what nobody did may be nan or ∞
        self.sums[name] = x.sum(dtype=torch.float32) + self.sums.get(name, 0.0)
        self.counts[name] = self.counts.get(name, 0) + count

    def play(self, rollout: TensorDict, sampled: bool = True) -> None:
        """Count the episodes that ended in a rollout, and what each reward function gave where it had an opinion.

        sampled: False for stored attempts, whose scores only say which is the chosen one.
        """
        self.episodes += finished(rollout) if sampled else []
        for key in [key for key in rollout.keys() if key.startswith(REWARD)]:
            given = rollout[key][rollout[f"{RATED}{key.removeprefix(REWARD)}"]]
            if given.numel():
                self.add({key: given})

    def read(self) -> dict[str, float]:
        """The averages of what was counted since the last reading; nothing of what no element counted in.

        The loop counts the metrics of a loss in logged iterations alone, and what was played in all.
        """
        self.settle()
        counts = {name: float(count) for name, count in self.counts.items()}
        averages = {name: float(x) / counts[name] for name, x in self.sums.items() if counts[name]}
        self.sums, self.counts = {}, {}
        return averages

    def share(self) -> None:
        """Put together what each rank counted; what all of them counted alike keeps its average."""
        if ranks.size() == 1:
            return
        self.settle()
        flat = [ratios_of(parts).cpu() for parts in self.ratios]
        found = ranks.everyones((self.sums, {name: float(count) for name, count in self.counts.items()}, flat))
        self.ratios = [
            [(ratio, torch.ones_like(ratio, dtype=torch.bool)) for ratio in minibatch]
            for minibatch in zip(*(ratios for *_, ratios in found), strict=True)
        ]
        self.sums, self.counts = {}, {}
        for sums, counts, _ in found:
            for name, x in sums.items():
                self.sums[name] = x + self.sums.get(name, 0.0)
                self.counts[name] = torch.as_tensor(counts[name]) + self.counts.get(name, 0)

    def state_dict(self) -> State:
        self.settle()
        left = {"unwritten": self.unwritten} if self.unwritten else {}
        return {"sums": self.sums, "counts": self.counts, "episodes": self.episodes, **left}

    def load_state_dict(self, state: State) -> None:
        """Raises: KeyError, TypeError or ValueError where this is not the state of a meter."""
        if state["sums"].keys() != state["counts"].keys():
            raise ValueError("what is summed is not what is counted")
        unwritten = state.get("unwritten", {})
        if unwritten and unwritten.keys() != {"seen", "metrics"}:
            raise ValueError("what is not written yet is not an iteration")
        episodes = [x for score, length in state["episodes"] for x in (score, length)]
        unread = [x for values in unwritten.values() for x in values.values()]
        check_numbers([*state["sums"].values(), *state["counts"].values(), *episodes, *unread])
        self.unwritten = unwritten
        self.sums, self.counts, self.episodes = state["sums"], state["counts"], state["episodes"]


def side_by_side(found: Sequence[Tensor | Elementwise]) -> Tensor:
    """The elements of some tensors, or of what an element-wise function makes of them. → [N]"""
    first = found[0]
    if isinstance(first, Elementwise):
        columns = zip(*(x.tensors for x in found if isinstance(x, Elementwise)), strict=True)
        return Elementwise(first.function, tuple(side_by_side(column) for column in columns))()
    flat = [x.flatten() for x in found if isinstance(x, Tensor)]
    return torch.cat(flat) if len(flat) > 1 else flat[0]


def acted(x: Tensor | Elementwise, mask: Tensor) -> Tensor:
    """What was measured in the steps that were acted in. [N]"""
    each = x() if isinstance(x, Elementwise) else x
    return (each[mask] if mask.dim() > 1 else each).flatten()


def ratios_of(parts: Sequence[Ratio]) -> Tensor:
    """The ratios of a minibatch, in the steps that were acted in. [N]"""
    return torch.cat([acted(*part) for part in parts]) if parts else torch.zeros(0)


def detached(metrics: Metrics) -> Metrics:
    """The metrics of a loss, without gradient.

    Raises: UserError that names one that is not a tensor, or has the name of one of the loop's.
    """
    for name, x in metrics.items():
        if name in OURS:
            raise UserError(f"the metric '{name}' of a loss has the name of rlkit's own train/{name}: give it another")
        for each in x.tensors if isinstance(x, Elementwise) else (x,):
            if not isinstance(each, Tensor):
                kind = type(each).__name__
                raise UserError(f"the metric '{name}' of a loss is a {kind}: give a tensor, or leave it out")
    return {name: x.detach() for name, x in metrics.items()}


def as_now(x: Tensor | Elementwise) -> Tensor | Elementwise:
    """A metric in memory of its own: a parameter, or a buffer that is filled anew, changes before it is summed up."""
    if isinstance(x, Elementwise):
        return Elementwise(x.function, tuple(y.detach().clone() for y in x.tensors))
    return x.detach().clone()


def finished(rollout: TensorDict) -> list[tuple[float, int]]:
    """(return, length) of the episodes that ended in this rollout; on text (score, tokens) of its completions."""
    if "episode_return" in rollout.keys():
        length = rollout["episode_length"]
        if not length.any():
            return []
        ended = length > 0  # not done: a life that is lost is, and its game goes on
        returns, lengths = rollout["episode_return"][ended].tolist(), length[ended].tolist()
    elif "score" in rollout.keys():
        returns, lengths = rollout["score"].flatten().tolist(), rollout["mask"].sum(-1).flatten().tolist()
    else:
        return []
    return list(zip(returns, lengths, strict=True))


def averages(meter: Meter) -> dict[str, float]:
    """What was learned in the logged iteration, and played since the last one, by the names in metrics.jsonl."""
    metrics = {name if name.startswith(REWARD) else f"train/{name}": x for name, x in meter.read().items()}
    episodes, meter.episodes = meter.episodes, []
    if episodes:
        metrics["rollout/return"] = sum(score for score, _ in episodes) / len(episodes)
        metrics["rollout/length"] = sum(length for _, length in episodes) / len(episodes)
    return metrics


class Clock:
    """The pace of training, evaluations left out, and when it is time for a checkpoint."""

    def __init__(self, env_steps: int) -> None:
        self.steps, self.saved, self.pause = env_steps, time.monotonic(), FIRST
        self.quiet = self.saved  # until then nothing is saved
        self.restart()

    def restart(self) -> None:
        self.began = time.monotonic()

    def speed(self, env_steps: int) -> dict[str, float]:
        pace = (env_steps - self.steps) / max(time.monotonic() - self.began, 1e-9)
        self.steps = env_steps
        self.restart()
        return {"time/env_steps_per_second": pace}

    def save_is_due(self, evaluated: bool) -> bool:
        """After five seconds, then after twice as long as before, at last each minute; and after an evaluation.

        Not before SHARE times as long has passed as the last ones took.
        """
        now = time.monotonic()
        if now < self.quiet or not (evaluated or now - self.saved >= self.pause):
            return False
        if now - self.saved >= self.pause:
            self.pause = min(2 * self.pause, 60.0)
        return True

    @contextmanager
    def saving(self) -> Iterator[None]:
        """Measure what saving takes."""
        began = time.monotonic()
        yield
        self.saved = time.monotonic()
        self.quiet = max(self.quiet, began) + SHARE * (self.saved - began)
