"""Plug-ins: one file each, loaded by name with `rlkit.settings.plugins.load("algorithms", NAME)`."""

if __name__ != "rlkit.algorithms":
    raise ImportError("these are rlkit.algorithms: load one with rlkit.settings.plugins.load('algorithms', NAME)")
