"""A text policy that takes turns without a network, for tests."""

from collections.abc import Callable, Sequence

import torch
from tensordict import TensorDict

from support.parrot import Parrot


class Chatter(Parrot):
    """Says `say(prompt, attempt, heard)` in each turn, heard being the replies so far; a token is a character."""

    def __init__(self, say: Callable[[str, int, list[str]], str]) -> None:
        super().__init__()
        self.say = say

    def converse(
        self,
        prompts: Sequence[str],
        reply,
        repeats: int = 1,
        max_tokens: int = 64,
        turn_tokens: int | None = None,
        greedy: bool = False,
        forbid_first: Sequence[str] = (),
        generator: torch.Generator | None = None,
        stop: Sequence[str] = (),
    ) -> TensorDict:
        self.calls.append({"max_tokens": max_tokens, "turn_tokens": turn_tokens, "stop": stop})
        rows = [(prompt, attempt) for prompt in prompts for attempt in range(repeats)]
        ids = [[(ord(letter), False, False) for letter in prompt] for prompt, _ in rows]
        heard: list[list[str]] = [[] for _ in rows]
        open_, truncated = list(range(len(rows))), [False] * len(rows)
        while open_:
            said = [self.say(*rows[row], heard[row]) for row in open_]
            for row, text in zip(open_, said, strict=True):
                end = [] if stop and text.endswith(tuple(stop)) else [0]
                codes = [*map(ord, text), *end][: turn_tokens or max_tokens]
                ids[row] += [(code, True, place == len(codes) - 1) for place, code in enumerate(codes)]
            answers = reply(open_, said)
            for row, answer in zip(list(open_), answers, strict=True):
                spent = sum(acted for _, acted, _ in ids[row]) >= max_tokens
                over = answer is None or (answer == "" and ids[row][-1][0] == 0)
                if over or spent:
                    truncated[row] = not over
                    open_.remove(row)
                else:
                    heard[row].append(answer)
                    ids[row] += [(ord(letter), False, False) for letter in answer]
        return self._batch(ids, truncated).view(len(prompts), repeats)

    def _batch(self, ids: list[list[tuple[int, bool, bool]]], truncated: list[bool]) -> TensorDict:
        width = max(map(len, ids))
        table = torch.tensor([[*row, *[(0, False, False)] * (width - len(row))] for row in ids])
        text, mask, ends = table[..., 0], table[:, 1:, 1].bool(), table[:, 1:, 2].bool()
        data = {"observation": text[:, :-1], "action": text[:, 1:], "mask": mask, "turn_end": ends}
        data |= {"log_prob": -1.0 * mask, "truncated": torch.tensor(truncated)}
        return TensorDict(data, batch_size=len(ids))

    def transcript(self, rollout: TensorDict, special: bool = False) -> list[str]:
        rows = zip(rollout["action"].flatten(0, -2), rollout["mask"].flatten(0, -2), strict=True)
        found = []
        for action, mask in rows:
            acted = mask.nonzero()[:, 0]
            found.append(action[int(acted[0]) : int(acted[-1]) + 1].tolist())
        return self.tokenizer.decode(found)
