"""One answer, graded by a built-in reward."""

from rlkit.text.grader import BUILT_IN


def grade(name, text, answer="#### 18"):
    [found] = BUILT_IN[name](prompts=["?"], completions=[text], answer=[answer])
    return found
