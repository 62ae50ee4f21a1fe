"""Train one algorithm on one environment: python -m rlkit.run algo=NAME env=NAME [key=value ...]"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading


def run(argv: list[str]) -> int:
    with loading():
        from rlkit.joining import joined, restarted
        from rlkit.settings import config

        argv = restarted(argv)
        given = config.read(argv)
        if given.help or not argv:
            from rlkit.settings.help import show_help

            show_help(given)
            return 0
        from rlkit import session
    with joined():
        _, progress = session.carry_out(given)
    return 1 if progress.terminated and not progress.measured else 0


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(run, argv)


if __name__ == "__main__":
    sys.exit(main())
