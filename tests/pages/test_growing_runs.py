"""What the pages do with several runs, and with one that is being written while it is looked at."""

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.browsing import await_curve, opened

sync_api = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.slow


def written(run: Path, **more: object) -> None:
    """Add a line to the metrics of a run."""
    path = run / "metrics.jsonl"
    last = json.loads(path.read_text().splitlines()[-1])
    with open(path, "a") as file:
        file.write(json.dumps(last | {"iteration": last["iteration"] + 1} | more) + "\n")


def test_an_arrow_key_goes_to_the_next_tab_when_a_tab_was_added(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "grpo", tmp_path / "grpo")
    (run / "completions.jsonl").rename(tmp_path / "held")
    with opened(browser, str(run)) as page:
        page.get_by_role("tab", name="Curves").focus()
        (tmp_path / "held").rename(run / "completions.jsonl")
        sync_api.expect(page.get_by_role("tab", name="Completions")).to_be_visible()
        sync_api.expect(page.get_by_role("tab", name="Curves")).to_be_focused()
        page.keyboard.press("ArrowRight")
        sync_api.expect(page.get_by_role("tab", name="Tokens")).to_have_attribute("aria-selected", "true")
        sync_api.expect(page.locator("#working")).to_be_hidden()


def test_the_head_of_a_column_keeps_the_focus_while_a_run_goes_on(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "ppo")
    (run / "summary.json").unlink()
    with opened(browser, str(tmp_path)) as page:
        head = page.get_by_role("button", name="environment", exact=True)
        head.focus()
        written(run, env_steps=98765)
        sync_api.expect(page.locator("#rows")).to_contain_text("98,765")
        sync_api.expect(head).to_be_focused()


def test_the_legend_of_a_saved_chart_is_whole(browser: Any, runs: Path, tmp_path: Path) -> None:
    names = [f"a-rather-long-name-of-a-run-of-ppo-on-cartpole-{i}" for i in range(3)] + ["a-" * 60 + "3"]
    for name in names:
        shutil.copytree(runs / "ppo", tmp_path / "runs" / name)
    with opened(browser, str(tmp_path / "runs")) as page:
        for name in names:
            page.get_by_label(f"Select {name}", exact=True).check()
        chart = page.locator("figure.chart").first
        sync_api.expect(chart.locator("path.series:not(.legend *)")).to_have_count(4)
        with page.expect_download() as saved:
            chart.get_by_role("button", name="SVG").click()
        saved.value.save_as(tmp_path / "saved.svg")
    text = (tmp_path / "saved.svg").read_text(encoding="utf-8")
    width = float(re.findall(r'width="(\d+)"', text)[0])
    legend = re.findall(r'<text x="([\d.]+)" y="(\d+)"[^>]*>([^<]*-\d)</text>', text)
    assert [name for *_, name in legend[:3]] == names[:3] and legend[3][2].endswith("a-a-3")
    assert all(float(x) + 6 * len(name) <= width for x, _, name in legend)
    assert len({(x, y) for x, y, _ in legend}) == 4


def test_a_chart_without_a_number_to_draw_says_why(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "ppo")
    for step in (1, 2):
        written(run, **{"env_steps": 1000 + step, "metric/lost": None, "metric/below": -1.0 * step})
    with opened(browser, str(run)) as page:
        charts = {name: page.locator("#group-metric .chart", has_text=name) for name in ("lost", "below")}
        sync_api.expect(charts["lost"].locator("text.empty")).to_have_text("no finite number")
        page.get_by_label("logarithmic").check()
        sync_api.expect(charts["below"].locator("text.empty")).to_have_text("no number above 0")


def test_a_line_is_interrupted_where_a_number_is_missing(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "ppo")
    for step, x in enumerate([1.0, 2.0, None, 3.0, None, 4.0, 5.0]):
        written(run, **{"env_steps": 1000 + step, "metric/gaps": x})
    with opened(browser, str(run)) as page:
        chart = page.locator("#group-metric .chart", has_text="gaps")
        sync_api.expect(chart.locator("circle.dot")).to_have_count(5)
        assert re.sub(r"[^ML]", "", chart.locator("path.series").get_attribute("d")) == "MLMML"


def test_a_missed_answer_is_told_until_the_next_one_comes(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "runs" / "ppo")
    for shown, asked in ((run, "run"), (run.parent, "home")):
        with opened(browser, str(shown)) as page:
            page.route(f"**/api/{asked}", lambda route: route.fulfill(status=400, json={"error": "no answer"}))
            sync_api.expect(page.locator("#notice")).to_have_text("no answer")
            page.unroute(f"**/api/{asked}")
            sync_api.expect(page.locator("#notice")).to_be_hidden()


@pytest.mark.parametrize("width", [375, 1600])
def test_long_names_stay_within_the_page(width: int, browser: Any, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / ("f" * 200)
    shutil.copytree(runs / "ppo", folder / ("r" * 200))
    (folder / ("c" * 200)).mkdir()
    for name in ("index.html", "results.json"):
        (folder / ("c" * 200) / name).touch()
    with opened(browser, str(folder), width=width) as page:
        sync_api.expect(page.locator("#pages")).to_contain_text("ccc")
        assert page.locator("#runs").bounding_box()["width"] < 1600
    with opened(browser, str(folder / ("r" * 200)), width=width) as page:
        sync_api.expect(page.locator("#where")).to_contain_text("rrr")


def test_long_words_of_an_alarm_stay_within_the_page(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "ppo")
    told = json.loads((run / "summary.json").read_text())
    told["alarms"] = [{"name": "n" * 300, "iteration": 1, "message": "m" * 300}]
    (run / "summary.json").write_text(json.dumps(told))
    with opened(browser, str(run), width=400) as page:
        sync_api.expect(page.locator(".alarms")).to_contain_text("mmm")


def test_long_words_of_a_completion_stay_within_the_page(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "grpo", tmp_path / "grpo")
    kept = [json.loads(line) for line in (run / "completions.jsonl").read_text().splitlines()]
    kept = [line | {"kind": "k" * 300, "rewards": {"r" * 300: 1.0}} for line in kept]
    (run / "completions.jsonl").write_text("".join(json.dumps(line) + "\n" for line in kept))
    with opened(browser, str(run), width=400) as page:
        page.get_by_role("tab", name="Completions").click()
        sync_api.expect(page.locator("#stored .card").first).to_contain_text("rrr")


def test_what_is_selected_on_the_page_of_a_run_stays_selected(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "ppo")) as page:
        page.locator("details", has=page.locator("#config")).evaluate("(node) => (node.open = true)")
        sync_api.expect(page.locator("#config")).to_contain_text("algo:")
        page.evaluate("() => getSelection().selectAllChildren(document.getElementById('config'))")
        for _ in range(2):  # the run is looked at again
            with page.expect_response("**/api/run"):
                pass
        page.wait_for_timeout(100)
        assert "algo:" in page.evaluate("() => getSelection().toString()")


def test_space_scrolls_the_curves_where_nothing_is_played(browser: Any, runs: Path) -> None:
    with opened(browser, str(runs / "ppo")) as page:
        await_curve(page, ".chart")
        page.keyboard.press(" ")
        page.wait_for_function("() => scrollY > 100")


def test_what_was_measured_once_is_called_by_its_whole_name(browser: Any, runs: Path, tmp_path: Path) -> None:
    run = shutil.copytree(runs / "ppo", tmp_path / "ppo")
    line = {"iteration": 1, "env_steps": 64, "seconds": 1, "rollout/return": 9.5, "eval/return": 22.0}
    (run / "metrics.jsonl").write_text(json.dumps(line) + "\n")
    with opened(browser, str(run)) as page:
        sync_api.expect(page.locator("#curves dt")).to_have_text(["rollout/return", "eval/return"])
