"""The built-in rewards: what each takes as an answer, and that several guesses never pay."""

import json
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest
from support.grading import grade

from rlkit.text.grader import BUILT_IN
from rlkit.text.reading import boxed, boxed_number, expression, extract, gold
from rlkit.text.symbolic import balanced

NUMERIC = ("correct", "strict", "flexible", "boxed")
GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"

BOXED = {
    r"\boxed{18}": 18,
    r"$\boxed{18}$ (7 days a week)": 18,
    r"\boxed{1} and then \boxed{ 18 }": 18,
    r"\boxed {18}": 18,
    r"\boxed{{18}}": 18,
    r"\boxed{\boxed{18}}": 18,
    r"\boxed{19 \boxed{18}}": 18,
    r"\boxed{\frac{36}{2}}": 18,
    r"\boxed{-\dfrac{1}{2}}": Fraction(-1, 2),
    r"\boxed{\tfrac 1 2}": Fraction(1, 2),
    r"\boxed{2\frac{1}{2}}": Fraction(5, 2),
    r"\boxed{2 \frac{1}{2}}": Fraction(5, 2),
    r"\boxed{\$1,234.50}": Fraction("1234.5"),
    r"\boxed{1{,}234}": 1234,
    r"\boxed{18\%}": 18,
    r"\boxed{18\text{ kg}}": 18,
    r"\boxed{18~\text{cm}^2}": 18,
    r"\boxed{18 \mathrm{m}^{3}}": 18,
    r"\boxed{18 cm^2}": 18,
    r"\boxed{18\ \mathrm{cm^2}}": 18,
    r"\boxed{18~\text{m s}^{-1}}": 18,
    r"\boxed{18m^2}": None,  # m may be a variable
    r"\boxed{10²}": None,
    r"\boxed{5½}": Fraction(11, 2),
    r"\boxed{+18}": 18,
    r"\boxed{x \approx 18}": 18,
    r"\boxed{90^\circ}": 90,
    r"\boxed{90^{\circ}}": 90,
    r"\boxed{x = 18}": 18,
    r"\boxed{\left(18\right)}": 18,
    r"\boxed{(-18)}": -18,
    r"\boxed{18 dollars}": 18,
    r"\boxed{18 km/h}": 18,
    r"\boxed{18 \text{ miles/hour}}": 18,
    r"\boxed{18/x}": None,
    r"\boxed{x/18}": None,
    r"\boxed{١٨}": 18,
    r"\boxed{\text{18}}": 18,
    r"\boxed{18}\boxed{18": None,  # cut off
    r"\boxed{}": None,
    r"\boxed18": None,
    "18": None,
    "#### 18": None,
    r"\boxed{18, 19}": None,
    r"\boxed{18 \text{ or } 19}": None,
    r"\boxed{1,800}": 1800,
    r"\boxed{(-1,800)}": None,  # a point
    r"\boxed{x \in \left[3,100\right)}": None,  # an interval
    r"\boxed{0,100}": None,
    r"\boxed{18-19}": None,
    r"\boxed{18\text{--}19}": None,
    r"\boxed{17 < x < 19}": None,
    r"\boxed{\pm 18}": None,
    r"\boxed{x > 18}": None,
    r"\boxed{\sqrt{18}}": None,
    r"\boxed{√18}": None,
    r"\boxed{10^{18}}": None,
    r"\boxed{18^x}": None,
    r"\boxed{18x}": None,
    r"\boxed{18xy}": None,
    r"\boxed{18ab}": None,
    r"\boxed{18 x}": None,
    r"\boxed{18 xy}": None,
    r"\boxed{\frac{1}{2}x}": None,
    r"\boxed{\frac{1}{2} x}": None,
    r"\boxed{\frac{1}{2}\text{ cup}}": Fraction(1, 2),
    r"\boxed{\frac{1}{2}cup}": Fraction(1, 2),
    r"\boxed{sqrt(18)}": None,
    r"\boxed{≥ 18}": None,
    r"\boxed{18kg}": 18,
    r"\boxed{18 m}": 18,
    r"\boxed{18 men}": 18,
    r"\boxed{18 a day}": 18,
    r"\boxed{18 a.m.}": 18,
    r"\boxed{x18}": None,
    r"\boxed{18!}": None,
    r"\boxed{|18|}": None,
    r"\boxed{-x = 18}": None,
    r"\boxed{x - 18}": None,
    r"\boxed{minus 18}": None,
    r"\boxed{Negative \$18}": None,
    r"\boxed{\text{minus }18}": None,
    r"\boxed{x -18}": None,
    r"\boxed{x = - 18}": -18,
    r"\boxed{profit: -18}": -18,
    r"\boxed{\frac{1}{0}}": None,
    r"\boxed{" + "9" * 5000 + "}": None,
    r"\boxed{" * 3000 + "18" + "}" * 3000: 18,
    r"\boxed{18\}": None,
}


@pytest.mark.parametrize(("text", "number"), BOXED.items(), ids=lambda x: str(x)[:40])
def test_a_box_holds_one_number_or_nothing(text, number):
    assert boxed_number(text) == number
    if "\\boxed" in text:
        assert extract(text) == extract(f"#### 7\n{text}") == extract(f"{text}\n#### 7") == number, "the box decides"


RIGHT = {  # what each reward finds in a text: strict, flexible, boxed
    "#### 18": (1, 1, 0),
    "I do not know 18": (0, 1, 0),
    r"so \boxed{18}.": (0, 1, 1),
    "#### 18\n\\boxed{18}": (1, 1, 1),
    "#### 18\n\\boxed{19}": (1, 0, 0),
    "#### 19\n\\boxed{18}": (0, 1, 1),
    "####\n18": (1, 1, 0),
    "18": (0, 1, 0),
    "": (0, 0, 0),
}


@pytest.mark.parametrize(("text", "want"), RIGHT.items())
def test_each_reward_looks_where_it_says(text, want):
    assert tuple(grade(name, text) for name in ("strict", "flexible", "boxed")) == want
    assert grade("correct", text) == want[1]


FORMS = [  # texts with two guesses, of which one is right
    "{0} or {1}",
    "{0}, {1}",
    "{0} {1}",
    "{0}-{1}",
    "{0}/{1}",
    "{0}{1}",
    "#### {0} or {1}",
    "#### {0} {1}",
    "#### {0}\n#### {1}",
    "#### {0}\n{1}",
    "####\n{0}\n{1}",
    "#### {0}-{1}",
    "#### {0}/{1}",
    "#### {0}.{1}",
    "#### {0},{1}",
    "#### {0}e{1}",
    r"\boxed{{{0}}} \boxed{{{1}}}",
    r"\boxed{{{0}, {1}}}",
    r"\boxed{{{0} \text{{ or }} {1}}}",
    r"\boxed{{{0}}} #### {1}",
    r"#### \boxed{{{0}}} {1}",
    r"#### {0} \boxed{{{1}}}",
    r"\boxed{{{0} \boxed{{{1}}}}}",
    r"\boxed{{{0}}}{1}",
    r"\frac{{{0}}}{{{1}}}",
    r"\boxed{{\frac{{{0}}}{{{1}}}}}",
    "{0} = {1}",
    r"\boxed{{{0} = {1}}}",
]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NUMERIC)
def test_two_guesses_are_worth_one_at_most(name, form):
    """Whatever the right answer is: a text is right for one number at most."""
    for one, other in [*permutations((18, 19)), (1, 8), (2, -2)]:
        text = form.format(one, other)
        answers = {one, other, -one, -other, one - other, other - one, Fraction(one, other), Fraction(other, one)}
        answers |= {int(f"{one}{abs(other)}"), Fraction(f"{one}.{abs(other)}"), Fraction(f"{one}e{other}")}
        assert sum(grade(name, text, f"#### {answer}") for answer in answers) <= 1, text


def test_a_bare_answer_is_one_number_or_for_a_box_an_expression():
    assert gold("18") == gold("$18.00") == gold("18 dollars") == gold(r"\frac{36}{2}") == 18
    for answer in ("2xy", "2 x", r"\frac{1}{2}x"):
        assert gold(answer) is None
    for answer in ("18 or 19", "2x", "x^2", "Paris", "(1, 2)", "(1,200)", "[0,100]", "3:2", "", "5 apples and 3 pears"):
        assert gold(answer) is None
    assert expression("so\n#### 18") == expression(r"it is \boxed{18}") == expression(" 18 ") == "18"
    assert grade("boxed", r"\boxed{\text{Paris}}", "Paris") == grade("boxed", r"\boxed{x^2 + 1}", "x^2+1") == 1.0
    assert grade("boxed", r"\boxed{\dfrac{x}{2}}", r"\frac{x}{2}") == 1.0
    assert grade("boxed", r"\boxed{Paris or Rome}", "Paris") == grade("boxed", "Paris", "Paris") == 0.0
    assert grade("boxed", r"\boxed{(3,100)}", "(3,100)") == grade("boxed", r"\boxed{[0, 100]}", "[0,100]") == 1.0
    assert grade("boxed", r"\boxed{3100}", "(3,100)") == grade("boxed", r"\boxed{100}", "[0,100]") == 0.0
    assert grade("boxed", r"\boxed{x-5}", "x - 5") == 1.0 and grade("boxed", r"\boxed{y - 5}", "x - 5") == 0.0
    assert grade("boxed", r"\boxed{2xy}", "2xy") == 1.0 and grade("boxed", r"\boxed{2}", "2xy") == 0.0
    assert grade("boxed", r"\boxed{2}", "2x") == grade("boxed", r"\boxed{3x}", "2x") == 0.0
    assert grade("strict", "#### 18", "18") == grade("flexible", "18", "18") == 1.0


def test_a_denominator_may_have_thousands():
    for text in ("#### 1/2,000", r"\boxed{\frac{1}{2,000}}", "it is 1/2,000."):
        assert extract(text) == Fraction(1, 2000), text
    assert grade("flexible", "#### 18/1,000") == 0.0 and extract("1/2,30") is not None


def test_the_answer_may_be_a_number():
    assert BUILT_IN["strict"](prompts=["?"], completions=["#### 18"], answer=[18]) == [1.0]


@pytest.mark.parametrize("name", [pytest.param("train", marks=pytest.mark.slow), "test"])
def test_every_gold_answer_of_gsm8k_is_right_in_each_form_and_in_no_other(name):
    path = GSM8K / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name} of GSM8K here")
    for row in map(json.loads, path.read_text().splitlines()):
        answer, number = row["answer"], row["answer"].split("####")[1].strip()
        assert grade("strict", answer, answer) == grade("flexible", answer, number) == 1.0
        assert grade("boxed", f"#### 0 \\boxed{{{number}}}", answer) == 1.0
        assert grade("strict", f"The answer is {number}.", answer) == grade("boxed", answer, answer) == 0.0


def test_a_box_is_read_to_its_own_end():
    assert boxed(r"\boxed{a{b}c} d}") == "a{b}c" and boxed(r"\boxed{a\}b}") == r"a\}b"
    assert boxed(r"\boxed{a{b}") is None and boxed("no box") is None
    assert balanced("{a}{b}") and not balanced("}{") and not balanced("{") and balanced(r"\{")
