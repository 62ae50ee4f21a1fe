"""Which rlkit is installed: its version, and the content of its files, which may be edited in a checkout."""

import hashlib
from functools import cache
from pathlib import Path

import rlkit


@cache
def installed() -> str:
    """`present()` as this process imported it: what is edited while it runs is not what it has imported."""
    return present()


def present() -> str:
    """The version with a mark of all code and configurations, such as "0.5.0 (files 1a2b3c4d)"."""
    own, *others = map(Path, rlkit.__path__)  # a checkout has the plug-ins beside the package, a wheel inside
    found = {path.relative_to(own).as_posix(): path for path in own.rglob("*.py")}
    for place in (own, *others):
        for pattern in ("algorithms/*.py", "envs/*.py", "configs/**/*.yaml"):
            found |= {path.relative_to(place).as_posix(): path for path in place.glob(pattern)}
    digest = hashlib.sha256()
    for name, path in sorted(found.items()):
        if path.is_file():  # an editor may leave a link to nothing
            digest.update(name.encode() + path.read_bytes())
    return f"{rlkit.__version__} (files {digest.hexdigest()[:8]})"
