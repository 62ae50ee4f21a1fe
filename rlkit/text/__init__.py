"""Text tasks: problems, sources, graders, rewards, turns and tools, games, stored pairs."""

from rlkit.text.asking import PROMPT, Asking, take_examples
from rlkit.text.env import TextEnv
from rlkit.text.game_env import GameEnv
from rlkit.text.grader import correct, score
from rlkit.text.pairs import Pair, PairEnv
from rlkit.text.problems import Problem
from rlkit.text.reading import extract
from rlkit.text.rewards import Reward, load_rewards
from rlkit.text.scoring import steps, total
from rlkit.text.tools import load_tool

__all__ = [
    "PROMPT",
    "Asking",
    "GameEnv",
    "Pair",
    "PairEnv",
    "Problem",
    "Reward",
    "TextEnv",
    "correct",
    "extract",
    "load_rewards",
    "load_tool",
    "score",
    "steps",
    "take_examples",
    "total",
]
