"""Chat templates: finding a model's template, and rendering conversations with the data marked as data."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import tokenizers

from rlkit.api import Place, UserError
from rlkit.errors import one_line
from rlkit.language.added import by_name
from rlkit.language.apart import Alphabet, control_tokens, marked, unmarked
from rlkit.language.files import Fields, Json, check_file
from rlkit.paths import home
from rlkit.prompts import Prompt, Turn

FILE = "chat_template.jinja"
FOLDER = "additional_chat_templates"
PLACE = Place("file", ending=".jinja")  # of policy.template: any other text is the name of a template of the model
LONGEST = 2**17  # most characters of a template; published ones have fewer than 20,000
TEXT = 2**26  # most characters rendered at a time
PROMPT = 2**22  # most characters of one of them; so many take 2 GB to encode, and contexts hold fewer
SECONDS, ROOM = 10, 2**30  # limits of seconds and bytes for PART conversations
PART = 512
KEPT = 100_000  # rendered texts that are cached
SAME = {"PYTHONHASHSEED": "0"}  # the iteration order of sets is the same in each run
CHILD = "import json, sys; sys.path[:] = json.loads(sys.argv[1]); from rlkit.language.sandbox import main; main()"
REMEDY = "give another one with policy.template=FILE.jinja, or env.chat=false"

_rendered: dict[tuple[str, str], str] = {}  # cache: the arguments of a rendering → the text


@dataclass(frozen=True)
class ChatTemplate:
    """A program that turns a conversation into a prompt; `names` are the special tokens that it may use."""

    text: str
    where: str
    names: tuple[tuple[str, str], ...] = ()

    def has(self, name: str) -> bool:
        """Whether there is a variable of this name."""
        return name == "add_generation_prompt" or re.search(rf"\b{re.escape(name)}\b", self.text) is not None

    def prompts(
        self, conversations: Sequence[Sequence[Turn]], core: tokenizers.Tokenizer, options: Mapping[str, object]
    ) -> list[Prompt]:
        """A prompt for each conversation, up to the beginning of the assistant's answer.

        Special tokens within the data of a turn are ordinary text in the prompt. So are other tokens that the template
        writes, but for <think> and the like in an assistant's turn: there the template handles them, as models mean
        them. options: more template variables.

        Raises: UserError where the template fails, exceeds its limits of time and memory, or has no such variable.
        """
        for name in map(str, options):  # transformers ignores one that is misspelled
            if not self.has(name):
                raise UserError(f"env.chat_options: {self.where} has no variable {one_line(name)!r}: leave it out")
        tokens = control_tokens(core, self.text)
        contents = [turn.content for turns in conversations for turn in turns]
        alphabet = Alphabet.unlike([self.text, *contents], tokens)
        own = {"assistant": set(control_tokens(core))}
        asked = [
            json.dumps([{"role": x.role, "content": marked(x.content, alphabet, own.get(x.role))} for x in turns])
            for turns in conversations
        ]
        texts = self._texts(asked, {**dict(self.names), **options})
        prompts = []
        for text, turns in zip(texts, conversations, strict=True):
            found = unmarked(text, alphabet)
            prompts.append(Prompt(found, found.data, tuple(turns)))
        return prompts

    def check_told(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> None:
        """Refuse a template that leaves out a message: one of a model for pictures may read lists of parts and no text,
        others read no system message. A template may leave out a part, as thoughts, so each message is one word here.
        """
        word = "turn"
        while word in self.text.lower():
            word += "s"
        shapes = list(dict.fromkeys(tuple(turn.role for turn in turns) for turns in conversations))
        asked = [[{"role": role, "content": f"{word}{i}x"} for i, role in enumerate(roles)] for roles in shapes]
        texts = self._texts(list(map(json.dumps, asked)), {**dict(self.names), **options})
        for turn, text in ((turn, text) for turns, text in zip(asked, texts, strict=True) for turn in turns):
            if turn["content"] not in text.lower():
                raise UserError(f"the chat template leaves out a message of the {turn['role']}: {REMEDY}")

    def _texts(self, asked: list[str], options: Mapping[str, object]) -> list[str]:
        names = json.dumps([self.text, options])
        new = [each for each in dict.fromkeys(asked) if (names, each) not in _rendered]
        if len(_rendered) + len(new) > KEPT:
            _rendered.clear()
            new = list(dict.fromkeys(asked))
        for start in range(0, len(new), PART):
            part = new[start : start + PART]
            texts = render(self.text, self.where, [json.loads(each) for each in part], options)
            _rendered.update(zip([(names, each) for each in part], texts, strict=True))
        return [_rendered[names, each] for each in asked]


def render(
    template: str, where: str, conversations: list[Json], options: Mapping[str, object], seconds: int = SECONDS
) -> list[str]:
    """The text of each conversation, rendered in a separate process with limits of time and memory."""
    names = {"add_generation_prompt": True, "tools": None, "documents": None, **options}
    asked = {"template": template, "conversations": conversations, "names": names}
    given = json.dumps({**asked, "seconds": seconds, "room": ROOM, "longest": TEXT, "prompt": PROMPT})
    command = [sys.executable, "-P", "-s", "-c", CHILD, json.dumps(sys.path)]
    system = {key: x for key, x in os.environ.items() if not key.startswith("PYTHON")} | SAME
    try:
        done = subprocess.run(
            command, input=given, capture_output=True, text=True, timeout=6 * seconds, check=False, env=system
        )
    except subprocess.TimeoutExpired:
        raise UserError(f"{where}: it takes longer than {6 * seconds} seconds: {REMEDY}") from None
    except OSError as error:
        raise UserError(f"{where}: no process can be started for it ({error.strerror}): end others first") from None
    try:
        answer = json.loads(done.stdout)
        told = answer.get("error")
    except ValueError:  # a limit stopped the process, or it crashed
        answer, told = {}, f"its process ended with code {done.returncode}, at most {seconds} seconds are allowed"
    if told is not None:
        raise UserError(f"{where}: the chat template fails ({' '.join(told.split())}): {REMEDY}")
    texts: list[str] = answer["texts"]
    return texts


def read_template(folder: Path, settings: Json, wanted: str | None) -> ChatTemplate | None:
    """The chat template of a model folder: the default one, or the one given by its name or as a file.

    Only text that ends in .jinja or contains a folder is a file, so a name means the same wherever a run resumes.

    Raises: UserError where there is no such template.
    """
    config = Fields(settings, str(folder / "tokenizer_config.json"))
    found = {name: (text, config.where) for name, text in _listed(config).items()}
    files = {"default": folder / FILE} if (folder / FILE).exists() else {}
    files |= {path.stem: path for path in sorted((folder / FOLDER).glob("*.jinja"))}
    found |= {name: (_text(path), str(path)) for name, path in files.items()}
    name = wanted or "default"
    if wanted and not PLACE.word(wanted):
        found.pop(wanted, None)
        found |= {wanted: (_text(home(wanted)), wanted)} if os.path.isfile(home(wanted)) else {}
    if name not in found:
        if wanted is None:
            return None
        there = f"the model has {', '.join(found)}" if found else "the model has none"
        raise UserError(f"policy.template={wanted!r}: no such chat template; {there}, or give a .jinja file")
    text, where = found[name]
    if len(text) > LONGEST:
        raise UserError(f"{where}: a chat template of {len(text):,} characters; at most {LONGEST:,} are allowed")
    return ChatTemplate(text, where, tuple(by_name(config).items()))


def _listed(config: Fields) -> dict[str, str]:
    """The templates of tokenizer_config.json by name: one text, or a list of named ones."""
    given = config.content.get("chat_template")
    listed = given if isinstance(given, list) else [] if given is None else [{"name": "default", "template": given}]
    found = {}
    for entry in listed:
        name, text = (entry.get(key) for key in ("name", "template")) if isinstance(entry, dict) else (None, None)
        if not isinstance(name, str) or not isinstance(text, str):
            raise config.wrong("chat_template", "a text or a list of texts with names")
        found[name] = text
    return found


def _text(path: Path) -> str:
    check_file(path, 4 * LONGEST)
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as UTF-8 text ({error}): give another chat template") from None
