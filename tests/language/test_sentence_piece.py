"""Answers after a prompt, and special tokens, with tokenizers that put a space before a text."""

import copy
from pathlib import Path

import pytest
import torch
from support.sentence_pieces import sentence_piece
from support.small_model import TOKENIZER, model
from tokenizers import decoders, pre_tokenizers

from rlkit.language.apart import read_apart
from rlkit.language.model import LanguageModel
from rlkit.language.reward_model import LearnedReward, RewardModel
from rlkit.prompts import Prompt, Turn, data, joined

KINDS = ["first", "always", "legacy"]
LLAMA2 = (
    "{% for m in messages %}{% if m.role == 'user' %}[{{ m.content }}]{% else %} {{ m.content }} </s>{% endif %}"
    "{% endfor %}"
)
CHATML = "{% for m in messages %}[{{ m.role[0] }}]{{ m.content }}</s>{% endfor %}[a]"


def written(policy: LanguageModel, prompts: list[Prompt], answers: list[str]) -> list[list[int]]:
    batch = policy.encode(prompts, [data(answer) for answer in answers])
    return [row["action"][row["mask"]].tolist() for row in batch]


@pytest.mark.parametrize("kind", KINDS)
def test_an_answer_is_the_tokens_of_the_whole_text_without_those_of_the_prompt(kind: str) -> None:
    tokenizer = sentence_piece(kind)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64)
    prompts, answers = [Prompt("2/2=\n"), Prompt("48/2="), Prompt("48/2=")], ["24", "24>>", " 24"]
    wholes = tokenizer.encode([a + b for a, b in zip(prompts, answers, strict=True)])
    found = [a + b for a, b in zip(tokenizer.encode(prompts), written(policy, prompts, answers), strict=True)]
    assert found == [[*whole, 1] for whole in wholes]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("template", "pieces"), [(LLAMA2, ["▁24", "▁", "</s>"]), (CHATML, ["2", "4", "</s>"])])
def test_an_answer_in_turns_begins_as_the_template_writes_it(template: str, pieces: list[str], kind: str) -> None:
    tokenizer = sentence_piece(kind, template=template)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64)
    prompts = policy.chat([[Turn("user", data("48/2="))]], {})
    for answer in ("24", " 24", "24 ") if template == LLAMA2 else ("24",):
        (ids,) = written(policy, prompts, [answer])
        assert [tokenizer.core.id_to_token(i) for i in ids] == pieces


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_model_reads_a_decoded_answer_as_the_answer_of_a_file(kind: str) -> None:
    """The decoder leaves out the space at the beginning of a text."""
    tokenizer = sentence_piece(kind)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.core.decoder = decoders.Sequence(steps)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64)
    judge = RewardModel.on(policy, False)
    for prompt, answer, pieces in [
        ("48/2=", " 24", ["▁24"]),
        ("48/2=\n", "24", ["2", "4"]),
        ("48/2=", "\n24", ["<0x0A>", "2", "4"]),
        ("48/2=", "", []),
    ]:
        decoded = policy.decode(policy.encode([prompt], [answer]))
        assert decoded == [answer.removeprefix(" ")]
        for text in (answer, *decoded):
            batch = judge.encode([prompt], [text])
            ids = batch["action"][batch["mask"]].tolist()
            assert [tokenizer.core.id_to_token(i) for i in ids] == [*pieces, "</s>"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_reward_model_reads_indented_texts_as_they_are(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = sentence_piece(kind)
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    tokenizer.core.decoder = decoders.Sequence(steps)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64)
    judge, texts = RewardModel.on(policy, False), ["  24", "   24", "     24"]
    monkeypatch.setattr(RewardModel, "load", lambda folder: judge)
    reward, read = LearnedReward("anywhere"), []
    reward.read_texts_of(policy.tokenizer)
    monkeypatch.setattr(reward, "_as_its_own", lambda prompts: prompts)
    monkeypatch.setattr(judge, "judge", lambda prompts, found: read.extend(found) or torch.zeros(len(found)))
    for prompt in (Prompt("48/2="), Prompt("48/2=\n"), Prompt("48/2=", turns=[Turn("user", "48/2=")])):
        prompts = [prompt] * len(texts)
        assert written(judge, prompts, texts) == written(policy, prompts, texts)
        assert len({*map(tuple, written(judge, prompts, texts))}) == len(texts)
        decoded = policy.decode(policy.encode(prompts, texts))
        assert decoded == [text[1:] for text in texts]
        reward([*prompts], decoded)
    assert read == texts * 3


def test_a_tokenizer_of_bytes_that_puts_a_space_before_a_text_puts_none_before_an_answer() -> None:
    policy = model()
    policy.tokenizer = copy.deepcopy(TOKENIZER)
    policy.tokenizer.core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    prompts, answers = [Prompt("How many apples?\n"), Prompt("Ann has"), Prompt("Ann has ")], ["Ann", " 12", "12 pears"]
    wholes = policy.tokenizer.encode([a + b for a, b in zip(prompts, answers, strict=True)])
    found = zip(policy.tokenizer.encode(prompts), written(policy, prompts, answers), strict=True)
    assert [a + b for a, b in found][:2] == [[*whole, 0] for whole in wholes][:2]
    assert written(policy, prompts, answers)[2] == [*TOKENIZER.encode(["12 pears"])[0], 0]


def test_the_first_token_of_a_forbidden_text_is_forbidden_with_and_without_a_space() -> None:
    policy = LanguageModel.fresh(sentence_piece("first"), width=32, layers=1, heads=2, inner=48, context=64)
    vocabulary = policy.tokenizer.core.get_vocab()
    rule = policy._asked(["48/2="], 1, 2, True, ["24"], []).rule
    assert {*rule.forbidden} == {vocabulary["2"], vocabulary["▁24"]}


@pytest.mark.parametrize("normalized", [True, False])
def test_read_apart_a_prompt_has_the_tokens_that_the_tokenizer_finds(normalized: bool) -> None:
    """In Llama's first tokenizers special tokens are normalized: an end token without a space before it is a text."""
    tokenizer = sentence_piece("legacy", normalized)
    core = tokenizer.core
    for text in ("</s>24", "2</s>4", "2 </s> 4", "</s> 2</s></s>4 </s>", " </s>", "24"):
        assert read_apart(core, Prompt(text), False) == core.encode(text).ids
    (ids,) = tokenizer.encode([joined(["2 </s>4", data("</s>"), "2 </s>"])])
    assert ids.count(1) == 2 and [core.id_to_token(i) for i in ids].count("s") == 1


@pytest.mark.parametrize("normalized", [False, True])
def test_a_saved_folder_names_the_end_token_by_its_own_text(normalized: bool, tmp_path: Path) -> None:
    tokenizer = sentence_piece("legacy", normalized)
    LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, inner=48, context=64).save(tmp_path)
    assert LanguageModel.load(tmp_path).tokenizer.settings["eos_token"] == "</s>"
