"""The newest checkpoint of a run, in memory: it plays, is given credit, learns, and shows what became of each token.

The run's own rooms are walked exactly as its next iteration would; nothing of it is ever saved.
"""

import io
import threading
from pathlib import Path
from typing import Any

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, loop, losses, video
from rlkit.api import UserError
from rlkit.meter import Meter
from rlkit.pages import maps
from rlkit.pages.server import number

KEPT = 4  # replays held in memory
FAR = 20.0  # a log-ratio is shown up to this


class Greedy:
    """The policy without its luck."""

    def __init__(self, policy: Any) -> None:
        self.policy = policy

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        return self.policy.act(observation, greedy=True)

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        return {}


class Live:
    def __init__(self, folder: Path, parts: Any) -> None:
        self.folder, self.parts, self.lock = folder, parts, threading.Lock()
        policy = parts.algo.policy
        self.writes = parts.env.kind == "text" and not hasattr(policy, "judge")  # a reward model writes nothing
        self.progress = loop.Progress()
        self.rows: TensorDict | None = None  # what was played last, [N, T]
        self.group_size, self.passes = 1, 0
        self.now: dict[str, Tensor] = {}  # of each token, [N, T]
        self.replays: dict[str, list[bytes]] = {}

    # Text: one iteration, token by token

    def play(self, request: dict[str, Any]) -> dict[str, Any]:
        """Restore the newest checkpoint and play what the run would play next; nothing is learned yet."""
        with self.lock:
            algo, env, run = self.parts.algo, self.parts.env, self.parts.run
            if not self.writes:
                raise UserError("this run's policy writes no text: there are no tokens to look at")
            self.progress = loop.restore(self.folder, algo, env)
            self.over = self.progress.fraction(run) >= 1
            algo.progress = 0.0 if self.over else self.progress.fraction(run)  # a schedule that ended moves nothing
            loop.set_learning_rate(algo, self.progress.iteration)
            with torch.no_grad():
                rollout = algo.rollout(env)
                self.group_size = rollout["mask"].shape[1] if rollout["mask"].dim() == 3 else 1
                self.credited = algo.credit(rollout)
            if self.credited["mask"].dim() == 3:  # pairs
                self.group_size = self.credited["mask"].shape[1]
            self.passes = 0
            return self.overview()

    def learn(self, request: dict[str, Any]) -> dict[str, Any]:
        """One more pass of learning over what was played, in memory."""
        with self.lock:
            self.played()
            self.parts.algo.buffer.extend(self.credited.copy())
            loop.learn(self.parts.algo, Meter())
            self.passes += 1
            return self.overview()

    def group(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"group"}: the attempts at one prompt, with what is known of each token."""
        with self.lock:
            rows, size = self.played(), self.group_size
            at = int(number(request, "group", 0, len(rows) // size - 1)) * size
            return {"prompt": self.prompt(at), "attempts": [self.attempt(row) for row in range(at, at + size)]}

    def played(self) -> TensorDict:
        if self.rows is None:
            raise UserError("nothing was played yet: ask for play first")
        return self.rows

    def overview(self) -> dict[str, Any]:
        """Compute what every token is worth now, and tell what holds for all of them."""
        algo = self.parts.algo
        self.rows = rows = self.flat()
        with torch.no_grad():
            log_prob = buffers.in_parts(algo.policy.evaluate, rows, algo.policy.micro_steps)["log_prob"]
        self.now = {"log_prob": log_prob}
        told: dict[str, Any] = {}
        if "advantage" in rows.keys():
            self.now["advantage"] = rows["advantage"].expand_as(rows["mask"])
        if "log_prob" in rows.keys() and "advantage" in rows.keys():
            log_ratio = self.log_ratio(log_prob - rows["log_prob"], rows["mask"]).clamp(-FAR, FAR)
            self.now["ratio"] = log_ratio.exp()
            clipped = self.clipped(log_ratio)
            if clipped is not None:
                self.now["clipped"] = clipped & rows["mask"]
                told["clip_fraction"] = float(self.now["clipped"].sum() / rows["mask"].sum().clamp(min=1))
            told["kl"] = float((losses.kl_k3(rows["log_prob"], log_prob) * rows["mask"]).sum() / rows["mask"].sum())
        return told | {
            "iteration": self.progress.iteration,
            "over": self.over,
            "passes": self.passes,
            "lr": algo.optimizer.param_groups[0]["lr"],
            "groups": len(rows) // self.group_size,
            "size": self.group_size,
            "known": list(self.now),
        }

    def flat(self) -> TensorDict:
        """What was played as rows [N, T], whatever the groups; a group that nothing can be learned from is left out."""
        credited, size = self.credited, self.group_size
        lead = credited["mask"].shape[:-1]
        keys = [key for key, x in credited.items() if x.shape[: len(lead)] == lead]
        rows = TensorDict({key: credited[key].flatten(0, len(lead) - 1) for key in keys}, batch_size=[lead.numel()])
        acted = rows["mask"].any(-1).view(-1, size).any(-1)
        if not acted.any():
            raise UserError("no attempt of this rollout counts: every group scored the same; play again later")
        return rows[acted.repeat_interleave(size)]

    def log_ratio(self, per_step: Tensor, mask: Tensor) -> Tensor:
        """log π − log π_b as the algorithm takes it: of a token, or of the whole row."""
        kind = getattr(self.parts.algo.config, "ratio", "token")
        of_row = {"mean": losses.row_mean, "sum": losses.row_sum}.get(kind)
        return per_step if of_row is None else of_row(per_step, mask)

    def clipped(self, log_ratio: Tensor) -> Tensor | None:
        """Where the algorithm's clip acts, [N, T] bool; nothing where it has none."""
        algo, advantage = self.parts.algo, self.now["advantage"]
        if hasattr(algo, "clipped"):
            return algo.clipped(log_ratio, advantage)
        clip = getattr(algo.config, "clip", None)
        if clip is None:
            return None
        if getattr(algo.config, "clip_schedule", "constant") == "linear":
            clip *= 1 - algo.progress
        return losses.clipped(log_ratio, advantage, clip, clip)

    def prompt(self, row: int) -> str:
        rows, tokenizer = self.played(), self.parts.algo.policy.tokenizer
        start = int(rows["mask"][row].int().argmax())
        return tokenizer.decode([rows["observation"][row, : start + 1].tolist()])[0]

    def attempt(self, row: int) -> dict[str, Any]:
        rows, tokenizer = self.played(), self.parts.algo.policy.tokenizer
        mask = rows["mask"][row]
        ids = rows["action"][row][mask].tolist()
        texts = tokenizer.decode([[token] for token in ids])
        ends = [token in tokenizer.stop_ids for token in ids]
        known = {key: x[row][mask].tolist() for key, x in self.now.items()}
        score = float(rows["score"][row]) if "score" in rows.keys() else None
        return {"score": score, "text": texts, "end": ends, **known}

    # Control: one episode

    def replay(self, request: dict[str, Any]) -> dict[str, Any]:
        """{"greedy", "episode"}: one test episode of the newest checkpoint; `frame` gives its pictures."""
        with self.lock:
            algo, env = self.parts.algo, self.parts.env
            greedy, episode = bool(request.get("greedy", True)), int(number(request, "episode", 0, 10**6))
            self.progress = loop.restore(self.folder, algo, env)
            told: dict[str, Any] = {"iteration": self.progress.iteration, "pictures": True}
            try:
                frames = video.frames(env, algo.policy, episode, "test", greedy)
            except UserError as error:  # it has no picture, or what draws it is not installed
                return told | {"pictures": False, "reason": str(error), **self.observed(greedy)}
            name = f"{self.progress.iteration}-{greedy}-{episode}"
            self.replays[name] = [_png(frame["image"]) for frame in frames]
            for old in list(self.replays)[:-KEPT]:
                del self.replays[old]
            return told | {"name": name, **{key: [f[key] for f in frames] for key in ("reward", "action", "value")}}

    def frame(self, request: dict[str, Any]) -> bytes:
        """{"name", "at"}: one picture of a replay."""
        with self.lock:
            pictures = self.replays.get(request.get("name", ""))
            if pictures is None:
                raise UserError("this replay is gone: play it again")
            return pictures[int(number(request, "at", 0, len(pictures) - 1))]

    def observed(self, greedy: bool) -> dict[str, Any]:
        """An episode without pictures: its observations."""
        policy = self.parts.algo.policy
        with torch.no_grad():
            played = self.parts.env.rollout(Greedy(policy) if greedy else policy)[0]
        steps = int(played["mask"].sum())
        seen = played["observation"][:steps].reshape(steps, -1).tolist()
        return {
            "reward": played["reward"][:steps].tolist(),
            "action": played["action"][:steps].tolist(),
            "value": [None] * steps,
            "observation": seen,
        }

    def map(self, request: dict[str, Any]) -> dict[str, Any]:
        """The table of the newest checkpoint on its map."""
        with self.lock:
            algo, env = self.parts.algo, self.parts.env
            self.progress = loop.restore(self.folder, algo, env)
            learned, world = maps.learned(algo.policy), maps.world(env, algo.config.gamma)
            return {
                "iteration": self.progress.iteration,
                "gamma": algo.config.gamma,
                "world": world,
                "learned": learned,
            }


def _png(image: Any) -> bytes:
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(image).save(file, format="PNG", compress_level=3)
    return file.getvalue()
