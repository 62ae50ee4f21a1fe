"""The reward model: a language model's backbone with a scalar head that reads whole texts."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import UserError
from rlkit.buffers import in_parts, last_step
from rlkit.language import checkpoint
from rlkit.language.model import LanguageModel, Model
from rlkit.policies import frozen_copy


class RewardModel(LanguageModel):
    """r(prompt, completion) = w·h + b, with h the hidden state at the last token, the end token (arXiv:2203.02155).

    It starts at r = 0. What it is asked to write, its `writer` writes: the frozen model that the backbone started from.
    """

    head_file = checkpoint.REWARD
    writer: LanguageModel | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.writer = None

    @classmethod
    def build(
        cls, config: Model, value_head: bool = True, seed: int = 0, device: str | torch.device = "cpu"
    ) -> "RewardModel":
        model = super().build(config, True, seed, device)
        assert isinstance(model, RewardModel)
        return model

    def with_writer(self) -> "RewardModel":
        """Let the model as it is now write the attempts; its draws come from this model's generator."""
        writer = LanguageModel(frozen_copy(self.decoder), self.tokenizer, self.temperature, rows=self.rows)
        writer.generator, self.writer = self.generator, writer
        return self

    def score(self, batch: TensorDict) -> Tensor:
        """With gradient: r of each row [B] of observation, action and mask [B, T]."""
        assert self.value_head is not None
        text = torch.cat([batch["observation"][:, :1], batch["action"]], 1)  # the last action is read, too
        row = torch.arange(len(text), device=text.device)
        hidden: Tensor = self.decoder(text)
        return self.value_head(hidden[row, last_step(batch["mask"])].float())[:, 0]

    @torch.no_grad()
    def judge(self, prompts: Sequence[str], completions: Sequence[str]) -> Tensor:
        """r of each text [N], in micro-batches; the end token is appended to each."""
        texts = self.encode(prompts, completions)
        return in_parts(lambda part: {"r": self.score(part)[:, None]}, texts, self.micro_steps)["r"][:, 0]

    def generate(self, prompts: Sequence[str], repeats: int = 1, *args: Any, **options: Any) -> TensorDict:
        """What the writer writes, encoded again: so training reads the same tokens of a text as `judge` does."""
        if self.writer is None:
            raise UserError("a reward model judges texts and writes none; use env=preferences, or env=gsm8k")
        written = self.decode(self.writer.generate(prompts, repeats, *args, **options))
        repeated = [prompt for prompt in prompts for _ in range(repeats)]
        return self.encode(repeated, written).unflatten(0, (len(prompts), repeats))

    def record(self, rollout: TensorDict) -> dict[str, Tensor]:
        return {}

    def check(self, prompts: Sequence[str], after: int | Sequence[str]) -> None:
        super().check(prompts, after + 1 if isinstance(after, int) else after)  # the end token is appended


class LearnedReward:
    """A reward model as a reward function: no gradient, in micro-batches, the same text always the same score."""

    __name__ = "model"

    def __init__(self, folder: str | Path) -> None:
        model = RewardModel.load(folder, value_head=True, dtype="float32").requires_grad_(False)
        assert isinstance(model, RewardModel)
        self.model = model

    def __call__(self, prompts: list[str], completions: list[str], **columns: Any) -> list[float | None]:
        return [*self.model.judge(prompts, completions).tolist()]

    def prepare(self, prompts: Sequence[str], max_tokens: int, device: torch.device) -> None:
        """Move to where the policy is, and refuse prompts that are too long for this model."""
        self.model.check(prompts, max_tokens)
        self.model.to(device)


def learned_reward(place: str) -> LearnedReward:
    """`RUN_FOLDER` of algo=reward_model, or its model/."""
    given, here = f"env.reward='model:{place}'", Path(place).expanduser()
    train = "train one: python -m rlkit.run algo=reward_model env=preferences"
    if not place or not here.is_dir():
        raise UserError(f"{given}: there is no such folder; give the run folder of algo=reward_model, or {train}")
    folder = here / "model" if (here / "model").is_dir() else here
    if not (folder / "config.json").is_file():
        raise UserError(f"{given}: {here} holds no model (a run writes model/ when it ends); {train}")
    if not (folder / checkpoint.REWARD).is_file():
        critic = " (a critic's value head is no reward)" if (folder / checkpoint.VALUE).is_file() else ""
        raise UserError(f"{given}: {folder} has no {checkpoint.REWARD}, so it is no reward model{critic}; {train}")
    return LearnedReward(folder)
