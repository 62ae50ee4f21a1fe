"""What a model does on a text environment before any training: python benchmarks/untouched.py [key=value ...]

The keys are those of `rlkit.run`. Two ways of grading are shown: strict reads the number after the last `####` and
nothing else, flexible falls back on the last number of the text, as training does. The intervals are Wilson's, 95 %.
Few-shot prompts: env.shots=8. pass@k: samples=K draws K answers of each problem and tells how many have a right one.
"""

import json
import sys
import time

from rlkit.scores import Sample
from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.statistics.episodes import wilson
from rlkit.text.grader import score


def share(right: list[float]) -> dict[str, object]:
    part = sum(right) / len(right)
    return {"right": int(sum(right)), "of": len(right), "share": part, "interval": wilson(sum(right), len(right))}


def graded(samples: list[Sample]) -> dict[str, object]:
    return {
        "strict": share([score(x["completion"], x["answer"], strict=True) for x in samples]),
        "flexible": share([score(x["completion"], x["answer"]) for x in samples]),
    }


def main(words: list[str]) -> None:
    attempts = next((int(word.partition("=")[2]) for word in words if word.startswith("samples=")), 0)
    given = config.read([word for word in words if not word.startswith("samples=")])
    parts = assemble(given)
    env, policy, problems = parts.env, parts.algo.policy, parts.run.evaluation_episodes
    began = time.perf_counter()
    found = graded(env.evaluate(policy, problems, "test").samples)
    if attempts:
        drawn = [env.evaluate(policy, problems, "test", greedy=False).score.tolist() for _ in range(attempts)]
        found["sampled"] = share([x for row in drawn for x in row])
        found[f"pass@{attempts}"] = share([max(x) for x in zip(*drawn, strict=True)])
    print(json.dumps({"keys": words, **found, "seconds": round(time.perf_counter() - began)}, indent=1))


if __name__ == "__main__":
    main(sys.argv[1:] or ["algo=grpo", "env=arithmetic", "policy.model=smollm2"])
