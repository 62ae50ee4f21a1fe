"""The pages without a mouse and without sight: focus, names, and what axe-core finds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.browsing import LIMIT, await_curve, opened
from support.served import serve

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow

AXE = Path(__file__).resolve().parents[2] / "node_modules" / "axe-core" / "axe.min.js"  # npm install axe-core

# The nodes themselves are kept, not their places: a page that is alive may put an element before them meanwhile.
START = """() => {
  window.walked = [];
  document.body.tabIndex = -1;
  document.body.focus();
  scrollTo(0, 0);
}"""
FOCUSED = """() => {
  const node = document.activeElement, box = node.getBoundingClientRect(), style = getComputedStyle(node);
  const over = node === document.body || window.walked.includes(node);
  if (!over) window.walked.push(node);
  return {
    over, ring: style.outlineStyle !== "none", html: node.outerHTML.slice(0, 120),
    seen: Math.min(box.width, box.height, box.bottom, box.right, innerHeight - box.top, innerWidth - box.left) > 0,
  };
}"""
WALKED = """() => {
  const walked = window.walked, wanted = "a[href], button, input, select, summary, [tabindex]";
  const can = (node) => node.tabIndex >= 0 && !node.disabled && node.checkVisibility({ visibilityProperty: true });
  const reachable = [...document.querySelectorAll(wanted)].filter(can);
  const follows = (node, i) => !i || walked[i - 1].compareDocumentPosition(node) & Node.DOCUMENT_POSITION_FOLLOWING;
  const html = (nodes) => nodes.map((node) => node.outerHTML.slice(0, 200));
  return {
    count: walked.length,
    disordered: html(walked.filter((node, i) => !follows(node, i))),
    missed: html(reachable.filter((node) => !walked.includes(node))),
    unexpected: html(walked.filter((node) => !reachable.includes(node))),
  };
}"""


def walk(page: Any) -> None:
    """Press Tab through the page once: everything that has the focus is in sight and has a ring."""
    page.evaluate(START)
    while True:
        page.keyboard.press("Tab")
        now = page.evaluate(FOCUSED)
        if now["over"]:
            return
        assert now["seen"] and now["ring"], now["html"]


def chosen(page: Any) -> None:
    page.get_by_label("Select ppo", exact=True).check()
    await_curve(page, "#curves .chart")
    sync_api.expect(page.locator("#differences caption")).to_be_visible()


def curves(page: Any) -> None:
    await_curve(page, "#panels .chart")


def tokens(page: Any) -> None:
    page.get_by_role("tab", name="Tokens").click()
    sync_api.expect(page.locator(".card").first).to_be_visible()
    sync_api.expect(page.locator("#working")).to_be_hidden()


def replay(page: Any) -> None:
    page.get_by_role("tab", name="Replay").click()
    sync_api.expect(page.locator("#at")).to_contain_text("0 / ")


def cells(page: Any) -> None:
    sync_api.expect(page.locator(".cell").first).to_be_visible()
    sync_api.expect(page.locator("#update .figures")).to_be_visible()


def drawn(page: Any) -> None:
    page.get_by_role("tab", name="Map").click()
    sync_api.expect(page.locator(".cell").first).to_be_visible()


PAGES: dict[str, tuple[str, Callable[[Any], None]]] = {
    "home": ("", chosen),
    "run": ("ppo", curves),
    "tokens": ("grpo", tokens),
    "replay": ("ppo", replay),
    "map of a run": ("q_learning", drawn),
    "gridworld": ("env=gridworld", cells),
    "taxi": ("env=taxi", cells),
}


def asked(name: str, runs: Path) -> str:
    word = PAGES[name][0]
    return word if "=" in word else str(runs / word)


@pytest.mark.parametrize("name", PAGES)
def test_tab_reaches_every_control_in_the_order_of_the_page(name: str, browser: Any, runs: Path) -> None:
    with opened(browser, asked(name, runs)) as page:
        PAGES[name][1](page)
        walk(page)
        found = page.evaluate(WALKED)
        assert found.pop("count") >= 4
        assert found == {"disordered": [], "missed": [], "unexpected": []}


def test_a_chart_is_read_with_arrows_and_a_dialog_keeps_the_focus_and_gives_it_back(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "ppo")) as page:
        curves(page)
        chart = page.locator("#group-time .chart").first
        chart.locator("> svg").focus()
        page.keyboard.press("ArrowRight")
        sync_api.expect(chart.locator(".tip")).to_be_visible()
        first = chart.locator(".tip").inner_text()
        page.keyboard.press("ArrowRight")
        sync_api.expect(chart.locator(".tip")).not_to_have_text(first)
        page.keyboard.press("Tab")
        sync_api.expect(chart.locator(".tip")).to_be_hidden()
        larger = chart.get_by_role("button", name="Enlarge")
        larger.focus()
        page.keyboard.press("Enter")
        dialog = page.get_by_role("dialog")
        sync_api.expect(dialog).to_be_visible()
        for _ in range(12):
            assert page.evaluate(
                "() => document.activeElement === document.body || !!document.activeElement.closest('dialog')"
            )
            page.keyboard.press("Tab")
        page.keyboard.press("Escape")
        sync_api.expect(dialog).to_have_count(0)
        sync_api.expect(larger).to_be_focused()


@pytest.mark.parametrize("name", PAGES)
def test_everything_has_a_name(name: str, browser: Any, runs: Path) -> None:
    with opened(browser, asked(name, runs)) as page:
        PAGES[name][1](page)
        said = page.locator("body").aria_snapshot().splitlines()
        roles = (
            "button",
            "link",
            "checkbox",
            "slider",
            "combobox",
            "table",
            "grid",
            "img",
            "region",
            "tab",
            "tabpanel",
        )
        bare = [line for line in said if line.strip().removeprefix("- ").rstrip(":").split(" [")[0] in roles]
        assert not bare, "\n".join(said)


def test_a_cell_says_where_it_is_and_what_is_best_there(browser: Any) -> None:
    with opened(browser, "env=gridworld") as page:
        cells(page)
        page.get_by_role("button", name="Optimal V*").click()
        grid = page.get_by_role("grid", name="Map of states")
        sync_api.expect(grid.get_by_role("gridcell", name="row 0, column 0: 0.25, down or right")).to_have_count(1)
        sync_api.expect(grid.get_by_role("gridcell", name="row 7, column 7, goal: +1")).to_have_count(1)


@pytest.mark.skipif(not AXE.is_file(), reason="there is no node_modules/axe-core")
@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", PAGES)
def test_a_checker_of_accessibility_finds_nothing(name: str, browser: Any, runs: Path, scheme: str) -> None:
    with serve(asked(name, runs)) as client:
        page = browser.new_page(color_scheme=scheme, bypass_csp=True)
        page.set_default_timeout(LIMIT)
        page.goto(client.server.url)
        PAGES[name][1](page)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        found = page.evaluate("axe.run()")["violations"]
        assert not [(each["id"], [node["html"] for node in each["nodes"]]) for each in found]
        page.close()
