"""One GRPO step beside TRL's on a CPU: python benchmarks/text_trl.py [NAME=VALUE ...]

Both train the same model in float32 on the same prompts with the same reward, groups, completions and KL penalty, each
in a process of its own. A round is both programs in turn; medians are printed, and the ratios within rounds with their
range. The keys are those of `rlkit.run`; without any: tiny on the embedded problems. `together` is how many rows TRL
reads at a time (default: all, its fastest where memory allows), `rounds` and `steps` are how many there are. Times are
of the processor, over all threads; the first step of each program is not counted.

Needs `pip install -e '.[test]'`, which brings TRL.
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
    own = dict(word.split("=", 1) for word in words if word.startswith(("rounds=", "steps=", "together=")))
    given = [word for word in words if word.partition("=")[0] not in own]
    named = {word.partition("=")[0] for word in given}
    keys = [*(word for word in KEYS if word.partition("=")[0] not in named), *given]
    found: dict[str, list[tuple[float, float, float]]] = {"rlkit": [], "TRL": []}
    for _ in range(int(own.get("rounds", "5"))):
        for who, rounds in found.items():
            command = [sys.executable, __file__, "--work", who, own.get("steps", "8"), own.get("together", "0"), *keys]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            seconds, tokens = json.loads(done.stdout.splitlines()[-1])
            rounds.append((statistics.median(seconds), 1e3 * sum(seconds) / tokens, tokens / len(seconds)))
    for who, rounds in found.items():
        step, token, written = (statistics.median(values) for values in zip(*rounds, strict=True))
        print(f"{who}: {step:.2f} s a step, {token:.2f} ms a token written, {written:.0f} tokens a step")
    for i, what in enumerate(("a step", "a token")):
        ratios = [theirs[i] / ours[i] for ours, theirs in zip(found["rlkit"], found["TRL"], strict=True)]
        middle, low, high = statistics.median(ratios), min(ratios), max(ratios)
        print(f"TRL takes {middle:.1f} ({low:.1f} to {high:.1f}) times as long for {what}")
    print(" ".join(keys))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        who, steps, together, *keys = sys.argv[2:]
        found = ours(keys, int(steps)) if who == "rlkit" else theirs(keys, int(steps), int(together))
        print(json.dumps(found))
    else:
        main(sys.argv[1:])
