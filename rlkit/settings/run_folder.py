"""The folder of a new run: never one that holds something."""

import time
from pathlib import Path

from rlkit.errors import UserError
from rlkit.recording.files import prepare_folder
from rlkit.settings.config import Run
from rlkit.settings.given import Given
from rlkit.settings.plugins import short


def new_folder(run: Run, given: Given) -> Path:
    """Make the folder of a new run: `out`, or runs/ALGO-ENV-sSEED-TIMESTAMP; never write into another run's folder.

    It is absolute, as a reward or an environment may change the directory.
    """
    if run.out is not None:
        return check_empty(prepare_folder(run.out, given.here), given)
    stem = f"{short(given.algo['name'])}-{short(given.env['name'])}-s{run.seed}-{time.strftime('%Y%m%d-%H%M%S')}"
    prepare_folder("runs", given.here)
    number = 1
    while True:
        folder = given.here / "runs" / (stem if number == 1 else f"{stem}-{number}")
        try:
            folder.mkdir()
        except FileExistsError:  # another run of the same second
            number += 1
        except OSError:  # the name may be too long
            return prepare_folder(folder)  # which says so
        else:
            return prepare_folder(folder)


def check_empty(folder: Path, given: Given) -> Path:
    """Refuse a folder that holds anything; a start that was killed at once leaves a lock behind, which is nothing."""
    if any(not path.name.startswith(".") for path in folder.iterdir()):
        called = given.called(folder)
        raise UserError(f"out={called} is not empty: choose another folder, or continue it with resume={called}")
    return folder
