"""Text environments with a policy of twenty lines: layout, order, rewards, splits and bad input."""

import json
import re
from collections import Counter
from dataclasses import replace

import pytest
import torch
from support.parrot import Parrot, told

from rlkit.api import UserError
from rlkit.language.model import LanguageModel
from rlkit.settings import plugins
from rlkit.text import TextEnv
from rlkit.text.measuring import Measuring
from rlkit.text.problems import Problem, bare
from rlkit.text.shuffle import Shuffle

gsm8k = plugins.load("envs", "gsm8k")


def adds(count):
    return [
        Problem(f"{n} + 2 =", f"<<{n}+2={n + 2}>>{n + 2}\n#### {n + 2}", "odd" if n % 2 else "even")
        for n in range(count)
    ]


def env(rows=2, seed=0, problems=None, **settings):
    problems = problems or {"train": adds(5), "validation": adds(4), "test": adds(3)}
    return TextEnv(problems, rows=rows, seed=seed, **settings)


def test_a_rollout_puts_the_score_on_the_last_token_and_ends_there():
    batch = env(rows=5).rollout(Parrot(lambda prompt, attempt: "#### 4" if prompt[0] in "24" else "#### 44"))
    assert batch.batch_size == (5,)
    assert batch["score"].dtype == batch["reward"].dtype == torch.float32
    assert batch["score"].sum() == 1.0  # 2 + 2 = 4 is right and 4 + 2 = 4 is not
    for row in batch:
        last = row["mask"].nonzero().max()
        assert row["reward"][last] == row["score"] == row["reward"].sum()
        assert row["terminated"].nonzero().tolist() == row["done"].nonzero().tolist() == [[last]]
    torch.testing.assert_close(batch["value"], batch["mask"] * 0.5)  # what the policy records is merged


def test_repeats_share_a_prompt_and_keep_their_own_scores():
    world = env(rows=2)
    batch = world.rollout(Parrot(lambda prompt, attempt: f"#### {int(prompt[0]) + 2 + attempt}"), repeats=3)
    assert batch.batch_size == (2, 3)
    torch.testing.assert_close(batch["score"], torch.tensor([[1.0, 0.0, 0.0]]).repeat(2, 1))
    records = told(world, batch)
    prompts = [record["prompt"] for record in records]
    assert prompts[0] == prompts[1] == prompts[2] != prompts[3] == prompts[4] == prompts[5]
    assert [record["score"] for record in records] == [1.0, 0.0, 0.0] * 2
    assert set(records[0]) == {"prompt", "completion", "answer", "score", "kind"}
    assert prompts[0].endswith(" =\n")


def test_steps_limit_the_tokens_but_never_above_the_environments_own_limit():
    parrot, world = Parrot(), env(max_tokens=20)
    for steps in (None, 7, 99):
        world.rollout(parrot, steps)
    assert [call["max_tokens"] for call in parrot.calls] == [20, 7, 20]


def test_a_policy_that_writes_nothing_is_refused():
    class Walks:
        def act(self, observation, greedy=False): ...

        def record(self, batch): ...

    for ask in (env().rollout, env().evaluate, env().check, env().demonstrations):
        with pytest.raises(UserError, match="a Walks writes no text; use algo=grpo, or a control environment"):
            ask(Walks())


def test_every_problem_comes_once_per_epoch_in_an_order_of_its_own():
    world = env(rows=3)  # 5 problems: batches run across the epochs
    seen = []
    for _ in range(10):
        seen += [record["prompt"] for record in told(world, world.rollout(Parrot()))]
    epochs = [tuple(seen[start : start + 5]) for start in range(0, 30, 5)]
    assert all(len(set(epoch)) == 5 for epoch in epochs)
    assert len(set(epochs)) > 1


def test_the_order_depends_on_the_seed_and_a_resumed_environment_continues_it():
    def prompts(world):
        return [record["prompt"] for record in told(world, world.rollout(Parrot()))]

    problems = {"train": adds(9) + adds(50)[9:], "validation": [], "test": []}
    first, same, other = env(8, 0, problems), env(8, 0, problems), env(8, 1, problems)
    begun = prompts(first)
    assert begun == prompts(same) and begun != prompts(other)
    resumed = env(8, 0, problems)
    resumed.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert [prompts(resumed) for _ in range(8)] == [prompts(first) for _ in range(8)]


def test_evaluation_scores_the_first_problems_of_a_split_with_their_kinds():
    world = env()
    scores = world.evaluate(Parrot(), 3, "validation")
    torch.testing.assert_close(scores.score, torch.tensor([0.0, 0.0, 1.0], dtype=torch.float64))
    assert scores.kinds == ["even", "odd", "even"]
    assert scores.length.tolist() == [7.0, 7.0, 7.0]  # "#### 4" and the end
    assert [sample["score"] for sample in scores.samples] == [0.0, 0.0, 1.0]
    assert len(world.evaluate(Parrot(), None, "test").score) == 3


def test_evaluation_leaves_training_untouched_and_samples_anew_each_time():
    world, untouched, parrot = env(), env(), Parrot()
    world.evaluate(parrot, 2, "test", greedy=False)
    world.evaluate(parrot, 2, "test", greedy=False)
    assert parrot.calls[0]["first"] != parrot.calls[1]["first"]
    again = Parrot()
    env().evaluate(again, 2, "test", greedy=False)
    assert again.calls[0]["first"] == parrot.calls[0]["first"]
    assert told(world, world.rollout(Parrot())) == told(untouched, untouched.rollout(Parrot()))


def test_for_the_ceiling_the_first_token_is_forbidden():
    parrot = Parrot()
    env(ceiling=("####",)).ceiling(parrot, 2)
    assert parrot.calls[0]["forbid_first"] == ("####",)


def test_embedded_kinds_are_grouped_into_common_and_rare():
    world = gsm8k.make(gsm8k.Config(train=20, validation=60, test=0), 0, "cpu")
    scores = world.evaluate(Parrot(), 60)
    assert set(scores.groups) == {"common", "rare"}
    assert {kind for kind, group in zip(scores.kinds, scores.groups, strict=True) if group == "common"} <= {
        "chain", "items", "times", "rate", "age", "saving"
    }  # fmt: skip
    assert "embedded" in world.source and "not GSM8K" in world.source


def test_kinds_of_ones_own_are_not_rare_because_an_embedded_kind_has_that_name():
    problems = [Problem(f"{kind}?", "#### 4", kind) for kind in ("more", "chain")]
    for embedded, groups in ((False, None), (True, ["rare", "common"])):
        splits = {"train": problems, "validation": problems, "test": []}
        world = env(problems=splits, measuring=Measuring(embedded=embedded))
        assert world.evaluate(Parrot()).groups == groups


def shown(world, policy, progress, calls=30, rows=8):
    return [text for _ in range(calls) for text in policy.decode(world.demonstrations(policy, progress, rows))]


def test_demonstrations_show_every_worked_answer_once_an_epoch():
    world = env(problems={"train": adds(240), "validation": [], "test": []})
    assert sorted(shown(world, Parrot(), 0.0)) == sorted(problem.answer for problem in adds(240))


def test_demonstrations_become_direct_in_the_last_part_of_the_run_only():
    problems = {"train": adds(240), "validation": [], "test": []}
    world = env(problems=problems, direct=0.5, direct_from=0.6)
    assert not [text for text in shown(world, Parrot(), 0.59) if text.startswith("####")]
    late = shown(world, Parrot(), 0.6)
    assert sum(text.startswith("####") for text in late) / 240 == pytest.approx(0.5, abs=0.12)
    assert {re.sub(r"[^#]*(####.*)", r"\1", text, flags=re.S) for text in late} == {
        bare(problem) for problem in adds(240)
    }


def test_own_rows_become_direct_though_their_kind_is_named_like_a_rare_one_of_the_embedded_problems():
    problems = {"train": [replace(each, kind="split") for each in adds(240)], "validation": [], "test": []}
    late = shown(env(problems=problems, direct=1.0, direct_from=0.0), Parrot(), 0.5)
    assert all(text.startswith("####") for text in late)


def test_demonstrations_resume_where_they_stopped():
    problems = {"train": adds(100), "validation": [], "test": []}
    first, second = env(problems=problems, direct=0.5), env(problems=problems, direct=0.5)
    shown(first, Parrot(), 1.0, calls=7)
    second.load_state_dict(first.state_dict())
    assert shown(first, Parrot(), 1.0, calls=20) == shown(second, Parrot(), 1.0, calls=20)


def test_an_answer_that_does_not_fit_is_refused_before_anything_is_learned():
    """It would end a run in the middle of an epoch, which could not be resumed with another file."""
    long = Problem("9 + 2 =", "9 + 2 is 11. " * 600 + "#### 11")
    world = env(problems={"train": [*adds(200), long], "validation": [], "test": []})
    with pytest.raises(UserError, match=r"a prompt of \d+ tokens \('9 \+ 2 = ...'\) and \d+ more exceed"):
        world.demonstrations(LanguageModel.load("tiny"))


def test_rows_taken_together_have_similar_lengths():
    lengths = [(37 * n) % 101 for n in range(320)]
    shuffle = Shuffle(320, 0, "x", lengths)
    batches = [[lengths[row] for row in shuffle.take(32)] for _ in range(10)]
    assert max(max(batch) - min(batch) for batch in batches) <= 12
    assert sorted(Counter(length for batch in batches for length in batch).items()) == sorted(Counter(lengths).items())
    firsts = [batch[0] for batch in batches]
    assert firsts != sorted(firsts)  # but the batches come in no order of length


def test_an_empty_split_and_a_prompt_without_the_question_are_refused():
    world = env(problems={"train": adds(2), "validation": [], "test": []})
    with pytest.raises(UserError, match="no validation problems"):
        world.evaluate(Parrot(), 5)
    with pytest.raises(UserError, match="no problem is left"):
        env(problems={"train": [], "validation": [], "test": adds(2)})
    with pytest.raises(UserError, match="question"):
        env(prompt="Answer:")
