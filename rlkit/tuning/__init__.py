"""Looks for settings of an algorithm: ranges, trials by Optuna, and the winner on fresh seeds."""
