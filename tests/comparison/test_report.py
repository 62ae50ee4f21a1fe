"""Run folders → records → results.json and a page: read, computed, said and escaped rightly."""

import json
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import numpy as np
import pytest
from rich import console
from support.compared import UNIT, curved, grid, run

from rlkit import titles
from rlkit.api import Reference, UserError
from rlkit.comparison import page, records, report, words
from rlkit.comparison.caveats import caveats
from rlkit.comparison.results import compute
from rlkit.comparison.view import View
from rlkit.recording.log import table
from rlkit.settings import plugins
from rlkit.statistics import runs
from rlkit.terminal import muted


def folder(at: Path, **changes) -> Path:
    """A run folder as `rlkit.run` leaves it, with other values in its summary."""
    at.mkdir()
    (at / "config.yaml").write_text(
        "# rlkit 0.3.0; to repeat: python -m rlkit.run algo=ppo env=maze\nrun: {seed: 3}\nalgo: {name: ppo, lr: 0.1}\n"
    )
    after = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
    summary = {"algo": "./my/ppo.py", "env": "maze", "seed": 3, "env_steps": 50, "seconds": 1.5, "finished": True}
    summary |= {"evaluation": {"before": after | {"mean": 1.0}, "after": after}, "alarms": []}
    (at / "summary.json").write_text(json.dumps(summary | changes))
    line = {"iteration": 1, "env_steps": 10, "seconds": 1, "rollout/return": 2.0, "eval/return": 3.0}
    torn = json.dumps(line | {"env_steps": 20})[:-9]
    (at / "metrics.jsonl").write_text(f"{json.dumps(line)}\n{torn}\n{json.dumps(line | {'eval/return': None})}\n")
    return at


def test_a_run_folder_is_read_with_its_curves_and_without_torn_lines(tmp_path: Path) -> None:
    reference = {"low": 0.0, "high": 9.0, "low_is": "a", "high_is": "b"}
    alarms = [{"name": "clip", "iteration": 2, "message": "too much"}]
    found = records.read(folder(tmp_path / "a", reference=reference, alarms=alarms))
    assert (found.algo, found.env, found.seed, found.score, found.before) == ("ppo", "maze", 3, 7.0, 1.0)
    assert found.reference == Reference(0.0, 9.0, "a", "b") and found.alarms == ["clip: too much"]
    assert found.curves["evaluation"].value.tolist() == [1.0, 3.0], "from step 0: what was measured before training"
    assert found.curves["evaluation"].env_steps.tolist() == [0.0, 10.0]
    assert found.curves["training"].env_steps.tolist() == [10.0, 10.0]
    assert found.command == "python -m rlkit.run algo=ppo env=maze" and found.settings["algo.lr"] == "0.1"
    assert "seed" not in found.settings


def test_an_older_summary_without_reference_and_finished_is_read(tmp_path: Path) -> None:
    at = folder(tmp_path / "a")
    values = {k: v for k, v in json.loads((at / "summary.json").read_text()).items() if k not in ("finished", "alarms")}
    (at / "summary.json").write_text(json.dumps(values))
    found = records.read(at)
    assert found.finished and found.reference is None and found.alarms == []


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"finished": False}, "not finished"),
        ({"evaluation": {}}, "no evaluation"),
        ({"evaluation": {"after": {"mean": None}}}, "no evaluation"),
        ({"env_steps": "many"}, "damaged"),
        ({"reference": {"low": 1}}, "damaged"),
    ],
)
def test_what_is_no_finished_run_is_refused_in_one_line(tmp_path: Path, changes, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        records.read(folder(tmp_path / "a", **changes))
    assert "\n" not in str(error.value)


def test_folders_without_a_run_and_broken_files_are_refused_in_one_line(tmp_path: Path) -> None:
    at = folder(tmp_path / "a")
    for name, text, said in [("summary.json", '{"algo": ', "damaged"), ("config.yaml", "a: [1", "not valid YAML")]:
        kept = (at / name).read_text()
        (at / name).write_text(text)
        with pytest.raises(UserError, match=said) as error:
            records.read(at)
        assert "\n" not in str(error.value)
        (at / name).write_text(kept)
    (at / "summary.json").unlink()
    with pytest.raises(UserError, match="not finished"):
        records.read(at)
    with pytest.raises(UserError, match="not a run folder"):
        records.read(tmp_path / "nowhere")


def test_the_ranking_is_by_normalized_scores_over_the_environments_that_all_share() -> None:
    given = grid(a_x=[0.2, 0.4], b_x=[0.6, 0.8], a_y=[0.9, 0.9])
    found = compute(given)
    assert found["shared"] == ["x"] and found["algos"] == ["b", "a"]
    assert found["overall"]["a"]["iqm"] == pytest.approx(0.3) and found["overall"]["a"]["runs"] == 2
    assert "b" not in found["envs"]["y"]["algos"]
    said = " ".join(caveats(given, found))
    assert "b has no finished run on y" in said and "those that all algorithms share: x" in said
    row = next(t for t in words.tables(found) if t.title.startswith("y")).rows[0]
    assert row == ["b", *[words.NOTHING] * 6]


def test_the_numbers_are_those_of_the_functions_with_unequal_numbers_of_runs() -> None:
    found = compute(grid(a_x=[0.1, 0.2, 0.3, 0.9], b_x=[0.0, 0.2, 0.5], a_y=[0.4, 0.6], b_y=[0.5, 0.5]))
    a, b = ([np.array(found["envs"][e]["algos"][algo]["scores"]) for e in ("x", "y")] for algo in "ab")
    assert found["overall"]["a"]["iqm"] == runs.iqm(a)
    assert (found["overall"]["a"]["low"], found["overall"]["a"]["high"]) == runs.interval(runs.iqm, a)
    (pair,) = found["improvement"]
    x, y = (a, b) if pair["x"] == "a" else (b, a)
    assert pair["value"] == runs.improvement(x, y) and pair["chance"] == runs.chance(x, y)
    tau = np.array(found["profiles"]["thresholds"])
    assert found["profiles"]["algos"]["b"]["fraction"] == runs.profile(b, tau).tolist()


def test_scores_are_normalized_by_the_reference_the_median_of_several_or_the_range_of_the_runs() -> None:
    twice = replace(UNIT, low=0.4, high=2.0)
    given = [run(seed=0, score=1.1), run(seed=1, score=1.1, reference=twice)]
    found = compute(given)
    assert found["envs"]["maze"]["algos"]["ppo"]["normalized"]["scores"] == pytest.approx([0.9 / 1.3] * 2)
    assert any("their median is used" in text for text in caveats(given, found))
    given = [run(seed=s, score=score, reference=None, before=1.0) for s, score in enumerate([2.0, 5.0])]
    found = compute(given)
    assert found["envs"]["maze"]["algos"]["ppo"]["normalized"]["scores"] == [0.25, 1.0]
    assert any("belongs to these runs alone" in text for text in caveats(given, found))
    assert compute([run(reference=None, score=0.0)])["shared"] == []  # nothing lies between


def test_one_seed_has_no_interval_and_few_seeds_a_warning() -> None:
    given = grid(a_x=[0.1], b_x=[0.9])
    found = compute(given)
    assert found["overall"]["a"]["low"] is None and found["improvement"][0]["verdict"] == "too few runs"
    assert any("no interval" in text for text in caveats(given, found))
    given = grid(a_x=[0.1, 0.2, 0.3], b_x=[0.7, 0.8, 0.9])
    assert compute(given)["improvement"][0]["verdict"] == "not separated"  # chance alone: one time in ten
    assert any("3 runs only" in text for text in caveats(given, compute(given)))
    given = grid(a_x=[0.1, 0.2, 0.3, 0.4, 0.5], b_x=[0.6, 0.7, 0.8, 0.9, 1.0])
    assert compute(given)["improvement"][0]["verdict"] == "better"
    assert caveats(given, compute(given)) == []


@pytest.mark.parametrize(
    ("facts", "unit"),
    [
        ({"kind": "text", "scored": "episodes"}, "tokens"),  # a game in words
        ({"kind": "text", "metric": "accuracy", "scored": "problems"}, "tokens"),
        ({"kind": "control", "metric": "accuracy"}, "steps"),
        ({}, "steps"),  # rlkit 0.5 said nothing of the kind
        ({"scored": "problems"}, "tokens"),
    ],
)
def test_every_kind_of_text_is_counted_in_tokens(facts: dict[str, str], unit: str) -> None:
    assert compute([run(**facts)])["envs"]["maze"]["unit"] == unit


def test_runs_that_are_no_repetitions_of_each_other_are_named() -> None:
    given = [run(seed=s, settings={"algo.lr": lr}, env_steps=n) for s, lr, n in [(0, "0.1", 100), (0, "0.2", 100)]]
    one = {"torch": "2", "python": "3.11", "reasoning-gym": "0.1"}
    other = {"torch": "3", "python": "3.12", "reasoning-gym": "0.2"}
    given += [run("dqn", seed=1, env_steps=300, versions=one), run("dqn", versions=other)]
    said = " ".join(caveats(given, compute(given)))
    for words_ in (
        "algo.lr is 0.1 and 0.2",
        "several runs of seed 0",
        "dqn 200",
        "versions of torch",
        "versions of reasoning-gym",
        "seeds: ppo 0 and 0",
    ):
        assert words_ in said
    assert "python" not in said


def test_an_alarm_of_several_seeds_is_told_once() -> None:
    given = [run(seed=s, alarms=[f"clip: {s} too much"] if s != 1 else []) for s in range(5)]
    assert caveats(given, compute(given)) == ["ppo on maze, seed 0, 2, 3 and 4 (figures of seed 0): clip: 0 too much"]
    alike = [run(seed=s, alarms=["clip: too much"]) for s in range(5)]
    assert caveats(alike, compute(alike)) == ["ppo on maze, seed 0, 1, 2, 3 and 4: clip: too much"]


def test_curves_are_of_evaluations_where_every_run_has_enough_of_them() -> None:
    held = [run(seed=s, curves=curved("evaluation", 4)) for s in range(2)]
    assert compute(held)["envs"]["maze"]["curve"] == "evaluation"
    one = run(seed=2, curves=curved("evaluation", 1) | curved("training", 9))
    mixed = [*held, one]
    assert compute(mixed)["envs"]["maze"]["curve"] is None  # not comparable
    assert any(text.startswith("No curves are drawn of maze: each run") for text in caveats(mixed, compute(mixed)))
    assert not [text for text in caveats(held, compute(held)) if "No curves" in text]
    found = compute([one])["envs"]["maze"]
    line = found["curves"]["ppo"]["env_steps"]
    assert found["curve"] == "training" and line["x"][0] == 10 and line["x"][-1] == 90
    assert line["iqm"][0] == 1 / 9 and line["iqm"][-1] == 1.0 and line["low"] is None


@pytest.mark.slow
def test_the_page_is_one_file_that_fetches_nothing_and_escapes_what_it_is_told(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    evil = "<script>alert(1)</script> $x_{"
    given = [run(a, e, s, 0.1 * s, alarms=[evil]) for a in ("ppo", evil) for e in ("maze", "<b>") for s in range(3)]
    given = [replace(r, curves=curved("evaluation", 5), command=f"algo={r.algo}") for r in given]
    results = report.write(given, tmp_path, missing=[evil], command=f"compare {evil}")
    page = (tmp_path / "index.html").read_text(encoding="utf-8")
    assert "<script" not in page and "<b>" not in page and "&lt;script&gt;alert(1)" in page
    for link in re.findall(r'(?:src|href|action|poster|data)="([^"]*)"|url\(([^)]*)\)', page):
        beside = "".join(link)
        assert beside.startswith("#") or (tmp_path / unquote(beside)).is_file(), link
    assert "@import" not in page and "http" not in re.sub(r'xmlns(:\w+)?="[^"]*"', "", page)
    names = re.findall(r'\bid="([^"]+)"', page)
    assert len(names) == len(set(names)) and set(re.findall(r'href="#([^"]+)"', page)) <= set(names)
    assert json.loads((tmp_path / "results.json").read_text(encoding="utf-8")) == results
    for name in ("iqm", "improvement", "profiles", "sample_efficiency", "wall_clock"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")
        assert b"/Subtype /Type3" not in (tmp_path / f"{name}.pdf").read_bytes(), "its fonts are embedded as they are"


def test_the_names_of_papers_are_those_of_plugins_that_there_are() -> None:
    assert set(titles.ALGORITHMS) == set(plugins.names("algorithms"))
    assert set(titles.ENVIRONMENTS) == set(plugins.names("envs"))
    assert titles.algorithm("ppo lr=0.1") == "PPO lr=0.1" and titles.algorithm("ppo2") == "ppo2"
    assert titles.environment("gsm8k") == "Word problems" and titles.environment("gsm8k", "openai/gsm8k") == "GSM8K"
    assert titles.environment("gsm8k shots=4", "openai/gsm8k") == "GSM8K shots=4"


def test_a_comparison_of_a_single_run_is_written_and_one_of_none_refused(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report.write([run()], tmp_path / "new" / "folder")
    assert "one run" in (tmp_path / "new" / "folder" / "index.html").read_text(encoding="utf-8")
    with pytest.raises(UserError, match="no finished run"):
        report.write([], tmp_path)
    with pytest.raises(UserError, match="measures accuracy"):
        report.write([run(), replace(run(), metric="accuracy")], tmp_path)
    accuracy = {"metric": "accuracy"}
    pairs, problems = run("rm", scored="pairs", **accuracy), run("ppo", scored="problems", **accuracy)
    with pytest.raises(UserError, match=r"measures accuracy of problems on maze and .* of pairs"):
        report.write([pairs, problems], tmp_path)
    report.check([pairs, replace(problems, scored="")])  # of an older run


def test_the_terminal_shows_what_the_page_says_in_80_columns(capsys, monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    given = grid(a_x=[0.1, 0.2, 0.3, 0.4, 0.5], b_x=[0.6, 0.7, 0.8, 0.9, 1.0])
    results = compute(given) | {"caveats": ["Missing: c on x"]}
    report.show(results)
    shown = capsys.readouterr().out
    assert "b has the highest interquartile mean and is separated from a." in shown
    best = results["overall"]["b"]
    assert words.interval(best["low"], best["high"], 3) in shown and "Missing: c on x" in shown
    assert max(map(len, shown.splitlines())) <= 80 and "more pairs" not in shown
    report.show(compute([run(f"a{i}", score=0.1 * i) for i in range(7)]))
    assert "6 more pairs are on the page." in capsys.readouterr().out


@pytest.mark.parametrize("large", ["1e308", "-1e308", "1e999", "1" + "0" * 400])
def test_a_score_without_a_mean_is_one_line(large: str, tmp_path: Path) -> None:
    one = folder(tmp_path / "a")
    text = (one / "summary.json").read_text()
    (one / "summary.json").write_text(text.replace('"mean": 7.0', f'"mean": {large}'))
    with pytest.raises(UserError, match="has a score beyond 1e\\+100, of which no mean can be taken"):
        records.read(one)


def test_other_numbers_that_are_too_large_are_none(tmp_path: Path) -> None:
    reference = {"low": -1e308, "high": 1e308, "low_is": "a", "high_is": "b"}
    one = folder(tmp_path / "a", reference=reference)
    text = (one / "summary.json").read_text()
    (one / "summary.json").write_text(
        text.replace('"low": 6.0', '"low": -1e308').replace('"mean": 1.0', '"mean": 1e308')
    )
    with (one / "metrics.jsonl").open("a") as file:
        file.write('{"iteration": 3, "env_steps": 30, "seconds": 2, "eval/return": 1e308}\n')
    found = records.read(one)
    assert (found.low, found.before, found.reference) == (7.0, None, None)
    assert found.curves["evaluation"].value.tolist() == [3.0]


@pytest.mark.filterwarnings("error")
@pytest.mark.slow
def test_the_largest_scores_are_computed_and_drawn_without_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    large = records.HUGE
    found = report.write(grid(a_x=[large, large, -large], b_x=[1.0, 2.0, 3.0]), tmp_path / "out")
    report.show(found)
    assert found["envs"]["x"]["algos"]["a"]["mean"] == pytest.approx(large / 3)
    assert "1.000e+100" in (tmp_path / "out" / "index.html").read_text(encoding="utf-8")
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_a_quiet_comparison_prints_nothing_in_a_notebook(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    shown: list[object] = []
    monkeypatch.setattr(console, "_is_jupyter", lambda: True)
    monkeypatch.setattr("rich.jupyter.display", lambda *what: shown.append(what))
    with muted():
        table("title", ["a", "b"], [["1", "2"]])
        View([], []).console.print("a line")
    assert not shown and not capsys.readouterr().out


def test_a_number_that_is_small_beside_others_is_not_written_as_zero() -> None:
    digits = words.digits_of([1234.5, 0.0004, -0.04, 0.0, -0.0, 1e-17])
    assert [words.figure(x, digits) for x in (1234.5, 0.0004, -0.04, 0.0, -0.0, 1e-17)] == [
        *("1234.5", "0.0004", "-0.04", "0.0", "0.0", "0.0")
    ]
    assert words.figure(0.0004, 3) == "0.0004" and words.figure(-0.0016, 3) == "-0.002"
    found = compute(grid(a_x=[0.0003, 0.0003], b_x=[1.0, 1.0], b_y=[0.0, 0.0], a_y=[0.0003, 0.0003]))
    found["overall"]["a"]["iqm"] = 0.0003
    assert next(row[1] for row in words.over_all(found).rows if row[0] == "a") == "0.0003"


def test_runs_of_one_environment_are_listed_with_as_many_digits() -> None:
    found = compute(grid(a_x=[0.0016, 0.0], b_x=[-0.00016, 0.004], a_y=[120.25, 1.0], b_y=[3.0, 4.0]))
    cells = re.findall(r"<td>(-?[\d.]+)</td>", page.runs(found))
    assert {"0.00160", "0.00000", "-0.00016", "0.00400", "120.2", "1.0"} <= set(cells)
