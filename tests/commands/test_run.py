"""The command line from end to end: what a run leaves behind, that it repeats and resumes, and how it refuses."""

import json
import os
import signal
from pathlib import Path

import pytest
import torch
from support.marks import slow_after
from support.resuming import metrics, tensors

from rlkit import run
from rlkit.installed import installed
from rlkit.recording import checkpoint
from rlkit.recording.log import Log

PPO = ["algo=ppo", "env=cartpole", "algo.epochs=2", "algo.minibatches=2", "evaluation_episodes=4", "evaluate_every=2"]
GRPO = ["algo=grpo", "env=gsm8k", "env.rows=2", "algo.group=4", "env.test=4", "env.validation=4", "threads=1"]
DQN = ["algo=dqn", "env=cartpole", "algo.warmup_steps=100", "algo.steps=64", "algo.updates=4", "evaluation_episodes=4"]
FULL_DQN = [*DQN, "algo.n_step=3", "algo.prioritized=true", "algo.dueling=true", "algo.hold=9", "policy.normalize=true"]
NORMAL = ["algo=a2c", "env=pendulum", "policy.normalize=true", "algo.normalize_reward=true", "evaluation_episodes=4"]
SARSA = ["algo=sarsa", "env=cliffwalking", "env.rows=4", "evaluation_episodes=4"]
KL = ["algo=ppo", "env=gsm8k", "env.rows=8", "algo.kl_coef=0.1", "algo.kl_target=1", "env.test=4", "env.validation=4"]
SHORT = ["iterations=1", "threads=1", "evaluation_episodes=2", "validation_episodes=2"]
TABLE = ["algo=q_learning", "env=frozenlake", "env.rows=4", "evaluation_episodes=4"]


def start(out: Path, *keys: str) -> int:
    return run.main([*keys, f"out={out}"])


def parameters(folder: Path) -> dict[str, torch.Tensor]:
    parts = checkpoint.load(folder)["parts"]
    return {f"{part}/{name}": x for part in ("policy", "optimizer") for name, x in tensors(parts[part]).items()}


def assert_same_run(one: Path, other: Path) -> None:
    a, b = parameters(one), parameters(other)
    assert a.keys() == b.keys() and len(a) > 0
    assert all(torch.equal(x, b[name]) for name, x in a.items())
    assert metrics(one) == metrics(other)


def test_a_run_folder_holds_what_the_contract_says(tmp_path):
    assert start(tmp_path / "r", *GRPO, "iterations=2", "evaluate_every=1", "algo.entropy_coef=0.01") == 0
    folder = tmp_path / "r"
    summary = json.loads((folder / "summary.json").read_text())
    assert {"algo", "env", "seed", "source", "env_steps", "iterations", "seconds"} <= summary.keys()
    assert {"device", "versions", "evaluation", "alarms"} <= summary.keys()
    assert summary["versions"].keys() == {"rlkit", "torch", "python"}, "and of packages that the run used: of none"
    assert summary["versions"]["rlkit"] == installed()
    for when in ("before", "after"):
        e = summary["evaluation"][when]
        assert e["metric"] == "accuracy" and e["greedy"] is True and e["episodes"] == 4
        assert 0 <= e["low"] <= e["mean"] <= e["high"] <= 1
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2]
    for key in ("rollout/return", "rollout/length", "train/loss", "train/kl", "train/entropy", "train/clip_fraction"):
        assert key in lines[0]
    assert {"train/grad_norm", "time/env_steps_per_second", "eval/accuracy"} <= lines[1].keys()
    records = [json.loads(line) for line in (folder / "completions.jsonl").read_text().splitlines()]
    assert {"prompt", "completion", "score", "advantage"} <= records[0].keys()
    assert list(folder.glob("events.out.tfevents.*")) and (folder / "config.yaml").is_file()
    assert (folder / "model" / "config.json").is_file()
    assert {p.stem for p in (folder / "checkpoints").glob("*.safetensors")} >= {"latest", "best"}


@pytest.mark.parametrize("keys", slow_after(3, [PPO, DQN, TABLE, GRPO]), ids=lambda keys: keys[0])
def test_two_runs_of_one_command_are_bitwise_equal(tmp_path, keys):
    for name in ("a", "b"):
        assert start(tmp_path / name, *keys, "iterations=3") == 0
    assert_same_run(tmp_path / "a", tmp_path / "b")


def test_another_seed_is_another_run(tmp_path):
    for name, seed in (("a", 0), ("b", 1)):
        assert start(tmp_path / name, *PPO, "iterations=1", f"seed={seed}") == 0
    assert any(not torch.equal(x, parameters(tmp_path / "b")[k]) for k, x in parameters(tmp_path / "a").items())


RESUMED = [PPO, TABLE]
REST = [GRPO, DQN, FULL_DQN, NORMAL, SARSA, [*KL, "algo.kl_horizon=50", "threads=1"]]
RESUMED += [pytest.param(keys, marks=pytest.mark.slow) for keys in REST]


@pytest.mark.parametrize("keys", RESUMED, ids=lambda keys: " ".join(keys[:3]))
def test_an_interrupted_run_resumes_exactly(tmp_path, keys, monkeypatch, capsys):
    assert start(tmp_path / "whole", *keys, "iterations=6") == 0
    written = Log.iteration

    def interrupt(self, iteration, *rest):
        written(self, iteration, *rest)
        if iteration == 3:
            os.kill(os.getpid(), signal.SIGINT)

    with monkeypatch.context() as patch:
        patch.setattr(Log, "iteration", interrupt)
        assert start(tmp_path / "cut", *keys, "iterations=6") == 0
    assert f"resume={tmp_path / 'cut'}" in capsys.readouterr().out.replace("\n", "")
    assert json.loads((tmp_path / "cut" / "summary.json").read_text())["iterations"] == 3
    assert run.main([f"resume={tmp_path / 'cut'}"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


BAD = {
    "an unknown algorithm": (["algo=dqm", "env=cartpole"], "dqn"),
    "an unknown environment": (["algo=ppo", "env=cartpol"], "cartpole"),
    "an unknown key": (["algo=ppo", "env=cartpole", "algo.lrr=1"], "lr"),
    "an unknown run key": (["algo=ppo", "env=cartpole", "sed=1"], "seed"),
    "a wrong type": (["algo=ppo", "env=cartpole", "algo.lr=fast"], "algo.lr"),
    "a value out of range": (["algo=ppo", "env=cartpole", "algo.gamma=1.5"], "algo.gamma"),
    "a table on continuous states": (["algo=q_learning", "env=cartpole"], "dqn"),
    "a value method on text": (["algo=dqn", "env=gsm8k"], "grpo"),
    "demonstrations of control": (["algo=sft", "env=cartpole"], "gsm8k"),
    "stored pairs played by ppo": (["algo=ppo", "env=preferences"], "dpo"),
    "stored pairs played by grpo": (["algo=grpo", "env=preferences", "algo.group=2"], "dpo"),
    "stored pairs played by reinforce": (["algo=reinforce", "env=preferences"], "dpo"),
    "stored pairs in groups": (["algo=dpo", "env=preferences", "algo.group=4"], "algo.group=2"),
    "a table of continuous actions": (["algo=dqn", "env=gym", "env.id=Pendulum-v1"], "algo=sac"),
    "no problems to measure on": (["algo=grpo", "env=gsm8k", "env.test=0"], "env.test"),
    "a group of one": (["algo=grpo", "env=cartpole", "algo.group=1"], "2"),
    "a group baseline without a group": (["algo=reinforce_pp", "env=gsm8k", "algo.baseline=group"], "algo.group"),
    "a penalty that does nothing": (["algo=grpo", "env=gsm8k", "algo.kl_coef=0.1", "algo.kl=k1"], "kl_in=reward"),
    "an unknown preset": (["algo=grpo", "env=gsm8k", "algo.preset=tlr"], "trl"),
    "a preset of nothing": (["algo=dqn", "env=cartpole", "algo.preset=trl"], "dqn"),
    "planning without a model": (["algo=value_iteration", "env=cartpole"], "states"),
    "planning in a gym environment": (["algo=value_iteration", "env=gym", "env.id=Taxi-v4"], "model"),
    "a table on text": (["algo=sarsa", "env=gsm8k"], "grpo"),
    "prediction on continuous states": (["algo=td", "env=cartpole"], "states"),
    "a reward model of control": (["algo=reward_model", "env=cartpole"], "preferences"),
    "a reward that is not a folder": (["algo=ppo", "env=gsm8k", "env.reward=model:nowhere"], "reward_model"),
    "a reference that is not stored": (
        ["algo=dpo", "env=preferences", "algo.reference=stored", "algo.group=2"],
        "ref_chosen_logps",
    ),
    "stored pairs played by a member of the family": (["algo=gspo", "env=preferences"], "dpo"),
    "groups of continuous actions": (["algo=dqn", "env=pendulum"], "algo=sac"),
    "prompts longer than the context": (["algo=grpo", "env=gsm8k", "env.max_tokens=3000"], "context"),
    "an unknown gym id": (["algo=ppo", "env=gym", "env.id=Acrobt-v1"], "Acrobot-v1"),
    "a missing data set": (["algo=grpo", "env=gsm8k", "env.source=none.jsonl"], "none.jsonl"),
    "a folder that is not a model": (["algo=grpo", "env=gsm8k", "policy.model=/"], "config.json"),
    "a device that is not there": (["algo=ppo", "env=cartpole", "device=cuda:77"], "device=cuda:77"),
    "no algorithm": (["env=cartpole"], "algo=NAME"),
    "nothing understood": (["hello"], "hello"),
    "a run folder that is none": (["resume=/"], "config.yaml"),
}


@pytest.mark.parametrize("keys, said", BAD.values(), ids=BAD.keys())
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, keys, said, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run.main([*keys] if keys[0].startswith("resume") else [*keys, "iterations=1"]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1 and said in err and "Traceback" not in err
    assert not list(tmp_path.glob("runs/*"))


GSM8K = Path(__file__).parents[3] / "shared" / "data" / "gsm8k" / "train.jsonl"


@pytest.mark.skipif(not GSM8K.is_file(), reason="the real GSM8K is not here")
def test_the_longest_problems_of_the_real_gsm8k_fit_the_tiny_model():
    from rlkit.language.model import LanguageModel
    from rlkit.settings import plugins

    gsm8k, policy = plugins.load("envs", "gsm8k"), LanguageModel.load("tiny")
    problems, _ = gsm8k.load(gsm8k.Config(source=str(GSM8K), validation=0))
    assert len(problems["train"]) == 7473 and len(problems["test"]) == 1319
    longest = sorted(problems["train"], key=lambda p: len(p.question) + len(p.answer))[-4:]
    rollout = policy.generate([p.question + "\n" for p in longest], max_tokens=256)
    assert rollout["mask"].any(-1).all()
    assert policy.encode([p.question + "\n" for p in longest], [p.answer for p in longest])["mask"].any()


@pytest.mark.slow
def test_a_run_killed_before_its_first_checkpoint_starts_again(tmp_path):
    for name in ("whole", "killed"):
        assert start(tmp_path / name, *PPO, "iterations=2") == 0
    for path in [*(tmp_path / "killed" / "checkpoints").glob("*"), tmp_path / "killed" / "summary.json"]:
        path.unlink()
    assert run.main([f"resume={tmp_path / 'killed'}"]) == 0
    assert_same_run(tmp_path / "whole", tmp_path / "killed")


def test_a_run_that_diverges_stops_and_keeps_what_was_good(tmp_path, capsys):
    keys = [
        "algo=ppo",
        "env=cartpole",
        "algo.lr=1e30",
        "algo.max_grad_norm=1e30",
        "iterations=50",
        "checkpoint_every=1",
    ]
    assert start(tmp_path / "r", *keys) == 1
    err = capsys.readouterr().err
    assert "not finite" in err and err.count("\n") == 1
    if (tmp_path / "r" / "checkpoints").is_dir():
        assert all(bool(x.isfinite().all()) for x in parameters(tmp_path / "r").values() if x.is_floating_point())


def test_bad_rows_are_named_with_file_and_line(tmp_path, capsys):
    good = json.dumps({"question": "1+1?", "answer": "#### 2"})
    for name, bad, said in (
        ("broken", good + '\n{"question": ', "broken.jsonl:2"),
        ("unanswered", good + "\n" + json.dumps({"question": "1+2?"}), "unanswered.jsonl:2"),
        ("empty", "", "empty"),
    ):
        path = tmp_path / f"{name}.jsonl"
        path.write_text(bad)
        assert run.main(["algo=grpo", "env=gsm8k", f"env.source={path}", "iterations=1"]) == 2
        err = capsys.readouterr().err
        assert said in err and err.count("\n") == 1


def test_an_out_that_is_a_file_or_a_used_folder_is_refused_and_kept(tmp_path, capsys):
    file = tmp_path / "file"
    file.write_text("mine")
    used = tmp_path / "used"
    used.mkdir()
    (used / "notes.txt").write_text("mine")
    for out in (file, file / "below", used):
        assert start(out, *PPO, "iterations=1") == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert file.read_text() == (used / "notes.txt").read_text() == "mine"


def test_help_names_every_key_with_its_default(capsys):
    assert run.main(["--help"]) == 0
    assert "grpo" in capsys.readouterr().out
    assert run.main(["algo=grpo", "env=gsm8k", "--help", "all"]) == 0
    out = capsys.readouterr().out
    for key in ("algo.kl_coef", "env.source", "policy.model", "seed"):
        assert key in out


@pytest.mark.slow
def test_evaluate_reports_exact_values_and_of_a_reward_model_only_what_it_ranks(tmp_path, capsys):
    from rlkit import evaluate

    assert start(tmp_path / "td", "algo=td", "env=gridworld", *SHORT) == 0
    assert start(tmp_path / "rm", "algo=reward_model", "env=preferences", "env.rows=4", *SHORT) == 0
    assert "greedy accuracy on 2 test pairs" in capsys.readouterr().out
    assert evaluate.main([str(tmp_path / "td"), "episodes=2"]) == 0
    assert "exact rmse" in capsys.readouterr().out
    assert "rmse" in json.loads((tmp_path / "td" / "evaluation-test.json").read_text())["exact"]
    assert evaluate.main([str(tmp_path / "rm"), "episodes=4"]) == 0
    out = capsys.readouterr().out
    assert "4 pairs" in out and "sampled" not in out
    assert evaluate.main([str(tmp_path / "rm"), "pass_at=1"]) == 2


@pytest.mark.slow
def test_a_run_folder_is_where_another_run_starts_from(tmp_path):
    assert start(tmp_path / "sft", "algo=sft", "env=gsm8k", "env.rows=4", *SHORT) == 0
    assert start(tmp_path / "next", *GRPO, f"policy.model={tmp_path / 'sft'}", "iterations=1") == 0


def test_an_environment_whose_name_is_too_long_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["algo=dqn", f"env={'a' * 304}"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
