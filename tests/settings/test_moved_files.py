"""Files and folders that a run names and that lie elsewhere by now: the same ones go on with the run, no others."""

import json
import shutil
from pathlib import Path

import pytest
import yaml

import rlkit
from rlkit import evaluate, run
from rlkit.errors import UserError
from rlkit.pages import choice
from rlkit.settings import config
from rlkit.settings.assemble import assemble

SMALL = ("algo=grpo", "env=gsm8k", "env.rows=2", "algo.group=2", "env.max_tokens=4", "evaluation_episodes=2")
SMALL += ("env.test=4", "env.validation=2", "iterations=1", "threads=1")
ROWS = "".join(json.dumps({"question": f"{i} + 1?", "answer": f"#### {i + 1}"}) + "\n" for i in range(40))


def config_of(folder: Path) -> dict[str, dict[str, object]]:
    found: dict[str, dict[str, object]] = yaml.safe_load((folder / "config.yaml").read_text())
    return found


def test_a_dataset_that_moved_goes_on(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    old.mkdir()
    (old / "train.jsonl").write_text(ROWS)
    (old / "test.jsonl").write_text(ROWS)
    assert run.main([*SMALL[:-3], "iterations=1", "threads=1", f"env.source={old}/train.jsonl", f"out={folder}"]) == 0
    shutil.copytree(old, new)
    again = [f"resume={folder}", "iterations=2"]
    (old / "train.jsonl").unlink()
    assert run.main(again) == 2
    said = capsys.readouterr().err
    assert f"give the key that names it beside {folder} if it has moved" in said
    (tmp_path / "other.jsonl").write_text(ROWS[:-1])
    assert run.main([*again, f"env.source={tmp_path}/other.jsonl"]) == 2
    assert f"{tmp_path}/other.jsonl is not what {old}/train.jsonl was when the run" in capsys.readouterr().err
    (new / "test.jsonl").write_text(ROWS[:-1])
    assert run.main([*again, f"env.source={new}/train.jsonl"]) == 2
    assert f"{new}/test.jsonl is not what {old}/test.jsonl was when the run" in capsys.readouterr().err
    (new / "test.jsonl").write_text(ROWS)
    assert run.main([*again, f"env.source={new}/train.jsonl"]) == 0
    held = config_of(folder)
    assert held["env"]["source"] == f"{new}/train.jsonl"
    assert sorted(held["marks"]) == [f"{new}/test.jsonl", f"{new}/train.jsonl"]
    assert f"env.source={new}/train.jsonl" in (folder / "config.yaml").read_text().partition("\n")[0]
    assert run.main([f"resume={folder}", "iterations=3"]) == 0, "from now on it is there"


def test_a_run_whose_dataset_moved_is_evaluated_played_and_loaded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    old, new, folder, other = (tmp_path / name for name in ("old.jsonl", "new.jsonl", "run", "other"))
    old.write_text(ROWS)
    for place in (folder, other):
        assert run.main([*SMALL, f"env.source={old}", f"out={place}"]) == 0
    held = (folder / "config.yaml").read_bytes()
    old.rename(new)
    words, key = [str(folder), "episodes=2"], f"env.source={new}"
    capsys.readouterr()
    assert evaluate.main(words) == 2
    assert f"give the key that names it beside {folder} if it has moved" in capsys.readouterr().err
    assert evaluate.main([*words, key, f"against={other}"]) == 0
    assert evaluate.main([*words, key, "env.max_tokens=5"]) == 2
    told = "this opens a run as it was: it has env.max_tokens=4, not 5; what may change is where the files lie"
    assert told in capsys.readouterr().err
    assert choice.site([str(folder), key]).writes and not choice.site([str(folder)]).writes
    with pytest.raises(UserError, match=r"'episodes=2' is not understood: beside a folder only port="):
        choice.site(words)
    with pytest.raises(UserError, match=r"old\.jsonl is gone"):
        rlkit.load(folder)
    with pytest.raises(UserError, match="iterations= is no key of a file that may have moved"):
        rlkit.load(folder, iterations=2)
    loaded = rlkit.load(folder, **{"env.source": new})
    assert loaded.evaluate(episodes=2, against=other)["greedy"]["episodes"] == 2
    assert (folder / "config.yaml").read_bytes() == held, "only a resume writes"
    assert loaded.resume(iterations=2, quiet=True).summary is not None
    assert config_of(folder)["env"]["source"] == str(new)


def test_a_place_with_commas_and_colons_moves(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "a,b: c", tmp_path / "d:e,f", tmp_path / "run"
    old.mkdir()
    folder.mkdir()
    (old / "train.jsonl").write_text(ROWS)
    (old / "its:model,s").mkdir()
    (old / "its:model,s" / "config.json").write_text("{}")
    (tmp_path / "env.py").write_text(OWN)
    words = ["algo=ppo", f"env={tmp_path}/env.py", f"env.one={old}/its:model,s"]
    (folder / "config.yaml").write_text(assemble(config.read(words)).text)
    old.rename(new)
    assert read_back(folder, f"env.one={new}/its:model,s").env["one"] == f"{new}/its:model,s"


def test_a_file_that_moved_and_changed_is_accepted_by_trust(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "mine.py", tmp_path / "ours.py", tmp_path / "run"
    old.write_text("def one(prompts, completions, **columns):\n    return [1.0 for _ in completions]\n")
    folder.mkdir()
    (folder / "config.yaml").write_text(assemble(config.read([*SMALL, f"env.reward={old}:one"])).text)
    old.rename(new)
    new.write_text(new.read_text().replace("1.0", "2.0"))
    with pytest.raises(UserError, match=f"{new} is not what {old} was .*, or accept the change with trust=changed$"):
        read_back(folder, f"env.reward={new}:one")
    found = config.read([f"resume={folder}", "trust=changed", f"env.reward={new}:one"])
    assert found.env["reward"] == f"{new}:one"
    with pytest.raises(UserError, match=r"gone\.py is not what"):
        config.read([f"resume={folder}", "trust=changed", f"env.reward={tmp_path}/gone.py:one"])


def test_code_that_stays_keeps_the_neighbor_of_code_that_moved(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    old.mkdir()
    folder.mkdir()
    (old / "helper.py").write_text("def score(text):\n    return 1.0\n")
    for name in ("one", "two"):
        text = f"from .helper import score\n\n\ndef {name}(prompts, completions, **columns):\n"
        (old / f"{name}.py").write_text(f"{text}    return [score(x) for x in completions]\n")
    words = [f"env.reward={old}/one.py:one", f"env.metrics={old}/two.py:two"]
    (folder / "config.yaml").write_text(assemble(config.read([*SMALL, *words])).text)
    shutil.copytree(old, new)
    (old / "one.py").unlink()
    assert {*read_back(folder, f"env.reward={new}/one.py:one").marks} >= {f"{old}/helper.py", f"{new}/helper.py"}


def test_what_is_in_both_places_may_be_read_from_either(tmp_path: Path) -> None:
    one, two, folder = tmp_path / "one.jsonl", tmp_path / "two.jsonl", tmp_path / "run"
    one.write_text(ROWS)
    assert run.main([*SMALL[:-3], "iterations=1", "threads=1", f"env.source={one}", f"out={folder}"]) == 0
    two.write_text(ROWS.replace("39 + 1", "39 + 2"))
    again = [f"resume={folder}", "iterations=2", f"env.source={two}"]
    assert run.main(again) == 2, "it is another dataset"
    two.write_text(ROWS)
    assert run.main(again) == 0
    assert config_of(folder)["env"]["source"] == str(two)


def test_a_model_and_code_that_moved_go_on(tmp_path: Path) -> None:
    """A project that was copied to another machine."""
    home, folder = tmp_path / "home", tmp_path / "run"
    first = rlkit.train("grpo", "gsm8k", **dict(w.split("=") for w in SMALL[2:]), out=tmp_path / "first", quiet=True)
    home.mkdir()
    shutil.copytree(first.folder / "model", home / "model")
    (home / "mine.py").write_text("from helper import score\n\n\ndef one(prompts, completions, **columns):\n")
    with (home / "mine.py").open("a") as file:
        file.write("    return [score(x) for x in completions]\n")
    (home / "helper.py").write_text("def score(text):\n    return float(len(text) % 2)\n")
    words = [*SMALL, f"policy.model={home}/model", f"env.reward={home}/mine.py:one, correct", f"out={folder}"]
    (home / "mine.py").write_text((home / "mine.py").read_text().replace("from helper", "from .helper"))
    assert run.main(words) == 0
    away = tmp_path / "away"
    home.rename(away)
    again = [f"resume={folder}", "trust=true", "iterations=2"]
    assert run.main([*again, f"policy.model={away}/model"]) == 2
    both = [f"policy.model={away}/model", f"env.reward={away}/mine.py:one,correct"]
    assert run.main([again[0], *both, "iterations=2"]) == 2, "its code needs trust here, too"
    assert run.main([*again, *both]) == 0
    held = config_of(folder)
    assert held["policy"]["model"] == f"{away}/model" and held["env"]["reward"] == f"{away}/mine.py:one,correct"
    assert all(name.startswith(str(away)) for name in held["marks"]) and len(held["marks"]) == 3
    assert rlkit.load(folder, trust=True).evaluate(episodes=2)["greedy"]["episodes"] == 2


def test_an_algorithm_of_ones_own_that_moved_goes_on(tmp_path: Path) -> None:
    source = (Path(rlkit.__file__).parents[1] / "algorithms" / "q_learning.py").read_text()
    (tmp_path / "mine.py").write_text(source)
    folder = tmp_path / "run"
    assert run.main([f"algo={tmp_path}/mine.py", "env=gridworld", "iterations=1", f"out={folder}"]) == 0
    (tmp_path / "mine.py").rename(tmp_path / "ours.py")
    again = [f"resume={folder}", "trust=true", "iterations=2", f"algo={tmp_path}/ours.py"]
    assert run.main(again) == 0
    assert config_of(folder)["algo"]["name"] == f"{tmp_path}/ours.py"


def test_an_environment_of_ones_own_that_moved_is_loaded(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "mine.py", tmp_path / "ours.py", tmp_path / "run"
    old.write_text((Path(rlkit.__file__).parents[1] / "envs" / "gridworld.py").read_text())
    assert run.main(["algo=q_learning", f"env={old}", "iterations=1", f"out={folder}"]) == 0
    old.rename(new)
    with pytest.raises(UserError, match=r"mine\.py is gone"):
        rlkit.load(folder, trust=True)
    for place in (new, str(new)):
        assert rlkit.load(folder, trust=True, env=place).evaluate(episodes=2)["greedy"]["episodes"] == 2
    with pytest.raises(UserError, match=r"env=cartpole: .* is not what .*mine\.py was"):
        rlkit.load(folder, trust=True, env="cartpole")


def read_back(folder: Path, *words: str) -> config.Given:
    return config.read([f"resume={folder}", "trust=true", *words])


def test_functions_of_one_file_move_together(tmp_path: Path) -> None:
    old, new, folder = tmp_path / "mine.py", tmp_path / "ours.py", tmp_path / "run"
    one = "def {}(prompts, completions, **columns):\n    return [1.0 for _ in completions]\n"
    old.write_text(one.format("first") + one.format("second") + one.format("third"))
    words = [f"env.reward={old}:first,{old}:second", f"env.metrics={old}:third"]
    folder.mkdir()
    text = assemble(config.read([*SMALL, *words])).text
    (folder / "config.yaml").write_text(text)
    old.rename(new)
    with pytest.raises(UserError, match=f"^{old} is gone since"):
        read_back(folder, f"env.reward={new}:first,{new}:second")
    found = read_back(folder, f"env.reward={new}:first,{new}:second", f"env.metrics={new}:third")
    assert (found.env["reward"], found.env["metrics"]) == (f"{new}:first,{new}:second", f"{new}:third")
    assert list(found.marks) == [str(new)]
    with pytest.raises(UserError, match=f"gone.py is not what {old} was when the run"):
        read_back(folder, f"env.reward={new}:first,{tmp_path}/gone.py:second")
    shutil.copy(new, old)
    found = read_back(folder, f"env.reward={new}:first,{old}:second")
    assert (found.env["reward"], found.env["metrics"]) == (f"{new}:first,{old}:second", f"{old}:third")
    assert set(found.marks) == {str(new), str(old)}


def test_files_of_one_folder_with_keys_of_their_own_move_apart(tmp_path: Path) -> None:
    """Such as models whose names end alike."""
    (tmp_path / "env.py").write_text(OWN)
    for name in ("one-0.5B", "two-0.5B"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(json.dumps(name))
    folder = tmp_path / "run"
    folder.mkdir()
    words = [f"env={tmp_path}/env.py", f"env.one={tmp_path}/one-0.5B", f"env.two={tmp_path}/two-0.5B"]
    (folder / "config.yaml").write_text(assemble(config.read(["algo=ppo", *words])).text)
    (tmp_path / "away").mkdir()
    (tmp_path / "one-0.5B").rename(tmp_path / "away" / "one-0.5B")
    found = read_back(folder, f"env.one={tmp_path}/away/one-0.5B")
    assert (found.env["one"], found.env["two"]) == (f"{tmp_path}/away/one-0.5B", f"{tmp_path}/two-0.5B")


OWN = """
from dataclasses import dataclass
from rlkit.api import Folder
from rlkit.envs.cartpole import Config as Its, make as made

@dataclass(frozen=True)
class Config(Its):
    one: Folder = ""
    two: Folder = ""

def make(config, seed, device):
    return made(config, seed, device)
"""


def test_a_list_of_files_moves(tmp_path: Path) -> None:
    """What another key names in a list is no neighbor that goes along."""
    lines = Path(rlkit.__file__).parents[1].joinpath("envs", "cartpole.py").read_text().splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("class Config"))
    keys = ["    many: tuple[File, ...] = ()", '    one: File = ""']
    text = "\n".join([*lines[: start + 1], *keys, *lines[start + 1 :]])
    (tmp_path / "mine.py").write_text(f"from rlkit.fields import File\n{text}\n")
    old, new, folder = tmp_path / "old", tmp_path / "new", tmp_path / "run"
    old.mkdir()
    folder.mkdir()
    for name in "ab":
        (old / f"{name}.txt").write_text(name)
    words = ["algo=ppo", f"env={tmp_path}/mine.py", f"env.many={old}/a.txt,{old}/b.txt", f"env.one={old}/a.txt"]
    (folder / "config.yaml").write_text(assemble(config.read(words)).text)
    shutil.copytree(old, new)
    some = read_back(folder, f"env.one={new}/a.txt")
    assert some.env["one"] == f"{new}/a.txt" and some.env["many"] == [f"{old}/a.txt", f"{old}/b.txt"]
    shutil.rmtree(old)
    with pytest.raises(UserError, match=f"^{old}/a.txt is gone"):
        read_back(folder, f"env.one={new}/a.txt")
    found = read_back(folder, f"env.one={new}/a.txt", f"env.many={new}/a.txt,{new}/b.txt")
    assert found.env["many"] == [f"{new}/a.txt", f"{new}/b.txt"]
    assert {name for name in found.marks if name.endswith(".txt")} == {f"{new}/a.txt", f"{new}/b.txt"}


def test_all_files_that_are_gone_are_named_at_once(tmp_path: Path) -> None:
    one, other, folder = tmp_path / "one.py", tmp_path / "other.py", tmp_path / "run"
    for path in (one, other):
        path.write_text("def mine(prompts, completions, **columns):\n    return [1.0 for _ in completions]\n")
    folder.mkdir()
    words = [f"env.reward={one}:mine", f"env.metrics={other}:mine"]
    (folder / "config.yaml").write_text(assemble(config.read([*SMALL, *words])).text)
    one.unlink()
    other.unlink()
    with pytest.raises(UserError, match=f"^{one} is gone since .* any more; the same holds for {other}$"):
        read_back(folder)
