"""The model of docs/scale.md against what was measured and published: its coefficients and its error.

    python benchmarks/scale_model.py             the error with the coefficients of rlkit/planning/coefficients.py
    python benchmarks/scale_model.py fit         fit them anew on one half, and the error on the other
    python benchmarks/scale_model.py points      every point beside what the model says

The points are in scale_points.csv. Which half a point is in was decided before anything was fitted: of each kind, in
the order of the names, the first, third, fifth ... are fitted.
"""

import csv
import math
import statistics
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import torch

from rlkit.forecast import Work
from rlkit.language import footprint
from rlkit.language.shape import Shape
from rlkit.planning.coefficients import FITTED, USUAL, Coefficients
from rlkit.planning.hardware import GIB, GPUS
from rlkit.planning.memory import decoder, kept, most_rows
from rlkit.planning.models import Sizes, find, sizes
from rlkit.planning.seconds import Texts, computing, saving, transfer, writing

FILE = Path(__file__).with_name("scale_points.csv")
KINDS = ("learn", "forward", "write", "transfer", "save", "step", "async", "memory")
NUMBERS = ("gpus", "tensor", "prompts", "group", "prompt", "answer", "longest", "passes", "lora", "value")


@dataclass(frozen=True)
class Point:
    name: str
    kind: str
    source: str
    model: str
    gpu: str
    aside: str  # why it is not used; empty: it is
    gpus: int
    tensor: int  # GPUs of an engine
    prompts: int
    group: int
    prompt: float
    answer: float
    longest: float
    passes: float
    lora: int
    value: float  # seconds; of memory GB

    @property
    def texts(self) -> Texts:
        return Texts(self.prompts, self.group, self.prompt, self.answer, self.longest)


def read(file: Path = FILE) -> list[Point]:
    with file.open(encoding="utf-8", newline="") as lines:
        return [point(row) for row in csv.DictReader(lines)]


def point(row: Mapping[str, str]) -> Point:
    numbers = {name: float(row[name]) for name in NUMBERS}
    whole = {name: int(numbers.pop(name)) for name in ("gpus", "tensor", "prompts", "group", "lora")}
    return Point(**{name: text for name, text in row.items() if name not in NUMBERS}, **whole, **numbers)


def halves(points: Iterable[Point]) -> tuple[list[Point], list[Point]]:
    """Those that are fitted, and those on which the error is said."""
    used = [p for p in points if not p.aside]
    kinds = [sorted((p for p in used if p.kind == kind), key=lambda p: p.name) for kind in KINDS]
    return [p for kind in kinds for p in kind[::2]], [p for kind in kinds for p in kind[1::2]]


@cache
def known_model(name: str) -> tuple[Shape, Sizes]:
    shape = find(name)[1]
    return shape, sizes(shape)


def learned(p: Point, shape: Shape) -> float:
    """Bytes of a GPU that learns from one text, with everything sharded, blocks computed again, weights in float32."""
    model = decoder(shape, p.lora, torch.float32)
    model.recompute(True)
    stored = sum(parameter.numel() * parameter.dtype.itemsize for parameter in model.parameters())
    trained = sum(parameter.numel() for parameter in model.parameters() if parameter.requires_grad)
    work = Work(prompts=1, group=1, prompt=1, written=round(p.answer) - 1)
    each, _ = kept(shape, p.lora, torch.float32)
    alive = footprint.learning(model, None, 0, work, (each, 0.0))
    return (stored + (footprint.GRADIENT + footprint.MOMENTS) * trained) / p.gpus + alive


def predicted(p: Point, known: Coefficients = USUAL) -> float:
    """What the model says of a point."""
    gpu, shape, of, texts = GPUS[p.gpu], *known_model(p.model), p.texts
    if p.kind == "memory":
        return learned(p, shape) / GIB
    if p.kind == "transfer":
        return transfer(of, known)
    if p.kind == "save":
        return saving(12 * of.total, known)
    share = 2 if p.kind == "async" else 1  # half of the GPUs write, half learn
    tokens = texts.count * texts.length  # nobody of these reads a prompt once for its group
    computed = computing(gpu, p.gpus // share, of, tokens, texts.length, p.passes, known)
    if p.kind in ("learn", "forward"):
        return computed
    engines = p.gpus / share / p.tensor
    written = writing(gpu, engines, p.tensor, of, texts, most_rows(gpu, p.tensor, of, texts), known).total
    if p.kind == "write":
        return written
    together = max(computed, written) if p.kind == "async" else computed + written
    return together + transfer(of, known)


def ratios(points: Sequence[Point], known: Coefficients = USUAL) -> list[float]:
    """By which factor the model is wrong, whichever way: 1 is right."""
    return [math.exp(abs(math.log(predicted(p, known) / p.value))) for p in points]


def fit(points: Sequence[Point], start: Coefficients = USUAL) -> Coefficients:
    """The coefficients with the smallest mean |log ratio|, one after the other, in steps that become smaller."""

    def cost(known: Coefficients) -> float:
        return sum(map(math.log, ratios(timed, known)))

    timed = [p for p in points if p.kind != "memory"]  # for which there is nothing to fit
    known, least = start, cost(start)
    for step in (2.0, 1.3, 1.1, 1.03, 1.01):
        better = True
        while better:
            better = False
            for name in FITTED:
                for factor in (step, 1 / step):
                    other = replace(known, **{name: getattr(known, name) * factor})
                    if (found := cost(other)) < least - 1e-9:
                        known, least, better = other, found, True
    return known


def system(p: Point) -> str:
    return p.name.partition("-")[0]


def spread(points: Sequence[Point], known: Coefficients = USUAL) -> tuple[int, float, float]:
    """How many points, and by which factor the model is wrong: the median and the worst."""
    wrong = ratios(points, known)
    return len(wrong), statistics.median(wrong), max(wrong)


def table(points: Sequence[Point], known: Coefficients) -> list[str]:
    lines = []
    for kind in (*KINDS, "all"):
        if mine := [p for p in points if kind in (p.kind, "all")]:
            count, median, worst = spread(mine, known)
            within = sum(ratio <= 1.5 for ratio in ratios(mine, known)) / count
            lines.append(f"{kind:<10}{count:>4}{median:>9.2f}{worst:>9.2f}{within:>9.0%}")
    return lines


def main(words: Sequence[str]) -> None:
    points = read()
    fitted, held = halves(points)
    known = fit(fitted) if "fit" in words else USUAL
    print(f"{len(points)} points, {sum(bool(p.aside) for p in points)} of them set aside")
    for name in FITTED:
        print(f"{name:<10}{getattr(known, name):>12.4g}")
    for title, half in (("fitted", fitted), ("held out", held)):
        print(f"\n{title:<10}   n   median    worst   ≤ 1.5")
        print("\n".join(table(half, known)))
    if "fit" in words:
        print("\nfitted on all other systems, and the error on one:")
        used = fitted + held
        for name in sorted({system(p) for p in used}):
            mine = [p for p in used if system(p) == name and p.kind != "memory"]
            count, median, worst = spread(mine, fit([p for p in used if system(p) != name]))
            print(f"{name:<10}{count:>4}{median:>9.2f}{worst:>9.2f}")
    if "points" in words:
        for p in sorted(fitted + held, key=lambda p: (p.kind, p.name)):
            half = "" if p in fitted else "  held out"
            print(f"{p.kind:<9}{p.name:<44}{p.value:>9.2f}{predicted(p, known):>9.2f}{half}")


if __name__ == "__main__":
    main(sys.argv[1:])
