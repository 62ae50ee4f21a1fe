"""How the cost of an iteration grows with the work in it: python benchmarks/slopes.py [FILE.png]

Control: PPO on CartPole, all four rooms, over rows and horizon. Text: a decoder of tiny's shape with random weights,
writing and learning apart, over completion length, group size and vocabulary; no text ends by itself. Seconds of the
processor, one thread, medians of five. A slope is that of log seconds over log size, by least squares over the last
four sizes: 1 means that twice the work costs twice as much, 0 that it costs the same.
"""

import itertools
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import policies
from rlkit.buffers import split
from rlkit.comparison.figures import COLORS, LOOK
from rlkit.language import folders
from rlkit.language.decoder import Decoder
from rlkit.language.engine import Native
from rlkit.language.generate import Prompts, Rule
from rlkit.language.model import LanguageModel
from rlkit.language.shape import Shape
from rlkit.language.tokenizer import Tokenizer
from rlkit.loop import walk
from rlkit.meter import Meter
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble

ROUNDS, LAST = 5, 4
PROMPTS, READ = 4, 64  # of a text step: prompts, and tokens of each


class Line(NamedTuple):
    """Seconds over the size of the work."""

    over: str
    what: str
    sizes: list[int]
    seconds: list[float]

    @property
    def slope(self) -> float:
        x, y = np.log(self.sizes[-LAST:]), np.log(self.seconds[-LAST:])
        return float(np.polyfit(x, y, 1)[0])


def taken(work: Callable[[], object]) -> float:
    """The median over the rounds, after one that is not counted."""
    times = [time.process_time()]
    for _ in range(ROUNDS + 1):
        work()
        times.append(time.process_time())
    return statistics.median(b - a for a, b in itertools.pairwise(times[1:]))


def control(over: str, key: str, sizes: list[int], *keys: str) -> Line:
    """Seconds of an iteration of PPO, over one of its keys."""
    seconds = []
    for size in sizes:
        parts = assemble(config.read(["algo=ppo", "env=cartpole", f"{key}={size}", "iterations=99", *keys]))
        seconds.append(taken(partial(walk, parts.algo, parts.env, Meter())))
        parts.env.close()
    return Line(over, "iteration", sizes, seconds)


def language_model(vocab: int) -> LanguageModel:
    """Of tiny's shape, with as many tokens as asked for."""
    folder = folders.locate("tiny")
    said = json.loads((folder / "config.json").read_text()) | {"vocab_size": vocab}
    decoder = Decoder(Shape.read(said), torch.float32).initialize(generator(0, "initialise"))
    return LanguageModel(decoder, Tokenizer.load(folder, vocab))  # no text is read: the ids are random


def text(over: str, sizes: list[int], length: int = 64, group: int = 8, vocab: int = 1024) -> Iterator[Line]:
    """Seconds of writing, and of learning from what was written, where `over` replaces one of the numbers."""
    found: dict[str, list[float]] = {"writing": [], "learning": []}
    for size in sizes:
        work = {"completion length": length, "group size": group, "vocabulary": vocab, over: size}
        length, group, vocab = work["completion length"], work["group size"], work["vocabulary"]
        model, engine = language_model(vocab), Native()
        prompts = torch.randint(vocab, (PROMPTS, READ), generator=generator(0, "prompts"))
        engine.sync(model.decoder)
        rows = PROMPTS * group
        write = partial(written, engine, prompts, group, length)
        found["writing"].append(taken(write))
        ids = torch.cat([prompts.repeat_interleave(group, 0), write()[:, :length]], 1)
        mask = (torch.arange(ids.shape[1] - 1) >= READ - 1).expand(rows, -1).clone()
        batch = TensorDict({"observation": ids[:, :-1], "action": ids[:, 1:], "mask": mask}, [rows])
        found["learning"].append(taken(step(model, batch)))
    for what, seconds in found.items():
        yield Line(over, what, sizes, seconds)


def written(engine: Native, prompts: Tensor, group: int, length: int) -> Tensor:
    """Tokens of a group of texts for each prompt; none ends by itself, as it would with a token that there is not."""
    assert engine.decoder is not None
    rule, drawn = Rule(1.0, False, (engine.decoder.shape.vocab,)), generator(0, "action")
    return engine.write(Prompts(prompts.tolist(), group, rule, drawn, len(prompts) * group), length).tokens


def step(model: LanguageModel, batch: TensorDict) -> Callable[[], None]:
    """A policy-gradient step on a batch."""
    optimizer = policies.adam(model, policies.Optimization())

    def learn() -> None:
        optimizer.zero_grad()
        for part in split(batch, model.micro_steps):
            torch.autograd.backward(model.evaluate(part)["log_prob"].mean())
        optimizer.step()

    return learn


def measured() -> Iterator[Line]:
    yield control("rows", "env.rows", [2**n for n in range(3, 11)], "algo.horizon=32")
    yield control("horizon", "algo.horizon", [2**n for n in range(3, 11)], "env.rows=8")
    yield from text("completion length", [2**n for n in range(4, 10)])
    yield from text("group size", [2**n for n in range(1, 7)])
    yield from text("vocabulary", [2**n for n in range(10, 17)])


def draw(lines: list[Line], file: Path) -> None:
    """One panel for each kind of work; both axes are logarithmic."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = list(dict.fromkeys(line.over for line in lines))
    with matplotlib.rc_context(LOOK):
        figure = Figure(figsize=(9, 6), layout="constrained")
        FigureCanvasAgg(figure)
        places = figure.subplots(2, 3).flatten()
        for axes, over in zip(places, panels, strict=False):
            of_panel = [line for line in lines if line.over == over]
            for line, color in zip(of_panel, COLORS, strict=False):
                label = f"{line.what}, slope {line.slope:.2f}"
                axes.loglog(line.sizes, line.seconds, marker="o", markersize=3, color=color, label=label)
            axes.set(title=over)
            axes.minorticks_off()
            axes.set_xticks(of_panel[0].sizes[::2], [f"{size:,}" for size in of_panel[0].sizes[::2]])
            axes.yaxis.set_major_formatter(lambda y, _: f"{y:g} s")
            axes.legend(fontsize=8)
        for axes in places[len(panels) :]:
            axes.remove()
        figure.savefig(file, dpi=110, facecolor="white")


def main(file: Path | None) -> None:
    torch.set_num_threads(1)
    lines = []
    for line in measured():
        points = ", ".join(f"{size:,}: {1e3 * s:.1f}" for size, s in zip(line.sizes, line.seconds, strict=True))
        print(f"{line.over}, {line.what}: slope {line.slope:.2f} (ms: {points})", flush=True)
        lines.append(line)
    if file is not None:
        draw(lines, file)


if __name__ == "__main__":
    main(Path(sys.argv[1]) if len(sys.argv) > 1 else None)
