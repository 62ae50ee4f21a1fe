"""A chat template is the same program wherever a run goes on, and it writes the same text each time."""

import re
from pathlib import Path

import pytest
from support.small_model import TOKENIZER

from rlkit.errors import UserError
from rlkit.language.chat import ChatTemplate, read_template, render
from rlkit.language.network import LanguageNetwork
from rlkit.prompts import Turn, data
from rlkit.settings import places


def test_a_name_is_the_models_whatever_lies_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = places.marked(LanguageNetwork)["template"]
    monkeypatch.chdir(tmp_path)
    names = [{"name": name, "template": "MODEL'S"} for name in ("mine", "mine.jinja")]
    for name in ("mine", "mine.jinja"):
        Path(name).write_text("FILE")
    texts = {"mine": "MODEL'S", "./mine": "FILE", "mine.jinja": "FILE", str(tmp_path / "mine"): "FILE"}
    for wanted, text in texts.items():
        found = read_template(tmp_path / "model", {"chat_template": names}, wanted)
        assert found is not None and found.text == text, wanted
        path = str(tmp_path / wanted) if text == "FILE" else wanted
        assert places.absolute(wanted, place) == path
        assert list(places.named(wanted, place)) == ([path] if text == "FILE" else [])
    with pytest.raises(
        UserError, match=r"policy\.template='mine': no such chat template; the model has none, or give a"
    ):
        read_template(tmp_path / "model", {}, "mine")
    Path("mine.jinja").unlink()
    with pytest.raises(
        UserError, match=r"policy\.template='mine\.jinja': no such chat template; the model has mine, or"
    ):
        read_template(tmp_path / "model", {"chat_template": names}, "mine.jinja")


@pytest.mark.parametrize(
    "template",
    [
        "{% set x = 1 %}{% generation %}{% set x = 2 %}{% set y = 3 %}{{ x }}{% endgeneration %}{{ x }}{{ y }}",
        "{% set n = namespace(x=1) %}{% for m in messages %}{% generation %}{% set n.x = 2 %}{{ loop.index }}"
        "{% endgeneration %}{{ n.x }}{% endfor %}",
    ],
)
def test_what_a_template_sets_within_an_answer_ends_with_it(template: str) -> None:
    utilities = pytest.importorskip("transformers.utils.chat_template_utils")
    said = [{"role": "user", "content": "2 + 3?"}]
    (theirs,), _ = utilities.render_jinja_template([said], chat_template=template)
    assert render(template, "x.jinja", [said], {}) == [theirs]


@pytest.mark.parametrize(
    ("template", "told"),
    [
        ("{{ [1, 2]|random }}", "line 1: No filter named 'random'."),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ [1]|map('upper') }}", "it writes the address of a generator object sync_do_map, which is another each"),
        ("{{ cycler('a') }}", "it writes the address of a jinja2.utils.Cycler object, which is another each time"),
        ("a{{ [['b'|upper|list|reverse]]|string|upper ~ 'c' }}", "it writes the address of a LIST_REVERSEITERATOR"),
        ("{{ '{} {}'.format(messages[0].get, 1) }}", "it writes the address of a built-in method get of dict object, "),
    ],
)
def test_a_template_that_cannot_be_repeated_is_one_line(template: str, told: str) -> None:
    with pytest.raises(UserError, match=rf"^W: the chat template fails \({re.escape(told)}.*\): give another") as error:
        render(template, "W", [[{"role": "user", "content": "a"}]], {})
    assert "0x" not in str(error.value).lower(), "the line is the same each time, too"


@pytest.mark.parametrize("text", ["<f at 0x7F33FA0AAC40>", "crash at\n0x7f33fa0aac4", " at 0x12", " at 0x"])
def test_a_question_and_a_template_may_spell_addresses(text: str) -> None:
    turn = {"role": "user", "content": text}
    template = "<g at 0x55d0c0ffee00>{{ messages[0].content|replace('\n', ' ') }}assistant{{ x }}"
    expected = f"<g at 0x55d0c0ffee00>{text}assistant<h at 0x1234567>".replace("\n", " ")
    assert render(template, "W", [[turn]], {"x": "<h at 0x1234567>"}) == [expected]


@pytest.mark.slow
def test_the_order_of_a_set_is_always_the_same() -> None:
    template = "{{ (dict(a=1, b=2, c=3, d=4, e=5, f=6).keys() - [])|join }}"
    assert len({render(template, "W", [[]], {})[0] for _ in range(4)}) == 1


def test_a_template_without_the_question_is_refused(tmp_path: Path) -> None:
    """As that of a model for pictures, which reads a list of parts and no text."""
    asked, file = (Turn("user", data("Name a color & a fruit.")),), tmp_path / "mine.jinja"
    file.write_text("user: {% for part in messages[0].content %}{{ part.text }}{% endfor %}\n")
    policy = LanguageNetwork(template=str(file)).build()
    with pytest.raises(UserError, match=r"^the chat template leaves out a message of the user: give another one with"):
        policy.chat([asked], {})
    policy.check(["Name a color."], 8)  # with env.chat=false


@pytest.mark.parametrize(
    ("reads", "lost"),
    [
        ("messages if m.role != 'system'", "system"),
        ("messages[:1] + messages[-1:]", "user"),
        ("messages if m.role != 'assistant'", "assistant"),
    ],
)
@pytest.mark.parametrize(
    ("rule", "example", "question"),
    [
        ("You are a helpful assistant.", "Any color?", "More?"),
        ("Пиши кратко.", "七加五等于多少？", "更多？"),
        ("Add!", "What is 3?", "What is 4?"),
    ],
)
def test_a_template_without_the_system_message_or_the_examples_is_refused(
    reads: str, lost: str, rule: str, example: str, question: str, tmp_path: Path
) -> None:
    """As Phi-3's first ones: env.system and env.shots would do nothing, and the first screen would name them."""
    file = tmp_path / "mine.jinja"
    file.write_text(f"{{% for m in {reads} %}}{{{{ m.role }}}}: {{{{ m.content }}}}\n{{% endfor %}}")
    policy = LanguageNetwork(template=str(file)).build()
    first, last = Turn("user", data(example)), Turn("user", data(question))
    said = [Turn("system", data(rule)), first, Turn("assistant", data("<think>Hm.</think>Red.")), last]
    with pytest.raises(UserError, match=rf"^the chat template leaves out a message of the {lost}: give another one"):
        policy.chat([said], {})
    policy.chat([[first]], {})


def test_a_template_may_change_a_message_and_leave_out_parts_of_it() -> None:
    """As Qwen3's reads /no_think, and others trim or escape."""
    change = "m.content.split('</think>')[-1].replace('/no_think', '').upper()"
    template = ChatTemplate(f"{{% for m in messages %}}{{{{ {change} }}}} {{% endfor %}}", "x.jinja")
    said = ("user", "/no_think"), ("assistant", "<think>Hm.</think>"), ("user", "Straße?")
    turns = [Turn(role, data(text)) for role, text in said]
    template.check_told([turns], {})
    assert template.prompts([turns], TOKENIZER.core, {}) == ["  STRASSE? "]


def test_a_variable_that_the_template_does_not_have_is_refused() -> None:
    asked, template = [(Turn("user", data("a")),)], ChatTemplate("{{ messages[0].content }}{{ thinking }}", "x.jinja")
    assert template.prompts(asked, TOKENIZER.core, {"thinking": 5}) == ["a5"]
    with pytest.raises(UserError, match=r"^env\.chat_options: x\.jinja has no variable 'thinkin': leave it out$"):
        template.prompts(asked, TOKENIZER.core, {"thinkin": 5})
