"""What a run leaves: its log, its metrics and texts, checkpoints, the summary."""
