"""A page in a headless Chromium."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from support.served import serve

LIMIT = 600_000  # milliseconds, as pytest has it: a loaded machine is slow, and what is there already is seen at once
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
QUIET = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync", "--disable-quic"]


def grave(message: Any) -> bool:
    """An error or a warning; that a request was refused (400) the page itself tells."""
    return message.type in ("error", "warning") and "status of 400" not in message.text


@contextmanager
def opened(browser: Any, *words: str, width: int = 1280) -> Iterator[Any]:
    """The page; on the way out: nothing went wrong in it, nothing was asked of another host, nothing sticks out."""
    with serve(*words) as client:
        page = browser.new_page(viewport={"width": width, "height": 800})
        page.set_default_timeout(LIMIT)
        wrong: list[str] = []
        hosts: set[str] = set()
        page.on("console", lambda message: wrong.append(message.text) if grave(message) else None)
        page.on("pageerror", lambda error: wrong.append(str(error)))
        page.on("request", lambda request: request.url.startswith("blob:") or hosts.add(urlsplit(request.url).netloc))
        page.goto(client.server.url)
        yield page
        page.wait_for_timeout(100)
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        page.close()
        assert not wrong, wrong
        assert hosts == {f"127.0.0.1:{client.server.port}"}, hosts


def await_curve(page: Any, chart: str) -> None:
    """Wait for the first curve of a chart.

    A level line is a box without height, which the browser's driver calls hidden: the picture that holds it is asked.
    """
    page.locator(f"{chart} > svg:has(path.series)").first.wait_for()
