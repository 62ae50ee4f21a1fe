"""What tasks with questions and graded answers share: the `env.` keys, and the environment that they make."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Literal

import torch
from annotated_types import Ge, Le

from rlkit.api import Code, Count, Place, Positive, UserError
from rlkit.fields import ANSWERS, ATTEMPTS, PAIRS, Needs, Problems, Words
from rlkit.terminal import warn
from rlkit.text import Asking, Problem, Reward, TextEnv, load_rewards, load_tool, take_examples
from rlkit.text.grader import BUILT_IN, flexible, strict
from rlkit.text.judging import load_judge
from rlkit.text.measuring import Measuring
from rlkit.text.mixture import Curriculum, Mixture
from rlkit.text.scoring import Rewards

OWN = "own"  # the word for an environment's own rewards
TURNS = Needs("chat", "auto", True)
PLAYED = Needs(ATTEMPTS)  # demonstrations are shown in an order of their own, and not scored
ToolSeconds = Annotated[Positive, Le(3600), Needs("tool", but="calculator")]
Graded = Annotated[Code, PLAYED]
Beside = Annotated[Code, Needs(ANSWERS)]
Weights = tuple[float, ...]
KindWeights = Annotated[dict[str, float], PLAYED]


@dataclass(frozen=True)
class TextConfig:
    rows: Count = 32  # prompts per rollout
    max_tokens: Count = 64  # longest completion; real GSM8K needs about 256
    chat: Literal["auto"] | bool = "auto"  # ask in turns, by the model's chat template; auto: where it has one
    system: Annotated[Words, TURNS] = ""  # system message; empty: the template's own
    prompt: Words | None = None  # prompt, with {question} in it; none: the question, in plain text with a line break
    shots: Annotated[int, Ge(0), Le(1000)] = 0  # worked examples from the train split that come before each question
    stop: tuple[Words, ...] = ()  # texts that end an answer, which is graded without them; commas between several
    chat_options: Annotated[dict[str, Any], TURNS] = field(default_factory=dict)  # further variables of the template
    reward: Graded = "correct"  # correct | model:RUN_FOLDER | ./mine.py:function | package.module:function; commas sum
    reward_weights: Annotated[Weights, PLAYED] = ()  # weight of each reward, as in [1,0.2]; empty: 1 each
    metrics: Beside = ""  # further metrics of evaluation: functions as in reward; commas between several
    curriculum: Annotated[Curriculum, PLAYED] = "none"  # success: draw kinds less that nearly always or never succeed
    tool: Annotated[str, Place("code")] = ""  # called by <<...= : calculator | ./mine.py:function | module:function
    tool_seconds: ToolSeconds = 2.0  # time limit of a call of a function of your own, in seconds
    judge: Annotated[str, Place("code"), Needs(PAIRS)] = ""  # ./mine.py:function | module:function: compares answers
    validation: Problems = 512  # size of the validation split; of a file at most a tenth of its rows; 0: none
    test: Problems = 1319  # size of the test split; without a test.jsonl at most a tenth of the file's rows


@dataclass(frozen=True)
class Grading:
    """How an environment's completions are graded.

    metric: what the rewards themselves measure; None: accuracy is, by the number that each answer ends in.
    scorers: the environment's own rewards, which env.reward=own means. They measure, whatever else is rewarded.
    beside: what else is measured.
    packages: of others, which make or score the problems.
    """

    metric: Literal["return", "accuracy"] | None = None
    scorers: tuple[Reward, ...] = ()
    beside: tuple[Reward, ...] = ()
    packages: tuple[str, ...] = ()


NUMBERS = Grading()


def text_env(
    config: TextConfig,
    problems: dict[str, list[Problem]],
    source: str,
    seed: int,
    device: str | torch.device,
    demonstrations: Callable[[Sequence[Problem]], Sequence[Problem]] | None = None,
    direct: float = 0.0,
    direct_from: float = 0.0,
    ceiling: tuple[str, ...] = (),
    grading: Grading = NUMBERS,
    weights: Mapping[str, float] | None = None,
) -> TextEnv:
    """The environment of these problems; worked examples that stand in every prompt are not trained on.

    Arguments:
        demonstrations: makes the worked answers to learn from, given those examples; none: the train split.
        direct, direct_from, ceiling: see `TextEnv`.
        weights: how often each kind of problem is drawn; none: each problem once before any comes again.
    """
    shots, problems["train"] = take_examples(problems["train"], config.shots, seed)
    rewards, factors = rewards_of(config, grading.scorers)
    return TextEnv(
        problems,
        rows=config.rows,
        seed=seed,
        device=device,
        max_tokens=config.max_tokens,
        rewards=rewards,
        weights=factors,
        prompt=asking(config, shots, problems),
        source=source,
        demonstrations=None if demonstrations is None else lambda: demonstrations(shots),
        direct=direct,
        direct_from=direct_from,
        ceiling=ceiling,
        measuring=replace(measuring(config, grading, rewards, factors), embedded=demonstrations is not None),
        mixture=mixture(config, problems["train"], seed, weights or {}),
        tool=load_tool(config.tool, config.tool_seconds) if config.tool else None,
    )


def tell_unfilled(prompt: str, problems: Mapping[str, Sequence[Problem]]) -> None:
    """Say in one line each which columns a prompt seems to ask for: only {question} is filled in."""
    for name in sorted({*re.findall(r"(?<![\w\\{$]){(\w+)}", prompt)} - {"question", "answer"}):
        if any(name in problem.columns for found in problems.values() for problem in found):
            warn(f"env.prompt has {{{name}}}, which stays as it is: only {{question}} is filled in, no column")


def asking(config: TextConfig, shots: tuple[Problem, ...], problems: Mapping[str, Sequence[Problem]]) -> Asking:
    """The prompt format: the text around a question."""
    tell_unfilled(config.prompt or "", problems)
    chat = None if config.chat == "auto" else config.chat
    return Asking(config.prompt, chat, config.system, shots, config.stop, config.chat_options)


def mixture(config: TextConfig, problems: Sequence[Problem], seed: int, weights: Mapping[str, float]) -> Mixture | None:
    """How the kinds of problems are mixed, where weights or a curriculum say so; without problems TextEnv refuses."""
    if not problems or (not weights and config.curriculum == "none"):
        return None
    return Mixture([problem.kind for problem in problems], seed, weights, config.curriculum)


def rewards_of(config: TextConfig, scorers: Sequence[Reward]) -> tuple[list[Reward], tuple[float, ...]]:
    """The reward functions and their weights; `own` stands for all of `scorers`."""
    names = [name.strip() for name in config.reward.split(",")]
    if scorers and names.count(OWN) > 1:
        raise UserError(f"env.reward={config.reward}: {OWN} is there twice; give each once")
    weights = weights_of(config, len(names)) or (1.0,) * len(names)
    others = ",".join(name for name in names if not (scorers and name == OWN))
    loaded = iter(load_rewards(others, learned) if others else [])
    each = [list(scorers) if scorers and name == OWN else [next(loaded)] for name in names]
    given = [(function, weight) for found, weight in zip(each, weights, strict=True) for function in found]
    return [function for function, _ in given], tuple(weight for _, weight in given)


def measuring(config: TextConfig, grading: Grading, rewards: Sequence[Reward], weights: Sequence[float]) -> Measuring:
    """The evaluation metrics: strict and flexible accuracy by number, or the rewards; then env.metrics.

    Where several rewards are measured, each has its own number: env.metrics adds none of them again.
    """
    measured = config.reward.split(",") if grading.metric is not None and len(rewards) > 1 else []
    own = [*grading.beside, *beside(config.metrics, [name.strip() for name in measured])]
    judge = load_judge(config.judge) if config.judge else None
    packages = (*grading.packages, *(("math-verify",) if BUILT_IN["math"] in (*rewards, *own) else ()))
    if grading.scorers:
        return Measuring(Rewards(grading.scorers), Rewards(own), "return", judge, packages)
    if grading.metric is not None:
        return Measuring(Rewards(rewards, weights), Rewards(own), grading.metric, judge, packages)
    graders = [each for each in (strict, flexible) if each not in own]
    return Measuring(beside=Rewards([*graders, *own]), judge=judge, packages=packages)


def beside(metrics: str, measured: Sequence[str]) -> list[Reward]:
    """The functions of env.metrics that are not measured anyway."""
    names = [name for name in metrics.split(",") if name.strip() not in measured]
    return load_rewards(",".join(names), learned, "env.metrics") if metrics and names else []


def weights_of(config: TextConfig, count: int) -> tuple[float, ...]:
    """The weight of each of `count` rewards."""
    if len(config.reward_weights) not in (0, count):
        raise UserError(
            f"env.reward_weights has {len(config.reward_weights)} numbers and env.reward={config.reward} {count} "
            f"rewards: give one number for each, as in env.reward_weights=[{','.join(['1'] * count)}]"
        )
    return config.reward_weights


def learned(folder: str) -> Reward:
    """The reward model of a run folder; language code is loaded only where one is asked for."""
    from rlkit.language.reward_model import learned_reward

    return learned_reward(folder)
