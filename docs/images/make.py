"""Make the pictures of pages: train small runs in a temporary folder, and photograph their pages with Chromium.

python docs/images/make.py [FOLDER]     the pictures go into FOLDER, without it beside this file
"""

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "tests"))  # for support

from playwright.sync_api import sync_playwright  # noqa: E402
from support.served import serve  # noqa: E402

from rlkit import run  # noqa: E402

RUNS = {
    "ppo-cartpole-s0": ["algo=ppo", "env=cartpole", "iterations=40", "seed=0"],
    "ppo-cartpole-s1": ["algo=ppo", "env=cartpole", "iterations=40", "seed=1", "algo.lr=1e-3"],
    "q-gridworld": ["algo=q_learning", "env=gridworld", "iterations=200"],
    "grpo-gsm8k": ["algo=grpo", "env=gsm8k", "iterations=4", "env.rows=8", "env.test=16", "env.validation=16"],
}


def main(out: Path = HERE) -> None:
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as made, sync_playwright() as playwright:
        runs = Path(made) / "runs"
        for name, words in RUNS.items():
            assert run.main([*words, f"out={runs / name}", "evaluation_episodes=20", "threads=1"]) == 0
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport={"width": 1280, "height": 840})
        home(page, runs, out / "play-home.png")
        tokens(page, runs / "grpo-gsm8k", out / "play-tokens.png")
        plain_map(page, out / "play-map.png")
        browser.close()


def home(page: Any, runs: Path, picture: Path) -> None:
    with serve(str(runs)) as client:
        page.goto(client.server.url)
        for name in ("ppo-cartpole-s0", "ppo-cartpole-s1"):
            page.get_by_label(f"Select {name}").check()
        page.locator("#differences tbody").wait_for()
        page.locator("#where").evaluate("node => (node.textContent = 'runs')")  # the temporary name tells nothing
        page.screenshot(path=picture)


def tokens(page: Any, folder: Path, picture: Path) -> None:
    with serve(str(folder)) as client:
        page.goto(client.server.url)
        page.get_by_role("tab", name="Tokens").click()
        page.locator(".card").first.wait_for()
        page.get_by_label("numbers").check()
        page.locator("#where").evaluate("node => (node.textContent = 'runs/grpo-gsm8k')")
        page.screenshot(path=picture)


def plain_map(page: Any, picture: Path) -> None:
    with serve("env=gridworld", "algo=q_learning") as client:
        page.goto(client.server.url)
        page.locator("#speed").fill("3")
        page.get_by_role("button", name="Run").click()
        page.wait_for_timeout(1500)
        page.get_by_role("button", name="Move trap").click()
        page.locator(".cell").nth(45).click()
        page.get_by_role("button", name="Look").click()
        page.locator(".cell").nth(44).hover()  # its update is shown
        page.wait_for_timeout(1500)
        page.get_by_role("button", name="Pause").click()
        page.screenshot(path=picture)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
