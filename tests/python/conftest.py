"""Runs that several files ask."""

import pytest
from support.trained import RUNS

import rlkit


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> dict[str, rlkit.Run]:
    """A run of each kind, all in this process, one after the other."""
    root = tmp_path_factory.mktemp("python")
    return {algo: rlkit.train(algo, env, quiet=True, out=root / algo, **keys) for algo, env, keys in RUNS}
