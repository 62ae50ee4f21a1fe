"""What must be the same: the parts of all ranks, and the data of a run whenever it goes on."""

from pathlib import Path
from typing import Protocol, runtime_checkable

from rlkit import ranks, shards
from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.settings.assemble import Parts
from rlkit.settings.given import Given


@runtime_checkable
class Marked(Protocol):
    """An environment with a fingerprint of its data, under a name that no environment has by chance."""

    def mark_of_data(self) -> str: ...


def data_of(env: Env) -> str:
    """A fingerprint of the data that an environment has read or made; empty where it has none."""
    return env.mark_of_data() if isinstance(env, Marked) else ""


def check_ranks(parts: Parts, data: str) -> None:
    """Refuse ranks that would train different things. data: `data_of` the environment."""
    if ranks.size() == 1:
        return
    ranks.check_same("configuration", parts.text, "start all with the same command, files and folder")
    ranks.check_same("data", data or parts.env.source, "let all read the same files")
    weights = [float(shards.whole(p.detach().double().sum())) for p in parts.algo.policy.parameters()]
    ranks.check_same("model", repr(weights), "let all read the same policy.model")


def check_data(env: Env, given: Given, folder: Path, before: str, now: str) -> None:
    """Refuse to go on with other data than those of the run so far; before, now: `data_of` both, empty if unknown.

    Files have marks in config.yaml, which were checked before. A hub dataset has none, nor has what a package makes.
    """
    if before not in ("", now) and given.trust != "changed":
        raise UserError(
            f"{env.source} has other rows than when {folder} began, as a new version of a dataset or of the package "
            "behind it has: bring the old version back, or accept the change with trust=changed"
        )
