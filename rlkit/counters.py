"""Counters that a saved state holds."""


def natural(x: object) -> int:
    """Raises: TypeError where this does not count anything."""
    if type(x) is not int or x < 0:
        raise TypeError(f"{x!r} counts nothing")
    return x
