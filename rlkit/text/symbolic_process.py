"""Compares with math-verify, in the process of `rlkit.text.process`.

An answer may be 9^{9^{9^9}}, and no process can limit everything that this causes within itself.
"""

from math_verify import parse, verify


def answer(pair: tuple[str, str]) -> bool:
    """Whether both are equal as mathematics."""
    # Each in a box, so that there is one answer to compare; the package's own time limits need a main thread.
    both = [parse(f"\\boxed{{{bare(text)}}}", parsing_timeout=None) for text in pair]
    return bool(verify(*both, timeout_seconds=None))


def bare(text: str) -> str:
    r"""A text without the marks around mathematics, and without the sign of an amount: \$5 is 5."""
    return text.replace("\\$", "").replace("$", "")
