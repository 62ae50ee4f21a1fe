"""Plug-ins: one file each, loaded by name with `rlkit.plugins.load("algorithms", NAME)`."""

if __name__ != "rlkit.algorithms":
    raise ImportError("these are rlkit.algorithms: load one with rlkit.plugins.load('algorithms', NAME)")
