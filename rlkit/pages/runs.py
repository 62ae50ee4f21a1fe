"""A run's page: what its folder holds, read while it may still grow; nothing is written and no lock is kept."""

import hashlib
import io
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from rlkit.api import UserError
from rlkit.comparison.grid import is_locked
from rlkit.comparison.naming import at_home
from rlkit.pages import meanings
from rlkit.pages.live import Live
from rlkit.pages.server import Call, Json, Site, number
from rlkit.paths import home
from rlkit.recording.files import is_number, opened, read_object, read_text
from rlkit.recording.writers import LONGEST, record
from rlkit.settings import config, plugins
from rlkit.settings.assemble import Assemble
from rlkit.settings.given import Given, Trust
from rlkit.settings.moved import entries, parts
from rlkit.settings.repeat import MOVABLE, RESUMABLE

MOST = 1 << 24  # bytes that are read of a file at a time; the author of the folder decides how large it is
LAST = 1 << 16  # bytes before a place in a file that are compared, to know that it is the same file still
QUIET = 60.0  # seconds without a new line after which one looks whether a process still writes to the folder


class RunPage:
    """Reads a run folder, and lets its newest checkpoint play in memory."""

    def __init__(
        self, folder: str | Path, assemble: Assemble, trust: Trust = False, given: Given | None = None
    ) -> None:
        self.called = home(folder)
        self.folder = self.called.absolute()  # an environment that plays may change the directory
        self.given = config.from_folder(self.called) if given is None else given
        self.given.run["device"], self.given.trust = "auto", trust  # the run's own device may not be here
        self.given.by_itself()
        self.written, self.held = changed(self.folder / "config.yaml"), what(self.called)
        self.live: Live | None = None
        self.reason = ""  # why nothing can be played
        try:
            self.live = Live(self.folder, assemble(self.given))
        except UserError as error:  # a plug-in that has moved: what was written can still be read
            self.reason = str(error)

    def own(self, call: Call) -> Call:
        """A call that is refused where another run was made in the folder since: its files are of another problem."""

        def answer(request: Json) -> Json | bytes:
            now = changed(self.folder / "config.yaml")
            if now not in (self.written, 0.0):  # a resume writes it, too
                found = what(self.folder)
                both = found.keys() & self.held.keys()  # a resume by a later version adds keys
                if any(found[key] != self.held[key] for key in both):
                    raise UserError(f"{self.called} holds another run, or other settings, now: start rlkit.play again")
                self.written = now
            return call(request)

        return answer

    def site(self) -> Site:
        reads: dict[str, Call] = {
            "run": self.show,
            "metrics": lambda request: metrics(self.folder, request),
            "completions": self.completions,
            "meanings": meanings.told,
        }
        if self.live is None:
            return Site("run.html", {name: self.own(call) for name, call in reads.items()})
        live = self.live
        reads |= {"frame": live.frame, "doing": live.doing_now}
        writes: dict[str, Call] = {"play": live.play, "learn": live.learn, "group": live.group}
        writes |= {"replay": live.replay, "map": live.map}
        reads, writes = ({name: self.own(call) for name, call in calls.items()} for calls in (reads, writes))
        return Site("run.html", reads, writes)

    def show(self, request: Json) -> Json:
        """The header: what this is, how far it is, what it came to, and which parts of the page it has."""
        summary, before = object_of(self.folder / "summary.json"), object_of(self.folder / "before.json")
        algo, env = self.given.algo["name"], self.given.env["name"]
        return {
            "folder": str(self.called),
            "algo": algo,
            "env": at_home(env, self.given.env),
            "about": [] if self.live is None else [_summary("algorithms", algo), _summary("envs", env)],
            "seed": seed(self.given),
            "length": self.length(),
            "tokens": counts_tokens(self.given),
            "state": state(self.folder, summary),
            "evaluation": evaluation(summary.get("evaluation") or before),
            "unit": self.unit(),
            "alarms": _records(summary.get("alarms")),
            "what": digest(repr(sorted(self.held.items()))),
            "config": read_text(self.folder / "config.yaml"),
            "parts": self.parts(),
            "reason": self.reason,
        }

    def length(self) -> Json:
        """How long the run is to be; a resume may have made it longer."""
        run = self.given.run
        with suppress(UserError):  # it is being written, or damaged by now
            run = config.from_folder(self.folder).run
        return _plain({key: run[key] for key in ("iterations", "env_steps") if run.get(key)})

    def unit(self) -> str:
        """What a score is a mean of: episodes, problems or pairs; of a run that cannot be opened, nobody knows."""
        return "" if self.live is None else self.live.parts.env.scored(self.live.parts.algo.policy)

    def parts(self) -> list[str]:
        """What the page can show of this run."""
        found = ["curves"]
        if self.live is not None and self.live.writes:
            found.append("tokens")
        if (self.folder / "completions.jsonl").is_file():
            found.append("completions")
        if self.live is not None and self.live.parts.env.kind == "control":
            found.append("replay")
            if self.live.mapped:
                found.append("map")
        return found

    def completions(self, request: Json) -> Json:
        """{"iteration"?}: the completions kept of one iteration, without it of the last; of a large file its end."""
        lines = io.BytesIO(_end(self.folder / "completions.jsonl"))
        records = [_sample(held) for line in lines if (held := record(line)) is not None]
        iterations = sorted({each["iteration"] for each in records})
        wanted = request.get("iteration", "")
        chosen = int(number(request, "iteration", 0, 2**53)) if wanted else iterations[-1] if iterations else 0
        return {
            "iterations": iterations,
            "iteration": chosen,
            "records": [each for each in records if each["iteration"] == chosen],
        }


def what(folder: Path) -> dict[str, str]:
    """What a run is, by key: all that a resume cannot change, and what it measures; files by their content."""
    given = config.from_folder(folder)
    named = [("algo", given.algo), ("env", given.env), ("policy", given.policy)]
    held = {f"{section}.{key}": x for section, keys in named for key, x in keys.items()}
    held = {key: x for key, x in held.items() if key not in (*RESUMABLE, *MOVABLE)}
    run = {key: given.run.get(key) for key in ("seed", "measure")}
    marks = {path: digest(str(mark)) for path, mark in given.marks.items()}  # as short as any: a stranger wrote them
    return {key: by_content(x, marks) for key, x in (held | run).items()}


def by_content(value: object, marks: Mapping[str, str]) -> str:
    """A value as text in which marked files, which may have moved, stand by their marks."""
    texts = entries(value, isinstance(value, str) and value in marks) or [str(value)]
    return ",".join(f"{before}{marks.get(path, path)}{name}" for before, path, name in map(parts, texts))


def digest(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=8).hexdigest()


def seed(given: config.Given) -> int | str:
    """The seed of a run; as a text where a page would round it, as it does a number of 2^53 and more."""
    found = given.run.get("seed", 0)
    return found if isinstance(found, int) and abs(found) < 2**53 else str(found)


def counts_tokens(given: config.Given) -> bool:
    """Whether the steps of a run are tokens: its policy is a language model."""
    return "model" in given.policy


def state(folder: Path, summary: Json) -> str:
    """finished, running, or stopped: not finished, quiet for a while, and no process writes to its folder."""
    metrics, told = folder / "metrics.jsonl", folder / "summary.json"
    heard = max(changed(metrics), changed(folder / "config.yaml"))
    if summary and changed(told) >= heard:  # it is written last, and a resume removes it
        return "finished" if summary.get("finished", True) else "stopped"
    if abs(time.time() - heard) < QUIET:  # a file may be of a time to come, by another clock
        return "running"
    with suppress(UserError):  # a folder in which nothing may be opened for writing
        if is_locked(folder):
            return "running"
    return "finished" if _reached(folder, summary) else "stopped"


def _reached(folder: Path, summary: Json) -> bool:
    """Whether a finished summary is of the length that is asked for now: a copy's files may be of any date."""
    if summary.get("finished") is not True:  # to read a configuration takes a hundred times longer than all the rest
        return False
    with suppress(UserError):
        run = config.from_folder(folder).run
        asked = [(summary.get(key), run.get(key)) for key in ("iterations", "env_steps") if run.get(key)]
        return any(is_number(x) and is_number(n) and x >= n for x, n in asked)
    return False


def metrics(folder: Path, request: Json) -> Json:
    """{"file"?, "offset"?}: the next whole lines after that byte; from the first where the file is another one."""
    try:
        with opened(folder / "metrics.jsonl") as file:
            offset = int(number(request, "offset", 0, 2**53)) if request.get("file") else 0
            if request.get("file") != identity(file, offset):
                offset = 0
            file.seek(offset)
            found = file.read(MOST)
            end = found.rfind(b"\n") + 1
            after = offset + (end or (len(found) if len(found) == MOST else 0))  # without an end it is not a line
            name = identity(file, after)
    except OSError:  # it is not there, or no longer
        return {"file": "", "offset": 0, "from": 0, "lines": []}
    lines = [_numbers(held) for line in io.BytesIO(found[:end]) if (held := record(line)) is not None]
    return {"file": name, "offset": after, "from": offset, "lines": lines}


def identity(file: BinaryIO, offset: int) -> str:
    """What tells a file that was read up to this byte from another one, which may have the number of a removed file.

    A resumed run writes its file anew: with the same first line, and others before that byte.
    """
    start = max(0, offset - LAST)
    file.seek(0)
    first = file.readline(LONGEST)
    file.seek(start)
    marks = [hashlib.blake2b(held, digest_size=8).hexdigest() for held in (first, file.read(offset - start))]
    return "-".join([str(os.fstat(file.fileno()).st_ino), *marks])


def changed(path: Path) -> float:
    """When a file was written to last; 0 where there is none."""
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def _summary(kind: plugins.Kind, name: str) -> str:
    try:
        return plugins.summary(kind, name)
    except UserError:  # its file is gone
        return ""


def _numbers(record: Json) -> Json:
    """What can be drawn of a record."""
    drawn = {key: x for key, x in record.items() if isinstance(x, int | float | None) and not isinstance(x, bool)}
    return {key: x if is_number(x) else None for key, x in drawn.items()}


def _plain(record: Json) -> Json:
    """What can be shown of a record."""
    return {key: x for key, x in record.items() if x is None or isinstance(x, str | int | float)}


def _sample(record: Json) -> Json:
    """What can be shown of a completion, with the reward of each function where several scored it."""
    rewards = record.get("rewards")
    return _plain(record) | ({"rewards": _plain(rewards)} if isinstance(rewards, dict) else {})


def _records(given: object) -> list[Json]:
    return [_plain(record) for record in given if isinstance(record, dict)] if isinstance(given, list) else []


def evaluation(given: object) -> Json:
    """Each measurement that has a mean and an interval."""
    named = given.items() if isinstance(given, dict) else ()
    found = {when: _plain(each) for when, each in named if isinstance(each, dict)}
    return {when: e for when, e in found.items() if all(is_number(e.get(key)) for key in ("mean", "low", "high"))}


def _end(path: Path) -> bytes:
    """The last lines of a file."""
    if not path.is_file():
        return b""
    with opened(path) as file:
        before = max(0, file.seek(0, io.SEEK_END) - MOST)
        file.seek(before)
        found = file.read(MOST)
    return found.partition(b"\n")[2] if before else found  # its first line is cut


def object_of(path: Path) -> Json:
    """What a JSON file holds; {} where there is none, or none of ours."""
    try:
        return read_object(path)
    except UserError:
        return {}
