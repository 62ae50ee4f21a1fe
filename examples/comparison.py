"""Compare two algorithms over three seeds: python examples/comparison.py [KEY=VALUE ...]"""

import sys

import rlkit

keys = dict(word.split("=", 1) for word in sys.argv[1:])  # as on a command line: env_steps=2000
found = rlkit.run_comparison(
    algo=["q_learning", "sarsa"],
    env=["gridworld"],
    seed=range(3),
    **{"env_steps": 8_000, "out": "comparisons/grid", **keys},
)
for row in found.scores:
    print(f"{row['algo']:12} {row['iqm']:7.1f}   95 % {row['low']:.1f} to {row['high']:.1f}   {row['runs']} runs")
for pair in found.pairs:
    print(f"{pair['x']} above {pair['y']}: {pair['value']:.0%} ({pair['verdict']})")
print("the page:", found.folder / "index.html")
