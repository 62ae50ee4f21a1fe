import errno
import math
import os
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

import pytest
import yaml

import rlkit
from rlkit import config, plugins, schema
from rlkit.api import Count, Fraction, Natural, Positive, UserError
from rlkit.config import Run, build, read


@dataclass(frozen=True)
class Parent:
    lr: Positive = 3e-4  # step size of Adam
    gamma: Fraction = 0.99  # discount per step


@dataclass(frozen=True)
class Config(Parent):
    lr: Positive = 1e-3
    hidden: tuple[int, ...] = (64, 64)  # units of each layer
    goal: tuple[int, int] | Literal["corner"] = "corner"  # where the reward is
    scale: Literal["std", "none"] = "std"  # what the advantage is divided by
    source: str = "embedded"  # embedded, or a path
    path: str | None = None
    horizon: Count | None = 128
    double: bool = True
    kwargs: dict[str, Any] = field(default_factory=dict)
    words: tuple[str, ...] = ()
    seed: Natural = 0


def built(**values: Any) -> Config:
    return build(Config, values, "algo")


@pytest.mark.parametrize(
    ("key", "text", "value"),
    [
        ("lr", "1e-3", 0.001),  # YAML 1.1 takes this for text
        ("lr", "1", 1.0),
        ("lr", ".5", 0.5),
        ("gamma", "1", 1.0),
        ("hidden", "32", (32,)),
        ("hidden", "32,16", (32, 16)),
        ("hidden", "[32, 16]", (32, 16)),
        ("hidden", "", ()),
        ("hidden", "[]", ()),
        ("goal", "1,2", (1, 2)),
        ("goal", "corner", "corner"),
        ("scale", "none", "none"),
        ("source", "123", "123"),
        ("source", "no", "no"),
        ("source", "1e-3", "1e-3"),
        ("source", "[a]", "[a]"),
        ("source", "a: b # c", "a: b # c"),
        ("source", "", ""),
        ("path", "none", None),
        ("path", "null", None),
        ("path", "no", "no"),
        ("horizon", "none", None),
        ("horizon", "1e3", 1000),
        ("horizon", "1_000", 1000),
        ("horizon", "010", 10),
        ("double", "no", False),
        ("double", "false", False),
        ("double", "on", True),
        ("double", "1", True),
        ("kwargs", "{a: 1, b: [x, 2]}", {"a": 1, "b": ["x", 2]}),
        ("words", "yes,12,1e-3", ("yes", "12", "1e-3")),
        ("words", "[yes, 12]", ("yes", "12")),
        ("seed", str(2**70), 2**70),
    ],
)
def test_a_text_is_read_as_the_field_wants_it(key: str, text: str, value: Any) -> None:
    found = getattr(built(**{key: text}), key)
    assert found == value
    assert type(found) is type(value)


def test_values_of_yaml_are_read_by_the_same_rules() -> None:
    values = yaml.safe_load("{lr: 1e-3, hidden: [8, 8], goal: [0, 1], double: no, horizon: null, words: ['1', no_]}")
    config = built(**values)
    assert (config.lr, config.hidden, config.goal) == (0.001, (8, 8), (0, 1))
    assert (config.double, config.horizon, config.words) == (False, None, ("1", "no_"))


@pytest.mark.parametrize(
    ("key", "text", "allowed"),
    [
        ("lr", "fast", "a number above 0"),
        ("lr", "0", "a number above 0"),
        ("lr", "nan", "a number above 0"),
        ("lr", "true", "a number above 0"),
        ("lr", "", "a number above 0"),
        ("gamma", "1.01", "a number from 0 to 1"),
        ("hidden", "64,big", "a list: a whole number, ..."),
        ("hidden", "64,1.5", "a list: a whole number, ..."),
        ("goal", "1,2,3", "2 values: a whole number, a whole number or corner"),
        ("scale", "sdt", "one of: std, none"),
        ("horizon", "0", "a whole number of at least 1 or none"),
        ("horizon", "2.5", "a whole number of at least 1 or none"),
        ("double", "maybe", "true or false"),
        ("kwargs", "3", "a mapping, {KEY: VALUE}"),
    ],
)
def test_a_value_of_the_wrong_type_or_range_is_told_what_is_allowed(key: str, text: str, allowed: str) -> None:
    with pytest.raises(UserError) as caught:
        built(**{key: text})
    assert str(caught.value) == f"algo.{key}={text} is not allowed: give {allowed}"


def test_a_text_that_is_no_yaml_is_told_so() -> None:
    with pytest.raises(UserError, match=r"^algo\.hidden=\[1, cannot be read: give a list"):
        built(hidden="[1,")
    with pytest.raises(UserError, match=r"^algo\.kwargs=\{a cannot be read: give a mapping"):
        built(kwargs="{a")


def test_an_unknown_key_is_answered_with_the_nearest_one_and_the_list() -> None:
    with pytest.raises(UserError, match=r"^no key 'algo\.gama': did you mean gamma\? There are: lr, gamma, hidden,"):
        built(gama="1")
    with pytest.raises(UserError, match=r"^no key 'algo\.lr\.x'"):
        built(**{"lr.x": "1"})
    with pytest.raises(
        UserError, match=r"^no key 'sed': did you mean seed\? .* written algo\.KEY, env\.KEY, policy\.KEY"
    ):
        build(Run, {"sed": "1"}, "run")


def test_a_dotted_key_goes_into_a_mapping() -> None:
    values = {"kwargs.size": "7", "kwargs": "{size: 3, name: a}", "kwargs.rate": "1e-2"}
    assert built(**values).kwargs == {"size": 7, "name": "a", "rate": 0.01}


def test_a_field_without_a_default_must_be_given() -> None:
    @dataclass(frozen=True)
    class Needs:
        id: str

    with pytest.raises(UserError, match=r"^env\.id must be given: text"):
        build(Needs, {}, "env")


def test_a_check_across_fields_is_the_users_mistake() -> None:
    @dataclass(frozen=True)
    class Both:
        low: float = 0.0
        high: float = 1.0

        def __post_init__(self) -> None:
            if self.low > self.high:
                raise ValueError(f"low={self.low} is above high={self.high}")

    with pytest.raises(UserError, match=r"^env: low=2\.0 is above high=1\.0"):
        build(Both, {"low": "2"}, "env")
    with pytest.raises(UserError, match="give iterations=3 or env_steps=4, not both"):
        build(Run, {"iterations": "3", "env_steps": "4"}, "run")


def test_a_comment_in_the_source_is_the_meaning_of_a_key_and_is_inherited() -> None:
    rows = dict(schema.explain(Config, {"scale": "none"}, "algo"))
    assert rows["algo.lr=0.001"] == "step size of Adam (a number above 0)"
    assert rows["algo.gamma=0.99"] == "discount per step (a number from 0 to 1)"
    assert rows["algo.scale=none"] == "what the advantage is divided by (one of: std, none)"
    assert rows["algo.path=none"] == "(text or none)"
    assert rows["algo.hidden=64,64"].startswith("units of each layer")


@pytest.mark.parametrize("kind", ["algorithms", "envs"])
def test_every_key_of_every_plug_in_has_a_meaning_and_is_frozen(kind: plugins.Kind) -> None:
    for name in plugins.names(kind):
        cls = plugins.load(kind, name).Config
        assert cls.__dataclass_params__.frozen, name
        assert set(schema.comments(cls)) >= set(schema.settable(cls)), name


def test_the_short_form_names_the_plug_in_and_bare_keys_belong_to_the_run() -> None:
    given = read(["algo=dqn", "env=nowhere", "algo.lr=1e-3", "env.x.y=a=b", "policy.hidden=8", "seed=3", "seed=4"])
    assert given.algo == {"name": "dqn", "lr": "1e-3"}
    assert given.env == {"name": "nowhere", "x.y": "a=b"}
    assert given.policy == {"hidden": "8"}
    assert given.run == {"seed": "4"}  # the last of two wins
    assert read(["algo.name=dqn", "env.name=x"]).algo == {"name": "dqn"}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["ppo"], "'ppo' is not understood: write KEY=VALUE"),
        (["--seed=3"], "'--seed=3' is not understood: write KEY=VALUE"),
        (["=3"], "'=3' is not understood"),
        (["env=x"], "which algorithm? Give algo=NAME"),
        (["algo=ppo"], "which environment? Give env=NAME"),
        (["algo=", "env=x"], "algo= is empty"),
        (["policy=x"], "keys of the policy are written policy.KEY=VALUE"),
        (["alg.lr=1"], "no section 'alg' for alg.lr=1: did you mean algo?"),
        (["algo.=1"], "no section 'algo' for algo.=1"),
        (["resume=/no/such/folder"], "/no/such/folder is no run folder: it has no config.yaml"),
        (["resume=x", "algo.lr=1"], "it cannot change algo.lr, only iterations, env_steps"),
        (["resume=x", "seed=1"], "it cannot change seed"),
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


def test_every_yaml_of_the_project_belongs_to_a_pair_and_is_valid() -> None:
    folder = Path(rlkit.__file__).resolve().parent.parent / "configs"
    for path in folder.glob("*.yaml"):
        algo, _, env = path.stem.partition("-")
        given = read([f"algo={algo}", f"env={env}"])
        build(Run, given.run, "run")
        build(plugins.load("algorithms", algo).Config, given.algo, "algo")
        build(plugins.load("envs", env).Config, given.env, "env")


def test_the_resolved_configuration_reads_back_to_the_same_dataclasses(tmp_path: Path) -> None:
    argv = ["algo=ppo", "env=./x y.py", "seed=3", "out=elsewhere", "iterations=10"]
    given, run = read(argv), Run(seed=3, iterations=10, out="elsewhere")
    algo = Config(lr=1e-5, hidden=(), goal=(3, 4), source="1e-3", path=None, kwargs={"a": 1}, words=("no", "1"))
    env = Config(lr=math.inf, source="é: [", scale="none", horizon=None, words=("1e-3", ""))
    text = config.resolved(given, run, algo, env, Parent())
    assert "to repeat: python -m rlkit.run algo=ppo 'env=./x y.py' seed=3 iterations=10\n" in text
    (tmp_path / "config.yaml").write_text(text)
    back = config.from_folder(tmp_path)
    assert back.algo["name"] == "ppo"
    assert back.env["name"] == str(Path("x y.py").resolve())
    assert build(Config, back.algo, "algo") == algo
    assert build(Config, back.env, "env") == env
    assert build(Parent, back.policy, "policy") == Parent()
    assert asdict(build(Run, back.run, "run")) == asdict(run) | {"out": str(tmp_path)}
    resumed = read([f"resume={tmp_path}", "env_steps=99"])
    assert resumed.resume == tmp_path
    assert build(Run, resumed.run, "run").env_steps == 99
    assert build(Run, resumed.run, "run").iterations is None


def test_a_folder_that_is_no_run_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is no run folder: it has no config"):
        config.from_folder(tmp_path)
    (tmp_path / "config.yaml").write_text("run: {seed: 1}\n")
    with pytest.raises(UserError, match="names no algorithm and environment"):
        config.from_folder(tmp_path)


def test_a_new_run_never_writes_into_the_folder_of_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    given = config.Given(algo={"name": "my_pkg.sac"}, env={"name": "./maze.py"})
    folders = {config.new_folder(Run(seed=7), given) for _ in range(3)}
    assert len(folders) == 3
    assert all(folder.parts[0] == "runs" and folder.name.startswith("sac-maze-s7-") for folder in folders)
    out = Run(out=str(tmp_path / "a" / "b"))
    assert config.new_folder(out, given) == config.new_folder(out, given)  # it is empty still
    (tmp_path / "a" / "b" / "metrics.jsonl").touch()
    with pytest.raises(UserError, match="is not empty: choose another folder, or continue it with resume="):
        config.new_folder(out, given)


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="a file is in the way; give another with out=FOLDER"):
        config.prepare_folder(tmp_path / "file")
    with pytest.raises(UserError, match="a file is in the way"):
        config.prepare_folder(tmp_path / "file" / "below")
    for code, word in (("EACCES", "no permission"), ("ENOSPC", "no space left"), ("EROFS", "read-only")):

        def refuse(self: Path, data: bytes, number: int = getattr(errno, code)) -> None:
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr(Path, "write_bytes", refuse)
        with pytest.raises(UserError, match=word):
            config.prepare_folder(tmp_path / "new")


def test_preparing_a_folder_leaves_nothing_in_it(tmp_path: Path) -> None:
    assert list(config.prepare_folder(tmp_path / "new").iterdir()) == []


def test_help_lists_the_plug_ins_or_the_keys_of_one(capsys: pytest.CaptureFixture[str]) -> None:
    config.print_help(read(["--help"]))
    page = capsys.readouterr().out
    assert all(f"  {name} " in page for kind in ("algorithms", "envs") for name in plugins.names(kind))
    config.print_help(read(["algo=dqn", "--help"]), Parent)
    page = capsys.readouterr().out
    assert all(f"algo.{key}=" in page for key in schema.settable(plugins.load("algorithms", "dqn").Config))
    assert "policy.lr=0.0003" in page
    assert "seed=0" in page
    assert max(map(len, page.splitlines())) <= 80
