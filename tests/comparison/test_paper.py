"""What a comparison draws: figures and tables for a paper."""

import os
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from support.compared import curved, run
from support.resuming import Killed

from rlkit.api import UserError
from rlkit.comparison import figures, page, paper, report, words
from rlkit.comparison.results import compute


@pytest.mark.slow
def test_a_paper_gets_figures_of_each_environment_and_tables_that_are_the_same_each_time(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    given = [
        run(a, e, s, 0.1 * s) for a in ("ppo", "my_$algo") for e in ("cartpole", "gym:Acrobot-v1") for s in range(2)
    ]
    given = [replace(r, curves=curved("evaluation", 5)) for r in given]
    for name in ("one", "two"):
        report.write(given, tmp_path / name)
    found = {path.name for path in (tmp_path / "one").iterdir()}
    for env in ("CartPole", "Acrobot-v1"):
        for figure in ("iqm", "sample_efficiency", "wall_clock"):
            assert {f"{figure}-{env}.{ending}" for ending in ("pdf", "svg", "png")} <= found
        assert {f"scores-{env}.csv", f"scores-{env}.tex"} <= found
    assert {"overall.tex", "overall.csv", "improvement.tex", "improvement.csv", "runs.csv", "citation.bib"} <= found
    for name in found:
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes(), name
    table = (tmp_path / "one" / "scores-CartPole.tex").read_text(encoding="utf-8")
    assert r"\toprule" in table and r"my\_\$algo &" in table and "PPO &" in table
    page = (tmp_path / "one" / "index.html").read_text(encoding="utf-8")
    assert page.count("@inproceedings") == 1 and "CartPole" in page and ">cartpole" not in page


@pytest.mark.slow
def test_figures_do_not_take_the_style_of_the_users_program(tmp_path: Path) -> None:
    matplotlib = pytest.importorskip("matplotlib")
    own = {"text.usetex": True, "axes.facecolor": "black", "savefig.transparent": True, "backend": "svg"}
    for name, style in (("plain", {}), ("own", own)):
        (tmp_path / name).mkdir()
        with matplotlib.rc_context(style):
            figures.draw(compute([run(), run("b")]), tmp_path / name, ["maze"])
            assert style.items() <= matplotlib.rcParams.items()
    for path in (tmp_path / "plain").iterdir():
        assert path.read_bytes() == (tmp_path / "own" / path.name).read_bytes(), path.name


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_long_names_are_folded_and_leave_room_for_what_is_drawn(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    settings = "hidden=256,256 gae_lambda=0.95 epochs=10 clip=0.2"
    long = [f"ppo lr=1e-3 {settings}", f"ppo lr=3e-3 {settings}", "x" * 200]
    report.write([run(a, "cartpole", s, 0.1 * s) for a in long for s in range(2)], tmp_path)
    assert figures.both("a", "b") == "a > b" and figures.folded("a") == "a"
    assert figures.both(long[0], "b").splitlines() == [
        "ppo lr=1e-3 hidden=256,256", "gae_lambda=0.95 epochs=10", "clip=0.2", "> b"
    ]  # fmt: skip


def test_pairs_too_many_for_a_figure_are_in_the_table_alone() -> None:
    pytest.importorskip("matplotlib")
    few, many = (compute([run(f"a{i}", score=0.01 * i) for i in range(n)]) for n in (16, 17))
    assert "improvement" in dict(figures.figures(few)) and "improvement" not in dict(figures.figures(many))
    drawn = {"iqm": '<svg width="72pt"></svg>'}
    assert "120 pairs" not in page.render(few, {**drawn, "improvement": drawn["iqm"]}, ["maze"])
    assert "136 pairs are too many for a figure. improvement.csv has each" in page.render(many, drawn, ["maze"])


def test_the_table_over_all_environments_has_one_order_in_both_of_its_files() -> None:
    found = paper.files(compute([run(a, score=x, seed=s) for a, x in (("a", 0.1), ("b", 0.5)) for s in (0, 1)]), ["m"])
    lines = [[line[0] for line in found[f"overall.{kind}"].splitlines() if line[:1] in "ab"] for kind in ("csv", "tex")]
    assert lines[0][1:] == ["b", "a"] and lines[1] == ["b", "a"], "the first line of the CSV begins with `algorithm`"


def test_a_negative_number_has_a_minus_in_latex_and_a_name_its_hyphens() -> None:
    text = paper.latex(words.Table("t", ["", "mean", "95 %"], [["ppo lr=1e-3 -1", "-7.6", "-8.1 to -2.000e-09"]]))
    assert r"ppo lr=1e-3 -1 & $-$7.6 & $-$8.1 to $-$2.000e-09 \\" in text


def test_a_name_is_no_argument_of_the_row_before_in_latex() -> None:
    text = paper.latex(words.Table("t", ["", "IQM"], [["[a]", "1"], ["*b", "2"]]))
    assert text.splitlines()[5:7] == [r"{[}a] & 1 \\", r"{*}b & 2 \\"]


def test_training_attempts_on_text_are_drawn_as_rewards() -> None:
    pytest.importorskip("matplotlib")
    text = {"kind": "text", "metric": "accuracy", "scored": "problems"}
    for kind, label in (("training", "reward, training attempts"), ("evaluation", "accuracy, held out")):
        found = compute([run(seed=s, curves=curved(kind, 5), **text) for s in range(2)])
        (axes,) = figures.curves(found, "env_steps").axes
        assert axes.get_ylabel() == label


def test_figures_and_tables_that_are_no_longer_drawn_are_removed(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.write([run(a, e, curves=curved("training", 5)) for a in ("a", "b") for e in ("maze", "cliff")], tmp_path)
    mine = [tmp_path / name for name in ("iqm-mine.png", "notes.csv")]
    for path in mine:
        path.write_text("mine")
    report.write([run("a", "maze")], tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".csv", ".tex")}
    assert left == {"iqm.png", "profiles.png", "overall.csv", "overall.tex", "runs.csv", "scores-maze.csv",
                    "scores-maze.tex", "iqm-mine.png", "notes.csv"}  # fmt: skip


@pytest.mark.slow
def test_figures_of_a_report_that_was_killed_are_removed_by_the_next(tmp_path: Path, monkeypatch) -> None:
    pytest.importorskip("matplotlib")
    report.write([run(a, e, curves=curved("training", 5)) for a in ("a", "b") for e in ("maze", "cliff")], tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(report, "figures", lambda *_: 1 / 0)  # killed before they were drawn
        with pytest.raises(ZeroDivisionError):
            report.write([run("a", "maze")], tmp_path)
    report.write([run("a", "maze")], tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.suffix in (".png", ".csv")}
    assert left == {"iqm.png", "profiles.png", "overall.csv", "runs.csv", "scores-maze.csv"}


def test_a_figure_is_not_written_through_a_link(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "private").write_text("mine")
    (tmp_path / "iqm.png").symlink_to(tmp_path / "private")
    with pytest.raises(UserError, match=r"iqm\.png is a link, and links in a folder that rlkit writes are refused"):
        report.write([run()], tmp_path)
    assert (tmp_path / "private").read_text() == "mine"


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_letters_that_the_font_lacks_are_told_in_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    report.write([run("\U000f0000", "maze")], tmp_path)  # no font has it
    assert capsys.readouterr().err.count("the font of the figures lacks letters of a name") == 1


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_runs_with_nothing_in_common_are_drawn_without_a_warning(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.write([run("ppo", "maze"), run("dqn", "cliff")], tmp_path)
    assert (tmp_path / "index.html").is_file()


def test_the_first_panel_names_the_environments_that_it_is_over() -> None:
    pytest.importorskip("matplotlib")
    shared = [run(a, e) for a in ("a", "b") for e in ("maze", "cliff")]
    heads = [figures.iqm(compute(given)).axes[0].get_title() for given in (shared, [*shared, run("a", "lake")])]
    assert heads == ["over all, normalized", "on maze and cliff, normalized"]


@pytest.mark.slow
def test_titles_side_by_side_do_not_run_into_each_other() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    envs = [f"MiniGrid:MiniGrid-MultiRoom-N{n}-S4-v0" for n in range(6)]
    given = [
        run("ppo gae_lambda=0.95 epochs=10", e, s, 0.1 * s, curves=curved("evaluation", 5))
        for e in envs
        for s in range(2)
    ]
    for figure in (figures.iqm(compute(given)), figures.curves(compute(given), "env_steps")):
        FigureCanvasAgg(figure)
        figure.draw_without_rendering()
        boxes = [axes.get_tightbbox() for axes in figure.axes]
        assert all(box is not None and box.x1 <= figure.bbox.x1 + 1 for box in boxes)
        titles = [
            x.get_window_extent()
            for axes in figure.axes
            for x in axes.findobj(Text)
            if x.get_text().startswith("MiniGrid")
        ]
        assert all(one.x1 < other.x0 for one, other in pairwise(titles) if abs(one.y0 - other.y0) < 5)


@pytest.mark.parametrize("size", [5e-4, 5e5, 5e12])
@pytest.mark.slow
def test_numbers_at_an_axis_do_not_run_into_each_other(size: float) -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    given = [run(a, e, s, -(s + 1) * size, reference=None) for a in ("ppo", "a2c") for e in "xyz" for s in range(5)]
    figure = figures.iqm(compute(given))
    FigureCanvasAgg(figure)
    figure.draw_without_rendering()
    for axes in figure.axes:
        boxes = [label.get_window_extent() for label in axes.get_xticklabels()]
        assert len(boxes) > 2 and all(one.x1 < other.x0 for one, other in pairwise(boxes))


@pytest.mark.slow
def test_less_than_a_second_is_not_written_as_if_it_were_minutes() -> None:
    pytest.importorskip("matplotlib")
    given = [replace(run("ppo", seed=s), curves=curved("evaluation", 5)) for s in range(2)]
    of_steps, of_seconds = (figures.curves(compute(given), axis).axes[0].xaxis for axis in ("env_steps", "seconds"))
    assert of_steps.get_major_formatter()(20_000) == "20k" and of_seconds.get_major_formatter()(0.2) == "0.2"


def test_the_columns_of_csv_files_have_the_unit_of_their_environments() -> None:
    given = [run("ppo", "maze"), run("grpo", "sums", kind="text", metric="accuracy", scored="problems")]
    found = paper.files(compute(given), ["maze", "sums"])
    heads = {name: text.splitlines()[0].split(",")[-2] for name, text in found.items() if name.endswith(".csv")}
    assert heads["scores-maze.csv"] == "steps" and heads["scores-sums.csv"] == "tokens"
    assert heads["runs.csv"] == "steps or tokens"


@pytest.mark.slow
def test_a_report_that_was_killed_leaves_no_figure_of_an_environment_that_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    before = [replace(run("a", env, s), curves=curved("evaluation", 3)) for env in ("maze", "hall") for s in range(2)]
    after = [r for r in before if r.env == "maze"]
    report.write(before, tmp_path / "out")
    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(report, "figures", stop)
        report.write(after, tmp_path / "out")
    for name in ("out", "new"):
        report.write(after, tmp_path / name)
    left, wanted = ({path.name for path in (tmp_path / name).iterdir()} for name in ("out", "new"))
    assert left == wanted


def stop(*_: object) -> None:
    raise Killed


@pytest.mark.slow
@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("MPLBACKEND", "MPLBACKEND=/ in the environment names no backend of matplotlib: unset it, and"),
        ("MATPLOTLIBRC", "matplotlib cannot read its file matplotlibrc: write it in UTF-8, or remove it"),
    ],
)
def test_what_matplotlib_cannot_begin_with_is_one_line(key: str, words: str, tmp_path: Path) -> None:
    """It is read when matplotlib is imported, so in a process of its own."""
    pytest.importorskip("matplotlib")
    code = (
        "import sys; from support.compared import run; from rlkit.comparison import report; from rlkit.console import "
        "guarded; sys.exit(guarded(lambda argv: bool(report.write([run()], __import__('pathlib').Path(argv[0])))))"
    )
    (tmp_path / "matplotlibrc").write_bytes(b"# r\xe9glages\n")
    value = "/" if key == "MPLBACKEND" else str(tmp_path)
    environment = os.environ | {key: value, "PYTHONPATH": str(Path(__file__).parents[1])}
    made = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path)], env=environment, capture_output=True, text=True, check=False
    )
    ours = [line for line in made.stderr.splitlines() if not line.startswith("Cannot decode")]  # matplotlib says it
    assert made.returncode == 2 and len(ours) == 1 and words in ours[0]
