"""Train with a script of CleanRL, from a checkout whose path is in CLEANRL: see stopwatch.py.

The script runs as it is. The environments are those of Gymnasium 1, and CleanRL is written for 0.29: the vector
environment resets in the step that ends an episode, and names the last observation, as 0.29 did.
"""

import os
import subprocess
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from typing import Any

from stopwatch import IDS, Stopwatch, Work, asked, one_thread, score

FLAGS = {  # key of rlkit → flag of ppo.py or dqn.py
    "seed": "seed",
    "env_steps": "total-timesteps",
    "env.rows": "num-envs",
    "algo.lr": "learning-rate",
    "algo.gamma": "gamma",
    "algo.horizon": "num-steps",
    "algo.epochs": "update-epochs",
    "algo.minibatches": "num-minibatches",
    "algo.gae_lambda": "gae-lambda",
    "algo.capacity": "buffer-size",
    "algo.batch_size": "batch-size",
    "algo.warmup_steps": "learning-starts",
    "algo.steps": "train-frequency",
    "algo.sync_every": "target-network-frequency",
    "algo.epsilon_end": "end-e",
    "algo.epsilon_decay": "exploration-fraction",
}
SAME = ["--no-anneal-lr", "--no-clip-vloss", "--ent-coef", "0"]  # as the others: rate, value loss, entropy


class Reached(Exception):
    """The score that ends the training."""


def main(work: Work) -> None:
    watch = Stopwatch()
    checkout = Path(os.environ["CLEANRL"]).resolve()
    script = checkout / "cleanrl" / f"{work['algo']}.py"
    flags = [x for key, flag in FLAGS.items() if key in work for x in (f"--{flag}", str(work[key]))]
    sys.argv = [str(script), "--env-id", IDS[work["env"]], *flags, *(SAME if work["algo"] == "ppo" else [])]
    sys.path.insert(0, str(checkout))
    one_thread()
    import gymnasium
    import torch

    names: dict[str, Any] = {"__name__": "__main__", "__file__": str(script)}

    def act(observation: Any) -> Any:
        with torch.inference_mode():
            seen = torch.as_tensor(observation).unsqueeze(0)
            network = names["agent"].actor if work["algo"] == "ppo" else names["q_network"]
            return network(seen).argmax(-1).item()

    class Vector(gymnasium.vector.SyncVectorEnv):
        """Steps as Gymnasium 0.29 did, and says when training begins and ends."""

        def __init__(self, makers: list[Any]) -> None:
            super().__init__(makers, autoreset_mode=gymnasium.vector.AutoresetMode.SAME_STEP)
            self.steps = 0
            if "policy.hidden" in work and "QNetwork" in names:
                names["QNetwork"] = q_network(work["policy.hidden"])  # the script makes it after the environments
            watch.watch(self, "step")

        def step(self, actions: Any) -> Any:
            if "until" in work and self.steps and self.steps % work["every"] == 0 and watch.arrived(act, work):
                raise Reached
            self.steps += self.num_envs
            *result, infos = super().step(actions)
            if "final_obs" in infos:
                infos["final_observation"] = infos["final_obs"]
                over = infos["_final_obs"]
                episode = infos["final_info"].get("episode", {})
                infos["final_info"] = [
                    {"episode": {key: value[i] for key, value in episode.items()}} if done else None
                    for i, done in enumerate(over)
                ]
            return (*result, infos)

        def close(self, **keys: Any) -> None:
            watch.end()
            super().close(**keys)

    made: list[Vector] = []

    def vector(makers: list[Any]) -> Vector:
        made.append(Vector(makers))
        return made[-1]

    gymnasium.vector.SyncVectorEnv = vector  # type: ignore[assignment, misc]
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)  # it writes runs/
        out, sys.stdout = sys.stdout, sys.stderr  # it prints every episode
        try:
            exec(compile(script.read_text(encoding="utf-8"), str(script), "exec"), names)
        except Reached:
            watch.end()
        finally:
            sys.stdout = out
            os.chdir("/")
    commit = subprocess.run(
        ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=True
    )
    watch.report(work, made[0].steps, score(act, work["env"]), f"CleanRL {commit.stdout.strip()}")


def q_network(hidden: list[int]) -> type:
    """A Q-network of these widths with the script's own layers, in place of its 120 and 84."""
    import torch
    from torch import nn

    class QNetwork(nn.Module):
        def __init__(self, env: Any) -> None:
            super().__init__()
            sizes = [env.single_observation_space.shape[0], *hidden]
            layers = [part for a, b in pairwise(sizes) for part in (nn.Linear(a, b), nn.ReLU())]
            self.network = nn.Sequential(*layers, nn.Linear(sizes[-1], int(env.single_action_space.n)))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            found: torch.Tensor = self.network(x)
            return found

    return QNetwork


if __name__ == "__main__":
    main(asked())
