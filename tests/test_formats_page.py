"""docs/formats.md does what it says, with the packages that are installed, else with stand-ins of their signatures."""

import os
import re
import runpy
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from support.texts import installed

from rlkit.named import named
from rlkit.text.games import Playing
from rlkit.text.rewards import load_rewards
from rlkit.text.rows import tasks_from
from rlkit.text.scoring import columns_of, total
from rlkit.text.sources import read_jsonl

pytest.importorskip("datasets")

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "formats.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
COMMANDS = [line for kind, _, text in BLOCKS if kind == "console" for line in text.splitlines()]
STAND_INS = ROOT / "tests" / "support" / "stand_ins"
PORT = "8765"  # of the page's server


def has(package: str, low: str = "0", high: str = "99") -> bool:
    """Whether a package is installed in a version from `low` to below `high`."""
    try:
        found = tuple(map(int, re.findall(r"\d+", version(package))[:2]))
    except PackageNotFoundError:
        return False
    return tuple(map(int, low.split("."))) <= found < tuple(map(int, high.split(".")))


REAL = {
    "verifiers_environments": has("verifiers", "0.1", "0.4"),
    "verifiers_tasksets": has("verifiers", "0.4"),
    "openenv": has("openenv"),
    "textarena": has("textarena"),
}
NEEDS = {  # file of the page → the stand-in that it can do with
    "from_verifiers.py": "verifiers_environments",
    "from_taskset.py": "verifiers_tasksets",
    "from_openenv.py": "openenv",
    "from_textarena.py": "textarena",
}

MY_SCORE = """
try:
    from verl.utils.reward_score import default_compute_score as compute_score
except ImportError:

    def compute_score(data_source, solution_str, ground_truth, extra_info=None):
        assert data_source == "openai/gsm8k" and extra_info["split"] == "train"
        return {"score": float(solution_str.endswith("#### " + ground_truth))}
"""

MY_ENV = """
import verifiers as vf
from datasets import Dataset


async def right(completion, answer) -> float:
    said = [message["content"] for message in completion if message["role"] == "assistant"]
    return float(said[-1].strip() == answer)


async def short(completion) -> float:
    return float(sum(len(message["content"]) for message in completion) < 20)


class Again(vf.MultiTurnEnv):
    async def setup_state(self, state):
        state["left"] = 2

    async def env_response(self, messages, state, **kwargs):
        state["left"] -= 1
        said = [{"role": "user", "content": f"{state['left']} left"}]
        if not state["left"]:
            state["final_env_response"] = said
        return said


def load_environment():
    rows = Dataset.from_list([{"question": f"What is {n} + {n}?", "answer": str(2 * n)} for n in range(4)])
    rubric = vf.Rubric(funcs=[right, short], weights=[1.0, 0.5])
    return Again(dataset=rows, rubric=rubric)
"""

MY_TASKSET = """
import verifiers.v1 as vf


class Data(vf.TaskData):
    answer: int


class Sum(vf.Task[Data]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        return float(trace.last_reply == str(self.data.answer))


class Sums(vf.Taskset[Sum, vf.TasksetConfig]):
    def load(self):
        return [Sum(Data(prompt=f"What is {n} + {n}?", answer=2 * n), self.config.task) for n in range(4)]
"""

SERVER = """
import sys

import uvicorn
from openenv.core import Action, Environment, Observation, State
from openenv.core.env_server import create_fastapi_app


class Say(Action):
    message: str


class Seen(Observation):
    prompt: str


class Countdown(Environment):
    SUPPORTS_CONCURRENT_SESSIONS = True

    def reset(self, seed=None, episode_id=None, **kwargs):
        self.left = 2
        return Seen(prompt=f"seed {seed}: 2 left")

    def step(self, action, timeout_s=None, **kwargs):
        self.left -= 1
        return Seen(prompt=f"{self.left} left", reward=float(self.left == 0), done=self.left == 0)

    @property
    def state(self):
        return State()


uvicorn.run(create_fastapi_app(Countdown, Say, Seen, max_concurrent_envs=64), port=int(sys.argv[1]), log_level="error")
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the page, and what they convert."""
    place = tmp_path_factory.mktemp("formats")
    own = {"my_score.py": MY_SCORE, "my_env.py": MY_ENV, "my_taskset.py": MY_TASKSET, "server.py": SERVER}
    for name, text in (own | {name: text for _, name, text in BLOCKS if name}).items():
        (place / name).write_text(text, encoding="utf-8")
    return place


@pytest.fixture(scope="module")
def port(folder: Path) -> Iterator[str]:
    """Where OpenEnv's own server listens, if the package is installed."""
    if not REAL["openenv"]:
        yield PORT
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        number = str(free.getsockname()[1])
    server = subprocess.Popen([sys.executable, "server.py", number], cwd=folder, env=environment(""))
    try:
        for _ in range(300):
            with socket.socket() as client:
                if client.connect_ex(("127.0.0.1", int(number))) == 0:
                    break
            time.sleep(0.1)
        yield number
    finally:
        server.terminate()
        server.wait()


def stand_ins(file: str) -> list[str]:
    """Where what a file of the page imports is found, if it is not installed."""
    name = NEEDS.get(file)
    return [] if name is None or REAL[name] else [str(STAND_INS / name)]


def environment(file: str) -> dict[str, str]:
    paths = [str(ROOT), *stand_ins(file), *filter(None, [os.environ.get("PYTHONPATH")])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "COLUMNS": "80", "OMP_NUM_THREADS": "1"}


@pytest.fixture
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Works in the folder, with what a file of the page imports; other tests find none of it."""
    before = set(sys.modules)

    def enter(file: str) -> None:
        monkeypatch.chdir(folder)
        for place in [str(folder), *stand_ins(file)]:
            monkeypatch.syspath_prepend(place)

    yield enter
    foreign = {"verifiers", "openenv", "textarena", "my_env", "my_score", "my_taskset"}
    for name in set(sys.modules) - before:
        if name.partition(".")[0] in foreign:
            del sys.modules[name]


def test_the_table_has_a_line_for_each_system() -> None:
    rows = [row.split("|")[1:5] for row in PAGE.splitlines() if row.startswith("|")][2:]
    assert len(rows) == 7 and {len(row) for row in rows} == {4}
    for *_, line in rows:
        [call] = re.findall(r"`(.+)`", line)
        words = call.split("...")
        assert all(PAGE.count(word) > 1 for word in words), f"{call} is in the table alone"


CASES = {  # file and function: the prompts, completions and their rewards
    "from_trl.py:exact": (["0 plus 0 is", "1 plus 1 is"], [" 0", " 3"], [1, 0]),
    "from_verl.py:score": (["user: 3+4?", "user: 5+5?"], ["#### 7", "#### 8"], [1, 0]),
    "from_verifiers.py:rubric": (
        ["user: What is 0 + 0?", "user: What is 1 + 1?"],
        ["0", "I say that it is 3, or 4"],
        [1.5, 0],
    ),
    "from_taskset.py:rewards": (["What is 0 + 0?", "What is 1 + 1?"], ["0", "3"], [1, 0]),
}


@pytest.mark.parametrize("case", CASES)
def test_rows_and_rewards(folder: Path, inside: Callable[[str], None], case: str) -> None:
    file, (prompts, completions, expected) = case.partition(":")[0], CASES[case]
    inside(file)
    if file == "from_verl.py":
        write_parquet(folder)
    runpy.run_path(file, run_name="__main__")
    assert scored(f"./{case}", completions) == (prompts, expected)


def scored(reward: str, completions: list[str]) -> tuple[list[str], list[float]]:
    """The first prompts of the rows that were written, and what a reward of the page gives for completions of them."""
    tasks = tasks_from(read_jsonl("train.jsonl"))[: len(completions)]
    prompts = [task.question for task in tasks]
    return prompts, total(load_rewards(reward), prompts, completions, columns_of(tasks))


def played(name: str, texts: list[str], **given: str) -> tuple[list[str | None], list[float]]:
    """What a game of the page says to texts, and what each turn earns."""
    made = named("env.game", name)
    playing = Playing(name, lambda: made(**given), [1])
    reply = playing.replies(lambda text: text, [])
    said: list[str | None] = [*playing.first]
    for text in texts:
        if said[-1] is not None:
            said += reply([0], [text])
    return said, playing.rewards[0]


def write_parquet(folder: Path) -> None:
    """Rows as verl's examples/data_preprocess/gsm8k.py makes them."""
    from datasets import Dataset

    rows = [
        {
            "data_source": "openai/gsm8k",
            "prompt": [{"role": "user", "content": question}],
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": answer},
            "extra_info": {"split": "train", "index": at, "question": question},
        }
        for at, (question, answer) in enumerate([("3+4?", "7"), ("5+5?", "10"), ("1+1?", "2"), ("4-1?", "3")])
    ]
    Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))


@pytest.mark.slow  # importing TRL takes seconds
def test_a_function_of_trl_that_expects_messages(inside: Callable[[str], None]) -> None:
    pytest.importorskip("trl")
    inside("from_trl.py")
    runpy.run_path("from_trl.py", run_name="__main__")
    assert scored("./from_trl.py:thinks", ["<think>1 + 1</think> 2", "2"])[1] == [1, 0]


def test_turns_of_verifiers(inside: Callable[[str], None]) -> None:
    inside("from_verifiers.py")
    said, rewards = played("./from_verifiers.py:Turns", ["9", "2"])
    assert said == ["What is 1 + 1?", "1 left", None] and rewards == [0, 1.5]


def test_a_session_of_openenv(inside: Callable[[str], None], port: str) -> None:
    inside("from_openenv.py")
    given = {"url": f"http://127.0.0.1:{port}", "action": "message", "observation": "prompt"}
    said, rewards = played("./from_openenv.py:Client", ["go", "go"], **given)
    assert said == ["seed 1: 2 left", "1 left", None] and rewards == [0, 1]


def test_a_game_of_textarena(inside: Callable[[str], None]) -> None:
    inside("from_textarena.py")
    guesses = [f"[{number}]" for number in range(1, 11)]  # one of them is right, or the ten of a game are spent
    said, rewards = played("./from_textarena.py:Arena", guesses, id="GuessTheNumber-v0")
    assert "uess" in str(said[0]) and said[-1] is None and len(said) == len(rewards) + 1
    assert not any(rewards[:-1]) and (rewards[-1] > 0.9) == (len(rewards) < 10)


def run(folder: Path, *words: str) -> None:
    """Run Python; the words name the file of the page that is used."""
    [file] = re.findall(r"from_\w+\.py", " ".join(words))
    done = subprocess.run([sys.executable, *words], cwd=folder, env=environment(file), capture_output=True, text=True)
    assert done.returncode == 0, f"{words}\n{done.stdout}{done.stderr}"


@pytest.mark.slow
@pytest.mark.parametrize("command", [line for line in COMMANDS if "rlkit" in line])
def test_the_commands_run(folder: Path, port: str, command: str) -> None:
    [file] = re.findall(r"from_\w+\.py", command)
    if file == "from_textarena.py":  # those with messages need a real model, which takes ten times as long
        command = command.replace("smollm2", "tiny")
    if "smollm2" in command and not installed():
        pytest.skip("the model's package is not installed")
    write_parquet(folder)
    if f"python {file}" in COMMANDS:
        run(folder, file)
    small = ["evaluation_episodes=2", "validation_episodes=2"]
    run(folder, *shlex.split(command.replace(PORT, port))[1:], *small)
