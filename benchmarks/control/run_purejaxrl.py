"""Train with PureJaxRL's ppo.py, from a checkout whose path is in PUREJAXRL: see stopwatch.py.

Environment and training are one compiled program, without any log, its fastest setting. It is compiled before it runs:
the compilation belongs to the start. Its libraries have moved on since: the names that ppo.py uses are put back.
"""

import importlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any
from unittest.mock import MagicMock

from stopwatch import IDS, Stopwatch, Work, asked, score


def configuration(work: Work) -> dict[str, Any]:
    """The names of ppo.py; a value clip and an entropy bonus cannot be left out, so the bonus is 0."""
    return {
        "LR": work["algo.lr"],
        "NUM_ENVS": work["env.rows"],
        "NUM_STEPS": work["algo.horizon"],
        "TOTAL_TIMESTEPS": work["env_steps"],
        "UPDATE_EPOCHS": work["algo.epochs"],
        "NUM_MINIBATCHES": work["algo.minibatches"],
        "GAMMA": work["algo.gamma"],
        "GAE_LAMBDA": work["algo.gae_lambda"],
        "CLIP_EPS": 0.2,
        "ENT_COEF": 0.0,
        "VF_COEF": 0.5,
        "MAX_GRAD_NORM": 0.5,
        "ACTIVATION": "tanh",
        "ENV_NAME": IDS[work["env"]],
        "ANNEAL_LR": False,
        "DEBUG": False,
    }


def restore(jax: Any) -> None:
    """What ppo.py finds where it was written: names of JAX, a step of gymnax with one `done`, and other simulators."""
    from gymnax.environments.environment import Environment

    for name in ("brax", "brax.envs", "brax.envs.wrappers", "brax.envs.wrappers.training", "navix"):
        sys.modules[name] = MagicMock()  # its wrappers import them, and CartPole does not need them
    if not hasattr(jax, "tree_map"):
        jax.tree_map = jax.tree.map
    now = Environment.step

    def step(self: Any, key: Any, state: Any, action: Any, params: Any = None) -> Any:
        observation, after, reward, terminated, truncated, info = now(self, key, state, action, params)
        return observation, after, reward, terminated | truncated, {"discount": info["discount"]}

    Environment.step = step


def main(work: Work) -> None:
    watch = Stopwatch()
    checkout = Path(os.environ["PUREJAXRL"]).resolve()
    sys.path.insert(0, str(checkout / "purejaxrl"))
    import jax

    restore(jax)
    ppo = importlib.import_module("ppo")
    config = configuration(work)
    key = jax.random.PRNGKey(work["seed"])
    train = jax.jit(ppo.make_train(config)).lower(key).compile()
    watch.step()
    state = jax.block_until_ready(train(key))["runner_state"][0]
    watch.end()
    network = ppo.ActorCritic(2, activation="tanh")
    greedy = jax.jit(lambda seen: network.apply(state.params, seen)[0].logits.argmax(-1))
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    steps = int(config["NUM_UPDATES"]) * work["algo.horizon"] * work["env.rows"]
    found = score(lambda observation: int(greedy(observation)), work["env"])
    watch.report(work, steps, found, f"PureJaxRL {commit.stdout.strip()}")


if __name__ == "__main__":
    main(asked())
