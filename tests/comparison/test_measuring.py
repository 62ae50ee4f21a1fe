"""One procedure of measuring for all runs of a comparison; where folders were measured otherwise, it is said."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from rlkit import compare
from rlkit.api import Reference, UserError
from rlkit.comparison import plan, records, report
from rlkit.comparison.caveats import apart, caveats
from rlkit.comparison.grid import Job
from rlkit.comparison.records import Record
from rlkit.comparison.results import compute
from rlkit.settings import config, repeat

WAY = "a/long/way/that/leads/to/all/the/models"
UNIT = Reference(0.0, 1.0, "a random policy", "the optimum")


def planned(*words: str) -> list[Job]:
    return plan.plan(plan.parse(words))[0]


def rules(jobs: list[Job]) -> dict[str, tuple[object, ...]]:
    keys = ("measure", "evaluations", "evaluate_every", "validation_episodes")
    return {job.algo: tuple(job.config["run"][key] for key in keys) for job in jobs}


def test_every_run_of_a_comparison_measures_its_last_parameters() -> None:
    jobs = planned("algo=ppo,dqn", "env=cartpole,acrobot", "seed=0")  # configs/dqn-*.yaml: measure: best
    assert {tuple(rule.items()) for rule in [rules(jobs[:2]), rules(jobs[2:])]} == {
        (("ppo", ("latest", 10, 0, None)), ("dqn", ("latest", 10, 0, None)))
    }


def test_a_row_with_a_file_of_its_own_is_measured_as_without_the_file_for_all(tmp_path: Path) -> None:
    """That file does not count for the row, so what it says of measuring does not either."""
    (tmp_path / "all.yaml").write_text("run: {measure: latest, evaluations: 4, validation_episodes: 3}\n")
    (tmp_path / "one.yaml").write_text("algo: {lr: 0.01}\n")
    files = [f"config={tmp_path / 'all.yaml'}", f"tuned:config={tmp_path / 'one.yaml'}"]
    jobs = planned("algo=dqn,tuned:dqn", "env=cartpole", "seed=0", *files)
    assert rules(jobs) == {"dqn": ("latest", 4, 0, 3), "tuned": ("latest", 10, 0, None)}


@pytest.mark.slow
def test_the_best_parameters_are_measured_of_all_or_of_none() -> None:
    jobs = planned("algo=ppo,dqn", "env=acrobot", "seed=0", "measure=best", "evaluations=7", "validation_episodes=30")
    assert rules(jobs) == {"ppo": ("best", 7, 0, 30), "dqn": ("best", 7, 0, 30)}
    with pytest.raises(UserError, match="dqn is measured with measure=best, ppo with measure=latest: give all algor"):
        planned("algo=ppo,dqn", "env=cartpole", "seed=0", "dqn:measure=best")
    with pytest.raises(UserError, match="dqn is measured with evaluations=3, ppo with evaluations=10"):
        planned("algo=ppo,dqn", "env=cartpole", "seed=0", "measure=best", "dqn:evaluations=3")
    with pytest.raises(UserError, match="dqn is measured with evaluation_episodes=3, ppo with evaluation_episodes=non"):
        planned("algo=ppo,dqn", "env=cartpole", "seed=0", "dqn:evaluation_episodes=3")
    with pytest.raises(UserError, match="measure=best with evaluate_every=50 would choose among more parameters of o"):
        planned("algo=ppo,dqn", "env=cartpole", "seed=0", "measure=best", "evaluate_every=50")
    planned("algo=ppo,dqn", "env=cartpole", "seed=0", "dqn:evaluate_every=50")  # moves no score


def test_long_values_are_shown_where_they_differ() -> None:
    same = "You are a careful assistant who answers word problems. "
    long, short = same + "Think, then answer with a number alone.", same + "Answer."
    assert apart([long, short]) == ["…problems. Think, then answer with a numb…", "…problems. Answer."]
    assert apart(["none", long, short]) == ["none", f"{long[:80]}…", short], "two of them alike for 55 characters"
    assert apart([same, short]) == ["…problems. ", "…problems. Answer."]
    records = [replace(run("a", seed), settings={"env.system": x}) for seed, x in enumerate((long, short))]
    assert any("env.system is …problems. Think" in text for text in caveats(records, compute(records)))
    assert apart(["0.1", "0.2"]) == ["0.1", "0.2"]
    paths = [f"/home/me/{WAY}/Qwen2.5-0.5B", f"/data/me/{WAY}/SmolLM2-135M"]
    assert [x.rpartition("…")[2] for x in apart(paths)] == ["/Qwen2.5-0.5B", "/SmolLM2-135M"], (
        "the name of a path stays"
    )


def run(algo: str, seed: int = 0, score: float = 0.5, **more: object) -> Record:
    given = {"low": score, "high": score, "env_steps": 100, "seconds": 2.0, "reference": UNIT, "before": 0.0} | more
    return Record(algo, "maze", seed, Path(f"runs/{algo}-{seed}"), "return", score, **given)  # type: ignore[arg-type]


@pytest.mark.slow
def test_folders_that_were_measured_otherwise_are_named() -> None:
    alike = [run(algo, seed) for algo in ("a", "b") for seed in range(5)]
    assert not [text for text in caveats(alike, compute(alike)) if "measured" in text]
    best = {"measure": "best", "candidates": 16, "validation_episodes": "20"}
    mixed = [replace(r, **best) if r.algo == "b" else r for r in alike]  # type: ignore[arg-type]
    [said] = [text for text in caveats(mixed, compute(mixed)) if "measured" in text]
    assert said == (
        "On maze the runs were not measured alike: a by its last parameters; b by the best of 16 evaluations on "
        "20 validation episodes. Choosing the best raises a score."
    )
    seeds = [replace(r, **best) if r.seed else r for r in alike]  # type: ignore[arg-type]
    assert any("a by its last parameters or the best of 16 ev" in text for text in caveats(seeds, compute(seeds)))
    assert "not alike, as the warnings say" in compute(seeds)["measured"]
    some = [replace(r, **best | {"candidates": 9 + r.seed}) for r in alike]  # type: ignore[arg-type]
    assert any("a by the best of 9 to 13 evaluations" in text for text in caveats(some, compute(some)))
    assert "not alike" in compute(some)["measured"], "no sentence without its warning, and no warning without it"
    fewer = [replace(r, **best | {"candidates": 9 if r.algo == "a" else 16}) for r in alike]  # type: ignore[arg-type]
    assert any("a by the best of 9 evaluations on" in text for text in caveats(fewer, compute(fewer)))
    tests = [replace(r, episodes=10 if r.algo == "a" else 100) for r in alike]
    assert any("a on 10 test episodes; b on 100" in text for text in caveats(tests, compute(tests)))


def folder(at: Path, measure: str, **keys: object) -> Path:
    at.mkdir()
    section = {"seed": 3, "measure": measure, "evaluate_every": 0, "evaluations": 2, "validation_episodes": None} | keys
    (at / "config.yaml").write_text(json.dumps({"run": section, "algo": {"name": "ppo"}, "env": {"name": "maze"}}))
    after = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
    summary = {"algo": "ppo", "env": "maze", "seed": 3, "env_steps": 50, "seconds": 1.5, "evaluation": {"after": after}}
    (at / "summary.json").write_text(json.dumps(summary))
    lines = [{"iteration": i, "env_steps": i, "seconds": i, "eval/return": i} for i in (1, 2)]
    (at / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return at


def test_how_often_a_run_was_evaluated_is_a_setting_where_it_changes_the_score(tmp_path: Path) -> None:
    found = records.read(folder(tmp_path / "a", "latest"))
    assert (found.measure, found.candidates) == ("latest", 0)
    assert not {"evaluations", "validation_episodes"} & found.settings.keys()
    found = records.read(folder(tmp_path / "b", "best", validation_episodes=20))
    assert (found.measure, found.candidates) == ("best", 2)
    assert (found.settings["evaluations"], found.settings["validation_episodes"]) == ("2", "20")
    two = [found, records.read(folder(tmp_path / "c", "best", evaluations=5))]
    said = " ".join(caveats(two, compute(two)))
    assert "evaluations is 2 and 5" in said and "validation_episodes is 20 and None" in said


@pytest.mark.slow
def test_the_procedure_is_on_the_page_and_in_the_results(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    given = [records.read(folder(tmp_path / name, "latest")) for name in ("a", "b")]
    results = report.write(given, tmp_path / "out")
    assert results["measured"] == (
        "Measured: the last parameters of each run (measure=latest), once, on the test split. No validation result "
        "chose them, and steps that were played to measure are not counted."
    )
    assert json.loads((tmp_path / "out" / "results.json").read_text())["measured"] == results["measured"]
    assert results["runs"][0]["measure"] == "latest"
    assert results["measured"] in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    report.show(results)
    assert "the last parameters of each run" in " ".join(capsys.readouterr().out.split())
    best = [records.read(folder(tmp_path / name, "best")) for name in ("c", "d")]
    assert "the best of 2 evaluations" in report.write(best, tmp_path / "best")["measured"]
    mixed = report.write([*given, *best], tmp_path / "mixed")["measured"]
    assert mixed.startswith("Measured: not alike")


def test_what_names_a_run_cannot_be_given_under_another_word() -> None:
    words = ["algo=q_learning", "env=gridworld", "seed=0"]
    for word in ("q_learning:env.name=taxi", "gridworld:algo.name=sarsa", "run.seed=1", "q_learning:run.seed=4"):
        with pytest.raises(UserError, match=r"is a second spelling: write (algo=sarsa|env=taxi|seed=[14])$"):
            planned(*words, word)
    with pytest.raises(UserError, match="seed= belongs to the whole comparison, not to q_learning"):
        planned(*words, "q_learning:seed=4")


def test_a_report_is_not_written_into_a_runs_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    at = folder(tmp_path / "a", "latest")
    assert compare.main([str(at), f"out={at}"]) == 2
    assert "is a run's folder: give a comparison a folder of its own" in capsys.readouterr().err
    assert not (at / "results.json").exists()


def test_a_comparison_does_not_run_in_the_folder_of_a_search(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "search.yaml").write_text("search: {}\n")
    assert compare.main(["algo=q_learning", "env=gridworld", "seed=0", "env_steps=100", f"out={tmp_path}"]) == 2
    assert "is a search's folder: give a comparison a folder of its own" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists(), "the search could not go on"


def test_a_row_does_not_silence_a_key_that_excludes_it() -> None:
    words = ["algo=q_learning", "env=gridworld", "seed=0", "env_steps=100,200"]
    with pytest.raises(UserError, match="give iterations=3 or env_steps=100, not both"):
        planned(*words, "iterations=3")
    with pytest.raises(
        UserError, match="env_steps=100,200 would make rows, but q_learning:iterations=3 takes its place"
    ):
        planned(*words, "q_learning:iterations=3")
    lengths = [
        job.config["run"]["iterations"] for job in planned(*words[:3], "env_steps=100", "q_learning:iterations=3")
    ]
    assert lengths == [3], "what is for one algorithm takes the place of what is for all"


def test_settings_that_only_one_of_two_algorithms_has_for_an_environment_are_named() -> None:
    tuned = {f"algo.{key}": str(value) for key, value in config.pair("ppo", "cartpole").algo.items()}
    tuned |= {"algo.name": "ppo", "env.name": "cartpole", "env.rows": "8"}
    mine = tuned | {"algo.name": "/home/me/mine.py", "algo.lr": "0.0003"}
    ppo, own = ([run(name, s, settings=x) for s in (0, 1)] for name, x in (("ppo", tuned), ("mine", mine)))
    [said] = [text for text in caveats([*ppo, *own], compute([*ppo, *own])) if "configs/" in text]
    assert "ppo has the settings of configs/ppo-cartpole.yaml, and mine others: algo.lr (0.001 and 0.0003)." in said
    same = [run("mine", settings=tuned | {"algo.name": "./mine.py"})]
    other = [run("mine", settings={"algo.name": "./mine.py", "env.name": "cartpole", "algo.lr": "3"})]
    for runs in ([*ppo, *same], [*ppo, *other], own):
        assert not [text for text in caveats(runs, compute(runs)) if "configs/" in text]


def test_algorithms_that_began_with_different_models_are_named() -> None:
    def told(**models: str) -> list[str]:
        found = [run(name, s, settings={"policy.model": x}) for name, x in models.items() for s in (0, 1)]
        found = [replace(r, plugin=r.algo.partition(" ")[0]) for r in found]
        return [text for text in caveats(found, compute(found)) if "model" in text]

    assert told(ppo="tiny", grpo="runs/sft/model") == [
        "On maze ppo and grpo began with different models: policy.model is tiny and runs/sft/model."
    ]
    assert not told(ppo="tiny", grpo="tiny")
    rows = {"ppo model=tiny": "tiny", "ppo model=mine": "mine"}
    assert not told(**rows), "the names of the rows say it"


@pytest.mark.parametrize(
    ("word", "goes_on", "named"), [("iterations=9", True, 1), ("iterations=9", False, 0), ("keep=2", True, 0)]
)
def test_runs_that_a_resume_gave_another_length_are_named(tmp_path: Path, word: str, goes_on: bool, named: int) -> None:
    """A schedule of the whole run went otherwise before; one that had not begun is like others."""
    first = repeat.line(["algo=ppo", "env=maze", "iterations=7"])
    for _ in range(2):  # the second one says it no second time
        first = repeat.changed(first, ["resume=x", word], goes_on)
    (tmp_path / "config.yaml").write_text(f"{first}\nrun: {{seed: 3}}\nalgo: {{name: ppo}}\n")
    after = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0}
    summary = {"algo": "ppo", "env": "maze", "seed": 3, "env_steps": 50, "seconds": 1.5, "evaluation": {"after": after}}
    (tmp_path / "summary.json").write_text(json.dumps(summary))
    found = records.read(tmp_path)
    assert found.command.startswith("python -m rlkit.run algo=ppo env=maze iterations=")
    said = [text for text in caveats([found], compute([found])) if "a resume changed the length" in text]
    assert len(said) == named and first.count(repeat.LONGER) == named
