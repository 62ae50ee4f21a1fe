"""Types of configuration fields; a value outside the range is refused with one line."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt


class Boundless:
    """Mark of a field's type: infinity, or an integer of any size, is allowed. Otherwise these are refused."""


class Needs:
    """Mark of a field's type: the key has an effect only if another key of its section has one of these values.

    Without values: if that is not none, false, 0 or empty, and not `but`; `unlike`: if it differs from that key.
    A phrase instead of a key is a condition that the check knows, such as `CONTROL`. See `rlkit.settings.idle`.
    """

    def __init__(self, key: str, *values: object, unlike: str = "", but: object = "") -> None:
        self.key, self.values, self.unlike, self.but = key, values, unlike, but

    def met(self, facts: Mapping[str, object]) -> bool:
        """Whether the keys (and phrases) fulfill the condition."""
        value = facts[self.key]
        if self.unlike:
            return value != facts[self.unlike]
        return value in self.values if self.values else bool(value) and value != self.but


class Escapes:
    """Mark of a field's type: on a command line, \\n in it is a line break, \\t a tab and \\\\ one backslash."""


class Several:
    """Mark of a field's type: a text that may hold several names, separated by commas."""


class Search:
    """Mark of a field's type: rlkit.tune searches numbers from low to high, on a log scale if `log` is set."""

    def __init__(self, low: float, high: float, log: bool = False) -> None:
        self.low, self.high, self.log = low, high, log


class Choose:
    """Mark of a field's type: rlkit.tune searches these values."""

    def __init__(self, *values: object) -> None:
        self.values = values


CONTROL = "a control environment"
PLAYED = "an algorithm that plays, as all do but value_iteration and policy_iteration"
GROUPS = "an algorithm that plays several attempts from each start"
PAIRS = "an algorithm that makes pairs of its attempts, such as dpo, with an even algo.group"
DEMONSTRATIONS = "an algorithm that learns from demonstrations, such as sft"
ATTEMPTS = "an algorithm that attempts problems, as all do but sft"
ASKED = "an algorithm that attempts problems, as all do but sft, or env.shots"
SIDES = "an algorithm that learns from both sides of a pair, as all do but sft"
ANSWERS = "an algorithm that trains what answers, as all do but reward_model"
INEXACT = "policy.dtype=bfloat16 or policy.engine=vllm on text"  # its probabilities differ from the learner's
WEIGHED = "an algorithm with algo.sampler_cap, such as grpo and ppo"  # older weights are other probabilities
EXPLORES = "algo.epsilon_end, or algo.epsilon with algo.epsilon_decay"  # else no action is random
AGAIN = "algo.epochs or algo.minibatches above 1"  # the first update after a rollout finds every ratio at 1

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Decay = Annotated[float, Gt(0), Lt(1)]
Limit = Annotated[float, Gt(0), Boundless()]  # inf: no limit
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Problems = Annotated[int, Ge(0), Le(100_000)]  # problems or pairs that are generated or held out
Episodes = Annotated[int, Ge(1), Le(10**6)]  # of one evaluation
Seed = Annotated[int, Ge(0), Boundless()]
Words = Annotated[str, Escapes()]  # a text for a model
Copies = Annotated[Count, Needs(PLAYED)]  # of a problem whose model is known
Schedule = Literal["constant", "linear"]
Switch = Annotated[bool, Choose(False, True)]


@dataclass(frozen=True)
class Place:
    """Mark of a field whose text names something outside the project.

    The text becomes absolute in config.yaml, `resume` notices changes of it, and code needs trust.
    """

    kind: Literal["file", "folder", "code", "output"]  # output: a folder that one run writes
    words: tuple[str, ...] = ()  # texts that are not names of files, such as tiny
    beside: tuple[str, ...] = ()  # files that are read with it if they are beside it
    models: bool = False  # code: model:FOLDER holds weights; without this it is a module called model
    ending: str = ""  # if given, a text without it and without a folder is a word, even if a file has that name

    def word(self, text: str) -> bool:
        """Whether a text has a meaning of its own and names no file."""
        return text in self.words or bool(self.ending and not text.endswith(self.ending) and not os.path.dirname(text))


File = Annotated[str, Place("file")]
Folder = Annotated[str, Place("folder")]  # with a model: config.json, *.safetensors
Output = Annotated[str, Place("output")]  # a folder that one run writes, which need not be there
Code = Annotated[str, Place("code", models=True), Several()]  # FILE.py:NAME, MODULE:NAME or model:FOLDER
