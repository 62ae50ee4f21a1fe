"""A run in a program: its folder, its measurements, its policy, and how to resume it."""

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import cast

import torch

from rlkit import against as pairing
from rlkit import evaluation, session
from rlkit.errors import UserError, one_line
from rlkit.evaluation import Evaluate, Subject
from rlkit.joining import refuse_several
from rlkit.paths import back, home, start
from rlkit.python.keys import check_listener, line
from rlkit.python.policy import Policy
from rlkit.python.surroundings import Turns, alone, undisturbed
from rlkit.recording import checkpoint as checkpoints
from rlkit.recording.files import is_file, read_object
from rlkit.recording.log import Listener
from rlkit.recording.writers import records
from rlkit.scores import Json
from rlkit.settings import config, schema
from rlkit.settings.assemble import threads
from rlkit.settings.given import Factory, Trust
from rlkit.settings.measured import own_checkpoint
from rlkit.settings.synonyms import nearest
from rlkit.terminal import harmless, muted

Numbers = dict[str, float]
TAKEN = [key for key in schema.settable(Evaluate) if key != "trust"]  # what `evaluate` takes; the run has its trust


class Run:
    """A run folder, finished or not. `rlkit.train` and `rlkit.load` return it."""

    def __init__(
        self,
        folder: str | Path,
        checkpoint: str | None = None,
        factory: Factory | None = None,
        trusted: Trust = False,
        places: Mapping[str, object] | None = None,
    ) -> None:
        self.folder = home(folder).absolute()
        self.checkpoint = checkpoint  # checkpoint for `policy`; None: the one that the run measures
        self._factory, self._trusted = factory, trusted
        self._places = dict(places or {})  # keys of files that have moved since the run began
        self._opened: tuple[Evaluate, Subject] | None = None
        self._turns = Turns()  # measurements and predictions share its environment and its generators

    def __getstate__(self) -> dict[str, object]:
        """State for pickling: another process opens the folder itself."""
        return {**vars(self), "_opened": None}

    def __repr__(self) -> str:
        from rlkit.comparison.naming import at_home

        given = self._given()
        env = at_home(given.env["name"], given.env)
        words = harmless(f"{given.algo['name']} on {env}, seed {given.run.get('seed', 0)}")
        try:
            told = self.summary
            if told is None:
                return f"<rlkit run: {words}, not finished, in {self.folder}>"
            before, after = (told["evaluation"][when] for when in ("before", "after"))
            scores = f"test {after['metric']} {before['mean']:.4g} → {after['mean']:.4g}"
            return harmless(f"<rlkit run: {words}, {told['env_steps']:,} steps, {scores}, in {self.folder}>")
        except (ArithmeticError, LookupError, TypeError, ValueError, UserError):  # it may be a stranger's
            return f"<rlkit run: {words}, with a damaged summary.json, in {self.folder}>"

    @property
    def metrics(self) -> list[Numbers]:
        """The metrics of each logged iteration, from metrics.jsonl; `pandas.DataFrame(run.metrics)` gives a table."""
        return [cast(Numbers, record) for record in records(self.folder / "metrics.jsonl")]

    @property
    def summary(self) -> Json | None:
        """The content of summary.json, with the scores before and after training; None until the run ends."""
        path = self.folder / "summary.json"
        return read_object(path) if is_file(path) else None

    @property
    def policy(self) -> Policy:
        """The policy, with the parameters of the checkpoint. For a later checkpoint, call `rlkit.load` again.

        Raises: UserError where there is no checkpoint yet.
        """
        with self._turns:
            subject = self._subject(self._asked())
        return Policy(subject.env, subject.policy, self._turns)

    def evaluate(self, episodes: int | None = None, split: str = "test", **keys: object) -> Json:
        """Measure the run, as `python -m rlkit.evaluate FOLDER` does; no file is written, except for `video`.

        Arguments:
            episodes: how many episodes or problems; None: the environment's default.
            split: test, validation or train.
            keys: other keys of the command: checkpoint, pass_at, samples, against (a run, or a folder that needs no
                trust), video, device, threads, seed.

        Returns: the content of the command's evaluation-SPLIT.json: "checkpoint" and "iteration" of the parameters;
            "greedy" and "sampled" with mean and 95 % interval (low, high); and the results of other keys.

        Raises: UserError for keys that do not apply to this run.

        Example:
            run.evaluate(episodes=100)["greedy"]["mean"]
        """
        _refuse_trust(keys)
        keys["against"], place, trusted = self._other(keys.get("against"))
        asked = self._asked(episodes=episodes, split=split, trust=trusted, **keys)
        here = start()
        with self._turns, undisturbed():
            subject = self._subject(asked)
            torch.set_num_threads(threads(subject.env.kind, asked.threads))
            with back(here):  # relative paths start there, wherever the environment has gone
                evaluation.refuse(subject, asked)
                if place is not None and not asked.trust:
                    pairing.refuse_code(subject, place[0])
                other = None if place is None else pairing.rival(subject, asked, place, self._line())
            if asked.video is not None:
                evaluation.film(subject, asked, here)
            found, scores = evaluation.measured(subject, asked)
            if other is not None:
                found["against"], _ = pairing.compared(subject, other, scores, asked)
        return found

    def resume(self, *, on_iteration: Listener | None = None, quiet: bool = False, **keys: object) -> "Run":
        """Resume exactly from the newest checkpoint, as `python -m rlkit.run resume=FOLDER` does.

        Arguments:
            on_iteration: see `rlkit.train`.
            quiet: print nothing.
            keys: keys that may change: a new total length (env_steps or iterations), evaluate_every, device and others.

        Returns: this run.

        Raises: UserError for keys that would change the run itself, and while another process writes to the folder.

        Example:
            run.resume(env_steps=100_000)  # 100,000 in total
        """
        if "resume" in keys:
            raise UserError(f"resume={keys['resume']}: this run itself is resumed; leave it out")
        _refuse_trust(keys)
        refuse_several()
        check_listener(on_iteration)
        told = self._line(**keys)
        told.resume = self.folder
        try:
            with alone(), undisturbed(), muted(quiet), self._fitting():
                _, progress = session.carry_out(config.complete(told), session.Watch(quiet, on_iteration))
        finally:
            self._opened = None  # where it was stopped, too: the newest checkpoint is another one by now
        if progress.terminated:
            signal.raise_signal(progress.terminated)  # call the caller's handler: the run only wrote its checkpoint
        return self

    @contextmanager
    def _fitting(self) -> Iterator[None]:
        """Report in one line if an environment given in Python does not match the saved parameters."""
        try:
            yield
        except (RuntimeError, UserError) as error:  # torch raises RuntimeError where sizes differ
            if self._factory is None or "size mismatch" not in one_line(error):
                raise
            raise UserError(
                f"env= has other observations or actions than what the run in {self.folder} was made on: give that"
            ) from error

    def _other(self, against: object) -> tuple[object, pairing.Place | None, Trust]:
        """The value of `against`, its place, and its trust: a run has its own trust, a path has none."""
        if isinstance(against, Run):
            return str(against.folder), (str(against.folder), against.checkpoint), against._trusted
        named = os.fspath(against) if isinstance(against, os.PathLike) else against
        if not isinstance(named, str):
            return named, None, False
        place = pairing.place_of(named)
        same = home(place[0]).resolve() == self.folder.resolve()  # another checkpoint of this run
        return named, place, self._trusted if same else False

    def _line(self, **keys: object) -> config.Given:
        """Keys beside those of files that have moved."""
        return line(self._places | keys, self._factory, self._trusted)

    def _given(self) -> config.Given:
        return config.from_folder(self.folder)

    def _asked(self, **keys: object) -> Evaluate:
        given = {"checkpoint": self.checkpoint, **keys}
        values = {key: os.fspath(x) if isinstance(x, os.PathLike) else x for key, x in given.items()}
        if unknown := keys.keys() - schema.settable(Evaluate).keys():
            raise UserError(f"no key '{min(unknown)}': {nearest(min(unknown), TAKEN)}")
        return schema.build(Evaluate, values, "evaluate")

    def _subject(self, asked: Evaluate) -> Subject:
        """The policy and environment, put together once for equal checkpoint, device, threads and seed."""
        if not checkpoints.resumable(self.folder):
            raise UserError(f"{self.folder} has no checkpoint yet, so it has no policy: continue it with run.resume()")
        name = asked.checkpoint or own_checkpoint(self._given().run.get("measure"), self.folder)
        like = Evaluate(name, device=asked.device, threads=asked.threads, seed=asked.seed)
        if self._opened is None or self._opened[0] != like:
            with undisturbed(), self._fitting():
                subject = evaluation.opened(config.at_new_places(self.folder, self._line()), self.folder, name, asked)
            self._opened = like, subject
        return self._opened[1]


def _refuse_trust(keys: dict[str, object]) -> None:
    if "trust" in keys:
        raise UserError(f"trust={keys['trust']}: this run is open already; rlkit.load(FOLDER, trust=...) takes it")
