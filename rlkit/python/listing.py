"""The algorithms and the environments; nothing heavy is imported for it."""

from rlkit.settings import plugins


def list_algorithms() -> dict[str, str]:
    """The built-in algorithms: name and one line about each.

    Example:
        sorted(rlkit.list_algorithms())
    """
    return {name: plugins.summary("algorithms", name) for name in plugins.names("algorithms")}


def list_environments() -> dict[str, str]:
    """The built-in environments: name and one line about each.

    Example:
        rlkit.list_environments()["cartpole"]
    """
    return {name: plugins.summary("envs", name) for name in plugins.names("envs")}
