"""A text policy without a network, for tests."""

import torch
from tensordict import TensorDict


class Parrot:
    """Answers every prompt with `reply(prompt, attempt)`; a token is a character, 0 ends and pads."""

    def __init__(self, reply=lambda prompt, attempt: "#### 4"):
        self.reply, self.calls = reply, []

    def encode(self, prompts, completions):
        texts = list(zip(prompts, completions, strict=True))
        width = max(len(p) + len(c) for p, c in texts)
        batch = TensorDict({}, batch_size=[len(texts)])
        ids = torch.zeros(len(texts), width + 1, dtype=torch.long)
        batch["mask"] = torch.zeros(len(texts), width, dtype=torch.bool)
        for row, (p, c) in enumerate(texts):
            ids[row, : len(p) + len(c)] = torch.tensor([ord(letter) for letter in p + c])
            batch["mask"][row, len(p) - 1 : len(p) + len(c)] = True  # the end token is an action too
        batch["observation"], batch["action"] = ids[:, :-1], ids[:, 1:]
        return batch

    def generate(self, prompts, repeats=1, max_tokens=64, greedy=False, forbid_first=(), generator=None):
        self.calls.append(
            {"max_tokens": max_tokens, "forbid_first": forbid_first, "first": torch.rand(1, generator=generator)}
        )
        replies = [self.reply(p, attempt) for p in prompts for attempt in range(repeats)]
        batch = self.encode([p for p in prompts for _ in range(repeats)], replies)
        batch["log_prob"] = -1.0 * batch["mask"]
        return batch.view(len(prompts), repeats)

    def decode(self, batch):
        rows = zip(batch["action"].flatten(0, -2), batch["mask"].flatten(0, -2), strict=True)
        return ["".join(chr(i) for i in action[mask].tolist() if i) for action, mask in rows]

    def record(self, batch):
        return {"value": batch["mask"] * 0.5}

    def evaluate(self, batch):  # the longer a completion, the less likely
        return {"log_prob": -1.0 * batch["mask"]}
