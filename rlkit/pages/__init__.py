"""The pages of `rlkit.play`: a server for this machine only, what it computes, and plain HTML, CSS and JavaScript."""
