"""Byte-level BPE over the `tokenizers` library, in Hugging Face's file format."""

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import tokenizers
from tokenizers import Regex, decoders, models, pre_tokenizers, trainers

from rlkit.api import UserError
from rlkit.language import added
from rlkit.language.added import NAMES, OLDER, SPECIAL, add_listed, without_unknown
from rlkit.language.apart import read_apart, special_tokens, spelled
from rlkit.language.chat import FILE, ChatTemplate, read_template
from rlkit.language.files import VOCABULARY, Fields, Json, read_json
from rlkit.language.rules import check_rules
from rlkit.prompts import Prompt, Turn, data, joined, rendered

END = "<|endoftext|>"
# Words and punctuation with the space before them; each digit is one piece, so that a number has only one spelling.
PIECES = r" ?\p{L}+| ?\p{N}| ?[^\s\p{L}\p{N}]+|\s+"
ASKED, ANSWERED = "what the user asked", "what the assistant answered"  # placeholders in a template
# transformers 5 builds the tokenizers of other classes, as Llama 2's, anew, with other rules than those of the file
READER = {"tokenizer_class": "PreTrainedTokenizerFast"}
WHOLE = {"add_generation_prompt": False}
CLEANS = "clean_up_tokenization_spaces"
SPACED = (" .", " ?", " !", " ,", " ' ", " n't", " 'm", " 's", " 've", " 're")
SPACES = ("▁", "Ġ")  # a space in a token of SentencePiece, and in one of bytes
BEFORE = "\U0010fffd"  # a character that no vocabulary merges with another


class Tokenizer:
    """Text to ids and back. `eos_id` ends encoded texts; generation stops at any of `stop_ids`."""

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        eos_id: int,
        pad_id: int,
        stop_ids: Iterable[int] = (),
        settings: Json | None = None,
        generation: Json | None = None,
        template: ChatTemplate | None = None,
    ):
        core.no_padding()
        core.no_truncation()
        self.core, self.eos_id, self.pad_id = core, eos_id, pad_id
        self.stop_ids = tuple(sorted({eos_id, *stop_ids}))
        self.settings = settings or {  # tokenizer_config.json
            "eos_token": added.text_of(core, eos_id),
            "pad_token": added.text_of(core, pad_id),
            CLEANS: False,
        }
        self.generation = generation or {}  # generation_config.json
        self.template = template

    def __len__(self) -> int:
        return self.core.get_vocab_size()

    def encode(self, texts: Sequence[str], special: bool = False) -> list[list[int]]:
        """special: add the tokenizer's beginning (Llama's BOS), unless the text or a chat template already has it; what
        it adds behind a text is left out.

        A special token in a plain text is encoded as one; in the data of a `Prompt` it is ordinary text.
        """
        try:
            return self._read(texts, special)
        except UserError:
            raise
        except (TypeError, UnicodeEncodeError):
            wrong = next((ascii(x) for x in texts if not isinstance(x, str) or "\\ud" in ascii(x)), "unknown")
            shown = wrong if len(wrong) <= 80 else f"{wrong[:77]}..."
            raise UserError(f"{shown} is not a text: give texts of whole Unicode characters") from None
        except BaseException as error:
            if not failed(error):
                raise
            raise UserError(
                f"the model's tokenizer.json cannot read a text ({told(error)}): take another model"
            ) from None

    def encode_after(self, texts: Sequence[str], before: Sequence[str] = ()) -> list[list[int]]:
        """The ids of texts that follow others in a row, without the space that some tokenizers put before a text.

        before: what each follows. Behind an added token some put that space all the same, as Phi-3's <|assistant|>. A
        text that makes up another token with that one, as 19 with covid, is read alone.
        """
        space = BEFORE if self._puts_space() else ""
        leads = [x or space for x in added.at_end(self.core, before, self.encode)] or [space] * len(texts)
        begun = dict(zip(several := [*dict.fromkeys(leads)], self.encode(several), strict=True))
        whole = self.encode([joined([lead, text]) for lead, text in zip(leads, texts, strict=True)])
        rows = zip(texts, whole, (begun[lead] for lead in leads), strict=True)
        return [self.encode_after([x])[0] if before and row[: len(at)] != at else row[len(at) :] for x, row, at in rows]

    def _puts_space(self) -> bool:
        """Whether it puts a space before a text."""
        return "".join(self.core.encode("a", add_special_tokens=False).tokens).startswith(SPACES)

    def _read(self, texts: Sequence[str], special: bool) -> list[list[int]]:
        rows: list[list[int]] = [[] for _ in texts]
        whole = [rendered(x) for x in texts]  # a chat template wrote its beginning already
        for first in (special, False) if special else (False,):
            mine = [i for i in range(len(texts)) if (special and not whole[i]) == first]
            found = self.core.encode_batch_fast([texts[i] for i in mine], add_special_tokens=first)
            for i, encoding in zip(mine, found, strict=True):
                rows[i] = encoding.ids
        for i, x in enumerate(texts):
            if isinstance(x, Prompt) and spelled(self.core, x):
                rows[i] = read_apart(self.core, x, special and not whole[i])
        if not special:
            return rows
        behind = self._behind()
        return [row if whole[i] else self._once(row[: len(row) - behind], texts[i]) for i, row in enumerate(rows)]

    def _behind(self) -> int:
        """How many tokens the tokenizer adds behind a text: an end token, after which no prompt could go on."""
        added = self.core.encode("a").special_tokens_mask
        return 0 if all(added) else added[::-1].index(0)

    def _once(self, row: list[int], text: str) -> list[int]:
        """Drop the added beginning (Llama's BOS) where the text itself already begins with it."""
        first = self.core.get_added_tokens_decoder().get(row[0]) if len(row) > 1 and row[0] == row[1] else None
        if first is None or not text.startswith(first.content):
            return row
        return row[1:] if self.core.encode("").ids[:1] == row[:1] else row

    def chat(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> list[Prompt]:
        """A prompt for each conversation by the model's own template.

        Raises: UserError where it has none, or one that leaves out a message.
        """
        if self.template is None:
            raise UserError(
                "env.chat=true needs a chat template and the model has none: give one with policy.template=FILE.jinja, "
                "or env.chat=false"
            )
        prompts = self.template.prompts(conversations, self.core, options)
        self.template.check_told(conversations, options)
        return prompts

    @property
    def drops_space(self) -> bool:
        """Whether a decoded text lacks the space at its beginning, as SentencePiece's do."""
        return self._puts_space() and not self.decode(self.encode_after([" a"]))[0].startswith(" ")

    def answer_edges(self) -> tuple[str, str, int, bool, str]:
        """What the chat template writes before an answer, what it writes after it, and the token that ends one.

        Before an answer it may be white space, or empty thoughts as Qwen3's; after it white space, or a mark as
        Cohere's <|END_RESPONSE|>. The token is the first end token that the template writes after an answer. The fourth
        value says whether an answer loses its white space at both ends. The last is all that the template writes after
        an answer where none of that is an end token: base models have such templates, and do not stop at <|im_end|>.
        """
        if self.template is None:
            return "", "", self.eos_id, False, ""
        asked = Turn("user", data(ASKED))
        both = [[asked, Turn("assistant", data(text))] for text in (ANSWERED, f" \n{ANSWERED} \n")]
        (whole, spaced), (prompt,) = (
            self.template.prompts(asking, self.core, options) for asking, options in ((both, WHOLE), ([[asked]], {}))
        )
        before, _, after = whole.rpartition(ANSWERED)
        lead = before[len(prompt) :] if before.startswith(prompt) else ""
        if not lead and before.startswith(opens := prompt.rstrip()):  # Nemotron's <think></think>, asked by <think>\n
            lead = before[len(opens) :].strip()
        ids = self.encode([whole.part(len(whole) - len(after))])[0]
        ends = [x for x in ids if x in self.stop_ids]
        end = ends[0] if ends else self.eos_id
        left, found, _ = after.partition(self.decode([[end]], special=True)[0].strip())
        read, trimmed = self.encode([whole, spaced])  # by the template, or by tokens as Phi-4's
        return lead, left if found else "", end, read == trimmed, "" if ends else after

    def answer_begins(self) -> str:
        """What the chat template writes between a question and its answer, without white space at the ends."""
        if self.template is None:
            return ""
        (asked,) = self.template.prompts([[Turn("user", data(ASKED))]], self.core, {})
        return asked.partition(ASKED)[2].strip()

    def stop_token(self, text: str) -> int | None:
        """The id of a stop string that is a special token: it ends a completion and is not text."""
        number = self.core.token_to_id(text)
        return number if text in special_tokens(self.core) else None

    def stops(self, texts: Sequence[str]) -> tuple[int, ...]:
        """The tokens that end a completion: the model's own, and stop strings that are single tokens."""
        more = (token for text in texts if (token := self.stop_token(text)) is not None)
        return tuple(sorted({*self.stop_ids, *more}))

    def decode(self, rows: list[list[int]], special: bool = False) -> list[str]:
        """The texts of rows of ids; special: keep special tokens."""
        texts = self.core.decode_batch(rows, skip_special_tokens=not special)
        return [*map(cleaned, texts)] if self._cleans else texts

    @property
    def _cleans(self) -> bool:
        """Whether it leaves out spaces before punctuation, as transformers does where the file says so, but for BPE."""
        return bool(self.settings.get(CLEANS)) and not isinstance(self.core.model, models.BPE)

    def save(self, folder: Path) -> None:
        (folder / "tokenizer.json").write_text(self.core.to_str(pretty=True), encoding="utf-8")
        named = {"eos_token": added.text_of(self.core, self.eos_id), **self.settings, **READER}
        (folder / "tokenizer_config.json").write_text(json.dumps(named, indent=2) + "\n", encoding="utf-8")
        for left in (FILE, OLDER, NAMES):  # of another model that was saved here before
            (folder / left).unlink(missing_ok=True)
        if self.template is not None and self.settings.get("chat_template") != self.template.text:
            (folder / FILE).write_text(self.template.text, encoding="utf-8")

    @classmethod
    def load(cls, folder: Path, vocabulary: int, template: str | None = None) -> "Tokenizer":
        """Load `tokenizer.json`; tokenizer_config, generation_config or config say which tokens are special.

        vocabulary: number of tokens of the model; larger ids are refused. template: the name of one of the model's chat
        templates, or a template file; None: the default one.
        """
        settings = added.read_settings(folder)
        special = Fields(settings, str(folder / "tokenizer_config.json"))
        chat = read_template(folder, settings, template)
        if chat is not None:
            added.check_names(special, chat.text)
        core, names, more = _read(folder / "tokenizer.json"), added.named(special), added.unnamed(special)
        needed = [x for name in SPECIAL if (x := special.token(name)) and core.token_to_id(x) is not None]
        add_listed(core, folder, special, [token.content for token in (*names, *more)])
        added.add_special(core, names, more)
        core = without_unknown(core, vocabulary, needed if chat is None else [*needed, chat.text])
        start = cls(core, 0, 0).encode([""], special=True)[0]  # the added tokens may be missing in the vocabulary
        last = max([*core.get_vocab().values(), *start], default=0)
        if last >= vocabulary:
            raise UserError(
                f"{folder / 'tokenizer.json'}: it has token {last}, and config.json a vocabulary of {vocabulary}, 0 to "
                f"{vocabulary - 1}; they are of different models"
            )
        end, stops = _ends(core, folder, special, vocabulary)
        pad = _id(core, special.token("pad_token"))
        generation = read_json(folder / "generation_config.json")
        return cls(core, end, end if pad is None else pad, stops, settings, generation, chat)


def _read(path: Path) -> tokenizers.Tokenizer:
    check_rules(read_json(path, VOCABULARY), path)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except BaseException as error:
        if not failed(error):
            raise
        raise UserError(f"{path}: not a tokenizer file ({told(error)}); save it with the model in one folder") from None


def cleaned(text: str) -> str:
    """The text without spaces before punctuation and in contractions, as transformers writes it."""
    for mark in SPACED:
        text = text.replace(mark, mark.strip())
    return text


def failed(error: BaseException) -> bool:
    """Whether the library failed: it raises bare Exceptions, and where its Rust code panics not even an Exception."""
    return isinstance(error, Exception) or type(error).__name__ == "PanicException"


def told(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]


def _ends(core: tokenizers.Tokenizer, folder: Path, special: Fields, vocabulary: int) -> tuple[int, list[int]]:
    """The end token of texts, and those that end a generation."""
    stops = []
    for file in ("generation_config.json", "config.json"):
        stops += Fields(read_json(folder / file), str(folder / file)).ids("eos_token_id", vocabulary)
    name = special.token("eos_token")
    end = _id(core, name)
    if name and end is None:
        raise UserError(
            f"{special.where}: eos_token is {ascii(name)[:40]}, which tokenizer.json does not have: name a token that "
            "it has, or restore it from where the model came from"
        )
    if end is None and not stops:
        raise UserError(f"{folder}: no end-of-text token; name one as eos_token in tokenizer_config.json")
    return stops[0] if end is None else end, stops


def _id(core: tokenizers.Tokenizer, token: str | None) -> int | None:
    return None if token is None else core.token_to_id(token)


def train_tokenizer(texts: Iterable[str], vocab_size: int) -> Tokenizer:
    """Learn merges from texts: all 256 bytes, `<|endoftext|>`, and merges up to vocab_size (or until none are left)."""
    core = tokenizers.Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(PIECES), behavior="isolated")
    to_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    core.pre_tokenizer = pre_tokenizers.Sequence([split, to_bytes])
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    core.train_from_iterator(texts, trainer)
    end = core.token_to_id(END)
    assert end is not None
    return Tokenizer(core, end, end)
