"""Mistakes of a first environment: spaces, reset and step that are not Gymnasium's."""

from pathlib import Path

import pytest

from rlkit import new, run

STEPS = "return self.observe(), 0.0 if terminated else -1.0, terminated, False, {}"
MISTAKES = {
    ("np.array([self.here, self.flag], d", "np.array([self.here], d"): (
        "mine: reset gives an observation of shape (1,), and observation_space has (2,): make them the same"
    ),
    ("return self.observe(), {}", "return self.observe()"): (
        "mine: reset returns a ndarray: return the 2 of Gymnasium 1.0, (observation, info)"
    ),
    (STEPS, STEPS.replace("terminated, False", "terminated")): (
        "mine: step returns 4 values: return the 5 of Gymnasium 1.0, (observation, reward, terminated, truncated, info)"
    ),
    ("self.action_space", "self.actions"): (
        "mine has no action_space: set one, such as a gymnasium.spaces.Box or Discrete"
    ),
}


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_an_environment_is_one_line(
    right: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new.main(["env", "mine", f"out={tmp_path}"]) == 0
    file = tmp_path / "mine.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    assert run.main([f"env={file}", "algo=ppo", "iterations=1", f"out={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err == f"rlkit: {MISTAKES[right, wrong]}\n"
    assert not (tmp_path / "run").exists()
