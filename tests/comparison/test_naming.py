"""Names of environments in the names of files."""

import pytest

from rlkit.comparison import naming


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
