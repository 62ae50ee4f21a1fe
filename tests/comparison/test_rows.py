"""Rows and columns of a comparison: which values make one, what they are called, and that names outlive the command."""

import json
from pathlib import Path

import pytest
from support.words import last

import rlkit
from rlkit import compare
from rlkit.comparison import conduct, grid, names, plan, records, report, rows, words
from rlkit.comparison.results import compute
from rlkit.errors import UserError
from rlkit.python.functions import environments

SMALL = ["algo=q_learning", "env=gridworld", "seeds=1", "iterations=3", "evaluation_episodes=2"]


def planned(*given: str) -> list[grid.Job]:
    return plan.plan(plan.parse(last(*SMALL, *given)))[0]


def table(jobs: list[grid.Job]) -> tuple[list[str], list[str]]:
    """What the rows and the columns are called."""
    return list(dict.fromkeys(job.algo for job in jobs)), list(dict.fromkeys(job.env for job in jobs))


def test_settings_of_an_algorithm_are_rows_and_their_product_is_planned() -> None:
    jobs = planned("algo.lr=1e-1,0.5", "algo.gamma=0.9,0.99", "seeds=2")
    assert table(jobs) == (
        [f"q_learning lr={a} gamma={b}" for a in ("1e-1", "0.5") for b in ("0.9", "0.99")],
        ["gridworld"],
    )
    assert [job.seed for job in jobs] == [0] * 4 + [1] * 4
    assert jobs[1].name == "q_learning_lr_0.1_gamma_0.99-gridworld-s0"
    assert (jobs[1].config["algo"]["lr"], jobs[1].config["algo"]["gamma"]) == (0.1, 0.99)


def test_presets_are_rows() -> None:
    jobs = planned("algo=grpo", "env=cartpole", "algo.preset=none,trl", "algo.group=4,8")
    assert table(jobs)[0] == [f"grpo preset={preset} group={n}" for preset in ("none", "trl") for n in (4, 8)]
    assert jobs[0].config["algo"] != jobs[2].config["algo"]
    with pytest.raises(UserError, match=r"no preset 'nobody' of grpo"):
        planned("algo=grpo", "env=cartpole", "algo.preset=trl,nobody")


def test_the_same_setting_has_the_same_folder_however_it_is_written() -> None:
    one, other = planned("algo.lr=1e-1,0.5", "out=c"), planned("algo.lr=0.50,0.10", "out=c")
    assert {job.folder for job in one} == {job.folder for job in other}
    assert {job.folder: job.config for job in one} == {job.folder: job.config for job in other}


def test_keys_of_an_environment_are_columns_but_those_that_say_how_it_is_played() -> None:
    rows, columns = table(planned("env.slip=0,0.1", "env.rows=1,2"))
    assert rows == ["q_learning rows=1", "q_learning rows=2"]
    assert columns == ["gridworld slip=0", "gridworld slip=0.1"]


def test_several_gymnasium_ids_are_columns_that_listen_to_their_id() -> None:
    jobs = planned("algo=ppo", "env=gym", "env.id=CartPole-v1,MountainCar-v0", "MountainCar-v0:iterations=2")
    assert table(jobs) == (["ppo"], ["gym:CartPole-v1", "gym:MountainCar-v0"])
    assert [job.config["run"]["iterations"] for job in jobs] == [3, 2]
    assert [job.name for job in jobs] == ["ppo-gym_CartPole-v1-s0", "ppo-gym_MountainCar-v0-s0"]


def test_columns_of_one_problem_with_several_settings_have_its_name() -> None:
    jobs = planned("algo=ppo", "env=gym", "env.id=MountainCarContinuous-v0", "env.kwargs.goal_velocity=0;1")
    assert table(jobs)[1] == [f"gym:MountainCarContinuous-v0 kwargs.goal_velocity={x}" for x in (0, 1)]
    assert jobs[0].name == "ppo-gym_goal_velocity_0-s0"


def test_columns_of_the_default_game_have_its_name() -> None:
    columns = planned("algo=ppo", "env=minatar", "env.step_limit=100,200")
    assert table(columns)[1] == [f"minatar:breakout step_limit={x}" for x in (100, 200)]


@pytest.mark.parametrize("owner", ["", "ppo:", "minatar:"])
def test_columns_have_no_default_games_name_where_a_file_may_give_another(owner: str, tmp_path: Path) -> None:
    (tmp_path / "freeway.yaml").write_text("env: {game: freeway}\n")
    columns = planned("algo=ppo", "env=minatar", "env.step_limit=100,200", f"{owner}config={tmp_path}/freeway.yaml")
    assert table(columns)[1] == [f"minatar step_limit={x}" for x in (100, 200)]
    assert {job.config["env"]["game"] for job in columns} == {"freeway"}


def test_several_games_are_columns_that_listen_to_their_game() -> None:
    jobs = planned("algo=ppo", "env=minatar", "env.game=breakout,freeway", "freeway:iterations=2")
    assert table(jobs) == (["ppo"], ["minatar:breakout", "minatar:freeway"])
    assert [job.config["run"]["iterations"] for job in jobs] == [3, 2]


def test_problems_whose_last_parts_are_alike_are_columns_of_their_own() -> None:
    given = {"env.id": "one/World-v0,two/World-v0,CartPole-v1"}
    columns = rows.lines("env", {"gym": "gym"}, given, [], ["gym"])
    assert [line.name for line in columns] == ["gym:one/World-v0", "gym:two/World-v0", "gym:CartPole-v1"]
    assert all({"World-v0", line.keys["env.id"]} <= line.called for line in columns[:2])


def test_long_names_that_begin_alike_stay_apart() -> None:
    one, other = (names.readable(f"ppo encoder={'x' * names.LONGEST}{end}") for end in "ab")
    assert one != other and len(one) == len(other) == names.LONGEST


@pytest.mark.parametrize("path", ["/abs/mine.py", "./mine.py", "mine.py"])
def test_a_plugin_with_a_name_of_ones_own_may_be_any_path(path: str) -> None:
    assert plan.names("algo", (f"default:{path}", f"tuned:{path}")) == {"default": path, "tuned": path}
    assert rows.OWN.fullmatch("C:/mine.py") is None and rows.OWN.fullmatch(r"C:\mine.py") is None


def test_rows_and_columns_have_names_of_ones_own() -> None:
    jobs = planned(
        "algo=slow:q_learning,quick (ours):q_learning", "quick (ours):algo.lr=0.9", "slow:algo.lr=0.1,0.2",
        "env=small:gridworld,gridworld", "small:env.slip=0.2",
    )  # fmt: skip
    assert table(jobs) == (["slow lr=0.1", "slow lr=0.2", "quick (ours)"], ["small", "gridworld"])
    assert [job.config["algo"]["lr"] for job in jobs[:3]] == [0.1, 0.2, 0.9]
    assert [job.config["env"]["slip"] for job in jobs[::3]] == [0.2, 0.0]
    assert len({job.name for job in jobs}) == 6 and all(set("/\\ ()").isdisjoint(job.name) for job in jobs)


def test_a_row_of_that_name_comes_before_another_plugin_of_that_name(tmp_path: Path) -> None:
    (tmp_path / "sarsa.py").write_text("from rlkit.algorithms.sarsa import Config, make\n")
    for first, second in (("mine:{}", "sarsa"), ("sarsa:{}", "base:sarsa")):
        jobs = planned(f"algo={first.format(tmp_path / 'sarsa.py')},{second}", "sarsa:algo.lr=0.9")
        assert [job.algo for job in jobs if job.config["algo"]["lr"] == 0.9] == ["sarsa"] and len(jobs) == 2
    both = planned("algo=sarsa,mine:sarsa", "sarsa:algo.lr=0.9", "mine:algo.gamma=0.5")  # settings of one plug-in
    assert [job.config["algo"]["lr"] for job in both] == [0.9, 0.9]


def test_a_key_for_some_stands_above_the_values_that_make_rows() -> None:
    rows, _ = table(planned("algo=q_learning,sarsa", "algo.lr=0.1,0.2", "sarsa:algo.lr=0.3"))
    assert rows == ["q_learning lr=0.1", "q_learning lr=0.2", "sarsa"]
    jobs = planned("algo=q_learning,sarsa", "iterations=2,3", "sarsa:env_steps=500")  # one excludes the other
    assert [job.algo for job in jobs] == ["q_learning iterations=2", "q_learning iterations=3", "sarsa"]
    assert (jobs[2].config["run"]["iterations"], jobs[2].config["run"]["env_steps"]) == (None, 500)


def test_of_two_keys_for_one_run_the_last_counts_also_where_they_exclude_each_other() -> None:
    length = ("q_learning:env_steps=100", "gridworld:iterations=5")
    for given, found in ((length, (5, None)), (length[::-1], (None, 100))):
        [job] = planned(*given)
        assert (job.config["run"]["iterations"], job.config["run"]["env_steps"]) == found


def test_the_column_of_one_gymnasium_id_listens_to_it_too() -> None:
    jobs = planned("algo=ppo", "env=cartpole,gym", "gym:env.id=MountainCar-v0", "MountainCar-v0:iterations=2")
    assert [job.config["run"]["iterations"] for job in jobs] == [3, 2]


@pytest.mark.parametrize(
    ("given", "says"),
    [
        (["algo.lr=0.1,0.2", "gridworld:algo.lr=0.3"], "algo.lr makes rows, which are the same for every environment"),
        (["gridworld:algo.lr=0.1,0.2"], "algo.lr makes rows, which are the same for every environment"),
        (["q_learning:env.slip=0,0.1"], "env.slip makes columns, which are the same for every algorithm"),
        (["iterations=2,3", "gridworld:env_steps=10"], "gridworld:env_steps=10: env_steps makes rows"),
        (["iterations=2,3", "q_learning:env_steps=10"], "iterations=2,3 would make rows, but q_learning:env_steps=10"),
        (["env.slip=0,0.1", "gridworld:env.slip=0.2"], "env.slip=0,0.1 would make columns, but gridworld:env.slip=0.2"),
        (["algo.lr=0.1,0.10"], "algo.lr=0.1,0.10 has 0.1 twice"),
        (["keep=1,2"], "keep=1,2 changes where a run is computed"),
        (["algo.lr=0.1,-2"], r"algo.lr=-2 is not allowed: give a number above 0"),
        (["measure=latest,best"], "is measured with measure=best"),
        (["algo=a:q_learning,a:sarsa"], "both would be called a; give one a name of its own: algo=NAME:sarsa"),
        (
            ["algo=a:q_learning,a-b:q_learning", "env=b-c:gridworld,c:gridworld"],
            "a on b-c and of a-b on c would share a-b-c",
        ),
        (["seeds=0"], "seeds=0 is not allowed"),
        (["algo.double=true,false"], "no key 'algo.double'"),
        (["policy.hidden=64;wide"], "policy.hidden=wide is not allowed"),
    ],
    ids=str,
)
def test_a_mistake_is_one_line(given: list[str], says: str) -> None:
    with pytest.raises(UserError, match=says) as error:
        planned(*given)
    assert "\n" not in str(error.value)


def finished(job: grid.Job, score: float) -> None:
    """The folder of a run that has ended."""
    job.folder.mkdir(parents=True)
    (job.folder / "config.yaml").write_text(json.dumps(job.config))
    evaluation = {"metric": "return", "mean": score, "low": score, "high": score, "episodes": 2}
    summary = {"algo": "q_learning", "env": "gridworld", "seed": job.seed, "env_steps": 9, "seconds": 1.0}
    (job.folder / "summary.json").write_text(
        json.dumps({**summary, "finished": True, "evaluation": {"after": evaluation}})
    )


@pytest.mark.slow
def test_names_are_kept_with_the_comparison_and_in_every_table(tmp_path: Path, capsys) -> None:
    pytest.importorskip("matplotlib")
    out = tmp_path / "c"
    given = [*SMALL[:2], "seeds=5", "iterations=3", f"out={out}", "algo.lr=1e-1,0.5"]
    jobs, _ = plan.plan(plan.parse(given))
    for i, job in enumerate(jobs):
        finished(job, float(i))
    assert compare.main(given) == 0  # finished already: nothing is run
    said = capsys.readouterr().out
    assert "10 finished, 0 to continue, 0 to start" in said and "2 settings × 1 environment" in said
    assert "Q-learning lr=0.5 has the highest" in " ".join(said.split())
    found = json.loads((out / "results.json").read_text())
    assert set(found["algos"]) == {"q_learning lr=1e-1", "q_learning lr=0.5"} and not found["caveats"][1:]
    assert "lr=1e-1" in (out / "index.html").read_text(encoding="utf-8")
    [pair] = found["improvement"]
    assert pair["x"] == "q_learning lr=0.5" and pair["y"] == "q_learning lr=1e-1"
    # The report made again, from the comparison or from its runs, and later with more rows: the names stay.
    assert compare.main([str(out)]) == 0
    assert set(json.loads((out / "results.json").read_text())["algos"]) == set(found["algos"])
    assert {records.read(job.folder).algo for job in jobs} == set(found["algos"])
    names.write(out, planned("algo.lr=0.7,0.8", f"out={out}"))
    assert {records.read(job.folder).algo for job in jobs} == set(found["algos"])


def test_a_setting_that_is_written_in_another_way_for_other_seeds_stays_one_row(tmp_path: Path) -> None:
    given = [*SMALL[:2], "iterations=3", f"out={tmp_path}"]
    first, more = (
        plan.plan(plan.parse([*given, *x]))[0] for x in (["algo.lr=1e-1,0.5", "seed=0"], ["algo.lr=0.1,0.50", "seed=1"])
    )
    for jobs in (first, more):
        names.write(tmp_path, jobs)
    for job in (*first, *more):
        finished(job, 1.0)
    assert {records.read(job.folder).algo for job in (*first, *more)} == {"q_learning lr=0.1", "q_learning lr=0.50"}


def test_a_setting_is_said_to_be_none_where_the_rows_are_algorithms(tmp_path: Path) -> None:
    jobs = planned("algo=A:q_learning,B:sarsa", f"out={tmp_path}")
    for job in jobs:
        finished(job, 1.0)
        (job.folder / "summary.json").write_text(
            (job.folder / "summary.json").read_text().replace("q_learning", job.config["algo"]["name"])
        )
    names.write(tmp_path, jobs)
    found = compute([records.read(job.folder) for job in jobs])
    assert words.size(found).startswith("2 algorithms × 1 environment") and set(found["algos"]) == {"A", "B"}


def test_python_gives_ids_that_end_alike_names_of_their_own() -> None:
    assert environments(["one/World-v0", "two/World-v0", "CartPole-v1", "taxi"]) == [
        "env=one.World-v0:gym,two.World-v0:gym,CartPole-v1:gym,taxi",
        "one.World-v0:env.id=one/World-v0",
        "two.World-v0:env.id=two/World-v0",
        "CartPole-v1:env.id=CartPole-v1",
    ]


def test_a_damaged_file_of_names_is_one_line(tmp_path: Path, capsys) -> None:
    [job] = planned(f"out={tmp_path}")
    finished(job, 1.0)
    (tmp_path / "names.json").write_text("{")
    assert compare.main([str(tmp_path)]) == 2
    assert "names.json is damaged" in capsys.readouterr().err
    (tmp_path / "names.json").write_text('["Alice"]')  # the user's own, beside runs/
    assert records.read(job.folder).algo == "q_learning"
    (tmp_path / "names.json").write_text(json.dumps({job.name: {"algo": ["x"], "env": 3}, "x": 1}))
    assert (records.read(job.folder).algo, records.read(job.folder).env) == ("q_learning", "gridworld")


@pytest.mark.slow
def test_python_gives_lists_of_values_and_several_ids(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[plan.Asked] = []

    def carry_out(given: plan.Asked, command: str) -> conduct.Conducted:
        asked.append(given)
        return conduct.Conducted(tmp_path, {"missing": []}, [])  # type: ignore[typeddict-item]

    monkeypatch.setattr(conduct, "conduct", carry_out)
    keys = {"algo.lr": [1e-3, 3e-3], "policy.hidden": [(64, 64), (32,)], "iterations": 2}
    rlkit.run_comparison("ppo", ["CartPole-v1", "MountainCar-v0"], [0], out=tmp_path, **keys)  # type: ignore[arg-type]
    rows, columns = table(plan.plan(asked[0])[0])
    assert rows == [f"ppo lr={lr} hidden={hidden}" for lr in ("0.001", "0.003") for hidden in ("64,64", "32")]
    assert columns == ["CartPole-v1", "MountainCar-v0"]
    assert environments(["CartPole-v1"]) == ["env=gym", "gym:env.id=CartPole-v1"]
    # Nothing in a text for a model is an escape, and its commas and blanks stay.
    texts = {"env.prompt": "{question}\n\\text{}:", "gsm8k:env.stop": ["a, b", "\n\n"]}
    rlkit.run_comparison("grpo", "gsm8k", [0], out=tmp_path, **texts)  # type: ignore[arg-type]
    [job] = plan.plan(asked[1])[0]
    assert job.config["env"]["prompt"] == texts["env.prompt"] and job.config["env"]["stop"] == texts["gsm8k:env.stop"]
    with pytest.raises(UserError, match=r"env\.prompt=.* is not allowed: give text"):
        rlkit.run_comparison("grpo", "gsm8k", [0], out=tmp_path, **{"env.prompt": ["{question}", "Q: {question}"]})  # type: ignore[arg-type]


def test_a_file_for_all_runs_that_is_not_there_is_told_as_a_run_tells_it() -> None:
    with pytest.raises(UserError, match=r"config=nowhere\.yaml: there is no such file: give one"):
        plan.plan(plan.parse(["algo=ppo", "env=cartpole", "config=nowhere.yaml"]))


def test_a_key_that_one_algorithm_lacks_is_no_key_of_runs() -> None:
    with pytest.raises(UserError, match=r"no key 'algo\.epochs': there are: lr, .*; NAME:KEY=VALUE gives a key"):
        plan.plan(plan.parse(["algo=ppo,dqn", "env=cartpole", "algo.epochs=3"]))


def test_a_run_that_is_missing_has_the_column_that_the_report_gives_it() -> None:
    for given, column in [
        (["env=gym", "env.id=CartPole-v1"], "gym:CartPole-v1"),
        (["env=mine:gym", "env.id=CartPole-v1"], "mine"),
        (["env=cartpole"], "cartpole"),
    ]:
        [job] = plan.plan(plan.parse(["algo=ppo", "seed=0", *given]))[0]
        assert conduct.column(job) == column


@pytest.mark.slow
def test_rows_that_were_cut_off_are_continued(tmp_path: Path, capsys) -> None:
    given = [*SMALL, "algo.lr=0.1,0.5", "evaluations=0", f"out={tmp_path}", "workers=2"]
    assert compare.main(given) == 0
    folder = tmp_path / "runs" / "q_learning_lr_0.5-gridworld-s0"
    (folder / "summary.json").unlink()
    capsys.readouterr()
    assert compare.main(given) == 0
    assert "1 finished, 1 to continue, 0 to start" in capsys.readouterr().out
    assert report and set(json.loads((tmp_path / "results.json").read_text())["algos"]) == {
        "q_learning lr=0.1", "q_learning lr=0.5",
    }  # fmt: skip


def test_names_with_bytes_that_are_no_text_have_folders() -> None:
    """As a file has whose name is of another encoding."""
    one, two = (rows.slugged(f"m{byte}", {"algo.gamma": "0.9"}, "ppo") for byte in ("\udcfc", "\udcfd"))
    assert one.isascii() and two.isascii() and one != two
    assert plan.default_out(["m\udcfc" * 40], ["cartpole"]) != plan.default_out(["m\udcfd" * 40], ["cartpole"])
