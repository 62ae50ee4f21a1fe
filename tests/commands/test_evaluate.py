"""python -m rlkit.evaluate: what it measures, writes, compares and refuses."""

import json
import os
import shutil
import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch

from rlkit import evaluate, evaluation, run, statistics
from rlkit.api import Scores, UserError
from rlkit.recording import files
from rlkit.text.plain import InWords

RUNS = {
    "table": ["algo=q_learning", "env=gridworld", "iterations=5", "evaluation_episodes=4"],
    "cart": ["algo=ppo", "env=cartpole", "iterations=1", "evaluation_episodes=4"],
    "late": ["algo=ppo", "env=cartpole", "iterations=4", "evaluation_episodes=4", "seed=7", "env.rows=4"],
    "text": ["algo=grpo", "env=gsm8k", "env.rows=2", "env.test=8", "env.validation=4", "iterations=1"],
    "judge": ["algo=reward_model", "env=gsm8k", "env.rows=2", "env.test=8", "env.validation=4", "iterations=1"],
    "pairs": ["algo=reward_model", "env=preferences", "env.rows=2", "env.test=8", "env.validation=4", "iterations=1"],
    "best": [  # the third iteration is the best one
        *("algo=ppo", "env=cartpole", "iterations=6", "evaluate_every=1", "validation_episodes=4", "seed=1"),
        *("evaluation_episodes=4", "measure=best", "algo.lr=0.05"),
    ],
    "short": ["algo=ppo", "env=cartpole", "env.step_limit=20", "iterations=1", "evaluation_episodes=2"],
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A function from a run's name to its folder, trained at the first call."""
    root = tmp_path_factory.mktemp("runs")

    def folder(name: str) -> Path:
        if not (root / name).exists():
            assert run.main([*RUNS[name], f"out={root / name}", "threads=1"]) == 0
        return root / name

    return folder


@pytest.fixture
def copy(trained, tmp_path):
    """A copy of a run that a test may write into."""
    return lambda name: Path(shutil.copytree(trained(name), tmp_path / name))


def measure(folder: Path, *keys: str, name: str = "evaluation-test.json") -> dict:
    assert evaluate.main([str(folder), "threads=1", *keys]) == 0
    return json.loads((folder / name).read_text())


def after(folder: Path) -> float:
    """What the run itself measured when it had ended."""
    return json.loads((folder / "summary.json").read_text())["evaluation"]["after"]["mean"]


def refused(capsys, *argv: object) -> str:
    capsys.readouterr()
    assert evaluate.main([str(word) for word in argv]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "Traceback" not in error
    return error


def test_control_is_told_by_its_distribution_and_every_return(copy, capsys):
    found = measure(copy("cart"), "episodes=12")
    for greedy in ("greedy", "sampled"):
        e = found[greedy]
        assert e["episodes"] == len(e["returns"]) == 12 and e["greedy"] == (greedy == "greedy")
        assert e["distribution"] == statistics.distribution(np.array(e["returns"]))
        assert e["returns"] == e["lengths"] and e["low"] <= e["mean"] <= e["high"]
    out = capsys.readouterr().out
    assert "at the step limit" in out and "iqm" in out and "####" in out


def test_the_table_of_one_episode_has_no_interval(copy, capsys):
    found = measure(copy("short"), "episodes=1")["greedy"]
    assert found["low"] == found["mean"] == found["high"]
    out = capsys.readouterr().out
    assert "on test, 1 episode\n" in out
    assert [line.split()[-1] for line in out.splitlines() if "greedy   " in line] == ["none"]


def test_the_share_of_truncated_episodes_is_counted(copy):
    e = measure(copy("short"), "episodes=30")["sampled"]
    longest = sum(length == 20 for length in e["lengths"]) / 30  # one of them may have fallen in its last step
    assert 0 < e["at_step_limit"] <= longest < 1


@pytest.mark.slow
def test_a_table_is_also_judged_exactly_and_drawn(copy, tmp_path, capsys):
    folder = copy("table")
    assert measure(folder, "episodes=4")["greedy"]["mean"] == after(folder)
    found = measure(
        folder, "episodes=3", f"video={tmp_path / 'walk.gif'}", "split=validation", name="evaluation-validation.json"
    )
    assert found["exact"]["optimal"] > 0.5 and "exact value" in capsys.readouterr().out
    from PIL import Image

    with Image.open(tmp_path / "walk.gif") as gif:
        assert gif.n_frames == found["greedy"]["lengths"][0] + 1


@pytest.mark.parametrize("right", [0.0, 1.0])
def test_pass_at_k_of_problems_that_all_fail_or_are_all_solved_is_not_certain(right: float, monkeypatch) -> None:
    scores = Scores(torch.full((30,), right), torch.ones(30))
    monkeypatch.setattr(InWords, "evaluate", lambda *_, **__: scores, raising=False)
    found = evaluation.pass_at(InWords(), None, (1, 4), 4, None, "test")
    low, high = statistics.wilson(30 * right, 30)
    expected = {"mean": right, "low": low, "high": high, "episodes": 30}
    assert list(found.values()) == [expected] * 2 and high - low > 0.1


def test_text_has_pass_at_k_and_every_greedy_answer_is_written(copy, capsys):
    folder = copy("text")
    found = measure(folder, "pass_at=1,2", "samples=3")
    assert found["greedy"]["mean"] == after(folder)
    assert 0 <= found["pass@1"]["mean"] <= found["pass@2"]["mean"] <= 1
    assert found["pass@1"]["low"] <= found["pass@1"]["mean"] <= found["pass@1"]["high"]
    answers = [json.loads(line) for line in (folder / "completions-test.jsonl").read_text().splitlines()]
    assert len(answers) == 8 and set(answers[0]) == {"prompt", "completion", "answer", "score", "kind"}
    assert sum(answer["score"] for answer in answers) / 8 == found["greedy"]["mean"]
    assert "completions-test.jsonl" in capsys.readouterr().out


def test_a_run_against_itself_differs_by_nothing(copy, capsys):
    for name in ("cart", "text"):
        folder = copy(name)
        found = measure(folder, "episodes=5", f"against={folder}")["against"]
        assert (found["difference"], found["p"], found["ties"], found["better"]) == (0, 1, 5, None)
        out = capsys.readouterr().out
        assert "no difference is shown" in out
        assert "distribution of the return" not in out and "sampled" not in out, "the comparison alone"


@pytest.mark.slow
def test_two_runs_are_played_from_the_same_starts_whatever_their_seeds(copy, capsys):
    folder, other = copy("cart"), copy("late")
    there = measure(other, "episodes=40", "seed=0")["greedy"]
    found = measure(folder, "episodes=40", f"against={other}")
    against = found["against"]
    assert against["theirs"]["mean"] == there["mean"], "other starts than those of seed 0"
    assert against["difference"] == pytest.approx(found["greedy"]["mean"] - there["mean"])
    pairs = zip(found["greedy"]["returns"], there["returns"], strict=True)
    assert against["wins"] == sum(ours > theirs for ours, theirs in pairs)
    out = capsys.readouterr().out
    assert against["says"] in out and "late" in out and "sign-flip permutation test" in out


def test_checkpoints_do_not_overwrite_each_other_and_can_be_compared(copy, capsys):
    folder = copy("cart")
    found = measure(
        folder, "checkpoint=best", f"against={folder}:latest", "episodes=3", name="evaluation-test-best.json"
    )
    assert found["against"]["checkpoint"] == "latest" and not (folder / "evaluation-test.json").exists()
    out = capsys.readouterr().out
    assert "best" in out and "latest" in out
    assert "there are best, latest" in refused(capsys, folder, "checkpoint=last")


@pytest.mark.slow
def test_the_parameters_that_the_run_measured_are_measured_and_named(copy, tmp_path, capsys):
    folder = copy("best")
    found = measure(folder, "episodes=4", f"video={tmp_path / 'one.gif'}")
    assert found["greedy"]["mean"] == after(folder)
    assert (found["checkpoint"], found["iteration"]) == ("best", 3)
    out = capsys.readouterr().out
    assert "checkpoint best, of iteration 3: what the run itself measures" in out
    last = measure(folder, "episodes=4", "checkpoint=latest", name="evaluation-test-latest.json")
    assert (last["checkpoint"], last["iteration"]) == ("latest", 6)
    assert last["greedy"]["mean"] != after(folder)
    assert "checkpoint latest, of iteration 6; the run itself measures best" in capsys.readouterr().out


@pytest.mark.slow
def test_an_older_evaluation_of_a_checkpoint_does_not_take_the_place_of_a_newer_one(copy):
    folder = copy("best")
    measure(folder, "episodes=3")
    assert run.main([f"resume={folder}", "measure=latest", "iterations=7"]) == 0
    newer = measure(folder, "episodes=5", "checkpoint=best", name="evaluation-test-best.json")
    assert measure(folder, "episodes=4")["checkpoint"] == "latest"
    assert json.loads((folder / "evaluation-test-best.json").read_text()) == newer


def test_against_means_what_the_other_run_measured(copy, capsys):
    folder, other = copy("cart"), copy("best")
    found = measure(folder, "episodes=4", "seed=1", f"against={other}")["against"]
    assert found["checkpoint"] == "best" and found["theirs"]["mean"] == after(other)
    assert "best:best" in capsys.readouterr().out
    found = measure(other, "episodes=4", f"against={other}:latest")["against"]
    assert found["checkpoint"] == "latest" and found["difference"] != 0


def test_an_evaluation_of_other_parameters_is_kept_under_their_name(copy, capsys):
    folder = copy("best")
    there = folder / "evaluation-test.json"
    first = measure(folder, "episodes=4")
    assert measure(folder, "episodes=4", "checkpoint=best") == first, "the same checkpoint, the same file"
    assert not (folder / "evaluation-test-best.json").exists()
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("measure: best", "measure: latest"))  # as resume measure=latest does
    capsys.readouterr()
    assert measure(folder, "episodes=4")["checkpoint"] == "latest"
    assert json.loads((folder / "evaluation-test-best.json").read_text()) == first
    assert f"{there} was of checkpoint best: it is evaluation-test-best.json now" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_refused_before_anything_is_measured(copy, monkeypatch, capsys):
    from rlkit import evaluation

    folder = copy("cart")
    monkeypatch.setattr(evaluation, "measured", lambda *_: pytest.fail("hours of work for nothing"))

    def read_only(**_: object) -> None:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", read_only)
    assert f"cannot write to the folder {folder}: it is on a read-only disk" in refused(capsys, folder)


@pytest.mark.slow
def test_what_cannot_be_paired_is_refused_with_the_key_that_differs(copy, trained, capsys):
    folder = copy("cart")
    assert "env.step_limit is 500 here, 20 there" in refused(capsys, folder, f"against={trained('short')}")
    assert "env is cartpole here, gridworld there" in refused(capsys, folder, f"against={trained('table')}")
    assert "scored by pairs and this run by problems" in refused(capsys, copy("text"), f"against={trained('judge')}")
    assert "not a run folder" in refused(capsys, folder, "against=nowhere")
    assert "is not understood" in refused(capsys, folder, "against=")
    assert "no checkpoint 'nil'" in refused(capsys, folder, f"against={folder}:nil")
    assert not (folder / "evaluation-test.json").exists(), "refused before anything is measured"


@pytest.mark.slow
def test_a_reward_model_ranks_pairs_and_writes_nothing(copy, capsys):
    folder = copy("pairs")
    assert measure(folder)["greedy"]["mean"] == after(folder)
    found = measure(folder, "episodes=4", f"against={folder}")
    assert "sampled" not in found and found["against"]["p"] == 1 and "4 pairs" in capsys.readouterr().out
    assert "writes none" in refused(capsys, folder, "pass_at=1")
    assert "seed=5 is for what an evaluation draws, and stored pairs are not: leave" in refused(
        capsys, folder, "seed=5"
    )


def test_a_mistake_is_one_line_and_says_what_to_do(copy, tmp_path, capsys):
    folder, text = copy("table"), copy("text")
    assert "did you mean episodes?" in refused(capsys, folder, "episode=3")
    assert "is not a run folder" in refused(capsys, tmp_path / "nowhere")
    assert "which run?" in refused(capsys, "episodes=3")
    assert "'episodes' is not understood" in refused(capsys, folder, "episodes")
    assert "no checkpoint 'first'" in refused(capsys, folder, "checkpoint=first")
    for name in ("", ".", "../checkpoints/latest", "x/y"):  # a name, never a way to a file elsewhere
        assert f"checkpoint={name} names none: give latest, best" in refused(capsys, folder, f"checkpoint={name}")
    assert "checkpoint=../checkpoints/latest names none" in refused(
        capsys, folder, f"against={folder}:../checkpoints/latest"
    )
    assert "writes none" in refused(capsys, folder, "pass_at=1")
    assert "pass@8 needs as many answers: raise samples=4" in refused(capsys, text, "pass_at=1,8", "samples=4")
    assert "samples=4 are answers that pass_at counts: give pass_at=1,8 or" in refused(capsys, text, "samples=4")
    assert "ends in .gif" in refused(capsys, folder, "video=walk.mp4")
    assert "no folder" in refused(capsys, folder, f"video={tmp_path / 'nowhere' / 'walk.gif'}")
    assert "is text" in refused(capsys, text, "video=walk.gif")
    assert "episodes=0 is not allowed" in refused(capsys, folder, "episodes=0")


def test_an_environment_that_is_not_rlkits_is_not_drawn(tmp_path, capsys):
    (tmp_path / "mine.py").write_text(
        "from rlkit.settings import plugins\ncartpole = plugins.load('envs', 'cartpole')\nConfig = cartpole.Config\n\n"
        "class Mine:\n    def __init__(self, inner):\n        self.inner = inner\n\n"
        "    def __getattr__(self, name):\n        return getattr(vars(self)['inner'], name)\n\n"
        "def make(config, seed, device):\n    return Mine(cartpole.make(config, seed, device))\n"
    )
    words = [f"env={tmp_path}/mine.py", "algo=ppo", "iterations=1", "evaluation_episodes=2", f"out={tmp_path / 'run'}"]
    assert run.main(words) == 0
    said = refused(capsys, tmp_path / "run", f"video={tmp_path / 'walk.gif'}", "trust=true")
    assert "video= draws a rlkit.control.ControlEnv, and this run plays a Mine" in said


def test_the_device_of_training_does_not_bind_the_evaluation(copy):
    folder = copy("cart")
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace("device: auto", "device: cuda:7"))
    assert measure(folder, "episodes=2")["greedy"]["episodes"] == 2


def test_help_lists_every_key_within_80_columns(monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    assert evaluate.main(["--help"]) == evaluate.main([]) == evaluate.main(["runs/x", "-h"]) == 0
    out = capsys.readouterr().out
    for key in ("checkpoint=none", "episodes=none", "split=test", "against=none", "video=none", "device=auto"):
        assert key in out
    assert max(map(len, out.splitlines())) <= 80 and out.isascii()


def test_a_folder_that_takes_no_results_is_refused_before_anything_is_measured(copy, capsys, monkeypatch):
    def full(path: Path) -> Path:
        raise UserError(f"cannot write to the folder {path}: it is on a read-only disk; fix that or give another")

    folder = copy("table")
    monkeypatch.setattr(files, "prepare_folder", full)
    monkeypatch.setattr(evaluation, "measured", lambda *_: pytest.fail("it was measured"))
    assert f"cannot write to the folder {folder}: it is on a read-only disk" in refused(capsys, folder)


def test_a_colleague_s_folder_is_measured_and_left_as_it_is(copy, capsys, monkeypatch):
    folder = copy("table")
    before = sorted(path.name for path in folder.iterdir())
    monkeypatch.setattr(os, "access", lambda path, mode: mode != os.W_OK)  # nothing is forbidden to root
    monkeypatch.setattr(files, "prepare_folder", lambda _: pytest.fail("it was written"))
    assert evaluate.main([str(folder), "threads=1", "episodes=2"]) == 0
    said = capsys.readouterr().out
    assert f"{folder} is read-only: what is measured is printed, and written nowhere" in said and "greedy" in said
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.slow
def test_a_film_alone_measures_nothing(copy, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(evaluation, "measured", lambda *_: pytest.fail("it was measured"))
    folder = copy("table")
    assert evaluate.main([str(folder), "threads=1", f"video={tmp_path / 'walk.gif'}"]) == 0
    assert (tmp_path / "walk.gif").stat().st_size > 0 and not (folder / "evaluation-test.json").exists()


def test_a_film_is_not_drawn_through_a_link(copy, capsys) -> None:
    folder = copy("cart")
    (folder / "mine").write_text("precious")
    (folder / "play.gif").symlink_to(folder / "mine")
    assert "play.gif is a link" in refused(capsys, folder, f"video={folder}/play.gif", "episodes=1")
    assert (folder / "mine").read_text() == "precious"


@pytest.mark.parametrize("kind", ["pipe", "deep", "large"])
def test_an_evaluation_that_is_none_is_replaced(kind: str, copy) -> None:
    folder = copy("table")
    path = folder / "evaluation-test.json"
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "deep":
        path.write_text("[" * 100_000)
    else:
        path.touch()
        os.truncate(path, 1 << 40)  # of nothing: it takes no room on the disk
    assert measure(folder, "episodes=2")["checkpoint"] == "latest"
