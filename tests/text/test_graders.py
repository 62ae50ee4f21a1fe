"""The built-in rewards: what each takes as an answer, and that several guesses never pay."""

import json
import time
from fractions import Fraction
from itertools import permutations
from pathlib import Path

import pytest

from rlkit import child
from rlkit.errors import UserError
from rlkit.settings import plugins
from rlkit.text import load_rewards, process, rewards, symbolic
from rlkit.text.grader import BUILT_IN, candidate
from rlkit.text.process import Failed, Process
from rlkit.text.reading import boxed, boxed_number, expression, extract, gold
from rlkit.text.symbolic import Verifier, balanced

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
    r"\boxed{x18}": None,
    r"\boxed{18!}": None,
    r"\boxed{|18|}": None,
    r"\boxed{-x = 18}": None,
    r"\boxed{x - 18}": None,
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


def grade(name, text, answer="#### 18"):
    [found] = BUILT_IN[name](prompts=["?"], completions=[text], answer=[answer])
    return found


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
    for answer in ("18 or 19", "2x", "x^2", "Paris", "(1, 2)", "(1,200)", "[0,100]", "3:2", "", "5 apples and 3 pears"):
        assert gold(answer) is None
    assert expression("so\n#### 18") == expression(r"it is \boxed{18}") == expression(" 18 ") == "18"
    assert grade("boxed", r"\boxed{\text{Paris}}", "Paris") == grade("boxed", r"\boxed{x^2 + 1}", "x^2+1") == 1.0
    assert grade("boxed", r"\boxed{\dfrac{x}{2}}", r"\frac{x}{2}") == 1.0
    assert grade("boxed", r"\boxed{Paris or Rome}", "Paris") == grade("boxed", "Paris", "Paris") == 0.0
    assert grade("boxed", r"\boxed{(3,100)}", "(3,100)") == grade("boxed", r"\boxed{[0, 100]}", "[0,100]") == 1.0
    assert grade("boxed", r"\boxed{3100}", "(3,100)") == grade("boxed", r"\boxed{100}", "[0,100]") == 0.0
    assert grade("boxed", r"\boxed{x-5}", "x - 5") == 1.0 and grade("boxed", r"\boxed{y - 5}", "x - 5") == 0.0
    assert grade("boxed", r"\boxed{2}", "2x") == grade("boxed", r"\boxed{3x}", "2x") == 0.0
    assert grade("strict", "#### 18", "18") == grade("flexible", "18", "18") == 1.0


def test_a_denominator_may_have_thousands():
    for text in ("#### 1/2,000", r"\boxed{\frac{1}{2,000}}", "it is 1/2,000."):
        assert extract(text) == Fraction(1, 2000), text
    assert grade("flexible", "#### 18/1,000") == 0.0 and extract("1/2,30") is not None


def test_the_answer_may_be_a_number():
    assert BUILT_IN["strict"](prompts=["?"], completions=["#### 18"], answer=[18]) == [1.0]


@pytest.mark.parametrize("name", ["train", "test"])
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


def test_without_math_verify_one_line_names_the_command(monkeypatch):
    monkeypatch.setattr(symbolic.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"env\.reward=math needs the package math-verify: pip install -c constraints"):
        load_rewards("math")


FAKE = """
import time

def parse(text, parsing_timeout):
    if "slow" in text:
        while True:
            pass
    if "asleep" in text:
        time.sleep(100)
    if "dead" in text:
        raise SystemExit
    if "wrong" in text:
        raise ValueError
    print("noise")
    return [text.replace("0.5", "1/2")]

def verify(right, given, timeout_seconds):
    return right == given
"""


@pytest.fixture
def verifier(tmp_path, monkeypatch):
    """One whose math-verify is a fake, which says what the process around it must bear."""
    (tmp_path / "math_verify.py").write_text(FAKE)
    monkeypatch.syspath_prepend(str(tmp_path))
    found = Verifier()
    yield found
    found.close()


def test_what_a_comparison_does_ends_with_it(verifier, monkeypatch):
    monkeypatch.setattr(process, "LATER", 2.0)
    monkeypatch.setattr(symbolic, "SECONDS", 1.0)
    pairs = [("1/2", "0.5"), ("1/2", "slow"), ("1/2", "wrong"), ("1/2", "asleep"), ("1/2", "dead"), ("1/2", "0.5 ")]
    assert verifier(pairs) == [True, False, False, False, False, False]
    assert verifier([("1/2", None), ("1/2", "9" * 5000), ("1/2", "{0.5"), ("x", "x"), ("1/2", "$0.5$")]) == [
        False,
        False,
        False,
        True,
        True,
    ]
    assert verifier([("1/2", r"\$0.5"), (r"\$1/2", "0.5")]) == [True, True], "an amount is its number"


def test_a_process_that_fails_is_one_line(verifier, tmp_path, monkeypatch):
    (tmp_path / "math_verify.py").write_text("import no_such_module")
    with pytest.raises(UserError, match="math-verify does not start; install it again: pip install -c"):
        verifier([("1/2", "0.5")])

    def refused(*words, **how):
        raise OSError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(child.subprocess, "Popen", refused)
    with pytest.raises(UserError, match=r"no process can be started \(Resource temporarily unavailable\): end others"):
        verifier([("1/2", "0.5")])


def test_mathematics_is_compared_by_math_verify_where_it_is_installed(monkeypatch):
    pytest.importorskip("math_verify")
    for text, answer, want in (
        (r"\boxed{\frac{36}{2}}", "18", 1.0),
        (r"\boxed{2x + 2}", "2(x+1)", 1.0),
        (r"\boxed{0.5}", r"\frac{1}{2}", 1.0),
        ("#### 18", "#### 18", 1.0),
        (r"\boxed{\$18}", "18", 1.0),
        (r"\boxed{18.90}", r"\$18.90", 1.0),
        (r"\boxed{18, 19}", "18", 0.0),
        (r"\boxed{18} \boxed{19}", "18", 0.0),
        (r"\boxed{\sqrt{18}}", "18", 0.0),
        ("none", "18", 0.0),
        (r"\boxed{18.}", "18", 1.0),
        ("#### 18.", "18", 1.0),
        ("#### **18**", "18", 1.0),
        ("#### 18 dollars", "18", 1.0),
        ("#### It is 18", "18", 1.0),
        ("#### 1.8e1", "18", 1.0),
        (r"\boxed{3 1/2}", "3.5", 1.0),
        (r"\boxed{3.5}", "#### 3 1/2", 1.0),
        (r"\boxed{18}", "#### 18.", 1.0),
        (r"\boxed{x + 1}", "x+1.", 1.0),
        (r"\boxed{3 1/2}", "2", 0.0),  # math-verify takes the one for the other
        (r"\boxed{2}", "#### 3 1/2", 0.0),
        (r"\boxed{2x}", "2", 0.0),
        (r"\boxed{2}", "2 x", 0.0),
        ("#### 17.9999999", "18", 0.0),  # a whole number exactly, any other to six decimals
        ("#### 0.333333", "1/3", 1.0),
        ("#### 0.33333", "1/3", 0.0),
    ):
        assert grade("math", text, answer) == want, (text, answer)
    monkeypatch.setattr(symbolic, "SECONDS", 0.3)
    assert grade("math", r"\boxed{9^{9^{9^{9}}}}", "18") == 0.0


def test_a_run_says_the_version_of_math_verify_where_it_scores(monkeypatch):
    monkeypatch.setattr(rewards, "check_installed", lambda: None)
    gsm8k = plugins.load("envs", "gsm8k")
    small = {"train": 8, "validation": 2, "test": 2}
    for keys, packages in (
        ({}, ()),
        ({"reward": "strict,math"}, ("math-verify",)),
        ({"metrics": "math"}, ("math-verify",)),
    ):
        assert gsm8k.make(gsm8k.Config(**small, **keys), 0, "cpu").packages == packages


def test_one_expression_of_a_text_is_compared():
    assert candidate(r"\boxed{1} \boxed{2x}") == "2x" and candidate("#### 2x + 1") == "2x + 1"
    assert candidate("it is 18 or 19") == "19" and candidate("none") is None and candidate("####") is None


def test_what_no_handler_can_stop_is_ended_by_the_system(tmp_path, monkeypatch):
    """A signal is handled between two steps of the interpreter, and one call may take minutes."""
    (tmp_path / "counts.py").write_text(
        "from itertools import repeat\n\n\ndef answer(n):\n    return sum(repeat(1, n))\n"
    )
    monkeypatch.setattr(process, "LATER", 60.0)  # beside other work a second of a processor may take long
    found = Process(tmp_path / "counts.py", "env.test", "counts", "pip")
    assert found.ask(3, 1.0) == 3
    began = time.monotonic()
    with pytest.raises(Failed, match="its process ended"):
        found.ask(10**12, 1.0)
    assert time.monotonic() - began < 1.0 + process.LATER, "nobody waited for the clock"
    assert found.ask(3, 1.0) == 3
    found.close()


def test_what_a_compiled_part_prints_is_no_answer(tmp_path):
    (tmp_path / "prints.py").write_text(
        "import os\n\n\ndef answer(n):\n    print('from Python')\n    os.write(1, b'from C\\n')\n    return n + 1\n"
    )
    found = Process(tmp_path / "prints.py", "env.test", "prints", "pip")
    assert [found.ask(3, 1.0), found.ask(4, 1.0)] == [4, 5]
    found.close()
