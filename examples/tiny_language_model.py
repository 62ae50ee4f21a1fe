"""Teach a tiny language model with GRPO, then ask it: python examples/tiny_language_model.py [KEY=VALUE ...]"""

import sys

import rlkit

QUESTION = "Leo has 18 books. That is 4 fewer than Ivy has. How many books do they have together?\n"

keys = dict(word.split("=", 1) for word in sys.argv[1:])  # as on a command line: iterations=2
run = rlkit.train("grpo", "gsm8k", **{"iterations": 20, "evaluation_episodes": 200, **keys})

for text in run.policy.complete([QUESTION], n=3)[0]:
    print("drawn:   ", text.replace("\n", " "))
print("greedily:", run.policy.complete([QUESTION], greedy=True)[0][0].replace("\n", " "))
scores = run.summary["evaluation"]
print(f"solved: {scores['before']['mean']:.0%} before, {scores['after']['mean']:.0%} after")
