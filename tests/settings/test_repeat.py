"""The command that repeats a run, after the run was continued with other keys."""

import pytest

import rlkit
from rlkit.settings import config, repeat

PLACES = ["policy.exchange=/my disk/x", "policy.server=http://[::1]:80"]
GIVEN = ["algo=grpo", "env.prompt=it's $5\niterations=7: {question}", "iterations=7", "env.x=a iterations=7", "keep=2"]
GIVEN += [*PLACES, "algo.storage=/ring"]


@pytest.mark.parametrize(
    ("told", "put", "gone"),
    [
        ([], [], []),
        (["resume=x", "trust=true"], [], []),
        (["resume=x", "iterations=9"], ["iterations=9"], ["iterations=7"]),
        (["resume=x", "env_steps=900", "keep=3"], ["env_steps=900", "keep=3"], ["iterations=7", "keep=2"]),
        (["resume=x", "evaluations=4"], ["evaluations=4"], []),
        (["resume=x", "algo.storage=/y"], ["algo.storage=/y"], ["algo.storage=/ring"]),
        (["resume=x", "policy.exchange=/y", PLACES[1]], ["policy.exchange=/y", PLACES[1]], PLACES),
    ],
)
def test_what_a_resume_changes_takes_the_place_of_what_was_given(
    told: list[str], put: list[str], gone: list[str]
) -> None:
    words = [word for word in GIVEN if word not in gone]
    found = repeat.changed(repeat.line([*GIVEN, "out=there"]), told).partition(repeat.COMMAND)[2]
    assert sorted(repeat.WORD.findall(found)) == sorted(map(repeat.quoted, words + put))
    assert repeat.changed("# written by hand", told) == "# written by hand"
    assert repeat.changed("run:", told) == f"# rlkit {rlkit.__version__}"


def test_what_a_file_of_keys_names_may_have_moved() -> None:
    """The key that tells the new place stands above config=FILE, which has the old one."""
    told = ["resume=x", "trust=true", "env.source=/new.jsonl", "iterations=9"]
    found = repeat.changed(repeat.line(["config=keys.yaml", "seed=2"]), told).partition(repeat.COMMAND)[2]
    assert repeat.WORD.findall(found) == ["config=keys.yaml", "seed=2", "env.source=/new.jsonl", "iterations=9"]


@pytest.mark.parametrize("word", ["iterations=none", "env_steps=none", "env_steps=None"])
def test_a_length_of_none_leaves_the_length_as_it_is(word: str) -> None:
    """A program passes a length on that nobody gave: the run has that of its YAML, and a resumed one its own."""
    pair, line = ["algo=policy_iteration", "env=gridworld"], ["algo=ppo", "env=cartpole"]
    for words in (pair, line, [*line, "seed=2"]):
        found = config.read([*words, word])
        assert found.run == config.read(words).run and found.argv == tuple(words)
    given = config.read([*line, "iterations=7", "env_steps=none"])
    assert given.run["iterations"] == "7" and "env_steps" not in given.run
