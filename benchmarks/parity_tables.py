"""The two tables of docs/parity.md: python benchmarks/parity_tables.py [--write]

Without `--write` they are printed, with it the page is rewritten between its markers. Needs the test extra; the systems
themselves are not needed, see tests/support/systems.py.
"""

import math
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

from support import parity  # noqa: E402
from support.parity_cases import CASES  # noqa: E402
from support.parity_differences import DIFFERENCES  # noqa: E402

PAGE = ROOT / "docs" / "parity.md"
Table = list[list[str]]


def figure(x: float) -> str:
    """One digit and the power of ten, rounded up."""
    if x == 0:
        return "0"
    power = math.floor(math.log10(x))
    digit = math.ceil(x / 10**power)
    return f"{digit}e{power}" if digit < 10 else f"1e{power + 1}"


def rounded(x: float) -> str:
    """Four digits; what is nothing but rounding is 0."""
    return f"{x if abs(x) > 1e-12 else 0.0:.4g}"


def agreement() -> Table:
    rows = [["system", "its call", "here", "loss", "gradient", "advantage"]]
    for case in CASES:
        gaps = parity.compare(case)
        advantage = figure(gaps.advantage) if case.advantages else "-"
        figures = [figure(gaps.value), figure(gaps.gradient), advantage]
        rows.append([case.system, f"`{case.call}`", f"`{case.command}`", *figures])
    return rows


def differences() -> Table:
    rows = [["what", "one", "loss", "the other", "loss", "gradients: length", "cosine"]]
    for d in DIFFERENCES:
        left, right, ratio, cosine = d.figures()
        rows.append([d.topic, d.first, rounded(left), d.second, rounded(right), rounded(ratio), f"{cosine:.3f}"])
    return rows


def markdown(table: Table) -> str:
    lines = ["| " + " | ".join(row) + " |" for row in table]
    return "\n".join([lines[0], "|" + "---|" * len(table[0]), *lines[1:]])


def parse(text: str) -> Table:
    """The cells of a Markdown table, its ruler left out."""
    rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in text.strip().splitlines()]
    return [row for row in rows if not row[0].startswith("---")]


def cut(page: str, name: str) -> tuple[str, str, str]:
    """What stands before, between and after the markers of a table."""
    begin, end = f"<!-- {name} -->\n", f"\n<!-- end of {name} -->"
    before, rest = page.split(begin)
    table, after = rest.split(end)
    return before + begin, table, end + after


def main() -> None:
    torch.set_num_threads(1)
    tables = {"agreement": agreement(), "differences": differences()}
    if "--write" not in sys.argv:
        print("\n\n".join(markdown(table) for table in tables.values()))
        return
    page = PAGE.read_text(encoding="utf-8")
    for name, table in tables.items():
        before, _, after = cut(page, name)
        page = before + markdown(table) + after
    PAGE.write_text(page, encoding="utf-8")


if __name__ == "__main__":
    main()
