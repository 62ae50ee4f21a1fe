"""What the runs of a comparison are called in its tables, kept beside them in names.json."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path

from rlkit.comparison.grid import Job
from rlkit.recording.files import LARGEST, is_file, read_object, read_text, write_atomically
from rlkit.settings.plugins import short
from rlkit.terminal import harmless

FILE = "names.json"
LONGEST = 200  # characters of a name that are read; a figure of a million would take hours


def write(out: Path, jobs: Sequence[Job]) -> None:
    """Note what runs are called where it is not what their plug-ins are; what was noted of others stays.

    Other seeds of the same pair get its names: of one setting that is written in another way they would be two rows.
    """
    given = {job.name: {"algo": job.algo, "env": job.env} for job in jobs}
    plain = {job.name: {key: short(str(job.config[key]["name"])) for key in ("algo", "env")} for job in jobs}
    own = {run: {key: name for key, name in names.items() if name != plain[run][key]} for run, names in given.items()}
    there = read_object(out / FILE) if is_file(out / FILE) else {}
    pairs = {stem(run): names for run, names in own.items()}
    noted = {run: pairs.get(stem(run), names) for run, names in there.items()}
    noted |= {run: names for run, names in own.items() if names or run in there}
    if noted != there:
        write_atomically(out / FILE, json.dumps(noted, indent=1, ensure_ascii=False) + "\n")


def stem(run: str) -> str:
    """The name of a run folder without its seed."""
    return run.rpartition("-s")[0]


def read(run: Path) -> dict[str, str]:
    """What a run is called in the comparison that it lies in, of `algo` and `env`; empty where that is not noted.

    A list is a file of the user's own beside the folder runs/ of single runs.

    Raises: UserError for a damaged names.json.
    """
    path = run.parent.parent / FILE
    ours = run.parent.name == "runs" and is_file(path) and not read_text(path, LARGEST).lstrip().startswith("[")
    found = read_object(path).get(run.name) if ours else None
    given = found if isinstance(found, dict) else {}
    return {key: readable(name) for key in ("algo", "env") if isinstance(name := given.get(key), str) and name}


def readable(name: str) -> str:
    """A name that may be a stranger's, without characters that cannot be drawn; of a long one the beginning, marked."""
    if len(name) > LONGEST:  # two that begin alike stay two
        mark = hashlib.blake2b(name.encode("utf-8", "replace"), digest_size=4).hexdigest()
        name = f"{name[: LONGEST - len(mark) - 2]}… {mark}"
    return harmless(name)
