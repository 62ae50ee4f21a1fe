"""Names of environments in the names of files, and rows with several names."""

import pytest
from support.compared import run

from rlkit.comparison import naming
from rlkit.comparison.records import Record


@pytest.mark.parametrize(
    ("envs", "names"),
    [
        (["cartpole", "gsm8k"], ["cartpole", "gsm8k"]),
        (["A b", "A_b"], ["A_b-0", "A_b-1"]),
        (["A b", "A_b-0", "A_b"], ["0-A_b", "1-A_b-0", "2-A_b"]),
        (["..", "/"], ["env", "_"]),
    ],
)
def test_each_environment_has_files_of_its_own(envs: list[str], names: list[str]) -> None:
    assert naming.slugs(envs) == names


def test_rows_of_one_setting_are_told() -> None:
    def row(name: str, lr: str, seed: int, env: str = "maze") -> Record:
        return run(name, env, seed, settings={"algo.name": "ppo", "algo.lr": lr, "env.name": env})

    given = [row("ppo lr=1e-3", "0.001", 0), row("ppo lr=0.001", "0.001", 1), row("ppo lr=0.01", "0.01", 0)]
    told = "ppo lr=0.001 and ppo lr=1e-3 have the same settings, so the runs of one setting are in 2 rows."
    assert [*naming.twice(given)] == [told]
    assert not [*naming.twice([given[0], given[2], row("ppo", "0.001", 0, "lake")])]
