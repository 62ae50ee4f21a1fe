"""One GRPO step beside TRL's on a CPU: python benchmarks/text_trl.py [together=ROWS] [steps=N] [key=value ...]

Both train the same model in float32 on the same prompts with the same reward, groups, completions and KL penalty, each
in a process of its own. The keys are those of `rlkit.run`; without any: tiny on the embedded problems. `together` is
how many rows TRL reads at a time (default: all, its fastest where memory allows). Times are of the processor, over all
threads; the first step of each is not counted. Needs `pip install -e '.[test]'`, which brings TRL.
"""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

KEYS = ["algo=grpo", "env=gsm8k", "algo.kl_coef=0.04", "policy.trainable=all", "threads=1"]


def ours(keys: list[str], steps: int) -> tuple[list[float], float]:
    """Seconds of each step, and tokens written in all of them."""
    import torch

    from rlkit.loop import learn
    from rlkit.meter import Meter
    from rlkit.settings import config
    from rlkit.settings.assemble import assemble

    parts = assemble(config.read(keys))
    algo, env, times, tokens = parts.algo, parts.env, [], 0.0
    for _ in range(steps + 1):
        began = time.process_time()
        with torch.no_grad():
            rollout = algo.rollout(env)
            algo.buffer.extend(algo.credit(rollout))
        learn(algo, Meter())
        times.append(time.process_time() - began)
        tokens += float(rollout["mask"].sum()) if len(times) > 1 else 0.0
    return times[1:], tokens


def theirs(keys: list[str], steps: int, together: int) -> tuple[list[float], float]:
    """The same of TRL's trainer."""
    from gpu_gsm8k import settings, trainer
    from gpu_measuring import SMOKE
    from rlkit.algorithms._groups import Groups
    from transformers import TrainerCallback

    from rlkit.settings import config
    from rlkit.settings.assemble import assemble

    parts = assemble(config.read([*keys, f"iterations={steps + 1}"]))
    env, algo = parts.env, parts.algo.config
    assert isinstance(algo, Groups)
    size, times = together or env.rows * algo.group, []

    class Watch(TrainerCallback):
        def on_step_end(self, *_: object, **__: object) -> None:
            times.append(time.process_time())

    with tempfile.TemporaryDirectory() as folder:
        asked = settings(SMOKE, parts, Path(folder)) | {
            "per_device_train_batch_size": size,
            "gradient_accumulation_steps": env.rows * algo.group // size,
        }
        made = trainer(parts, Path(folder), asked, callbacks=[Watch()])
        made.train()
    key = "completions/mean_length"
    lengths = [line[key] for line in made.state.log_history if key in line][1:]
    return [b - a for a, b in pairwise(times)], sum(lengths) * env.rows * algo.group


def main(words: list[str]) -> None:
    own = dict(word.split("=", 1) for word in words if word.startswith(("steps=", "together=")))
    given = [word for word in words if word.partition("=")[0] not in own]
    named = {word.partition("=")[0] for word in given}
    keys = [*(word for word in KEYS if word.partition("=")[0] not in named), *given]
    found = {}
    for who in ("rlkit", "TRL"):
        command = [sys.executable, __file__, "--work", who, own.get("steps", "8"), own.get("together", "0"), *keys]
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        seconds, tokens = json.loads(done.stdout.splitlines()[-1])
        found[who] = statistics.median(seconds), 1e3 * sum(seconds) / tokens
        print(f"{who}: {found[who][0]:.2f} s a step, {found[who][1]:.2f} ms a token written", flush=True)
    step, token = (theirs / ours for ours, theirs in zip(found["rlkit"], found["TRL"], strict=True))
    print(f"TRL takes {step:.1f} times as long for a step, {token:.1f} times for a token ({' '.join(keys)})")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        who, steps, together, *keys = sys.argv[2:]
        found = ours(keys, int(steps)) if who == "rlkit" else theirs(keys, int(steps), int(together))
        print(json.dumps(found))
    else:
        main(sys.argv[1:])
