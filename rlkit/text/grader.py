r"""The built-in rewards for mathematics: 1 for the right answer, 0 for a wrong or missing one.

    strict     the number after the last `####`, on its line or the next line that is not empty
    flexible   the number in the last \boxed{}, else after the last `####`, else the last number of the text
    boxed      the content of the last \boxed{}: a number, or else the same expression, letter by letter
    math       the same answer as for flexible, as a number or else compared by the package math-verify
    correct    another name of flexible: the default

The reference answer is a worked answer that ends in `#### N` or a box, or only the result: a number, or for boxed and
math an expression. Numbers are compared exactly; only for math, if the right one is not whole, math-verify
rounds to six decimals.
"""

import re
from collections.abc import Callable, Sequence
from fractions import Fraction

from rlkit.text.reading import boxed as in_box
from rlkit.text.reading import (
    boxed_number,
    digits,
    expression,
    extract,
    gold,
    last_number,
    lone_number,
    marked,
    only_number,
    rewritten,
    short_power,
)
from rlkit.text.symbolic import Verifier

Graded = list[float | None]
VERIFIER = Verifier()
_MINUS = re.compile(r"(?i)\\text\s?\{\s?(?:minus|negative)\s?\}|\b(?:minus|negative)\b")  # math-verify drops words

_PERCENT = re.compile(r"\s*\\?%")
_UNREADABLE = re.compile(r"[ ^a-zA-Z]")


def score(completion: str, answer: str, strict: bool = False) -> float:
    """1.0 if the number of the completion equals that of the reference answer (18 and 18.0 are equal), else 0.0."""
    given = extract(completion, strict)
    return float(given is not None and given == gold(answer))


def correct(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[object], **columns: object) -> Graded:
    """The default reward: 1 for the right number in any accepted form."""
    return [score(given, str(right)) for given, right in zip(completions, answer, strict=True)]


def flexible(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[object], **columns: object) -> Graded:
    """The same as `correct`; the name that contrasts with `strict`."""
    return correct(prompts, completions, answer)


def strict(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[object], **columns: object) -> Graded:
    """1 for the right number after the last `####`."""
    return [score(given, str(right), strict=True) for given, right in zip(completions, answer, strict=True)]


def boxed(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[object], **columns: object) -> Graded:
    r"""1 for the right number in the last \boxed{}; if the reference is not a number, for the same expression."""
    return [float(_in_box(given, str(right))) for given, right in zip(completions, answer, strict=True)]


def math(prompts: Sequence[str], completions: Sequence[str], answer: Sequence[object], **columns: object) -> Graded:
    """1 for the right number in any accepted form, or if math-verify finds the answer equal to the reference answer."""
    pairs = [(expression(digits(str(right))), candidate(text)) for text, right in zip(completions, answer, strict=True)]
    return [float(given is not None and _same(right, given)) for right, given in pairs]


BUILT_IN: dict[str, Callable[..., Graded]] = {each.__name__: each for each in (correct, strict, flexible, boxed, math)}


def candidate(text: str) -> str | None:
    """The expression of a completion that is compared; None where there is none."""
    text = digits(text)
    if "\\boxed" in text:
        return in_box(text)
    line = marked(text)
    if line is not None:
        return line.strip() or None
    return last_number(text)


def _same(right: str, given: str) -> bool:
    both = short_power(right), short_power(given)
    number, other = map(_number, both)
    if number is not None and other is not None:  # else math-verify reads either as it is written
        if number == other:
            return True
        percents = "%" in right and "%" in given
        right, given = (_PERCENT.sub("", x) for x in both) if percents else both
    return VERIFIER([(_exact(right), _written(given))])[0]


def _number(expression: str) -> Fraction | None:
    """The number of an expression that is nothing else but a unit or a name; a closing period is ignored."""
    number = lone_number(expression)
    return only_number(expression) if number is None else number


def _written(expression: str) -> str:
    """An expression as math-verify reads it: to it, 3 1/2 is not 7/2, cm^2 a product, and words with a period one."""
    expression = _MINUS.sub("-", expression)
    number = rewritten(expression) if _UNREADABLE.search(expression) else None
    return expression.removesuffix(".") if number is None else number


def _exact(right: str) -> str:
    """The same of a reference answer, which is not rounded where it is whole."""
    number = _number(_MINUS.sub("-", right))
    whole = number is not None and number.denominator == 1 and "%" not in right
    return str(number) if whole else _written(right)


def gradable(name: str, answer: str) -> bool:
    """Whether a built-in reward can compare completions with this reference answer."""
    return bool(expression(answer)) if name in ("boxed", "math") else gold(answer) is not None


def _in_box(completion: str, answer: str) -> bool:
    content, right = in_box(completion), gold(answer)
    if content is None:
        return False
    return boxed_number(completion) == right if right is not None else _bare(content) == _bare(expression(answer))


def _bare(latex: str) -> str:
    """An expression without formatting commands."""
    latex = re.sub(r"\\(?:text|textbf|textit|textrm|mathrm|mbox)\s?\{([^{}]*)\}", r"\1", digits(latex))
    latex = re.sub(r"\\(?:left|right|displaystyle)(?![a-zA-Z])|\\[!,;:]|[\s$]", "", latex)
    return re.sub(r"\\[dt]frac(?![a-zA-Z])", r"\\frac", latex).removesuffix(".")
