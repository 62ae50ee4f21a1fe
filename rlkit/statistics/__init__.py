"""Statistics of arrays: the episodes of one run, and the runs of an algorithm."""

from rlkit.statistics.episodes import (
    bootstrap,
    compare,
    distribution,
    form,
    histogram,
    mcnemar,
    p_value,
    pass_at_k,
    sign_flip,
    summarize,
    verdict,
    wilson,
    within,
)

__all__ = [
    "bootstrap",
    "compare",
    "distribution",
    "form",
    "histogram",
    "mcnemar",
    "p_value",
    "pass_at_k",
    "sign_flip",
    "summarize",
    "verdict",
    "wilson",
    "within",
]
