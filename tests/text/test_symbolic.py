"""The reward math: math-verify in a process of its own, which no answer can hold up."""

import time

import pytest
from support.grading import grade

from rlkit import child
from rlkit.errors import UserError
from rlkit.settings import plugins
from rlkit.text import load_rewards, process, rewards, symbolic
from rlkit.text.grader import candidate
from rlkit.text.process import Failed, Process
from rlkit.text.symbolic import Verifier


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


@pytest.mark.slow
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


ALIKE = [  # other ways to write 1.6 \\times 10^{-19}
    r"1.6\,\times\,10^{-19}",
    r"1.6\ \times\ 10^{-19}",
    r"1.6\!\times\!10^{-19}",
    r"1.6\times{10}^{-19}",
    r"{1.6} \times 10^{-19}",
    r"1.6 \times 10^{\,-19}",
    r"1.6 \times 10^{- 19}",
    r"1.6 \times \left(10^{-19}\right)",
    r"(1.6)(10^{-19})",
    r"\frac{1.6}{10^{19}}",
    r"1.6 / 10^{19}",
    "1.6e-19",
    r"x = 1.6 \cdot 10^{-19}",
]
LARGER = [  # expressions with a power of ten, and a number that they are not
    ("1/10^3", "3"),
    ("1/10^3", "1/3"),
    ("5/2 × 10^3", "3"),
    ("1 1/2 × 10^6", "6"),
    ("10^3 × 10^2", "2"),
    ("10^3*10^2", "2"),
    ("3e5 × 10^2", "500"),
    ("5 x 10^3", "1000"),
    (r"2^{3} \times 10^{2}", "100"),
    ("2(7 · 10⁴)", "70000"),
    (r"-(12 \times 10^2)", "1200"),
    (r"\frac{1}{2} \times 10⁻²", "0.01"),
    (r"\pi \times 10^3", "1000"),
]
LARGER_NAMES = [("10^2π", "100"), ("100", "10^2π"), ("10^2A", "100"), ("π · 10^3", "1000"), ("10^3 · π", "1000")]
LARGER_NAMES += [
    ("a · 10^3", "1000"),
    ("100 · π", "100"),
    ("100 pi", "100"),
    ("2 × 10^3 theta", "2000"),
    ("10^2x", "100"),
    ("10^2 x", "100"),
]
NAMES = [
    ("10^2π", r"100\pi"),
    ("10^2A", "100A"),
    (r"3 \cdot 10^{2}mn", "300mn"),
    ("10^{3}θ", "1000θ"),
    ("10^2(x)", "100x"),
]


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
        (r"\boxed{2xy}", "2", 0.0),
        (r"\boxed{2yx}", "2xy", 1.0),
        (r"\boxed{18}", "18 cm^2", 1.0),
        (r"\boxed{18\text{ cm}^2}", "18 cm^2", 1.0),
        (r"\boxed{19}", "18 cm^2", 0.0),
        ("#### minus 18", "18", 0.0),  # math-verify drops the word
        (r"\boxed{\text{negative }18}", "18", 0.0),
        (r"\boxed{Negative 18}", "-18", 1.0),
        (r"\boxed{-18}", "#### minus 18", 1.0),
        (r"\boxed{18}", "18 dollars", 1.0),
        (r"\boxed{1.5}", "1 1/2 cups", 1.0),
        ("#### 17.9999999", "18", 0.0),  # a whole number exactly, any other to six decimals
        ("#### 0.333333", "1/3", 1.0),
        ("#### 0.33333", "1/3", 0.0),
        ("It is 0.333333.", "1/3", 1.0),
        ("It is 0.33333.", "1/3", 0.0),
        ("It is -0.666667", r"-\frac{2}{3}", 1.0),
        ("It is 333333/1000000", "1/3", 0.0),
        (r"\boxed{0.333333\text{ m}}", "1/3", 1.0),
        ("#### 0.3333333", "1/3 kg", 1.0),
        ("It is 2.5", r"\frac{5}{2}", 1.0),
        ("#### 1e-34 J", "6.626e-34 J", 0.0),  # six decimals of such numbers say nothing
        ("It is 1.6e-19", "9.1e-31", 0.0),
        (r"\boxed{1.6e-7}", "1.5e-7", 0.0),
        (r"\boxed{1e-34}", r"6.626 \times 10^{-34}", 0.0),
        ("It is 0.000333333", r"\frac{1}{3000}", 1.0),
        ("It is 0.000000333333", "1/3000000", 1.0),
        (r"\boxed{\frac{8}{3}}", "2.666667 meters", 1.0),
        (r"\boxed{8/3 \text{ kg}}", r"2.666667\text{ kg}", 1.0),
        ("It is 1/3", "x = 0.333333", 1.0),
        ("It is 333333/1000000", "1/3 kg", 0.0),
        (r"\boxed{17.9999999\%}", r"18\%", 0.0),
        (r"\boxed{100/3\%}", r"33.333333 \%", 1.0),
        (r"\boxed{0.18}", r"18\%", 1.0),
        (r"\boxed{18\%}", "0.18", 1.0),
        (r"\boxed{1.6 \times 10^{-19}}", "1.6e-19", 1.0),  # math-verify reads no exponents, and rounds these to 0
        ("It is 1.6e-19.", r"\boxed{1.6 \times 10^{-19}\text{ C}}", 1.0),
        ("#### 1.6×10⁻¹⁹ C", "1.6e-19", 1.0),
        (r"\boxed{6.02 \cdot 10^{23}}", "602000000000000000000000", 1.0),
        (r"#### $6.02*10^23$.", r"6.02\times10^{23}", 1.0),
        (r"\boxed{1.6 \times 10^{-19}}", r"1.5 \times 10^{-19}", 0.0),
        (r"\boxed{10^{-20}}", "10^{-19}", 0.0),
        (r"\boxed{10^{-3}}", "1e-3", 1.0),
        (r"\boxed{1.5 \times 10^{-1}}", "0.15", 1.0),
        (r"\boxed{1/10^3}", "0.001", 1.0),  # more than such a number is read by math-verify
        (r"\boxed{3 \times 10^{2} + 1}", "301", 1.0),
        (r"\boxed{3 \times 10^{2^2}}", r"3 \times 10^4", 1.0),
        (r"\boxed{2^{10^2}}", "1e2", 0.0),
        (r"\boxed{x^3 \times 10^2}", "300", 0.0),
        (r"\boxed{10^{2}!}", "100", 0.0),
        *((rf"\boxed{{{each}}}", r"1.6 \times 10^{-19}", 1.0) for each in ALIKE),
        *((rf"\boxed{{{each}}}", number, 0.0) for each, number in (*LARGER, *LARGER_NAMES)),
        *((f"#### {each}", number, 0.0) for each, number in LARGER),
        *((f"It is {each}.", number, 0.0) for each, number in LARGER),
        *((rf"\boxed{{{one}}}", other, 1.0) for one, other in NAMES),
        ("It is 17.9999999", r"\$18.00", 0.0),
        ("It is 1799.9999999", "1{,}800.0", 0.0),
        ("#### 17.9999999 kg", "18.0 kg", 0.0),
        ("It is 17.9999999", "18.0", 0.0),
        ("#### 17.9999999", "18.0", 0.0),
        (r"\boxed{17.9999999}", r"\boxed{18.0\text{ m}}", 0.0),
        ("It is 24.9999999", "2.50e1 m", 0.0),
        (r"\boxed{18}", "18.0", 1.0),
        ("It is 18.00", "$18.0", 1.0),
        ("It is 0.001667", "1/600", 1.0),
        ("It is 3 1/2", r"\sqrt{12.25}", 1.0),
        ("It is 1,234.5", r"\frac{2469}{2}", 1.0),
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


@pytest.mark.slow
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
