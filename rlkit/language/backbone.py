"""The common base of language models and reward models: a decoder with its tokenizer."""

import heapq
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import ranks, shards
from rlkit.buffers import last_step
from rlkit.errors import UserError
from rlkit.forecast import Footprint, Work
from rlkit.language import folders
from rlkit.language.adapters import Lora
from rlkit.language.causal import Causal
from rlkit.language.decoder import Decoder
from rlkit.language.footprint import footprint
from rlkit.language.precision import wide
from rlkit.language.source import Sourced
from rlkit.language.tokenizer import Tokenizer
from rlkit.policies.base import PolicyModule
from rlkit.prompts import Prompt, Turn, joined, rendered
from rlkit.seeding import generator as named_generator
from rlkit.terminal import warn

THOUGHTS = r"think\w*|thought\w*|reason\w*"  # names of tags around thoughts


class Backbone(Sourced, PolicyModule):
    """A network and its tokenizer; subclasses define the outputs computed from hidden states. Rows are never split."""

    memoryless = False  # each token depends on the tokens before it
    micro_steps: int | None = 4096  # most tokens in one pass of training; a group's prompt counts once
    rows: int = 256  # most texts that are written at the same time
    save_dtype: torch.dtype = torch.float32
    head_file: str  # name of the file of the scalar head

    def __init__(self, decoder: Causal, tokenizer: Tokenizer, seed: int = 0) -> None:
        super().__init__(named_generator(seed, "generate"))
        self.decoder, self.tokenizer = decoder, tokenizer
        self.dtype = decoder.dtype
        self.name = "language model"
        self.lora: Lora | None = None  # set when adapters are added
        self.stored_by_source()

    @property
    def sharded(self) -> bool:
        """Whether ranks hold parts of the network."""
        return shards.is_shard(self.decoder.head)

    def idle(self, key: str) -> str:
        if key == "trainable" and self.lora is not None:
            return "adapters, which learn in place of weights (policy.lora_targets says in which layers)"
        if key == "base_dtype" and self.lora is None:
            return "no adapters: weights that are trained are kept in float32"
        if key == "shard" and ranks.size() == 1:
            return "one process (torchrun --nproc-per-node N starts several)"
        return ""

    def make_head(self) -> nn.Linear:
        """A scalar head on the hidden states, initialized to 0."""
        head = nn.Linear(self.decoder.width, 1, dtype=wide(self.decoder.head.dtype))
        nn.init.zeros_(head.weight)
        nn.init.zeros_(head.bias)
        return head

    def write(self, folder: Path, head: nn.Linear | None, dtype: torch.dtype | None) -> None:
        """Write a folder in Hugging Face's format; the head gets a separate file. Heads of older models there go."""
        folders.write(folder, self.decoder, self.tokenizer, dtype or self.save_dtype)
        for name in (folders.VALUE, folders.REWARD) if ranks.first() else ():
            (folder / name).unlink(missing_ok=True)
        if head is not None:
            weights = {name: shards.whole(p.detach()) for name, p in head.named_parameters()}
            if ranks.first():
                folders.save(folder / self.head_file, weights)

    def encode(self, prompts: Sequence[str], completions: Sequence[str]) -> TensorDict:
        """Encode given texts into the layout of `generate`, [B]; the end token is appended.

        A completion from a chat template ends with its first end token, where generation would stop. So does a plain
        answer to a conversation: a text is the same tokens, whether the template wrote the answer or a policy.
        """
        ids = self.prompt_ids(prompts)
        written = self.completion_ids(completions, prompts)
        written = self.fitted(ids, written)
        length = torch.tensor([len(row) for row in written])
        width = int(length.max())
        tokens = torch.tensor([row + [0] * (width - len(row)) for row in written])
        out = layout(ids, 1, tokens, length, self.tokenizer.pad_id)
        return TensorDict(out, batch_size=len(ids)).to(self.decoder.head.device)

    def fitted(self, prompts: list[list[int]], written: list[list[int]]) -> list[list[int]]:
        """The completions, if all of them fit into the context behind their prompts; else raises UserError."""
        longest, context = max(len(p) + len(c) for p, c in zip(prompts, written, strict=True)), self.decoder.context
        if longest > context:
            raise UserError(f"a text has {longest} tokens, the model's context is {context}: drop or shorten such rows")
        return written

    def decode(self, rollout: TensorDict) -> list[str]:
        """The completions as texts in row-major order, without special tokens."""
        mask = rollout["mask"].flatten(0, -2).cpu()
        tokens = rollout["action"].flatten(0, -2).cpu()[mask].split(mask.sum(-1).tolist())
        return self.tokenizer.decode([row.tolist() for row in tokens])

    def transcript(self, rollout: TensorDict, special: bool = False) -> list[str]:
        """The text of each row from the first written token to the last, including replies.

        special: keep special tokens, except the end token at the end.
        """
        mask, actions = rollout["mask"].flatten(0, -2), rollout["action"].flatten(0, -2)
        first, last = mask.int().argmax(-1).tolist(), last_step(mask).tolist()
        rows = [row[start:end] for row, start, end in zip(actions.tolist(), first, last, strict=True)]
        if special:
            rows = [row[:-1] if row and row[-1] in self.tokenizer.stop_ids else row for row in rows]
        return self.tokenizer.decode(rows, special)

    @property
    def chats(self) -> bool:
        """Whether the model has a chat template."""
        return self.tokenizer.template is not None

    def chat(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> list[Prompt]:
        """A prompt for each conversation, by the model's own chat template."""
        return self.tokenizer.chat(conversations, options)

    def prompt_ids(self, prompts: Sequence[str]) -> list[list[int]]:
        ids = self.tokenizer.encode(list(prompts), special=True)
        if not ids or not all(ids):
            raise UserError("a prompt is empty: every prompt needs at least one token")
        return ids

    def completion_ids(self, completions: Sequence[str], prompts: Sequence[str] = ()) -> list[list[int]]:
        """The tokens of each completion of these prompts, including the end token; without prompts, of plain texts."""
        asked = [*prompts] or [""] * len(completions)
        chats = [rendered(x) for x in asked]
        edges = self.tokenizer.answer_edges() if any(chats) else ("", "", 0, False, "")
        before, after, end, trims, behind = edges
        texts = [
            framed(unsaid(before, prompt, x), unopened(prompt, trimmed(x) if trims else x), after)
            if chat and not rendered(x)
            else without(x, behind)
            for x, prompt, chat in zip(completions, asked, chats, strict=True)
        ]
        ends = [end if chat else self.tokenizer.eos_id for chat in chats]
        ids = self.tokenizer.encode_after(texts, prompts)
        return [self._ended(*each) for each in zip(ids, completions, ends, strict=True)]

    def _ended(self, ids: list[int], text: str, end: int) -> list[int]:
        whole = rendered(text)
        own = next((i for i, token in enumerate(ids, 1) if token in self.tokenizer.stop_ids), 0) if whole else 0
        return ids[:own] if own else [*ids, self.tokenizer.eos_id if whole else end]

    def check(self, prompts: Sequence[str], after: int | Sequence[str]) -> None:
        """Refuse prompts that do not fit into the context with `after` more tokens, or with their completions."""
        tell_rendered(prompts, self.tokenizer.answer_begins())
        context = self.decoder.context
        rest = [after] * len(prompts) if isinstance(after, int) else [len(text.encode()) + 1 for text in after]
        # A token is a byte at least, so few texts have to be encoded; 8 for what the tokenizer puts before a prompt.
        chats = [prompt for prompt in prompts if isinstance(prompt, Prompt) and rendered(prompt)]
        before = self.tokenizer.answer_edges()[0] if chats else ""
        margin = 8 + max((len(unsaid(before, prompt, "")) for prompt in chats), default=0)
        long = [i for i, prompt in enumerate(prompts) if len(prompt.encode()) + margin + rest[i] > context]
        if not long:
            return
        sizes = [len(ids) for ids in self.prompt_ids([prompts[i] for i in long])]
        if isinstance(after, int):
            more, advice = [after] * len(long), "lower env.max_tokens, drop or shorten the prompt"
        else:
            rows = self.completion_ids([after[i] for i in long], [prompts[i] for i in long])
            more = [len(ids) for ids in rows]
            advice = "drop or shorten it"
        size, extra, at = max(zip(sizes, more, long, strict=True), key=lambda row: row[0] + row[1])
        if size + extra > context:
            start = " ".join(prompts[at].split())[:40]
            raise UserError(
                f"a prompt of {size} tokens ('{start} ...') and {extra} more exceed the model's context of {context}: "
                f"{advice}, or take a model with a longer context"
            )

    def longest(self, texts: Sequence[str]) -> int:
        """The number of tokens of the longest text, as a prompt. Only the texts with the most bytes are encoded."""
        return max(map(len, self.prompt_ids(heapq.nlargest(16, texts, key=lambda text: len(text.encode())))))

    def footprint(self, learned: Work, written: Sequence[Work]) -> Footprint | None:
        """The peak memory of learning and writing; None where the network is foreign or sharded."""
        if not isinstance(self.decoder, Decoder) or self.sharded:
            return None
        trained = sum(p.numel() for p in self.parameters() if p.requires_grad)
        micro_steps = None if learned.whole else self.micro_steps
        return footprint(self.decoder, trained, self.rows, micro_steps, learned, written)

    def hidden(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        """Hidden states [N, d] of the masked positions of [B, T], and their indices in the flattened batch."""
        mask, text = batch["mask"], batch["observation"]
        return self.read(text, mask, last_step(mask), mask), mask.flatten().nonzero()[:, 0]

    def read(self, text: Tensor, mask: Tensor, stop: Tensor, wanted: Tensor) -> Tensor:
        """Hidden states [N, d] of the wanted tokens [B, T], in rows that end after `stop` [B] tokens."""
        return self.decoder.read(text, mask, stop, wanted, self.micro_steps)


def tell_rendered(prompts: Sequence[str], begins: str) -> None:
    """Warn in one line if texts of the user were written by the chat template, such as those of completions.jsonl."""
    asked = {given(prompt) for prompt in prompts}
    if begins and (count := sum(begins in text for text in asked)):
        tell_once(
            f"{count:,} of {len(asked):,} prompts were written by the chat template (they have {begins!r}), and are "
            "read as plain text: give the messages, [{'role': 'user', 'content': ...}]"
        )


def given(prompt: str) -> str:
    """What the user wrote of a prompt; the rest is of a template."""
    if not isinstance(prompt, Prompt):
        return prompt
    return str(prompt.turns[-1].content if prompt.turns else "".join(prompt[start:end] for start, end in prompt.data))


@cache
def tell_once(line: str) -> None:
    """Warn, unless the same was said before: sft checks its prompts twice."""
    warn(line)


def trimmed(text: str) -> str:
    """The text without white space at its ends."""
    return text.trimmed() if isinstance(text, Prompt) else text.strip()


def without(text: str, behind: str) -> str:
    """The text without what a chat template wrote behind it."""
    return text.part(0, len(text) - len(behind)) if isinstance(text, Prompt) and text.endswith(behind) else text


def unsaid(before: str, prompt: str, text: str) -> str:
    """What stands between a prompt and its answer: what a template writes there, unless either has such thoughts.

    Where the prompt opens thoughts and the answer has none, their end: an answer would be learned as an open thought.
    """
    tags = re.findall(r"<[^<>\s]+>", before) or before.split()
    tag, _ = opened(prompt, THOUGHTS)
    if tags and (prompt.rstrip().endswith(tags[-1]) or any(each in text for each in [*tags, tag] if each)):
        before = ""
    end = tag.replace("<", "</")
    return before if not tag or tag in text or end in before + text else f"\n{end}\n\n"


def opened(prompt: str, name: str = r"\w+") -> tuple[str, str]:
    """The tag that a prompt ends with, as <think>, and the white space behind it; else two empty texts."""
    found = re.search(rf"(<(?:{name})>)(\s*)$", prompt)
    return (found[1], found[2]) if found else ("", "")


def unopened(prompt: str, text: str) -> str:
    """The text without the tag that opens its thoughts, where a prompt ends with it: the template writes it once."""
    tag, space = opened(prompt)
    words = text.lstrip()
    if not tag or not words.startswith(tag):
        return text
    rest = words.removeprefix(tag)
    rest = rest.removeprefix(space) if rest.startswith(space) else rest.lstrip()
    return text.part(len(text) - len(rest)) if isinstance(text, Prompt) else rest


def framed(before: str, text: str, after: str) -> Prompt:
    """The text between what a template writes; white space only on a side where the text has none of its own."""
    before = "" if text[:1].isspace() and before.isspace() else before
    after = "" if text[-1:].isspace() and after.isspace() else after
    return joined([before, text, after])


def scatter(values: Tensor, where: Tensor, shape: torch.Size) -> Tensor:
    return values.new_zeros(shape.numel()).index_put((where,), values).view(shape)


def within(tokens: Tensor, length: Tensor) -> Tensor:
    return torch.arange(tokens.shape[1], device=length.device) < length[:, None]


def layout(
    prompts: Sequence[Sequence[int]], repeats: int, tokens: Tensor, length: Tensor, pad: int
) -> dict[str, Tensor]:
    """Right-padded observation, action and mask [R, T] of completions `tokens` [R, T'], each of `length` [R] tokens."""
    sizes = torch.tensor([len(p) for p in prompts], device=tokens.device)
    width = int(sizes.max())
    padded = torch.tensor([[*p, *[pad] * (width - len(p))] for p in prompts], device=tokens.device)
    start = sizes.repeat_interleave(repeats)
    text = torch.full((len(tokens), width + tokens.shape[1]), pad, device=tokens.device)
    text[:, :width] = padded.repeat_interleave(repeats, 0)
    written = tokens.where(within(tokens, length), pad)
    text.scatter_(1, start[:, None] + torch.arange(tokens.shape[1], device=tokens.device), written)
    text = text[:, : int((start + length).max())]
    column = torch.arange(1, text.shape[1], device=tokens.device)
    mask = (column >= start[:, None]) & (column < (start + length)[:, None])
    return {"observation": text[:, :-1].contiguous(), "action": text[:, 1:].contiguous(), "mask": mask}
