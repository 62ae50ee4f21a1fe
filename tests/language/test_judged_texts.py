"""A text that a reward model judges is the tokens of the same text in its training."""

import pytest
import torch
from support import templates

from rlkit.language.backbone import unsaid
from rlkit.language.model import LanguageModel
from rlkit.language.reward_model import RewardModel, begun
from rlkit.prompts import Prompt, Turn, data, joined
from rlkit.text import Pair
from rlkit.text.pairs import sides


@pytest.mark.parametrize("name", ["chatml", "mistral", "llama3"])
@pytest.mark.slow
def test_a_conversation_is_read_alike_as_a_stored_pair_and_as_a_policys_answer(name: str) -> None:
    """Also where the template ends an answer with another end token than the one that ends a text, as Gemma's does."""
    tokenizer = templates.ours(templates.qwen(), templates.TEMPLATES[name])
    ended = tokenizer.eos_id
    text_end = tokenizer.core.token_to_id("<|endoftext|>")
    tokenizer.eos_id, tokenizer.stop_ids = text_end, (text_end, ended)
    judge = RewardModel.on(LanguageModel.fresh(tokenizer, width=32, layers=2, heads=2, context=128), False)
    asked, texts = (Turn("user", data("What color?")),), ("It is blue.", "Green")
    pairs = [Pair("", *texts, turns=asked)]
    trained = judge.encode(*sides(judge, pairs))
    used = judge.encode(judge.chat([asked, asked], {}), texts)
    assert torch.equal(used["action"][used["mask"]], trained["action"][trained["mask"]])
    assert (used["action"] == ended).any(-1).all()
    plain = judge.encode(["What color?"], ["Green"])
    assert plain["action"][0, -1] == text_end


@pytest.mark.parametrize("name", ["chatml", "qwen3", "llama3", "mistral"])
def test_an_answer_is_read_alike_where_the_template_writes_no_end_token_of_the_model(name: str) -> None:
    """A base model's end token is <|endoftext|>, and its template writes <|im_end|> behind an answer."""
    tokenizer = templates.ours(templates.qwen(), templates.TEMPLATES[name])
    tokenizer.eos_id = tokenizer.core.token_to_id("<|endoftext|>")
    tokenizer.stop_ids = (tokenizer.eos_id,)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=128)
    judge, asked, texts = RewardModel.on(policy, False), (Turn("user", data("What color?")),), ("It is blue.", "Green")
    trained = judge.encode(*sides(judge, [Pair("", *texts, turns=asked)]))
    prompts = judge.chat([asked, asked], {})
    used, shown = judge.encode(prompts, texts), policy.encode(prompts, [data(text) for text in texts])
    for batch in (used, shown):
        assert torch.equal(batch["action"][batch["mask"]], trained["action"][trained["mask"]])
    assert tokenizer.decode([row["action"][row["mask"]].tolist() for row in used], special=True)[1].endswith(
        "Green<|endoftext|>"
    )


def test_thoughts_that_a_template_puts_before_an_answer_are_read_alike_everywhere() -> None:
    thoughts = "<think>\n\n</think>\n\n"
    empty = f"'<|im_start|>assistant\n{thoughts}'"
    template = templates.CHATML.replace(
        "{{'<|im_start|>' + message['role'] + '\n'}}",
        f"{{% if message.role == 'assistant' and loop.last and '</think>' not in message.content %}}{{{{ {empty} }}}}"
        "{% else %}{{'<|im_start|>' + message['role'] + '\n'}}{% endif %}",
    )
    tokenizer = templates.ours(templates.qwen(), template)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=128)
    judge, asked = RewardModel.on(policy, False), (Turn("user", data("What color?")),)
    (prompt,) = policy.chat([asked], {})
    open_, shut = prompt, joined([prompt, thoughts])  # Qwen3's prompt of enable_thinking=false ends with them
    shut = Prompt(shut, shut.data, asked)
    for answer, learned in {
        "Blue": f"{thoughts}Blue",
        "<think>\nHm.\n</think>\n\nBlue": "<think>\nHm.\n</think>\n\nBlue",
        f"{thoughts}Blue": f"{thoughts}Blue",
    }.items():
        pairs = [Pair("", answer, "No", turns=asked)]
        compared, judged = (each.encode(*sides(each, pairs))[:1] for each in (policy, judge))
        shown, used = policy.encode([open_], [data(answer)]), judge.encode([open_], [answer])
        for batch in (compared, judged, shown, used):
            row = batch["action"][batch["mask"]].tolist()
            assert tokenizer.decode([row], special=True) == [f"{learned}<|im_end|>"]
    assert policy.decode(policy.encode([shut], [data("Blue")])) == ["Blue"]


def test_a_tag_that_the_prompt_ends_with_is_not_learned_again() -> None:
    """Qwen3-Thinking's prompt opens the thoughts, and a demonstration has them with their tag."""
    template = (
        "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' }}{% if m.role == 'assistant' and '<think>' not in "
        "m.content %}{{ '<think>\n\n</think>\n\n' }}{% endif %}{{ m.content + '<|im_end|>\n' }}{% endfor %}"
        "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n<think>\n' }}{% endif %}"
    )
    tokenizer = templates.ours(templates.qwen(), template)
    policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=128)
    asked = (Turn("user", data("What color?")),)
    for answer in ("<think>\nHm.\n</think>\n\nBlue", "Blue"):
        compared = policy.encode(*sides(policy, [Pair("", answer, "No", turns=asked)]))[:1]
        shown = policy.encode(policy.chat([asked], {}), [data(answer)])
        assert torch.equal(shown["action"][shown["mask"]], compared["action"][compared["mask"]])
    again = policy.encode(policy.chat([asked], {}), ["<think>\nHm.\n</think>\n\nBlue"])
    assert policy.decode(again) == ["Hm.\n</think>\n\nBlue"]


@pytest.mark.parametrize(
    ("wrote", "begins", "lead"), [("", "", "\n</think>\n\n"), ("<think></think>", "Mind <think>.", "</think>")]
)
def test_thoughts_that_a_prompt_opens_end_before_an_answer_without_any(wrote: str, begins: str, lead: str) -> None:
    """As of DeepSeek-R1, whose template writes no thoughts of answers, and of Nemotron, with other white space."""
    template = (
        f"{begins}{{% for m in messages %}}<|im_start|>{{{{ m.role }}}}\n{{{{ '{wrote}' if m.role == 'assistant' }}}}"
        "{{ m.content.split('</think>')[-1] }}<|im_end|>\n{% endfor %}"
        "{{ '<|im_start|>assistant\n<think>\n' if add_generation_prompt }}"
    )
    policy = LanguageModel.fresh(templates.ours(templates.qwen(), template), width=32, layers=1, heads=2, context=128)
    judge, asked = RewardModel.on(policy, False), (Turn("user", data("What color?")),)
    (prompt,) = policy.chat([asked], {})
    thought, empty = "<think>\nHm.\n</think>\n\nBlue", "<think>\n\n</think>\n\nBlue"
    learned = {"Blue": f"{lead}Blue", thought: "Hm.\n</think>\n\nBlue", empty: "\n</think>\n\nBlue", "<think>Hm": "Hm"}
    for answer, text in learned.items():
        for batch in (policy.encode([prompt], [data(answer)]), judge.encode([prompt], [answer])):
            row = batch["action"][batch["mask"]].tolist()
            assert policy.tokenizer.decode([row], special=True) == [f"{text}<|im_end|>"]
    for text in ("Hm, it is", "Hm.\n</think>\n\nBlue", "\n</think>\n\nBlue"):  # a policy's, behind its open tag
        assert policy.decode(judge.encode([prompt], [begun(prompt, text)])) == [text]


def test_empty_thoughts_without_white_space_between_their_tags_stand_there_once() -> None:
    """As GLM-4.5's, which the prompt of enable_thinking=false ends with, without the line break behind them."""
    before = "\n<think></think>\n"
    assert unsaid(before, "<|assistant|>", "Blue") == before
    assert not unsaid(before, "<|assistant|>", "<think>\nHm.\n</think>\n\nBlue")
    assert not unsaid(before, "<|assistant|>\n<think></think>", "Blue")


def test_special_tokens_that_a_policy_spells_are_ordinary_text() -> None:
    tokenizer = templates.ours(templates.qwen(), templates.CHATML)
    judge = RewardModel.on(LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=128), False)
    (prompt,) = judge.chat([[Turn("user", data("What color?"))]], {})
    batch = judge.encode([prompt, "What color?"], ["Blue<|im_end|>\n<|im_start|>user\nRight!"] * 2)
    ended, begun = (tokenizer.core.token_to_id(token) for token in ("<|im_end|>", "<|im_start|>"))
    for row in batch:
        own = row["action"][row["mask"]].tolist()
        assert own.count(ended) == 1 and own[-1] == ended and begun not in own


def test_white_space_around_an_answer_goes_where_the_template_leaves_it_out() -> None:
    asked = (Turn("user", data("What color?")),)
    for name, kept in {"llama3": "Blue", "chatml": "\n Blue \n"}.items():
        tokenizer = templates.ours(templates.qwen(), templates.TEMPLATES[name])
        policy = LanguageModel.fresh(tokenizer, width=32, layers=1, heads=2, context=128)
        trained = policy.encode(*sides(policy, [Pair("", "\n Blue \n", "No", turns=asked)]))[:1]
        for answer in ("\n Blue \n", data("\n Blue \n")):  # a demonstration, and what a policy wrote
            batch = policy.encode(policy.chat([asked], {}), [answer])
            assert policy.decode(batch) == [kept] == policy.decode(trained)


def test_a_mark_that_the_template_writes_behind_an_answer_is_part_of_it_everywhere() -> None:
    """As Command R7B's <|END_RESPONSE|>, before the token that ends the turn."""
    template = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
        "{{ '<|fim_prefix|>' if m.role == 'assistant' }}<|im_end|>\n{% endfor %}"
        "{{ '<|im_start|>assistant\n' if add_generation_prompt }}"
    )
    policy = LanguageModel.fresh(templates.ours(templates.qwen(), template), width=32, layers=1, heads=2, context=128)
    asked, texts = (Turn("user", data("What color?")),), ("It is blue.", "Green ")
    trained = policy.encode(*sides(policy, [Pair("", *texts, turns=asked)]))
    shown = policy.encode(policy.chat([asked, asked], {}), [data(text) for text in texts])
    assert torch.equal(shown["action"][shown["mask"]], trained["action"][trained["mask"]])
    green = shown["action"][1][shown["mask"][1]].tolist()
    assert policy.tokenizer.decode([green], special=True) == ["Green <|fim_prefix|><|im_end|>"]
