"""Who may import whom, and what nobody may do: read from the sources, so nothing has to run."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SOURCES = {
    str(path.relative_to(ROOT).with_suffix("")).replace("/", "."): path
    for folder in ("rlkit", "algorithms", "envs")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if path.name != "__init__.py"
}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in SOURCES.items()}

MATHEMATICS = {"policies", "tables", "normalize", "buffers", "exploration", "prioritized", "returns", "losses", "exact"}
PURE = {"returns", "losses", "divergences", "group_scores", "preference_losses", "shapes"}  # torch, and each other
MATHEMATICS |= PURE
CONTROL = {"batched", "control", "tabular", "exact"}
TEXT = {"text", "pairs"}
PROBLEMS = {f"language.{name}" for name in ("problems", "grader", "rewards", "sources")}
PEERS = {
    "datasets",
    "huggingface_hub",
    "matplotlib",
    "playwright",
    "ray",
    "scipy",
    "stable_baselines3",
    "torchrl",
    "transformers",
    "trl",
    "vllm",
    "wandb",
}  # never needed to import
ENTRIES = {"run", "compare", "evaluate", "play", "new"}


def imports(name: str, top_level: bool = False) -> Iterator[str]:
    """Absolute names of all that a module imports, `rlkit.x` where it says `from rlkit import x` or `from .x`."""
    tree = TREES[name]
    for node in tree.body if top_level else ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            package = name.split(".")[: -node.level] if node.level else []
            module = ".".join([*package, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def of_rlkit(name: str) -> set[str]:
    """The modules of rlkit that a module imports: `losses`, `language.problems`, `algorithms.ppo`."""
    known = {module.removeprefix("rlkit.") for module in SOURCES}
    found = set()
    for full in imports(name):
        inner = full.removeprefix("rlkit.")
        if full.startswith(("rlkit.", "algorithms.", "envs.")):
            found |= {inner, inner.rpartition(".")[0]} & known or {inner}
    return found


def calls(name: str) -> Iterator[tuple[str, ast.Call]]:
    """Every call with the dotted name of what is called."""
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("algorithms.")])
def test_an_algorithm_knows_the_mathematics_and_its_own_family_only(name: str) -> None:
    foreign = {m for m in of_rlkit(name) - {"api", "seeding"} - MATHEMATICS if not m.startswith("algorithms.")}
    assert not foreign
    assert not any(full.startswith("rlkit.algorithms") for full in imports(name)), "write `from .parent import ...`"


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("envs.")])
def test_an_environment_knows_control_or_text_only(name: str) -> None:
    foreign = {m for m in of_rlkit(name) - {"api", "seeding"} - TEXT - CONTROL - PROBLEMS if not m.startswith("envs.")}
    assert not foreign
    assert not (of_rlkit(name) & CONTROL and of_rlkit(name) & TEXT)
    assert not any(full.startswith("rlkit.envs") for full in imports(name)), "write `from .parent import ...`"


@pytest.mark.parametrize("name", sorted(PURE))
def test_the_mathematics_needs_torch_and_nothing_else(name: str) -> None:
    outside = {full.partition(".")[0] for full in imports(f"rlkit.{name}")} - set(sys.stdlib_module_names)
    assert outside <= {"torch", "rlkit"} and of_rlkit(f"rlkit.{name}") <= PURE


@pytest.mark.parametrize("name", [name for name in SOURCES if name.startswith("rlkit.")])
def test_the_framework_names_no_plug_in(name: str) -> None:
    assert not any(m.startswith(("algorithms.", "envs.")) for m in of_rlkit(name))
    for called, node in calls(name):
        if called.endswith("plugins.load") or called == "load":
            assert not (len(node.args) > 1 and isinstance(node.args[1], ast.Constant)), f"line {node.lineno}"


def test_the_lower_layers_never_look_up() -> None:
    upper = ENTRIES | {"train", "log", "checkpoint", "doctor", "config", "schema", "plugins", "usage", "meter"}
    upper |= {"writers", "interop", "outcome"}
    lower = MATHEMATICS | CONTROL | {"api", "seeding", "copies", "text", "pairs"}
    for name in SOURCES:
        if name.removeprefix("rlkit.") in lower or name.startswith("rlkit.language."):
            assert not of_rlkit(name) & upper, name
        elif not name.startswith(("algorithms.", "envs.")) and name.removeprefix("rlkit.") not in ENTRIES:
            assert not of_rlkit(name) & ENTRIES, name


@pytest.mark.parametrize("name", SOURCES)
def test_no_module_needs_a_peer_to_be_imported(name: str) -> None:
    assert not {full.partition(".")[0] for full in imports(name, top_level=True)} & PEERS


@pytest.mark.parametrize("name", SOURCES)
def test_nothing_read_from_disk_can_execute(name: str) -> None:
    assert not {full.partition(".")[0] for full in imports(name)} & {"pickle", "dill", "shelve", "marshal", "joblib"}
    for called, node in calls(name):
        given = {keyword.arg: ast.unparse(keyword.value) for keyword in node.keywords}
        where = f"line {node.lineno}: {called}"
        assert called not in {"eval", "exec", "yaml.unsafe_load", "yaml.full_load", "yaml.load_all"}, where
        assert called != "torch.load" or given.get("weights_only") == "True", where
        assert called not in {"np.load", "numpy.load"} or given.get("allow_pickle", "False") == "False", where
        assert called != "yaml.load" or any("BaseLoader" in ast.unparse(arg) for arg in node.args), where
        assert given.get("trust_remote_code", "False") == "False", where


@pytest.mark.parametrize("name", SOURCES)
def test_no_draw_comes_from_a_global_generator(name: str) -> None:
    drawing = {"rand", "randn", "randint", "randperm", "multinomial", "bernoulli", "normal", "rand_like", "randn_like"}
    for called, node in calls(name):
        where = f"line {node.lineno}: {called}"
        owner, _, function = called.rpartition(".")
        if owner == "torch":
            assert function not in {"manual_seed", "seed"}, where
            assert function not in drawing or "generator" in {keyword.arg for keyword in node.keywords}, where
        if owner in ("np.random", "numpy.random"):
            assert function in {"default_rng", "Generator", "PCG64", "SeedSequence"}, where
        if owner == "random":
            assert function == "Random", where


@pytest.mark.parametrize("name", SOURCES)
def test_files_and_functions_stay_short(name: str) -> None:
    assert len(SOURCES[name].read_text(encoding="utf-8").splitlines()) <= 300
    for node in ast.walk(TREES[name]):
        if isinstance(node, ast.FunctionDef):
            assert (node.end_lineno or 0) - node.lineno < 40, node.name


def test_control_never_loads_text_code() -> None:
    code = """if True:
        import sys
        from rlkit import plugins, session
        plugins.load("algorithms", "dqn")
        plugins.load("algorithms", "grpo")
        plugins.load("envs", "cartpole")
        text = ("rlkit.text", "rlkit.language", "tokenizers", "torchrl", "transformers")
        loaded = [module for module in sys.modules if module.startswith(text)]
        sys.exit(f"loaded: {loaded}" if loaded else 0)"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
