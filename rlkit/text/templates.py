"""The thirteen kinds of embedded word problems: each function draws the numbers and the words of one problem."""

import random
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

T = TypeVar("T")
NAMES = (
    "Mia", "Sam", "Ella", "Ben", "Ada", "Leo", "Ivy", "Max",
    "Nora", "Tom", "Ruth", "Omar", "Lily", "Jack", "Zoe", "Hugo",
)  # fmt: skip
OBJECTS = ("apples", "pens", "cups", "books", "cards", "shells", "stamps", "balls", "coins", "kites", "roses", "plums")


class Draw(random.Random):
    """A named generator; only `random()` is used, the one method whose stream Python promises never to change."""

    def number(self, low: int, high: int) -> int:
        """A whole number from low to high, both included."""
        return low + int(self.random() * (high - low + 1))

    def pick(self, choices: Sequence[T]) -> T:
        return choices[int(self.random() * len(choices))]

    def two(self, choices: Sequence[T]) -> tuple[T, T]:
        """Two different choices."""
        first = int(self.random() * len(choices))
        second = int(self.random() * (len(choices) - 1))
        return choices[first], choices[second + (second >= first)]


def _work(left: int, sign: str, right: int) -> tuple[int, str]:
    """The result and GSM8K's annotation of one operation: 2 * 6 is 12, `<<2*6=12>>12`."""
    value = {"+": left + right, "-": left - right, "*": left * right, "/": left // right}[sign]
    return value, f"<<{left}{sign}{right}={value}>>{value}"


Worked = tuple[str, list[str], int]  # question, worked steps, answer


def _chain(draw: Draw) -> Worked:
    name, friend = draw.two(NAMES)
    things = draw.pick(OBJECTS)
    have = draw.number(2, 20)
    question, steps = [f"{name} has {have} {things}."], []
    for event in range(draw.number(1, 2)):
        gain = draw.random() < 0.5 or have < 4
        amount = draw.number(2, 20 if gain else min(20, have - 2))
        if gain:
            verb = draw.pick((f"{name} buys", f"{name} finds", f"{friend} gives {name}")) + f" {amount} more."
        else:
            verb = f"{name} " + draw.pick((f"loses {amount}.", f"sells {amount}.", f"gives {amount} to {friend}."))
        question.append(f"Then {verb}" if event else verb)
        have, work = _work(have, "+" if gain else "-", amount)
        steps.append(f"{name} has {work} {things}.")
    question.append(f"How many {things} does {name} have now?")
    return " ".join(question), steps, have


def _items(draw: Draw) -> Worked:
    name, (first, second) = draw.pick(NAMES), draw.two(OBJECTS)
    a, b, c, d = draw.number(2, 8), draw.number(2, 9), draw.number(2, 8), draw.number(2, 9)
    one, work = _work(a, "*", b)
    two, other = _work(c, "*", d)
    total, total_work = _work(one, "+", two)
    question = (
        f"{name} buys {a} {first} for {b} dollars each and {c} {second} for {d} dollars each. "
        f"How many dollars does {name} pay?"
    )
    steps = [f"The {first} cost {work} dollars.", f"The {second} cost {other} dollars."]
    return question, [*steps, f"{name} pays {total_work} dollars."], total


def _times(draw: Draw) -> Worked:
    (name, friend), things = draw.two(NAMES), draw.pick(OBJECTS)
    have, times = draw.number(2, 12), draw.number(2, 9)
    value, work = _work(times, "*", have)
    question = f"{name} has {have} {things}. {friend} has {times} times as many {things} as {name}."
    steps = [f"{friend} has {work} {things}."]
    if draw.random() < 0.4:
        return f"{question} How many {things} does {friend} have?", steps, value
    value, work = _work(have, "+", value)
    return f"{question} How many {things} do they have together?", [*steps, f"They have {work} {things}."], value


def _rate(draw: Draw) -> Worked:
    name, things, unit = draw.pick(NAMES), draw.pick(OBJECTS), draw.pick(("hour", "day", "week"))
    each, count = draw.number(2, 12), draw.number(2, 9)
    if draw.random() < 0.5:
        value, work = _work(each, "*", count)
        question = f"{name} makes {each} {things} each {unit}. How many {things} does {name} make in {count} {unit}s?"
        return question, [f"{name} makes {work} {things}."], value
    value, work = _work(each * count, "/", count)
    question = f"{name} makes {each * count} {things} in {count} {unit}s. "
    question += f"How many {things} does {name} make each {unit}?"
    return question, [f"{name} makes {work} {things}."], value


def _age(draw: Draw) -> Worked:
    name, friend = draw.two(NAMES)
    age, years = draw.number(8, 20), draw.number(2, 20)
    older = draw.random() < 0.5
    apart = draw.number(2, 20 if older else age - 4)
    now, work = _work(age, "+" if older else "-", apart)
    question = f"{name} is {age} years old. {friend} is {apart} years {'older' if older else 'younger'} than {name}."
    steps = [f"{friend} is {work} years old."]
    if draw.random() < 0.5 or now < 4:
        value, work = _work(now, "+", years)
        steps.append(f"{friend} will be {work} years old.")
        return f"{question} How old will {friend} be in {years} years?", steps, value
    years = min(years, now - 2)
    value, work = _work(now, "-", years)
    steps.append(f"{friend} was {work} years old.")
    return f"{question} How old was {friend} {years} years ago?", steps, value


def _saving(draw: Draw) -> Worked:
    name, unit = draw.pick(NAMES), draw.pick(("day", "week", "month"))
    each, count = draw.number(2, 12), draw.number(2, 9)
    saved, work = _work(each, "*", count)
    spent = draw.number(2, min(30, saved - 1))
    left, left_work = _work(saved, "-", spent)
    question = (
        f"{name} saves {each} dollars each {unit} for {count} {unit}s. Then {name} spends {spent} dollars. "
        f"How many dollars does {name} have left?"
    )
    return question, [f"{name} saves {work} dollars.", f"{name} has {left_work} dollars left."], left


def _change(draw: Draw) -> Worked:
    name, things = draw.pick(NAMES), draw.pick(OBJECTS)
    count, price = draw.number(2, 6), draw.number(2, 9)
    while count * price > 30:
        count, price = draw.number(2, 6), draw.number(2, 9)
    note = draw.pick([note for note in (10, 20, 30, 40) if note > count * price])
    cost, work = _work(count, "*", price)
    back, back_work = _work(note, "-", cost)
    question = (
        f"{name} pays for {count} {things} with {note} dollars. One costs {price} dollars. "
        f"How many dollars does {name} get back?"
    )
    return question, [f"The {things} cost {work} dollars.", f"{name} gets back {back_work} dollars."], back


def _compare(draw: Draw, word: str) -> Worked:
    """Half of these are mirrored (`that is 5 more than Sam has`), which needs the inverse operation."""
    (name, friend), things = draw.two(NAMES), draw.pick(OBJECTS)
    have, mirrored = draw.number(4, 20), draw.random() < 0.5
    plus = (word == "more") != mirrored
    apart = draw.number(2, 12 if plus else have - 2)
    clues = f"{friend} has {apart} {word} than {name} has.", f"That is {apart} {word} than {friend} has."
    other, work = _work(have, "+" if plus else "-", apart)
    total, total_work = _work(have, "+", other)
    question = f"{name} has {have} {things}. {clues[mirrored]} How many {things} do they have together?"
    return question, [f"{friend} has {work} {things}.", f"They have {total_work} {things}."], total


def _rows(draw: Draw) -> Worked:
    name, things = draw.pick(NAMES), draw.pick(OBJECTS)
    rows, each = draw.number(2, 6), draw.number(2, 8)
    extra = draw.number(2, 12 - each)
    full, work = _work(each, "+", extra)
    total, total_work = _work(rows, "*", full)
    question = (
        f"{name} lays {rows} rows with {each} {things} in each row. "
        f"Then {name} adds {extra} {things} to every row. How many {things} are there now?"
    )
    return question, [f"Each row has {work} {things}.", f"There are {total_work} {things}."], total


def _split(draw: Draw) -> Worked:
    (name, friend), things = draw.two(NAMES), draw.pick(OBJECTS)
    parts, each = draw.number(2, 6), draw.number(2, 9)
    while not 6 <= parts * each <= 40:
        parts, each = draw.number(2, 6), draw.number(2, 9)
    total = parts * each
    first = draw.number(max(2, total - 20), min(20, total - 2))
    pooled, work = _work(first, "+", total - first)
    share, share_work = _work(pooled, "/", parts)
    question = (
        f"{name} has {first} {things} and {friend} has {total - first}. "
        f"They split all {things} into {parts} equal parts. How many {things} are in each part?"
    )
    return question, [f"They have {work} {things}.", f"Each part has {share_work} {things}."], share


def _boxes(draw: Draw) -> Worked:
    name, things = draw.pick(NAMES), draw.pick(OBJECTS)
    boxes, each, loose = draw.number(2, 6), draw.number(2, 9), draw.number(2, 20)
    while boxes * each > 40:
        boxes, each = draw.number(2, 6), draw.number(2, 9)
    packed, work = _work(boxes, "*", each)
    total, total_work = _work(packed, "+", loose)
    question = (
        f"{name} fills {boxes} boxes with {each} {things} each and {loose} {things} do not fit. "
        f"How many {things} does {name} have?"
    )
    return question, [f"The boxes have {work} {things}.", f"{name} has {total_work} {things}."], total


def _days(draw: Draw) -> Worked:
    name, things = draw.pick(NAMES), draw.pick(OBJECTS)
    first, each, count = draw.number(2, 20), draw.number(2, 9), draw.number(2, 9)
    while first + each * count > 40:
        first, each, count = draw.number(2, 20), draw.number(2, 9), draw.number(2, 9)
    left, work = _work(first + each * count, "-", first)
    days, days_work = _work(left, "/", each)
    question = (
        f"{name} wants {first + each * count} {things} and has {first}. {name} makes {each} {things} each day. "
        f"How many days does {name} need?"
    )
    return question, [f"{name} needs {work} {things}.", f"{name} needs {days_work} days."], days


HEAD: dict[str, Callable[[Draw], Worked]] = {
    "chain": _chain, "items": _items, "times": _times, "rate": _rate, "age": _age, "saving": _saving,
}  # fmt: skip
RARE: dict[str, Callable[[Draw], Worked]] = {
    "change": _change, "more": partial(_compare, word="more"), "fewer": partial(_compare, word="fewer"),
    "rows": _rows, "split": _split, "boxes": _boxes, "days": _days,
}  # fmt: skip
