"""The efficiency of GPUs and fixed costs, fitted to measurements or cited.

`benchmarks/scale_model.py` fits the numbers on half of the points in `benchmarks/scale_points.csv`, and reports the
error on the other half; docs/scale.md shows both.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Coefficients:
    """Values are fitted unless a comment gives a source."""

    use: float = 0.332  # reached share of the peak in forward and backward passes, counting recomputation
    stream: float = 0.867  # reached share of memory bandwidth; measured by github.com/aigatech/vpbenchmarking
    layer: float = 1.08e-4  # seconds per layer and step of writing, beside reading and multiplying
    handover: float = 5.96  # seconds per transfer of weights, whatever their size
    carried: float = 7.92e9  # bytes per second of a transfer of weights
    disk: float = 0.676e9  # bytes per second of a checkpoint
    links: float = 0.84  # reached share of a link's bandwidth; measured in github.com/NVIDIA/nccl/issues/1264


FITTED = ("use", "layer", "handover", "carried", "disk")
USUAL = Coefficients()

# Errors on the points that were not fitted: number of points, median factor, largest factor.
# tests/planning/test_points.py computes them again.
ERRORS = {
    "a step": (9, 1.11, 1.51),
    "a phase": (33, 1.20, 1.96),
    "a weight transfer": (10, 1.71, 10.02),
    "memory": (9, 1.07, 1.25),
}
