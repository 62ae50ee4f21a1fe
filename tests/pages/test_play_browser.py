"""The pages in a headless browser: what people click, see and type."""

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.browsing import await_curve, opened

from rlkit import run

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow

COME = "() => performance.getEntriesByName(location.origin + '/api/step').filter((x) => x.responseEnd).length"


def settled(page: Any, name: str, asked: list[str]) -> str:
    """A figure when all that was asked for has come: a request may be under way when the button is pressed."""
    while page.evaluate(COME) < len(asked):
        page.wait_for_timeout(10)
    page.evaluate("() => new Promise((done) => setTimeout(done))")  # and was drawn
    return figure(page, name)


def figure(page: Any, name: str) -> str:
    return page.locator("#figures div", has_text=name).locator("dd").inner_text()


def value(page: Any, cell: int) -> str:
    return page.locator(".cell .value").nth(cell).inner_text()


def test_stepping_and_running_value_iteration(browser: Any) -> None:
    with opened(browser, "env=gridworld") as page:
        page.get_by_role("tab", name="Value iteration").click()
        sync_api.expect(page.locator("#summary")).to_contain_text("Value iteration")
        assert value(page, 62) == "0.00"
        page.get_by_role("button", name="Step").click()
        sync_api.expect(page.locator(".cell .value").nth(62)).to_have_text("1.00")
        page.keyboard.press("ArrowRight")
        sync_api.expect(page.locator(".cell .value").nth(61)).to_have_text("0.90")
        page.locator("#speed").fill("2")
        page.locator("h1").click()  # away from the slider
        page.keyboard.press(" ")
        sync_api.expect(page.locator("#notice")).to_contain_text("Converged")
        sync_api.expect(page.get_by_role("button", name="Run")).to_be_visible()
        assert figure(page, "largest change") == "0"
        assert value(page, 0) == "0.25"  # 0.9^13
        page.locator(".cell").nth(0).hover()
        sync_api.expect(page.locator("#about")).to_have_text("Update of row 0, column 0")
        sync_api.expect(page.locator("#update")).to_contain_text("0.2542")
        sync_api.expect(page.locator("#update .equation")).to_contain_text(
            "V(s) ← max(0.229, 0.254, 0.254, 0.229) = 0.254"
        )
        assert page.locator(".chart path.series").count() >= 2


def test_numbers_are_rounded_but_to_no_less_than_a_whole_one(browser: Any) -> None:
    shown = {1_048_576: "1,048,576", 10_000_000: "10,000,000", 1234.5678: "1,235", -45678.9: "−45,679", 999.4: "999",
             0.12345: "0.123", -0.00004: "−4.0e−5", 7: "7", 0: "0", 2.5e15: "2.5e+15"}  # fmt: skip
    with opened(browser, "env=gridworld") as page:
        for given, text in shown.items():
            assert page.evaluate("async (x) => (await import('/common.js')).number(x)", given) == text
        ticks = {3 * 5e-5: "1.5e-4", 499.98: "499.98", 3 * 0.1: "0.3", 12_500: "12.5k", 1_000_500: "1.0005M", 0: "0"}
        assert page.evaluate("async (all) => all.map((await import('/chart.js')).label)", [*ticks]) == [*ticks.values()]
        found = page.evaluate("async () => (await import('/chart.js')).ticks(0.6076, 0.6927, 4)")
        assert found == pytest.approx([0.62, 0.64, 0.66, 0.68])  # it was 0.65 alone, which is no scale


def test_moving_the_goal_and_the_discount_change_what_is_seen(browser: Any) -> None:
    with opened(browser, "env=gridworld", width=1440) as page:
        page.get_by_role("button", name="Optimal V*").click()
        sync_api.expect(page.locator(".cell .value").nth(0)).to_have_text("0.25")
        page.get_by_role("button", name="Move goal").click()
        page.locator(".cell").nth(1).click()
        sync_api.expect(page.locator(".cell .value").nth(0)).to_have_text("1.00")
        sync_api.expect(page.locator(".cell .what").nth(1)).to_have_text("goal")
        page.get_by_role("button", name="Move trap").click()
        page.locator(".cell").nth(1).click()  # where the goal is: refused in one line
        sync_api.expect(page.locator("#notice")).to_contain_text("the same cell")
        before = value(page, 62)
        page.locator("#gamma").fill("0.5")
        sync_api.expect(page.locator(".cell .value").nth(62)).not_to_have_text(before)


def test_q_learning_runs_and_is_paused(browser: Any) -> None:
    with opened(browser, "env=gridworld", "algo=q_learning") as page:
        page.evaluate("performance.setResourceTimingBufferSize(100_000)")
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.url) if request.url.endswith("/api/step") else None)
        page.locator("#speed").fill("3")
        page.get_by_role("button", name="Run").click()
        sync_api.expect(page.locator("#charts .chart").nth(1).locator("path.series")).to_have_count(2)
        page.get_by_role("button", name="Pause").click()
        paused = settled(page, "iteration", asked)
        page.wait_for_timeout(300)
        assert figure(page, "iteration") == paused != "0"
        page.get_by_role("button", name="Visits").click()
        sync_api.expect(page.locator("#high")).to_have_text(re.compile(r"^[1-9][\d,]* visits$"))
        played = page.locator(".cell:not(.over) .value")
        counts = [int(text.replace(",", "")) for text in played.all_inner_texts()]
        assert sum(counts) == int(figure(page, "environment steps").replace(",", ""))
        page.get_by_role("button", name="Reset").click()
        sync_api.expect(page.locator("#figures dd").first).to_have_text("0")


def test_tokens_are_colored_by_what_is_chosen(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "grpo")) as page:
        drawn = page.locator("#group-rollout .chart > svg path.series").first
        sync_api.expect(drawn).to_have_attribute("d", re.compile(r"^M[\d. ]+L[\d. ]+$"))  # two iterations, one line
        page.get_by_role("tab", name="Tokens").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 1 ×")
        sync_api.expect(page.locator(".card")).to_have_count(8)
        sync_api.expect(page.locator("#read")).to_be_hidden()
        words = page.locator("#which").inner_text()
        assert "informative 1 of" in words  # it opens where the attempts differ
        at = int(words.split()[1])
        sync_api.expect(page.locator("#working")).to_be_hidden()
        colors = {}
        for name in ("Ratio", "Clipped", "Log-probability"):
            page.locator("#colors button", has_text=name).click()
            tokens = page.locator(".token")
            colors[name] = [tokens.nth(i).evaluate("node => node.style.backgroundColor") for i in range(12)]
        assert len(set(colors["Log-probability"])) > 1
        assert colors["Ratio"] != colors["Log-probability"]
        page.locator(".token").first.hover()
        tip = page.locator("#token").inner_text()
        assert all(word in tip for word in ("log-probability", "advantage", "ratio"))
        told = page.locator("#played").inner_text()
        page.get_by_role("button", name="Learn once more").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 2 ×")
        assert page.locator("#played").inner_text() != told
        page.get_by_role("button", name="Next prompt").click()
        sync_api.expect(page.locator("#which")).to_contain_text(f"prompt {at % 4 + 1} of 4")
        shown = page.locator("#which").inner_text()
        page.get_by_role("button", name="Next informative").click()
        sync_api.expect(page.locator("#which")).not_to_have_text(shown)  # its prompt was drawn, and no other follows
        sync_api.expect(page.locator("#which")).to_contain_text("informative")
        page.locator(".text .token[tabindex]").first.focus()
        sync_api.expect(page.locator("#token")).to_contain_text("log-probability")
        page.keyboard.press("ArrowRight")
        second = page.locator(".text").first.locator(".token").nth(1)
        sync_api.expect(second).to_be_focused()
        page.get_by_role("tab", name="Completions").click()
        sync_api.expect(page.locator("#stored .card").first).to_be_visible()


def test_two_works_may_be_at_the_same_step(browser: Any, runs: Path) -> None:
    """The server may say the same words of two works; each shows them, and an error of the page fails the test."""
    now = {"doing": "learning", "at": 0, "steps": 3, "seconds": 1.0}
    with opened(browser, str(runs / "grpo")) as page:
        page.get_by_role("tab", name="Tokens").click()
        sync_api.expect(page.locator("#played")).to_contain_text("Learned 1 ×")
        sync_api.expect(page.locator("#working")).to_be_hidden()
        page.route("**/api/doing", lambda route: route.fulfill(json=now))
        held: list[Any] = []
        page.route("**/api/learn", lambda route: held.append(route))
        for times in (2, 3):
            page.get_by_role("button", name="Learn once more").click()
            sync_api.expect(page.locator("#doing")).to_have_text("Step 1 of 3: learning, 1 s")
            held.pop().continue_()
            sync_api.expect(page.locator("#played")).to_contain_text(f"Learned {times} ×")
            sync_api.expect(page.locator("#working")).to_be_hidden()


def test_what_a_game_says_is_marked(browser: Any, tmp_path: Path) -> None:
    small = ["iterations=2", "threads=1", "evaluation_episodes=2", "env.rows=4", "env.test=4", "env.validation=4"]
    assert run.main(["algo=grpo", "env=guess", "algo.group=8", f"out={tmp_path / 'guess'}", *small]) == 0
    with opened(browser, str(tmp_path / "guess")) as page:
        page.get_by_role("tab", name="Tokens").click()
        sync_api.expect(page.locator("#read")).to_be_visible()
        said = page.locator(".token.read").first
        assert said.evaluate("node => getComputedStyle(node).fontStyle") == "italic"
        assert not said.evaluate("node => node.style.backgroundColor")
        page.locator("#colors button", has_text="Ratio").click()
        sync_api.expect(page.locator("#low")).to_have_text("½ or less")


def test_a_replay_advances_and_is_scrubbed(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "ppo")) as page:
        page.get_by_role("tab", name="Replay").click()
        sync_api.expect(page.locator("#at")).to_contain_text("0 / ")
        sync_api.expect(page.locator("#facts")).to_contain_text("push")
        sync_api.expect(page.locator("#numbered")).to_contain_text("pole angle")
        page.locator("#next").click()
        sync_api.expect(page.locator("#at")).to_contain_text("1 / ")
        page.locator("#play").click()
        sync_api.expect(page.locator("#at")).not_to_contain_text("1 / ")
        page.locator("#play").click()
        sync_api.expect(page.locator("#play")).to_have_text("Play")
        page.locator("#scrub").fill("2")
        sync_api.expect(page.locator("#at")).to_contain_text("2 / ")
        sync_api.expect(page.locator("#earned svg")).to_have_count(3)  # a discounted value has an axis of its own
        assert [chart.locator("path.series").count() for chart in page.locator("#earned .chart").all()] == [1, 1, 1]
        if page.locator("#picture").is_visible():
            page.wait_for_function("() => document.querySelector('#picture').naturalWidth > 0")
        page.get_by_role("button", name="Sampled").click()
        sync_api.expect(page.locator("#at")).to_contain_text("0 / ")


def test_the_table_of_a_run_is_on_its_map(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "q_learning")) as page:
        page.get_by_role("tab", name="Map").click()
        sync_api.expect(page.locator(".cell")).to_have_count(64)
        page.get_by_role("button", name="Optimal V*").click()
        sync_api.expect(page.locator(".cell .value").nth(62)).to_have_text("1.00")


def test_runs_are_sorted_filtered_laid_over_each_other_and_saved(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs)) as page:
        names = page.locator("#rows th")
        sync_api.expect(names).to_have_count(3)
        page.get_by_role("button", name="algorithm").click()
        assert names.all_inner_texts() == ["grpo", "ppo", "q_learning"]
        page.keyboard.press("Enter")  # the button keeps the focus
        sync_api.expect(page.locator("th[aria-sort=descending]")).to_contain_text("algorithm")
        assert names.all_inner_texts() == ["q_learning", "ppo", "grpo"]
        page.locator("#filter").fill("finished CARTPOLE")
        assert names.all_inner_texts() == ["ppo"]
        page.locator("#filter").fill("")
        for name in ("ppo", "q_learning"):
            page.get_by_label(f"Select {name}", exact=True).check()
        first = page.locator("#group-time .chart").first
        lines = first.locator("> svg path.series")
        sync_api.expect(lines).to_have_count(2)
        sync_api.expect(page.locator("#differences tbody th", has_text="algo.name")).to_have_count(1)
        drawn = lines.last.get_attribute("d")
        page.get_by_label("x-axis").select_option("iteration")
        sync_api.expect(page.locator("#group-time .axis").first).to_have_text("iteration")
        page.get_by_label("smoothing").fill("0.9")
        sync_api.expect(first.locator("path.faint")).to_have_count(2)
        assert lines.last.get_attribute("d") != drawn
        for end, start in {"csv": b'"series","iteration"', "svg": b"<svg", "png": b"\x89PNG"}.items():
            with page.expect_download() as download:
                page.locator(f"#group-time [title='Save as {end.upper()}']").first.click()
            assert download.value.suggested_filename == f"time-env-steps-per-second.{end}"
            assert Path(download.value.path()).read_bytes().startswith(start)
        page.locator("#group-time [title=Enlarge]").first.click()
        await_curve(page, "dialog .chart")
        page.keyboard.press("Escape")
        sync_api.expect(page.locator("dialog")).to_have_count(0)
        page.get_by_role("link", name="ppo").click()
        sync_api.expect(page.locator("#title")).to_contain_text("ppo on cartpole")
        page.get_by_role("tab", name="Replay").click()
        sync_api.expect(page.locator("#at")).to_contain_text("0 / ")
        page.get_by_role("link", name="all runs").click()
        sync_api.expect(page.locator("#rows th")).to_have_count(3)


def test_a_long_run_is_drawn_to_its_end(browser: Any, runs: Path, tmp_path: Path) -> None:
    folder, many = tmp_path / "long", 130_000  # more than the arguments that a call takes
    shutil.copytree(runs / "q_learning", folder)
    lines = (f'"iteration":{i},"env_steps":{i},"seconds":0,"train/q":1' for i in range(1, many + 1))
    (folder / "metrics.jsonl").write_text("".join(f"{{{line}}}\n" for line in lines))
    for place in (folder, tmp_path):
        with opened(browser, str(place)) as page:
            if place == tmp_path:
                page.get_by_label("Select long").check()
            sync_api.expect(page.locator("#group-train .chart > svg path.series")).to_have_count(1)
            sync_api.expect(page.locator("#notice")).to_be_hidden()


def test_a_taxi_is_looked_at_for_one_passenger_and_destination(browser: Any) -> None:
    with opened(browser, "env=taxi", width=390) as page:
        sync_api.expect(page.locator(".cell")).to_have_count(25)
        page.get_by_role("button", name="Optimal V*").click()
        page.get_by_label("passenger").select_option("in the taxi")
        page.get_by_label("destination").select_option("blue")
        page.locator(".cell").nth(23).focus()
        sync_api.expect(page.locator("#about")).to_contain_text(
            "row 4, column 3, passenger in the taxi, destination blue"
        )
        sync_api.expect(page.locator("#update .chosen .sum")).to_have_count(1)
        sync_api.expect(page.locator("#update .chosen .sum")).to_contain_text("20 max")
        page.keyboard.press("ArrowUp")
        sync_api.expect(page.locator("#about")).to_contain_text("row 3, column 3")
        page.get_by_label("passenger").select_option("blue")
        sync_api.expect(page.locator(".layers")).to_contain_text("No episode goes on here")


def test_colors_have_one_scale_for_all_prompts(browser: Any, runs: Path) -> None:
    call = "async ([name, x]) => (await import('./scales.js')).place(name, x)"
    with opened(browser, str(runs / "ppo")) as page:
        for name, x, expected in SCALES:
            assert abs(page.evaluate(call, [name, x]) - expected) < 1e-12, (name, x)
        assert page.evaluate("async () => (await import('./scales.js')).ramp('log_prob')")[::23] == [-1, 0]


SCALES = [
    *[("log_prob", 0, 0), ("log_prob", -0.03, -0.01), ("log_prob", -3, -1), ("log_prob", -30, -1)],
    *[("ratio", 1, 0), ("ratio", 2, 1), ("ratio", 0.5, -1), ("ratio", 9, 1), ("ratio", 0, -1)],
    *[("advantage", 1, 0.5), ("advantage", -2, -1), ("advantage", 7, 1), ("clipped", True, -1), ("clipped", False, 0)],
]
