"""Runs that differ in name only, and copies: a run counts once wherever it lies, and runs at a ceiling all count."""

import json
from pathlib import Path

import pytest

from rlkit.comparison import records
from rlkit.comparison.caveats import caveats
from rlkit.comparison.results import compute

AFTER = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
FACTS = {"algo": "ppo", "env": "gym", "seed": 3, "env_steps": 50, "seconds": 1.5}
Sections = dict[str, dict[str, object]]


def made(
    at: Path,
    head: str = "# rlkit",
    curve: tuple[float, ...] = (1.0, 2.0, 7.0),
    keys: Sections | None = None,
    **facts: object,
) -> records.Record:
    """A finished run with these attempts, read from its folder."""
    at.mkdir(parents=True)
    config: Sections = {"run": {"seed": 3}, "algo": {"name": "ppo"}, "env": {"name": "gym"}}
    for section, given in (keys or {}).items():
        config[section] = config.get(section, {}) | given
    (at / "config.yaml").write_text(f"{head}; to repeat: python -m rlkit.run\n{json.dumps(config)}")
    lines = [
        {"iteration": i, "env_steps": 10 * i, "seconds": i, "rollout/return": value} for i, value in enumerate(curve, 1)
    ]
    (at / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (at / "summary.json").write_text(json.dumps(FACTS | {"evaluation": {"after": AFTER}} | facts))
    return records.read(at)


@pytest.mark.parametrize(
    ("one", "other", "words"),
    [
        ({"env": {"processes": False}}, {"env": {"processes": True}}, []),
        (
            {"env": {"processes": 1}},
            {"env": {"processes": 2}},
            ["repetitions", "task"],
        ),  # of an environment of one's own
        ({"algo": {"storage": "/one"}}, {"algo": {"storage": "/two"}}, []),
        ({"algo": {"hold": "a"}}, {"algo": {"hold": "b"}}, ["repetitions"]),
    ],
)
def test_where_a_run_is_computed_and_stored_makes_no_other_task(
    one: Sections, other: Sections, words: list[str], tmp_path: Path
) -> None:
    found = [made(tmp_path / str(seed), keys=keys, seed=seed) for seed, keys in enumerate((one, other))]
    said = " ".join(caveats(found, compute(found)))
    assert [word for word in ("repetitions", "task") if word in said] == words
