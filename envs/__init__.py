"""Plug-ins: one file each, loaded by name with `rlkit.settings.plugins.load("envs", NAME)`."""

if __name__ != "rlkit.envs":
    raise ImportError("these are rlkit.envs: load one with rlkit.settings.plugins.load('envs', NAME)")
