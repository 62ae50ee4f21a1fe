"""The grader reads what people and models write, and only after the final marker."""

import json
import time
from fractions import Fraction
from pathlib import Path

import pytest

from rlkit.text import correct, extract, grader, score

GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k"

MARKED = {
    "#### 18": 18,
    "####18": 18,
    "#### 18.": 18,
    "#### 18.0": 18,
    "#### 1,234": 1234,
    "#### 1,234,567.50": Fraction("1234567.5"),
    "#### $1,000.": 1000,
    "#### \\$18": 18,
    "#### $ 18": 18,
    "#### 18€": 18,
    "#### £18": 18,
    "#### 18 dollars": 18,
    "#### 18kg": 18,
    "#### 25%": 25,
    "#### **18**": 18,
    "#### \\boxed{18}": 18,
    "#### -5": -5,
    "#### −5": -5,
    "#### - 5": -5,
    "####-5": -5,
    "#### -$5": -5,
    "#### -₹5": -5,
    "#### 5x": 5,
    "#### Rs.18": 18,
    "#### Rs. 1,800.50": Fraction("1800.5"),
    "#### 结果-5": -5,
    "#### Step 3: add\n#### 18\n#### Step 4: check": 18,
    "#### 5-inch": 5,
    "#### 1\u202f234": 1234,
    "#### 1\u00a0234\u00a0567 kg": 1234567,
    "#### 1’234": 1234,
    "#### $-5": -5,
    "#### .5": Fraction(1, 2),
    "#### -.5": Fraction(-1, 2),
    "#### 2.50": Fraction(5, 2),
    "#### 1/2": Fraction(1, 2),
    "#### 1 1/2": Fraction(3, 2),
    "#### -1 1/2": Fraction(-3, 2),
    "#### 1e3": 1000,
    "#### 0": 0,
    "#### 5 or 6": 5,
    "#### 5, 6": 5,
    "#### the answer is 7": 7,
    "3 + 4 = 7\n#### 8": 8,
    "#### 3\nno, wait\n#### 4": 4,
    "#### 4\n5 more things": 4,
    "#### \n18": 18,
    "####\n\n  **18**\n19": 18,
    "#### \\frac{36}{2}": 18,
    "#### -\\dfrac{1}{2}": Fraction(-1, 2),
    "#### 1\\frac12": Fraction(3, 2),
    "#### 1 \\frac12": Fraction(3, 2),
    "#### \\text{about } 18 \\text{ kg}": 18,
    "#### 1{,}234\\,567": 1234567,
    "#### ١٨": 18,
    "#### १२३": 123,
    "#### １８．": 18,
    "#### ١٬٢٣٤٫٥": Fraction("1234.5"),
    "#### 5½": Fraction(11, 2),
    "#### ¾ cup": Fraction(3, 4),
    "#### 3⁄4": Fraction(3, 4),
    "#### ‑5": -5,
}
NOTHING = [
    "",
    "no number",
    "12 in all\n####",
    "12 in all\n####\n\nnone",
    "12 in all\n#### none",
    "#### 3\n####",
    "#### 1/0",
    "#### 12²",
    "#### 12^2",
    "#### 12**2",
    "#### 12 × 10^3",
    "#### 12 \\times 10^3",
    "#### 12*3",
    "#### 12 - 5",
    "#### 12-15",
    "#### 12,5",
    "#### 12,34,567",
    "#### 1.234.567",
    "#### 12:30",
    "#### 12 345",
    "#### 12'345",
    "#### 12π",
    "#### 12\\sqrt{2}",
    "#### \\sqrt{12}",
    "#### √12",
    "#### \\frac{12}{5x}",
    "#### minus 12",
    "#### Minus 12",
    "#### -(12)",
    "#### ≥ 12",
    "it is 12²",
    "it is negative 12",
    "Negative 12",
    "x^12",
    "#### " + "9" * 5000,
]
UNMARKED = {
    "2 + 3 = 5\n1/2": Fraction(1, 2),
    "2 + 3 = 5\n\\frac12": Fraction(1, 2),
    "so it is 18.": 18,
    "so it is 1.5e3.": 1500,
    "3 apples and 4 pears": 4,
    "9 - 5": 5,
    "9-5": 5,
    "it is - 5": -5,
    "the top-5": 5,
    "48/2 = 24": 24,
    "<<2*6=12>>12 dollars": 12,
    "she ran 1½ miles": Fraction(3, 2),
    "the area is 18 cm^2.": 18,
    r"the area is $18\ \mathrm{m^{2}}$.": 18,
    "it slows by 18 m/s^2": 18,
    "18 = 4^2 + 2": 2,
    "x^2 = 18": 18,
    "答案是-5。": -5,
    "答案是 −5": -5,
    "#### Step 3: add\n5 + 13 = 18": 18,
    "#### **Part 2**\nSo it is 18.": 18,
}


@pytest.mark.parametrize("text, number", MARKED.items())
def test_the_first_number_after_the_final_marker_is_the_answer(text, number):
    assert extract(text) == number
    assert extract(text, strict=True) == number


@pytest.mark.parametrize("text", NOTHING)
def test_without_a_number_after_the_marker_there_is_no_answer(text):
    assert extract(text) is None
    assert score(text, "#### 12") == 0.0


@pytest.mark.parametrize("text, number", UNMARKED.items())
def test_without_a_marker_the_last_number_counts_unless_strict(text, number):
    assert extract(text) == number
    assert extract(text, strict=True) is None


@pytest.mark.parametrize("before", ["18", "#### 18\n", "18 dollars, 18\n", "####18 ####18 "])
def test_a_number_before_the_final_marker_never_counts(before):
    assert score(f"{before}#### 17", "#### 18") == 0.0
    assert score(f"{before}####", "#### 18") == 0.0


def test_equal_numbers_are_equal_however_they_are_written_and_close_ones_are_not():
    assert score("#### 18.00", "#### 18") == score("#### 1,800", "#### 1800") == score("#### 0.5", "#### 1/2") == 1.0
    assert score("#### 17.999999999", "#### 18") == score("#### 0.3333333333", "#### 1/3") == 0.0
    assert score("#### -18", "#### 18") == 0.0


def test_the_default_reward_is_the_score_of_each_completion():
    assert correct(["a", "b"], ["#### 1", "#### 2"], answer=["x\n#### 1", "#### 1"], kind=["", ""]) == [1.0, 0.0]


@pytest.mark.parametrize("name", ["correct", "flexible", "strict", "boxed"])
def test_the_completion_is_read_as_a_text_and_the_reference_as_an_answer(name: str) -> None:
    reward, given = grader.BUILT_IN[name], "1 and 2 are 3: #### 3" if name != "boxed" else r"1 and 2 are \boxed{3}"
    assert reward(["a"], [given], answer=["3"]) == [1.0]
    assert reward(["a"], ["3"], answer=[given]) == [1.0 if name in ("correct", "flexible") else 0.0]
    if name in ("correct", "flexible"):
        assert reward(["a"], ["1 and 2 are 3"], answer=["3"]) == [1.0]
        assert reward(["a"], ["3"], answer=["1 and 2 are 3"]) == [0.0]  # three numbers are no answer


@pytest.mark.parametrize(
    "text", ["1" * 20000, " " * 20000, "$" * 20000, "- " * 10000, "1 " * 10000, "1/" * 10000, "1," * 10000]
)
def test_reading_takes_time_linear_in_the_length(text):
    start = time.process_time()  # of this process alone, whatever else the machine does
    extract(text)
    extract("#### " + text)
    assert time.process_time() - start < 5.0


@pytest.mark.parametrize("name, count", [pytest.param("train", 7473, marks=pytest.mark.slow), ("test", 1319)])
def test_every_gold_answer_of_gsm8k_scores_one_and_a_wrong_number_zero(name, count):
    path = GSM8K / f"{name}.jsonl"
    if not path.is_file():
        pytest.skip(f"no {path.name} of GSM8K here")
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert len(rows) == count
    for row in rows:
        gold = row["answer"].split("####")[1].strip()
        number = extract(row["answer"])
        assert number == Fraction(gold.replace(",", ""))
        for right in (
            row["answer"],
            f"#### {gold}",
            f"#### ${gold}.",
            f"The answer is {gold}.",
            f"{number + 1}\n#### {gold} units",
        ):
            assert score(right, row["answer"]) == 1.0
        for wrong in (f"#### {number + 1}", f"{row['answer']}1", f"#### {-number - 1}", f"{row['answer']}\n####"):
            assert score(wrong, row["answer"]) == 0.0
