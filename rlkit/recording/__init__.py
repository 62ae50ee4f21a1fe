"""The files of a run: log, metrics, texts, checkpoints and summary."""
