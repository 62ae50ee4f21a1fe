"""The coefficients and the errors that are told are those that the points give."""

import importlib.util
import sys
from pathlib import Path

import pytest

from rlkit.planning.coefficients import ERRORS, FITTED, USUAL

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "scale.md").read_text(encoding="utf-8")
KINDS = {
    "a step": {"step", "async"},
    "a phase": {"learn", "forward", "write", "save"},
    "a weight transfer": {"transfer"},
    "memory": {"memory"},
}
ROWS = {
    "learning": "learn",
    "log-probabilities": "forward",
    "generation": "write",
    "weight transfer": "transfer",
    "checkpoint": "save",
    "steps, writing and learning in turn": "step",
    "steps, at the same time": "async",
}


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("scale_model", ROOT / "benchmarks" / "scale_model.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules["scale_model"] = module  # dataclasses look it up
    spec.loader.exec_module(module)
    yield module
    del sys.modules["scale_model"]


def test_the_halves_alternate_within_each_kind(bench) -> None:
    fitted, held = bench.halves(bench.read())
    assert not {(p.kind, p.name) for p in fitted} & {(p.kind, p.name) for p in held}
    for kind in bench.KINDS:
        first, second = ([p.name for p in half if p.kind == kind] for half in (fitted, held))
        together = sorted(first + second)
        assert (first, second) == (together[::2], together[1::2]) and first


def test_every_point_says_where_it_is_from(bench) -> None:
    points = bench.read()
    assert len({(p.kind, p.name) for p in points}) == len(points)
    assert all(p.source and p.value > 0 for p in points)


def test_the_fit_gives_the_coefficients(bench) -> None:
    fitted, _ = bench.halves(bench.read())
    found = bench.fit(fitted, bench.Coefficients(use=0.5, layer=3e-4, handover=2.0, carried=2e9, disk=2e9))
    for name in FITTED:
        assert getattr(found, name) == pytest.approx(getattr(USUAL, name), rel=0.05), name


@pytest.mark.slow
def test_the_errors_are_those_of_the_half_that_was_not_fitted(bench) -> None:
    fitted, held = bench.halves(bench.read())
    for what, kinds in KINDS.items():
        count, median, worst = bench.spread([p for p in held if p.kind in kinds])
        assert (count, round(median, 2), round(worst, 2)) == ERRORS[what], what
        assert f"| {what} | {count} | {median:.2f} | {worst:.2f} |" in PAGE
    for name, kind in ROWS.items():
        count, median, worst = bench.spread([p for p in held if p.kind == kind])
        _, before, most = bench.spread([p for p in fitted if p.kind == kind])
        assert f"| {name} | {count} | {median:.2f} | {worst:.2f} | | {before:.2f} | {most:.2f} |" in PAGE
    assert f"{len(bench.read())} points" in PAGE and f"{len(fitted + held)} of them" in PAGE


def test_the_page_tells_every_coefficient() -> None:
    rows = {line.split("`")[1]: line.split("|")[2].strip() for line in PAGE.splitlines() if line.startswith("| `")}
    told = {name: float(value.split()[0].replace(",", "")) for name, value in rows.items() if name in vars(USUAL)}
    assert told == vars(USUAL)
