"""The reward model: a language model's backbone with a scalar head that reads whole texts."""

import os
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import torch
import torch.nn.functional as F
from tensordict import TensorDict
from torch import Tensor

from rlkit import ranks
from rlkit.api import Tokens
from rlkit.buffers import in_parts, last_step
from rlkit.disk import is_file
from rlkit.errors import UserError
from rlkit.language import folders
from rlkit.language.adapters import write_json
from rlkit.language.backbone import THOUGHTS, Backbone, opened
from rlkit.language.files import read_json
from rlkit.language.model import LanguageModel
from rlkit.language.sharding import share_head
from rlkit.language.tokenizer import Tokenizer
from rlkit.paths import home
from rlkit.prompts import Prompt, Turn, cut, data, rendered
from rlkit.terminal import warn

OPTIONS = "chat_options.json"  # variables of the chat template with which the model was trained
PLAIN = "chat.json"  # says that a model with a chat template was trained without it


class RewardModel(Backbone):
    """r(prompt, completion) = w·h + b, with h the hidden state at the last token, the end token (arXiv:2203.02155).

    It starts at r = 0. Its `writer`, a frozen language model, writes the texts that are sampled, if it has one.
    """

    head_file = folders.REWARD

    def __init__(self, backbone: Backbone, writer: LanguageModel | None = None) -> None:
        super().__init__(backbone.decoder, backbone.tokenizer)
        self.generator, self.name, self.save_dtype = backbone.generator, backbone.name, backbone.save_dtype
        self.micro_steps, self.value_head = backbone.micro_steps, self.make_head()
        self.writer = writer
        self.options: Mapping[str, object] = {}  # variables of the chat template with which it is asked
        self.in_turns = False  # whether it was asked by the chat template
        self.rows, self.lora = backbone.rows, backbone.lora

    def idle(self, key: str) -> str:
        if self.writer is None and key in ("temperature", "rows"):
            return "a reward model of stored pairs, for which nothing is written"
        return super().idle(key)

    @classmethod
    def on(cls, start: LanguageModel, writes: bool) -> "RewardModel":
        """A reward model on the backbone of `start`; with `writes`, a frozen copy of `start` writes the attempts."""
        writer = start.reference() if writes else None
        if writer is not None:
            writer.generator = start.generator
            writer.ready_before_parts()
        model = cls(start, writer)
        model.source = start.source
        if not start.sharded:
            return model.to(start.decoder.head.device)
        model.value_head.to(start.decoder.head.device)
        if model.lora is None:
            share_head(model.value_head)
        return model

    @classmethod
    def load(cls, folder: str | Path) -> "RewardModel":
        """Load from a folder of `save`."""
        here = os.path.join(os.curdir, folder)  # a folder called tiny is not the model of that name
        model = cls(LanguageModel.load(here, dtype="float32"))
        folders.read_head(model.value_head, Path(folder) / folders.REWARD)
        model.name, template = str(folder), model.tokenizer.template
        given = read_json(Path(folder) / OPTIONS)  # rlkit 0.5 took names that the template does not have
        model.options = {name: x for name, x in given.items() if template is not None and template.has(name)}
        model.in_turns = model.chats and not read_json(Path(folder) / PLAIN)  # which older folders do not have
        return model

    def save(self, folder: str | Path, dtype: torch.dtype | None = None) -> None:
        """Save a Hugging Face-format folder; the head and the options of the chat template go into separate files."""
        self.write(Path(folder), self.value_head, dtype)
        if not ranks.first():
            return
        plain = {"chat": False} if self.chats and not self.in_turns else {}
        for name, content in ((OPTIONS, dict(self.options)), (PLAIN, plain)):
            (Path(folder) / name).unlink(missing_ok=True)  # of an older model
            if content:
                write_json(Path(folder) / name, content)

    def chat(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> list[Prompt]:
        """A prompt for each conversation; the options are kept, so that the saved model is asked in the same way."""
        self.options = {key: value for key, value in options.items() if key != "add_generation_prompt"}
        self.in_turns = True
        return super().chat(conversations, options)

    def score(self, batch: TensorDict) -> Tensor:
        """r of each row [B] of observation, action and mask [B, T], with gradient."""
        text = torch.cat([batch["observation"][:, :1], batch["action"]], 1)  # the last action is read as well
        last, column = last_step(batch["mask"]), torch.arange(text.shape[1], device=text.device)
        hidden = self.read(text, F.pad(batch["mask"], (0, 1)), last + 1, column == last[:, None])
        reward: Tensor = self.value_head(hidden.to(self.value_head.weight.dtype))
        return reward[:, 0]

    def encode(self, prompts: Sequence[str], completions: Sequence[str]) -> TensorDict:
        """See `Backbone.encode`. What a policy wrote (`undropped`) and the same text of a file are the same tokens."""
        drops = self.tokenizer.drops_space
        both = zip(prompts, completions, strict=True)
        return super().encode(prompts, [as_written(prompt, text, drops) for prompt, text in both])

    def fitted(self, prompts: list[list[int]], written: list[list[int]]) -> list[list[int]]:
        """The completions without what does not fit into the context: each is read up to there, and ends with its end.

        A policy's text may have more tokens here than the policy wrote: it is encoded again, perhaps by another
        tokenizer. So no check before a run can exclude that it is too long.
        """
        room = [self.decoder.context - len(prompt) for prompt in prompts]
        if min(room) > 0 and any(len(row) > most for row, most in zip(written, room, strict=True)):
            tell_cut(self.name, self.decoder.context)
            written = [
                row if len(row) <= most else [*row[: most - 1], row[-1]]
                for row, most in zip(written, room, strict=True)
            ]
        return super().fitted(prompts, written)

    @torch.no_grad()
    def judge(self, prompts: Sequence[str], completions: Sequence[str]) -> Tensor:
        """r of each text [N], in micro-batches; the end token is appended to each text.

        A text that is there several times is read once: in another micro-batch its score would be rounded differently,
        and equal attempts would seem to differ.
        """
        texts, place = distinct(self.encode(prompts, completions))
        r = in_parts(lambda part: {"r": self.score(part)[:, None]}, texts, self.micro_steps)["r"][:, 0]
        return r[place]

    def generate(
        self,
        prompts: Sequence[str],
        repeats: int = 1,
        max_tokens: int = 64,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        """Completions of the writer, encoded again: so training reads a text as the same tokens as `judge`."""
        if self.writer is None:
            raise UserError("a reward model judges texts and writes none; use env=preferences, or env=gsm8k")
        written = self.writer.generate(prompts, repeats, max_tokens, greedy, forbid_first, generator, stop)
        repeated = [prompt for prompt in prompts for _ in range(repeats)]
        texts = zip(repeated, self.decode(written), strict=True)
        drops = drops_space(self.writer.tokenizer)
        completions = [begun(prompt, undropped(cut(text, stop), drops)) for prompt, text in texts]
        rows: TensorDict = self.encode(repeated, completions).unflatten(0, (len(prompts), repeats))
        return rows

    def check(self, prompts: Sequence[str], after: int | Sequence[str]) -> None:
        super().check(prompts, after + 1 if isinstance(after, int) else after)  # the end token is appended


def distinct(texts: TensorDict) -> tuple[TensorDict, Tensor]:
    """The different rows of a batch of `encode` in their order, and for each row its place among them [N]."""
    rows = torch.cat([texts["observation"], texts["action"], texts["mask"].long()], 1).tolist()
    places: dict[tuple[int, ...], int] = {}
    place = [places.setdefault(tuple(row), len(places)) for row in rows]
    first = {at: row for row, at in reversed([*enumerate(place)])}
    kept = torch.tensor([first[at] for at in range(len(first))], device=texts["mask"].device)
    return texts[kept], torch.tensor(place, device=texts["mask"].device)


def as_written(prompt: str, text: str, drops_space: bool) -> Prompt:
    """A completion with its special tokens as ordinary text: a policy spelled them.

    drops_space: a policy's text lacks its first space, so that only the prompt tells whether there was one. A text that
    begins with several is indented, and stays as it is.
    """
    if drops_space and not text.startswith("  ") and not rendered(prompt) and not rendered(text):
        words = text.lstrip(" ")
        text = words if not words or prompt[-1:].isspace() or words[0].isspace() else f" {words}"
    return text if isinstance(text, Prompt) else data(text)


def begun(prompt: str, text: str) -> str:
    """What a policy wrote, with the tag that its prompt opened its thoughts with: it may have been cut within them."""
    return f"{''.join(opened(prompt, THOUGHTS))}{text}" if rendered(prompt) else text


def drops_space(tokens: Tokens) -> bool:
    return isinstance(tokens, Tokenizer) and tokens.drops_space


def undropped(text: str, drops_space: bool) -> str:
    """What a policy wrote, with the space that its decoder left out of an indented text; see `as_written`."""
    return f" {text}" if drops_space and text.startswith(" ") else text


@cache
def tell_cut(name: str, context: int) -> None:
    """Say once that a text is too long."""
    warn(f"{name}: the reward model reads {context} tokens, and a longer text is scored by its beginning")


@cache
def tell_plain(name: str) -> None:
    """Say once that a model of conversations is given plain prompts."""
    warn(
        f"{name}: this reward model was trained on conversations, and the policy is asked in plain text, which it may "
        "score badly: ask in chat turns (env.chat=true, policy.template=FILE.jinja), or train one on plain prompts"
    )


class LearnedReward:
    """A reward model as a reward function: no gradient, micro-batches, the same score for the same text."""

    __name__ = "model"

    def __init__(self, folder: str | Path) -> None:
        self.model = RewardModel.load(folder).requires_grad_(False)
        self.drops = False  # whether the texts that it reads lack a first space

    def read_texts_of(self, tokens: Tokens) -> None:
        self.drops = drops_space(tokens)

    def __call__(self, prompts: list[str], completions: list[str], **columns: object) -> list[float | None]:
        both = zip(prompts, completions, strict=True)
        whole = [begun(prompt, undropped(text, self.drops)) for prompt, text in both]
        return [*self.model.judge(self._as_its_own(prompts), whole).tolist()]

    def _as_its_own(self, prompts: Sequence[str]) -> Sequence[str]:
        """Conversations rendered by this model's chat template: the policy's may differ."""
        turns = [prompt.turns if isinstance(prompt, Prompt) else () for prompt in prompts]
        return self.model.chat(turns, self.model.options) if all(turns) else prompts

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move to the policy's device, and refuse prompts that are too long for this model."""
        if self.model.in_turns and not all(map(rendered, prompts)):
            tell_plain(self.model.name)
        if not self.model.in_turns and all(map(rendered, prompts)):
            raise UserError(
                f"{self.model.name}: this reward model was trained on plain prompts, and the policy is asked in chat "
                "turns: give env.chat=false, or a reward model of conversations"
            )
        try:
            self.model.check(self._as_its_own(prompts), max_tokens)
        except UserError as error:  # which would seem to be about the policy
            raise UserError(
                f"{self.model.name}: this reward model, with the chat template and the context of its training, cannot "
                f"read the prompts: {error}"
            ) from None
        self.model.to(device)


def learned_reward(place: str) -> LearnedReward:
    """The reward in `RUN_FOLDER` of algo=reward_model, or in its folder model/."""
    given, here = f"env.reward='model:{place}'", home(place)
    train = "train one: python -m rlkit.run algo=reward_model env=preferences"
    if not place or not os.path.isdir(here):  # False where it cannot be a path, such as a very long text
        raise UserError(f"{given}: there is no such folder; give the run folder of algo=reward_model, or {train}")
    folder = here / "model" if os.path.isdir(here / "model") else here
    if not is_file(folder / "config.json"):
        raise UserError(f"{given}: {here} holds no model (a run writes model/ when it ends); {train}")
    if not is_file(folder / folders.REWARD):
        critic = " (a critic's value head is not a reward)" if is_file(folder / folders.VALUE) else ""
        raise UserError(f"{given}: {folder} has no {folders.REWARD}, so it is not a reward model{critic}; {train}")
    return LearnedReward(folder)
