"""Draw who imports whom: `PYTHONPATH=.:tests python -m support.drawing` writes docs/images/architecture.svg.

Every box is a room, and stands above all that it imports. An arrow leads to a room that is imported. It is left out
where a chain of other arrows leads there. Nothing is placed by hand: the picture is computed from the sources alone.
"""

from functools import cache
from html import escape
from itertools import pairwise

from support.sources import COMMANDS, CONTRACTS, ROOT, SOURCES, modules, room

PATH = ROOT / "docs" / "images" / "architecture.svg"
WIDTH, BOX, HEIGHT, GAP, MARGIN = 1000, 104, 32, 42, 16
BEND = 0.3  # the width of an arrow that passes a level, in boxes
EVERYWHERE = {"ground", CONTRACTS}  # every room may import these, so they have no arrows
KINDS = {"algorithms": "plugin", "envs": "plugin", "loop": "loop", "commands": "ends"}
STYLE = """
  text { font: 14px system-ui, sans-serif; text-anchor: middle; dominant-baseline: central; fill: #1c2733 }
  rect { fill: #eef3f8; stroke: #5b7083 } .plugin { fill: #e3f3e6 } .loop { fill: #fdf0d5 } .ends { fill: #f4f4f4 }
  path { fill: none; stroke: #5b7083; stroke-width: 1.2 } .tip { fill: #5b7083; stroke: none }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6edf3 } rect { fill: #1d2a36; stroke: #8ba3b8 } .plugin { fill: #1d3a26 } .loop { fill: #4a3a14 }
    .ends { fill: #24292f } path { stroke: #8ba3b8 } .tip { fill: #8ba3b8 } }
"""


@cache
def below(name: str) -> frozenset[str]:
    """The rooms that one imports, without those that every room may import."""
    mine = [module for module in SOURCES if module != "rlkit" and room(module) == name]
    return frozenset({room(other) for module in mine for other in modules(module)} - EVERYWHERE - {name})


@cache
def all_below(name: str) -> frozenset[str]:
    return below(name).union(*map(all_below, below(name)))


@cache
def level(name: str) -> int:
    return 1 + max(map(level, below(name)), default=-1)


def arrows(name: str) -> list[str]:
    """The rooms that are imported, but for those that another of them leads to."""
    return sorted(other for other in below(name) if not any(other in all_below(step) for step in below(name)))


def chains(names: list[str]) -> list[list[str]]:
    """Every arrow, as a room, its bends on the levels between, and a room."""
    return [
        [name, *(f"{name} {other} {i}" for i in range(level(name) - 1, level(other), -1)), other]
        for name in names
        for other in arrows(name)
    ]


def placed(names: list[str], lines: list[list[str]]) -> dict[str, tuple[float, int]]:
    """x and level of each room and bend. Each stands near those that it is joined with, so few arrows cross."""
    levels = {name: level(name) for name in names}
    near: dict[str, set[str]] = {name: set() for name in names}
    for line in lines:
        levels |= {bend: levels[line[0]] - i for i, bend in enumerate(line[:-1])}
        for a, b in pairwise(line):
            near.setdefault(a, set()).add(b)
            near.setdefault(b, set()).add(a)
    rows = [[name for name in levels if levels[name] == i] for i in range(1 + max(levels.values()))]
    x = {name: at for row in rows for name, at in spread(row)}
    for _ in range(40):
        for row in rows:
            row.sort(key=lambda name: (sum(x[other] for other in sorted(near[name])) / max(1, len(near[name])), name))
            x |= dict(spread(row))
    return {name: (x[name], levels[name]) for name in levels}


def spread(row: list[str]) -> list[tuple[str, float]]:
    """Where the middle of each is, from the left."""
    widths = [BEND if " " in name else 1 for name in row]
    return [(name, WIDTH * (sum(widths[:i]) + widths[i] / 2) / sum(widths)) for i, name in enumerate(row)]


def box(x: float, y: float, width: float, text: str, kind: str) -> str:
    return (
        f'<rect class="{kind}" x="{x - width / 2:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="5"/>'
        f'<text x="{x:.0f}" y="{y + HEIGHT / 2:.0f}">{escape(text)}</text>'
    )


def arrow(points: list[tuple[float, int]]) -> str:
    """A curve through the levels: straight where it passes one, and with a tip at its end."""
    (x, y), *rest = points
    path = f"M{x:.0f} {y + HEIGHT}"
    for i, (x_next, top) in enumerate(rest):
        start = y + HEIGHT
        path += f"C{x:.0f} {start + GAP / 2:.0f} {x_next:.0f} {top - GAP / 2:.0f} {x_next:.0f} {top}"
        path += "" if i == len(rest) - 1 else f"V{top + HEIGHT}"
        x, y = x_next, top
    return f'<path d="{path}"/><path class="tip" d="M{x:.0f} {y}l-4 -7h8z"/>'


def svg() -> str:
    names = sorted({room(module) for module in SOURCES if module != "rlkit"} - EVERYWHERE)
    lines = chains(names)
    places = placed(names, lines)
    height = 1 + max(i for _, i in places.values())
    at = {name: (x, MARGIN + (HEIGHT + GAP) * (height - 1 - i)) for name, (x, i) in places.items()}
    parts = [arrow([at[name] for name in line]) for line in lines]
    commands = " · ".join(sorted(COMMANDS - {"__main__"}))
    for name in names:
        width, text = (WIDTH * 0.6, commands) if name == "commands" else (BOX, name)
        parts.append(box(*at[name], width, text, KINDS.get(name, "room")))
    bottom = MARGIN + (HEIGHT + GAP) * height - GAP // 2
    ground = "api (the contracts) and the ground (returns, losses, ...): every room may import these"
    parts.append(box(WIDTH / 2, bottom, WIDTH - 2 * MARGIN, ground, "ends"))
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {bottom + HEIGHT + MARGIN}" role="img">'
    title = "<title>The rooms of rlkit. An arrow leads from a room to one that it imports.</title>"
    return "\n".join([head, title, f"<style>{STYLE}</style>", *parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    PATH.write_text(svg(), encoding="utf-8")
