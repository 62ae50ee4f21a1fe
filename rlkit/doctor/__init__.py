"""Names what is degenerate in a run: it reads, and changes nothing."""

from rlkit.doctor.checks import CHECKS, Check, Numbers
from rlkit.doctor.doctor import Doctor

__all__ = ["CHECKS", "Check", "Doctor", "Numbers"]
