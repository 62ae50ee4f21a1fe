"""A wheel carries its plug-ins inside rlkit/, and works in a folder with an `envs/` and `algorithms/` of its own."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PLACES = {"rlkit": "rlkit", "algorithms": "rlkit/algorithms", "envs": "rlkit/envs", "configs": "rlkit/configs"}

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built here and unpacked as an installer would."""
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("rlkit_torch-*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


@pytest.fixture
def elsewhere(tmp_path: Path) -> Path:
    """A project of somebody else, with packages of the same names."""
    for kind in ("envs", "algorithms", "configs"):
        (tmp_path / kind).mkdir()
        (tmp_path / kind / "__init__.py").write_text("raise RuntimeError('the wrong package')\n")
    return tmp_path


def python(site: Path, folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run as one does with the wheel installed; the checkout, which may be installed as editable, comes after it."""
    environment = os.environ | {"PYTHONPATH": str(site), "COLUMNS": "80"}
    return subprocess.run([sys.executable, *arguments], cwd=folder, env=environment, capture_output=True, text=True)


def test_the_wheel_carries_every_file_in_its_place(site: Path) -> None:
    for folder, place in PLACES.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                assert (site / place / path.relative_to(ROOT / folder)).read_bytes() == path.read_bytes()
    assert {path.name for path in site.iterdir() if not path.name.endswith(".dist-info")} == {"rlkit"}


def test_plug_ins_are_those_of_the_wheel(site: Path, elsewhere: Path) -> None:
    code = """if True:
        import rlkit
        from rlkit.settings import config, plugins
        print(list(rlkit.__path__))
        for kind in ("algorithms", "envs"):
            for name in plugins.names(kind):
                print(plugins.load(kind, name).__file__)
        print(config.read(["algo=grpo", "env=gsm8k"]).run)"""
    done = python(site, elsewhere, "-c", code)
    assert done.returncode == 0, done.stderr
    path, *files, run = done.stdout.splitlines()
    assert path == str([str(site / "rlkit")])
    assert len(files) == sum(len(list((ROOT / kind).glob("[!_]*.py"))) for kind in ("algorithms", "envs"))
    assert all(file.startswith(str(site / "rlkit")) for file in files)
    assert run != "{}"  # configs/grpo-gsm8k.yaml was found


def test_a_run_works_beside_packages_of_the_same_names(site: Path, elsewhere: Path) -> None:
    done = python(site, elsewhere, "-m", "rlkit.run", "--help")
    assert done.returncode == 0, done.stderr
    assert "  ppo " in done.stdout
    assert "  cartpole " in done.stdout
    short = ["algo=ppo", "env=cartpole", "iterations=2", "evaluation_episodes=2", "out=run"]
    done = python(site, elsewhere, "-m", "rlkit.run", *short)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (elsewhere / "run" / "summary.json").is_file()


def test_a_plug_in_is_started_and_compared_without_the_checkout(site: Path, elsewhere: Path) -> None:
    done = python(site, elsewhere, "-m", "rlkit.new", "algo", "mine")
    assert done.returncode == 0 and "your_own.md" not in done.stdout, done.stdout + done.stderr
    keys = ["algo=./mine.py,q_learning", "env=gridworld", "seed=0", "iterations=2", "evaluation_episodes=2", "out=both"]
    done = python(site, elsewhere, "-m", "rlkit.compare", *keys, "evaluations=0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (elsewhere / "both" / "index.html").is_file()
