"""Writing in turns with models that transformers computes: the native decoder is the oracle."""

from pathlib import Path

import pytest
import torch
from support.small_model import PROMPTS
from torch.testing import assert_close

from rlkit.language.folders import TINY
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator

pytest.importorskip("transformers")
from support.foreign_folders import write  # it imports transformers
from test_conversations import answering, rows_of, some, talk

from rlkit.language.foreign_folders import read_foreign


@pytest.mark.parametrize("greedy", [True, False])
def test_on_the_same_weights_rows_are_those_of_the_native_decoder(greedy: bool) -> None:
    native = LanguageModel.load("tiny", temperature=1.2)
    foreign = LanguageModel(read_foreign(TINY), native.tokenizer, temperature=1.2)
    found = [
        policy.converse(
            [*PROMPTS, "Ann has 3 pears. How many pears does Ann have?\n####"],
            answering(some),
            2,
            30,
            greedy=greedy,
            generator=generator(0, "draws"),
            stop=["a", "e", "\n"],
        )
        for policy in (native, foreign)
    ]
    assert rows_of(found[0]) == rows_of(found[1])
    assert torch.equal(found[0]["truncated"], found[1]["truncated"])
    assert_close(found[0]["log_prob"], found[1]["log_prob"], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_rows_stay_within_the_context_and_do_not_depend_on_their_neighbors(tmp_path: Path) -> None:
    write(tmp_path / "gpt2", "gpt2")  # it has no position beyond its 128
    policy, alone = LanguageModel.load(tmp_path / "gpt2"), LanguageModel.load(tmp_path / "gpt2", rows=1)
    assert rows_of(talk(policy)) == rows_of(talk(alone))
    batch = talk(policy, lambda row, turn: "Ann has 12 apples and 3 pears. " * 2, max_tokens=60, turn_tokens=3)
    assert batch["truncated"].all() and batch["action"].shape[-1] < 128
    flat = batch.flatten(0, 1)
    assert_close(policy.evaluate(flat)["log_prob"].detach(), flat["log_prob"], rtol=1e-4, atol=1e-4)


def test_a_conversation_takes_memory_for_what_is_said_not_for_the_whole_context(tmp_path: Path) -> None:
    write(tmp_path / "gpt2", "gpt2")
    policy = LanguageModel.load(tmp_path / "gpt2")
    said = rows_of(talk(policy))
    policy.decoder.context = 10**12
    assert rows_of(talk(policy)) == said
