"""Which line of a traceback is the user's."""

from pathlib import Path

import pytest

from rlkit import errors

FAILS = "def fails():\n    raise ValueError('x')\n"


@pytest.mark.parametrize("name, theirs", [("rlkit_rewards.py", True), ("rlkit/rewards.py", False)])
def test_a_file_beside_rlkit_is_the_users(name: str, theirs: bool) -> None:
    code: dict[str, object] = {}
    exec(compile(FAILS, str(Path(errors.__file__).parents[1] / name), "exec"), code)
    fails = code["fails"]
    assert callable(fails)
    with pytest.raises(ValueError, match="x") as raised:
        fails()
    assert (errors.place_of(raised.value) == f" ({Path(name).name}, line 2)") == theirs
