"""The report of a comparison: results.json, figures, tables for papers, one page, tables for the terminal."""

import json
import os
import warnings
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from rlkit.api import UserError
from rlkit.comparison import naming, paper, words
from rlkit.comparison.caveats import caveats
from rlkit.comparison.numbers import Results
from rlkit.comparison.records import Record
from rlkit.comparison.results import compute
from rlkit.recording.files import LARGEST, is_file, read_object, read_text, remove, write_atomically
from rlkit.terminal import warn

MADE = "Written by rlkit "  # what each page of a comparison holds
PAIRS = 15  # pairs of algorithms that a terminal shows; the page has all


def write(records: Sequence[Record], folder: Path, missing: Sequence[str] = (), command: str = "") -> Results:
    """Compute everything and write results.json, figures, tables and index.html into the folder; returns the results.

    `missing` says in a sentence each what should have been there; `command` is what repeats the comparison. Raises
    UserError where there is nothing to compare.
    """
    from rlkit.comparison.page import render

    if not records:
        raise UserError("there is no finished run to compare: " + (missing[0] if missing else "give run folders"))
    check(records)
    results = compute(records, missing)
    shown = naming.displayed(results)
    results["caveats"] = caveats(naming.called(records, results["names"]), shown)
    for run in results["runs"]:
        with suppress(ValueError):  # on another drive of Windows there is no way from here to there
            run["folder"] = os.path.relpath(run["folder"], folder)
    repeats = dict.fromkeys(run["command"] for run in results["runs"] if run["command"])
    results["commands"] = [*([command] if command else []), *repeats]
    folder.mkdir(parents=True, exist_ok=True)
    shown = naming.displayed(results)
    slugs = naming.slugs(shown["envs"])
    before = written(folder)
    clear(folder, before - files_of(slugs))  # first: once results.json is written, nothing else names them
    write_atomically(folder / "results.json", json.dumps(results, indent=1, ensure_ascii=False, allow_nan=False) + "\n")
    tables = paper.files(shown, slugs)
    for name, text in tables.items():
        write_atomically(folder / name, text)
    drawn = figures(shown, folder, slugs)
    write_atomically(folder / "index.html", render(shown, drawn, slugs))
    clear(folder, before - {*tables, *(f"{figure}.{end}" for figure in drawn for end in paper.DRAWN)})
    return results


def clear(folder: Path, names: Iterable[str]) -> None:
    """Remove files of an earlier report."""
    for name in names:
        if is_file(folder / name):
            remove(folder / name)


def figures(results: Results, folder: Path, slugs: Sequence[str]) -> dict[str, str]:
    """Draw the figures, and say in one line where their font lacks letters of a name."""
    from rlkit.comparison.figures import draw

    try:
        import matplotlib  # noqa: F401
    except UnicodeDecodeError:
        raise UserError("matplotlib cannot read its file matplotlibrc: write it in UTF-8, or remove it") from None
    except ValueError:
        backend = os.environ.get("MPLBACKEND")
        raise UserError(
            f"MPLBACKEND={backend} in the environment names no backend of matplotlib: unset it, and give the same "
            "command again"
        ) from None
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        drawn = draw(results, folder, slugs)
    lacking = [each for each in said if "missing from font" in str(each.message)]
    for each in said:
        if each not in lacking:
            warnings.warn_explicit(each.message, each.category, each.filename, each.lineno)
    if lacking:
        warn("the font of the figures lacks letters of a name and draws boxes in their place: the tables have them")
    return drawn


def written(folder: Path) -> set[str]:
    """The figures and tables that an earlier report in this folder may have written, by the environments it had."""
    try:
        named = read_object(folder / "results.json").get("names")
    except UserError:
        return set()
    envs = named.get("envs") if isinstance(named, dict) else None
    return files_of(naming.slugs(map(str, envs.values())) if isinstance(envs, dict) else [])


def not_ours(folder: Path) -> str:
    """A file with the name of one of a report in a folder where no report was written; empty where there is none."""
    with suppress(UserError):
        if "rlkit" in read_object(folder / "results.json"):
            return ""
    with suppress(UserError):
        if MADE in read_text(folder / "index.html", LARGEST):
            return ""
    names = {"index.html", "results.json", "runs.csv", "citation.bib", *files_of(["*"])}
    return next((path.name for path in sorted(folder.glob("*")) if any(map(path.match, names))), "")


def files_of(slugs: Sequence[str]) -> set[str]:
    """The figures and tables that a report of these environments may have."""
    figures = [*words.READING, *(f"{figure}-{slug}" for figure in words.READING for slug in slugs)]
    tables = ["overall", "improvement", *(f"scores-{slug}" for slug in slugs)]
    ends = [(figures, paper.DRAWN), (tables, ("csv", "tex"))]
    return {f"{name}.{end}" for names, its in ends for name in names for end in its}


def check(records: Sequence[Record]) -> None:
    """A return and an accuracy cannot be compared, nor the problems that one solves with the pairs that one ranks."""
    for env in dict.fromkeys(r.env for r in records):
        first, *others = [r for r in records if r.env == env]
        for other in others:
            both = other.scored and first.scored  # an older run does not say it
            if other.metric != first.metric or (both and other.scored != first.scored):
                mine, its = (" of ".join(filter(None, (r.metric, r.scored))) for r in (other, first))
                raise UserError(
                    f"{other.folder} measures {mine} on {env} and {first.folder} {its}: "
                    "compare runs of the same measure"
                )


def show(results: Results) -> None:
    """Print the tables of the page, as wide as a terminal of 80 columns."""
    from rich.text import Text

    from rlkit.recording.log import table
    from rlkit.screen import Screen

    console, results = Screen(force_jupyter=False), naming.displayed(results)
    console.print(Text(f"\n{words.title(results)}", style="bold"))
    console.print(Text(words.size(results)))
    console.print(Text(results["measured"]))
    for found in words.tables(results):
        rows = [[cell.replace(words.NOTHING, "-") for cell in row] for row in found.rows]
        shown = rows[:PAIRS] if found.kind == "pairs" else rows
        table(found.title, found.columns, shown)
        if len(shown) < len(rows):
            console.print(Text(f"{len(rows) - len(shown)} more pairs are on the page.", style="dim"))
        if found.note:
            console.print(Text(found.note, style="dim"))
    if words.finding(results):
        console.print(Text(f"\n{words.finding(results)}"))
    for text in results["caveats"]:
        console.print(Text(f"! {text}", style="yellow"))
    console.print(Text(f"\nThe statistics are those of {paper.CITATION} (citation.bib)"))
