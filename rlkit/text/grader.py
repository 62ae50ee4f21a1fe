"""Reads the number that a worked answer ends in and says whether it is the right one. Exact, without tolerance."""

import re
from fractions import Fraction

from rlkit.text.problems import MARKER

_DIGITS = r"(?:[0-9]{1,3}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+"
_NUMBER = re.compile(
    # A minus is a sign where it can be neither subtraction nor hyphen: "-5", "is - 5", not "9-5", "9 - 5", "top-5".
    r"(?P<sign>(?<![\w.)\]%])(?<![0-9)\]%]\s)[-−–]\s{0,2})?"
    r"\\?[$€£]?\s{0,2}(?P<sign_after>(?<=[$€£])[-−–])?"
    r"(?:(?P<whole>[0-9]{1,9})\s(?=[0-9]{1,9}/[0-9]))?"
    rf"(?P<number>{_DIGITS})"
    r"(?P<exponent>[eE][+-]?[0-9]{1,2}(?![\w.]))?(?:\s?/\s?(?P<denominator>[0-9]+(?:\.[0-9]+)?))?"
)
_LONGEST = 100  # digits; what is longer is no answer, and reading it would be slow


def _value(match: re.Match[str]) -> Fraction | None:
    if match.end() - match.start() > _LONGEST:
        return None
    value = Fraction(match["number"].replace(",", "") + (match["exponent"] or ""))
    if match["denominator"]:
        below = Fraction(match["denominator"])
        if below == 0:
            return None
        value /= below
    value += Fraction(match["whole"] or 0)
    return -value if match["sign"] or match["sign_after"] else value


def extract(text: str, strict: bool = False) -> Fraction | None:
    """The answer that a text gives: the first number on the line of its last `####`; what stands before is not read.

    Without a marker it is the last number of the text, or None when `strict`. Read as numbers: 1,234 (commas in groups
    of three only), $5, 5 €, -5, −5, - 5, 2.50, .5, 1/2, 1 1/2, 1e3; units, % and a closing period are ignored.
    """
    _, marker, end = text.rpartition(MARKER)
    if marker:
        match = _NUMBER.search(end.split("\n", 1)[0])
        return _value(match) if match else None
    if strict:
        return None
    numbers = list(_NUMBER.finditer(text))
    return _value(numbers[-1]) if numbers else None


def score(completion: str, answer: str, strict: bool = False) -> float:
    """1.0 when the completion's number equals that of the worked answer (18 and 18.0 are equal), else 0.0."""
    given = extract(completion, strict)
    return float(given is not None and given == extract(answer))


def correct(prompts: list[str], completions: list[str], answer: list[str], **columns: object) -> list[float | None]:
    """The default reward function: 1 for the right number, 0 for any other and for none."""
    return [score(given, wanted) for given, wanted in zip(completions, answer, strict=True)]
