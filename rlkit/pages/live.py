"""The newest checkpoint of a run, in memory: it plays, is given credit, learns, and shows what became of each token.

The run's own rooms are walked exactly as its next iteration would; nothing of it is ever saved.
"""

import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import torch
from tensordict import TensorDict
from torch import Tensor

from rlkit import buffers, divergences, loop, losses
from rlkit.api import Elementwise, Judges, Stochastic, Tokens, Writes
from rlkit.control import video
from rlkit.control.env import ControlEnv
from rlkit.control.requirements import acting
from rlkit.control.tabular import TabularEnv
from rlkit.control.vector import Array
from rlkit.errors import UserError
from rlkit.meter import Meter, detached
from rlkit.pages import groups, maps, seen
from rlkit.pages.server import Json, number
from rlkit.policies import Table, discount
from rlkit.progress import Progress, restore, restore_policy
from rlkit.settings import config
from rlkit.settings.assemble import Parts
from rlkit.settings.config import Run
from rlkit.settings.measured import own_checkpoint

KEPT = 4  # replays held in memory
BROKEN, LONGEST = "\N{REPLACEMENT CHARACTER}", 8  # what incomplete characters decode to; tokens of some characters
LENGTHS = ("iterations", "env_steps")
SHOWN = ("ratio", "clip_fraction")  # what the page draws of each token, where `loss` reports it


class Live:
    def __init__(self, folder: Path, parts: Parts) -> None:
        self.folder, self.parts, self.lock = folder, parts, threading.Lock()
        policy, env = parts.algo.policy, parts.env
        self.writes = isinstance(policy, Writes) and not isinstance(policy, Judges)  # a reward model writes nothing
        self.mapped = isinstance(policy, Table) and isinstance(env, TabularEnv) and env.grid is not None
        self.progress = Progress()
        self.rows: TensorDict | None = None  # what was played last, [N, T]
        self.group_size, self.passes = 1, 0
        self.now: dict[str, Tensor] = {}  # of each token, [N, T]
        self.told: Json = {}  # what holds for all of them
        self.replays: dict[str, list[bytes]] = {}
        self.doing = groups.Doing()

    # Text: one iteration, token by token

    def play(self, request: Json) -> Json:
        """Restore the newest checkpoint and play what the run would play next; nothing is learned yet."""
        with self.lock:
            algo, env = self.parts.algo, self.parts.env
            if not self.writes:
                raise UserError("this run's policy writes no text: there are no tokens to look at")
            self.doing.begin("loading the checkpoint", "writing the attempts", "giving credit", "judging each token")
            self.progress = restore(self.folder, algo, env)
            run = self.run()
            self.over = self.progress.fraction(run) >= 1
            begun = Progress() if self.over else self.progress  # a schedule that ended moves nothing
            loop.set_progress(algo, begun, run)
            with torch.no_grad():
                self.doing.next()
                rollout = algo.rollout(env)
                rollout["written"] = rollout["mask"].clone()  # credit may leave steps out of what is learned
                self.doing.next()
                self.group_size = rollout["mask"].shape[1] if rollout["mask"].dim() == 3 else 1
                self.credited = algo.credit(rollout)
            if self.credited["mask"].dim() == 3:  # pairs
                self.group_size = self.credited["mask"].shape[1]
            self.passes = 0
            self.doing.next()
            return self.overview()

    def run(self) -> Run:
        """The settings of the run with its newest length: a resume may have made it longer."""
        run = self.parts.run
        with suppress(UserError):  # config.yaml is being written, or damaged by now
            held = config.from_folder(self.folder).run
            iterations, env_steps = (x if type(x := held.get(key)) is int else None for key in LENGTHS)
            if iterations or env_steps:
                run = replace(run, iterations=iterations, env_steps=env_steps)
        return run

    def learn(self, request: Json) -> Json:
        """One more pass of learning over what was played, in memory."""
        with self.lock:
            self.played()
            self.doing.begin("learning", "judging each token")
            self.parts.algo.buffer.extend(self.credited.exclude("written"))
            loop.learn(self.parts.algo, Meter())
            self.passes += 1
            self.doing.next()
            return self.overview()

    def group(self, request: Json) -> Json:
        """{"group"}: the attempts at one prompt, with what is known of each token, and `now`, the overview of it."""
        with self.lock:
            rows, size = self.played(), self.group_size
            at = int(number(request, "group", 0, len(rows) // size - 1)) * size
            attempts = [self.attempt(row) for row in range(at, at + size)]
            return {"prompt": self.prompt(at), "attempts": attempts, "now": self.told}

    def doing_now(self, request: Json) -> Json:
        """What `play` or `learn` is at, asked meanwhile."""
        return self.doing.told()

    def played(self) -> TensorDict:
        if self.rows is None:
            raise UserError("nothing was played yet: ask for play first")
        return self.rows

    def overview(self) -> Json:
        """Compute what every token is worth now, and tell what holds for all of them."""
        algo, policy = self.parts.algo, self.parts.algo.policy
        if not isinstance(policy, Stochastic):
            raise UserError("this run's policy tells no log-probabilities: there are no tokens to look at")
        self.rows = rows = self.flat()
        steps = rows["mask"].sum().clamp(min=1)
        with torch.no_grad():
            whole = rows.copy().set("mask", rows["written"])
            self.now = buffers.in_parts(policy.evaluate, whole, policy.micro_steps)
            self.now = {"log_prob": self.now["log_prob"]}
            if "log_prob" in rows.keys() and "advantage" in rows.keys():
                weighed = rows.copy().set("weight", losses.reduction(rows["mask"], "token"))  # as a minibatch has them
                self.now |= buffers.in_parts(self.reported, weighed, policy.micro_steps)
        if "ratio" in self.now:  # of steps that are not learned from, `loss` knows nothing
            moved = (self.now["log_prob"] - rows["log_prob"]).exp()
            self.now["ratio"] = torch.where(rows["written"] & ~rows["mask"], moved, self.now["ratio"])
        told: Json = {}
        if "log_prob" in rows.keys() and "advantage" in rows.keys():  # a demonstration's is 1: it was not played
            self.now["advantage"] = buffers.per_step(rows["advantage"], rows["mask"])
        if "clip_fraction" in self.now:
            self.now["clipped"] = self.now.pop("clip_fraction").bool() & rows["mask"]
            told["clip_fraction"] = float(self.now["clipped"].sum() / steps)
        if "log_prob" in rows.keys():
            told["kl"] = float((divergences.kl_k3(rows["log_prob"], self.now["log_prob"]) * rows["mask"]).sum() / steps)
        self.told = told | {
            "iteration": self.progress.iteration,
            "over": self.over,
            "passes": self.passes,
            "lr": algo.optimizer.param_groups[0]["lr"],
            "groups": len(rows) // self.group_size,
            "size": self.group_size,
            "known": list(self.now),
            "informative": groups.informative(rows, self.group_size),
        }
        return self.told

    def flat(self) -> TensorDict:
        """What was played as rows [N, T], whatever the groups; a group that nothing can be learned from is left out."""
        credited, size = self.credited, self.group_size
        lead = credited["mask"].shape[:-1]
        keys = [key for key, x in credited.items() if x.shape[: len(lead)] == lead]
        rows = TensorDict({key: credited[key].flatten(0, len(lead) - 1) for key in keys}, batch_size=[lead.numel()])
        if "written" not in rows.keys():  # an own credit made a batch of its own
            rows["written"] = rows["mask"]
        acted = rows["mask"].any(-1).view(-1, size).any(-1)
        if not acted.any():
            raise UserError("no attempt of this rollout counts: every group scored the same; play again later")
        return rows[acted.repeat_interleave(size)]

    def reported(self, batch: TensorDict) -> dict[str, Tensor]:
        """What the algorithm's own `loss` reports of each token, where the page draws it. [B, T] each"""
        found = detached(self.parts.algo.loss(batch)[1])
        metrics = {key: x() if isinstance(x, Elementwise) else x for key, x in found.items() if key in SHOWN}
        return {key: metrics[key] for key in SHOWN if key in metrics and metrics[key].shape == batch["mask"].shape}

    def tokenizer(self) -> Tokens:
        policy = self.parts.algo.policy
        if not isinstance(policy, Writes):
            raise UserError("this run's policy writes no text: there are no tokens to look at")
        return policy.tokenizer

    def prompt(self, row: int) -> str:
        rows, tokenizer = self.played(), self.tokenizer()
        start = int(rows["written"][row].int().argmax())
        return tokenizer.decode([rows["observation"][row, : start + 1].tolist()])[0]

    def attempt(self, row: int) -> Json:
        """From the first token that was written to the last one; what stands between turns was read."""
        rows, tokenizer = self.played(), self.tokenizer()
        written = rows["written"][row]
        steps = written.nonzero().flatten().tolist()
        span = slice(steps[0], steps[-1] + 1) if steps else slice(0)
        ids, own = rows["action"][row][span].tolist(), written[span].tolist()
        texts = spelled(tokenizer, ids)
        ends = [mine and token in tokenizer.stop_ids for token, mine in zip(ids, own, strict=True)]
        known = {key: x[row][span].tolist() for key, x in self.now.items()}
        score = float(rows["score"][row]) if "score" in rows.keys() else None
        return {"score": score, "text": texts, "end": ends, "read": [not mine for mine in own], **known}

    # Control: one episode

    def replay(self, request: Json) -> Json:
        """{"greedy", "episode"}: one test episode of what the run measures; `frame` gives its pictures."""
        with self.lock:
            algo, env = self.parts.algo, self.parts.env
            if not isinstance(env, ControlEnv):
                raise UserError("this run plays no control problem: there is nothing to replay")
            greedy, episode = bool(request.get("greedy", True)), int(number(request, "episode", 0, 10**6))
            self.progress = restore_policy(self.folder, algo, env, self.measured())
            told: Json = {"iteration": self.progress.iteration, "agents": env.agents, "pictures": True, "reason": ""}
            try:
                frames = video.frames(env, acting(algo.policy), episode, "test", greedy)
                pictures: list[Array] | None = [frame["image"] for frame in frames]
            except UserError as error:  # it has no picture, or what draws it is not installed
                frames = video.frames(env, acting(algo.policy), episode, "test", greedy, draw=False)
                pictures, told["reason"] = seen.images(env, frames), str(error)
            told |= seen.told(env, frames)
            if pictures is None:
                return told | {"pictures": False}
            name = f"{self.progress.iteration}-{greedy}-{episode}"
            self.replays[name] = [seen.png(picture) for picture in pictures]
            for old in list(self.replays)[:-KEPT]:
                del self.replays[old]
            return told | {"name": name}

    def frame(self, request: Json) -> bytes:
        """{"name", "at"}: one picture of a replay."""
        with self.lock:
            pictures = self.replays.get(request.get("name", ""))
            if pictures is None:
                raise UserError("this replay is gone: play it again")
            return pictures[int(number(request, "at", 0, len(pictures) - 1))]

    def map(self, request: Json) -> Json:
        """The table that the run measures on its map."""
        with self.lock:
            algo, env, policy = self.parts.algo, self.parts.env, self.parts.algo.policy
            if not isinstance(policy, Table) or not isinstance(env, TabularEnv) or env.grid is None:
                raise UserError("this run has no map with a table on it")
            self.progress = restore_policy(self.folder, algo, env, self.measured())
            gamma = discount(algo.config)
            return {
                "iteration": self.progress.iteration,
                "gamma": gamma,
                "world": maps.world(env.grid, env.model(), gamma),
                "learned": maps.learned(policy),
            }

    def measured(self) -> str:
        """The checkpoint whose score the header shows: the best validated one under measure=best, else the newest."""
        return own_checkpoint(self.parts.run.measure, self.folder)


def spelled(tokenizer: Tokens, ids: Sequence[int]) -> list[str]:
    """The text of each token behind others: SentencePiece's decoders drop the space at the beginning of a text.

    A character whose bytes are several tokens stands at the last of them, and nothing at the others.
    """
    first, twice = tokenizer.decode([[token] for token in ids]), tokenizer.decode([[token] * 2 for token in ids])
    texts = [both.removeprefix(text) for text, both in zip(first, twice, strict=True)]
    at = 0
    while at < len(ids):
        behind = range(at + 1, min(at + LONGEST, len(ids)) + 1)
        ends = [*takewhile(lambda end: BROKEN in texts[end - 1], behind)]
        whole = zip(ends, tokenizer.decode([list(ids[at:end]) for end in ends]), strict=True)
        end, text = next((found for found in whole if BROKEN not in found[1]), (at + 1, texts[at]))
        texts[at:end] = [*[""] * (end - at - 1), text]
        at = end
    return texts
