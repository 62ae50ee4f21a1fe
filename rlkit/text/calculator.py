"""A calculator for arithmetic that never evaluates code: exact fractions, with limits on every size."""

import re
from fractions import Fraction

LONGEST = 200  # most characters of an expression
DIGITS = 30  # most digits of a number in an expression
BITS = 128  # most bits of a numerator or a denominator: 3·10^38
DEEPEST = 50  # most nested parentheses and signs
LARGEST_EXPONENT = 100
PLACES = 6  # decimals of a result

_TOKEN = re.compile(r"\s*(?:(\d{1,3}(?:,\d{3})+(?:\.\d+)?|\d+\.?\d*|\.\d+)|(\*\*|[-+*/^()%×÷]))", re.ASCII)
_SAME = {"×": "*", "÷": "/", "**": "^"}


class NoResult(ValueError):
    """The text is not arithmetic, or a number is too large."""


def calculate(text: str) -> str:
    """The value of an expression of numbers, + - * / ^ % and parentheses, as GSM8K writes it: 24, 0.5, -3.

    A value that needs more than six decimals is rounded to six. 20% is 0.2.

    Raises: NoResult for any other text, for a division by 0, and beyond the limits above.
    """
    if len(text) > LONGEST:
        raise NoResult(f"longer than {LONGEST} characters")
    reading = _Reading(text)
    value = reading.sum()
    if reading.tokens:
        raise NoResult(f"{reading.tokens[0]!r} is too much")
    return written(value)


def written(value: Fraction) -> str:
    """A number in digits, with at most six decimals."""
    scaled = round(value * 10**PLACES)
    whole, part = divmod(abs(scaled), 10**PLACES)
    decimals = f"{part:0{PLACES}d}".rstrip("0")
    return f"{'-' if scaled < 0 else ''}{whole}{'.' if decimals else ''}{decimals}"


class _Reading:
    """Recursive descent over the remaining tokens."""

    def __init__(self, text: str) -> None:
        self.tokens: list[str] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise NoResult(f"{text[at:].strip()[0]!r} is not arithmetic")
            self.tokens.append(_SAME.get(match[0].strip(), match[0].strip()))
            at = match.end()
        self.depth = 0

    def next(self, *allowed: str) -> str:
        """Consume the next token if it is one of these, and return it; else return ""."""
        return self.tokens.pop(0) if self.tokens and self.tokens[0] in allowed else ""

    def sum(self) -> Fraction:
        self.depth += 1
        if self.depth > DEEPEST:
            raise NoResult("too deep")
        value = self.product()
        while sign := self.next("+", "-"):
            other = self.product()
            value = bounded(value + other if sign == "+" else value - other)
        self.depth -= 1
        return value

    def product(self) -> Fraction:
        value = self.signed()
        while sign := self.next("*", "/"):
            other = self.signed()
            if sign == "/" and not other:
                raise NoResult("division by 0")
            value = bounded(value * other if sign == "*" else value / other)
        return value

    def signed(self) -> Fraction:
        """-2^2 is -4, as in mathematics."""
        signs = 0
        while sign := self.next("-", "+"):
            signs += sign == "-"
        value = self.power()
        return -value if signs % 2 else value

    def power(self) -> Fraction:
        base = self.number()
        if not self.next("^"):
            return base
        self.depth += 1  # 2^2^2^...
        if self.depth > DEEPEST:
            raise NoResult("too deep")
        exponent = self.signed()
        self.depth -= 1
        if exponent.denominator != 1 or abs(exponent) > LARGEST_EXPONENT or (not base and exponent < 0):
            raise NoResult("an exponent is a whole number of at most 100")
        size = max(base.numerator.bit_length(), base.denominator.bit_length())
        if size * abs(exponent) > 2 * BITS:
            raise NoResult("too large")
        return bounded(base ** int(exponent))

    def number(self) -> Fraction:
        if self.next("("):
            value = self.sum()
            if not self.next(")"):
                raise NoResult("a parenthesis is open")
        elif self.tokens and (self.tokens[0][0].isdigit() or self.tokens[0][0] == "."):
            token = self.tokens.pop(0).replace(",", "")
            if sum(map(str.isdigit, token)) > DIGITS:
                raise NoResult(f"more than {DIGITS} digits")
            value = Fraction(token)
        else:
            raise NoResult("a number is missing")
        while self.next("%"):
            value = bounded(value / 100)
        return value


def bounded(value: Fraction) -> Fraction:
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > BITS:
        raise NoResult("too large")
    return value
