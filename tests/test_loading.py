"""What is loaded where: a process that needs one room does not wait for another's imports."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
HEAVY = ("torchrl", "transformers", "datasets", "ray", "scipy", "matplotlib", "wandb")
TEXT = ("rlkit.text", "rlkit.language", "tokenizers")
CONTROL = ("rlkit.control",)


@pytest.mark.parametrize(
    ("words", "unwanted"),
    [
        pytest.param(["algo=ppo", "env=cartpole"], HEAVY + TEXT, marks=pytest.mark.slow),
        pytest.param(["algo=grpo", "env=cartpole"], HEAVY + TEXT, marks=pytest.mark.slow),
        pytest.param(["algo=q_learning", "env=gridworld"], HEAVY + TEXT, marks=pytest.mark.slow),
        (["algo=grpo", "env=gsm8k"], HEAVY + CONTROL),
        pytest.param(["algo=dpo", "env=preferences"], HEAVY + CONTROL, marks=pytest.mark.slow),
    ],
    ids=" ".join,
)
@pytest.mark.slow
def test_a_run_loads_what_it_uses_and_no_more(words: list[str], unwanted: tuple[str, ...]) -> None:
    code = f"""if True:
        import sys
        from rlkit import session
        from rlkit.settings import config
        from rlkit.settings.assemble import assemble
        assemble(config.read({words}))"""
    refuse(code, unwanted)


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("rlkit", ("torch", "numpy", "gymnasium", "tensordict", "rich", "yaml")),
        ("rlkit.control", TEXT),
        ("rlkit.text", ("rlkit.language", "rlkit.control", "tokenizers")),
        ("rlkit.language", ("torch",)),
        ("rlkit.settings.plugins", ("torch", "pydantic")),
    ],
)
@pytest.mark.slow
def test_a_room_loads_no_more_than_it_needs(module: str, unwanted: tuple[str, ...]) -> None:
    refuse(f"import sys, {module}", unwanted)


@pytest.mark.slow
def test_what_is_not_needed_yet_waits_until_after_the_first_step(tmp_path: Path) -> None:
    words = ["algo=ppo", "env=cartpole", f"out={tmp_path / 'r'}"]
    code = f"""if True:
        import sys
        from rlkit import run
        from rlkit.control.vector import Copies

        class First(BaseException):
            pass

        def step(*_):
            raise First

        Copies.step = step
        try:
            run.main({words})
        except First:
            pass
        else:
            sys.exit("there was no step")"""
    later = ("tensorboard", "rlkit.comparison", "rlkit.pages", "rlkit.settings.help", "rlkit.statistics.runs")
    refuse(code, (*HEAVY, *TEXT, *later))


@pytest.mark.parametrize("words", [["--help"], ["algo=pqo", "--help"], ["env=cartpole"]], ids=" ".join)
def test_help_and_a_mistake_in_the_words_need_no_torch(words: list[str]) -> None:
    code = f"import sys\nfrom rlkit import run\nrun.main({words})"
    refuse(code, (*HEAVY, "torch", "tensordict", "gymnasium", "numpy"))


def test_a_command_leaves_what_it_imported_out_of_the_rounds_of_the_collector() -> None:
    code = """if True:
        import gc, sys
        from rlkit import run
        run.main(["--help"])
        assert gc.isenabled() and gc.get_freeze_count() > 10_000
        frozen = gc.get_freeze_count()
        run.main(["--help"])
        assert gc.get_freeze_count() <= frozen"""
    refuse(code, ())


def refuse(code: str, unwanted: tuple[str, ...]) -> None:
    """Run some code in a process of its own, and see that certain modules were not loaded by it."""
    names = {(name, f"{name}.") for name in unwanted}
    look = f"found = [m for m in sys.modules if any(m == a or m.startswith(b) for a, b in {names})]"
    code = f"{code}\n{look}\nsys.exit(f'loaded: {{found}}' if found else 0)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
