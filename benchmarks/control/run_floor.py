"""What no program in these languages goes below: environment, matrix products and activations, measured alone.

The environment is rlkit's batch in numpy with its resets; acting is one forward pass of the networks on all rows;
learning is forward, gradient of the inputs and gradient of the weights of each minibatch. Each product and activation
is timed in numpy and in torch, and the faster one counts. Buffers are there before; nothing is drawn or logged.
"""

import json
import sys
import time
from collections.abc import Callable
from itertools import count, cycle, pairwise
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import numpy as np
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import VectorEnv
from stopwatch import Work, asked, one_thread, updates

from rlkit.control import Copies
from rlkit.settings import plugins

BUDGET = 0.02  # seconds for each thing that is timed


def seconds(call: Callable[[], object]) -> float:
    """Of one call: the best of five rounds."""
    began = time.perf_counter()
    call()
    once = max(time.perf_counter() - began, 1e-7)
    calls, found = max(1, int(BUDGET / 5 / once)), []
    for _ in range(5):
        began = time.perf_counter()
        for _ in range(calls):
            call()
        found.append((time.perf_counter() - began) / calls)
    return min(found)


def product(n: int, inner: int, m: int) -> float:
    """Seconds of [n, inner] @ [inner, m] in float32, into memory that is there."""
    a, b, out = (np.ones(shape, np.float32) for shape in ((n, inner), (inner, m), (n, m)))
    x, y, z = (torch.from_numpy(array) for array in (a, b, out))
    return min(seconds(lambda: np.matmul(a, b, out=out)), seconds(lambda: torch.mm(x, y, out=z)))


def activation(n: int, width: int, name: str) -> float:
    """Seconds of an activation of [n, width]; tanh also as 2σ(2x) − 1, which differs by rounding only."""
    x = np.linspace(-2, 2, n * width, dtype=np.float32).reshape(n, width)
    out = np.empty_like(x)
    a, b = torch.from_numpy(x), torch.from_numpy(out)
    if name == "relu":
        return min(seconds(lambda: np.maximum(x, 0, out=out)), seconds(lambda: torch.clamp_min(a, 0, out=b)))

    def by_sigmoid() -> None:
        torch.mul(a, 2, out=b)
        torch.sigmoid(b, out=b)
        b.mul_(2).sub_(1)

    return min(seconds(lambda: np.tanh(x, out=out)), seconds(lambda: torch.tanh(a, out=b)), seconds(by_sigmoid))


def network(n: int, sizes: list[int], name: str, learn: bool) -> float:
    """Seconds of an MLP on n rows: forward, and with `learn` the gradients of its weights and inner inputs."""
    total = sum(product(n, a, b) for a, b in pairwise(sizes))
    total += sum(activation(n, width, name) for width in sizes[1:-1])
    if learn:
        total += sum(product(a, n, b) for a, b in pairwise(sizes))
        total += sum(product(n, b, a) for a, b in pairwise(sizes[1:]))
    return total


def through(n: int, sizes: list[int], name: str) -> float:
    """Seconds of an MLP on n rows: forward, and the gradient of its inputs."""
    return network(n, sizes, name, False) + sum(product(n, b, a) for a, b in pairwise(sizes))


def twins(n: int, actor: list[int], critic: list[int], name: str, stochastic: bool) -> float:
    """Seconds of an update of SAC or TD3, whose actor learns in each second one: both critics, and their targets."""
    targets = network(n, actor, name, False) + 2 * network(n, critic, name, False)
    of_actor = network(n, actor, name, True) + (2 if stochastic else 1) * through(n, critic, name)
    return targets + 2 * network(n, critic, name, True) + of_actor / (1 if stochastic else 2)


def stepping(vector: VectorEnv) -> float:
    """Seconds of one call that steps all copies with random actions, and resets those that ended."""
    seeds = count(vector.num_envs)
    vector.action_space.seed(0)
    actions = cycle([vector.action_space.sample() for _ in range(200)])
    copies = Copies(vector, lambda row: next(seeds))
    copies.reset(range(vector.num_envs))
    return seconds(lambda: copies.step(next(actions)))


def floor(work: Work) -> dict[str, float]:
    """Seconds for each environment step, by what they go to."""
    rows, hidden = work["env.rows"], list(work.get("policy.hidden", [64, 64]))
    name = work.get("policy.activation", "tanh")
    module = plugins.load("envs", work["env"])
    vector = module.make(module.Config(rows=rows), 0, "cpu").vector(rows)
    found = {"environment": stepping(vector) / rows}
    if isinstance(vector.single_observation_space, Discrete):  # a table: no product, no activation
        return found
    width, actions = vector.single_observation_space.shape[0], vector.single_action_space
    outputs = int(actions.n) if isinstance(actions, Discrete) else actions.shape[0]
    actor, critic = [width, *hidden, outputs], [width, *hidden, 1]
    if work["algo"] in ("sac", "td3"):
        stochastic = work["algo"] == "sac"
        critic = [width + outputs, *hidden, 1]
        actor = [width, *hidden, (2 if stochastic else 1) * outputs]
        found["acting"] = network(rows, actor, name, False) / rows
        update = twins(work["algo.batch_size"], actor, critic, name, stochastic)
        found["learning"] = update * (updates(work, work["env_steps"]) or 0) / work["env_steps"]
    elif work["algo"] == "dqn":  # one update after each step; the target network goes forward, too
        found["acting"] = network(rows, actor, name, False) / rows
        size = work["algo.batch_size"]
        update = network(size, actor, name, True) + network(size, actor, name, False)
        found["learning"] = update * (updates(work, work["env_steps"]) or 0) / work["env_steps"]
    else:
        passes, parts = work.get("algo.epochs", 1), work.get("algo.minibatches", 1)
        size = rows * work["algo.horizon"] // parts
        found["acting"] = (network(rows, actor, name, False) + network(rows, critic, name, False)) / rows
        found["learning"] = passes * (network(size, actor, name, True) + network(size, critic, name, True)) / size
    return found


def main(work: Work) -> None:
    one_thread()
    found = floor(work)
    total = sum(found.values())
    steps = work["env_steps"]
    line = {"steps": steps, "seconds": steps * total, "version": "floor", "seed": work["seed"]}
    counted = updates(work, steps)
    line |= {} if counted is None else {"updates": counted}
    print(json.dumps(line | {"parts": {name: 1e6 * x for name, x in found.items()}}))


if __name__ == "__main__":
    main(asked())
