"""What a paper takes from a comparison: tables as LaTeX and CSV, and the citation of the method."""

import csv
import io
import re
from collections.abc import Iterable, Sequence

from rlkit.comparison.numbers import Results
from rlkit.comparison.words import NOTHING, Table, tables

CITATION = (
    "Agarwal, Schwarzer, Castro, Courville and Bellemare: Deep Reinforcement Learning at the Edge of the Statistical "
    "Precipice. NeurIPS 2021, arXiv:2108.13264."
)
BIBTEX = """@inproceedings{agarwal2021deep,
  title     = {Deep Reinforcement Learning at the Edge of the Statistical Precipice},
  author    = {Agarwal, Rishabh and Schwarzer, Max and Castro, Pablo Samuel and Courville, Aaron and
               Bellemare, Marc G.},
  booktitle = {Advances in Neural Information Processing Systems},
  volume    = {34},
  year      = {2021},
  note      = {arXiv:2108.13264}
}
"""
MINUS = re.compile(r"(?<!\S)-(?=\d)")  # of a number: a text in LaTeX has hyphens
DRAWN = ("pdf", "svg", "png")  # the files of a figure
SIGNS = {  # what LaTeX reads as more than itself
    "\\": r"\textbackslash{}",
    **{sign: f"\\{sign}" for sign in "&%$#_{}"},
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    **{sign: f"{{{sign}}}" for sign in "[*"},  # at the start of a row LaTeX would take them for a part of the \\ before
    NOTHING: "--",
    "−": "$-$",
    "×": r"$\times$",
}


def files(results: Results, slugs: Sequence[str]) -> dict[str, str]:
    """NAME.tex and NAME.csv of each table, and citation.bib. `slugs`: a file's name for each environment, in order."""
    found = {"citation.bib": BIBTEX, "runs.csv": written(*runs(results))}
    for name, table in zip(names(results, slugs), tables(results), strict=True):
        found[f"{name}.tex"] = latex(table)
    if results["shared"]:
        found["overall.csv"] = written(*overall(results))
    for slug, env in zip(slugs, results["envs"], strict=True):
        found[f"scores-{slug}.csv"] = written(*scores(results, env))
    if results["improvement"]:
        found["improvement.csv"] = written(*improvement(results))
    return found


def names(results: Results, slugs: Sequence[str]) -> list[str]:
    """What the files of each table are called, in the order of `words.tables`."""
    first = ["overall"] if results["shared"] else []
    return [*first, *(f"scores-{slug}" for slug in slugs), *(["improvement"] if results["improvement"] else [])]


def escaped(text: str) -> str:
    """Text that LaTeX prints as it is; what its fonts lack is left to the author."""
    return "".join(SIGNS.get(sign, sign) for sign in text)


def latex(table: Table) -> str:
    """A table for the package booktabs."""
    columns = f"l{'r' * (len(table.columns) - 1)}"
    rows = [[escaped(name), *(MINUS.sub("$-$", escaped(cell)) for cell in cells)] for name, *cells in table.rows]
    lines = [" & ".join(row) + r" \\" for row in (map(escaped, table.columns), *rows)]
    note = [f"% {line}" for line in table.note.splitlines()]
    title = " ".join(table.title.split())
    body = [f"\\begin{{tabular}}{{{columns}}}", r"\toprule", lines[0], r"\midrule", *lines[1:], r"\bottomrule"]
    return "\n".join([f"% {title}; needs \\usepackage{{booktabs}}", *note, *body, r"\end{tabular}", ""])


def written(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """CSV with every digit; a cell without a number is empty."""
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(columns)
    lines.writerows([harmless(cell) for cell in row] for row in rows)
    return text.getvalue()


def harmless(cell: object) -> object:
    """A text that a spreadsheet would compute is marked as text."""
    return f"'{cell}" if isinstance(cell, str) and cell[:1] in ("=", "+", "-", "@", "\t", "\r") else cell


Sheet = tuple[Sequence[str], Iterable[Sequence[object]]]  # the heads of the columns, and the rows


def overall(results: Results) -> Sheet:
    found = [(algo, results["overall"][algo]) for algo in results["algos"]]
    rows = [(algo, x["iqm"], x["low"], x["high"], x["runs"]) for algo, x in found]
    return ("algorithm", "iqm", "low", "high", "runs"), rows


def scores(results: Results, env: str) -> Sheet:
    found, unit = results["envs"][env]["algos"], results["envs"][env]["unit"]
    columns = ("algorithm", "mean", "iqm", "low", "high", "runs", unit, "seconds")
    both = [(algo, found[algo]) for algo in results["algos"] if algo in found]
    rows = [
        (algo, c["mean"], c["iqm"], c["low"], c["high"], c["runs"], c["env_steps"], c["seconds"]) for algo, c in both
    ]
    return columns, rows


def improvement(results: Results) -> Sheet:
    rows = [
        (p["x"], p["y"], p["value"], p["low"], p["high"], p["chance"], p["verdict"]) for p in results["improvement"]
    ]
    return ("x", "y", "probability", "low", "high", "p", "verdict"), rows


def runs(results: Results) -> Sheet:
    learned = (units(results), "seconds")
    columns = ("algorithm", "environment", "seed", "metric", "before", "score", "low", "high", *learned)
    rows = []
    for r in results["runs"]:
        measured = (r["metric"], r["before"], r["score"], r["low"], r["high"])
        rows.append((r["algo"], r["env"], r["seed"], *measured, r["env_steps"], r["seconds"]))
    return columns, rows


def units(results: Results) -> str:
    """What the runs learned from: steps, tokens, or both in several environments."""
    return " or ".join(sorted({found["unit"] for found in results["envs"].values()}))
