"""Compare algorithms

python -m rlkit.compare algo=ppo,grpo env=cartpole,gsm8k seed=0-4 [KEY=VALUE]

python -m rlkit.compare algo=ppo algo.lr=1e-3,3e-3 env=cartpole seeds=5

Runs every algorithm on every environment with every seed, each as a process of its own, then writes the statistics of
all of them: a table, figures and one page. The same command again resumes it. Instead of keys, run
folders: python -m rlkit.compare runs/* compares what is there.
"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading
from rlkit.terminal import say, warn


def compare(argv: list[str]) -> int:
    import shlex

    with loading():
        from rlkit.comparison.conduct import conduct
        from rlkit.comparison.plan import explained, parse

    if not argv or {"-h", "--help"} & set(argv):
        return show_help()
    done = conduct(explained(parse(argv)), f"python -m rlkit.compare {shlex.join(argv)}")
    if done.results is None:
        warn("rlkit: stopped; the same command goes on from here")
    return 1 if done.results is None or done.failed else 0


def show_help() -> int:
    """Print the keys with their meaning."""
    import re

    from rlkit.comparison.plan import DEFAULTS, Compare
    from rlkit.settings import config, schema
    from rlkit.settings.help import print_pages

    about = re.sub(r"(?<!\n)\n(?!\n)", " ", (__doc__ or "").strip())  # as wide as the terminal
    run = [row for row in schema.explain(config.Run, dict(DEFAULTS), "run") if not row[0].startswith(("seed=", "out="))]
    words = [
        ("KEY=VALUE", "for all runs: the keys below, algo.KEY, env.KEY and policy.KEY"),
        (
            "KEY=VALUE,VALUE",
            "a row of each value, as algo.lr=1e-3,3e-3; of env.KEY a column, as env.id=CartPole-v1,Acrobot-v1. A comma "
            "makes rows only for a field that takes one number or word",
        ),
        (
            "KEY=VALUE;VALUE",
            "the same for a field that takes a tuple, a list or several names, in which a comma belongs to one value: "
            "'policy.hidden=64,64;256,256' (quoted: a shell ends the line at ;). A text for a model is one value",
        ),
        ("NAME:KEY=VALUE", "for the runs of one algorithm or environment, as in cartpole:env_steps=50000"),
        (
            "algo=MY_NAME:NAME",
            "a name of your own in tables and figures, and for MY_NAME:KEY=VALUE, as in algo=slow:ppo,fast:ppo "
            "fast:algo.lr=1e-2; env= takes them, too",
        ),
        ("FOLDER ...", "instead of all that: finished runs, or comparisons, to compare as they are"),
    ]
    own = [(key.replace("[]", "NAME,NAME"), text) for key, text in schema.explain(Compare, {}, "compare")]
    print_pages(about, [("the comparison", own), ("its runs", words + run)])
    say("\npython -m rlkit.run algo=NAME env=NAME --help lists the keys of a pair")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(compare, argv)


if __name__ == "__main__":
    sys.exit(main())
