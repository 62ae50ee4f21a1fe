"""Tasks in words: problems, sources, graders, rewards, stored pairs."""

from rlkit.text.env import PROMPT, TextEnv
from rlkit.text.grader import correct, extract, score
from rlkit.text.pairs import Pair, PairEnv
from rlkit.text.problems import Problem
from rlkit.text.rewards import Reward, load_rewards, total

__all__ = [
    "PROMPT",
    "Pair",
    "PairEnv",
    "Problem",
    "Reward",
    "TextEnv",
    "correct",
    "extract",
    "load_rewards",
    "score",
    "total",
]
