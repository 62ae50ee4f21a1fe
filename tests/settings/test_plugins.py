import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rlkit import compare, tune
from rlkit.api import UserError
from rlkit.settings import plugins, schema, synonyms

ROOT = Path(__file__).resolve().parents[2]
PLUGIN = '''"""A plug-in of somebody else."""
from dataclasses import dataclass

@dataclass(frozen=True)
class Config:
    lr: float = 0.5  # step size

def make(config, env, network=None):
    return ("made", config.lr)
'''


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own, on the path as the current folder of `python -m` is."""
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize("kind", ["algorithms", "envs"])
def test_every_file_in_the_folder_is_a_plug_in_that_loads_and_says_what_it_is(kind: plugins.Kind) -> None:
    files = {path.stem for path in (ROOT / kind).glob("[!_]*.py")}
    assert set(plugins.names(kind)) == files
    for name in files:
        module = plugins.load(kind, name)
        assert module.__name__ == f"rlkit.{kind}.{name}"
        assert plugins.summary(kind, name) == module.__doc__.strip().partition("\n")[0] != ""


def test_a_misspelt_name_is_answered_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"^no algorithm 'dqm': did you mean dqn\? There are: .*ppo.*q_learning"):
        plugins.load("algorithms", "dqm")
    with pytest.raises(UserError, match=r"^no algorithm 'PPO': did you mean ppo\?"):
        plugins.load("algorithms", "PPO")
    with pytest.raises(UserError, match=r"^no algorithm 'zal': there are: a2c, "):  # looks like a2c to a computer only
        plugins.load("algorithms", "zal")


@pytest.mark.parametrize("name", synonyms.STANDS_IN)
def test_an_algorithm_that_is_not_here_is_answered_with_one_that_is(name: str) -> None:
    with pytest.raises(UserError, match=rf"^no algorithm '{name}': it is not here, and algo=(\w+) ") as caught:
        plugins.load("algorithms", name)
    known = plugins.names("algorithms")
    assert str(caught.value).partition("algo=")[2].partition(" ")[0] in known and name not in known


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("CartPole-v1", "a Gymnasium id is given as env=gym env.id=CartPole-v1; did you mean cartpole? There are: "),
        ("LunarLander-v3", "env=gym env.id=LunarLander-v3; did you mean lunarlander?"),
        ("ALE/Pong-v5", "a Gymnasium id is given as env=gym env.id=ALE/Pong-v5; there are: "),
        ("my_pkg:My-v0", "a Gymnasium id is given as env=gym env.id=my_pkg:My-v0; there are: "),
        ("my_pkg.envs:Walk", "a class of your own is given as env=gym env.entry=my_pkg.envs:Walk"),
    ],
)
def test_a_gymnasium_id_is_told_how_it_is_given(name: str, rule: str) -> None:
    with pytest.raises(UserError) as caught:
        plugins.load("envs", name)
    assert f"no environment '{name}': " in str(caught.value) and rule in str(caught.value)


def test_a_file_with_a_gymnasium_class_is_told_how_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "valley.py").write_text("import gymnasium\n\nclass Thermostat(gymnasium.Env):\n    pass\n")
    with pytest.raises(UserError, match=r"; its class Thermostat .* env\.entry=valley:Thermostat, started in the"):
        plugins.load("envs", str(tmp_path / "valley.py"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my-valley.py").write_text((tmp_path / "valley.py").read_text())
    with pytest.raises(UserError, match=r"and `make\(config, seed, device\)`$"):  # no name to import it by
        plugins.load("envs", "./my-valley.py")
    with pytest.raises(UserError, match=r"is given as env=gym env\.entry=valley:Thermostat$"):
        plugins.load("envs", "./valley.py")


def test_a_file_with_a_game_is_told_how_it_is_given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pick.py").write_text("class Pick:\n    def reset(self, seed): ...\n    def step(self, text): ...\n")
    with pytest.raises(UserError, match=r"; a game in words is given as env=game env\.game=\./pick\.py:Pick, and one"):
        plugins.load("envs", "./pick.py")


@pytest.mark.parametrize("name", ["zzz", "a/b", "../dqn", "dqn/", "my algo", ".", "..", "dqn."])
def test_a_name_like_nothing_is_answered_with_what_there_is(name: str) -> None:
    with pytest.raises(UserError, match=r"here are: .*dqn.*your own: a dotted module name or a path"):
        plugins.load("algorithms", name)


def test_a_dotted_name_is_imported_as_it_is(elsewhere: Path) -> None:
    (elsewhere / "somebodys_pkg").mkdir()
    (elsewhere / "somebodys_pkg" / "__init__.py").touch()
    (elsewhere / "somebodys_pkg" / "sac.py").write_text(PLUGIN)
    module = plugins.load("algorithms", "somebodys_pkg.sac")
    assert module.make(module.Config(), None) == ("made", 0.5)
    assert plugins.summary("algorithms", "somebodys_pkg.sac") == "A plug-in of somebody else."
    assert plugins.short("somebodys_pkg.sac") == "sac"


def test_a_path_is_loaded_as_a_file_once(tmp_path: Path) -> None:
    path = tmp_path / "sac.py"
    path.write_text(PLUGIN)
    module = plugins.load("algorithms", str(path))
    assert module.Config().lr == 0.5
    assert plugins.load("algorithms", str(path)) is module
    assert plugins.short(str(path)) == "sac"


def test_a_dotted_name_or_a_path_that_leads_nowhere_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"no algorithm 'no_such_pkg\.sac': there is no module 'no_such_pkg' here"):
        plugins.load("algorithms", "no_such_pkg.sac")
    with pytest.raises(UserError, match=r"no environment file .*nothing\.py: give a path to an existing \.py file"):
        plugins.load("envs", str(tmp_path / "nothing.py"))


def test_a_module_without_config_or_make_is_told_what_to_define(elsewhere: Path) -> None:
    (elsewhere / "half_done.py").write_text("Config = dict\ndef make(config, env): ...\n")
    with pytest.raises(UserError, match="must define a frozen dataclass `Config` and `make"):
        plugins.load("algorithms", str(elsewhere / "half_done.py"))
    with pytest.raises(UserError, match=r"'os\.path' is not an environment plug-in: .*make\(config, seed, device\)"):
        plugins.load("envs", "os.path")


@pytest.mark.parametrize("field, kind", [("name", "algorithms"), ("name", "envs"), ("preset", "algorithms")])
def test_a_config_has_no_field_with_the_name_of_a_key_of_ours(field: str, kind: plugins.Kind, elsewhere: Path) -> None:
    (elsewhere / "theirs.py").write_text(PLUGIN.replace("lr: float = 0.5", f"{field}: str = 'maze'"))
    with pytest.raises(UserError, match=f"cannot have a field {field} in its Config"):
        plugins.load(kind, str(elsewhere / "theirs.py"))


CHILD = """from dataclasses import dataclass
from rlkit.algorithms import ppo


@dataclass(frozen=True)
class Config(ppo.Config):
    lr: float = 0.5


make = ppo.make
"""


@pytest.mark.parametrize(
    ("right", "wrong", "says"),
    [
        ("@dataclass(frozen=True)", "", r"its Config is not a dataclass itself: write @dataclass\(frozen=True\)"),
        ("lr: float =", "lr =", "its Config gives lr no type, so this value does nothing: write lr: TYPE = VALUE"),
    ],
)
def test_a_default_that_would_stay_at_that_of_the_parent_is_refused(
    right: str, wrong: str, says: str, tmp_path: Path
) -> None:
    path = tmp_path / "child.py"
    path.write_text(CHILD)
    assert plugins.load("algorithms", str(path)).Config().lr == 0.5
    (tmp_path / "wrong.py").write_text(CHILD.replace(right, wrong))
    with pytest.raises(UserError, match=says):
        plugins.load("algorithms", str(tmp_path / "wrong.py"))


def test_a_key_that_has_no_type_is_told_why_it_is_none(tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text(CHILD.replace("lr: float =", "size ="))
    config = plugins.load("algorithms", str(tmp_path / "own.py")).Config
    says = r"^no key 'algo.size': Config gives size no type, so it is a constant: write size: TYPE = VALUE; there are:"
    with pytest.raises(UserError, match=says):
        schema.build(config, {"size": "1"}, "algo")


def test_an_error_inside_a_plug_in_is_not_disguised_as_a_missing_one(elsewhere: Path) -> None:
    (elsewhere / "faulty_pkg").mkdir()
    (elsewhere / "faulty_pkg" / "__init__.py").touch()
    (elsewhere / "faulty_pkg" / "algo.py").write_text("import a_module_that_is_not_installed\n")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_installed"):
        plugins.load("algorithms", "faulty_pkg.algo")
    with pytest.raises(ModuleNotFoundError, match="a_module_that_is_not_installed"):
        plugins.load("algorithms", str(elsewhere / "faulty_pkg" / "algo.py"))


def test_a_file_may_import_its_neighbours(tmp_path: Path) -> None:
    for folder, step in (("a", 0.25), ("b", 0.75)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "steps.py").write_text(f"STEP = {step}\n")
        (tmp_path / folder / "my.sac.py").write_text("from .steps import STEP\n" + PLUGIN.replace("0.5", "STEP"))
    for folder, step in (("a", 0.25), ("b", 0.75)):
        assert plugins.load("algorithms", str(tmp_path / folder / "my.sac.py")).Config().lr == step


def test_a_file_that_imports_from_above_its_folder_is_told_its_dotted_name(elsewhere: Path) -> None:
    folder = elsewhere / "above_pkg" / "algos"
    folder.mkdir(parents=True)
    (elsewhere / "above_pkg" / "steps.py").write_text("STEP = 0.25\n")
    (folder / "sac.py").write_text("from ..steps import STEP\n" + PLUGIN.replace("0.5", "STEP"))
    for init in (False, True):
        if init:
            (elsewhere / "above_pkg" / "__init__.py").touch()
        with pytest.raises(UserError, match=rf"its dotted name, above_pkg\.algos\.sac, and start in {elsewhere}$"):
            plugins.load("algorithms", str(folder / "sac.py"))
    assert plugins.load("algorithms", "above_pkg.algos.sac").Config().lr == 0.25


@pytest.mark.slow
def test_a_folder_named_envs_where_one_works_does_not_shadow_ours(tmp_path: Path) -> None:
    for kind in ("envs", "algorithms"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    code = "from rlkit.settings import plugins; "
    code += "print(plugins.load('envs', 'cartpole').__file__, plugins.names('algorithms'))"
    command = [sys.executable, "-c", f"import sys; sys.path.append({str(ROOT)!r}); {code}"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert str(ROOT / "envs" / "cartpole.py") in done.stdout
    assert "'ppo'" in done.stdout


def test_a_plug_in_folder_cannot_be_imported_under_a_second_name() -> None:
    command = [sys.executable, "-c", "import algorithms"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert "load one with rlkit.settings.plugins.load('algorithms', NAME)" in done.stderr


def test_one_letter_more_less_changed_or_exchanged_is_near() -> None:
    near = [("dqm", "dqn"), ("rnu", "run"), ("seeds", "seed"), ("eed", "seed"), ("seed", "seed"), ("sede", "seed")]
    assert all(synonyms.one_off(a, b) and synonyms.one_off(b, a) for a, b in near)
    far = [("sac", "a2c"), ("urn", "ru"), ("abcd", "badc"), ("", "ab"), ("lr", "rate"), ("dcba", "abcd")]
    assert not any(synonyms.one_off(a, b) or synonyms.one_off(b, a) for a, b in far)


def test_nearest_prefers_what_looks_alike_and_lists_all() -> None:
    assert plugins.nearest("gama", ["lr", "gamma"]) == "did you mean gamma? There are: lr, gamma"
    assert plugins.nearest("tlr", ["verl", "trl"]).startswith("did you mean trl?")
    assert plugins.nearest("sac", ["a2c", "dqn"]) == "there are: a2c, dqn"
    assert plugins.nearest("xyz", ["lr", "gamma"]) == "there are: lr, gamma"
    assert plugins.nearest("xyz", []) == "there are none"


@pytest.mark.parametrize("command", [compare.main, tune.main])
@pytest.mark.parametrize(("key", "ours"), [("total_timesteps", "here it is env_steps"), ("lr", "are written algo.KEY")])
def test_a_key_of_another_library_is_told_as_for_a_single_run(
    command: Callable[[list[str]], int], key: str, ours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(["algo=ppo", "env=cartpole", f"{key}=1"]) == 2
    assert ours in capsys.readouterr().err
