"""Train one algorithm on one environment: python -m rlkit.run algo=NAME env=NAME [key=value ...]"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading


def run(argv: list[str]) -> int:
    from rlkit.joining import joined

    with joined(argv) as words:
        return alone(words)


def alone(argv: list[str]) -> int:
    """The work of this process, alone or as one of several ranks."""
    with loading():
        from rlkit.settings import config

        given = config.read(argv)
        if given.help or not argv:
            from rlkit.settings.help import show_help

            show_help(given)
            return 0
        from rlkit import session
    _, progress = session.carry_out(given)
    return 1 if progress.terminated and not progress.measured else 0


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(run, argv, together=True)


if __name__ == "__main__":
    sys.exit(main())
