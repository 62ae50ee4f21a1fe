"""algo.storage: a run with its replay in files is the one with it in memory, also where it is cut and goes on."""

import os
import shutil
from pathlib import Path

import pytest
from support.resuming import cut, differences, same

from rlkit import compare, evaluate, run
from rlkit.recording import checkpoint
from rlkit.settings import config

SHORT = ["iterations=8", "checkpoint_every=1", "evaluation_episodes=2", "validation_episodes=2", "measure=latest"]
SHORT += ["algo.capacity=60", "algo.steps=4", "algo.warmup_steps=20", "algo.batch_size=8", "algo.n_step=3"]
SHORT += ["policy.hidden=8", "env.rows=4"]
SCREENS = ["env=gym", "env.entry=support.screens:Screen", "env.wrappers=FrameStackObservation", "policy.encoder=flat"]
WORDS = {
    "dqn": ["algo=dqn", *SCREENS, "env.wrapper_kwargs.FrameStackObservation.stack_size=2", *SHORT],
    "masked": ["algo=dqn", "env=gym", "env.id=Taxi-v4", *SHORT],  # observations with parts
    "sac": ["algo=sac", "env=pendulum", "algo.prioritized=true", *SHORT],
    "td3": ["algo=td3", "env=pendulum", *SHORT],
}


@pytest.mark.parametrize("algo", ["dqn", "masked", "sac"])
@pytest.mark.slow
def test_a_run_goes_on_from_its_files_and_learns_what_it_learns_in_memory(
    algo: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    memory, whole, killed = (tmp_path / name for name in ("memory", "whole", "killed"))
    assert run.main([*WORDS[algo], f"out={memory}"]) == 0
    assert run.main([*WORDS[algo], f"out={whole}", f"algo.storage={tmp_path / 'one'}"]) == 0
    cut([*WORDS[algo], f"algo.storage={tmp_path / 'other'}"], killed, monkeypatch)
    assert run.main([f"resume={killed}", "trust=true"]) == 0, capsys.readouterr().err
    assert differences(whole, killed) == []
    assert [x for x in differences(memory, whole) if x != "latest: parts/buffer"] == []
    assert not any(x.numel() for x in checkpoint.load(whole)["parts"]["buffer"]["store"].values())


def test_the_buffer_asks_for_checkpoints_before_its_spare_places_are_used_up(tmp_path: Path) -> None:
    words = [x for x in WORDS["td3"] if not x.startswith(("checkpoint_every", "iterations"))]
    words += ["checkpoint_every=1000", "iterations=9", "keep=20"]
    assert run.main([*words, f"out={tmp_path / 'run'}", f"algo.storage={tmp_path / 'ring'}"]) == 0
    kept = sorted(int(path.stem[10:]) for path in (tmp_path / "run" / "checkpoints").glob("iteration-*"))
    assert kept == [2, 4, 6, 8]  # of 16 steps each, and 32 spare places
    assert checkpoint.load(tmp_path / "run")["progress"]["iteration"] == 9


@pytest.mark.slow
def test_the_folder_is_absolute_and_an_evaluation_does_not_need_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run.main([*WORDS["td3"], "out=run", "algo.storage=ring"]) == 0
    assert config.from_folder("run").algo["storage"] == os.path.realpath(tmp_path / "ring")
    shutil.rmtree("ring")
    assert evaluate.main(["run", "episodes=2"]) == 0
    capsys.readouterr()
    assert run.main(["resume=run", "iterations=20"]) == 2
    assert "(there is no such folder): put it back as it was, give algo.storage=FOLDER" in capsys.readouterr().err


@pytest.mark.slow
def test_the_folder_may_move(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_folder, one, other = (tmp_path / name for name in ("run", "one", "other"))
    assert run.main([*WORDS["td3"], f"out={run_folder}", f"algo.storage={one}"]) == 0
    one.rename(other)
    again = [f"resume={run_folder}", "iterations=9"]
    assert run.main(again) == 2
    assert run.main([*again, "algo.storage=none"]) == 2
    assert "it has algo.storage=" in capsys.readouterr().err
    assert run.main([*again, f"algo.storage={other}"]) == 0
    assert run.main([f"resume={run_folder}", "iterations=10"]) == 0


@pytest.mark.parametrize("place", ["ring", pytest.param("replay/ring", marks=pytest.mark.slow)])
def test_a_copy_of_a_run_with_its_replay_leaves_the_first_one_as_it_is(place: str, tmp_path: Path) -> None:
    first, second, moved = (tmp_path / name for name in ("first", "second", "moved"))
    assert run.main([*WORDS["td3"], f"out={first}", f"algo.storage={first / place}"]) == 0
    shutil.copytree(first, second)
    (second / place / "kept").unlink()  # as before the first checkpoint
    assert config.from_folder(second).algo["storage"] == str(second / place)
    assert run.main([f"resume={second}", "iterations=30"]) == 0
    assert config.from_folder(second).algo["storage"] == str(second / place)
    first.rename(moved)
    assert run.main([f"resume={moved}", "iterations=30"]) == 0
    assert differences(moved, second) == []
    shutil.move(moved / place, tmp_path / "ring")
    assert evaluate.main([str(moved), "episodes=2", f"algo.storage={tmp_path / 'ring'}"]) == 0


def test_several_runs_do_not_share_a_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["algo=dqn", "env=cartpole", "seed=0,1", f"out={tmp_path / 'out'}", f"algo.storage={tmp_path / 'ring'}"]
    assert compare.main(words) == 2
    assert "is for one run, and here several would write there: leave it out" in capsys.readouterr().err
    assert not (tmp_path / "ring").exists()


@pytest.mark.slow
def test_the_same_state_comes_back(tmp_path: Path) -> None:
    assert run.main([*WORDS["sac"], f"out={tmp_path / 'run'}", f"algo.storage={tmp_path / 'ring'}"]) == 0
    before = checkpoint.load(tmp_path / "run")["parts"]["buffer"]
    assert run.main([f"resume={tmp_path / 'run'}"]) == 0  # which is at its end
    assert same(checkpoint.load(tmp_path / "run")["parts"]["buffer"], before)
