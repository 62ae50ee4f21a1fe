"""A run's page: what its folder says, and what its newest checkpoint does in memory."""

import http.client
import itertools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from support.served import serve

from rlkit import run, session
from rlkit.pages import runs as pages_runs
from rlkit.settings import config
from rlkit.settings.assemble import assemble
from rlkit.settings.given import Given

ROOT = Path(__file__).resolve().parents[2]
TINY = ["iterations=2", "threads=1", "evaluation_episodes=2"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny run of each kind."""
    folder = tmp_path_factory.mktemp("runs")
    for algo, env in (("ppo", "cartpole"), ("q_learning", "gridworld"), ("grpo", "gsm8k")):
        splits = ["env.test=4", "env.validation=4", "env.rows=8"] if env == "gsm8k" else ["env.rows=2"]
        words = [f"algo={algo}", f"env={env}", f"out={folder / algo}", *TINY, *splits]
        assert run.main(words) == 0
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_run_s_header_and_metrics(runs: Path) -> None:
    with serve(str(runs / "ppo")) as client:
        about = client.get("/api/run")
        assert (about["algo"], about["env"], about["seed"], about["state"]) == ("ppo", "cartpole", 0, "finished")
        assert about["parts"] == ["curves", "replay"] and about["unit"] == "episodes"
        assert about["evaluation"]["after"]["low"] <= about["evaluation"]["after"]["mean"]
        lines = [json.loads(line) for line in (runs / "ppo" / "metrics.jsonl").read_text().splitlines()]
        first = client.get("/api/metrics?file=&offset=0")
        assert first["lines"] == lines
        later = client.get(f"/api/metrics?file={first['file']}&offset={first['offset']}")
        assert later["lines"] == []
        assert later["offset"] == first["offset"]


def test_a_run_that_says_nothing_for_long_goes_on_while_its_process_lives(tmp_path: Path, runs: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_bytes((runs / "ppo" / "config.yaml").read_bytes())
    os.utime(path, (0, 0))
    with serve(str(tmp_path)) as client:
        assert client.get("/api/run")["state"] == "stopped"
        os.utime(path, (2**32, 2**32))  # of another clock, or of a time before this one was set back
        assert client.get("/api/run")["state"] == "stopped"
        with session.locked(tmp_path, Given()):
            assert client.get("/api/run")["state"] == "running"


def test_a_copy_of_a_finished_run_is_finished_in_whatever_order_its_files_were_copied(
    tmp_path: Path, runs: Path
) -> None:
    path = tmp_path / "copy"
    shutil.copytree(runs / "ppo", path)
    os.utime(path / "summary.json", (0, 0))
    for name in ("metrics.jsonl", "config.yaml"):
        os.utime(path / name, (5, 5))
    with serve(str(path)) as client:
        assert client.get("/api/run")["state"] == "finished"
        text = (path / "config.yaml").read_text()
        longer = re.sub(r"(  (iterations|env_steps): )\d+", r"\g<1>10000000", text)  # resumed, and stopped on the way
        assert longer != text
        (path / "config.yaml").write_text(longer)
        os.utime(path / "config.yaml", (5, 5))
        assert client.get("/api/run")["state"] == "stopped"


def test_a_run_that_was_interrupted_is_stopped_as_soon_as_its_summary_says_so(tmp_path: Path, runs: Path) -> None:
    path = tmp_path / "copy"
    shutil.copytree(runs / "ppo", path)
    (path / "metrics.jsonl").touch()  # no minute ago
    summary = json.loads((path / "summary.json").read_text())
    (path / "summary.json").write_text(json.dumps(summary | {"finished": False}))
    with serve(str(path)) as client:
        assert client.get("/api/run")["state"] == "stopped"
        (path / "summary.json").unlink()  # as a resume does
        assert client.get("/api/run")["state"] == "running"


def test_lines_that_are_written_later_are_read_and_a_torn_one_waits(tmp_path: Path, runs: Path) -> None:
    (tmp_path / "config.yaml").write_bytes((runs / "ppo" / "config.yaml").read_bytes())
    path = tmp_path / "metrics.jsonl"
    with serve(str(tmp_path)) as client:
        assert client.get("/api/run")["state"] == "running"
        assert client.get("/api/metrics?file=&offset=0")["lines"] == []
        path.write_text('{"iteration": 1}\n{"iteration": 2')
        first = client.get("/api/metrics?file=&offset=0")
        assert first["lines"] == [{"iteration": 1}]
        path.write_text('{"iteration": 1}\n{"iteration": 2}\n')
        more = client.get(f"/api/metrics?file={first['file']}&offset={first['offset']}")
        assert more["lines"] == [{"iteration": 2}]
        (tmp_path / "new").write_text('{"iteration": 7}\n')  # a resumed run writes the file anew
        (tmp_path / "new").replace(path)
        again = client.get(f"/api/metrics?file={more['file']}&offset={more['offset']}")
        assert (again["from"], again["lines"]) == (0, [{"iteration": 7}])
        assert client("POST", "/api/replay", {"episode": 0})[0] == 400  # no checkpoint yet: one line


@pytest.mark.slow
def test_ratios_are_1_until_something_is_learned_and_the_folder_stays_as_it_is(runs: Path) -> None:
    before = contents(runs / "grpo")
    with serve(str(runs / "grpo")) as client:
        assert client.get("/api/run")["parts"] == ["curves", "tokens", "completions"]
        assert client("POST", "/api/group", {"group": 0})[0] == 400
        told = client.post("play")
        assert (told["passes"], told["groups"], told["size"]) == (0, 8, 8)
        groups = [client.post("group", group=i) for i in range(8)]
        played = [a for group in groups for a in group["attempts"]]
        assert all(abs(ratio - 1) < 1e-4 for a in played for ratio in a["ratio"])
        assert not any(any(a["clipped"]) for a in played)
        assert all(group["prompt"].endswith("?\n") for group in groups)
        for attempt in played:
            lengths = {len(attempt[key]) for key in ("text", "end", "ratio", "advantage", "log_prob", "clipped")}
            assert len(lengths) == 1
            assert max(attempt["log_prob"]) <= 0
        learned = client.post("learn")
        assert learned["passes"] == 1
        moved = [a for i in range(8) for a in client.post("group", group=i)["attempts"]]
        pairs = [(a["advantage"][t], a["ratio"][t] - 1) for a in moved for t in range(len(a["text"]))]
        assert max(abs(change) for _, change in pairs) > 1e-3
        assert sum(advantage * change for advantage, change in pairs) > 0  # what was good became likelier
        # The clip of the shared surrogate, worked by hand: beyond 1.2 where good, below 0.8 where bad.
        for a in moved:
            for t, ratio in enumerate(a["ratio"]):
                good, bad = a["advantage"][t] > 0, a["advantage"][t] < 0
                assert a["clipped"][t] == ((good and ratio > 1.2) or (bad and ratio < 0.8))
        assert client.post("group", group=0)["now"] == learned  # another page may have learned meanwhile
        assert client.post("play")["passes"] == 0
        assert [client.post("group", group=i) for i in range(8)] == groups  # the checkpoint is what it was
        kept = client.get("/api/completions")
        assert kept["iteration"] in kept["iterations"]
        assert kept["records"]
    assert contents(runs / "grpo") == before


@pytest.mark.slow
def test_what_an_environment_wrote_is_told_from_what_the_model_wrote(tmp_path: Path) -> None:
    words = ["algo=grpo", "env=guess", "env.rows=4", "algo.group=4", "env.test=4", "env.validation=4"]
    assert run.main([*words, *TINY, f"out={tmp_path / 'guess'}"]) == 0
    with serve(str(tmp_path / "guess")) as client:
        groups = client.post("play")["groups"]
        played = [a for i in range(groups) for a in client.post("group", group=i)["attempts"]]
    for attempt in played:
        assert {len(attempt[key]) for key in ("text", "end", "ratio", "log_prob")} == {len(attempt["read"])}
        assert attempt["read"][0] is False and attempt["read"][-1] is False, "from its first token to its last"
        assert all(x == 0 for x, read in zip(attempt["log_prob"], attempt["read"], strict=True) if read)
        theirs = "".join(text for text, read in zip(attempt["text"], attempt["read"], strict=True) if read)
        assert sum(map(theirs.count, ("more", "fewer", "Say"))) == attempt_turns(attempt) - 1
    assert any(True in attempt["read"] for attempt in played)


def attempt_turns(attempt: dict[str, list[bool]]) -> int:
    """How often the model begins to write."""
    read = [True, *attempt["read"]]
    return sum(before and not now for before, now in itertools.pairwise(read))


@pytest.mark.slow
def test_an_episode_is_replayed_and_the_folder_stays_as_it_is(runs: Path) -> None:
    before = contents(runs / "ppo")
    with serve(str(runs / "ppo")) as client:
        told = client.post("replay", greedy=True, episode=1)
        assert sum(told["reward"]) > 1
        if told["pictures"]:
            picture = client.get(f"/api/frame?name={told['name']}&at={len(told['reward']) - 1}")
            assert picture.startswith(b"\x89PNG")
            assert client("GET", f"/api/frame?name={told['name']}&at={len(told['reward'])}")[0] == 400
        assert client("GET", "/api/frame?name=none&at=0")[0] == 400
        assert client("POST", "/api/play", {})[0] == 400  # no text here
    assert contents(runs / "ppo") == before


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.slow
def test_without_what_draws_it_is_the_same_episode_with_its_critic(
    greedy: bool, runs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serve(str(runs / "ppo")) as client:
        drawn = client.post("replay", greedy=greedy, episode=3)
        monkeypatch.setitem(sys.modules, "pygame", None)
        told = client.post("replay", greedy=greedy, episode=3)
    assert not told["pictures"] and "pictures need what is not installed" in told["reason"]
    assert all(isinstance(value, float) for value in told["value"])
    assert [told[key] for key in ("reward", "action", "value")] == [drawn[key] for key in ("reward", "action", "value")]
    assert {len(seen) for seen in told["observation"]} == {4} and len(told["observation"]) == len(told["reward"])


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="sends a signal")
def test_what_draws_does_not_swallow_sigterm(runs: Path) -> None:
    pytest.importorskip("pygame")
    words = [sys.executable, "-m", "rlkit.play", str(runs / "ppo"), "open=false"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()  # the version
        address = urlsplit(process.stdout.readline().split()[0])
        connection = http.client.HTTPConnection(address.netloc)
        given = {"Content-Type": "application/json"}
        connection.request("POST", f"/api/replay?{address.query}", '{"episode": 0}', given)
        assert json.loads(connection.getresponse().read())["pictures"]
        process.terminate()
        try:
            assert process.wait(60) == -signal.SIGTERM
        finally:
            process.kill()


def test_the_table_of_a_run_is_drawn_on_its_map(runs: Path) -> None:
    with serve(str(runs / "q_learning")) as client:
        assert client.get("/api/run")["parts"] == ["curves", "replay", "map"]
        drawn = client.post("map")
        assert (drawn["iteration"], drawn["world"]["rows"], len(drawn["learned"]["q"])) == (2, 8, 64)


ODD = {
    "metrics.jsonl": [
        '{"iteration": 1, "train/loss": NaN, "train/kl": Infinity, "rollout/return": 1e999}',
        '{"iteration": [1], "train/loss": "much", "a/b": {"c": 1}}',
        "[" * 100_000,
        '"text"',
    ],
    "completions.jsonl": [
        '{"iteration": [1], "prompt": "a"}',
        '{"iteration": {"a": 1}, "prompt": "b"}',
        '{"iteration": "3", "prompt": "c"}',
        '{"iteration": 2, "prompt": ["d"], "completion": "\\ud800\\u202e", "score": NaN}',
        '{"a": ' * 100_000,
    ],
    "summary.json": ['{"evaluation": {"after": {"mean": [1]}, "before": 3}, "alarms": {"a": 1}, "finished": []}'],
}


def test_odd_files_are_no_error_of_the_server(runs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "config.yaml").write_bytes((runs / "ppo" / "config.yaml").read_bytes())
    for name, lines in ODD.items():
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    with serve(str(tmp_path)) as client:
        about = client.get("/api/run")
        assert (about["evaluation"], about["alarms"]) == ({}, [])
        nothing = {"train/loss": None, "train/kl": None, "rollout/return": None}
        assert client.get("/api/metrics?file=&offset=0")["lines"] == [{"iteration": 1, **nothing}]
        kept = client.get("/api/completions")
        assert kept["iterations"] == [2] and kept["records"] == [
            {"iteration": 2, "completion": "\ud800\u202e", "score": None}
        ]
        for odd in ("nan", "1e400", "-1", "9" * 5000, "[]"):
            assert client("GET", f"/api/completions?iteration={odd}")[0] == 400
    assert capsys.readouterr().err == ""


@pytest.mark.slow
def test_scores_of_a_reward_model_are_of_pairs(tmp_path: Path) -> None:
    parts = assemble(config.read(["algo=reward_model", "env=gsm8k", "env.test=4", "env.validation=4", *TINY]))
    (tmp_path / "config.yaml").write_text(parts.text)
    with serve(str(tmp_path)) as client:
        assert client.get("/api/run")["unit"] == "pairs"


def test_a_completion_has_the_reward_of_each_function(runs: Path, tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_bytes((runs / "ppo" / "config.yaml").read_bytes())
    sample = {"iteration": 1, "prompt": "a", "completion": "b", "score": 1.5, "rewards": {"strict": 1.0, "short": None}}
    (tmp_path / "completions.jsonl").write_text(json.dumps(sample) + "\n" + json.dumps(sample | {"rewards": 3}) + "\n")
    with serve(str(tmp_path)) as client:
        first, odd = client.get("/api/completions")["records"]
        assert first == sample and odd["rewards"] == 3


@pytest.mark.parametrize("name", ["metrics.jsonl", "completions.jsonl", "summary.json", "before.json"])
def test_a_file_without_end_takes_no_memory(name: str, runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "grpo", folder)
    (folder / "summary.json").unlink()
    (folder / name).touch()
    os.truncate(folder / name, 1 << 40)  # of nothing: it takes no room on the disk
    with serve(str(folder)) as client:
        assert client.get("/api/run")["algo"] == "grpo"
        assert client.get("/api/completions")["records"] == [] or name != "completions.jsonl"
        lines = client.get("/api/metrics?file=&offset=0")
        assert len(lines["lines"]) <= 2 and lines["offset"] <= pages_runs.MOST


def test_a_large_file_is_read_in_parts_and_no_line_is_lost(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages_runs, "MOST", 100)
    text = [json.dumps({"iteration": i, "a/b": 0.5}) for i in range(50)]
    folder = tmp_path / "run"
    shutil.copytree(runs / "grpo", folder)
    (folder / "metrics.jsonl").write_text("\n".join([*text, "x" * 250, text[0], "torn"]))
    with serve(str(folder)) as client:
        found, last = [], {"file": "", "offset": 0}
        for _ in range(100):
            last = client.get(f"/api/metrics?file={last['file']}&offset={last['offset']}")
            found += last["lines"]
    assert found == [json.loads(line) for line in [*text, text[0]]]


def test_what_a_configuration_holds_in_place_of_numbers_is_no_error_of_the_page(runs: Path, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    shutil.copytree(runs / "q_learning", folder)
    path = folder / "config.yaml"
    path.write_text(path.read_text().replace("  seed: 0", "  seed: 2001-01-01"))
    with serve(str(folder)) as client:
        about = client.get("/api/run")
    assert about["seed"] == "2001-01-01" and "seed=2001-01-01 is not allowed" in about["reason"]


def test_a_new_run_in_the_place_of_another_is_read_from_its_beginning(tmp_path: Path, runs: Path) -> None:
    """A disk may give its file the number of the one that was removed; here it is the very same file."""
    (tmp_path / "config.yaml").write_bytes((runs / "ppo" / "config.yaml").read_bytes())
    path = tmp_path / "metrics.jsonl"
    with serve(str(tmp_path)) as client:
        path.write_text('{"iteration": 1, "seconds": 1.5}\n{"iteration": 2, "seconds": 1.6}\n')
        first = client.get("/api/metrics?file=&offset=0")
        for lines in ('{"iteration": 1, "seconds": 1.7}\n', '{"iteration": 1, "seconds": 1.8}\n{"iteration": 2}\n' * 9):
            path.write_text(lines)
            again = client.get(f"/api/metrics?file={first['file']}&offset={first['offset']}")
            assert again["from"] == 0 and len(again["lines"]) == lines.count("\n")


def test_another_run_in_the_place_of_one_is_not_shown_as_that_one(tmp_path: Path, runs: Path) -> None:
    folder = shutil.copytree(runs / "ppo", tmp_path / "run")
    with serve(str(folder)) as client:
        assert run.main([f"resume={folder}", "iterations=3", "threads=1"]) == 0
        assert client.get("/api/run")["length"] == {"iterations": 3}
        shutil.rmtree(folder)
        assert run.main(["algo=ppo", "env=cartpole", f"out={folder}", "algo.gamma=0.5", *TINY]) == 0
        for asked in (("GET", "/api/run"), ("GET", "/api/metrics?file=&offset=0"), ("POST", "/api/replay", {})):
            status, answer = client(*asked)
            assert status == 400 and "holds another run, or other settings, now: start rlkit.play" in str(answer)
