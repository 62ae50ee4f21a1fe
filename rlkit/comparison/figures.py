"""Pictures of a comparison: matplotlib figures of the numbers, one color for each algorithm in all of them."""

import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypedDict

from rlkit.comparison.caveats import listed
from rlkit.comparison.numbers import Band, Environment, Profiles, Results
from rlkit.recording.files import replacing, write_atomically

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


# Okabe & Ito 2008, "Color universal design": distinct with any kind of color vision; yellow is too light for a line.
COLORS = ("#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#7f7f7f")
LineStyle = Literal["-", "--", ":"]
STYLES: tuple[LineStyle, ...] = ("-", "--", ":")  # of the first, second and third seven algorithms
INK, FAINT, GRID = "#1b1f24", "#767d86", "#e2e5e9"  # text, what stands back, lines behind; a page may replace them
DPI, WIDTH = 150, 10.0  # of a PNG; inches
LONG = 24  # letters of two names that leave too little of a narrow figure
TALLEST = 100  # inches of rows whose names have several lines
MOST_PAIRS = 120  # in one figure: of more, only the tables tell
LINE, WIDE = 30, 60  # letters of a line of a name, beside a figure and above it
HEADS = {1: 60, 2: 44, 3: 28}  # letters of a line above a panel, by the number of panels side by side

LOOK: Any = {  # matplotlib types the keys one by one, and not in every version
    "font.size": 10,
    "font.family": "DejaVu Sans",
    "text.color": INK,
    "text.parse_math": False,  # a name may hold a $
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.titlesize": 11,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "axes.grid": True,
    "grid.color": GRID,
    "xtick.color": FAINT,
    "ytick.color": FAINT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "legend.frameon": False,
    "svg.fonttype": "path",
    "pdf.fonttype": 42,  # text in embedded TrueType fonts, as journals ask for it
    "svg.hashsalt": "rlkit",  # the same names in the file every time
}
CURVE_WORDS = {"evaluation": "held out", "training": "training attempts"}


def draw(results: Results, folder: Path, slugs: Sequence[str]) -> dict[str, str]:
    """Save each figure as NAME.png, .pdf and .svg in the folder; returns NAME → the SVG, for a page.

    slugs: each environment's name in files, in order. Files hold no date: the same numbers give the same files.
    """
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    drawn = {}
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # not the style of the user's program, or of a matplotlibrc
        matplotlib.rcParams.update(LOOK)
        for name, figure in [*figures(results), *of_each(results, slugs)]:
            FigureCanvasAgg(figure)
            figure.draw_without_rendering()
            figure.set_layout_engine("none")  # everything is in its place; a second look would move nothing
            png, pdf, text = io.BytesIO(), io.BytesIO(), io.StringIO()  # Matplotlib hides why a file fails
            figure.savefig(png, format="png", dpi=DPI, facecolor="white")
            figure.savefig(pdf, format="pdf", metadata={"CreationDate": None})
            for ending, drawing in (("png", png), ("pdf", pdf)):
                with replacing(folder / f"{name}.{ending}") as file:
                    file.write(drawing.getvalue())
            figure.savefig(text, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
            drawn[name] = text.getvalue()
            write_atomically(folder / f"{name}.svg", drawn[name])
    return drawn


def of_each(results: Results, slugs: Sequence[str]) -> Iterator[tuple[str, "Figure"]]:
    """The figures of one environment alone, where there are several."""
    if len(results["envs"]) < 2:
        return
    for slug, (env, found) in zip(slugs, results["envs"].items(), strict=True):
        alone: Results = {**results, "envs": {env: found}, "shared": []}
        yield f"iqm-{slug}", iqm(alone)
        for axis, name in (("env_steps", "sample_efficiency"), ("seconds", "wall_clock")):
            if any(axis in lines for lines in found["curves"].values()):
                yield f"{name}-{slug}", curves(alone, axis)


def figures(results: Results) -> Iterator[tuple[str, "Figure"]]:
    """Those for which there are numbers."""
    yield "iqm", iqm(results)
    if 0 < len(results["improvement"]) <= MOST_PAIRS:
        yield "improvement", improvement(results)
    if results["profiles"]:
        yield "profiles", profiles(results, results["profiles"])
    for axis, name in (("env_steps", "sample_efficiency"), ("seconds", "wall_clock")):
        if any(axis in found for env in results["envs"].values() for found in env["curves"].values()):
            yield name, curves(results, axis)


class Style(TypedDict):
    """How an algorithm is drawn in all figures."""

    color: str
    linestyle: LineStyle


class Row(NamedTuple):
    """An algorithm in a figure of interquartile means."""

    runs: list[float]  # a pale dot each
    iqm: float
    low: float | None
    high: float | None


def look(results: Results, algo: str) -> Style:
    i = results["algos"].index(algo)
    return {"color": COLORS[i % len(COLORS)], "linestyle": STYLES[i // len(COLORS) % len(STYLES)]}


def panels(n: int, height: float, share_y: bool = False) -> tuple["Figure", list["Axes"]]:
    from matplotlib.figure import Figure

    columns = 2 if n == 4 else min(n, 3)
    rows = -(-n // columns)
    width = WIDTH if n > 1 else 0.62 * WIDTH
    figure = Figure(figsize=(width, height * rows), layout="constrained")
    axes = figure.subplots(rows, columns, squeeze=False, sharey=share_y).flatten().tolist()
    for spare in axes[n:]:
        spare.remove()
    return figure, axes[:n]


def legend(figure: "Figure", results: Results) -> None:
    from matplotlib.lines import Line2D

    handles = [Line2D([], [], linewidth=2, **look(results, algo)) for algo in results["algos"]]
    room = 11 * figure.get_figwidth() / (7 + max(map(len, results["algos"])))  # in words of this length
    columns = max(1, min(len(handles), int(room)))
    figure.legend(handles, [folded(x, WIDE) for x in results["algos"]], loc="outside upper left", ncols=columns)


def headed(axes: "Axes", title: str) -> None:
    """Set a title that does not run into the one beside it."""
    place = axes.get_subplotspec()
    axes.set_title(folded(title, HEADS[place.get_gridspec().ncols if place else 1]))


def folded(name: str, width: int = LINE) -> str:
    """A long name in several lines: in one it would leave nothing of the figure."""
    return name if len(name) <= width else textwrap.fill(name, width)


def tall(names: Sequence[str], least: float) -> float:
    """Inches that rows with these names take, each of so many at least; no more where they would be too many."""
    lines = max((name.count("\n") + 1 for name in names), default=1)
    each = max(least, 0.1 + 0.17 * lines)
    return len(names) * (each if len(names) * each < TALLEST else least)


def near(axes: "Axes", values: Sequence[float], ends: tuple[float, float] | None, vertical: bool) -> None:
    """Draw the reference scores that lie near the values; one far away would squeeze them into a line."""
    if not ends:
        return
    low, high = min(values), max(values)
    span = (high - low) or (ends[1] - ends[0])
    for at in ends:
        if low - span <= at <= high + span:
            line = axes.axvline if vertical else axes.axhline
            line(at, color=FAINT, linewidth=1, linestyle=(0, (4, 3)), zorder=1)


def ends(found: Environment) -> tuple[float, float] | None:
    """The reference scores of an environment, the lower one first."""
    scale = found["reference"]
    return (scale["low"], scale["high"]) if scale else None


def iqm(results: Results) -> "Figure":
    """Interquartile means with their intervals and every run behind them: over all environments, then in each."""
    over_all = len(results["shared"]) > 1
    envs = list(results["envs"])
    figure, axes = panels(len(envs) + over_all, 0.9 + tall([*map(folded, results["algos"])], 0.34), share_y=True)
    if over_all:
        rows = {algo: Row([], x["iqm"], x["low"], x["high"]) for algo, x in results["overall"].items()}
        where = "over all" if len(results["shared"]) == len(envs) else f"on {listed(results['shared'])}"
        dots(axes[0], results, rows, f"{where}, normalized")
        near(axes[0], [row.iqm for row in rows.values()], (0.0, 1.0), vertical=True)
    for panel, env in zip(axes[over_all:], envs, strict=True):
        found = results["envs"][env]
        rows = {algo: Row(c["scores"], c["iqm"], c["low"], c["high"]) for algo, c in found["algos"].items()}
        dots(panel, results, rows, f"{env}, {found['metric']}")
        near(panel, [x for row in rows.values() for x in row.runs], ends(found), vertical=True)
    return figure


def dots(axes: "Axes", results: Results, rows: Mapping[str, Row], title: str) -> None:
    """A row for each algorithm: its runs pale, the estimate a point, its interval a bar."""
    algos = results["algos"]
    headed(axes, title)
    axes.set_yticks(range(len(algos)), [*map(folded, algos)])
    axes.set_ylim(len(algos) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.ticklabel_format(axis="x", scilimits=(-3, 5))  # labels of small or large numbers would run into each other
    axes.locator_params(axis="x", nbins=5)
    for y, algo in enumerate(algos):
        if algo not in rows:
            axes.text(0.02, y, "no finished run", transform=axes.get_yaxis_transform(), va="center", color=FAINT)
            continue
        x, color = rows[algo], look(results, algo)["color"]
        axes.plot(x.runs, [y] * len(x.runs), "o", color=color, alpha=0.3, markersize=5, markeredgewidth=0)
        if x.low is not None and x.high is not None:
            axes.plot([x.low, x.high], [y, y], color=color, linewidth=3, solid_capstyle="round")
        axes.plot([x.iqm], [y], "o", color=color, markersize=8, markeredgecolor="white", markeredgewidth=1)


def improvement(results: Results) -> "Figure":
    """P(X > Y) of every pair with its interval; gray where it separates nothing."""
    pairs = [(pair, pair["value"]) for pair in results["improvement"] if pair["value"] is not None]
    names = [both(pair["x"], pair["y"]) for pair, _ in pairs]
    figure, (axes,) = panels(1, 0.9 + max(tall(names, 0.3), 0.3))
    if any(len(pair["x"]) + len(pair["y"]) > LONG for pair, _ in pairs):
        figure.set_figwidth(WIDTH)
    axes.axvline(0.5, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    for y, (pair, value) in enumerate(pairs):
        winner = {"better": pair["x"], "worse": pair["y"]}.get(pair["verdict"])
        color = look(results, winner)["color"] if winner else FAINT
        if pair["low"] is not None and pair["high"] is not None:
            axes.plot([pair["low"], pair["high"]], [y, y], color=color, linewidth=3, solid_capstyle="round")
        axes.plot([value], [y], "o", color=color, markersize=8, markeredgecolor="white", markeredgewidth=1)
        words = f"{winner} is better" if winner else pair["verdict"]
        axes.text(1.03, y, folded(words), va="center", color=INK if winner else FAINT)
    axes.set_yticks(range(len(pairs)), names)
    axes.set_ylim(max(len(pairs), 1) - 0.5, -0.5)
    axes.set_xlim(-0.03, 1.03)
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="y", visible=False)
    axes.set_xlabel("P(first > second)")
    return figure


def both(x: str, y: str) -> str:
    """`x > y`, long names below each other."""
    return f"{x} > {y}" if max(len(x), len(y)) <= LINE else f"{folded(x)}\n> {folded(y)}"


def profiles(results: Results, found: Profiles) -> "Figure":
    """The fraction of runs above each normalized score."""
    figure, (axes,) = panels(1, 3.8)
    x = found["thresholds"]
    for algo, line in found["algos"].items():
        band(axes, x, line["fraction"], line, look(results, algo))
    for at in (0.0, 1.0):
        axes.axvline(at, color=FAINT, linewidth=1, linestyle=(0, (4, 3)))
    axes.set_ylim(-0.02, 1.02)
    axes.set_xlim(x[0], x[-1])
    axes.set_xlabel("normalized score τ")
    axes.set_ylabel("fraction of runs above τ")
    legend(figure, results)
    return figure


def band(axes: "Axes", x: list[float], y: list[float], line: Band, style: Style) -> None:
    axes.plot(x, y, linewidth=2, **style)
    if line["low"] is not None and line["high"] is not None:
        axes.fill_between(x, line["low"], line["high"], color=style["color"], alpha=0.16, linewidth=0)


def curves(results: Results, axis: str) -> "Figure":
    """IQM over the seeds against steps or seconds, one panel an environment."""
    from matplotlib.ticker import EngFormatter

    drawn = {env: found for env, found in results["envs"].items() if any(axis in c for c in found["curves"].values())}
    figure, axes = panels(len(drawn), 3.1 if len(drawn) > 1 else 3.8)
    for panel, (env, found) in zip(axes, drawn.items(), strict=True):
        lines = {
            algo: found["curves"][algo][axis] for algo in results["algos"] if axis in found["curves"].get(algo, {})
        }
        for algo, line in lines.items():
            band(panel, line["x"], line["iqm"], line, look(results, algo))
        paid = found["curve"] == "training" and found["metric"] == "accuracy"  # attempts have rewards of any kind
        if not paid:
            near(panel, [y for line in lines.values() for y in line["iqm"]], ends(found), vertical=False)
        headed(panel, env)
        panel.set_xlim(left=0)
        panel.set_xlabel("seconds" if axis == "seconds" else f"{found['unit']} learned from")
        panel.set_ylabel(f"{'reward' if paid else found['metric']}, {CURVE_WORDS[found['curve'] or '']}")
        panel.xaxis.set_major_formatter("{x:g}" if axis == "seconds" else EngFormatter(sep=""))  # 0.2, not 200m
        panel.locator_params(axis="x", nbins=5)
    legend(figure, results)
    return figure
