"""Compares by math-verify, in the process of `rlkit.text.process`.

What it is given may be 9^{9^{9^9}}, and nothing inside of a process can stop all that follows from that.
"""

from math_verify import parse, verify


def answer(pair: tuple[str, str]) -> bool:
    """Whether both are equal as mathematics."""
    # One box each, so that there is one answer to compare; their own time limits need a main thread.
    both = [parse(f"\\boxed{{{text.replace('$', '')}}}", parsing_timeout=None) for text in pair]
    return bool(verify(*both, timeout_seconds=None))
