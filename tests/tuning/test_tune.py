"""A search: what it tries, gives up and writes. Its runs are pretended."""

import random
import time
from pathlib import Path

import pytest
import yaml
from support.pretended_searches import EVALUATIONS, WORDS, conducted, evaluated, finish, score, trials
from support.words import last

from rlkit import tune
from rlkit.comparison import grid
from rlkit.errors import UserError
from rlkit.settings import config, sections
from rlkit.tuning import conduct, search
from rlkit.tuning.points import STRIDE
from rlkit.tuning.problem import Problem, parse
from rlkit.tuning.space import texts
from rlkit.tuning.study import FILE, Study, Trial

optuna = pytest.importorskip("optuna")


@pytest.mark.slow
def test_the_first_trial_is_the_default_and_the_best_is_written_and_measured_beside_it(
    tmp_path: Path, carried: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    done = conducted(tmp_path / "s", "trials=25", "env.slip=0.1", "pruner=none")
    assert done.best is not None and done.results is not None
    assert carried[0] == "0000-s1000" and len(carried) == 25 + 4
    assert set(carried[25:]) == {f"{row}-gridworld-s{seed}" for row in ("default", "tuned") for seed in (0, 1)}
    found = trials(tmp_path / "s")
    assert found[0].chosen == {} and found[0].value == 80.0 and [t.number for t in found] == list(range(25))
    assert done.best.value == max(t.value or 0 for t in found) > 95
    best = yaml.safe_load((tmp_path / "s" / "best.yaml").read_text())
    assert best["algo"]["lr"] == float(done.best.chosen["algo.lr"]) and best["env"] == {
        "name": "gridworld",
        "slip": 0.1,
    }
    given = config.read([f"config={tmp_path / 's' / 'best.yaml'}"])
    assert given.algo["lr"] == best["algo"]["lr"] and given.run["iterations"] == 10
    tuned = config.from_folder(tmp_path / "s" / "fresh" / "runs" / "tuned-gridworld-s0")
    usual = config.from_folder(tmp_path / "s" / "fresh" / "runs" / "default-gridworld-s0")
    assert tuned.algo["lr"] == best["algo"]["lr"] and usual.algo["lr"] == 0.5 and tuned.env["slip"] == 0.1
    said = capsys.readouterr().out
    assert "25 trials finished, 0 pruned, 0 failed" in said and "the best so far" in said
    assert not list((tmp_path / "s" / "trials").glob("*/checkpoints"))


@pytest.mark.slow
def test_which_of_several_runs_is_faster_changes_nothing(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    conducted(tmp_path / "even", "workers=3")
    chance = random.Random(0)

    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        time.sleep(chance.choice([0.0, 0.02, 0.05]))  # not waited for: it shuffles the order
        return finish(job, stop, score(job))

    monkeypatch.setattr(grid, "execute", execute)
    conducted(tmp_path / "uneven", "workers=3")
    assert trials(tmp_path / "even") == trials(tmp_path / "uneven")


@pytest.mark.slow
def test_a_trial_that_stays_below_the_median_is_given_up(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stopped: list[str] = []

    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        at = -50.0 if job.name.startswith("0008") else score(job)
        if at > 0 or "trials" not in str(job.folder):
            return finish(job, stop, at)
        evaluated(job, [at * (i + 1) / EVALUATIONS for i in range(6)])
        while not stop.exists():  # however long it takes: pytest has the limit
            time.sleep(0.001)
        stopped.append(job.name)
        return 0, ""

    monkeypatch.setattr(grid, "execute", execute)
    conducted(tmp_path, "runs=2", "trials=10", "search=algo.lr", "algo.lr=0.2..0.4")
    found = trials_of(tmp_path, "runs=2", "search=algo.lr", "algo.lr=0.2..0.4")
    assert found[8].end == "pruned" and found[8].value is None and found[8].values == {0: -5, 1: -10, 2: -15, 3: -20}
    assert stopped == ["0008-s1000"] and not (tmp_path / "trials" / "0008-s1001").exists()  # its second run is spared
    assert "trial 8: pruned at -20 after 40 % of run 1" in capsys.readouterr().out
    assert not list(tmp_path.glob("trials/*.stop"))


def trials_of(out: Path, *words: str) -> list[Trial]:
    return Study(out, Problem(*parse(last(*WORDS, *words))).space, "tpe", "median", 0).trials


def test_evaluations_of_a_long_run_are_not_those_of_the_next(tmp_path: Path, carried: list[str]) -> None:
    problem = Problem(*parse(last(*WORDS, "runs=2", "iterations=1000", "evaluations=1000")))
    attempt = search.Attempt(problem, Study(tmp_path, problem.space, "tpe", "none", 0), 0, 1, tmp_path)
    for job, value in zip(attempt.jobs, (1.0, 5.0), strict=True):
        finish(job, attempt.stop, value)
        evaluated(job, [value] * 1000)
    attempt.look()
    assert list(attempt.values.values()) == [1.0] * 1000 + [3.0] * 1000  # a mean over the runs so far


@pytest.mark.slow
def test_without_a_pruner_every_trial_is_finished(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "pruner=none", "sampler=random")
    assert {trial.end for trial in trials(tmp_path)} == {"complete"}


@pytest.mark.slow
def test_a_trial_counts_by_the_mean_of_its_runs(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "runs=3", "trials=2")
    found = trials_of(tmp_path, "runs=3")[0]
    assert found.value == pytest.approx(80 + (0 + 1 + 2) / 3)
    assert found.values[9] == 80 and found.values[STRIDE + 9] == pytest.approx(80.5) and len(found.values) == 30


@pytest.mark.slow
def test_a_setting_that_fails_or_cannot_be_is_passed_over(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        return (1, "rlkit: not finite: train/loss") if job.name.startswith("0002") else finish(job, stop, score(job))

    monkeypatch.setattr(grid, "execute", execute)
    active = Problem.active

    def impossible(self: Problem, chosen: dict[str, str]) -> dict[str, str]:
        if float(chosen["algo.lr"]) > 0.5:
            raise UserError("these cannot be together")
        return active(self, chosen)

    monkeypatch.setattr(Problem, "active", impossible)
    done = conducted(tmp_path, "algo.lr=0.1..0.9", "sampler=random")
    said = capsys.readouterr().out
    assert "trial 2: failed: rlkit: not finite: train/loss" in said and "failed: these cannot be together" in said
    assert said.count("(the default)") == 1  # and not of a setting that could not be
    assert done.best is not None and done.best.end == "complete"


def test_a_default_that_fails_ends_the_search_in_one_line(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grid, "execute", lambda job, stop: (1, "rlkit: it broke"))
    with pytest.raises(UserError, match=r"the default could not be tried.*: rlkit: it broke"):
        conducted(tmp_path)


def test_where_nothing_is_better_the_default_is_written(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(grid, "execute", lambda job, stop: finish(job, stop, 1.0))
    assert tune.main([*WORDS, f"out={tmp_path}"]) == 0
    assert "no trial was better on validation than the default" in capsys.readouterr().out
    assert not (tmp_path / "fresh").exists()
    assert yaml.safe_load((tmp_path / "best.yaml").read_text()) == {
        "algo": {"name": "q_learning"}, "env": {"name": "gridworld"}, "run": {"iterations": 10},
    }  # fmt: skip


@pytest.mark.slow
def test_a_run_on_a_fresh_seed_that_fails_is_no_success(
    tmp_path: Path, carried: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def execute(job: grid.Job, stop: Path) -> tuple[int, str]:
        return (1, "rlkit: it broke") if job.name.startswith("tuned") else finish(job, stop, score(job))

    monkeypatch.setattr(grid, "execute", execute)
    given = [*last(*WORDS, "trials=4"), f"out={tmp_path}"]
    assert tune.main(given) == 1
    monkeypatch.setattr(grid, "execute", lambda job, stop: finish(job, stop, score(job)))
    assert tune.main(given) == 0


@pytest.mark.slow
def test_the_study_can_be_opened_with_optuna(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "trials=6")
    storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(str(tmp_path / FILE)))
    found = optuna.load_study(study_name="rlkit", storage=storage)
    assert len(found.trials) == 6 and found.best_value == max(t.value or 0 for t in trials(tmp_path))
    assert {"algo.lr", "algo.gamma", "algo.schedule"} == found.best_trial.params.keys()


def test_help_lists_the_keys_and_the_ranges(capsys: pytest.CaptureFixture[str]) -> None:
    assert tune.main(["--help"]) == 0
    said = capsys.readouterr().out
    assert "sampler=tpe" in said and "KEY=LOW..HIGH" in said and "what is searched" not in said
    assert tune.main([*WORDS[:3], "--help"]) == 0
    assert "algo.lr=0.01..1:log" in capsys.readouterr().out


def test_the_sampler_sees_every_trial_also_with_keys_that_did_nothing_beside_others(
    tmp_path: Path,
) -> None:
    """gae_lambda does nothing beside Monte Carlo; the default is a trial like any other."""
    one = Problem(*parse(["algo=a2c", "env=pendulum", "iterations=2", "search=algo.advantage,algo.gae_lambda"]))
    study = Study(tmp_path, one.space, "tpe", "median", 0)
    assert one.usually.keys() == one.space.keys() == {"algo.advantage", "algo.gae_lambda"}
    for number in range(12):
        params = study.ask(number, number) if number else one.usually
        chosen = one.active(texts(one.space, params)) if number else {}
        study.add(Trial(number, chosen, "complete", 1.0 * number, {}, "", params))
    assert {"algo.gae_lambda" in trial.chosen for trial in study.trials[1:]} == {True, False}
    assert len(study.view(12, optuna.samplers.TPESampler()).trials) == 12
    assert Study(tmp_path, one.space, "tpe", "median", 0).trials == study.trials


@pytest.mark.slow
def test_best_yaml_holds_the_keys_that_a_preset_stands_for(tmp_path: Path, carried: list[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("algo: {preset: verl}\nenv: {rows: 2}\n")
    words = ["algo=grpo", "env=cartpole", "iterations=10", "workers=1", "runs=1", "trials=3", "seeds=1"]
    for preset in ("algo.preset=trl", f"config={file}"):
        out = tmp_path / preset[:4]
        conduct.conduct(*parse([*words, preset, "algo.lr=1e-4..1e-3", f"out={out}"]), "python -m rlkit.tune ...")
        found = config.read([f"config={out / 'best.yaml'}"]).algo
        given = config.read([*words[:2], preset]).algo
        assert {**found, "lr": 0} == {**given, "lr": 0} and "kl_coef" in found and "preset" not in found


def test_best_yaml_leaves_a_key_that_it_does_not_hold_at_its_default(tmp_path: Path, carried: list[str]) -> None:
    conducted(tmp_path, "algo=a2c", "trials=1", "policy.hidden=32,32", "search=algo.lr")
    path = tmp_path / "best.yaml"
    assert not sections.by_run(path) and config.read([f"config={path}"]).policy == {"hidden": [32, 32]}


def test_best_yaml_holds_what_an_older_run_did_without_the_key(tmp_path: Path, carried: list[str]) -> None:
    was = "algo: {name: a2c}\nenv: {name: gridworld}\npolicy: {hidden: [8]}\n"
    (tmp_path / "config.yaml").write_text(f"# rlkit 0.5.0; to repeat: python -m rlkit.run\n{was}")
    conducted(tmp_path / "out", "algo=a2c", "trials=1", f"config={tmp_path / 'config.yaml'}", "search=algo.lr")
    found = config.read([f"config={tmp_path / 'out' / 'best.yaml'}"]).policy
    assert found == {"hidden": [8], "share": "none", "fast": False}


def test_best_yaml_holds_the_inner_keys_of_a_file(tmp_path: Path, carried: list[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("env: {id: CartPole-v1, kwargs.sutton_barto_reward: true}\n")
    words = ["algo=a2c", "env=gym", f"config={file}", "env_steps=100", "workers=1", "runs=1", "trials=1"]
    conduct.conduct(*parse([*words, "algo.lr=0.1..0.2", f"out={tmp_path / 'out'}"]), "python -m rlkit.tune ...")
    found = config.read([f"config={tmp_path / 'out' / 'best.yaml'}"]).env
    assert found["kwargs"] == {"sutton_barto_reward": True}


@pytest.mark.parametrize(("name", "row"), [("mine", "tuned"), ("tuned", "tuned_setting")])
def test_an_algorithm_may_be_given_by_its_whole_path(name: str, row: str, tmp_path: Path, carried: list[str]) -> None:
    file, out = tmp_path / f"{name}.py", tmp_path / "out"
    file.write_text("from rlkit.algorithms.ppo import Config, make\n")
    words = [f"algo={file}", "env=cartpole", "iterations=10", "workers=1", "runs=1", "trials=3", "seeds=1"]
    done = conduct.conduct(*parse([*words, f"out={out}"]), "python -m rlkit.tune ...")
    assert done.best is not None and done.best.number and done.results
    usual, found = (config.from_folder(out / "fresh" / "runs" / f"{x}-cartpole-s0") for x in ("default", row))
    assert found.algo["lr"] == float(done.best.chosen["algo.lr"]) != usual.algo["lr"]


def test_best_yaml_measures_as_was_asked_and_not_as_a_trial_does(tmp_path: Path, carried: list[str]) -> None:
    words = ["algo=ppo", "env=cartpole", "iterations=10", "workers=1", "runs=1", "trials=2", "seeds=1"]
    conduct.conduct(*parse([*words, "evaluation_episodes=7", f"out={tmp_path / 'out'}"]), "python -m rlkit.tune ...")
    assert config.read([f"config={tmp_path / 'out' / 'best.yaml'}"]).run["evaluation_episodes"] == 7


@pytest.mark.slow
def test_a_file_for_all_runs_says_how_they_are_measured(tmp_path: Path, carried: list[str]) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("run: {measure: best, evaluations: 3, validation_episodes: 3, iterations: 10}\n")
    words = ["algo=ppo", "env=cartpole", f"config={file}", "workers=1", "runs=1", "trials=2", "seeds=1"]
    conduct.conduct(*parse([*words, f"out={tmp_path / 'out'}"]), "python -m rlkit.tune ...")
    found = config.read([f"config={tmp_path / 'out' / 'best.yaml'}"]).run
    assert [found[key] for key in ("measure", "evaluations", "validation_episodes")] == ["best", 3, 3]


@pytest.mark.slow
def test_the_best_evaluation_may_be_measured_without_a_number_of_them(tmp_path: Path, carried: list[str]) -> None:
    """A search makes ten; its best.yaml says so, as a run alone makes one."""
    conducted(tmp_path / "out", "measure=best", "trials=2")
    found = config.read([f"config={tmp_path / 'out' / 'best.yaml'}"]).run
    assert (found["measure"], found["evaluations"]) == ("best", 10)
