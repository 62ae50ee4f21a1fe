"""The life of a rank: it meets the others, shows that it is there, and leaves, or is started again by torchrun."""

import hashlib
import os
import platform
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import rlkit
from rlkit.errors import Diverged, UserError
from rlkit.paths import home


def restarted(argv: Sequence[str]) -> list[str]:
    """The words of a run; where torchrun starts it again, those that continue what is in its own `out=`."""
    words = list(argv)
    if not int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")):
        return words
    out = next((word.removeprefix("out=") for word in words if word.startswith("out=")), None)
    if out is None or not (home(out) / "config.yaml").is_file():
        return words
    return [f"resume={out}", "trust=true"]


@contextmanager
def joined() -> Iterator[None]:
    """Meanwhile this process is one of the ranks that torchrun started, where it started several."""
    if int(os.environ.get("WORLD_SIZE", "1")) == 1 or "RANK" not in os.environ:
        yield
        return
    import torch

    from rlkit import ranks
    from rlkit.pulse import Pulse

    store = ranks.join()
    pulse = Pulse(store, ranks.rank(), ranks.size(), ranks.lost)
    pulse.start()
    before = signal.signal(signal.SIGTERM, pulse.asked_to_leave)  # where the run itself does not handle it
    try:
        versions = f"rlkit {rlkit.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        ranks.check_same("version", versions, "install the same packages everywhere")
        yield
        ranks.everyones(None)  # the first one is still writing when the others are done
    except (UserError, Diverged) as error:
        name = hashlib.blake2b(str(error).encode(), digest_size=8).hexdigest()
        said = store.add(f"said/{name}", 1) > 1
        pulse.ended()
        if said:
            raise SystemExit(2 if isinstance(error, UserError) else 1) from None
        raise
    except RuntimeError:
        pulse.broken()
        raise
    finally:
        signal.signal(signal.SIGTERM, before)
    pulse.ended()
    ranks.leave()
