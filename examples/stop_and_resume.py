"""Stop a run when it is good enough, and go on later: python examples/stop_and_resume.py [KEY=VALUE ...]"""

import sys

import rlkit

keys = dict(word.split("=", 1) for word in sys.argv[1:])  # as on a command line: env_steps=2000


def good_enough(metrics: dict[str, float]) -> bool:
    """Called at each logged iteration; True stops the run, which is then measured as always."""
    return metrics.get("rollout/return", 0) > 100


run = rlkit.train("ppo", "cartpole", on_iteration=good_enough, quiet=True, **{"env_steps": 40_000, **keys})
print(f"stopped after {run.summary['env_steps']:,} steps at {run.summary['evaluation']['after']['mean']:.0f}")

later = rlkit.load(run.folder)  # in another program, or tomorrow
later.resume(quiet=True)
print(f"finished after {later.summary['env_steps']:,} steps at {later.summary['evaluation']['after']['mean']:.0f}")
lines = [line for line in later.metrics if "rollout/return" in line]
for line in lines[:: max(1, len(lines) // 5)]:
    print(f"  {line['env_steps']:6.0f} steps  return {line['rollout/return']:.0f}")
