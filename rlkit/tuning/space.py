"""The search space: ranges from the types of fields, from common names, and from the command line."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, get_type_hints

from rlkit.comparison import rows
from rlkit.errors import UserError
from rlkit.fields import AGAIN, Choose, Search
from rlkit.settings import schema
from rlkit.settings.sections import Sections

if TYPE_CHECKING:
    from optuna.distributions import BaseDistribution

Keys = dict[str, str]
Mark = Search | Choose
USUAL: dict[str, Mark] = {  # for fields of an algorithm without a range in their type
    "lr": Search(1e-5, 1e-2, log=True),
    "gamma": Choose(0.9, 0.95, 0.98, 0.99, 0.995, 0.999),
    "gae_lambda": Search(0.8, 1.0),
    "entropy_coef": Choose(0.0, 1e-4, 1e-3, 0.01, 0.03),
}
NUMBER = r"[-+]?[\d.]+(?:[eE][-+]?\d+)?"
BETWEEN = re.compile(rf"\s*({NUMBER})\s*\.\.\s*({NUMBER})\s*(?::(log|linear))?\s*")
DIGITS = 4  # significant digits of numbers in a trial


@dataclass(frozen=True)
class Between:
    """All numbers from low to high."""

    low: float
    high: float
    log: bool = False
    whole: bool = False

    def distribution(self) -> "BaseDistribution":
        from optuna import distributions

        if self.whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)

    def text(self, value: object) -> str:
        """A number as text for a run, rounded to a few digits."""
        number = float(str(value))
        narrow = math.log10(max(abs(self.low), abs(self.high)) / (self.high - self.low))  # 0.99..0.999 takes more
        short = float(f"{number:.{DIGITS + max(0, math.floor(narrow))}g}")
        return str(int(number)) if self.whole else schema.show(min(max(short, self.low), self.high))

    def value(self, text: str) -> int | float | None:
        """Optuna's value for a text; None where it is outside of the range."""
        try:
            number = float(text)
        except ValueError:  # for example none
            return None
        return (int(number) if self.whole else number) if self.low <= number <= self.high else None

    def other(self, text: str) -> str:
        """A value other than this one."""
        return next(end for end in map(self.text, (self.low, self.high)) if end != text)

    def __str__(self) -> str:
        return f"{schema.show(self.low)}..{schema.show(self.high)}{':log' if self.log else ''}"


@dataclass(frozen=True)
class Among:
    """A choice of values, as texts."""

    values: tuple[str, ...]

    def distribution(self) -> "BaseDistribution":
        from optuna import distributions

        return distributions.CategoricalDistribution(self.values)

    def text(self, value: object) -> str:
        return str(value)

    def value(self, text: str) -> str | None:
        return text if text in self.values else None

    def other(self, text: str) -> str:
        """A value other than this one."""
        return next(value for value in self.values if value != text)

    def __str__(self) -> str:
        return (";" if any("," in value for value in self.values) else ",").join(self.values)


Range = Between | Among


def asked(key: str, text: str, algo: str, env: str, declared: Mapping[str, Range]) -> Range | None:
    """The range that a key of the command line asks for; None where the key has one value.

    LOW..HIGH, LOW..HIGH:log, LOW..HIGH:linear, or VALUE,VALUE (`;` where a comma belongs to a value, as in
    `rlkit.compare`).
    """
    hint = rows.hint_of(key, [algo], [env])
    found = BETWEEN.fullmatch(text)
    if hint is None or key == rows.PRESET:
        return None  # the run reports that there is no such key, or no such preset
    if found and {int, float} & set(schema.members(hint)):
        made: Range = between(key, found, hint, declared.get(key))
    else:
        values = rows.alternatives(key, text, [algo], [env])
        if len(values) < 2:
            return None
        made = Among(tuple(values))
    if key.count(".") != 1 or not rows.makes_rows(key):
        raise UserError(
            f"{key}={text}: what is searched are algo.KEY, policy.KEY, env.rows and env.luck: give one value"
        )
    return made


def between(key: str, found: "re.Match[str]", hint: schema.Hint, declared: Range | None) -> Between:
    """A range of the command line, checked against the field."""
    ends = [schema.validate(key, schema.Typed(found[i]), hint) for i in (1, 2)]
    low, high = (float(end) for end in ends if isinstance(end, int | float))
    log = found[3] == "log" or (found[3] is None and isinstance(declared, Between) and declared.log)
    if not low < high or math.isinf(high - low):
        raise UserError(f"{key}={found[0]} is not a range: give LOW..HIGH, with LOW below HIGH")
    if log and low <= 0:
        raise UserError(
            f"{key}={found[0]} has no logarithm at its lower end: begin above 0, or give {key}=LOW..HIGH:linear"
        )
    return Between(low, high, log, float not in schema.members(hint))


def declared(classes: Mapping[str, type], usual: Sections) -> dict[str, Range]:
    """The ranges declared by the types of fields and by common names, by key; each includes the default value.

    Arguments:
        classes: the dataclasses behind the keys of algo, env and policy.
        usual: the default configuration, by section.
    """
    found = {}
    for section, cls in classes.items():
        hints = get_type_hints(cls, include_extras=True)
        for name in schema.settable(cls):
            marks = [mark for mark in schema.metadata(hints[name]) if isinstance(mark, Search | Choose)]
            mark = marks[0] if marks else USUAL.get(name) if section == "algo" else None
            if mark is not None:
                check(f"{section}.{name}", mark)
                made = widened(mark, hints[name], usual[section][name])
                check_texts(f"{section}.{name}", made, hints[name])
                found[f"{section}.{name}"] = made
    return {key: made for key, made in found.items() if isinstance(made, Between) or len(made.values) > 1}


def check(key: str, mark: Mark) -> None:
    """Refuse a range of somebody's own type that is none."""
    if isinstance(mark, Choose):
        return
    numbers = all(isinstance(end, int | float) for end in (mark.low, mark.high))
    if not numbers or not -math.inf < mark.low < mark.high < math.inf or (mark.log and mark.low <= 0):
        log = ", log=True" if mark.log else ""
        raise UserError(
            f"{key}: Search({mark.low}, {mark.high}{log}) in its type is not a range: give numbers, the lower one "
            "first; with log=True both above 0"
        )


def check_texts(key: str, made: Range, hint: schema.Hint) -> None:
    """Refuse texts that the comparison on fresh seeds would part, and so measure other values than were found."""
    parts = [x for x in made.values if "," in x] if isinstance(made, Among) else []
    if parts and rows.separator_of(key, hint) == ",":
        raise UserError(f"{key}={parts[0]} is a text with a comma, which would be two values: search texts without one")


def widened(mark: Mark, hint: schema.Hint, usual: object) -> Range:
    """A declared range, extended to include the default value."""
    if isinstance(mark, Choose):
        return Among(tuple(dict.fromkeys([*map(schema.show, mark.values), schema.show(usual)])))
    ends = [mark.low, mark.high]
    if isinstance(usual, int | float) and (usual > 0 or not mark.log) and math.isfinite(usual):
        ends.append(float(usual))
    return Between(min(ends), max(ends), mark.log, float not in schema.members(hint))


def fruitless(key: str, cls: type, usual: Sections, facts: Mapping[str, object], searched: Sequence[str]) -> bool:
    """Whether a key has no effect in any trial: it needs another key, which is not searched, to have another value."""
    section, _, name = key.partition(".")
    for need in schema.needs(get_type_hints(cls, include_extras=True)[name]):
        moves = {need.key, need.unlike} & {other.partition(".")[2] for other in searched if other.startswith(section)}
        if need.key != AGAIN and not moves and not need.met({**usual[section], **facts}):
            return True
    return False


def texts(space: Mapping[str, Range], params: Mapping[str, object]) -> Keys:
    """The texts of Optuna's values, as keys of a run."""
    return {key: space[key].text(value) for key, value in params.items()}
