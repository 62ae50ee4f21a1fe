r"""Reads the answer of a text, a number or an expression. Exact, without tolerance.

A text has only one answer: in the last \boxed{}, after the last `####`, or as its last number. So several guesses are
worth no more than one.
"""

import re
import unicodedata
from decimal import Decimal
from fractions import Fraction

from rlkit.text.problems import MARKER

_DIGITS = r"(?:[1-9][0-9]{0,2}(?:,[0-9]{3})+(?![0-9])|[0-9]+)(?:\.[0-9]+)?|(?<![a-zA-Z])\.[0-9]+"
_MONEY = "$€£¥₹₩₽"
_UNSPACED = "\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af"  # letters of scripts without hyphens: 答案是-5
_NUMBER = re.compile(
    # A minus is a sign where it can be neither subtraction nor hyphen: "-5", "is - 5", not "9-5", "9 - 5", "top-5".
    rf"(?P<sign>(?<![^\W{_UNSPACED}])(?<![.)\]%])(?<![0-9)\]%]\s)[-−–]\s{{0,2}})?"
    rf"\\?[{_MONEY}]?\s{{0,2}}(?P<sign_after>(?<=[{_MONEY}])[-−–])?"
    r"(?:(?P<whole>[0-9]{1,9})[^\S\n]{1,2}(?=[0-9]{1,9}/[0-9]))?"
    rf"(?P<number>{_DIGITS})"
    rf"(?P<exponent>[eE][+-]?[0-9]{{1,2}}(?!\w|\.\w))?(?:\s?/\s?(?P<denominator>{_DIGITS}))?"
)
_HEADING = re.compile(rf"(?i){MARKER}(?=[^\w\n]{{0,4}}(?:step|part|case|method|phase|section)\b)")  # #### Step 3: add
_LONGEST = 100  # digits; longer numbers are not answers, and slow to read
_BOX = "\\boxed"
_LETTERS = "alpha|beta|gamma|theta|lambda|omega|phi|pi"  # names of variables and constants
_SHORT = "[mcdkn]?m|[mkµ]?g|[mcd]?l|in|ft|yd|mi|lbs?|oz|gal|qt|cup|k?wh?|k?j|k?pa|[kmg]?hz|[kmgt]b|hrs?|min|secs?|ms"
_SHORT += "|[ap]m|st|nd|rd|th|mph|km?h|kph|usd|eur|gbp|pts?|pcs?|cal|mol|deg|rad|ppm"
# Characters beside a number that make it part of something else, such as 2x, 2 xy, √2 or a range.
_BESIDE = re.compile(
    r"[\\^_{}!+*<>|~±√∞÷×·⋅≤≥≠−–-]|\d|(?<![^\W\d_])[^\W\d_](?=#)|#[^\W\d_](?![^\W\d_])"
    rf"|#(?!(?i:{_SHORT})(?![^\W\d_]))[a-zA-Z]{{2,3}}(?![^\W\d_])"
    r"|#\s+(?:[bcefi-kn-rt-zXYZ](?!\.m)|a(?!\s+\w|\.m)|[x-zX-Z]{2,3})(?![^\W\d_])"
    r"|(?<![^\W\d_])/|/(?![^\W\d_])"  # km/h is a unit
    r"|\b(?i:minus|negative)\s?#"  # minus 5 is not the number 5
    rf"|\b(?:sqrt|sin|cos|tan|log|ln|exp)\s?\(?\s?#|#\s?(?:sqrt|sin|cos|tan|log|ln|exp|{_LETTERS})(?![^\W\d_])"
)
# What stands before or after a number that is only a part: 10^2, 10², 2*10^3, 5-6, 3,5, 3:30, 1 234, 2π, √4, x_1.
_POWER_BEFORE, _POWER_AFTER = re.compile(r"(?:\^\s?[({]?|\b(?i:negative)\s?)[-−]?$"), re.compile(r"[¹²³⁰⁴-⁹⁻]")
_PART_BEFORE = re.compile(
    r"\b(?i:minus|negative)\s?$|[-−]\s?\($|[≤≥±]\s?$"
    r"|(?:√|sqrt(?:\[|(?:\[[^]]*\])?\s?[({])?|(?<=[a-zA-Z])_\{?|\^|\\[dtc]?frac.*)\s?[({]?[-−]?$"
)
_PART_AFTER = re.compile(
    r"\s?\^|\*\*[0-9]|[¹²³⁰⁴-⁹⁻]|[,.:'’_][0-9]|[^\S\n][0-9]{3}(?![0-9])"
    r"|[^\S\n]?(?:[-−–+*×·÷x]|\\times|\\cdot)[^\S\n]?\\?\$?[0-9]"
    r"|\s?(?:x?[πyz](?![^\W\d_])|√|\\(?:pi|sqrt))"
)
_MINUEND = re.compile(r"(?<![^\W\d_])[^\W\d_]\s*$")  # a variable before a minus: x - 5 is not the number -5
_ENCLOSED = re.compile(r"[(\[]\s*#\s*[)\]]")  # with a comma within, it is a pair: (3,100) is a point or an interval
_FRACTION = re.compile(
    r"\\[dtc]?frac\s{0,2}(?:\{\s{0,2}([-+]?[0-9.,]{1,30})\s{0,2}\}|([0-9]))"
    r"\s{0,2}(?:\{\s{0,2}([0-9.,]{1,30})\s{0,2}\}|([0-9]))"
)
_WORDS = re.compile(r"\\(?:text|textbf|textit|textrm|mathrm|mathbf|mbox|emph)\s?\{([^{}]*)\}(?:\^\{?-?[123]\}?)?")
_UNIT = r"[kcdm]?m|in|ft|yd|mi|units?|inches|feet|yards|miles|(?:centi|kilo|milli)?met(?:er|re)s|(?<=/)s"
_POWER = re.compile(rf"(?<![^\W\d_\\])({_UNIT})\^(?:[23]|\{{[23]\}})(?![0-9])")  # 18 cm^2
_SPACING = re.compile(r"\\(?:left|right|displaystyle|quad|qquad)(?![a-zA-Z])|\\[!,;:\s()\[\]]|~")
_DEGREES = re.compile(r"\^?\{?\\(?:circ|degree)\}?(?![a-zA-Z])")
_GROUPED = re.compile(r"(?<![0-9.,])[1-9][0-9]{0,2}(?:[\u00a0\u2009\u202f’][0-9]{3})+(?![0-9])")  # 1 234 567
# A power of ten, maybe with a factor and a unit, where runs of spaces are one space.
_OF_TEN = re.compile(
    rf"(?P<sign>[-+−–]?) ?(?:(?P<factor>{_DIGITS}) ?(?:\\times|\\cdot|[×·⋅*]) ?)?10 ?"
    r"(?:\^ ?(?P<plain>[-+−–]?[0-9]{1,2})|\^ ?\{ ?(?P<braced>[-+−–]? ?[0-9]{1,2}) ?\}|(?P<raised>[⁻⁺]?[⁰¹²³⁴-⁹]{1,2}))"
    r"(?P<unit> ?\\(?:text|mathrm)\{[^{}]*\}| [a-zA-ZµΩ]{1,5}(?:/[a-zA-Z]{1,5})?)?"
)
# Separators of Arabic numbers, the slash of fractions, and hyphens that are written for a minus.
_SIGNS = {0x066B: ".", 0x066C: ",", 0x2044: "/", **dict.fromkeys((0x2010, 0x2011, 0xFE63, 0xFF0D), "-")}


def extract(text: str, strict: bool = False) -> Fraction | None:
    r"""The number that is the answer: in the last \boxed{}, else after the last `####`, else the last one.

    strict: only after the last `####`. After a marker, the answer is the first number on its line; without one there,
    on the next line that is not empty. A box holds one number, with at most a unit and a name. If the last box or
    marker has no number, the text has no answer. It has none, too, where the number is part of another expression, as
    in 10², 5-6, 3,5 or 3:30 after a marker.

    Accepted: 1,234 (commas in groups of three only), $5, 5 €, -5, −5, - 5, 2.50, .5, 1/2, 1 1/2, 1½, \frac{1}{2}, 1e3,
    and digits of other scripts; units such as kg or cm^2, % and a final period are ignored.
    """
    text = digits(text)
    if not strict and _BOX in text:
        return boxed_number(text)
    line = marked(text)
    if line is not None:
        match = _NUMBER.search(plain(line))
        return None if match is None or _is_part(match, _PART_BEFORE, _PART_AFTER) else _value(match)
    if strict:
        return None
    match = _last(text)
    return None if match is None else _value(match)


def last_number(text: str) -> str | None:
    """The last number of a text, as math-verify reads it."""
    return _text(_last(digits(text)))


def boxed_number(text: str) -> Fraction | None:
    r"""The number in the last \boxed{}; None where the box holds anything else."""
    content = boxed(digits(text))
    return None if content is None else only_number(content)


def only_number(text: str) -> Fraction | None:
    """The number in a text with only one, and at most a unit and a name: `18`, `x = 18`, `$18`, `18 kg`."""
    match = _only(text)
    return None if match is None else _value(match)


def lone_number(text: str) -> Fraction | None:
    """The number of a text that is nothing else: `18`, `$18.`, `**18**`, `3 1/2`."""
    match = _lone(text)
    return None if match is None else _value(match)


def rewritten(text: str) -> str | None:
    """The number in such a text, as math-verify reads it: 2.5 for `2.5 kg`, 7/2 for `3 1/2`."""
    alone = _text(_lone(text))
    return _text(_only(text)) if alone is None else alone


def short_power(text: str) -> str:
    r"""An expression with 1.6e-19 for 1.6 \times 10^{-19}, and 1e-3 for 10^{-3}; any other as it is."""
    if len(text) > _LONGEST:
        return text
    found = _OF_TEN.fullmatch(re.sub(r"\s+", " ", _SPACING.sub(" ", text)).strip(" $*").removesuffix("."))
    if found is None:
        return text
    power = unicodedata.normalize("NFKC", found["plain"] or found["braced"] or found["raised"])
    number = f"{found['sign']}{found['factor'] or 1}e{re.sub('[−–]', '-', power).replace(' ', '')}"
    return f"{number} {found['unit'].strip()}" if found["unit"] else number


def _last(text: str) -> re.Match[str] | None:
    numbers = list(_NUMBER.finditer(plain(text)))
    return None if not numbers or _is_part(numbers[-1], _POWER_BEFORE, _POWER_AFTER) else numbers[-1]


def _only(text: str) -> re.Match[str] | None:
    text = plain(digits(text)).strip().removeprefix("+")
    found = list(_NUMBER.finditer(text))
    if len(found) != 1:
        return None
    before, after = text[: found[0].start()], text[found[0].end() :]
    if found[0]["sign"] and _MINUEND.search(before):
        return None
    around = f"{before}#{after}"
    pair = "," in found[0]["number"] and _ENCLOSED.search(around)
    return None if pair or _BESIDE.search(around) else found[0]


def _lone(text: str) -> re.Match[str] | None:
    return _NUMBER.fullmatch(plain(digits(text)).strip(" $*").removesuffix("."))


def gold(answer: str) -> Fraction | None:
    """The number of a worked answer, with its marker or box, or of an answer that is only a number."""
    return extract(answer) if MARKER in answer or _BOX in answer else only_number(answer)


def boxed(text: str) -> str | None:
    r"""The content of the last \boxed{}, with balanced braces; None where there is no box, or it is not closed."""
    start = text.rfind(_BOX)
    opened = re.compile(r"\s{0,2}\{").match(text, start + len(_BOX)) if start >= 0 else None
    if opened is None:
        return None
    depth, at = 1, opened.end()
    while at < len(text) and depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 2 if text[at] == "\\" else 1  # escaped braces \{ and \} are content and do not close the box
    return None if depth else text[opened.end() : at - 1]


def marked(text: str) -> str | None:
    """The line of the last `####`; if it has no number, the next line that is not empty. Headings do not count."""
    _, marker, end = _HEADING.sub("", text).rpartition(MARKER)
    if not marker:
        return None
    own, *rest = end.split("\n")
    following = next((line for line in rest if line.strip()), "")
    return own if _NUMBER.search(own) or not following else following


def expression(text: str) -> str:
    """The result of a worked answer, as written: in its last box, else after its marker, else all of it."""
    found = boxed(text)
    found = marked(text) if found is None else found
    return (text if found is None else found).strip()


def plain(text: str) -> str:
    r"""A text without the LaTeX around its numbers: \frac{1}{2} is 1/2, \text{kg} is kg; without powers of units."""
    if "\\" not in text and "{" not in text:
        return _POWER.sub(r"\1", text)
    text = re.sub(r"(?<=[0-9])(?:\{,\}|\\,)(?=[0-9])", ",", text.replace("\\approx", "≈"))
    text = _POWER.sub(r"\1", _WORDS.sub(r" \1 ", text))
    text = _SPACING.sub("", _DEGREES.sub("", text))
    text = re.sub(r"\\(?=[$%&])", "", _FRACTION.sub(_slashed, text.replace(_BOX, "")))
    return text if re.search(r"[\\^_]", text) else re.sub("[{}]", " ", text)


def digits(text: str) -> str:
    """A text with the digits of all scripts as 0 to 9, a fraction of one character as ` 1/2`, and ASCII signs."""
    if text.isascii():
        return text
    table: dict[int, str] = dict(_SIGNS)
    for x in set(text):
        if x.isdecimal():
            table[ord(x)] = str(unicodedata.decimal(x))
        elif unicodedata.decomposition(x).startswith("<fraction>"):
            table[ord(x)] = " " + unicodedata.normalize("NFKC", x).replace("\u2044", "/")
    return _GROUPED.sub(lambda found: re.sub("[^0-9]", ",", found[0]), text.translate(table))


def _slashed(fraction: re.Match[str]) -> str:
    """1/2 for a fraction in LaTeX; a letter behind it stays beside it, so that it remains a factor."""
    above, below = fraction[1] or fraction[2], fraction[3] or fraction[4]
    return f" {above}/{below}" + ("" if fraction.string[fraction.end() :][:1].isalpha() else " ")


def _is_part(match: re.Match[str], before: re.Pattern[str], after: re.Pattern[str]) -> bool:
    """Whether the number of a text is only a part of an expression, by what stands before and after it."""
    start, end = match.span()
    return bool(after.match(match.string, end) or before.search(match.string[max(0, start - 100) : start]))


def _value(match: re.Match[str]) -> Fraction | None:
    if match.end() - match.start() > _LONGEST:
        return None
    value = Fraction(match["number"].replace(",", "") + (match["exponent"] or ""))
    if match["denominator"]:
        below = Fraction(match["denominator"].replace(",", ""))
        if below == 0:
            return None
        value /= below
    value += Fraction(match["whole"] or 0)
    return -value if match["sign"] or match["sign_after"] else value


def _text(match: re.Match[str] | None) -> str | None:
    """The number as math-verify reads it, which rounds a decimal to six digits, and compares a fraction exactly.

    A number with an exponent is a fraction here, as most of these are too small for six digits; so are whole numbers.
    """
    value = None if match is None else _value(match)
    if match is None or value is None:
        return None
    if match["whole"] or match["denominator"] or match["exponent"] or value.denominator == 1:
        return str(value)
    return f"{'-' if value < 0 else ''}{Decimal(match['number'].replace(',', '')):f}"
