"""The home of runs: a table of what folders hold, read again while they grow; the page of a run is made when opened."""

import hashlib
import math
import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from rlkit.comparison.caveats import apart
from rlkit.comparison.grid import is_comparison, runs_of
from rlkit.comparison.naming import at_home
from rlkit.disk import refuse_link
from rlkit.errors import UserError, one_line
from rlkit.pages import meanings
from rlkit.pages.runs import RunPage, changed, counts_tokens, evaluation, metrics, object_of, seed, state
from rlkit.pages.server import Document, Json, Site
from rlkit.recording.files import opened, read_text
from rlkit.recording.writers import record
from rlkit.settings import config
from rlkit.settings.assemble import Assemble

MOST = 2000  # runs of a table
SELECTED = 8  # runs whose curves are laid over each other
OPEN = 4  # pages of runs held in memory, each with its model
TURN = 1.0  # seconds of reading before an answer; the next one goes on
TAIL = 1 << 16  # bytes at the end of metrics.jsonl that are looked at for the newest line
FILES = ("config.yaml", "metrics.jsonl", "summary.json", "before.json", "completions.jsonl", "checkpoints", "model")
LARGEST = 1 << 24  # bytes of a comparison's page
CONTENT = "content of "  # begins the rows that tell whether a file has changed between two runs


def is_home(folder: Path) -> bool:
    """Whether a folder holds runs or comparisons, and is neither."""
    if is_run(folder) or (is_comparison(folder) and (folder / "index.html").is_file()):
        return False
    return next(found([folder]), None) is not None


def is_run(folder: Path) -> bool:
    return os.path.isfile(folder / "config.yaml")  # False for what cannot be a path


def is_report(folder: Path) -> bool:
    """Whether a folder, which is not a run, holds the page of a comparison of runs that lie elsewhere."""
    return all(os.path.isfile(folder / name) for name in ("index.html", "results.json"))


def found(folders: Iterable[Path]) -> Iterator[Path]:
    """The runs and comparisons in folders, and the runs of the comparisons; a link is not followed."""
    for folder in folders:
        if is_comparison(folder):
            yield from _below(folder / "runs")
        for path in _below(folder):
            if is_run(path):
                yield path
            elif is_comparison(path) and not (path / "runs").is_symlink():
                yield path
                with suppress(UserError, OSError):
                    yield from (run for run in runs_of(path) if not run.is_symlink() and is_run(run))
            elif is_report(path):
                yield path


def _below(folder: Path) -> list[Path]:
    with suppress(OSError):
        return sorted(path for path in folder.iterdir() if not path.is_symlink() and path.is_dir())
    return []


class Home:
    """Several folders of runs as one table."""

    def __init__(self, folders: list[Path], assemble: Assemble) -> None:
        self.folders, self.assemble, self.lock = folders, assemble, threading.Lock()
        self.absolute = {folder: folder.absolute() for folder in folders}
        self.keys: dict[str, Path] = {}  # what a request may name; no path comes from a request
        self.rows: dict[Path, tuple[object, Json]] = {}  # what was read of a run, and what its files were then
        self.pages: dict[str, tuple[float, Site]] = {}  # of a run, and when its config.yaml was written

    def site(self) -> Site:
        reads: dict[str, Callable[[Json], Json | bytes]] = {
            "home": self.show,
            "metrics": lambda request: metrics(self.chosen(request), request),
            "differences": self.differences,
            "comparison": self.comparison,
            "meanings": meanings.told,
        }
        return Site("home.html", reads, within=self.page)

    def show(self, request: Json) -> Json:
        """Every run in a row, and the comparisons; what there was no time to read comes with the next look."""
        with self.lock:
            runs: list[Json] = []
            comparisons: list[Json] = []
            until, left = math.inf, 0
            for path in found(self.absolute.values()):
                key = self.key(path)
                if not is_run(path):
                    page = path / "index.html"
                    told = {"name": self.called(path), "key": key, "page": page.is_file() and not page.is_symlink()}
                    comparisons.append(told | {"date": changed(page)})
                elif len(runs) + left >= MOST or (time.monotonic() > until and path not in self.rows):
                    left += 1
                else:
                    if path not in self.rows:
                        until = min(until, time.monotonic() + TURN)  # from the first: each look comes further
                    runs.append({"name": self.called(path), "key": key} | self.row(path))
            folders = [str(folder) for folder in self.folders]
            return {"folders": folders, "runs": runs, "comparisons": comparisons, "left": left}

    def key(self, path: Path) -> str:
        key = hashlib.blake2b(str(path).encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()
        self.keys[key] = path
        return key

    def called(self, path: Path) -> str:
        """A run's name: its path in the folder, which is named, too, where there are several."""
        for folder, absolute in self.absolute.items():
            if path.is_relative_to(absolute):
                inside = str(path.relative_to(absolute))
                return inside if len(self.folders) == 1 else f"{folder.name}/{inside}"
        return path.name

    def written(self, path: Path) -> Path:
        """A run's path as the user wrote that of the folder."""
        held = ((folder, absolute) for folder, absolute in self.absolute.items() if path.is_relative_to(absolute))
        return next((folder / path.relative_to(absolute) for folder, absolute in held), path)

    def row(self, path: Path) -> Json:
        """What the table says of a run; read again only where a file has changed."""
        now = [changed(path / name) for name in FILES[:4]]
        before, told = self.rows.get(path, (None, {}))
        if before != now:
            told = row(path)
            if "reason" in told:
                told["reason"] = told["reason"].replace(str(path), str(self.written(path)))
            self.rows[path] = now, told
        if told.get("state") != "damaged" and told.get("state") != "finished":
            told = told | {"state": state(path, object_of(path / "summary.json"))}
        return told

    def chosen(self, request: Json) -> Path:
        """{"run"}: the folder that a key stands for."""
        path = self.keys.get(str(request.get("run", "")))
        if path is None:
            raise UserError("this run is not in the table: open the home of runs again")
        refuse_links(path)
        return path

    def differences(self, request: Json) -> Json:
        """{"runs": keys, with commas}: the keys of the configurations in which these runs differ."""
        keys = str(request.get("runs", "")).split(",")[:SELECTED]
        return {"rows": differences([settings(self.chosen({"run": key})) for key in keys if key])}

    def comparison(self, request: Json) -> bytes:
        """{"run"}: the page that a comparison wrote."""
        return document(self.chosen(request))

    def page(self, key: str) -> Site:
        """The page of one run, of a run made anew in its folder another; the first of too many is let go."""
        path = self.chosen({"run": key})
        with self.lock:
            now = changed(path / "config.yaml")
            if key not in self.pages or self.pages[key][0] != now:
                self.pages.pop(key, None)
                for old in list(self.pages)[: len(self.pages) - OPEN + 1]:
                    del self.pages[old]
                page = RunPage(path, self.assemble)
                page.called = self.written(path)
                self.pages[key] = now, page.site()
            return self.pages[key][1]


def refuse_links(folder: Path) -> None:
    """Refuse a run whose files lead elsewhere: its author may have pointed them at something private."""
    for name in FILES:
        refuse_link(folder / name)


def row(folder: Path) -> Json:
    """What a run's folder says of it in a table."""
    try:
        refuse_links(folder)
        given = config.from_folder(folder)
    except UserError as error:
        return {"state": "damaged", "reason": one_line(error), "date": changed(folder / "config.yaml")}
    summary, last = object_of(folder / "summary.json"), newest(folder / "metrics.jsonl")
    measured = evaluation(summary.get("evaluation") or object_of(folder / "before.json"))
    before, after = measured.get("before", {}), measured.get("after", {})
    return {
        "algo": given.algo["name"],
        "env": at_home(given.env["name"], given.env),
        "seed": seed(given),
        "state": state(folder, summary),
        "tokens": counts_tokens(given),
        "env_steps": _whole(summary.get("env_steps", last.get("env_steps"))),  # not each iteration has a line
        "metric": str((after or before).get("metric", "")),
        "before": before.get("mean"),
        "after": after.get("mean"),
        "seconds": _whole(summary.get("seconds", last.get("seconds"))),
        "date": changed(folder / "config.yaml"),
    }


def _whole(value: object) -> float | None:
    return value if isinstance(value, int | float) and not isinstance(value, bool) else None


def newest(path: Path) -> Json:
    """The last whole line of a file of JSON lines; {} where there is none."""
    try:
        with opened(path) as file:
            file.seek(max(0, file.seek(0, 2) - TAIL))
            lines = file.read(TAIL).rpartition(b"\n")[0].split(b"\n")
    except OSError:
        return {}
    return record(lines[-1] + b"\n") or {}


def settings(folder: Path) -> dict[str, str]:
    """Each key of a run's configuration, as it is written on a command line, and the marks of the files it names."""
    given = config.from_folder(folder)
    named = {"": given.run, "algo.": given.algo, "env.": given.env, "policy.": given.policy, CONTENT: given.marks}
    return {f"{section}{key}": _word(value) for section, keys in named.items() for key, value in keys.items()}


def _word(value: object) -> str:
    text = {None: "none", True: "true", False: "false"}.get(value) if isinstance(value, bool | None) else str(value)
    return text or ""


def differences(given: list[dict[str, str]]) -> list[Json]:
    """The keys whose values are not all the same, each with the value of every run; of files, those that changed."""
    rows: list[Json] = []
    for name in dict.fromkeys(key for one in given for key in one if key != "out"):
        values = [one.get(name) for one in given]
        missing = {None} if name.startswith(CONTENT) else set()  # who does not name a file has another key
        if len({*values} - missing) > 1:
            texts = list(dict.fromkeys(value for value in values if value is not None))
            short = dict(zip(texts, apart(texts), strict=True))
            rows.append({"key": name, "values": [None if value is None else short[value] for value in values]})
    return rows


def document(folder: Path) -> Document:
    """The page of a comparison, for a sandbox."""
    refuse_link(folder / "index.html")
    return Document(read_text(folder / "index.html", LARGEST).encode())


def comparison_site(folder: Path) -> Site:
    """The page of a comparison by itself."""
    held = folder.absolute()
    return Site("api/comparison", {"comparison": lambda request: document(held)})
