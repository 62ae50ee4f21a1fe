"""Train with rlkit, as `python -m rlkit.run` does: see stopwatch.py.

The command runs whole: log, doctor, checkpoints and the measurements before and after. The training's clock stands
around the loop (`rlkit.loop.train`); the first step is the loop's, after the measurement of the untouched policy.
"""

import math
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(HERE))

from stopwatch import Stopwatch, Work, asked, score  # noqa: E402

OWN = ("until", "every")  # keys of the benchmark


def timed(train: Callable[..., Any], watch: Stopwatch) -> Callable[..., Any]:
    """The loop, with the time at which it begins and ends."""

    def around(*args: Any) -> Any:
        watch.step()
        progress = train(*args)
        watch.end()
        return progress

    return around


def until(work: Work, watch: Stopwatch) -> dict[str, Any]:
    """Keys that evaluate every `every` steps and stop at the score; the seconds of the evaluations are taken off."""
    if "until" not in work:
        return {}
    from rlkit.control import ControlEnv

    evaluate = ControlEnv.evaluate

    def around(self: ControlEnv, *args: Any, **keys: Any) -> Any:
        began = time.time()
        found = evaluate(self, *args, **keys)
        if watch.first is not None and watch.ended is None:  # the measurements before and after are not in the loop
            watch.evaluating += time.time() - began
        return found

    ControlEnv.evaluate = around  # type: ignore[method-assign]
    each = int(work["env.rows"]) * int(work["algo.horizon"])
    return {"evaluate_every": int(work["every"]) // each, "validation_episodes": 20}


def main(work: Work) -> None:
    import rlkit
    from rlkit import session
    from rlkit.control import Batched

    watch = Stopwatch()
    watch.watch(Batched, "step", watch.touch)
    session.train = timed(session.train, watch)  # type: ignore[assignment]
    keys = {key: value for key, value in work.items() if key not in ("algo", "env", *OWN)} | until(work, watch)
    goal = work.get("until")

    def reached(metrics: dict[str, float]) -> bool:
        watch.reached = goal is not None and metrics.get("eval/return", -math.inf) >= goal
        return watch.reached

    with tempfile.TemporaryDirectory() as folder:
        out = os.path.join(folder, "run")
        run = rlkit.train(work["algo"], work["env"], quiet=True, out=out, on_iteration=reached, **keys)
        found = score(run.policy.predict, work["env"])
        assert run.summary is not None
        steps = run.summary["env_steps"]
    watch.report(work, steps, found, f"rlkit {rlkit.__version__}")


if __name__ == "__main__":
    main(asked())
