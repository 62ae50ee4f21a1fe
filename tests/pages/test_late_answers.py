"""Answers that come late, or in another order than they were asked for."""

from pathlib import Path
from typing import Any

import pytest
from support.browsing import await_curve, opened

from rlkit.pages import home

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow


def let_go(page: Any, route: Any) -> None:
    """Let the server answer, and the page take it."""
    with page.expect_response(route.request.url):
        route.continue_()
    page.evaluate("() => new Promise((done) => setTimeout(done, 50))")


def until(page: Any, held: list[Any], count: int) -> None:
    while len(held) < count:
        page.wait_for_timeout(10)


def test_the_iteration_of_the_slider_is_shown(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "grpo")) as page:
        page.get_by_role("tab", name="Completions").click()
        shown, slider = page.locator("#iteration-value"), page.locator("#iteration")
        sync_api.expect(shown).to_have_text("2")
        held: list[Any] = []
        page.route("**/api/completions?iteration=*", lambda route: held.append(route))
        for at in ("0", "1"):
            slider.fill(at)
        until(page, held, 2)
        for route in reversed(held):
            let_go(page, route)
        assert (shown.inner_text(), slider.input_value()) == ("2", "1")


def test_the_prompt_that_was_asked_for_last_is_shown(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "grpo")) as page:
        page.get_by_role("tab", name="Tokens").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 1 ×")
        sync_api.expect(page.locator("#working")).to_be_hidden()
        prompts = []
        for _ in range(4):
            prompts.append((page.locator("#which").inner_text(), page.locator(".prompt").all_inner_texts()))
            page.get_by_role("button", name="Next prompt").click()
            sync_api.expect(page.locator("#which")).not_to_have_text(prompts[-1][0])
        held: list[Any] = []
        page.route("**/api/group", lambda route: held.append(route))
        for _ in range(2):
            page.get_by_role("button", name="Next prompt").click()
        until(page, held, 2)
        for route in reversed(held):
            let_go(page, route)
        assert (page.locator("#which").inner_text(), page.locator(".prompt").all_inner_texts()) == prompts[2]


def test_the_lines_of_a_run_are_asked_for_once(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs)) as page:
        seen = False
        held: list[Any] = []
        page.route("**/api/metrics?*", lambda route: held.append(route) if not seen else route.continue_())
        page.get_by_label("Select ppo", exact=True).check()
        with page.expect_response("**/api/home"):  # the table is looked at anew, and with it the selected runs
            pass
        page.wait_for_timeout(100)
        assert len(held) == 1
        seen = True
        held[0].continue_()
        await_curve(page, "#group-time .chart")


def test_runs_that_do_not_fit_are_counted_once(browser: Any, runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(home, "MOST", 2)
    with opened(browser, str(runs)) as page:
        for _ in range(2):
            with page.expect_response("**/api/home"):
                pass
        page.wait_for_timeout(100)
        assert page.locator("#count").inner_text() == "2 runs, 1 more not read yet"
        page.locator("#filter").fill("cartpole")
        assert page.locator("#count").inner_text() == "1 of 2 runs, 1 more not read yet"


def test_the_algorithm_that_was_chosen_last_is_shown(browser: Any) -> None:
    with opened(browser, "env=gridworld") as page:
        held: list[Any] = []
        page.route("**/api/step", lambda route: held.append(route))
        page.get_by_role("button", name="Step").click()
        until(page, held, 1)
        tab = page.get_by_role("tab", name="Q-learning")
        tab.click()
        sync_api.expect(tab).to_have_attribute("aria-selected", "true")
        let_go(page, held[0])
        assert tab.get_attribute("aria-selected") == "true"


def test_the_tokens_of_a_page_are_of_the_state_that_it_tells(browser: Any, runs: Path) -> None:
    """Two pages look at one policy in memory, and one of them learns."""
    with opened(browser, str(runs / "grpo")) as page:
        page.get_by_role("tab", name="Tokens").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 1 ×")
        sync_api.expect(page.locator("#working")).to_be_hidden()
        other = browser.new_page()
        other.goto(page.url)
        other.get_by_role("tab", name="Tokens").click()
        sync_api.expect(other.locator("#played")).to_contain_text("Learned 1 ×")
        other.get_by_role("button", name="Learn").click()
        sync_api.expect(other.locator("#played")).to_contain_text("Learned 2 ×")
        page.get_by_role("button", name="Next prompt").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 2 ×")
        other.close()
