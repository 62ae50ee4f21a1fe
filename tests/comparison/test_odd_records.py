"""Odd values of finished runs: seeds far apart, names that no figure can hold, references without room."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from support.compared import grid, run
from support.marks import slow_after

from rlkit import compare
from rlkit.api import UserError
from rlkit.comparison import conduct, names, page, plan, records, report, words
from rlkit.comparison.caveats import caveats
from rlkit.comparison.results import compute
from rlkit.recording.log import table

AFTER = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
FACTS = {"algo": "ppo", "env": "cartpole", "seed": 3, "env_steps": 50, "seconds": 1.5}
HALF = "\ud800"  # half of a character: JSON can write it, and no font has it


def folder(at: Path, after: object = AFTER, keys: object = None, **changes: object) -> Path:
    """A finished run, with other values in its files."""
    at.mkdir(parents=True)
    config = {"run": {"seed": 3}, "algo": {"name": "ppo"}, "env": {"name": "cartpole", **(keys or {})}}  # type: ignore[dict-item]
    (at / "config.yaml").write_text(json.dumps(config))  # JSON is YAML
    (at / "summary.json").write_text(json.dumps({**FACTS, "evaluation": {"after": after}, **changes}))
    return at


def test_seeds_far_apart_are_listed_and_not_counted_through(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    seeds = [0, 1, 10**12]
    found = [str(folder(tmp_path / str(seed), seed=seed)) for seed in seeds]
    assert compare.main([*found, f"out={tmp_path / 'out'}"]) == 0
    assert "seeds 0, 1 and 1000000000000" in capsys.readouterr().out
    results = {"algos": {"a": 0}, "envs": {"x": 0}, "rows": "algorithms"}
    runs = [{"seed": seed} for seed in (4, 2, 3, 3)]
    assert words.size({**results, "runs": runs}).endswith("seeds 2 to 4")  # type: ignore[typeddict-item]


def test_a_run_that_lies_twice_counts_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As a copy, or under another name, as where a comparison of one env.id is given a second one."""
    one = folder(tmp_path / "ppo-gym-s3")
    again = folder(tmp_path / "ppo-gym_CartPole-v1-s3", seconds=9.0)
    other = folder(tmp_path / "other", {**AFTER, "mean": 6.5})
    assert compare.main([str(one), str(again), str(other), f"out={tmp_path / 'out'}"]) == 0
    said = " ".join(capsys.readouterr().err.split())
    assert f"{again} has the settings, the seed and the score of {one}: it counts once" in said
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["envs"]["cartpole"]["algos"]["ppo"]["runs"] == 2


def test_unequal_seeds_are_told_with_what_they_do_and_no_more() -> None:
    other = [*grid(a_x=[0.1, 0.2, 0.4, 0.5]), *(run("b", "x", seed, 0.1 * seed) for seed in (1, 2, 3, 7))]
    said = " ".join(caveats(other, compute(other)))
    assert "On x the algorithms have different seeds: a 0 to 3; b 1 to 3 and 7." in said and "weigh" not in said
    fewer = grid(a_x=[0.1, 0.2, 0.3], b_x=[0.2, 0.3, 0.4], a_y=[0.1, 0.2], b_y=[0.1, 0.3])
    said = " ".join(caveats(fewer, compute(fewer)))
    assert "An environment with more runs of an algorithm weighs more" in said and "different seeds" not in said


def test_two_columns_of_one_problem_are_told() -> None:
    """As where a comparison with `env.slippery=false` goes on with `false,true`: then each is a column."""
    tasks = {"lake": "False", "lake slippery=false": "False", "lake slippery=true": "True"}
    given = [
        replace(run(algo, env, 0, 0.1 * i), settings={"env.name": "lake", "env.slippery": slippery})
        for i, (env, slippery) in enumerate(tasks.items())
        for algo in ("a", "b")
    ]
    said = " ".join(caveats(given, compute(given)))
    once = "lake and lake slippery=false are one problem: it weighs 2 times in the numbers over all environments."
    assert once in said and said.count("one problem") == 1
    assert "one problem" not in " ".join(caveats(given[2:], compute(given[2:])))


def test_tables_of_80_columns_cut_no_name_and_no_number(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    head = ["", "mean", "IQM", "95 %", "runs", "steps", "seconds"]
    numbers = ["-117456.7", "-117456.7", "-122456.7 to -112456.7", "5", "1,000,000,000", "10,000,002"]
    table("maze", head, [[f"PPO gae_lambda={x}", *numbers] for x in (0.9, 0.95)])
    said = capsys.readouterr().out
    assert "…" not in said and {"9", "95"} <= {line.split()[0] for line in said.splitlines() if line}  # after 0.


def test_a_single_run_is_named() -> None:
    given = [run()]
    (said,) = caveats(given, compute(given, ["b on x: no, it ended", "c on x: gone"]))[1:]
    assert said.startswith("There is one run of ppo on maze: it has no interval over seeds")


def test_a_single_run_in_one_of_two_environments_is_not_told_as_if_it_were_all() -> None:
    given = grid(a_x=[0.7, 0.8, 0.9], b_x=[0.1, 0.2, 0.3], a_y=[0.9], b_y=[0.1, 0.2, 0.3])
    found = compute(given)
    assert found["improvement"][0]["verdict"] == "too few runs" and found["envs"]["x"]["algos"]["a"]["low"] is not None
    assert words.finding(found) == (
        "a has the highest interquartile mean but is not separated from b (an environment with one run gives no "
        "interval)."
    )


def test_a_pair_over_more_environments_than_the_ranking_is_said_to_be() -> None:
    given = grid(a_x=[0.5, 0.6], b_x=[0.1, 0.2], c_x=[0.3, 0.4], a_y=[0.1, 0.2], b_y=[0.8, 0.9])
    found = compute(given)
    assert found["algos"] == ["a", "c", "b"] and found["shared"] == ["x"]
    assert words.finding(found) == (
        "a has the highest interquartile mean on x but is, over the environments that both have, not separated from c "
        "and b."
    )
    told = "P(> next) is over the environments that both have, not only these."
    assert words.over_all(found).note.endswith(told)
    alike = compute(grid(a_x=[0.5, 0.6], b_x=[0.1, 0.2]))
    assert told not in words.over_all(alike).note and "both have" not in words.finding(alike)


def test_code_of_two_folders_is_one_algorithm_only_with_the_same_neighbors() -> None:
    def mine(folder: str, seed: int, helper: str) -> records.Record:
        marks = {f"marks./{folder}/mine.py": "11", f"marks./{folder}/helper.py": helper}
        return run("mine", seed=seed, settings={"algo.name": f"/{folder}/mine.py", **marks})

    moved, changed = [mine("x", 0, "22"), mine("y", 1, "22")], [mine("x", 0, "22"), mine("y", 1, "33")]
    assert records.apart(moved) == moved
    assert [r.algo for r in records.apart(changed)] == ["mine /x/mine.py", "mine /y/mine.py"]
    assert not any("algo.name" in said for said in caveats(moved, compute(moved)))


def test_modules_of_two_folders_are_one_problem_only_with_the_same_neighbors() -> None:
    def maze(folder: str, helper: str) -> records.Record:
        marks = {"marks.pk.maze": "11", "marks.pk": "10", f"marks./{folder}/pk/sub/helper.py": helper}
        return run("ppo", "gym:maze:Maze", settings={"env.entry": "pk.maze:Maze", **marks})

    moved, changed = [maze("x", "22"), maze("y", "22")], [maze("x", "22"), maze("y", "33")]
    said = (
        "The runs of ppo on gym:maze:Maze are not repetitions of each other: env.entry is pk.maze:Maze with different"
    )
    assert not any("repetitions" in told for told in caveats(moved, compute(moved)))
    assert any(told.startswith(said) for told in caveats(changed, compute(changed)))


def test_rewards_of_two_folders_are_one_task_where_their_content_is_the_same() -> None:
    def told(helper: str, tail: str = "g") -> list[str]:
        rewards = {"x": "/x/mine.py:f,/x/more.py:g,model:/x/m", "y": f"/y/mine.py:f,/y/more.py:{tail},model:/y/m"}
        marks = {x: {f"marks./{x}/mine.py": "11", f"marks./{x}/more.py": "22", f"marks./{x}/m": "33"} for x in rewards}
        marks["y"]["marks./y/more.py"] = helper
        given = [run(seed=i, settings={"env.reward": rewards[x], **marks[x]}) for i, x in enumerate(rewards)]
        return [said for said in caveats(given, compute(given)) if "env.reward" in said]

    assert told("22") == []
    assert len(told("44")) == len(told("22", tail="h")) == 2, "not repetitions, and not the same task"


def test_a_game_of_two_folders_is_one_column_where_its_content_is_the_same() -> None:
    def game(folder: str, mark: str) -> records.Record:
        settings = {"env.game": f"/{folder}/mine.py:Game", f"marks./{folder}/mine.py": mark}
        return run(env="game:mine.py:Game", settings=settings)

    moved = [game("x", "11"), game("y", "11")]
    assert records.apart(moved) == moved
    columns = [r.env for r in records.apart([*moved, game("z", "22")])]
    assert columns == ["game:/x/mine.py:Game", "game:/x/mine.py:Game", "game:/z/mine.py:Game"]


def test_an_environment_that_a_program_gave_may_be_another_in_each_run() -> None:
    given = [run(seed=s, settings={"env.entry": entry}) for entry in ("<lambda, given in Python>", "") for s in (0, 1)]
    assert sum("nothing tells whether" in said for said in caveats(given, compute(given))) == 1
    assert not any("nothing tells" in said for said in caveats(given[2:], compute(given[2:])))


@pytest.mark.parametrize("name", slow_after(1, [HALF, f"a{HALF}b", "\x1b[2J", "x" * 100_000]))
@pytest.mark.parametrize("place", ["algo", "env", "metric", "id", "names.json"])
def test_a_name_that_cannot_be_drawn_is_shortened_or_replaced(
    name: str, place: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tmp_path / "c" / "runs" / "one"
    changes = {place: name} if place in ("algo", "env") else {}
    after = {**AFTER, "metric": name} if place == "metric" else AFTER
    folder(at, after, {"id": name} if place == "id" else None, **changes)
    if place == "names.json":
        (tmp_path / "c" / "names.json").write_text(json.dumps({"one": {"algo": name, "env": name}}))
    found = records.read(at)
    assert all(len(text) <= names.LONGEST for text in (found.algo, found.env, found.metric))
    if len(name) < 100:  # drawing 200 letters takes seconds
        assert compare.main([str(tmp_path / "c")]) == 0
        assert HALF not in (tmp_path / "c" / "results.json").read_text(encoding="utf-8")


def test_a_reference_without_room_is_none(tmp_path: Path) -> None:
    reference = {"low": 0.0, "high": 5e-324, "low_is": "a", "high_is": "b"}
    found = [str(folder(tmp_path / str(seed), seed=seed, reference=reference)) for seed in (0, 1)]
    assert records.read(tmp_path / "0").reference is None
    assert compare.main([*found, f"out={tmp_path / 'out'}"]) == 0


@pytest.mark.parametrize(
    ("before", "said"),
    [(7.0, "scored the same as before training,"), (None, "scored the same,"), (9.0, "scored the same,")],
)
def test_runs_that_all_score_alike_are_said_to(before: float | None, said: str, tmp_path: Path) -> None:
    evaluation = {"before": {**AFTER, "mean": before}, "after": AFTER}
    found = [records.read(folder(tmp_path / str(seed), seed=seed, evaluation=evaluation)) for seed in (0, 1)]
    assert f"All runs on cartpole {said}" in " ".join(caveats(found, compute(found)))


def test_rows_that_score_what_they_scored_before_training_are_named() -> None:
    still = [run("td", seed=seed, score=x, before=x) for seed, x in enumerate((0.01, 0.03))]
    found = [*still, run("mc", seed=0, score=0.2, before=0.2), run("mc", seed=1, score=0.4, before=0.2)]
    said = "On maze every run of td scored exactly what it scored before training"
    assert said in " ".join(caveats(found, compute(found)))
    assert "exactly" not in " ".join(caveats(found[2:], compute(found[2:])))


def test_the_steps_of_text_are_called_tokens_in_the_list_of_runs() -> None:
    found = [run(env="gsm8k", metric="accuracy", kind="text"), run(kind="control")]
    assert "steps or tokens</th>" in page.runs(compute(found))
    assert ">tokens</th>" in page.runs(compute(found[:1])) and ">steps</th>" in page.runs(compute(found[1:]))


def test_the_folder_of_a_search_names_its_comparison(tmp_path: Path) -> None:
    (tmp_path / "search.yaml").touch()
    with pytest.raises(UserError, match=re.escape(f"give its comparison, {tmp_path / 'fresh'}")):
        records.read(tmp_path)


@pytest.mark.parametrize(
    ("scores", "said"), [((3e-4, 5e-4), "0.000400"), ((0.3, 5e-4), "0.150"), ((0.0, 0.0), "0.000")]
)
def test_small_scores_are_told_apart(scores: tuple[float, float], said: str, tmp_path: Path) -> None:
    found = [
        records.read(folder(tmp_path / str(i), {**AFTER, "mean": x, "low": x, "high": x}, seed=i))
        for i, x in enumerate(scores)
    ]
    assert words.environment(compute(found), "cartpole").rows[0][1] == said


def test_a_folder_in_the_place_of_a_mark_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rlkit.comparison import conduct, view

    monkeypatch.setattr(view, "watch", lambda *_: {})
    (tmp_path / ".stop" / "inside").mkdir(parents=True)
    assert conduct.carry_out([], 1, tmp_path) == {}
    assert not (tmp_path / ".stop").exists()


def test_a_reward_model_of_0_5_has_the_score_of_one_of_today(tmp_path: Path) -> None:
    """What is the accuracy of today was called a return where the rewards were one's own, and `scored` is newer."""
    share = {"mean": 0.8, "low": 0.4, "high": 1.0}
    for name, facts in (
        ("plain", {"after": {**share, "metric": "return"}}),
        ("scored", {"after": {**share, "metric": "return"}, "scored": "pairs"}),
        ("today", {"after": {**share, "metric": "accuracy"}, "scored": "pairs"}),
    ):
        folder(tmp_path / name, algo="reward_model", env="text", **facts)
    found = [records.read(tmp_path / name) for name in ("plain", "scored", "today")]
    assert [r.metric for r in found] == ["accuracy"] * 3
    report.check(found)


@pytest.mark.parametrize("name", ["index.html", "runs.csv", "results.json", "scores-maze.csv", "iqm.png"])
def test_files_of_the_users_own_are_not_written_over(name: str, tmp_path: Path) -> None:
    out, run = tmp_path / "out", str(folder(tmp_path / "run"))
    out.mkdir()
    (out / name).write_text("{}")
    for given in ([run], ["algo=q_learning", "env=gridworld", "seed=0"]):
        with pytest.raises(UserError, match=f"out holds {name}, which no comparison wrote"):
            conduct.conduct(plan.parse([*given, f"out={out}"]), "")
    assert [path.name for path in out.iterdir()] == [name] and (out / name).read_text() == "{}"


def test_a_report_of_ours_is_written_again(tmp_path: Path) -> None:
    asked = plan.parse([str(folder(tmp_path / "run")), f"out={tmp_path / 'out'}"])
    conduct.conduct(asked, "")
    conduct.conduct(asked, "")
    (tmp_path / "out" / "results.json").unlink()
    conduct.conduct(asked, "")
    assert (tmp_path / "out" / "results.json").is_file()


def test_a_run_that_learned_from_less_than_its_like_is_named() -> None:
    found = [run(seed=seed, env_steps=300 if seed == 3 else 10_000) for seed in range(5)]
    said = "Of ppo on maze the median run learned from 10,000 steps, and some from 300 (seed 3)."
    assert said in caveats(found, compute(found))
    assert not [text for text in caveats(found[:3], compute(found[:3])) if "median run" in text]


def test_a_validation_without_a_number_is_told_where_the_curve_does_not_show_it(tmp_path: Path) -> None:
    at = folder(tmp_path / "run")
    line = {"iteration": 1, "env_steps": 10, "seconds": 1.0, "eval/return": 3.0, "rollout/return": 2.0}
    lines = [line, {**line, "env_steps": 20, "eval/return": None}, {**line, "env_steps": 30}, {**line, "env_steps": 40}]
    for some in (lines, lines[:3]):  # of two evaluations no curve is drawn
        (at / "metrics.jsonl").write_text("".join(json.dumps(each) + "\n" for each in some))
        found = [records.read(at)]
        assert found[0].curves["evaluation"].gaps == 1
        said = "one validation gave no number; there its curve keeps the value before."
        assert (said in " ".join(caveats(found, compute(found)))) is (some == lines)
