"""What the tests with a browser share: Chromium, and a run of each kind."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from support.browsing import CHROMIUM, LIMIT, QUIET

from rlkit import run


@pytest.fixture(scope="package")
def browser() -> Iterator[Any]:
    sync_api = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("there is no chromium or google-chrome")
    sync_api.expect.set_options(timeout=LIMIT)
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=QUIET)
        yield browser
        browser.close()


@pytest.fixture(scope="package")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    tiny = ["iterations=2", "threads=1", "evaluation_episodes=2"]
    for algo, env, more in (
        ("ppo", "cartpole", ["env.rows=2"]),
        ("q_learning", "gridworld", ["env.rows=2"]),
        ("grpo", "gsm8k", ["env.rows=4", "env.test=4", "env.validation=4"]),
    ):
        assert run.main([f"algo={algo}", f"env={env}", f"out={folder / algo}", *tiny, *more]) == 0
    return folder
