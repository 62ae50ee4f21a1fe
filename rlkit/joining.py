"""The life of a rank: it joins the others, gives signs of life, and leaves, or torchrun restarts it."""

import hashlib
import os
import platform
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from rlkit.errors import Diverged, UserError, WorkerDied, whole_number
from rlkit.installed import installed
from rlkit.paths import home

TOLD = (UserError, Diverged, FloatingPointError, WorkerDied)  # reported in one line, once, whichever ranks raised it


def several() -> bool:
    """Whether this process was started as one of several ranks."""
    return bool(os.environ.get("RANK")) and whole_number("WORLD_SIZE", 1) > 1


def refuse_several() -> None:
    """Raises: UserError in one of several processes of torchrun, each of which would train a whole run of its own."""
    if several() and os.environ.get("TORCHELASTIC_RUN_ID"):
        raise UserError(
            f"torchrun started {os.environ['WORLD_SIZE']} processes, and a program trains in one: give the same keys "
            "to torchrun ... -m rlkit.run, or start the program without torchrun"
        )


@contextmanager
def joined(argv: Sequence[str]) -> Iterator[list[str]]:
    """Join the ranks that torchrun started, if there are several, and leave them after the block. Yields the words."""
    if not several():
        yield going_on(argv, begun_alone())
        return
    import torch

    from rlkit import ranks
    from rlkit.pulse import Pulse

    store = ranks.join()
    pulse = Pulse(store, ranks.rank(), ranks.size(), ranks.lost)
    pulse.start()
    before = signal.signal(signal.SIGTERM, pulse.asked_to_leave)  # where the run itself does not handle it
    try:
        versions = f"rlkit {installed()}, torch {torch.__version__}, Python {platform.python_version()}"
        ranks.check_same("version", versions, "install the same packages everywhere")
        yield going_on(argv, ranks.begun())
        ranks.everyones(None)  # the first one is still writing when the others are done
    except TOLD as error:
        name = hashlib.blake2b(str(error).encode(), digest_size=8).hexdigest()
        said = store.add(f"said/{name}", 1) > 1
        pulse.ended()
        if said:
            raise SystemExit(2 if isinstance(error, UserError) else 1) from None
        raise
    except RuntimeError:
        pulse.broken()
        pulse.ended()
        raise
    except BaseException:
        pulse.ended()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    pulse.ended()
    ranks.leave()


def begun_alone() -> str:
    """The folder that was begun before a restart by a rank that is the only one; empty: none."""
    if not os.environ.get("RANK") or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return ""
    from rlkit import ranks

    with suppress(RuntimeError):  # out of reach: it can run all the same
        ranks.connect()
    return ranks.begun()


def going_on(argv: Sequence[str], begun: str) -> list[str]:
    """The words of a run, or those that resume the folder that this launch of torchrun began before a restart.

    The folder has its own code, so it is trusted; another folder in its place stays unchanged.
    """
    out = next((word.removeprefix("out=") for word in argv if word.startswith("out=")), None)
    if not begun or out is None or os.path.realpath(home(out)) != begun:
        return list(argv)
    return [f"resume={out}", "trust=true"]
