"""What `rlkit.compare` is made of: the grid of runs, and the statistics of their scores."""
