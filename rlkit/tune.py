"""Search settings

python -m rlkit.tune algo=ppo env=cartpole [KEY=VALUE]

Tries settings of an algorithm on an environment with Optuna, each as runs of their own, then measures the best one on
fresh seeds beside the default, and writes it as best.yaml, which rlkit.run takes as config=FILE. The same command
again resumes it.
"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading
from rlkit.terminal import say, warn


def tune(argv: list[str]) -> int:
    with loading():
        from rlkit.settings import repeat
        from rlkit.tuning.conduct import conduct
        from rlkit.tuning.problem import parse

    asked = {"-h", "--help"} & set(argv)
    if not argv or asked:
        return show_help([word for word in argv if word not in asked])
    done = conduct(*parse(argv), f"python -m rlkit.tune {' '.join(map(repeat.quoted, argv))}")
    if done.best is None or (done.best.number and done.results is None):
        warn("rlkit: stopped; the same command goes on from here")
        return 1
    say(done.command)
    return 1 if done.failed else 0


def show_help(argv: list[str]) -> int:
    """Print the keys with their meaning, and the ranges where an algorithm and an environment are named."""
    import re

    from rlkit.settings import schema
    from rlkit.settings.help import print_pages
    from rlkit.tuning.problem import Problem, Tune, parse

    about = re.sub(r"(?<!\n)\n(?!\n)", " ", (__doc__ or "").strip())  # as wide as the terminal
    words = [
        ("KEY=VALUE", "a key of the runs that has this value in all trials, as env_steps=50000, algo.gamma=0.99"),
        ("KEY=LOW..HIGH", "a range of your own, narrower or wider: algo.lr=1e-4..1e-2; :log or :linear may follow"),
        ("KEY=VALUE,VALUE", "values to choose among; `;` where a comma belongs to one: 'policy.hidden=64,64;256,256'"),
    ]
    pages = [("the search", schema.explain(Tune, {}, "tune")), ("its runs", words)]
    if argv:
        problem = Problem(*parse(argv))
        ranges = [(f"{key}={found}", f"default {problem.default(key)}") for key, found in problem.space.items()]
        pages.append(("what is searched", ranges))
    print_pages(about, pages)
    if not argv:
        say("\nwith algo=NAME env=NAME, --help lists the ranges that are searched")
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    return guarded(tune, argv)


if __name__ == "__main__":
    sys.exit(main())
