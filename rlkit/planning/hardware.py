"""Peak performance of GPUs, from data sheets; coefficients.py has the reached shares."""

from dataclasses import dataclass
from typing import Literal

GIB = 2**30
Name = Literal["a6000", "a100", "h100", "h200", "gb200", "mi300x"]


@dataclass(frozen=True)
class Gpu:
    peak: float  # floating-point operations per second in bfloat16, without sparsity
    bandwidth: float  # bytes per second of its memory
    memory: float  # bytes
    link: float  # bytes per second, one way, to another GPU of the machine
    network: float  # bytes per second, one way, of its share of the network between machines


# NVIDIA's and AMD's data sheets: A100 80 GB SXM with 200 Gbit/s, H100 and H200 SXM with 400 Gbit/s each, RTX A6000 on
# PCIe 4, GB200 NVL72 (half a superchip), Instinct MI300X. Of 80 GB a process sees 79.2 (prime-rl's benchmarks).
GPUS: dict[str, Gpu] = {
    "a6000": Gpu(155e12, 0.768e12, 47.5 * GIB, 32e9, 12.5e9),
    "a100": Gpu(312e12, 2.039e12, 79.2 * GIB, 300e9, 25e9),
    "h100": Gpu(989e12, 3.35e12, 79.2 * GIB, 450e9, 50e9),
    "h200": Gpu(989e12, 4.8e12, 139.0 * GIB, 450e9, 50e9),
    "gb200": Gpu(2450e12, 8e12, 184.0 * GIB, 900e9, 50e9),
    "mi300x": Gpu(1307e12, 5.3e12, 191.0 * GIB, 448e9, 50e9),
}
