"""The reward model: its loss by hand, what of a text it reads, and that the score of a text is one number."""

import json
import math
from typing import Any

import pytest
import torch
from support.fakes import (
    Gives,
    RaggedText,
    algorithm,
    cartpole,
    credited,
    gradient,
    gradient_of,
    iterate,
    off_policy,
    on_text,
)
from support.parrot import Judge
from support.small_model import PROMPTS, TOKENIZER, model
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit import run, seeding
from rlkit.api import UserError
from rlkit.language import folders
from rlkit.language.network import LanguageNetwork
from rlkit.language.reward_model import RewardModel, learned_reward
from rlkit.policies import Network
from rlkit.settings import plugins
from rlkit.text import Pair, PairEnv, Problem, TextEnv, load_rewards, total

COMPLETIONS = ["12 apples", "Bob sells 7 apples.\n#### 5", ""]
NONE: dict[str, list] = {"validation": [], "test": []}


def reward_model(seed: int = 0, writes: bool = False) -> RewardModel:
    """Small, random, with scores far apart."""
    out = RewardModel.on(model(seed=seed), writes)
    draw = seeding.generator(seed, "head")
    with torch.no_grad():
        out.value_head.weight += torch.randn(out.value_head.weight.shape, generator=draw)
    return out


def test_the_loss_is_minus_log_sigma_of_the_difference() -> None:
    algo, batch = off_policy("reward_model", {"group": 4, "margin": 0.5, "center_coef": 0.1})
    sides = [
        algo.policy.score(TensorDict({key: batch[key][:, side] for key in ("observation", "action", "mask")}, [5]))
        for side in (0, 1)
    ]
    each = -torch.log(torch.sigmoid(sides[0] - sides[1] - 0.5)) + 0.1 * (sides[0] + sides[1]) ** 2
    assert_close(algo.loss(batch)[0], each.mean())
    assert_close(gradient(algo, batch), gradient_of(algo, each.mean()))
    metrics = algo.loss(batch)[1]
    assert_close(metrics["margin"], sides[0] - sides[1])
    assert_close(metrics["score"], (sides[0] + sides[1]) / 2)


def test_a_new_head_scores_0_so_the_loss_starts_at_log_2() -> None:
    env = stored()
    algo = algorithm("reward_model", env, LanguageNetwork(), group=2)
    loss, metrics = algo.loss(credited(algo, algo.rollout(env)))
    assert_close(loss, torch.tensor(math.log(2)))
    assert not metrics["pair_accuracy"].any() and not metrics["score"].any()


def test_the_best_and_the_worst_of_a_group_are_a_pair_and_equal_scores_are_none() -> None:
    env = RaggedText(rows=3)
    algo = on_text("reward_model", env, group=3)
    rollout = algo.rollout(env)
    rollout["score"] = torch.tensor([[0.0, 2.0, 1.0], [4.0, 4.0, 4.0], [3.0, 5.0, -1.0]]).double()
    batch = credited(algo, rollout.clone())
    assert_close(batch["weight"], torch.tensor([0.5, 0.5]))
    assert {len(algo.loss(batch)[1][key]) for key in ("margin", "pair_accuracy", "score")} == {2}
    assert torch.equal(batch["action"], rollout["action"][[0, 0, 2, 2], [1, 0, 1, 2]].unflatten(0, (2, 2)))


def test_the_score_is_read_at_the_end_token_whatever_pads_it() -> None:
    judge = reward_model()
    batch = judge.encode(PROMPTS, COMPLETIONS)
    for row, (prompt, completion) in enumerate(zip(PROMPTS, COMPLETIONS, strict=True)):
        ids = [*TOKENIZER.encode([prompt])[0], *TOKENIZER.encode([completion])[0], TOKENIZER.eos_id]
        hidden = judge.decoder(torch.tensor([ids]))[0, -1]
        by_hand = hidden @ judge.value_head.weight[0] + judge.value_head.bias[0]
        assert_close(judge.score(batch)[row], by_hand)
    ended = judge.score(batch).detach()
    batch["action"][batch["mask"] & (batch["mask"].flip(-1).cumsum(-1).flip(-1) == 1)] = 7
    assert (judge.score(batch) - ended).abs().min() > 1e-2  # the last token counts
    assert ended.std() > 0.1


def test_the_score_of_a_text_is_what_training_computed_for_it_in_any_batch(tmp_path: Any) -> None:
    judge = reward_model()
    trained = judge.score(judge.encode(PROMPTS, COMPLETIONS)).tolist()
    judge.save(tmp_path / "model")
    (learned,) = load_rewards(f"model:{tmp_path}", learned_reward)
    assert learned(prompts=PROMPTS, completions=COMPLETIONS) == pytest.approx(trained, abs=1e-5)
    alone = [learned(prompts=[p], completions=[c])[0] for p, c in zip(PROMPTS, COMPLETIONS, strict=True)]
    assert alone == pytest.approx(trained, abs=1e-5)
    learned.model.micro_steps = 5  # and in any micro-batches
    assert learned(prompts=PROMPTS * 4, completions=COMPLETIONS * 4) == pytest.approx(trained * 4, abs=1e-5)
    again = [learned(prompts=PROMPTS, completions=COMPLETIONS) for _ in range(2)]
    assert again[0] == again[1] and not any(p.requires_grad for p in learned.model.parameters())


def test_equal_attempts_get_equal_scores_in_whatever_micro_batches_they_are() -> None:
    """Else DPO makes pairs of two equal texts, and DAPO's groups without a signal seem to have one."""
    judge, draw = reward_model(), seeding.generator(0, "attempts")
    judge.micro_steps = 64
    for _ in range(10):
        asked = torch.randint(len(PROMPTS), (40,), generator=draw).tolist()
        given = torch.randint(len(COMPLETIONS), (40,), generator=draw).tolist()
        r = judge.judge([PROMPTS[i] for i in asked], [COMPLETIONS[i] for i in given]).tolist()
        of_text = dict(zip(zip(asked, given, strict=True), r, strict=True))
        assert r == [of_text[text] for text in zip(asked, given, strict=True)]


def test_a_text_beyond_its_context_is_scored_by_its_beginning(capsys: Any) -> None:
    """Encoded again, a policy's text may have more tokens: no check before a run can exclude that."""
    judge = reward_model()
    judge.name, judge.decoder.context = "short", 20
    read = judge.encode(PROMPTS, ["b " * 99, "b", *COMPLETIONS[2:]])
    assert read["mask"].shape[1] == 19 and read["action"][0, -1] == TOKENIZER.eos_id
    assert judge.judge(PROMPTS[:1] * 2, ["b " * 99, "b " * 80]).unique().numel() == 1
    assert capsys.readouterr().err.count("short: the reward model reads 20 tokens, and a longer text is scored by") == 1


def test_training_reads_the_attempts_of_its_writer_as_the_reward_will() -> None:
    problems = [Problem(prompt, "#### 5") for prompt in PROMPTS]
    env = TextEnv({"train": problems, **NONE}, rows=3, seed=0, max_tokens=12, prompt="{question}")
    judge = reward_model(writes=True)
    batch = env.rollout(judge, repeats=4).flatten(0, 1)
    entries = env.samples(batch, judge, len(batch))
    texts, prompts = ([entry[key] for entry in entries] for key in ("completion", "prompt"))
    assert len({*texts}) > 4
    assert_close(judge.score(batch), judge.judge(prompts, texts))
    last = batch["mask"] & (batch["mask"].flip(-1).cumsum(-1).flip(-1) == 1)
    assert (batch["action"][last] == TOKENIZER.eos_id).all()  # also where the budget cut an attempt short


def test_the_writer_stays_what_it_was_and_draws_from_the_generator_that_is_saved() -> None:
    problems = [Problem(prompt, "#### 5") for prompt in PROMPTS]
    env = TextEnv({"train": problems, **NONE}, rows=3, seed=0, max_tokens=12, rewards=[by_length])
    algo = algorithm("reward_model", env, Gives(reward_model(writes=True)), group=4, lr=0.1)
    before = {name: x.clone() for name, x in algo.policy.writer.state_dict().items()}
    head = algo.policy.decoder.head.detach().clone()
    drawn = algo.policy.generator.get_state()
    iterate(algo, env)
    assert not torch.equal(algo.policy.generator.get_state(), drawn)
    assert not torch.equal(algo.policy.decoder.head, head)
    assert all(torch.equal(x, before[name]) for name, x in algo.policy.writer.state_dict().items())


def by_length(prompts: list[str], completions: list[str], **columns: Any) -> list[float]:
    return [float(len(text)) for text in completions]


def test_a_reward_model_learns_which_side_of_a_pair_is_preferred() -> None:
    env = stored()
    algo = algorithm("reward_model", env, Gives(RewardModel(model(spread=1.0))), group=2, lr=3e-3)
    assert float(env.evaluate(algo.policy, split="test").score.mean()) == 0.5  # all scores are 0: ties
    for _ in range(20):
        iterate(algo, env)
    assert float(env.evaluate(algo.policy, split="test").score.mean()) == 1.0


def test_on_problems_accuracy_is_how_often_a_right_attempt_scores_above_a_wrong_one() -> None:
    problems = [Problem(prompt, "#### 5") for prompt in ("a", "b", "c")]
    env = TextEnv({"train": problems, "validation": problems, "test": []}, rows=1, seed=0, prompt="{question}")
    answers = {"a": ["#### 5", "no", "no", "no"], "b": ["no"] * 4, "c": ["#", "##", "#### 5", "0"]}
    scores = env.evaluate(judge_of(answers))
    assert scores.score.tolist() == [1.0, 0.0]  # b has no right attempt; of c the wrong one is said to be better
    with pytest.raises(UserError, match=r"of 3 validation problems none .*: no two have different scores"):
        env.evaluate(judge_of(dict.fromkeys("abc", ["no"] * 4)))


def judge_of(answers: dict[str, list[str]]) -> Judge:
    """Writes given answers and scores them: a right one higher than 5 for prompt a, lower for c."""
    return Judge(
        lambda prompt, text: 5.0 + (1.0 if prompt == "a" else -1.0) * (text == "#### 5"),
        lambda prompt, attempt: answers[prompt][attempt],
    )


# As a reward


def stored() -> PairEnv:
    pairs = [Pair(f"{prompt} {n}", "12 apples", "7 pears") for prompt in PROMPTS for n in range(4)]
    return PairEnv({"train": pairs[:8], "validation": [], "test": pairs[8:]}, rows=8, seed=0)


def test_a_reward_model_is_one_of_several_rewards(tmp_path: Any) -> None:
    judge = reward_model()
    judge.save(tmp_path / "model")
    functions = load_rewards(f"model:{tmp_path / 'model'}, correct", learned_reward)
    scores = total(functions, PROMPTS, COMPLETIONS, {"answer": ["#### 12", "#### 5", "#### 1"]})
    assert scores == pytest.approx((judge.judge(PROMPTS, COMPLETIONS) + torch.tensor([1.0, 1.0, 0.0])).tolist())


def test_a_folder_that_is_no_reward_model_is_one_line(tmp_path: Any) -> None:
    (tmp_path / "unfinished").mkdir()
    model(value_head=True).save(tmp_path / "critic" / "model")
    model().save(tmp_path / "plain")
    for name, words in {
        "": "there is no such folder",
        "nowhere": "there is no such folder",
        "unfinished": "holds no model",
        "critic": "a critic's value head is not a reward",
        "plain": f"has no {folders.REWARD}",
    }.items():
        with pytest.raises(UserError, match=words) as error:
            load_rewards(f"model:{tmp_path / name if name else ''}", learned_reward)
        assert "\n" not in str(error.value)


def test_saved_and_loaded_it_is_the_same_reward_model(tmp_path: Any) -> None:
    judge = reward_model()
    judge.save(tmp_path)
    assert (tmp_path / "reward_head.safetensors").is_file() and not (tmp_path / "value_head.safetensors").exists()
    again = RewardModel.load(tmp_path)
    assert_close(again.judge(PROMPTS, COMPLETIONS), judge.judge(PROMPTS, COMPLETIONS))


# What is refused


def test_a_folder_with_the_name_of_a_model_is_that_folder(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    made = reward_model()
    made.save("tiny")
    found = learned_reward("tiny")
    assert_close(found.model.judge(PROMPTS, COMPLETIONS), made.judge(PROMPTS, COMPLETIONS), rtol=0, atol=0)
    assert found.model.name == "tiny"


def test_control_has_no_texts_to_judge() -> None:
    with pytest.raises(UserError, match="a reward model reads texts") as error:
        algorithm("reward_model", cartpole(2), Network())
    assert "\n" not in str(error.value)


def test_stored_pairs_come_in_groups_of_two() -> None:
    with pytest.raises(UserError, match=r"algo.group=4: stored pairs have two sides"):
        algorithm("reward_model", stored(), Gives(reward_model()), group=4)


def test_it_writes_nothing_where_nothing_is_played() -> None:
    with pytest.raises(UserError, match="judges texts and writes none"):
        reward_model().generate(PROMPTS)


def test_the_plug_in_says_what_it_is() -> None:
    assert "reward model" in plugins.summary("algorithms", "reward_model")


# From the command line

SMALL = ["threads=1", "env.rows=4", "env.train=64", "env.validation=12", "env.test=12"]
JUDGE = ["algo=reward_model", "env=gsm8k", "algo.group=4", "algo.schedule=constant", *SMALL]


@pytest.mark.slow
def test_the_pipeline_is_three_commands(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    short = [word for word in SMALL if word != "env.train=64"]
    sft = [
        "algo=sft",
        "env=gsm8k",
        "env.direct=0.6",
        "env.direct_from=0",
        "env.demonstrations=64",
        "iterations=2",
        *short,
    ]
    judge = ["algo=reward_model", "env=preferences", "policy.model=sft/model", "iterations=2", *SMALL]
    ppo = ["algo=ppo", "env=gsm8k", "policy.model=sft/model", "env.reward=model:judge", "algo.kl_coef=0.1", *SMALL]
    for name, keys in {"sft": sft, "judge": judge, "ppo": [*ppo, "iterations=1"]}.items():
        assert run.main([*keys, f"out={name}"]) == 0
    assert f"reward: model:{tmp_path / 'judge'}\n" in (tmp_path / "ppo" / "config.yaml").read_text()
    (learned,) = load_rewards(f"model:{tmp_path / 'judge'}", learned_reward)
    entries = [json.loads(line) for line in (tmp_path / "ppo" / "completions.jsonl").read_text().splitlines()]
    again = learned(prompts=[e["prompt"] for e in entries], completions=[e["completion"] for e in entries])
    assert [e["score"] for e in entries] == pytest.approx(again, abs=1e-5)
    evaluation = json.loads((tmp_path / "ppo" / "summary.json").read_text())["evaluation"]
    assert (evaluation["after"]["mean"] * 12) % 1 == pytest.approx(0)  # graded: right or wrong
    before = json.loads((tmp_path / "judge" / "summary.json").read_text())["evaluation"]
    assert before["before"]["mean"] == 0.5 and "ceiling" not in before


@pytest.mark.slow
def test_a_reward_model_run_resumes_exactly(tmp_path: Any) -> None:
    assert run.main([*JUDGE, "iterations=4", f"out={tmp_path / 'whole'}"]) == 0
    assert run.main([*JUDGE, "iterations=2", f"out={tmp_path / 'cut'}"]) == 0
    assert run.main([f"resume={tmp_path / 'cut'}", "iterations=4"]) == 0
    states = [folders.read_tensors(tmp_path / name / "model" / "reward_head.safetensors") for name in ("whole", "cut")]
    states += [folders.read_tensors(tmp_path / name / "model" / "model.safetensors") for name in ("whole", "cut")]
    for whole, cut in (states[:2], states[2:]):
        assert all(torch.equal(x, cut[name]) for name, x in whole.items())
    assert states[0]["weight"].any()
