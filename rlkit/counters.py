"""Counters in a saved state."""


def natural(x: object) -> int:
    """The counter itself. Raises: TypeError where it is not a counter."""
    if type(x) is not int or x < 0:
        raise TypeError(f"{x!r} counts nothing")
    return x
