"""The page of a comparison: one file that links to those beside it only; texts that come from runs are escaped."""

import re
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from string import Template
from urllib.parse import quote

import rlkit
from rlkit.comparison import paper, words
from rlkit.comparison.figures import COLORS, FAINT, GRID, INK
from rlkit.comparison.numbers import Results
from rlkit.comparison.words import NOTHING, Table, interval

SHOWN = 8  # warnings, or pairs; more of them are folded away
INCHES = 110  # pixels of an inch of a figure


def render(results: Results, drawn: Mapping[str, str], slugs: Sequence[str]) -> str:
    """The whole page as text. `drawn` holds the figures as SVG; `slugs` name the files of each environment."""
    template = Template(Path(__file__).with_name("page.html").read_text(encoding="utf-8"))
    finding = words.finding(results)
    return template.substitute(
        title=escape(words.title(results)),
        size=escape(words.size(results)),
        finding=f'<p class="finding">{escape(finding)}</p>' if finding else "",
        warnings=warnings(results["caveats"]),
        body=body(results, drawn, slugs),
        runs=runs(results),
        method="\n".join(f"<p>{escape(text)}</p>" for text in [results["measured"], *words.METHOD]) + cited(),
        repeat=repeat(results["commands"]),
        made=escape(f"Written by rlkit {rlkit.__version__}. All numbers are in results.json beside this page."),
    )


def table(found: Table) -> str:
    """A column is set to the right where it holds numbers."""
    texts = [i == 0 or not any(re.match(r"[-<\d—]", row[i]) for row in found.rows) for i in range(len(found.columns))]
    marks = [' class="text"' if text else "" for text in texts]
    head = "".join(f"<th{mark}>{escape(column)}</th>" for mark, column in zip(marks, found.columns, strict=True))
    rows = [
        "".join(f"<td{mark}>{escape(cell)}</td>" for mark, cell in zip(marks, row, strict=True)) for row in found.rows
    ]
    body = "\n".join(f"<tr>{row}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>\n{body}\n</tbody></table></div>'


def cited() -> str:
    """How to cite the method."""
    return f"<h3>To cite the method</h3><p>{escape(paper.CITATION)}</p><pre>{escape(paper.BIBTEX)}</pre>"


def links(names: Sequence[str]) -> str:
    """Files beside the page, by their names."""
    found = [f'<a href="{quote(name)}">{escape(name)}</a>' for name in names]
    return f'<p class="faint note files">{", ".join(found)}</p>'


def body(results: Results, drawn: Mapping[str, str], slugs: Sequence[str]) -> str:
    """Each figure beside the table of the same numbers."""
    figures = {
        name: figure(name, svg, [other for other in drawn if other == name or other.startswith(f"{name}-")])
        for name, svg in drawn.items()
        if name in words.READING
    }
    both = list(zip(words.tables(results), paper.names(results, slugs), strict=True))
    cards = {kind: [card(found, name) for found, name in both if found.kind == kind] for kind in words.KINDS}
    few = " open" if len(results["improvement"]) <= SHOWN else ""
    numbers = [f"<details{few}><summary>the numbers</summary>{found}</details>" for found in cards["pairs"]]
    pairs = [f"<section>{figures.pop('improvement', without(results))}{found}</section>" for found in numbers]
    pairs += [f"<section>{figures.pop('profiles')}</section>"] if "profiles" in figures else []
    each = f'<section><h2>In each environment</h2><div class="pair">{"".join(cards["env"])}</div></section>'
    parts = [f"<section>{''.join(cards['all'])}</section>"] if cards["all"] else []
    parts += [f"<section>{figures.pop('iqm')}</section>", each, f'<div class="pair">{"".join(pairs)}</div>']
    return "\n".join([*parts, *(f"<section>{svg}</section>" for svg in figures.values())])


def without(results: Results) -> str:
    """What stands in the place of a figure that nobody could read."""
    text = f"{len(results['improvement'])} pairs are too many for a figure. improvement.csv has each of them."
    return f'<h2>{words.READING["improvement"][0]}</h2><p class="faint">{text}</p>'


def card(found: Table, name: str) -> str:
    heading = {"all": f"<h2>{escape(found.title)}</h2>", "env": f"<h3>{escape(found.title)}</h3>"}.get(found.kind, "")
    return f"<div>{heading}{table(found)}{note(found)}{links([f'{name}.csv', f'{name}.tex'])}</div>"


def note(found: Table) -> str:
    return f'<p class="faint note">{escape(found.note)}</p>' if found.note else ""


def warnings(texts: Sequence[str]) -> str:
    if not texts:
        return ""
    items = [f"<li>{escape(text)}</li>" for text in texts]
    more = items[SHOWN:]
    folded = f"<details><summary>{len(more)} more</summary><ul>{''.join(more)}</ul></details>" if more else ""
    return f'<div class="warnings"><h2>Before you believe it</h2><ul>{"".join(items[:SHOWN])}</ul>{folded}</div>'


def figure(name: str, svg: str, names: Sequence[str]) -> str:
    """The figure in the page's own colors, so that it is at home in the dark, too; `names` of its files."""
    title, sentence = words.READING[name]
    svg = svg[svg.index("<svg") :]
    points = re.search(r'width="([\d.]+)pt"', svg)
    assert points is not None, "matplotlib writes it"
    width = float(points[1]) / 72 * INCHES
    svg = re.sub(r' (width|height)="[\d.]+pt"', "", svg, count=2)
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\b(id="|url\(#|href="#)', rf"\g<1>{name}-", svg)  # names are unique in a page
    for color, variable in ((INK, "ink"), (FAINT, "faint"), (GRID, "grid"), (COLORS[0], "blue")):
        svg = svg.replace(color, f"var(--{variable})")
    svg = svg.replace("<svg", f'<svg role="img" aria-label="{escape(title)}" style="--width: {width:.0f}px"', 1)
    files = links([f"{other}.{ending}" for other in names for ending in paper.DRAWN])
    return f"<figure><h2>{title}</h2><figcaption>{sentence}</figcaption>{svg}{files}</figure>"


def runs(results: Results) -> str:
    """Every run with the interval of its own measurement."""
    rows = []
    scores = {env: [r["score"] for r in results["runs"] if r["env"] == env] for env in results["envs"]}
    for r in results["runs"]:
        digits = words.digits_of(scores[r["env"]])
        size = [f"{r['env_steps']:,}", f"{r['seconds']:,.0f}"]
        rows.append(
            [
                r["algo"],
                r["env"],
                str(r["seed"]),
                NOTHING if r["before"] is None else words.figure(r["before"], digits),
                words.figure(r["score"], digits),
                interval(r["low"], r["high"], digits),
                *size,
                str(len(r["alarms"]) or ""),
                r["folder"],
            ]
        )
    columns = [
        results["rows"].removesuffix("s"),
        "environment",
        "seed",
        "before",
        "score",
        "95 %, episodes",
        paper.units(results),
        "seconds",
        "alarms",
        "folder",
    ]
    body = table(Table("", columns, rows))
    text = "The interval is over the episodes or problems of that run's test, not over seeds."
    return f'<section><h2>Every run</h2><p class="faint">{text}</p>{body}{links(["runs.csv"])}</section>'


def repeat(commands: Sequence[str]) -> str:
    if not commands:
        return ""
    first, more = commands[0], commands[1:]
    rest = f"<details><summary>and the runs it is made of</summary><pre>{escape(chr(10).join(more))}</pre></details>"
    where = '<p class="faint">A relative path in a command starts in the folder where the command was given.</p>'
    return f"<section><h2>To repeat it</h2><pre>{escape(first)}</pre>{rest if more else ''}{where}</section>"
