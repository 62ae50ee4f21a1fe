"""Lists of the built-in algorithms and environments; nothing heavy is imported."""

from rlkit.settings import plugins


def list_algorithms() -> dict[str, str]:
    """The built-in algorithms: name → one line of description.

    Example:
        sorted(rlkit.list_algorithms())
    """
    return {name: plugins.summary("algorithms", name) for name in plugins.names("algorithms")}


def list_environments() -> dict[str, str]:
    """The built-in environments: name → one line of description.

    Example:
        rlkit.list_environments()["cartpole"]
    """
    return {name: plugins.summary("envs", name) for name in plugins.names("envs")}
