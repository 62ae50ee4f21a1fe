"""Hyperparameter search: ranges, trials chosen by Optuna, and a comparison of the best setting on fresh seeds."""
