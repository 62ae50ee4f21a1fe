import errno
import math
import os
import re
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

import rlkit
from rlkit.api import Count, UserError
from rlkit.fields import Limit
from rlkit.recording.files import prepare_folder
from rlkit.settings import config, plugins, run_folder, schema, sections
from rlkit.settings.config import Run, build, read
from rlkit.settings.help import print_help


@dataclass(frozen=True)
class Network:
    width: int = 8


@dataclass(frozen=True)
class Config:
    lr: Limit = 1e-3
    hidden: tuple[int, ...] = (64, 64)
    goal: tuple[int, int] | Literal["corner"] = "corner"
    scale: Literal["std", "none"] = "std"
    source: str = "embedded"
    path: str | None = None
    horizon: Count | None = 128
    kwargs: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    first: float = field(init=False, default=0.0)  # as a __post_init__ may set it


def test_the_short_form_names_the_plug_in_and_bare_keys_belong_to_the_run() -> None:
    given = read(["algo=dqn", "env=nowhere", "algo.lr=1e-3", "env.x.y=a=b", "policy.hidden=8", "seed=4"])
    assert given.algo == {"name": "dqn", "lr": "1e-3"}
    assert given.env == {"name": "nowhere", "x.y": "a=b"}
    assert given.policy == {"hidden": "8"}
    assert given.run == {"seed": "4"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["algo=ppo", "run.seed=2"], "'run.seed=2' is a second spelling: write seed=2"),
        (["algo=ppo", "algo.name=dqn"], "'algo.name=dqn' is a second spelling: write algo=dqn"),
        (["ppo"], "'ppo' is not understood: write KEY=VALUE"),
        (["--seed=3"], "'--seed=3' is not understood: write seed=3, without dashes"),
        (["algo=ppo", "--seed", "3"], "'--seed 3' is not understood: write seed=3, without dashes"),
        (["--verbose", "algo=ppo"], "'--verbose' is not understood: write verbose=VALUE, without dashes"),
        (["algo=ppo", "--"], "'--' is not understood: write KEY=VALUE, without dashes"),
        (["=3"], "'=3' is not understood"),
        (["env=x"], "which algorithm? Give algo=NAME"),
        (["algo=ppo"], "which environment? Give env=NAME"),
        (["algo=", "env=x"], "algo= is empty"),
        (["policy=x"], "keys of the policy are written policy.KEY=VALUE"),
        (["alg.lr=1"], "no section 'alg' for alg.lr=1: did you mean algo?"),
        (["algo.=1"], "'algo.=1' is not understood: write KEY=VALUE"),
        (["resume=/no/such/folder"], "/no/such/folder is not a run folder: it has no config.yaml"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line(argv: list[str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        read(argv)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.fixture
def configs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of configurations that is found before the project's."""
    monkeypatch.setattr(rlkit, "__path__", [str(tmp_path), *rlkit.__path__])
    (tmp_path / "configs").mkdir()
    return tmp_path / "configs"


def test_the_command_line_wins_over_the_pairs_yaml(configs: Path) -> None:
    (configs / "ppo-cartpole.yaml").write_text("run: {env_steps: 100, seed: 5}\nalgo: {lr: 1e-2, clip: 0.1}\nenv:\n")
    given = read(["algo=ppo", "env=cartpole", "algo.lr=1", "iterations=3"])
    assert given.algo == {"name": "ppo", "lr": "1", "clip": 0.1}
    assert given.run == {"seed": 5, "iterations": "3"}  # one length takes the place of the other
    assert given.env == {"name": "cartpole"}


def test_a_preset_stands_between_the_pairs_yaml_and_the_command_line(configs: Path) -> None:
    (configs / "grpo-gsm8k.yaml").write_text("algo: {lr: 1e-2, clip_high: 0.28, over: sequence}\n")
    given = config.read(["algo=grpo", "env=gsm8k", "algo.preset=verl", "algo.std_eps=0.5"])
    assert given.algo["dual_clip"] == 3.0 and given.algo["over"] == "token" and given.algo["clip_high"] == 0.2
    assert given.algo["lr"] == 0.01 and given.algo["std_eps"] == "0.5" and "preset" not in given.algo


def test_an_unknown_preset_is_answered_with_those_that_there_are() -> None:
    with pytest.raises(UserError, match=r"no preset 'tlr' of grpo: did you mean trl\?"):
        config.read(["algo=grpo", "env=gsm8k", "algo.preset=tlr"])
    with pytest.raises(UserError, match=r"no preset 'trl' of ppo: there are none"):
        config.read(["algo=ppo", "env=gsm8k", "algo.preset=trl"])


def test_every_preset_is_a_valid_configuration() -> None:
    for name in plugins.names("algorithms"):
        module = plugins.load("algorithms", name)
        for values in sections.presets(name).values():
            built = config.build(module.Config, {"name": name, **values}, "algo")
            assert all(getattr(built, key) == value for key, value in values.items())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("run: {seed: 1\nalgo: 3", "ppo-cartpole.yaml:2: not valid YAML"),
        ("- a\n", "ppo-cartpole.yaml: not sections of keys"),
        ("algo: 3\n", "ppo-cartpole.yaml: not sections of keys"),
        ("algorithm: {lr: 1}\n", "ppo-cartpole.yaml: no section 'algorithm': did you mean algo?"),
        ("algo: !!python/object/apply:os.getcwd []\n", "ppo-cartpole.yaml:1: not valid YAML"),
    ],
)
def test_a_broken_yaml_is_named_with_file_and_line(configs: Path, text: str, message: str) -> None:
    (configs / "ppo-cartpole.yaml").write_text(text)
    with pytest.raises(UserError) as caught:
        read(["algo=ppo", "env=cartpole"])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_tuned_key_of_the_loss_stays_under_a_preset() -> None:
    """What a pair's YAML may change is how fast is learned, and from how much."""
    steps = {"lr", "lr_end", "schedule", "warmup", "beta2", "adam_eps", "max_grad_norm"}
    steps |= {"group", "epochs", "minibatches", "tries"}
    for path in (Path(rlkit.__file__).resolve().parent.parent / "configs").glob("*.yaml"):
        algo, _, env = path.stem.partition("-")
        tuned = set(config.read([f"algo={algo}", f"env={env}"]).algo) - steps - {"name"}
        for name, values in sections.presets(algo).items():
            left = tuned - set(values)
            assert left <= {"overlong_buffer"}, (path.name, name)  # a number of tokens, by the length of answers


def test_every_yaml_of_the_project_belongs_to_a_pair_and_is_valid() -> None:
    folder = Path(rlkit.__file__).resolve().parent.parent / "configs"
    for path in folder.glob("*.yaml"):
        algo, _, env = path.stem.partition("-")
        given = read([f"algo={algo}", f"env={env}"])
        build(Run, given.run, "run")
        build(plugins.load("algorithms", algo).Config, given.algo, "algo")
        build(plugins.load("envs", env).Config, given.env, "env")


def test_the_resolved_configuration_reads_back_to_the_same_dataclasses(tmp_path: Path) -> None:
    argv = ["algo=a2c", "env=./x y.py", "seed=3", "out=elsewhere", "iterations=10"]
    given, run = read(argv), Run(seed=3, iterations=10, out="elsewhere")
    algo = Config(lr=1e-5, hidden=(), goal=(3, 4), source="1e-3", path=None, kwargs={"a": 1}, words=("no", "1"))
    env = Config(lr=math.inf, source="é: [", scale="none", horizon=None, words=("1e-3", ""))
    text = config.resolved(given, run, algo, env, Network())
    assert "to repeat: python -m rlkit.run algo=a2c 'env=./x y.py' seed=3 iterations=10\n" in text
    (tmp_path / "config.yaml").write_text(text)
    back = config.from_folder(tmp_path)
    assert back.algo["name"] == "a2c"
    assert back.env["name"] == str(Path("x y.py").resolve())
    assert build(Config, back.algo, "algo") == algo
    assert build(Config, back.env, "env") == env
    assert build(Network, back.policy, "policy") == Network()
    assert asdict(build(Run, back.run, "run")) == asdict(run) | {"out": str(tmp_path)}
    (tmp_path / "config.yaml").write_text(text.replace(f"name: {Path('x y.py').resolve()}", "name: cartpole"))
    resumed = read([f"resume={tmp_path}", "env_steps=99"])
    assert resumed.resume == tmp_path
    assert build(Run, resumed.run, "run").env_steps == 99
    assert build(Run, resumed.run, "run").iterations is None


@pytest.mark.parametrize(
    "text", ["a\xa0b\xadc", "\x85\x7f\x1b[31m", "\u2028 \u202e \ufeff", "\U000e0001", "\x01f \\x41'\n"]
)
def test_a_shell_reads_the_command_that_repeats_a_run_as_it_was_given(text: str) -> None:
    words = ["algo=ppo", "env=cartpole", f"env.source={text}"]
    first = config.resolved(read(words), Run(), Config(), Config(), Network()).partition("\n")[0]
    assert first.isprintable()
    shown = ["bash", "-c", f"printf '%s\\0' {first.partition('rlkit.run ')[2]}"]
    utf8 = {**os.environ, "LC_ALL": "C.UTF-8"}
    assert subprocess.run(shown, capture_output=True, check=True, env=utf8).stdout.decode().split("\0")[:-1] == words


def test_a_line_break_in_a_value_stays_within_the_command_that_repeats_a_run() -> None:
    words = ["algo=ppo", "env=cartpole", "env.source={q}\nit's a \\ é:\r\n"]
    first, _, rest = config.resolved(read(words), Run(), Config(), Config(), Network()).partition("\n")
    assert first.endswith(r" algo=ppo env=cartpole $'env.source={q}\nit\'s a \\ é:\r\n'")
    assert yaml.safe_load(rest)["algo"]["name"] == "ppo"


def test_what_is_given_again_on_resume_must_be_what_the_run_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "run": {"seed": 3},
        "algo": {"name": "grpo", "lr": 1e-3, **sections.presets("grpo")["trl"]},
    }
    (tmp_path / "x.py").write_text(
        "from dataclasses import dataclass, field\nfrom rlkit.api import File\n\n"
        "@dataclass(frozen=True)\nclass Config:\n    data: File = ''\n    prompt: str = ''\n"
        "    kwargs: dict[str, object] = field(default_factory=dict)\n    path: str | None = None\n"
        "    clip: float | None = 1.0\n\n\ndef make():\n    ...\n"
    )
    values |= {
        "env": {"name": str(tmp_path / "x.py"), "kwargs": {"a": 1}, "data": str(tmp_path / "x.py"), "prompt": "a, b"},
        "policy": {"hidden": [64, 64]},
    }
    values["env"] |= {"path": None, "clip": None}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(schema.plain(values)))
    monkeypatch.chdir(tmp_path)
    equal = [
        f"resume={tmp_path}",
        "trust=true",
        "env=x.py",
        "env.data=x.py",
        "env.prompt=a, b",
        "seed=3",
        "algo=grpo",
        "algo.lr=0.001",
        "algo.preset=trl",
        "env.kwargs.a=1",
        "env.path=none",
        "env.clip=None",
    ]
    for hidden in ("[64, 64]", "64, 64", " 64,64,"):
        read([*equal, f"policy.hidden={hidden}"])
    read([*[word for word in equal if word != "env=x.py"], f"env={tmp_path}/x.py", "policy.hidden=64,64"])
    (tmp_path / "link.py").symlink_to("x.py")  # which the folder holds as the file that it leads to
    read([*[word for word in equal if word != "env=x.py"], "env=link.py"])
    for other in (
        "seed=4",
        "algo=ppo",
        "algo.lr=1e-4",
        "env.kwargs.a=2",
        "policy.hidden=64",
        "env.path=x",
        "env.clip=2",
        "env.prompt=a,b",
    ):
        with pytest.raises(UserError, match=f"continues a run as it was: it has .*, not {other.partition('=')[2]}"):
            read([f"resume={tmp_path}", "trust=true", other])
    with pytest.raises(UserError, match=r"no key 'algo\.lrr' in the run .*: did you mean lr\?"):
        read([f"resume={tmp_path}", "trust=true", "algo.lrr=1"])


def test_a_folder_that_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a run folder: it has no config"):
        config.from_folder(tmp_path)
    (tmp_path / "config.yaml").write_text("run: {seed: 1}\n")
    with pytest.raises(UserError, match="names no algorithm and environment"):
        config.from_folder(tmp_path)


def test_a_new_run_never_writes_into_the_folder_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = config.Given(algo={"name": "my_pkg.sac"}, env={"name": "./maze.py"})
    folders = {run_folder.new_folder(Run(seed=7), given) for _ in range(3)}
    assert len(folders) == 3
    assert all(given.called(folder).parts[0] == "runs" and folder.name.startswith("sac-maze-s7-") for folder in folders)
    out = Run(out=str(tmp_path / "a" / "b"))
    assert run_folder.new_folder(out, given) == run_folder.new_folder(out, given)  # it is empty still
    (tmp_path / "a" / "b" / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="is not empty: choose another folder, or continue it with resume="):
        run_folder.new_folder(out, given)
    with pytest.raises(UserError, match=r"^cannot write to the folder .*: file name too long; "):
        run_folder.new_folder(Run(seed=10**250), given)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file is in the way; fix that or give another"):
        prepare_folder(tmp_path / "file")
    with pytest.raises(UserError, match="a file is in the way"):
        prepare_folder(tmp_path / "file" / "below")
    for code, word in (("EACCES", "no permission"), ("ENOSPC", "no space left"), ("EROFS", "read-only")):

        def refuse(number: int = getattr(errno, code), **_: object) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
        with pytest.raises(UserError, match=word):
            prepare_folder(tmp_path / "new")


def test_help_shows_what_people_change_first_a_line_each(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    print_help(read(["algo=ppo", "env=cartpole", "--help"]), Network)
    page = capsys.readouterr().out
    keys = [line.split("=")[0].strip() for line in page.splitlines() if line.startswith("  ") and "=" in line]
    assert keys[:5] == ["env_steps", "iterations", "algo.lr", "env.rows", "algo.horizon"]
    assert {"algo.gamma", "algo.clip", "algo.entropy_coef", "seed", "out", "evaluations"} < set(keys)
    assert "a whole number" not in page and "algo.adam_eps" not in page
    assert max(map(len, page.splitlines())) <= 80
    assert page.splitlines()[-1] == "  python -m rlkit.run algo=ppo env=cartpole --help all"
    for words in (["--help", "all"], ["-h", "all"], ["help=all"]):
        assert read(["algo=ppo", *words]).help == "all"


@pytest.mark.parametrize(
    "words, told",
    [
        ("algo=dqn env=cartpole n_steps=3", "here it is algo.n_step;"),
        ("algo=ppo env=cartpole n_steps=3", "here it is algo.horizon;"),
        ("algo=ppo env=cartpole beta=0.1", "here it is algo.kl_coef;"),
        ("algo=dqn env=cartpole epochs=3", "here it is iterations;"),
        ("--algo ppo env=cartpole --learning-rate 3", "write algo=ppo env=cartpole learning_rate=3, without"),
        ("algo=ppo --seed 3", "'--seed 3' is not understood: write seed=3, without"),
    ],
)
def test_words_of_other_libraries_are_looked_up_in_what_was_named(words: str, told: str) -> None:
    with pytest.raises(UserError, match=re.escape(told)):
        read(words.split())


def test_preparing_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    assert list(prepare_folder(tmp_path / "new").iterdir()) == []


def test_help_lists_the_plug_ins_or_the_keys_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    print_help(read(["--help"]))
    page = capsys.readouterr().out
    assert all(f"  {name} " in page for kind in ("algorithms", "envs") for name in plugins.names(kind))
    print_help(read(["algo=dqn", "--help", "all"]), Network)
    page = capsys.readouterr().out
    assert all(f"algo.{key}=" in page for key in schema.settable(plugins.load("algorithms", "dqn").Config))
    assert "policy.width=8" in page
    assert "seed=0" in page
    assert max(map(len, page.splitlines())) <= 80
