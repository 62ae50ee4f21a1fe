"""The prose of the project, read by a linter.

    PYTHONPATH=.:tests python -m support.prose [FILE ...]       prints its complaints

Prose is what people read: documents without their code, and of Python files the comments, the docstrings and every text
of three words or more, such as messages and help. The linter is proselint, with rules of our own (STYLE and SPELLING).
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

from proselint.checks import __register__ as SHIPPED
from proselint.config import Config
from proselint.registry import CheckRegistry
from proselint.registry.checks import Check
from proselint.registry.checks.types import Existence, PreferredFormsSimple
from proselint.tools import LintFile

from support.sources import ROOT

OURS = "rlkit"
STYLE = {  # what is not written: what is written in its place
    r"(?:there |say)?(?:is|are|was|were|be) no [a-z'-]+": "write 'is not a ...' in place of 'is no ...'",
    r"mend(?:s|ed|ing)?": "write 'fix'",
    r"shall": "write 'must' or 'will'",
    r"whoever": "write 'a user who', or say who",
    r"told": "write 'reported', 'said' or 'recognized'",
    r"apart(?: from)?": "write 'separate' or 'separately'; 'except for' in place of 'apart from'",
    r"foretells?|foretold|foretelling": "write 'predict' or 'estimate'",
    r"of one's own": "write 'of your own'",
    r"what there is": "say the thing itself",
    r"owes?": "say the relation itself, such as 'depends on'",
    r"sick": "say what is wrong",
    r"(?:therein|thereof|whence|hence|thence|lest|nought|albeit|whilst)": "use a plain word",
}
FINE = {  # of what the first rule of STYLE finds
    r"there (?:is|are|was|were|be) no .+",
    r"(?:is|are|was|were|be) no (?:longer|more|less|fewer|larger|smaller|higher|lower|better|worse|older|faster|later)",
}
BRITISH = [
    *["analyse analyze", "artefact artifact", "behaviour behavior", "behaviours behaviors", "cancelled canceled"],
    *["cancelling canceling", "catalogue catalog", "centre center", "centred centered", "centres centers"],
    *["colour color", "coloured colored", "colours colors", "favour favor", "favourite favorite", "grey gray"],
    *["honour honor", "judgement judgment", "labelled labeled", "labelling labeling", "learnt learned"],
    *["licence license", "licences licenses", "modelled modeled", "modelling modeling", "neighbour neighbor"],
    *["neighbouring neighboring", "neighbours neighbors", "programme program", "signalled signaled"],
    *["travelled traveled", "travelling traveling", "misspelt misspelled", "centring centering", "fulfil fulfill"],
]
STEMS = [
    *("author", "central", "character", "general", "initial", "maxim", "minim", "normal", "optim", "organ", "parallel"),
    *("penal", "priorit", "quant", "random", "real", "recogn", "regular", "serial", "special", "stabil", "standard"),
    *("summar", "token", "util", "visual", "parametr"),
]
ENDS = ["e", "es", "ed", "er", "ers", "ing", "ation", "ations"]
SPELLING = dict(pair.split() for pair in BRITISH)
SPELLING |= {f"{stem}is{end}": f"{stem}iz{end}" for stem in STEMS for end in ENDS}
SHIPPED_RULES = [  # the others are about typography, and about prose that is not technical
    *("archaism", "cliches", "lexical_illusions", "malapropisms", "misc", "mondegreens", "needless_variants"),
    *("nonwords", "oxymorons", "redundancy", "spelling", "uncomparables"),
]
CHECKS = dict.fromkeys([*SHIPPED_RULES, OURS], True)
WORDS = 3  # texts of fewer words are names and keys


def registered() -> None:
    """Give proselint our rules, once."""
    registry = CheckRegistry()
    if registry.checks:
        return
    registry.register_many(SHIPPED)
    for pattern, remedy in STYLE.items():
        registry.register(Check(Existence((pattern,), exceptions=tuple(FINE)), path=OURS, message=f"'{{}}': {remedy}"))
    registry.register(Check(PreferredFormsSimple(SPELLING), path=OURS, message="write '{}' in place of '{}'"))


def markdown(text: str) -> str:
    """The text without code, addresses and tags, line for line."""
    text = re.sub(r"^( *)(```|~~~).*?^\1\2\s*$", blank, text, flags=re.M | re.S)
    text = re.sub(r"^(?: {4,}(?![*-] ).*\n)+", blank, text, flags=re.M)
    text = without_code(text)  # before tags: `<s>` is code
    return re.sub(r"(?<=\])\([^)\s]*\)|<[^>\n]*>|https?://[^\s`]+", "", text)


def page(text: str) -> str:
    """The text of a page, without its style and its tags."""
    return without_code(re.sub(r"<style>.*?</style>|<[^>]*>", blank, text, flags=re.S))


def blank(found: re.Match[str]) -> str:
    return "\n" * found.group(0).count("\n")


def without_code(text: str) -> str:
    numbers = iter(range(10**9))
    return re.sub(r"``?[^`]+``?", lambda found: f"code{next(numbers)}" + "\n" * found.group(0).count("\n"), text)


def python(text: str) -> str:
    """Comments, docstrings and texts of WORDS words, each on its line."""
    lines: dict[int, list[str]] = {}
    for first, found in [*comments(text), *texts(ast.parse(text))]:
        for i, line in enumerate(
            f"{without_code(found)} |".splitlines()
        ):  # no word is followed by one of the next text
            lines.setdefault(first + i, []).append(line.strip())
    return "\n".join(" ".join(lines.get(i + 1, [])) for i in range(max(lines, default=0)))


def comments(text: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("#! ")


def texts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Every text, with X in the places of its values."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else f"X{i}" for i, part in enumerate(node.values)]
            found = "".join(map(str, parts))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            found = node.value
        else:
            continue
        if len(found.split()) >= WORDS:
            yield node.lineno, found


def prose(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return {".py": python, ".md": markdown, ".html": page}.get(path.suffix, without_code)(text)


def files() -> list[Path]:
    """All that the linter reads."""
    python_files = [
        path for folder in ("rlkit", "algorithms", "envs", "examples") for path in ROOT.glob(f"{folder}/**/*.py")
    ]
    pages = [path for pattern in ("*.js", "*.html") for path in (ROOT / "rlkit").rglob(pattern)]
    documents = [path for pattern in ("*.md", "docs/**/*.md", "benchmarks/*.md") for path in ROOT.glob(pattern)]
    return sorted([*python_files, *pages, *documents])


def complaints(path: Path) -> list[str]:
    registered()
    text = LintFile(str(path), prose(path).encode("utf-8", "replace").decode() or " ")
    found = text.lint(Config(max_errors=10_000, checks=CHECKS))
    name = path.relative_to(ROOT) if path.is_relative_to(ROOT) else path
    return [
        f"{name}:{one.pos[0]}: {one.check_result.message}"
        for one in found
        if re.search("[a-z]{2}", text.content[slice(*one.check_result.span)], re.I)  # a number may be repeated
    ]


if __name__ == "__main__":
    for given in [Path(name).resolve() for name in sys.argv[1:]] or files():
        for complaint in complaints(given):
            print(complaint)
