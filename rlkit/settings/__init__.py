"""From text to objects: what was asked for becomes an algorithm on an environment."""
