"""A stand-in for verifiers 0.4."""
