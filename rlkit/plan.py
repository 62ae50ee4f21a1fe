"""Predict a step

python -m rlkit.plan model=7b gpus=8 [KEY=VALUE]

Prints time and memory of a training step of a language model: seconds of generation, weight transfer, learning and
checkpoints, the memory of a GPU, and, if that is too much, what would fit. Nothing is run and no GPU is needed. Keys
have the same meaning as in a run; policy.lora=16 may be written as lora=16.
"""

import sys
from collections.abc import Sequence

from rlkit.console import guarded, loading
from rlkit.terminal import only_printing, say


def plan(argv: list[str]) -> int:
    if not argv or {"-h", "--help"} & set(argv):
        return show_help()
    with loading():
        from rlkit.planning.memory import Model
        from rlkit.planning.models import find
        from rlkit.planning.predict import predict
        from rlkit.planning.report import report
        from rlkit.planning.setting import parse

    setting = parse(argv)
    model = Model(*find(setting.model), setting.lora)
    say(report(setting, model, predict(setting, model)))
    return 0


def show_help() -> int:
    """Print the keys with their meaning, and the models that are known by name."""
    import re

    from rlkit.planning.models import KINDS, SHORT
    from rlkit.planning.setting import Setting
    from rlkit.settings import schema
    from rlkit.settings.help import print_pages

    about = re.sub(r"(?<!\n)\n(?!\n)", " ", (__doc__ or "").strip())  # as wide as the terminal
    names = [(size, name) for size, name in SHORT.items()]
    names += [(name, "") for name in KINDS if name not in SHORT.values()]
    print_pages(about, [("the plan", schema.explain(Setting, {}, "run")), ("model=NAME", names)])
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    with only_printing():
        return guarded(plan, argv)


if __name__ == "__main__":
    sys.exit(main())
