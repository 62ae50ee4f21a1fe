"""A text policy without a network, for tests."""

import torch
from tensordict import TensorDict

from rlkit import seeding
from rlkit.policies import PolicyModule


class Letters:
    """A tokenizer whose tokens are characters; 0 ends and pads."""

    eos_id, stop_ids = 0, (0,)

    def stops(self, texts):
        return self.stop_ids

    def decode(self, rows):
        return ["".join(chr(i) for i in row if i) for row in rows]


class Parrot(PolicyModule):
    """Answers every prompt with `reply(prompt, attempt)`; a token is a character, 0 ends and pads."""

    memoryless = False

    def __init__(self, reply=lambda prompt, attempt: "#### 4"):
        super().__init__(seeding.generator(0, "parrot"))
        self.reply, self.calls, self.tokenizer = reply, [], Letters()

    def check(self, prompts, after):
        """Every text fits."""

    def save(self, folder):
        raise NotImplementedError("a parrot has no weights")

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

    def generate(self, prompts, repeats=1, max_tokens=64, greedy=False, forbid_first=(), generator=None, stop=()):
        self.calls.append(
            {
                "max_tokens": max_tokens,
                "forbid_first": forbid_first,
                "stop": stop,
                "first": torch.rand(1, generator=generator),
            }
        )
        replies = [self.reply(p, attempt) for p in prompts for attempt in range(repeats)]
        batch = self.encode([p for p in prompts for _ in range(repeats)], replies)
        batch["log_prob"] = -1.0 * batch["mask"]
        return batch.view(len(prompts), repeats)

    def decode(self, batch):
        rows = zip(batch["action"].flatten(0, -2), batch["mask"].flatten(0, -2), strict=True)
        return self.tokenizer.decode([action[mask].tolist() for action, mask in rows])

    def record(self, batch):
        return {"value": batch["mask"] * 0.5}

    def evaluate(self, batch, entropy=True):  # the longer a completion, the less likely
        return {"log_prob": -1.0 * batch["mask"]}


class Judge(Parrot):
    """Scores a text by `r(prompt, completion)`."""

    def __init__(self, r, reply=lambda prompt, attempt: "#### 4"):
        super().__init__(reply)
        self.r = r

    def judge(self, prompts, completions):
        return torch.tensor([self.r(p, c) for p, c in zip(prompts, completions, strict=True)])

    def score(self, batch):
        raise NotImplementedError("it is asked for texts only")


def told(world, batch):
    """All rows of a rollout in words."""
    return world.samples(batch, Parrot(), batch["score"].numel())
