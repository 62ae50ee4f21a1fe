"""Each way in which a text run may be sick is produced, and named once with its remedy."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from support.parrot import Parrot
from support.sick import SHORT, alarms, lines, name
from tensordict import TensorDict

from rlkit import run
from rlkit.doctor import Doctor
from rlkit.doctor.symptoms import of_groups, of_texts, read, tolerance
from rlkit.language.model import LanguageModel

TEXT = ["env=gsm8k", "env.rows=2", "iterations=3"]
GRPO = ["algo=grpo", "algo.group=4", "env.train=64", *TEXT]


def reward(folder: Path, body: str) -> str:
    """A reward function of the user's."""
    path = folder / "mine.py"
    path.write_text(f"import time\n\n\ndef mine(prompts, completions, **columns):\n    {body}\n")
    return f"env.reward={path}:mine"


@pytest.mark.slow
def test_a_healthy_run_names_nothing(tmp_path: Path) -> None:
    assert alarms(tmp_path / "r", *GRPO, "env.rows=8", "algo.group=8") == {}
    assert {"rollout/truncated", "rollout/equal_groups", "train/ess", "time/reward_share"} <= lines(tmp_path / "r")[
        0
    ].keys()


def test_completions_that_are_all_cut_are_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", *GRPO, "env.max_tokens=2")
    assert "cut at 2 tokens: raise env.max_tokens" in found["truncated"]


def test_answers_that_the_budget_cuts_are_named_where_it_lasts() -> None:
    cut = {"rollout/truncated": 0.5, "longest": 64.0}
    assert name(Doctor(), [cut] * 9) == [] and name(Doctor(), [cut] * 10) == ["budget"]
    assert name(Doctor(), [cut | {"rollout/truncated": 0.49}] * 20) == []
    assert name(Doctor(), [cut | {"rollout/truncated": 1.0}] * 20) == ["truncated"], (
        "all of them have a line of their own"
    )


@pytest.mark.slow
def test_a_reward_that_never_varies_is_named(tmp_path: Path) -> None:
    found = alarms(tmp_path / "r", *GRPO[:-1], "iterations=5", reward(tmp_path, "return [0.0] * len(prompts)"))
    assert found.keys() == {"equal_groups", "constant_reward"}
    assert "all 32 episodes so far scored 0" in found["constant_reward"]


def test_constant_scores_are_no_problem_where_a_judge_makes_the_pairs() -> None:
    flat = {"highest": 0.0, "lowest": 0.0, "episodes": 20.0, "progress": 0.5}
    scored = TensorDict({"score": torch.zeros(4, 2)}, batch_size=[4, 2])
    judged = scored.clone().set("preference", torch.tensor([1.0, 0.0]).expand(4, 2))
    assert "constant_reward" in name(Doctor(), [flat | read(of_groups(scored))] * 3)
    assert name(Doctor(), [flat | read(of_groups(judged))] * 3) == []


@pytest.mark.slow
def test_a_reward_function_that_raises_ends_in_one_line(tmp_path: Path, capsys: Any) -> None:
    keys = [*GRPO, reward(tmp_path, "return 1 / 0"), *SHORT, f"out={tmp_path / 'r'}"]
    assert run.main(keys) == 2
    error = capsys.readouterr().err
    assert "reward mine raised ZeroDivisionError: division by zero (mine.py, line 5)" in error
    assert len(error.splitlines()) == 1
    assert lines(tmp_path / "r") == [lines(tmp_path / "r")[0] | {"iteration": 1, "doctor/reward_error": 1.0}]


@pytest.mark.slow
def test_a_run_goes_on_once_its_reward_function_is_mended(tmp_path: Path) -> None:
    keys = [*GRPO, reward(tmp_path, "return [1 / (text != completions[0]) for text in completions]"), *SHORT]
    assert run.main([*keys, f"out={tmp_path / 'r'}"]) == 2
    reward(tmp_path, "return [float(len(text)) for text in completions]")
    assert run.main([f"resume={tmp_path / 'r'}", "trust=changed"]) == 0
    assert [line["iteration"] for line in lines(tmp_path / "r")] == [1, 2, 3]
    assert not any("doctor/reward_error" in line for line in lines(tmp_path / "r"))


def test_a_slow_reward_function_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    class Clock:
        now = 0.0

        def __call__(self) -> float:
            return self.now

    monkeypatch.setattr("time.perf_counter", Clock())
    keys = [*GRPO, "env.rows=1", "env.max_tokens=4", "algo.group=2"]
    slow = reward(tmp_path, "time.perf_counter.now += 5; return [float(i) for i in range(len(prompts))]")
    assert "of an iteration: let the reward function work" in alarms(tmp_path / "r", *keys, slow)["reward_slow"]


@pytest.mark.slow
def test_a_demonstration_whose_end_is_masked_out_is_named(tmp_path: Path, monkeypatch: Any) -> None:
    encode = LanguageModel.encode

    def endless(self: LanguageModel, prompts: list[str], completions: list[str]) -> TensorDict:
        batch = encode(self, prompts, completions)
        batch["mask"] &= batch["action"] != self.tokenizer.eos_id  # as masks built from token ids do
        return batch

    assert alarms(tmp_path / "healthy", "algo=sft", *TEXT) == {}
    monkeypatch.setattr(LanguageModel, "encode", endless)
    found = alarms(tmp_path / "r", "algo=sft", *TEXT)
    assert found["eos_pad"].startswith("2 of 2 texts do not end where their end token stands")


@pytest.mark.slow
def test_prompts_that_the_tokenizer_ends_are_named(tmp_path: Path, monkeypatch: Any) -> None:
    prompt_ids = LanguageModel.prompt_ids
    ended = lambda self, prompts: [[*ids, self.tokenizer.eos_id] for ids in prompt_ids(self, prompts)]  # noqa: E731
    monkeypatch.setattr(LanguageModel, "prompt_ids", ended)
    assert "tokenizer" in alarms(tmp_path / "r", *GRPO)["eos_prompt"]


@pytest.mark.parametrize(
    "action, mask, truncated, odd",
    [
        ([5, 6, 2, 2], [0, 1, 1, 0], False, 0),  # ends in its end token; what pads it is the same token
        ([5, 6, 7, 2], [0, 1, 1, 0], True, 0),  # cut
        ([5, 6, 7, 2], [0, 1, 1, 0], False, 1),  # ends in none and was not cut
        ([5, 6, 2, 2], [0, 1, 1, 0], True, 1),  # ends in one and counts as cut
        ([5, 2, 6, 2], [0, 1, 1, 1], False, 1),  # goes on after its end
        ([5, 6, 2, 2], [0, 1, 1, 1], False, 1),  # learns its padding
        ([2, 2, 2, 2], [0, 0, 0, 0], False, 0),  # nobody acted
    ],
)
def test_a_text_ends_where_its_end_token_stands(action: list[int], mask: list[int], truncated: bool, odd: int) -> None:
    rollout = TensorDict(
        {
            "observation": torch.tensor([[4, *action[:-1]]]),
            "action": torch.tensor([action]),
            "mask": torch.tensor([mask]) > 0,
            "truncated": torch.tensor([truncated]),
        },
        batch_size=[1],
    )
    policy = Parrot()
    policy.tokenizer.eos_id, policy.tokenizer.stop_ids = 2, (2, 3)
    assert read(of_texts(rollout, policy))["odd_ends"] == odd


def test_a_text_that_a_stop_string_ends_is_none_without_an_end(tmp_path: Path) -> None:
    said = alarms(tmp_path / "r", *GRPO, "env.stop=1,2,3,4,5")
    assert "eos_pad" not in said
    [first, *_] = [json.loads(line) for line in (tmp_path / "r" / "metrics.jsonl").read_text().splitlines()]
    assert first["rollout/stopped"] > 0.5


def test_completions_that_are_all_empty_are_named() -> None:
    mask = torch.tensor([[False, True, False]]).expand(4, 3)
    data = {"observation": torch.full((4, 3), 7), "action": torch.full((4, 3), 2), "mask": mask}
    policy = Parrot()
    policy.tokenizer.eos_id, policy.tokenizer.stop_ids = 2, (2,)
    seen = read(of_texts(TensorDict(data, batch_size=[4]), policy))
    doctor, said = Doctor(), []
    for iteration in range(3):
        doctor.name(seen, {}, iteration, lambda name, _: said.append(name))
    assert said == ["empty"]


def test_half_precision_is_given_more_room() -> None:
    assert tolerance(torch.float32) == 1e-3
    assert tolerance(torch.bfloat16) == pytest.approx(0.0625)


HEALTHY = [
    ["algo=grpo", "env.rows=8"],
    ["algo=ppo", "env.rows=64"],
    ["algo=reinforce", "env.rows=64"],
    ["algo=dpo", "env.rows=8"],
    ["algo=sft"],
]


@pytest.mark.slow
@pytest.mark.parametrize("keys", HEALTHY, ids=lambda keys: keys[0])
def test_a_pair_with_its_own_settings_names_nothing(tmp_path: Path, keys: list[str]) -> None:
    assert alarms(tmp_path / "r", *keys, "env=gsm8k", "iterations=8", "evaluate_every=0") == {}
