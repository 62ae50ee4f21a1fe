"""The home of runs: what the table says of folders, and what the server does with them."""

import http.client
import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from support.served import Client, serve

from rlkit import play, run
from rlkit.pages import home, meanings
from rlkit.settings import config

TINY = ["iterations=3", "threads=1", "evaluation_episodes=2", "env.rows=2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("runs")
    for name, words in {
        "ppo": ["algo=ppo", "env=cartpole"],
        "table": ["algo=q_learning", "env=gridworld", "seed=3"],
        "small": ["algo=q_learning", "env=gridworld", "algo.gamma=0.5"],
    }.items():
        assert run.main([*words, f"out={folder / name}", *TINY]) == 0
    return folder


def table(client: Client) -> dict[str, Any]:
    return {each["name"]: each for each in client.get("/api/home")["runs"]}


def test_each_run_is_a_row_with_what_its_folder_says(runs: Path) -> None:
    summary = json.loads((runs / "table" / "summary.json").read_text())
    with serve(str(runs)) as client:
        rows = table(client)
    assert set(rows) == {"ppo", "table", "small"}
    row = rows["table"]
    assert [row[key] for key in ("algo", "env", "seed", "state")] == ["q_learning", "gridworld", 3, "finished"]
    assert (row["env_steps"], row["seconds"]) == (summary["env_steps"], summary["seconds"])
    assert row["before"] == summary["evaluation"]["before"]["mean"]
    assert row["after"] == summary["evaluation"]["after"]["mean"]
    assert row["date"] == (runs / "table" / "config.yaml").stat().st_mtime


def test_runs_on_two_problems_of_one_environment_are_told_apart(runs: Path, tmp_path: Path) -> None:
    for name in ("Acrobot-v1", "MountainCar-v0"):
        folder = shutil.copytree(runs / "ppo", tmp_path / "a" / name)
        path = folder / "config.yaml"
        path.write_text(path.read_text().replace("name: cartpole", f"name: gym\n  id: {name}"))
    with serve(str(tmp_path / "a")) as client:
        rows = table(client)
        for name, row in rows.items():
            assert row["env"] == client.get(f"/api/{row['key']}/run")["env"] == f"gym:{name}"


def test_a_seed_that_a_page_would_round_is_a_text(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "table", tmp_path / "a" / "one")
    path = tmp_path / "a" / "one" / "config.yaml"
    path.write_text(path.read_text().replace("seed: 3", f"seed: {2**53 + 1}"))
    with serve(str(tmp_path / "a")) as client:
        row = table(client)["one"]
        assert row["seed"] == client.get(f"/api/{row['key']}/run")["seed"] == "9007199254740993"


def test_a_row_changes_with_its_run(runs: Path, tmp_path: Path) -> None:
    shutil.copytree(runs / "table", tmp_path / "a" / "going")
    folder = tmp_path / "a" / "going"
    (folder / "summary.json").unlink()
    with serve(str(tmp_path / "a")) as client:
        assert table(client)["going"]["state"] == "running"
        with (folder / "metrics.jsonl").open("a") as file:
            file.write('{"iteration": 9, "env_steps": 12345, "seconds": 6}\n{"torn')
        assert table(client)["going"]["env_steps"] == 12345
        for path in folder.glob("*.*"):
            os.utime(path, (0, 0))
        assert table(client)["going"]["state"] == "stopped"


@pytest.mark.slow
def test_a_run_that_was_ended_between_two_lines_is_as_long_as_it_was(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "a" / "ended"
    shutil.copytree(runs / "table", folder)
    summary = json.loads((folder / "summary.json").read_text())
    (folder / "summary.json").write_text(json.dumps(summary | {"env_steps": 98765, "finished": False}))
    with serve(str(tmp_path / "a")) as client:
        row = table(client)["ended"]
    assert (row["env_steps"], row["state"]) == (98765, "stopped"), "the last iterations have no line"


def test_the_page_of_a_run_is_of_what_lies_in_its_folder_now(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs" / "one"
    shutil.copytree(runs / "table", folder)
    with serve(str(tmp_path / "runs")) as client, serve(str(folder)) as alone:
        page = f"/api/{table(client)['one']['key']}/run"
        assert client.get(page)["length"] == alone.get("/api/run")["length"] == {"iterations": 3}
        assert run.main([f"resume={folder}", "iterations=5"]) == 0
        assert client.get(page)["length"] == alone.get("/api/run")["length"] == {"iterations": 5}
        shutil.rmtree(folder)
        assert run.main(["algo=sarsa", "env=frozenlake", "seed=4", f"out={folder}", *TINY]) == 0
        told = client.get(page)
        assert [told[key] for key in ("algo", "env", "seed")] == ["sarsa", "frozenlake", 4]


def test_a_damaged_run_is_a_row_that_says_so(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "runs"
    shutil.copytree(runs, folder)
    (folder / "ppo" / "config.yaml").write_text("run: [")
    for name in ("metrics.jsonl", "summary.json", "before.json"):
        (folder / "small" / name).write_bytes(b"\xff\x00{\n[1]\n")
    (folder / "linked").mkdir()
    (folder / "linked" / "config.yaml").symlink_to(folder / "table" / "config.yaml")
    (folder / "elsewhere").symlink_to(runs / "ppo")
    (folder / "notes").mkdir()
    (folder / "note.txt").write_text("no run")
    with serve(str(folder)) as client:
        rows = table(client)
        assert {name: row["state"] == "damaged" for name, row in rows.items()} == {
            "ppo": True,
            "small": False,
            "table": False,
            "linked": True,
        }
        assert "\n" not in rows["ppo"]["reason"]
        assert (rows["small"]["env_steps"], rows["small"]["after"]) == (None, None)
        status, answer = client("GET", f"/api/{rows['linked']['key']}/run")
        assert status == 400 and "link" in answer["error"]
        assert client("GET", f"/api/{rows['ppo']['key']}/run")[0] == 400
        assert client.get(f"/api/{rows['table']['key']}/run")["algo"] == "q_learning"
    assert capsys.readouterr().err == ""


def test_only_what_is_in_the_table_is_opened(runs: Path) -> None:
    with serve(str(runs)) as client:
        key = table(client)["ppo"]["key"]
        assert client.get(f"/api/{key}/run")["parts"] == ["curves", "replay"]
        assert client.get(f"/api/{key}/metrics")["lines"] == client.get(f"/api/metrics?run={key}")["lines"]
        for wrong in ("../ppo", "..", "ppo", "0" * 16, "%2e%2e", str(runs / "ppo")):
            assert client("GET", f"/api/{wrong}/run")[0] in (400, 404), wrong
            assert client("GET", f"/api/metrics?run={wrong}")[0] == 400, wrong
        assert client("GET", f"/api/{key}/run", X_Token="wrong")[0] == 403
        assert client("GET", f"/api/{key}/{key}/run")[0] == 404
        assert client("POST", f"/api/{key}/replay", {"episode": 0})[0] == 200


def test_differences_are_the_keys_that_differ(runs: Path) -> None:
    with serve(str(runs)) as client:
        rows = table(client)
        keys = ",".join(rows[name]["key"] for name in ("table", "small"))
        told = client.get(f"/api/differences?runs={keys}")["rows"]
        assert {each["key"]: each["values"] for each in told} == {"seed": ["3", "0"], "algo.gamma": ["0.9", "0.5"]}
        assert client.get(f"/api/differences?runs={rows['table']['key']}")["rows"] == []
        assert client("GET", "/api/differences?runs=nothing")[0] == 400


def test_long_texts_that_differ_at_their_end_are_different() -> None:
    given = [{"env.prompt": "Think, then answer. " * 20 + end} for end in ("Briefly.", "Slowly.")]
    (told,) = home.differences([*given, {}])
    first, second, none = told["values"]
    assert len({first, second}) == 2 and none is None and max(map(len, (first, second))) < 200


def test_a_file_that_changed_between_two_runs_is_a_difference(runs: Path, tmp_path: Path) -> None:
    for name, mark in {"one": "aa", "other": "bb"}.items():
        shutil.copytree(runs / "table", tmp_path / name)
        with (tmp_path / name / "config.yaml").open("a") as file:
            file.write(f"marks:\n  /mine.py: {mark}\n  /{name}.py: {mark}\n")
    told = home.differences([home.settings(tmp_path / name) for name in ("one", "other")])
    assert told == [{"key": "content of /mine.py", "values": ["aa", "bb"]}]


def test_a_comparison_of_runs_that_lie_elsewhere_is_listed_and_opened(tmp_path: Path) -> None:
    folder = tmp_path / "comparisons" / "of folders"  # what rlkit.compare FOLDER ... writes
    folder.mkdir(parents=True)
    (folder / "results.json").write_text("{}")
    (folder / "index.html").write_text("<p>compared</p>")
    with serve(str(tmp_path / "comparisons")) as client:
        (page,) = client.get("/api/home")["comparisons"]
        assert page["name"] == "of folders" and page["page"]
        assert_sandboxed(client, f"/api/comparison?run={page['key']}&token={client.server.token}")
    with serve(str(folder)) as client:
        assert_sandboxed(client, f"/?token={client.server.token}")


def test_a_comparison_s_page_is_shown_in_a_sandbox(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "comparisons" / "mine"
    shutil.copytree(runs, folder / "runs")
    (folder / "index.html").write_text("<p>compared</p><script>alert(1)</script>")
    with serve(str(tmp_path / "comparisons")) as client:
        told = client.get("/api/home")
        assert {each["name"] for each in told["runs"]} == {f"mine/runs/{name}" for name in ("ppo", "table", "small")}
        (page,) = told["comparisons"]
        assert_sandboxed(client, f"/api/comparison?run={page['key']}&token={client.server.token}")
    with serve(str(folder)) as client:
        assert_sandboxed(client, f"/?token={client.server.token}")
        assert client("GET", "/", X_Token="wrong")[0] == 403
    (folder / "index.html").unlink()
    (folder / "index.html").symlink_to("/etc/hostname")
    with serve(str(tmp_path / "comparisons")) as client:
        (page,) = client.get("/api/home")["comparisons"]
        assert not page["page"]
        assert client("GET", f"/api/comparison?run={page['key']}")[0] == 400


def assert_sandboxed(client: Client, address: str) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", client.server.port)
    connection.request("GET", address)
    reply = connection.getresponse()
    assert reply.status == 200 and reply.read().startswith(b"<p>compared")
    policy = reply.headers["Content-Security-Policy"]
    assert policy.startswith("sandbox; default-src 'none'") and "script" not in policy and "allow" not in policy


def test_without_a_folder_the_runs_here_are_shown(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert play.main([]) == 2
    assert "no folder runs/ here" in capsys.readouterr().err
    shutil.copytree(runs, tmp_path / "runs")
    with serve() as client:
        assert client.get("/api/home")["folders"] == ["runs"]
        assert len(table(client)) == 3
    assert play.main(["runs", "trust=true"]) == 2
    assert "is for the folder of one run" in capsys.readouterr().err


def test_a_folder_with_too_many_runs_is_read_in_turns(runs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with serve(str(runs)) as client:
        monkeypatch.setattr(home, "TURN", -1.0)
        for read in (1, 2, 3, 3):  # each look comes further, however slow it is
            told = client.get("/api/home")
            assert (len(told["runs"]), told["left"]) == (read, 3 - read)
        monkeypatch.setattr(home, "TURN", 60.0)
        assert len(client.get("/api/home")["runs"]) == 3
        monkeypatch.setattr(home, "MOST", 2)
        assert client.get("/api/home")["left"] == 1


def test_the_configuration_of_a_run_that_was_killed_is_not_read_at_each_look(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(runs / "table", tmp_path / "a" / "killed")
    (tmp_path / "a" / "killed" / "summary.json").unlink()
    for path in (tmp_path / "a" / "killed").glob("*.*"):
        os.utime(path, (0, 0))
    with serve(str(tmp_path / "a")) as client:
        assert table(client)["killed"]["state"] == "stopped"
        monkeypatch.setattr(config, "from_folder", lambda folder: pytest.fail("read"))
        assert table(client)["killed"]["state"] == "stopped"


TEXT = ["env.rows=2", "env.validation=4"]
WRITERS = {
    "grpo": ["env=gsm8k", "env.test=4", *TEXT],
    "sft": ["env=gsm8k", "env.test=4", *TEXT],
    "dpo": ["env=preferences", "env.test=4", *TEXT],
    "reward_model": ["env=preferences", "env.test=4", *TEXT],
    "dqn": ["env=cartpole", "env.rows=2", "algo.warmup_steps=4"],
    "sac": ["env=pendulum", "env.rows=2", "algo.warmup_steps=4", "algo.batch_size=4"],
    "a2c": ["env=cartpole", "env.rows=2"],
}
OWN = ("eval/", "rollout/", "train/", "time/")  # the rest is named by the task, its rewards, and the doctor


@pytest.mark.slow
def test_every_metric_that_runs_write_is_explained(runs: Path, tmp_path: Path) -> None:
    for algo, words in WRITERS.items():
        given = [f"algo={algo}", f"out={tmp_path / algo}", "iterations=3", "threads=1", "evaluation_episodes=2"]
        assert run.main([*given, *words]) == 0
    written = {
        name
        for path in [*runs.glob("*/metrics.jsonl"), *tmp_path.glob("*/metrics.jsonl")]
        for line in path.open()
        for name in json.loads(line)
        if "/" in name
    }
    assert {"train/nll", "train/margin", "train/score", "train/temperature", "train/critic_loss"} <= written
    assert not [name for name in written if name.startswith(OWN) and name not in meanings.MEANINGS]
    assert not [name for name in written if not name.startswith(tuple(meanings.FAMILIES))]


def test_the_page_of_metrics_has_every_meaning() -> None:
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z]+/[a-z_]+)` \| (.*) \|$", page, re.MULTILINE)
    assert dict(rows) == meanings.MEANINGS
    families = dict(re.findall(r"^\| `([a-z]+/)NAME` \| (.*) \|$", page, re.MULTILINE))
    assert families and families.items() <= meanings.FAMILIES.items()


def test_meanings_are_one_sentence_each() -> None:
    said = [*meanings.MEANINGS.values(), *meanings.FAMILIES.values()]
    assert len(set(said)) == len(said)
    assert all(one.endswith(".") and one.count(". ") == 0 for one in said)


@pytest.mark.slow
def test_a_run_says_whether_its_steps_are_tokens(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "runs"
    words = ["algo=sft", "env=gsm8k", "iterations=1", "threads=1", "evaluation_episodes=2", "env.test=4", *TEXT]
    assert run.main([*words, f"out={folder / 'sft'}"]) == 0
    shutil.copytree(runs / "table", folder / "table")
    with serve(str(folder)) as client:
        rows = table(client)
        assert {name: row["tokens"] for name, row in rows.items()} == {"sft": True, "table": False}
        assert client.get(f"/api/{rows['sft']['key']}/run")["tokens"]


def test_paths_are_shown_as_the_user_wrote_them(runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(runs / "table", tmp_path / "mine" / "table")
    (tmp_path / "mine" / "broken").mkdir()
    (tmp_path / "mine" / "broken" / "config.yaml").write_text("run: [")
    monkeypatch.chdir(tmp_path)
    with serve("mine") as client:
        rows = table(client)
        assert rows["broken"]["reason"].startswith("mine/broken/config.yaml:1: ")
        assert client.get(f"/api/{rows['table']['key']}/run")["folder"] == "mine/table"
