"""What a shared start takes out of a group's gradient: python benchmarks/group_variance.py FOLDER [batches=100]

FOLDER is a run on control of an algorithm with a plain actor (the GRPO family, reinforce); its policy is held fixed and
played with other starts than it was trained on where `seed=N` gives another seed.

First the returns of 64 starts with 16 attempts each are taken apart (one-way analysis of variance): which share of the
variance lies between starts. Where attempts share the luck of the episode, that is part of it.

Then RLOO's gradient is computed `batches` times for each way to form groups of `attempts=32` episodes, through the
algorithm's own rollout, credit and loss. The mean gradient is the same for all, since RLOO is unbiased. `noise` is the
trace of its covariance, as a multiple of that in the first row. Intervals are 95 % bootstrap intervals, over starts and
over batches. batches=0 leaves this part out.
"""

import sys
from copy import deepcopy

import numpy as np
import torch
from numpy.typing import NDArray

import rlkit
from rlkit.api import Algorithm, Env
from rlkit.seeding import numpy_generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble

Array = NDArray[np.float64]
Keys = dict[str, object]
STARTS, REPEATS, DRAWS, GROUPS = 64, 16, 1000, (2, 4, 8, 16)


class Policy:
    """A run's policy, for RLOO with any groups."""

    def __init__(self, folder: str, seed: int | None) -> None:
        self.given, self.state = config.from_folder(folder), rlkit.load(folder).policy.module.state_dict()
        self.given.run.pop("out")
        self.given.run |= {} if seed is None else {"seed": seed}
        self.lucks: list[Keys] = [{"luck": x} for x in ("shared", "own")] if "luck" in self.given.env else [{}]

    def grouped(self, rows: int, keys: Keys) -> tuple[Algorithm, Env]:
        """RLOO with this policy; keys: group, starts, luck."""
        given = deepcopy(self.given)
        given.algo = {"name": "rloo"} | {key: x for key, x in keys.items() if key != "luck"}
        given.env |= {"rows": rows} | {key: x for key, x in keys.items() if key == "luck"}
        given.policy |= {"fast": False}  # so that autograd knows the gradients
        made = assemble(given)
        made.algo.policy.load_state_dict(self.state)
        return made.algo, made.env


def explained(score: Array) -> float:
    """The share of the variance that lies between groups, one-way random effects. score: [P, G]."""
    within = score.var(1, ddof=1).mean()
    between = score.mean(1).var(ddof=1) - within / score.shape[1]
    return float(between / (between + within)) if between + within > 0 else float("nan")


def gradients(algo: Algorithm, env: Env, batches: int) -> Array:
    """One flat gradient of each rollout, [batches, parameters]."""
    found, parameters = [], list(algo.policy.parameters())
    for _ in range(batches):
        with torch.no_grad():
            algo.buffer.extend(algo.credit(algo.rollout(env)))
        (batch,) = algo.buffer
        parts = torch.autograd.grad(algo.loss(batch)[0], parameters)
        found.append(torch.cat([part.flatten() for part in parts]).double().numpy())
    return np.stack(found)


def noise(gram: Array, weight: Array) -> float:
    """The trace of the covariance of n vectors with this Gram matrix, each as often as n times its weight."""
    n = len(gram)
    return float((weight @ gram.diagonal() - weight @ gram @ weight) * n / (n - 1))


def interval(values: list[float]) -> str:
    return "({:.3f} to {:.3f})".format(*np.nanquantile(values, (0.025, 0.975)))


def starts(policy: Policy, draw: np.random.Generator) -> None:
    """Print which share of the variance of returns the start explains."""
    for keys in policy.lucks:
        algo, env = policy.grouped(STARTS, {"group": REPEATS, **keys})
        score = algo.rollout(env)["score"].double().numpy()
        redrawn = [explained(score[draw.integers(STARTS, size=STARTS)]) for _ in range(DRAWS)]
        luck = f", luck {keys['luck']}" if keys else ""
        print(
            f"return {score.mean():.4g}, standard deviation {score.std():.3g}{luck}: between starts "
            f"{explained(score):.3f} {interval(redrawn)} of the variance",
            flush=True,
        )


def groups(policy: Policy, batches: int, attempts: int, draw: np.random.Generator) -> None:
    """Print the noise of the gradient for each way to form groups."""
    rows = [(attempts // g, {"group": g, **keys}) for keys in policy.lucks for g in GROUPS]
    rows += [(attempts, {"group": g, "starts": "own"}) for g in GROUPS]
    each = np.full(batches, 1 / batches)
    weights = [each, *(draw.multinomial(batches, each) / batches for _ in range(DRAWS))]
    first: list[float] = []
    for count, keys in rows:
        found = gradients(*policy.grouped(count, keys), batches)
        gram = found @ found.T
        here = [noise(gram, weight) for weight in weights]
        first = first or here[:1] + here[:0:-1]  # in another order: the draws of two rows are independent
        ratio = [a / b if b else float("nan") for a, b in zip(here, first, strict=True)]
        signal = float(each @ gram @ each) - here[0] / batches  # without what noise adds to the square
        words = " ".join(f"{key}={x}" for key, x in keys.items())
        print(
            f"{words}: noise {ratio[0]:.3f} {interval(ratio[1:])}; signal² / noise {signal / here[0]:.3f}", flush=True
        )


def main(folder: str, batches: int = 100, attempts: int = 32, seed: int | None = None) -> None:
    policy, draw = Policy(folder, seed), numpy_generator(0, "bootstrap")
    starts(policy, draw)
    if batches:
        groups(policy, batches, attempts, draw)


if __name__ == "__main__":
    main(sys.argv[1], **{key: int(value) for key, _, value in (word.partition("=") for word in sys.argv[2:])})
