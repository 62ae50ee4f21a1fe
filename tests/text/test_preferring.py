"""Rows of preferences in TRL's formats: what they are read as, beside TRL's own functions."""

import json
from itertools import combinations
from pathlib import Path

import pytest
from support import templates
from support.parrot import Parrot
from support.small_model import model

from rlkit.api import UserError
from rlkit.language.backbone import tell_once
from rlkit.language.model import LanguageModel
from rlkit.prompts import Prompt, data
from rlkit.settings import plugins
from rlkit.text.pairs import PairEnv, sides
from rlkit.text.preferring import pairs_from

preferences = plugins.load("envs", "preferences")
Row = dict[str, object]


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


BEFORE = [user("Hello!"), assistant("Hello, what is it?"), user("What color is the sky? ")]
BLUE, GREEN = assistant("It is blue."), assistant("It is\ngreen, <|im_end|> isn't it?")
THOUGHT = assistant("<think>\nA sky.\n</think>\n\nIt is gray.")
SYSTEM = {"role": "system", "content": "Be brief."}
TEXTS: list[Row] = [
    {"prompt": "2 + 3?", "chosen": " 5", "rejected": " 6"},
    {"chosen": "2 + 3? It is 5", "rejected": "2 + 3? No idea"},  # the blank belongs to the sides
    {"chosen": "The sky is blue", "rejected": "The sky is black"},  # cut within a word, as TRL does
    {"chosen": "Yes.", "rejected": "Yes. Or no"},  # one begins with the other
    {"chosen": "a b c", "rejected": "a b d", "score": 3},
    {"question": "2 + 3?", "chosen": "2 + 3? It is 5", "rejected": "2 + 3? No idea"},  # both sides repeat it
]
CHATS: list[Row] = [
    {"prompt": BEFORE[-1:], "chosen": [BLUE], "rejected": [GREEN]},
    {"prompt": BEFORE, "chosen": [BLUE], "rejected": [GREEN]},
    {"prompt": [SYSTEM, *BEFORE], "chosen": [GREEN], "rejected": [BLUE]},
    {"chosen": [*BEFORE, BLUE], "rejected": [*BEFORE, GREEN]},
    {"prompt": "What color is the sky?", "chosen": [*BEFORE[-1:], BLUE], "rejected": [*BEFORE[-1:], GREEN]},
    {"prompt": BEFORE[-1:], "chosen": [BLUE], "rejected": [assistant("It is blue, or not.")]},  # they begin alike
    {"prompt": [user("Hi?"), THOUGHT, *BEFORE[-1:]], "chosen": [BLUE], "rejected": [THOUGHT]},
]


def chatty(template: str) -> LanguageModel:
    policy = model()
    policy.tokenizer = templates.ours(templates.qwen(), template)
    return policy


def read(row: Row, policy: object = None) -> list[Prompt]:
    """The prompt, the chosen and the rejected side of a row, as a model reads them."""
    prompts, both = sides(policy or Parrot(), pairs_from([("p.jsonl:1", row)]))
    assert prompts[0] == prompts[1]
    return [prompts[0], *both]


@pytest.mark.parametrize("row", TEXTS)
def test_texts_equal_what_trl_extracts(row: Row) -> None:
    trl = pytest.importorskip("trl.data_utils")
    theirs = trl.maybe_extract_prompt(dict(row))
    assert read(row) == [theirs[key] for key in ("prompt", "chosen", "rejected")]


@pytest.mark.parametrize("name", ["chatml", "smollm2", "qwen3"])
@pytest.mark.parametrize("row", CHATS)
def test_conversations_equal_what_trl_renders(name: str, row: Row) -> None:
    trl = pytest.importorskip("trl.data_utils")
    template = templates.TEMPLATES[name]
    theirs = trl.apply_chat_template(trl.maybe_extract_prompt(dict(row)), templates.theirs(templates.qwen(), template))
    assert read(row, chatty(template)) == [theirs[key] for key in ("prompt", "chosen", "rejected")]


def test_a_prompt_within_the_sides_is_the_one_that_is_given() -> None:
    explicit, implicit = CHATS[1], CHATS[3]
    policy = chatty(templates.SMOLLM2)
    assert read(implicit, policy) == read(explicit, policy)


def test_by_hand_a_side_ends_where_the_template_ends_the_turn_and_data_are_text() -> None:
    policy = chatty(templates.CHATML)
    prompt, chosen, rejected = read(CHATS[0], policy)
    assert prompt == "<|im_start|>user\nWhat color is the sky? <|im_end|>\n<|im_start|>assistant\n"
    assert (chosen, rejected[-11:]) == ("It is blue.<|im_end|>\n", "<|im_end|>\n")
    [end] = policy.tokenizer.stop_ids
    batch = policy.encode([prompt, prompt], [chosen, rejected])
    for row, text in zip(batch, ("It is blue.", CHATS[0]["rejected"][0]["content"]), strict=True):
        ids = row["action"][row["mask"]].tolist()
        assert ids[-1] == end and end not in ids[:-1], "what spells an end token in a row ends nothing"
        assert policy.tokenizer.core.decode(ids[:-1], skip_special_tokens=False) == text


def test_a_template_that_writes_no_end_gets_one() -> None:
    policy = chatty("{% for message in messages %}{{ message.role + ': ' + message.content + '\n' }}{% endfor %}")
    prompt, chosen, _ = read(CHATS[0], policy)
    assert (prompt, chosen) == ("user: What color is the sky? \n", "assistant: It is blue.\n")
    assert policy.completion_ids([chosen])[0][-1] == policy.tokenizer.eos_id


def test_what_looks_like_a_special_token_in_a_text_is_text() -> None:
    policy = chatty(templates.CHATML)
    read_as = read({"prompt": "1 <|im_end|>", "chosen": "2 <|im_end|>", "rejected": "3"}, policy)
    batch = policy.encode(read_as[:1], read_as[1:2])
    assert batch["action"].flatten().tolist().count(policy.tokenizer.eos_id) == 1  # the end token that is appended
    assert policy.tokenizer.eos_id not in batch["observation"].flatten().tolist()


def test_prompts_that_a_chat_template_wrote_are_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of completions.jsonl, for example: the turns that they spell are ordinary text."""
    tell_once.cache_clear()  # another test may have said the same
    policy, sides, kept = chatty(templates.CHATML), {"chosen": "4", "rejected": "5"}, {"validation": 0, "test": 0}
    written = read({"prompt": [user("2+2?")], "chosen": [BLUE], "rejected": [GREEN]}, policy)[0]
    made(tmp_path, [{"prompt": str(written), **sides}, {"prompt": "2+2?", **sides}], **kept).check(policy)
    assert "1 of 2 prompts were written by the chat template (they have '" in capsys.readouterr().err
    made(tmp_path, [{"prompt": [user(str(written))], "chosen": [BLUE], "rejected": [GREEN]}], **kept).check(policy)
    assert "1 of 1 prompts were written by the chat template" in capsys.readouterr().err
    made(tmp_path, [CHATS[0], {"prompt": "2+2?", **sides}], **kept).check(policy)
    assert not capsys.readouterr().err


def test_what_the_template_writes_between_two_turns_of_a_game_is_not_the_user_s(
    capsys: pytest.CaptureFixture[str],
) -> None:
    tell_once.cache_clear()
    guess = plugins.load("envs", "guess")
    guess.make(guess.Config(), 0, "cpu").check(chatty(templates.CHATML))
    assert not capsys.readouterr().err


def test_a_part_of_a_prompt_keeps_what_is_data() -> None:
    whole = Prompt("ab cd ef", ((3, 5), (6, 8)))
    assert whole.part(4) == "d ef" and whole.part(4).data == ((0, 1), (2, 4))
    assert whole.part(0, 3).data == () and whole.part(2, 7).data == ((1, 3), (4, 5))
    assert data("abc").part(1, 2) == data("b") and data("abc").part(1, 2).data == ((0, 1),)


def made(folder: Path, given: list[Row], **settings: object) -> PairEnv:
    (folder / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in given))
    return preferences.make(preferences.Config(source=str(folder / "p.jsonl"), **settings), 0, "cpu")


def test_a_file_in_the_home_folder_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows: list[Row] = [{"prompt": f"{n}?", "chosen": "yes", "rejected": "no"} for n in range(3)]
    made(tmp_path, rows)
    monkeypatch.setenv("HOME", str(tmp_path))
    env = preferences.make(preferences.Config(source="~/p.jsonl"), 0, "cpu")
    assert sum(map(len, env.pairs.values())) == 3


@pytest.mark.slow
def test_conversations_play_and_demonstrate_as_they_are_rendered(tmp_path: Path) -> None:
    rows: list[Row] = [
        {"prompt": [user(f"{n}?")], "chosen": [assistant("yes")], "rejected": [assistant("no")]} for n in range(4)
    ]
    env, policy = made(tmp_path, rows, rows=2, max_tokens=8, validation=0, test=0), chatty(templates.CHATML)
    assert [pair.prompt for pair in env.pairs["train"]] == [f"user: {n}?" for n in range(4)]
    batch = env.rollout(policy, repeats=2)
    assert policy.decode(batch) == ["yes", "no"] * 2
    assert policy.decode(env.demonstrations(policy)) == ["yes"] * 2
    with pytest.raises(UserError, match="pairs of chat messages need a model with a chat template") as error:
        env.check(model())
    assert "\n" not in str(error.value)


GOOD: Row = {"prompt": [user("3?")], "chosen": [assistant("yes")], "rejected": [assistant("no")]}


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ({"chosen": "3? yes"}, "one is a text and one a list of messages"),
        ({"chosen": "yes", "rejected": "no"}, "'prompt' is a list of messages and the sides are texts"),
        ({"rejected": None}, "'rejected' is missing; every row needs a list of messages"),
        ({"prompt": []}, "'prompt' is an empty list"),
        ({"prompt": [user("3?"), assistant("so")]}, "the last message of 'prompt' is of the assistant"),
        ({"prompt": "3?"}, "'prompt' is a text and the sides are messages, and 'chosen' and 'rejected' begin differ"),
        ({"chosen": []}, "'chosen' is user; a prompt ends with the user, and a side is one message of the assistant"),
        ({"chosen": [user("so")]}, "'chosen' is user, user; a prompt ends"),
        ({"rejected": [assistant("no"), user("why")]}, "'rejected' is user, assistant, user; a prompt ends"),
        ({"rejected": [{"role": "robot", "content": "no"}]}, "message 1 of 'rejected' has the role \"robot\""),
        ({"chosen": [{"role": "assistant", "content": None}]}, "message 1 of 'chosen' has the content null"),
        ({"rejected": [assistant("yes")]}, "'chosen' and 'rejected' are the same text"),
        ({"tools": [{"name": "x"}]}, "'tools' is not given to the chat template here"),
    ],
)
def test_a_bad_row_is_one_line_with_its_number(tmp_path: Path, bad: Row, words: str) -> None:
    with pytest.raises(UserError, match=words) as error:
        made(tmp_path, [GOOD, GOOD | bad])
    assert "p.jsonl:2: " in str(error.value) and "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        ({"chosen": "yes", "rejected": "no"}, "'prompt' is missing, and 'chosen' and 'rejected' begin differently"),
        ({"question": "2?", "chosen": "It is 2", "rejected": "It is 3"}, "sides do not repeat the 'question': call it"),
        ({"chosen": " a", "rejected": " b"}, "'prompt' is missing"),  # a blank is not a prompt
        ({"chosen": "yes", "rejected": "yes"}, "are the same text"),
        ({"prompt": None, "chosen": "so 1", "rejected": "so 2"}, "'prompt' is null"),
        ({"prompt": "1?", "chosen": "1"}, "'rejected' is missing"),
        ({"chosen": [BLUE], "rejected": [BEFORE[0], BLUE]}, "begin differently"),
    ],
)
def test_sides_without_a_prompt_begin_with_it(tmp_path: Path, row: Row, words: str) -> None:
    with pytest.raises(UserError, match=words):
        made(tmp_path, [row])


def test_held_out_pairs_that_begin_as_trained_ones_do_are_counted(tmp_path, capsys):
    """Of ranked answers some begin alike: the implicit prompts of one question differed, and came into all splits."""
    answers = ["Paris is the capital.", "Paris is it.", "I think Paris.", "No idea."]
    asked = [f"\n\nHuman: Question {n}?\n\nAssistant:" for n in range(12)]
    both = [(q, one, other) for q in asked for one, other in combinations(answers, 2)]
    implicit = [{"chosen": f"{q} {one}", "rejected": f"{q} {other}"} for q, one, other in both]
    explicit = [{"prompt": q, "chosen": f" {one}", "rejected": f" {other}"} for q, one, other in both]
    for given, told in ((implicit, 2), (explicit, 0), (implicit[:1] + implicit[1::6], 0)):
        path = tmp_path / "pairs.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in given))
        env = preferences.make(preferences.Config(source=str(path)), 0, "cpu")
        said = capsys.readouterr().err
        assert said.count(" pairs begin as pairs of the train split do, and may have their questions") == told, said
        trained = {pair.prompt.partition("?")[0] for pair in env.pairs["train"]}
        assert bool(told) == any(pair.prompt.partition("?")[0] in trained for pair in env.pairs["test"])
