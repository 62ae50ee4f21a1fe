"""Peak memory of adapters against full training: python benchmarks/memory_text.py [key=value ...]

Each way runs one iteration (write, credit, learn) of the same problems in a process of its own, which says by how much
its peak (VmHWM) is above what the imports take. The keys are those of `rlkit.run` and are given to both; without any:
GRPO with a reference on smollm2. `ways=NAME+NAME` leaves the others out. Linux only.
"""

import json
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

HERE = Path(__file__).resolve().parent.parent
KEYS = ["algo=grpo", "env=gsm8k", "policy.model=smollm2", "algo.kl_coef=0.04", "algo.group=4", "env.rows=1"]
KEYS += ["env.max_tokens=16", "env.train=64", "threads=2"]
WAYS = {
    "full": ["policy.trainable=all"],
    "lora": ["policy.lora=16"],
    "lora, bfloat16 base": ["policy.lora=16", "policy.base_dtype=bfloat16"],
    "lora, attention": ["policy.lora=16", "policy.lora_targets=attention"],
}


def peak(key: str = "VmHWM") -> float:
    """In MB."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(key)) / 1024


def work(keys: list[str]) -> dict[str, float]:
    """One iteration: MB above the imports once the model is there, after writing and after learning."""
    import torch
    import torch._dynamo  # which torch imports when the first optimizer is made

    from rlkit.loop import learn
    from rlkit.meter import Meter
    from rlkit.settings import config
    from rlkit.settings.assemble import assemble

    imports = peak()
    parts = assemble(config.read(keys))
    algo, found = parts.algo, {"imports": imports, "loaded": peak() - imports}
    with torch.no_grad():
        rollout = algo.rollout(parts.env)
        found["written"] = peak() - imports
        algo.buffer.extend(algo.credit(rollout))
    learn(algo, Meter())
    return found | {"peak": peak() - imports, "tokens": float(rollout["mask"].sum())}


def checkpointing() -> list[str]:
    """The key that lets both keep less for the backward pass, where this version has it."""
    from rlkit.language.network import LanguageNetwork

    there = any(field.name == "gradient_checkpointing" for field in fields(LanguageNetwork))
    return ["policy.gradient_checkpointing=true"] if there else []


def main(words: list[str]) -> None:
    chosen = next((word[5:].split("+") for word in words if word.startswith("ways=")), list(WAYS))
    keys = [*([word for word in words if not word.startswith("ways=")] or KEYS), *checkpointing()]
    print("both:", " ".join(keys))
    found = {}
    for name in chosen:
        command = [sys.executable, __file__, "--work", *keys, *WAYS[name]]
        done = subprocess.run(command, cwd=HERE, stdout=subprocess.PIPE, text=True, check=True)
        found[name] = said = json.loads(done.stdout.splitlines()[-1])
        rooms = "  ".join(f"{key} {value:,.0f}" for key, value in said.items())
        print(f"{name}: {rooms}  ratio {said['peak'] / found[chosen[0]]['peak']:.2f}", flush=True)


if __name__ == "__main__":
    if "--work" in sys.argv:
        print(json.dumps(work(sys.argv[sys.argv.index("--work") + 1 :])))
    else:
        main(sys.argv[1:])
