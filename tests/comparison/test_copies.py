"""Runs that differ in name only, and copies: a run counts once wherever it lies, and runs at a ceiling all count."""

import json
from pathlib import Path

import pytest

from rlkit.comparison import records
from rlkit.comparison.caveats import caveats
from rlkit.comparison.copies import once
from rlkit.comparison.results import compute
from rlkit.settings import repeat

AFTER = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
FACTS = {"algo": "ppo", "env": "gym", "seed": 3, "env_steps": 50, "seconds": 1.5}
Sections = dict[str, dict[str, object]]


def made(
    at: Path,
    head: str = "# rlkit",
    curve: tuple[float | None, ...] = (1.0, 2.0, 7.0),
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
        {"iteration": i, "env_steps": 10 * i, "seconds": i, "rollout/return": value}
        for i, value in enumerate(curve, 1)
        if value is not None  # this iteration has no line
    ]
    (at / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (at / "summary.json").write_text(json.dumps(FACTS | {"evaluation": {"after": AFTER}} | facts))
    return records.read(at)


def of(version: str) -> dict[str, str]:
    return {"rlkit": f"1 (files {version})"}


def test_a_run_is_a_copy_whatever_does_not_count_as_its_setting(tmp_path: Path) -> None:
    long = f"# rlkit{repeat.LONGER}"
    found = [
        made(tmp_path / "long", long, versions=of("11")),
        made(tmp_path / "one", versions=of("11")),
        made(tmp_path / "edited", versions=of("22")),
        made(tmp_path / "validated", keys={"run": {"validation_episodes": 20}}),
        made(tmp_path / "again", long),
    ]
    assert once(found) == [found[1]]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"run": {"iterations": 4, "env_steps": None}}, {"run": {"iterations": None, "env_steps": 50}}),
        ({"run": {"evaluation_episodes": None}}, {"run": {"evaluation_episodes": 100}}),
        (
            {"run": {"measure": "best", "validation_episodes": None}},
            {"run": {"measure": "best", "validation_episodes": 20}},
        ),
        ({"run": {"measure": "best", "evaluations": 10}}, {"run": {"measure": "best", "evaluate_every": 5}}),
        ({"env": {"processes": False}}, {"env": {"processes": True}}),
        ({"algo": {"storage": "/one"}}, {"algo": {"storage": "/two"}}),
    ],
)
def test_what_is_the_same_in_other_words_makes_no_second_run(one: Sections, other: Sections, tmp_path: Path) -> None:
    best = {"of": 10, "episodes": 20}
    found = [made(tmp_path / str(i), keys=keys, best=best) for i, keys in enumerate((one, other))]
    assert once(found) == found[:1]


def test_a_setting_and_what_a_record_counts_make_another_run(tmp_path: Path) -> None:
    best: Sections = {"run": {"measure": "best"}}
    found = [
        made(tmp_path / "one"),
        made(tmp_path / "rate", keys={"algo": {"lr": 0.1}}),
        made(tmp_path / "copies", keys={"env": {"processes": 8}}),  # of an environment of the user's own
        made(tmp_path / "shorter", env_steps=40),
        made(tmp_path / "five", keys=best, best={"of": 10, "episodes": 5}),
        made(tmp_path / "twenty", keys=best, best={"of": 10, "episodes": 20}),
    ]
    assert once(found) == found


def test_a_run_of_the_same_files_in_two_places_counts_once(tmp_path: Path) -> None:
    def placed(
        name: str, place: str, code: str = "c0de", test: str = "7e57", source: str = "train.jsonl"
    ) -> records.Record:
        mine, problems = f"{place}/mine.py", f"{place}/{source}"
        marks = {mine: code, f"{place}/helper.py": "8e1f", problems: "da7a", f"{place}/test.jsonl": test}
        keys: Sections = {
            "algo": {"name": mine},
            "env": {"source": problems, "reward": f"{mine}:right"},
            "marks": {**marks},
        }
        return made(tmp_path / name, keys=keys)

    one = placed("one", "/a")
    others = [placed("edited", "/b", code="c1de"), placed("tested", "/b", test="8e57")]
    assert once([one, placed("two", "/b"), placed("named", "/b", source="all.jsonl"), *others]) == [one, *others]


@pytest.mark.parametrize(
    ("curve", "other", "of_one_version", "of_two"),
    [
        ((1.0, 7.0, 7.0), (1.0, 7.0, 7.0), 1, 1),
        ((1.0, 7.0, 7.0), (1.0, 7.0), 1, 1),  # a power cut took the last line
        ((1.0, 2.0, 7.0, 8.0), (1.0, None, 4.5, 8.0), 1, 1),  # with other evaluations lines have other attempts
        ((1.0, 7.0, 7.0), (2.0, 7.0, 7.0), 2, 2),  # both end at the ceiling
        ((7.0, 7.0), (7.0, 7.0), 1, 2),  # or never leave it
        ((1.0, 7.0), (), 1, 2),
        ((), (), 1, 2),
    ],
)
def test_runs_of_two_versions_are_one_where_they_learned_alike(
    curve: tuple[float | None, ...], other: tuple[float | None, ...], of_one_version: int, of_two: int, tmp_path: Path
) -> None:
    one = made(tmp_path / "one", curve=curve, versions=of("11"))
    again, edited = (made(tmp_path / version, curve=other, versions=of(version)) for version in ("11", "22"))
    assert (len(once([one, again])), len(once([one, edited]))) == (of_one_version, of_two)


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
