"""Who may import whom, and what nobody may do: read from the folders and the sources, so nothing has to run."""

import ast
import sys
from collections import Counter
from collections.abc import Callable, Iterable
from graphlib import CycleError, TopologicalSorter

from support.sources import COMMANDS, CONTRACTS, ROOT, SOURCES, TREES, calls, imports, modules, room

# A room may import the ground, the contracts, and what its row says. The ground imports nothing but the ground.
MAY_IMPORT = {
    "buffers": set(),
    "policies": {"buffers"},
    "control": {"buffers", "policies"},
    "text": {"buffers"},
    "language": {"buffers", "policies"},
    "statistics": set(),
    "meter": set(),
    "doctor": {"buffers", "meter"},
    "recording": {"buffers", "held", "policies", "statistics"},
    "settings": {"language", "policies", "recording"},
    "unsaved": set(),
    "held": {"finite", "unsaved"},
    "finite": {"meter"},
    "progress": {"doctor", "finite", "held", "meter", "policies", "recording", "settings"},
    "gradients": {"buffers", "held", "meter", "policies"},
    "loop": {"buffers", "finite", "gradients", "held", "meter", "policies", "progress", "recording", "settings"},
    "evaluation": {"control", "policies", "progress", "recording", "settings", "statistics"},
    "against": {"evaluation", "settings", "statistics"},
    "telling": {"progress", "recording", "settings"},
    "session": {"evaluation", "finite", "held", "loop", "progress", "recording", "settings", "telling"},
    "interop": {"buffers", "policies"},
    "scaffold": {"recording", "settings"},
    "comparison": {"evaluation", "recording", "settings", "statistics"},
    "pages": {"buffers", "comparison", "control", "loop", "meter", "policies", "progress", "recording", "settings"},
    "tuning": {"comparison", "recording", "settings"},
    "planning": {"language", "settings"},
    "python": {"against", "comparison", "control", "evaluation", "recording", "session", "settings"},
    "algorithms": {"buffers", "policies"},
    "envs": {"control", "text", "language"},
}
OPTIONAL = {
    "ale_py",
    "datasets",
    "huggingface_hub",
    "math_verify",
    "minatar",
    "minigrid",
    "mpe2",
    "mujoco",
    "matplotlib",
    "optuna",
    "pettingzoo",
    "playwright",
    "ray",
    "reasoning_gym",
    "scipy",
    "torchrl",
    "transformers",
}
# Files that run in a process of their own.
PROGRAMS = {"rlkit.text.symbolic_process", "rlkit.text.reasoning_process", "rlkit.text.process_child"}
OPTIONAL |= {"trl", "vllm", "wandb"}  # no module needs them to be imported


def of_each(names: Iterable[str]) -> Callable[[Callable[[str], None]], Callable[[], None]]:
    """One test of many modules, which tells every one that fails: a test each takes longer to hand out than to run."""
    every = tuple(names)
    assert every

    def decorate(check: Callable[[str], None]) -> Callable[[], None]:
        def test() -> None:
            wrong = []
            for name in every:
                try:
                    check(name)
                except AssertionError as error:
                    wrong.append(f"{name}: {error}")
            assert not wrong, "\n".join(wrong)

        test.__doc__ = check.__doc__
        return test

    return decorate


@of_each(name for name in SOURCES if name != "rlkit")
def test_a_module_imports_the_rooms_that_its_own_may(name: str) -> None:
    mine = room(name)
    if mine == "commands":
        allowed = {room(other) for other in SOURCES} - ({"commands"} if name != "rlkit.__main__" else set())
    else:
        allowed = {mine, "ground"} | ({CONTRACTS} | MAY_IMPORT[mine] if mine in MAY_IMPORT else set())
    foreign = {other: room(other) for other in modules(name) if room(other) not in allowed}
    assert not foreign, f"{mine} may import {', '.join(sorted(allowed))}"


def test_the_table_names_every_room_and_no_other() -> None:
    assert {room(name) for name in SOURCES} - {"ground", "commands", CONTRACTS} == set(MAY_IMPORT)


def test_the_rooms_lie_above_each_other() -> None:
    TopologicalSorter(MAY_IMPORT).prepare()


def test_no_modules_import_each_other_in_a_circle() -> None:
    graph = {name: modules(name) for name in SOURCES if name != "rlkit"}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        raise AssertionError(" <- ".join(error.args[1])) from None


def test_nobody_imports_a_command() -> None:
    assert {"run", "compare", "evaluate", "play", "new"} <= COMMANDS
    for name in SOURCES:
        if name not in ("rlkit", "rlkit.__main__"):
            assert not {other for other in modules(name) if room(other) == "commands"}, name


@of_each(name for name in SOURCES if SOURCES[name].name == "__init__.py" and name != "rlkit")
def test_a_folder_says_in_one_sentence_what_it_is_for(name: str) -> None:
    text = ast.get_docstring(TREES[name]) or ""
    assert text.endswith(".") and "\n" not in text and ". " not in text and len(text) > 20


def test_the_tests_have_the_same_folders() -> None:
    folders = {path.parent.name for path in (ROOT / "tests").glob("*/test_*.py")}
    assert folders <= {room(name) for name in SOURCES} - {"ground"}
    assert {path.name for path in (ROOT / "tests").glob("[!t]*.py")} == {"conftest.py"}, "helpers are in tests/support"


@of_each(name for name in SOURCES if name != "rlkit.paths")
def test_a_home_folder_is_looked_up_in_one_place(name: str) -> None:
    """pathlib's own raises a RuntimeError for a user who is not here: `rlkit.paths.home` does not."""
    assert not [called for called, _ in calls(name) if called.endswith("expanduser")]


@of_each(name for name in SOURCES if room(name) == "algorithms")
def test_an_algorithm_imports_its_parent_relatively(name: str) -> None:
    assert "from rlkit.algorithms" not in SOURCES[name].read_text(encoding="utf-8"), "write `from .parent import ...`"


@of_each(name for name in SOURCES if room(name) == "envs")
def test_an_environment_knows_control_or_text_only(name: str) -> None:
    rooms = {room(other) for other in modules(name)}
    assert not {"control", "text"} <= rooms
    assert "language" not in {room(other) for other in modules(name, top_level=True)}, "import it where it is asked for"
    assert "from rlkit.envs" not in SOURCES[name].read_text(encoding="utf-8"), "write `from .parent import ...`"


PURE = ("returns", "losses", "divergences", "group_scores", "preference_losses", "shapes")


@of_each(f"rlkit.{name}" for name in PURE)
def test_the_mathematics_needs_torch_and_its_own_parts_only(name: str) -> None:
    outside = {full.partition(".")[0] for full in imports(name)} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "rlkit"}
    assert {room(other) for other in modules(name)} <= {"ground"}


@of_each(name for name in SOURCES if room(name) not in ("algorithms", "envs"))
def test_the_framework_names_no_plug_in(name: str) -> None:
    assert not {other for other in modules(name) if room(other) in ("algorithms", "envs")}
    for called, node in calls(name):
        if called.endswith("plugins.load") or called == "load":
            assert not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant)), f"line {node.lineno}"


def test_what_runs_in_a_process_of_its_own_is_imported_by_nobody() -> None:
    assert not {full for name in SOURCES for full in imports(name)} & PROGRAMS


@of_each(name for name in SOURCES if name not in PROGRAMS)
def test_no_module_needs_an_optional_package_to_be_imported(name: str) -> None:
    assert not {full.partition(".")[0] for full in imports(name, top_level=True)} & OPTIONAL


@of_each(SOURCES)
def test_nothing_read_from_disk_can_execute(name: str) -> None:
    assert not {full.partition(".")[0] for full in imports(name)} & {"pickle", "dill", "shelve", "marshal", "joblib"}
    for called, node in calls(name):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        where = f"line {node.lineno}: {called}"
        assert called not in {"eval", "exec", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"}, where
        assert called != "torch.load" or given.get("weights_only") == "True", where
        assert called not in {"np.load", "numpy.load"} or given.get("allow_pickle", "False") == "False", where
        assert called != "yaml.load" or name == "rlkit.settings.strict_yaml", where
        assert given.get("trust_remote_code", "False") == "False", where


@of_each(name for name in SOURCES if name not in {*PROGRAMS, "rlkit.seeding"})  # those have generators of their own
def test_no_draw_comes_from_a_global_generator(name: str) -> None:
    drawing = {"rand", "randn", "randint", "randperm", "multinomial", "bernoulli", "normal", "rand_like", "randn_like"}
    for called, node in calls(name):
        where = f"line {node.lineno}: {called}"
        owner, _, function = called.rpartition(".")
        if owner == "torch":
            assert function not in {"manual_seed", "seed"}, where
            assert function not in drawing or "generator" in {keyword.arg for keyword in node.keywords}, where
        if owner in ("np.random", "numpy.random"):
            assert function in {"default_rng", "Generator", "PCG64", "SeedSequence", "get_state", "set_state"}, where
        if owner == "random":
            assert function in {"Random", "getstate", "setstate"}, where


@of_each(SOURCES)
def test_files_and_functions_stay_short(name: str) -> None:
    assert len(SOURCES[name].read_text(encoding="utf-8").splitlines()) <= 300
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 40, node.name


def test_each_test_file_has_a_name_of_its_own() -> None:
    """pytest takes two of one name for the same module, and runs neither."""
    names = Counter(path.name for path in (ROOT / "tests").rglob("test_*.py"))
    assert [name for name, times in names.items() if times > 1] == []
