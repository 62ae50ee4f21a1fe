"""The documentation site builds without a warning, its links lead somewhere, and its blocks of Python compile."""

import importlib
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlparse

import pytest
from support.sources import ROOT

DOCS = ROOT / "docs"
BLOCK = re.compile(r"^```(?:python|py)[^\n]*\n(.*?)^```", re.M | re.S)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    for name in ("sphinx", "furo", "myst_nb", "sphinx_copybutton"):
        if "RLKIT_CI" in os.environ:
            importlib.import_module(name)
        pytest.importorskip(name, reason="needs pip install -e '.[docs]'")
    out = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-b", "html", str(DOCS), str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return out


class Page(HTMLParser):
    """The links of a page, and the places in it that a link may lead to."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.places: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        self.places |= {found.get("id") or "", found.get("name") or ""}
        self.links += [x for x in (found.get("href"), found.get("src")) if x]


@pytest.mark.slow
def test_every_link_of_the_site_leads_to_something_in_it(site: Path) -> None:
    pages = {path: Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")}
    assert len(pages) > 60
    lost = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlparse(link)
            if parts.scheme or parts.netloc:
                continue
            there = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not there.exists() or (parts.fragment and there in pages and parts.fragment not in pages[there].places):
                lost.append(f"{path.relative_to(site)}: {link}")
    assert not lost, "\n".join(lost[:40])


@pytest.mark.slow
def test_the_site_has_what_stands_in_the_code(site: Path) -> None:
    keys = (site / "command_line.html").read_text(encoding="utf-8")
    assert all(key in keys for key in ("algo.clip=0.2", "env.step_limit=500", "policy.hidden", "checkpoint_every"))
    mathematics = (site / "api" / "mathematics.html").read_text(encoding="utf-8")
    assert "clipped_surrogate" in mathematics and "arXiv" in mathematics
    assert "GRPO" in (site / "search.html").parent.joinpath("searchindex.js").read_text(encoding="utf-8")


def test_blocks_of_python_compile() -> None:
    blocks = [(path, block) for path in [ROOT / "README.md", *DOCS.rglob("*.md")] for block in blocks_of(path)]
    assert len(blocks) > 20
    for path, block in blocks:
        compile(block, str(path), "exec")


def blocks_of(path: Path) -> list[str]:
    return BLOCK.findall(path.read_text(encoding="utf-8"))


def test_every_page_is_in_the_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8") + (DOCS / "api" / "index.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^[\w/]+$", index, re.M))
    for path in DOCS.rglob("*.md"):
        name = path.relative_to(DOCS).with_suffix("").as_posix()
        if name != "index" and "_build" not in name and "examples" not in name:
            assert name in named or name.removeprefix("api/") in named, f"{name} is missing in docs/index.md"
