"""What a command says first, and the console script: rlkit run ..., rlkit list, python -m rlkit."""

import errno
import importlib
import json
import os
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from support.processes import python

import rlkit
from rlkit import __main__ as script
from rlkit.console import guarded
from rlkit.errors import UserError
from rlkit.terminal import Out

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("run", "evaluate", "compare", "tune", "plan", "play", "new")
FIRST = """if True:
    import sys

    class Screen:
        encoding = "utf-8"

        def write(self, text):
            heavy = {"torch", "numpy", "gymnasium", "pydantic", "rich", "yaml"} & sys.modules.keys()
            sys.exit(f"{text.strip()}, and before it: {sorted(heavy)}")

        def flush(self):
            pass

    sys.stdout = Screen()
    from rlkit.MODULE import main
    main(WORDS)
"""


CASES = [
    ("run", ["algo=ppo", "env=cartpole"]),
    ("run", ["algo=dqm", "env=cartpole"]),
    ("run", ["--help"]),
    ("evaluate", ["nowhere"]),
    ("evaluate", ["--help"]),
    ("compare", ["algo=ppo", "wrokers=2"]),
    ("compare", ["--help"]),
    ("tune", ["algo=ppo", "env=cartpole", "trails=2"]),
    ("plan", ["model=7b", "gpu=8"]),
    ("plan", ["--help"]),
    ("play", ["--help"]),
    ("new", ["algo", "mine"]),
    ("new", ["--help"]),
    ("__main__", ["run", "algo=ppo", "env=cartpole"]),
    ("__main__", ["rnu"]),
    ("__main__", ["list"]),
    ("__main__", ["--help"]),
    ("__main__", ["play", "env=gridworld"]),
    ("__main__", []),
]


@pytest.mark.parametrize(("module", "words"), CASES, ids=str)
def test_the_first_line_comes_before_anything_heavy_is_imported(module: str, words: list[str]) -> None:
    done = python(ROOT, "-c", FIRST.replace("MODULE", module).replace("WORDS", repr(words)), columns=100)
    assert done.stderr == f"rlkit {rlkit.__version__}, and before it: []\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_can_be_given_both_ways(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main([name, "--help"]) == 0
    said = capsys.readouterr().out
    assert importlib.import_module(f"rlkit.{name}").main(["--help"]) == 0
    assert capsys.readouterr().out == said and said.startswith(f"rlkit {rlkit.__version__}\n")


@pytest.mark.slow
def test_python_dash_m_runs_it_from_anywhere(tmp_path: Path) -> None:
    words = ["algo=q_learning", "env=gridworld", "iterations=1", "evaluation_episodes=2", "out=r"]
    done = python(tmp_path, "-m", "rlkit", "run", *words, columns=100)
    assert done.returncode == 0 and (tmp_path / "r" / "summary.json").is_file(), done.stderr
    done = python(tmp_path, "-m", "rlkit", "run", "algo=dqm", "env=cartpole", columns=100)
    assert done.returncode == 2 and done.stdout == f"rlkit {rlkit.__version__}\n"
    assert done.stderr.startswith("rlkit: no algorithm 'dqm': did you mean dqn?") and done.stderr.count("\n") == 1


def test_the_console_script_is_this_function_and_imports_plug_ins_from_where_one_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    assert scripts == {"rlkit": "rlkit.__main__:main"}
    (tmp_path / "my_console_pkg.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(tmp_path))])
    monkeypatch.setattr(sys, "argv", ["/usr/bin/rlkit", "run", "algo=my_console_pkg.none", "env=cartpole"])
    assert script.main() == 2
    assert "there is no module 'my_console_pkg.none' here" in capsys.readouterr().err, "not my_console_pkg"


def test_list_names_every_plug_in_with_a_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert script.main(["list"]) == 0
    said = capsys.readouterr().out
    for name, about in {**rlkit.list_algorithms(), **rlkit.list_environments()}.items():
        assert about and f"\n  {name} " in said
    assert "Proximal policy optimization" in said and max(map(len, said.splitlines())) <= 80


def test_help_version_and_a_typo(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["--version"]) == 0
    assert capsys.readouterr().out == f"rlkit {rlkit.__version__}\n"
    for words in ([], ["--help"], ["-h"], ["list", "--help"], ["list", "-h"]):
        assert script.main(words) == 0
        said = capsys.readouterr().out
        assert all(f"\n    {name} " in said for name in (*COMMANDS, "list"))
    for words, says in ((["rnu"], "no command 'rnu': did you mean run?"), (["list", "algos"], "'algos'")):
        assert script.main(words) == 2
        error = capsys.readouterr().err
        assert says in error and error.count("\n") == 1


# A plug-in whose import lasts until a signal comes, and which makes of that what NumPy's does.
LASTING = """import time

print("importing", flush=True)
try:
    while True:
        time.sleep(0.01)
except BaseException as error:
    raise ImportError("numpy.core.multiarray failed to import") from error
"""
# The command with Ctrl-C at the moment in which a certain module begins to be imported.
AT_THE_IMPORT = """if True:
    import os, runpy, signal, sys

    def look(event, given):
        if event == "import" and given[0] == {module!r} and not sent:
            sent.append(os.kill(os.getpid(), signal.SIGINT))

    sent = []
    sys.addaudithook(look)
    sys.argv = ["rlkit.run", "algo=ppo", "env=cartpole", "out=r"]
    runpy.run_module("rlkit.run", run_name="__main__", alter_sys=True)
"""
posix = pytest.mark.skipif(os.name != "posix", reason="sends the signal of Ctrl-C, closes streams as a shell does")


@posix
@pytest.mark.slow
def test_ctrl_c_during_an_import_is_one_line_whatever_the_import_makes_of_it(tmp_path: Path) -> None:
    (tmp_path / "lasting.py").write_text(LASTING)
    words = [sys.executable, "-m", "rlkit.run", "algo=./lasting.py", "env=cartpole", "out=r"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(words, cwd=tmp_path, env=environment, **pipes) as process:
        assert process.stdout is not None
        while "importing" not in (line := process.stdout.readline()):
            assert line, "it ended before"
        process.send_signal(signal.SIGINT)
        _, error = process.communicate()
    assert (process.returncode, error) == (1, "rlkit: stopped\n")
    assert not (tmp_path / "r").exists()


@posix
@pytest.mark.parametrize("module", ["rlkit.session", "numpy", "torch"])
@pytest.mark.slow
def test_ctrl_c_at_any_import_of_a_command_is_one_line(module: str, tmp_path: Path) -> None:
    done = python(tmp_path, "-c", AT_THE_IMPORT.format(module=module), columns=100)
    assert (done.returncode, done.stderr) == (1, "rlkit: stopped\n")
    assert done.stdout == f"rlkit {rlkit.__version__}\n" and not list(tmp_path.iterdir())


def test_ctrl_c_belongs_to_whoever_took_it_before(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.getsignal(signal.SIGINT)
    heard: list[int] = []

    def mine(number: int, _: object) -> None:
        heard.append(number)

    def command(argv: list[str]) -> int:
        signal.raise_signal(signal.SIGINT)
        return 0

    try:
        signal.signal(signal.SIGINT, mine)
        assert guarded(command, []) == 0 and heard == [signal.SIGINT]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert guarded(command, []) == 1
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)


@posix
@pytest.mark.parametrize("closed", [">&-", pytest.param("<&- >&- 2>&-", marks=pytest.mark.slow)])
@pytest.mark.slow
def test_a_closed_stream_is_no_error_and_nothing_is_printed_into_a_file(closed: str, tmp_path: Path) -> None:
    words = "algo=q_learning env=gridworld iterations=2 evaluation_episodes=2 out=r"
    shell = f'exec "{sys.executable}" -m rlkit.run {words} {closed}'
    environment = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(["sh", "-c", shell], cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 0 and done.stderr == ""
    assert [json.loads(line)["iteration"] for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert json.loads((tmp_path / "r" / "summary.json").read_text())["finished"]


def test_an_error_is_one_line_whatever_it_holds(capsys: pytest.CaptureFixture[str]) -> None:
    assert script.main(["run", "algo=pp\no\x1b[2J\u202e", "env=cartpole"]) == 2
    error = capsys.readouterr().err
    assert error.startswith("rlkit: no algorithm 'pp o\ufffd[2J\ufffd'") and error.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 10 bytes"),
        RuntimeError("CUDA out of memory. Tried to allocate 2 GiB"),
    ],
)
def test_memory_that_runs_out_is_one_line(error: Exception, capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise error

    assert guarded(command, []) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlkit: memory ran out, ") and said.count("\n") == 1


def test_nowhere_to_write_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp', '/here']")

    assert guarded(command, []) == 2
    assert capsys.readouterr().err == (
        "rlkit: the system writes no more files, neither here nor in the folder for temporary files: free some space\n"
    )


def test_an_output_that_takes_no_more_now_is_not_taken_for_a_limit(capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise BlockingIOError(errno.EAGAIN, "write could not complete without blocking", 0)  # Python's own words

    assert guarded(command, []) == 1
    assert "ulimit" not in capsys.readouterr().err


def test_an_error_of_torch_is_still_shown_whole(capsys: pytest.CaptureFixture[str]) -> None:
    def command(words: list[str]) -> int:
        raise RuntimeError("shapes differ")

    assert guarded(command, []) == 1
    assert "Traceback" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
def test_output_that_goes_to_a_full_disk_stops_nothing(tmp_path: Path) -> None:
    words = ["algo=q_learning", "env=gridworld", "iterations=2", "evaluation_episodes=2", "threads=1", "out=run"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    with open("/dev/full", "w") as full:
        command = [sys.executable, "-m", "rlkit.run", *words]
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "run" / "summary.json").is_file()


@pytest.mark.slow
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no device that is always full")
@pytest.mark.parametrize("words", ["plan model=0.5b", "list"])
def test_a_command_that_only_prints_says_that_it_could_not(words: str) -> None:
    command = [sys.executable, "-m", "rlkit", *words.split()]
    with open("/dev/full", "w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert (done.returncode, done.stderr) == (2, "rlkit: cannot print: no space left on device\n")


def test_only_a_full_disk_is_an_error_of_what_is_printed() -> None:
    class Stream:
        error: OSError = BrokenPipeError()

        def write(self, text: str) -> int:
            raise self.error

        def flush(self) -> None: ...

    stream: Any = Stream()
    out = Out(stream, needed=True)
    with pytest.raises(BrokenPipeError):
        out.write("a")
    stream.error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with pytest.raises(UserError, match=r"^cannot print: no space left on device$"):
        out.write("a")
    Out(stream).write("a")  # a run goes on


@pytest.mark.parametrize(
    ("error", "says"),
    [
        (
            OSError(errno.EMFILE, os.strerror(errno.EMFILE)),
            "the system opens no more files: close some, or raise ulimit -n",
        ),
        (RuntimeError("unable to open file <x> in read-only mode: Too many open files (24)"), "raise ulimit -n"),
        (
            BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN)),
            "processes and threads: end some, or raise ulimit -u",
        ),
        (RuntimeError("can't start new thread"), "raise ulimit -u"),
        (
            OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "mine.csv"),
            "writes no more files: no space left on the disk (mine.csv)",
        ),
    ],
)
def test_what_the_system_allows_no_more_of_is_one_line(
    error: Exception, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def command(argv: list[str]) -> int:
        raise error

    assert guarded(command, []) == 2
    said = capsys.readouterr().err
    assert said.startswith("rlkit: the system ") and said.endswith(f"{says}\n") and said.count("\n") == 1
