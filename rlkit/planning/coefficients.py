"""How much of what a GPU can do is reached, and what is lost: the numbers that were fitted or are cited.

`benchmarks/scale_model.py` fits them on half of the points in `benchmarks/scale_points.csv`, and says the error on the
other half; docs/scale.md shows both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Coefficients:
    """Fitted unless said otherwise."""

    use: float = 0.332  # of the peak that passes over a model reach, recomputation counted as work
    stream: float = 0.867  # of a memory's bandwidth that is reached; measured by github.com/aigatech/vpbenchmarking
    layer: float = 1.08e-4  # seconds that a layer costs in each step of writing, beside what is read and multiplied
    handover: float = 5.96  # seconds of each transfer of weights, whatever their size
    carried: float = 7.92e9  # bytes a second of a transfer of weights
    disk: float = 0.676e9  # bytes a second of a checkpoint
    links: float = 0.84  # of a link's bandwidth that is reached; measured in github.com/NVIDIA/nccl/issues/1264


FITTED = ("use", "layer", "handover", "carried", "disk")
USUAL = Coefficients()

# The error on the half of the points that was not fitted: how many there are, the factor by which half of them are
# wrong at most, and the worst. tests/planning/test_points.py computes them again.
ERRORS = {
    "a step": (9, 1.11, 1.51),
    "a phase": (33, 1.20, 1.96),
    "a weight transfer": (10, 1.71, 10.02),
    "memory": (9, 1.07, 1.25),
}
