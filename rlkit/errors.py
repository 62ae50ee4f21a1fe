"""What goes wrong for a reason that one line can tell."""


class UserError(Exception):
    """The user's mistake: one line that says what was given, what is allowed and what to do. Exit code 2."""


class Exhausted(UserError):
    """Nothing is left to learn from: a mistake at the start of a run, its natural end later on."""


class RewardFailed(UserError):
    """A user's reward function raised, or returned something that is not a reward."""


class Diverged(RuntimeError):
    """A loss, a gradient or a rollout is not finite; the last good checkpoint is kept. Exit code 1."""
