"""Folders that a comparison reads: damaged, hostile or of a stranger; each is one line, none is followed outside."""

import errno
import json
import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from filelock import FileLock
from support.marks import slow_after

from rlkit import compare
from rlkit.api import UserError
from rlkit.comparison import grid, records, view
from rlkit.comparison.caveats import caveats
from rlkit.comparison.grid import Job
from rlkit.comparison.results import compute

AFTER = {"metric": "return", "mean": 7.0, "low": 6.0, "high": 8.0, "episodes": 100}
LINE = {"iteration": 1, "env_steps": 10, "seconds": 1.0, "eval/return": 3.0}


def folder(at: Path, summary: object = None, lines: object = (LINE,), config: str = "", **changes: object) -> Path:
    """A finished run of ppo, with other values in its files."""
    at.mkdir(parents=True)
    (at / "config.yaml").write_text(config or "run: {seed: 3}\nalgo: {name: ppo}\nenv: {name: cartpole}\n")
    told = {
        "algo": "ppo",
        "env": "cartpole",
        "seed": 3,
        "env_steps": 50,
        "seconds": 1.5,
        "evaluation": {"after": AFTER},
    }
    text = summary if isinstance(summary, str) else json.dumps({**told, **changes})
    (at / "summary.json").write_text(text)
    assert isinstance(lines, tuple)
    (at / "metrics.jsonl").write_text("".join((x if isinstance(x, str) else json.dumps(x)) + "\n" for x in lines))
    return at


NO_RECORDS = (
    *("[1, 2]", "7", "null", '"text"', "{", "\x00" * 50, "[" * 100_000, '{"env_steps": ' + "9" * 5000 + "}"),
    *({**LINE, "eval/return": x} for x in (None, "3", [1], {}, True, float("nan"), float("inf"), 1e308, 10**400)),
    *({**LINE, "env_steps": x} for x in (None, "many", [1], float("nan"), 10**400)),
)


def test_lines_of_the_metrics_that_are_no_record_are_left_out(tmp_path: Path) -> None:
    found = records.read(folder(tmp_path / "a", lines=(LINE, *NO_RECORDS, {**LINE, "env_steps": 20})))
    assert found.curves["evaluation"].env_steps.tolist() == [10.0, 20.0]
    (tmp_path / "a" / "metrics.jsonl").unlink()
    os.mkfifo(tmp_path / "a" / "metrics.jsonl")
    assert records.read(tmp_path / "a").curves == {}, "a pipe is not waited for"


def test_a_clock_that_goes_back_leaves_a_curve_in_order(tmp_path: Path) -> None:
    lines = tuple({**LINE, "env_steps": 10 * i, "seconds": s} for i, s in enumerate([1.0, 5.0, 2.0, 6.0], 1))
    assert records.read(folder(tmp_path / "a", lines=lines)).curves["evaluation"].seconds.tolist() == [1, 5, 5, 6]


def test_problems_that_end_alike_have_columns_of_their_own(tmp_path: Path) -> None:
    def run(name: str, problem: str) -> records.Record:
        config = f"run: {{seed: 3}}\nalgo: {{name: ppo}}\nenv: {{name: gym, id: {problem}}}\n"
        return records.read(folder(tmp_path / name, config=config, env="gym"))

    one, two, other = run("a", "one/Maze-v0"), run("b", "two/Maze-v0"), run("c", "Pong-v5")
    assert [r.env for r in (one, two)] == ["gym:Maze-v0"] * 2
    assert [r.env for r in records.apart([one, two, other, one])] == [
        *("gym:one/Maze-v0", "gym:two/Maze-v0", "gym:Pong-v5", "gym:one/Maze-v0")
    ]
    assert records.apart([one, other, one]) == [one, other, one]
    hard = [replace(r, env="gym:Maze-v0 kwargs.size=9") for r in (one, two)]
    assert [r.env for r in records.apart(hard)] == [f"gym:{x}/Maze-v0 kwargs.size=9" for x in ("one", "two")]


@pytest.mark.parametrize(
    ("env", "column"),
    [
        ("{name: atari, game: pong}", "atari:pong"),
        ("{name: minatar, game: breakout}", "minatar:breakout"),
        ("{name: reasoning, task: [gcd, lcm]}", "reasoning:gcd, lcm"),
        ("{name: reasoning, task: []}", "reasoning"),
        ("{name: game, game: '/there/mine.py:Game'}", "game:mine.py:Game"),
    ],
)
def test_a_game_and_a_task_have_a_column_of_their_own(tmp_path: Path, env: str, column: str) -> None:
    config = f"run: {{seed: 3}}\nalgo: {{name: ppo}}\nenv: {env}\n"
    found = records.read(folder(tmp_path / "a", config=config, env=env[1:].partition(",")[0].partition(" ")[2]))
    assert found.env == column
    assert records.apart([found]) == [found]


def test_classes_of_one_name_in_two_files_have_columns_of_their_own(tmp_path: Path) -> None:
    text = "run: {seed: 3}\nalgo: {name: ppo}\nenv: {name: gym, id: null, entry: '/%s/mine.py:World'}\n"
    found = [records.read(folder(tmp_path / name, config=text % name, env="gym")) for name in ("one", "two")]
    assert [r.env for r in found] == ["gym:mine.py:World"] * 2
    assert [r.env for r in records.apart(found)] == [f"gym:/{name}/mine.py:World" for name in ("one", "two")]


def test_problems_of_several_sources_have_columns_of_their_own(tmp_path: Path) -> None:
    def run(name: str, source: str, mark: str = "", test: str = "") -> records.Record:
        marks = f"marks: {{{source}: '{mark}', /{name}/test.jsonl: '{test}'}}\n" if mark else ""
        config = f"run: {{seed: 3}}\nalgo: {{name: grpo}}\nenv: {{name: gsm8k, source: {source}}}\n{marks}"
        return records.read(folder(tmp_path / name, config=config, algo="grpo", env="gsm8k"))

    embedded, hub = run("a", "embedded"), run("b", "openai/gsm8k")
    one, moved = (run(at, f"/{at}/train.jsonl", "11") for at in "cd")
    other = run("e", "/e/train.jsonl", "22")
    old = replace(embedded, settings={})
    assert [r.env for r in records.apart([embedded, hub])] == ["gsm8k source=embedded", "gsm8k source=gsm8k"]
    columns = [f"gsm8k source={path}" for path in ("/c/train.jsonl", "/c/train.jsonl", "/e/train.jsonl")]
    assert [r.env for r in records.apart([one, moved, other])] == columns, "a file is the same wherever it lies"
    for alike in ([embedded, embedded, old], [one, moved]):
        assert records.apart(alike) == alike
    same = [run(at, f"/{at}/train.jsonl", mark, "99") for at, mark in (("g", "33"), ("h", "44"))]
    assert records.apart(same) == same, "trained on other problems, measured on the same"
    told = [caveats([one, run], compute([one, run])) for run in (moved, other)]
    assert ["not given the same task" in " ".join(texts) for texts in told] == [False, True]


def test_plug_ins_of_one_name_have_rows_and_columns_of_their_own(tmp_path: Path) -> None:
    def run(name: str, algo: str, env: str, mark: str = "") -> records.Record:
        marks = f"marks: {{{algo}: '{mark}'}}\n" if mark else ""
        config = f"run: {{seed: 3}}\nalgo: {{name: {algo}}}\nenv: {{name: {env}}}\n{marks}"
        return records.read(folder(tmp_path / name, config=config, algo=algo, env=env))

    built, mine = run("a", "ppo", "cartpole"), run("b", "/x/ppo.py", "cartpole", "11")
    moved, other = run("c", "/y/ppo.py", "cartpole", "11"), run("d", "/z/ppo.py", "cartpole", "22")
    assert [r.algo for r in records.apart([built, mine])] == ["ppo", "ppo ppo.py"]
    rows = ["ppo", *(f"ppo /{folder}/ppo.py" for folder in "xxz")]
    assert [r.algo for r in records.apart([built, mine, moved, other])] == rows
    assert records.apart([mine, moved]) == [mine, moved]
    named = [replace(run(at, algo, "cartpole"), algo="careful") for at, algo in (("g", "ppo"), ("h", "a2c"))]
    assert [r.algo for r in records.apart(named)] == ["careful ppo", "careful a2c"]
    worlds = [run("e", "ppo", "/x/world.py"), run("f", "ppo", "/y/world.py")]
    assert [r.env for r in records.apart(worlds)] == ["world /x/world.py", "world /y/world.py"]


@pytest.mark.parametrize(
    ("one", "other", "says"),
    [
        (("/a/world.py", "11"), ("/b/world.py", "22"), "were not given the same task: env.name is /a/world.py and /b"),
        (("/a/world.py", "11"), ("/a/world.py", "22"), "/a/world.py has changed between the runs on world."),
    ],
)
def test_two_algorithms_in_two_environments_of_one_name_are_told(
    one: tuple[str, str], other: tuple[str, str], says: str, tmp_path: Path
) -> None:
    text = "run: {seed: 3}\nalgo: {name: %s}\nenv: {name: %s}\nmarks: {%s: '%s'}\n"
    found = [
        records.read(folder(tmp_path / algo, config=text % (algo, name, name, mark), algo=algo, env=name))
        for algo, (name, mark) in {"ppo": one, "dqn": other}.items()
    ]
    said = [sentence for sentence in caveats(found, compute(found)) if "world.py" in sentence]
    assert len(said) == 1 and says in said[0]


WRONG = {
    "a score that is not a measurement": {"evaluation": {"after": {**AFTER, "mean": 1e308}}},
    "a score of 400 digits": {"evaluation": {"after": {**AFTER, "mean": 10**400}}},
    "no number": {"evaluation": {"after": {**AFTER, "mean": float("nan")}}},
    "steps without a number": {"env_steps": float("nan")},
    "seconds without end": {"seconds": float("inf")},
    "a seed of words": {"seed": [1]},
    "a name that is a list": {"algo": ["ppo"]},
    "a metric that is a list": {"evaluation": {"after": {**AFTER, "metric": ["return"]}}},
    "lists in lists": {"summary": "[" * 100_000},
    "an integer without end": {"summary": "9" * 100_000},
    "bytes": {"summary": "\x00\x01"},
    "a config of lists": {"config": "- 1\n- 2\n"},
    "a config of one word": {"config": "ppo\n"},
}


@pytest.mark.parametrize("case", slow_after(4, WRONG))
def test_a_damaged_run_is_left_out_in_one_line(tmp_path: Path, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    good, bad = folder(tmp_path / "good"), folder(tmp_path / "bad", **WRONG[case])  # type: ignore[arg-type]
    assert compare.main([str(good), str(bad), f"out={tmp_path / 'out'}"]) == 0
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"left out: {bad}")
    assert [run["folder"] for run in json.loads((tmp_path / "out/results.json").read_text())["runs"]] == ["../good"]
    assert compare.main([str(bad), f"out={tmp_path / 'other'}"]) == 2
    assert not (tmp_path / "other").exists()


def test_a_file_larger_than_any_summary_is_not_read(tmp_path: Path) -> None:
    at = folder(tmp_path / "a")
    os.truncate(at / "summary.json", 2**40)
    with pytest.raises(UserError, match=r"summary.json cannot be read: it has more than 16,777,216 bytes"):
        records.read(at)


@pytest.mark.slow
def test_a_comparison_leads_to_its_own_runs_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    private = folder(tmp_path / "private")
    runs = folder(tmp_path / "comparison" / "runs" / "a").parent
    (runs / "linked").symlink_to(private)
    (runs / "round").symlink_to(runs)
    os.mkfifo(runs / "pipe")
    (runs / "a.txt").write_text("what it printed")
    (runs / "empty").mkdir()
    assert compare.main([str(tmp_path / "comparison"), f"out={tmp_path / 'out'}"]) == 0
    said = capsys.readouterr().err.splitlines()
    assert sum("is a link" in line for line in said) == 2 and len(said) == 3
    assert len(json.loads((tmp_path / "out/results.json").read_text())["runs"]) == 1
    assert compare.main([str(runs / "linked"), f"out={tmp_path / 'out'}"]) == 0, "one that is named is meant"


def test_what_a_strangers_folder_names_is_not_imported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("matplotlib")
    code = tmp_path / "evil.py"
    code.write_text(f"open({str(tmp_path / 'ran')!r}, 'w')\n")
    config = f"run: {{seed: 3}}\nalgo: {{name: {code}}}\nenv: {{name: {code}}}\n"
    at = folder(tmp_path / "c/runs/a", algo=str(code), env=str(code), config=config)
    (tmp_path / "c" / "results.json").write_text('{"commands": ["touch x"]}')
    assert compare.main([str(tmp_path / "c"), f"out={tmp_path / 'out'}"]) == 0
    assert not (tmp_path / "ran").exists() and "evil" not in sys.modules
    named = tmp_path / "mine" / "runs" / "q_learning-gridworld-s0"
    named.parent.mkdir(parents=True)
    at.rename(named)
    words = ["algo=q_learning", "env=gridworld", "seed=0", "iterations=2", f"out={tmp_path / 'mine'}"]
    capsys.readouterr()
    assert compare.main(words) == 2 and "holds another run: " in capsys.readouterr().err
    assert not (tmp_path / "ran").exists()


def job(at: Path) -> Job:
    return Job("ppo", "e", 0, at, (), {"run": {"iterations": 10, "env_steps": None}}, at.parent)


@pytest.mark.parametrize("text", ["[]", "7", "{", "\x00", "[" * 100_000, '{"finished": [true'])
def test_a_summary_that_cannot_be_read_is_of_a_run_that_was_cut_off(tmp_path: Path, text: str) -> None:
    assert grid.state(job(folder(tmp_path / "a", summary=text))) == "cut off"
    (tmp_path / "a" / "summary.json").write_bytes(b"\xff\xfe")
    assert grid.state(job(tmp_path / "a")) == "cut off"


def test_progress_reads_over_what_is_no_record(tmp_path: Path) -> None:
    odd = (*NO_RECORDS[:6], "[" * 5000, {"iteration": "9", "eval/return": [1], "env_steps": 10**400})
    at = folder(tmp_path / "a", lines=(LINE | {"iteration": 4}, *odd))
    assert view.progress(job(at)) == (0.4, {"iteration": 4, "env_steps": 10, "seconds": 1.0, "eval/return": 3.0})


def test_a_lock_that_is_a_link_or_a_pipe_is_no_lock(tmp_path: Path) -> None:
    at = folder(tmp_path / "a")
    (at / ".lock").symlink_to(tmp_path / "private")
    with FileLock(tmp_path / "private"):
        assert not grid.is_locked(at)
    (tmp_path / "private").write_text("mine")
    (at / ".lock").unlink()
    os.mkfifo(at / ".lock")
    assert not grid.is_locked(at)
    (tmp_path / "c").mkdir()
    (tmp_path / "c" / ".lock").symlink_to(tmp_path / "private")
    with pytest.raises(UserError, match=r"cannot lock .*\.lock"), grid.alone(tmp_path / "c"):
        pass
    assert (tmp_path / "private").read_text() == "mine"


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_a_disk_that_cannot_lock_is_one_line(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fcntl = pytest.importorskip("fcntl")

    def flock(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    (tmp_path / ".lock").touch()
    monkeypatch.setattr(fcntl, "flock", flock)
    words = r"cannot lock .*\.lock: (no locks available|operation not supported); choose another out="
    with pytest.raises(UserError, match=words), grid.alone(tmp_path):
        pytest.fail("it is not locked")
    with pytest.raises(UserError, match=words):
        grid.is_locked(tmp_path)


@pytest.mark.parametrize("after", [{"mean": 1, "low": 1, "high": 1}, {**AFTER, "mean": 10**400}, {"mean": []}, [], 1])
def test_a_score_of_a_strangers_is_shown_or_none(after: object, tmp_path: Path) -> None:
    shown = view.score(job(folder(tmp_path / "a", evaluation={"after": after})))
    assert shown in ("score 1, 95 % 1 to 1", "finished, without a score")


def test_what_is_written_beside_a_run_follows_no_link(tmp_path: Path) -> None:
    one = job(folder(tmp_path / "a", finished=False))
    (tmp_path / "private").write_text("mine")
    one.now.symlink_to(tmp_path / "private")
    with pytest.raises(UserError, match="is a link, and links in a folder that rlkit writes are refused"):
        grid.carry_out(one, tmp_path / ".stop")
    assert (tmp_path / "private").read_text() == "mine"


def test_a_word_longer_than_a_file_name_is_read_as_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    assert compare.main([f"algo={','.join(f'algorithm_{i}' for i in range(40))}", "env=cartpole"]) == 2
    assert "no algorithm 'algorithm_0'" in capsys.readouterr().err
    assert compare.main(["x" * 5000]) == 2
    assert capsys.readouterr().err.count("\n") == 2


def test_no_run_is_written_through_a_link(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "runs").symlink_to(tmp_path / "elsewhere")
    words = ["algo=q_learning", "env=gridworld", "seed=0", "iterations=1", f"out={tmp_path / 'out'}"]
    assert compare.main(words) == 2
    assert "is a link, and links in a folder that rlkit writes are refused" in capsys.readouterr().err
    assert not list((tmp_path / "elsewhere").iterdir())


def test_rows_that_would_be_one_folder_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=Slow:q_learning,slow:q_learning", "env=gridworld", "seed=0", "iterations=1", f"out={tmp_path}"]
    (tmp_path / "RUNS").mkdir()  # as `runs` is called, too, where capital and small letters are the same
    assert compare.main(words) == 2
    assert "Slow-gridworld-s0 and slow-gridworld-s0 would be one folder, as capital" in capsys.readouterr().err
    (tmp_path / "RUNS").rmdir()
    assert compare.main([*words, "evaluations=0", "evaluation_episodes=1"]) == 0
