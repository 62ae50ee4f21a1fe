"""Detects degenerate training. It only reads a run and never changes it."""

from rlkit.doctor.checks import CHECKS, Check, Doctor, Numbers

__all__ = ["CHECKS", "Check", "Doctor", "Numbers"]
