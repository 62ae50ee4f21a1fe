"""What a run folder names outside rlkit runs only with trust, and only as it was when the run began."""

import json
import os
import py_compile
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from rlkit import compare, evaluate, run
from rlkit.api import UserError
from rlkit.comparison import plan
from rlkit.errors import RewardFailed
from rlkit.pages import choice
from rlkit.pages.runs import RunPage
from rlkit.settings import config, plugins
from rlkit.settings.assemble import assemble
from rlkit.settings.schema import once
from rlkit.text.rewards import load_rewards

ROOT = Path(__file__).parents[2]
SHORT = ["iterations=1", "evaluation_episodes=2", "threads=1"]
TEXT = [
    *SHORT,
    "env=gsm8k",
    "algo=grpo",
    "env.rows=2",
    "env.max_tokens=4",
    "algo.group=2",
    "env.train=20",
    "env.test=4",
]
TEXT += ["env.validation=4"]
CANARY = "from pathlib import Path\nPath({!r}).touch()\n"
PLUGIN = CANARY + "from rlkit.{kind}.{name} import Config, make\n"
REWARD = CANARY + "def f(prompts, completions, **columns):\n    return [1.0] * len(completions)\n"

LOOKALIKES = ["bracket", "called model", "model entry"]  # code that looks like what names none

Line = Callable[[Path], list[str]]
COMMANDS: dict[str, tuple[Callable[[list[str]], int], Line]] = {
    "resume": (run.main, lambda folder: [f"resume={folder}"]),
    "evaluate": (evaluate.main, lambda folder: [str(folder), "episodes=1"]),
    "against": (evaluate.main, lambda folder: [str(folder.parent / "ours"), f"against={folder}", "episodes=1"]),
}


def strangers(place: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, tuple[str, dict[str, object]]]:
    """By what they name: a configuration, and the section of its key."""
    canary = str(place / "canary")
    for kind, name in (("algorithms", "ppo"), ("envs", "cartpole")):
        (place / f"its_{name}.py").write_text(PLUGIN.format(canary, kind=kind, name=name))
    (place / "its_reward.py").write_text(REWARD.format(canary))
    (place / "model.py").write_text(PLUGIN.format(canary, kind="envs", name="cartpole"))
    up = "/.." * (len(Path.cwd().parts) + 1)  # a path that begins with what marks an environment given in Python
    monkeypatch.syspath_prepend(str(place))
    control: dict[str, object] = {"algo": {"name": "ppo"}, "env": {"name": "cartpole"}}
    text: dict[str, object] = {"algo": {"name": "grpo"}}
    return {
        "algo": ("algo=", control | {"algo": {"name": str(place / "its_ppo.py")}}),
        "env": ("env=", control | {"env": {"name": str(place / "its_cartpole.py")}}),
        "module": ("algo=its_ppo", control | {"algo": {"name": "its_ppo"}}),
        "id": ("env.id=its_cartpole:X-v0", control | {"env": {"name": "gym", "id": "its_cartpole:X-v0"}}),
        "entry": ("env.entry=its_cartpole:make", control | {"env": {"name": "gym", "entry": "its_cartpole:make"}}),
        "reward": ("env.reward=", text | {"env": {"name": "gsm8k", "reward": f"correct,{place}/its_reward.py:f"}}),
        "module reward": ("env.reward=its_reward:f", text | {"env": {"name": "gsm8k", "reward": "its_reward:f"}}),
        "bracket": ("env.reward=<", text | {"env": {"name": "gsm8k", "reward": f"<{up}{place}/its_reward.py:f"}}),
        "called model": ("env.id=model:X-v0", control | {"env": {"name": "gym", "id": "model:X-v0"}}),
        "model entry": ("env.entry=model:make", control | {"env": {"name": "gym", "entry": "model:make"}}),
    }


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trust") / "ours"
    assert run.main(["algo=q_learning", "env=gridworld", *SHORT, f"out={folder}"]) == 0
    return folder


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("names", ["algo", "env", "module", "id", "entry", "reward", "module reward", *LOOKALIKES])
def test_nothing_of_a_strangers_runs(
    command: str,
    names: str,
    ours: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    key, values = strangers(tmp_path, monkeypatch)[names]
    folder = tmp_path / "theirs"
    folder.mkdir()
    (tmp_path / "ours").symlink_to(ours)
    (folder / "config.yaml").write_text(yaml.safe_dump(values))
    main, words = COMMANDS[command]
    assert main(words(folder)) == 2
    said = capsys.readouterr().err
    assert said.count("\n") == 1 and f"would run code from outside rlkit: {key}" in said
    assert said.endswith("; trust=true allows it\n")
    page = RunPage(folder, assemble)
    assert "trust=true allows it" in page.reason and page.show({})["about"] == []
    choice.site([str(folder)])
    assert capsys.readouterr().err == f"rlkit: only what was written can be shown: {page.reason}\n"
    assert not (tmp_path / "canary").exists()


@pytest.fixture
def rewarded(tmp_path: Path) -> tuple[Path, Path]:
    """A run whose reward lies in a file of its own, and that file."""
    (tmp_path / "mine.py").write_text(REWARD.format(str(tmp_path / "canary")))
    folder = tmp_path / "run"
    assert run.main([*TEXT, f"env.reward={tmp_path}/mine.py:f", f"out={folder}"]) == 0
    return folder, tmp_path / "mine.py"


def test_a_changed_file_is_refused_before_it_runs(
    rewarded: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, file = rewarded
    again = [f"resume={folder}", "trust=true", "iterations=2"]
    file.write_text(file.read_text() + "raise SystemExit('it ran')\n")
    (tmp_path / "canary").unlink()
    before = (folder / "config.yaml").read_bytes()
    capsys.readouterr()
    for main, words in ((run.main, again), (evaluate.main, [str(folder), "trust=true"])):
        assert main(words) == 2
        told = f"rlkit: {file} has changed since the run {folder} began: put it back, or accept the change with "
        assert capsys.readouterr().err == f"{told}trust=changed\n"
    assert not (tmp_path / "canary").exists() and (folder / "config.yaml").read_bytes() == before
    file.write_text(file.read_text().replace("raise SystemExit('it ran')", "# better"))
    assert run.main([again[0], "trust=changed", again[2]]) == 0
    assert run.main([again[0], "trust=true", "iterations=3"]) == 0, "what was accepted is the new state"


def test_what_names_nothing_outside_goes_on_without_trust(tmp_path: Path) -> None:
    assert run.main([*TEXT, f"out={tmp_path / 'run'}"]) == 0
    assert "marks" not in yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    assert run.main([f"resume={tmp_path / 'run'}", "iterations=2"]) == 0


def test_a_changed_dataset_is_noticed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = [json.dumps({"question": f"{i} + 1?", "answer": f"#### {i + 1}"}) for i in range(40)]
    data, folder = tmp_path / "train.jsonl", tmp_path / "run"
    data.write_text("\n".join(rows))
    words = [word for word in TEXT if not word.startswith("env.train=")]
    assert run.main([*words, f"env.source={data}", f"out={folder}"]) == 0
    again = [f"resume={folder}", "iterations=2"]
    data.write_text("\n".join(reversed(rows)))
    assert run.main(again) == 2
    assert f"{data} has changed since the run {folder} began" in capsys.readouterr().err
    data.write_text("\n".join(rows))
    (tmp_path / "test.jsonl").write_text(rows[0])
    assert run.main(again) == 2
    assert f"{tmp_path / 'test.jsonl'} is new since the run {folder} began" in capsys.readouterr().err
    (tmp_path / "test.jsonl").unlink()
    data.unlink()
    assert run.main(again) == 2
    said = capsys.readouterr().err
    assert f"{data} is gone since the run {folder} began: put it back, give the key that names it" in said
    assert said.endswith("with trust=changed if nothing needs it any more\n")
    data.write_text("\n".join(rows))
    assert run.main(again) == 0


def test_the_prompt_of_the_folder_is_the_prompt_that_ran(tmp_path: Path) -> None:
    prompt = "As a model: think, then answer.  /\n{question}\n" + "see ./mine.py:1 " * 30
    given = config.read([*TEXT, f"env.prompt={prompt}"])
    (tmp_path / "config.yaml").write_text(assemble(given).text)
    assert config.from_folder(tmp_path).env["prompt"] == prompt
    assert config.read([f"resume={tmp_path}", f"env.prompt={prompt}"]).env["prompt"] == prompt
    with pytest.raises(UserError, match="continues a run as it was"):
        config.read([f"resume={tmp_path}", f"env.prompt={prompt} "])


def test_a_reward_that_was_mended_is_told_how_to_go_on(tmp_path: Path) -> None:
    from rlkit import session

    (tmp_path / "mine.py").write_text("def f(prompts, completions, **columns):\n    return 1 / 0\n")
    given = config.read([*TEXT, f"env.reward={tmp_path}/mine.py:f", f"out={tmp_path / 'run'}"])
    with pytest.raises(UserError, match=rf"resume={tmp_path}/run trust=changed$") as caught:
        session.carry_out(given, session.Watch(quiet=True))
    assert isinstance(caught.value.__cause__, RewardFailed)


def test_an_edited_plug_in_is_run_again(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    text = "from rlkit.algorithms.ppo import Config, make\n\nanswer = {}\n"
    file.write_text(text.format(1))
    first = plugins.load("algorithms", str(file))
    assert plugins.load("algorithms", str(file)) is first
    file.write_text(text.format(2))
    assert plugins.load("algorithms", str(file)).answer == 2


@pytest.mark.parametrize("named", ["file", "neighbor", "module", "reward", "module reward", "entry"])
def test_what_is_marked_is_what_runs(named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside each file lies a .pyc of something else, which seems to be made of it."""
    monkeypatch.syspath_prepend(str(tmp_path))
    package = f"pyc_{named.replace(' ', '_')}"
    (tmp_path / package).mkdir()
    texts = {
        "__init__": "",
        "mine": "from .helper import Config, make, f\n",
        "helper": "from rlkit.algorithms.ppo import Config, make\ndef f(): return 1\n",
        "alone": "def f(): return 1\n",
    }
    for name, text in texts.items():
        file = tmp_path / package / f"{name}.py"
        file.write_text("raise SystemExit('the .pyc ran')\n".ljust(200))
        py_compile.compile(str(file))
        time = file.stat().st_mtime
        file.write_text(text.ljust(200))
        os.utime(file, (time, time))
    mine, alone = str(tmp_path / package / "mine.py"), str(tmp_path / package / "alone.py")
    find: dict[str, Callable[[], object]] = {
        "file": lambda: plugins.load("algorithms", mine),
        "neighbor": lambda: plugins.load("algorithms", mine),
        "module": lambda: plugins.load("algorithms", f"{package}.mine"),
        "reward": lambda: load_rewards(f"{alone}:f"),
        "module reward": lambda: load_rewards(f"{package}.mine:f"),
        "entry": lambda: plugins.load("envs", "gym").named(f"{package}.mine:f"),
    }
    if named == "neighbor":  # only its .pyc is another
        (tmp_path / package / "__pycache__" / f"mine.{sys.implementation.cache_tag}.pyc").unlink()
    find[named]()


@pytest.mark.parametrize(
    ("env", "told"),
    [
        ({"id": "GymV21Environment-v0"}, "env.id=GymV21Environment-v0 with env.kwargs={} cannot be made: ImportError"),
        (
            {"id": "Acrobot-v1", "kwargs": {"render_mode": "human"}},
            "env.kwargs.render_mode=human is not allowed: a run",
        ),
    ],
)
def test_an_environment_that_cannot_be_made_and_a_window_are_one_line(
    env: dict[str, object], told: str, ours: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours").symlink_to(ours)
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.yaml").write_text(yaml.safe_dump({"algo": {"name": "ppo"}, "env": {"name": "gym", **env}}))
    for main, words in COMMANDS.values():
        assert main(words(folder)) == 2
        said = capsys.readouterr().err
        assert said.count("\n") == 1 and said.startswith(f"rlkit: {told}")


BOMB = "run: &a {x: [1, 2]}\nalgo: {name: ppo, a: *a}\nenv: {name: cartpole}\n"
TAGGED = "run: {seed: !!int ''}\nalgo: {name: ppo}\nenv: {name: cartpole}\n"


@pytest.mark.parametrize(
    "text", [BOMB, "[" * 10_000, "algo: {name: [ppo]}\nenv: {name: null}\n", "marks: {a: [1]}\n", TAGGED]
)
@pytest.mark.slow
def test_a_configuration_that_is_none_is_one_line(
    text: str, ours: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ours").symlink_to(ours)
    folder = tmp_path / "theirs"
    folder.mkdir()
    (folder / "config.yaml").write_text(text)
    (folder / "summary.json").write_text("{}")
    for main, words in COMMANDS.values():
        assert main(words(folder)) == 2
        assert capsys.readouterr().err.count("\n") == 1
    monkeypatch.chdir(tmp_path)
    assert compare.main([str(ours), str(folder)]) == 0, "what cannot be compared is left out, and named"
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("words", [["a.b=1", "c=2", "a.b=1"], ["algo=ppo", "algo=dqn"]])
def test_a_key_given_twice_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match=r"^(a\.b|algo) is given twice, as (a|algo).* and as .*: give one of them$"):
        once(words)


@pytest.mark.parametrize(
    "line",
    [
        (run.main, ["algo=ppo", "env=cartpole", "seed=1", "seed=2"]),
        (compare.main, ["algo=ppo", "algo=a2c", "env=cartpole"]),
        (evaluate.main, ["runs/x", "split=test", "split=train"]),
    ],
)
def test_every_command_refuses_it(
    line: tuple[Callable[[list[str]], int], list[str]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert line[0](line[1]) == 2
    assert "is given twice" in capsys.readouterr().err


def test_folders_named_after_a_setting_are_no_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("lr=1", "lr=2"):
        Path(name).mkdir()
    assert plan.parse(["lr=1", "lr=2", "out=both"]).folders == (Path("lr=1"), Path("lr=2"))
