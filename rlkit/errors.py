"""What goes wrong for a reason that one line can tell. Exit code 2."""


class UserError(Exception):
    """The user's mistake: one line that says what was given, what is allowed and what to do."""


class Exhausted(UserError):
    """Nothing is left to learn from: a mistake at the start of a run, its natural end later on."""


class RewardFailed(UserError):
    """A user's reward function raised, or returned something that is not a reward."""
