"""The documentation site: `sphinx-build -W docs docs/_build` writes it to docs/_build/index.html.

The pages are the Markdown files of this folder. The rest is read from the code: docstrings, the keys of the command
line, and the files at the top of the repository (project/). tests/test_tutorials.py runs the notebooks.
"""

import re
import sys
from pathlib import Path

from sphinx.application import Sphinx

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

import rlkit  # noqa: E402
from rlkit.settings import plugins, schema  # noqa: E402
from rlkit.settings.config import KINDS, Run, network_class  # noqa: E402

project = "rlkit"
author = "the rlkit authors"
release = rlkit.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["_build", "examples", "images"]
html_theme = "furo"
html_title = f"rlkit {release}"
html_static_path = ["images"]
html_theme_options = {"navigation_with_keys": True}
html_show_copyright = False
html_show_sourcelink = False

nb_execution_mode = "off"  # with -D nb_execution_mode=force the tutorials run, and the site shows what they print
nb_execution_in_temp = nb_execution_raise_on_error = True
nb_execution_timeout = 1800  # seconds of a cell
myst_heading_anchors = 4
myst_enable_extensions = ["dollarmath"]

autodoc_member_order = "bysource"
autodoc_typehints = "description"
add_module_names = False
default_role = "code"

TOP = {  # files at the top of the repository that are pages here
    "README.md": "project/readme",
    "CHANGELOG.md": "project/changelog",
    "CONTRIBUTING.md": "project/contributing",
    "benchmarks/README.md": "project/benchmarks",
}
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\])*)\]\(([^)\s]+)\)")
KEYS = "<!-- keys -->"


def read(app: Sphinx, docname: str, source: list[str]) -> None:
    """Before a page is parsed: take in what stands elsewhere, and keep the links that lead to a page."""
    file = next((name for name, page in TOP.items() if page == docname), None)
    here = HERE / f"{docname}.md"
    if file:
        here = HERE.parent / file
        source[0] = here.read_text(encoding="utf-8")
    if (HERE / f"{docname}.md").is_file():
        source[0] = LINK.sub(lambda found: link(found, here.parent, HERE / Path(docname).parent), source[0])
    source[0] = source[0].replace(KEYS, keys())


def link(found: re.Match[str], folder: Path, page: Path) -> str:
    """A link as it is on the site. folder: of the file that has it; page: the folder of its page."""
    picture, words, target = found.groups()
    path, _, anchor = target.partition("#")
    if not path or "://" in path:
        return found.group(0)
    there = (folder / path).resolve()
    name = there.relative_to(HERE.parent).as_posix() if there.is_relative_to(HERE.parent) else ""
    if name in TOP:
        there = HERE / f"{TOP[name]}.md"
    shown = there.is_relative_to(HERE) and (picture or there.suffix in (".md", ".ipynb"))
    if not shown:
        return words  # a file of the repository that is not a page
    up = "../" * len(page.relative_to(HERE).parts)
    return f"{picture}[{words}]({up}{there.relative_to(HERE).as_posix()}{'#' + anchor if anchor else ''})"


def keys() -> str:
    """Every key of every plug-in, of the policies and of a run, as `--help` explains them."""
    parts = [table("The run", "", Run, "run")]
    for section, kind in KINDS.items():
        for name in plugins.names(kind):
            module = plugins.load(kind, name)
            parts.append(table(f"{section}={name}", plugins.summary(kind, name), module.Config, section))
    for kind in ("control", "text"):
        parts.append(table(f"The policy on {kind}", "", network_class(kind), "policy"))
    return "\n\n".join(parts)


def table(title: str, summary: str, config: type, section: str) -> str:
    rows = [f"| `{left}` | {right} |" for left, right in explained(config, section)]
    return "\n".join([f"## {title}", "", summary, "", "| key and default | meaning |", "|---|---|", *rows])


def explained(config: type, section: str) -> list[tuple[str, str]]:
    rows = schema.explain(config, {}, section)
    return [(left.replace("|", "\\|"), right.replace("|", "\\|")) for left, right in rows]


def docstring(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Docstrings are plain text: what is indented stays as it is, and no character of a formula is markup."""
    out: list[str] = []
    for paragraph in "\n".join(lines).split("\n\n"):
        body = paragraph.split("\n")
        if all(line.startswith("  ") for line in body if line):
            out += [".. code-block:: none", "", *(f"   {line}" for line in body), ""]
        elif any(line.startswith("  ") for line in body):  # a list of names, each with its meaning
            out += ["| " + escaped(line) for line in body] + [""]
        else:
            out += [escaped(line) for line in body] + [""]
    lines[:] = out


def escaped(line: str) -> str:
    parts = re.split(r"(`[^`]+`)", line)
    plain = "".join(part if part.startswith("`") else re.sub(r"([*|_`\\])", r"\\\1", part) for part in parts)
    return re.sub(r"(`[^`]+`)(?=\w)", r"\1\\ ", plain)  # a letter may not follow code


def setup(app: Sphinx) -> None:
    app.connect("source-read", read)
    app.connect("autodoc-process-docstring", docstring)
