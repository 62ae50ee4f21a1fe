"""The loop: act, credit, remember, learn. It knows no algorithm, and owns the optimizer step."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction

import torch
from tensordict import TensorDict

from rlkit import ranks
from rlkit.api import Algorithm, Env
from rlkit.errors import Exhausted, Unfinished, UserError
from rlkit.finite import check_iteration, check_parameters
from rlkit.gradients import accumulate
from rlkit.held import check_saved, fingerprints
from rlkit.meter import Clock, Meter, averages
from rlkit.policies import LearningRate, clip_gradients, discount
from rlkit.policies.optimizers import gradient_limit
from rlkit.progress import Progress, lasting_of, save, save_best
from rlkit.recording.log import Log
from rlkit.recording.undo import as_before, noted
from rlkit.scores import checked
from rlkit.seeding import drawn_apart, seed_global
from rlkit.settings.config import Run
from rlkit.settings.measured import only_evaluated

SEEN = ("observation", "next_observation")  # on control they may take gigabytes
LOGGED = {"control": 100, "text": 500}  # most logged iterations of a run, however many it has,
EARLY = 16  # besides its first iterations: so mistakes show at once


def walk(
    algo: Algorithm, env: Env, meter: Meter, logged: Callable[[int], bool] = lambda steps: True, past: int = 0
) -> tuple[TensorDict, TensorDict]:
    """One iteration: rollout, credit, memory, learning. Returns: the rollout, and the rollout with credit.

    Arguments:
        logged: whether the iteration with so many acted steps is logged; otherwise metrics of losses are skipped.
        past: the number of iterations before; several ranks draw from global generators by it.
    """
    algo.policy.refresh()
    with torch.no_grad():
        seed_ranks(env.seed, "act", past, ranks.rank())
        rollout = batch_of(algo, "rollout", algo.rollout(env))  # act
        seed_ranks(env.seed, "learn", past)  # alike: each rank changes its own copy of the parameters
        steps = int(rollout["mask"].sum())  # before credit, which may leave some out
        played = as_played(rollout, env.kind)
        credited = batch_of(algo, "credit", algo.credit(rollout))  # credit
        algo.buffer.extend(credited)  # remember
    learn(algo, meter, logged(steps))  # learn
    check_iteration(meter, credited)
    return played, credited


def as_played(rollout: TensorDict, kind: str) -> TensorDict:
    """A rollout for the log: credit may write into its own, and remove keys. On control both share observations."""
    shared = SEEN if kind == "control" else ()
    return rollout.copy().update({key: x.clone() for key, x in rollout.items() if key not in shared})


def seed_ranks(seed: int, *names: str | int) -> None:
    """Seed the global generators, where several ranks train one policy."""
    if ranks.size() > 1:
        seed_global(seed, *names)


def learn(algo: Algorithm, meter: Meter, measured: bool = True) -> None:
    """One optimizer step per minibatch; micro-batches and ranks only accumulate its gradient."""
    limit, meter.ratios = gradient_limit(algo.config), []
    for batch in algo.buffer:
        meter.begin()
        algo.optimizer.zero_grad()
        total, learned = accumulate(algo, batch, meter, measured)
        norm = clip_gradients(algo.optimizer, limit)
        algo.optimizer.step()
        algo.after_step(learned)
        meter.watched.append(total + norm)
        if measured:
            meter.add({"loss": torch.as_tensor(total), "grad_norm": norm})
    meter.settle()


def batch_of(algo: Algorithm, step: str, returned: object) -> TensorDict:
    """What a step returned. Raises: UserError, where it is not a batch, such as after a forgotten `return`."""
    if not isinstance(returned, TensorDict):
        kind = type(returned).__name__
        raise UserError(f"{type(algo).__name__}.{step} returned a {kind}: let it return the rollout, a TensorDict")
    if "mask" not in returned.keys():
        raise UserError(
            f"{type(algo).__name__}.{step} returned no key mask: let it return the rollout, with all its keys"
        )
    if step == "credit" and returned.batch_dims == 2 < returned["mask"].dim():
        name = type(algo).__name__
        raise UserError(f"{name}.credit returned groups, [P, G, T]: let it return buffers.flatten_groups(rollout)")
    return returned


def train(algo: Algorithm, env: Env, run: Run, log: Log, progress: Progress) -> Progress:
    """Repeat the four steps until the budget is spent or the run is asked to stop."""
    training, meter = Training(algo, env, run, log, progress, Clock(progress.env_steps)), progress.meter
    check_saved(algo, env)
    progress.held, lasting = fingerprints(algo, env), lasting_of(algo)
    evaluating = measuring = False

    def logged(steps: int) -> bool:
        nonlocal evaluating, measuring
        progress.count(steps)
        evaluating = evaluation_is_due(env, run, progress, before)
        measuring = evaluating or is_logged(env, run, progress, before)
        return measuring

    if meter.unwritten:
        training.conclude(meter.unwritten.pop("seen"), meter.unwritten.pop("metrics"), evaluating=True)
        training.keep()
    while not progress.over(run, *ranks.most(progress.interrupted, progress.terminated)):
        before = progress.fraction(run)
        set_progress(algo, progress, run)
        progress.doctor.begin(algo, env)
        go_back = noted(algo, env)
        try:
            rollout, credited = walk(algo, env, meter, logged, progress.iteration)
        except Exhausted as error:
            end(log, progress, error)
            break
        except Unfinished as error:
            go_back()
            training.failed(error.alarm)
            raise
        meter.play(rollout, env.plays)
        if measuring:
            training.write(rollout, credited, evaluating)
        due = checkpoint_is_due(run, progress, evaluating, training.clock) or bool(lasting and lasting.save_is_due())
        if ranks.most(due)[0]:
            training.keep()
    training.keep()
    return progress


@dataclass(frozen=True)
class Training:
    """The parts of a run that is being trained, and what is done with them between iterations."""

    algo: Algorithm
    env: Env
    run: Run
    log: Log
    progress: Progress
    clock: Clock

    def write(self, rollout: TensorDict, credited: TensorDict, evaluating: bool) -> None:
        """Measure an iteration, write its metrics, and report its problems."""
        check_parameters(self.algo)  # nothing else sees what the last step left
        meter, progress = self.progress.meter, self.progress
        meter.share()
        seen = progress.doctor.measure(self.algo, self.env, rollout, credited, meter)
        config, fixed = self.algo.config, only_evaluated(self.algo.policy)
        seen |= {"limit": gradient_limit(config), "gamma": discount(config), "fixed": float(fixed)}
        metrics = averages(meter) | self.clock.speed(progress.env_steps)
        self.log.completions(progress.iteration, rollout, credited, self.algo.policy, self.env)
        self.conclude(seen, metrics, evaluating)

    def conclude(self, seen: dict[str, float], metrics: dict[str, float], evaluating: bool) -> None:
        """Validate, and write the line of an iteration; if that fails, resume validates again. seen: by the doctor."""
        progress = self.progress
        seen["finished"] = float(progress.fraction(self.run) >= 1)  # a resumed run may be longer
        try:
            found = self.validate() if evaluating else {}
        except Unfinished as error:
            progress.meter.unwritten = {"seen": seen, "metrics": metrics}
            self.failed(error.alarm)
            raise
        metrics = progress.doctor.name(seen, metrics | found, progress.iteration, self.log.alarm)
        if self.log.iteration(progress.iteration, progress.env_steps, metrics):
            progress.interrupted = True
        progress.logged = progress.iteration

    def failed(self, alarm: str) -> None:
        """Report what failed, and save the state before it, so that resume repeats it."""
        self.log.failure(self.progress.iteration + 1, self.progress.env_steps, alarm)
        self.save()

    def keep(self) -> None:
        """Write a checkpoint, and measure its time."""
        with self.clock.saving():
            self.save()

    def save(self) -> None:
        """Write a checkpoint, after the lines that were logged before it: a power cut loses none of them."""
        self.log.lines.sync()
        self.log.texts.sync()
        save(self.log.folder, self.algo, self.env, self.progress, keep=self.run.keep)

    def validate(self) -> dict[str, float]:
        """Measure on the validation split; checkpoint `best` keeps the best parameters so far."""
        progress = self.progress
        with drawn_apart(self.env.seed, "validation"), as_before(self.algo, self.env):
            found = self.env.evaluate(self.algo.policy, self.run.validation_episodes, "validation")
        scores = checked(self.env, found, finite=False)
        score, number = float(scores.score.mean()), len(scores.score)
        if progress.best_of not in (0, number):
            self.log.note(
                f"validated on {number} in place of {progress.best_of}: "
                "checkpoint best is looked for again from here on"
            )
            progress.best, progress.best_among = -math.inf, 0
        if progress.best_among is not None:
            progress.best_among += 1
        if score > progress.best:
            progress.best, progress.best_of = score, number
            with self.clock.saving():
                save_best(self.log.folder, self.algo, self.env, progress)
        self.clock.restart()
        beside = {name: [x for x in values if x is not None] for name, values in scores.metrics.items()}
        means = {f"metric/{name}": sum(values) / len(values) for name, values in beside.items() if values}
        return {f"eval/{self.env.metric}": score, "eval/length": float(scores.length.double().mean()), **means}


def end(log: Log, progress: Progress, error: Exhausted) -> None:
    """End a run that has no data left to learn from. Raises: the error, where nothing was learned at all."""
    if not progress.iteration:
        raise error
    log.note(f"ended after iteration {progress.iteration}: {error}")
    progress.ended = True


def set_progress(algo: Algorithm, progress: Progress, run: Run) -> None:
    """Set the progress, and lr · warm-up · schedule if the configuration has a learning rate.

    A parameter group with its own learning rate keeps its ratio to the configured one.
    """
    algo.progress = float(progress.fraction(run))
    if isinstance(algo.config, LearningRate):
        rate, lr = algo.config.learning_rate(algo.progress, progress.iteration), algo.config.lr
        for group in algo.optimizer.param_groups:
            group["lr"] = rate * (group.setdefault("initial_lr", lr) / lr)  # rlkit 0.5 noted none, and knew no other


def evaluation_is_due(env: Env, run: Run, progress: Progress, before: Fraction) -> bool:
    """Every `evaluate_every` iterations or `evaluations` times per run, and at the end if there is a validation split.

    `before` is the fraction of the run done before this iteration.
    """
    if run.evaluate_every and progress.iteration % run.evaluate_every == 0:
        return True
    if passes(progress.fraction(run), before, run.evaluations):
        return True
    return progress.fraction(run) >= 1 and env.splits["validation"] > 0


def is_logged(env: Env, run: Run, progress: Progress, before: Fraction) -> bool:
    """Whether this iteration's metrics are written; always if it is evaluated. `before`: see `evaluation_is_due`."""
    return progress.iteration <= EARLY or passes(progress.fraction(run), before, LOGGED[env.kind])


def passes(now: Fraction, before: Fraction, marks: int) -> bool:
    """Whether one of so many evenly spaced marks of the run lies between `before` and `now`."""
    return now.numerator * marks // now.denominator > before.numerator * marks // before.denominator


def checkpoint_is_due(run: Run, progress: Progress, evaluated: bool, clock: Clock) -> bool:
    if run.checkpoint_every:
        return progress.iteration % run.checkpoint_every == 0
    return clock.save_is_due(evaluated)
