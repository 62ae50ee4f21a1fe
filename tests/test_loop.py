"""How often a run stops to evaluate."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from support.fakes import RaggedText, environment, on_text
from support.resuming import cut, differences
from tensordict import TensorDict

from rlkit import gradients, loop, run
from rlkit.doctor.symptoms import of_ratios
from rlkit.loop import evaluation_is_due, walk
from rlkit.meter import Meter
from rlkit.policies import Network
from rlkit.progress import Progress
from rlkit.recording import checkpoint
from rlkit.settings import plugins
from rlkit.settings.config import Run


def evaluated(run: Run, unit: str, step: int = 1) -> list[int]:
    """How far a run is at each of its evaluations."""
    env, progress, found = environment("frozenlake", rows=2), Progress(), []
    while not progress.over(run):
        before = progress.fraction(run)
        progress = replace(progress, **{unit: vars(progress)[unit] + step})
        if evaluation_is_due(env, run, progress, before):
            found.append(vars(progress)[unit])
    return found


@pytest.mark.parametrize(("iterations", "times"), [(50, 50), (100, 100), (25, 25), (12, 7), (99, 99), (1000, 300)])
def test_a_run_is_evaluated_as_often_as_was_asked_for(iterations: int, times: int) -> None:
    """The k-th evaluation follows the first iteration i with i · times ≥ k · iterations."""
    by_hand = [-(-k * iterations // times) for k in range(1, times + 1)]
    assert evaluated(Run(iterations=iterations, evaluations=times), "iteration") == by_hand
    assert evaluated(Run(env_steps=7 * iterations, evaluations=times), "env_steps", 7) == [7 * i for i in by_hand]


def test_the_last_iteration_of_a_run_is_evaluated_once() -> None:
    assert evaluated(Run(env_steps=10, evaluations=2), "env_steps", 3) == [6, 12]


def test_after_step_gets_the_tensors_among_the_metrics_in_logged_iterations_too() -> None:
    cartpole, ppo = plugins.load("envs", "cartpole"), plugins.load("algorithms", "ppo")
    env = cartpole.make(cartpole.Config(rows=2), 0, "cpu")
    algo = ppo.make(ppo.Config(horizon=8, epochs=1, minibatches=1), env, Network(hidden=(8,)))
    seen: list[set[str]] = []
    algo.after_step = lambda learned: seen.append(set(learned[0][1]))
    for logged in (True, False):
        walk(algo, env, Meter(), lambda steps, logged=logged: logged)
    assert seen == [{"entropy", "value_loss"}] * 2


def test_steps_that_credit_leaves_out_were_played() -> None:
    cartpole, ppo = plugins.load("envs", "cartpole"), plugins.load("algorithms", "ppo")
    env = cartpole.make(cartpole.Config(rows=2), 0, "cpu")
    algo = ppo.make(ppo.Config(horizon=8, epochs=1, minibatches=1), env, Network(hidden=(8,)))
    credit, played = algo.credit, list[int]()

    def positive(rollout: TensorDict) -> TensorDict:
        credited = credit(rollout)
        credited["mask"] &= credited["advantage"] > 0
        return credited

    algo.credit = positive
    walk(algo, env, Meter(), lambda steps: played.append(steps) is None)
    assert played == [16]


@pytest.mark.parametrize("in_place", [False, True])
def test_what_credit_changes_in_its_rollout_was_played_otherwise(in_place: bool) -> None:
    """Completions, scores and lengths are of what the model wrote."""
    env = RaggedText(rows=4)
    algo, found = on_text("reinforce", env), list[TensorDict]()
    play = algo.rollout

    def rewarded(env: RaggedText) -> TensorDict:
        rollout = play(env)
        rated = torch.ones_like(rollout["score"], dtype=torch.bool)
        return rollout.update({"reward/right": rollout["score"].clone(), "rated/right": rated})

    def last_half(rollout: TensorDict) -> TensorDict:
        found.append(rollout.clone())
        late = torch.arange(rollout["mask"].shape[-1]) > 1
        if in_place:
            rollout["mask"] &= late
            rollout["score"] -= 1
            rollout["reward/right"] -= 1
            rollout["action"][~late.expand_as(rollout["action"])] = 0
            rollout["terminated"] ^= True
        else:
            rollout.update({"mask": rollout["mask"] & late})
            rollout.update({key: rollout[key] - 1 for key in ("score", "reward/right")})
        return rollout.update({"advantage": rollout["reward"], "return": rollout["reward"]})

    algo.rollout, algo.credit = rewarded, last_half
    rollout, credited = walk(algo, env, Meter())
    for key in ("mask", "score", "reward/right", *(("action", "terminated") if in_place else ())):
        assert torch.equal(rollout[key], found[0][key]) and not torch.equal(credited[key], found[0][key])


TWO_RATES = """from dataclasses import dataclass

import torch

from rlkit.settings import plugins

ppo = plugins.load("algorithms", "ppo")


@dataclass(frozen=True)
class Config(ppo.Config):
    critic_lr: float = 1e-2  # learning rate of the critic


class Two(ppo.PPO):
    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        actor, critic = self.policy.actor.parameters(), self.policy.critic.parameters()
        groups = [{"params": actor, "lr": config.lr}, {"params": critic, "lr": config.critic_lr}]
        self.optimizer = torch.optim.Adam(groups)


make = Two
"""


def test_each_group_of_parameters_keeps_its_own_learning_rate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the last of 6 iterations a linear schedule to 0 leaves a sixth of each rate, as warm-up is over."""
    own = tmp_path / "two.py"
    own.write_text(TWO_RATES)
    words = [f"algo={own}", "env=cartpole", "iterations=6", "algo.horizon=8", "env.rows=2", "threads=1", "algo.lr=1e-3"]
    words += ["algo.schedule=linear", "algo.warmup=2", "checkpoint_every=1", "evaluation_episodes=2"]
    words += ["validation_episodes=2", "algo.minibatches=1"]
    assert run.main([*words, f"out={tmp_path / 'whole'}"]) == 0
    groups = checkpoint.load(tmp_path / "whole")["parts"]["optimizer"]["param_groups"]
    assert [group["lr"] for group in groups] == pytest.approx([1e-3 / 6, 1e-2 / 6], rel=1e-12)
    cut(words, tmp_path / "cut", monkeypatch)
    assert run.main([f"resume={tmp_path / 'cut'}", "trust=true"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("parts", "measured"), [([0, 4], "train/ess"), ([4, 0], "first_ratio")])
def test_a_rank_without_a_part_of_a_minibatch_takes_no_other_one_for_it(
    parts: list[int], measured: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After an update the ratio is another: before the first it shows who acts and who learns, before the last ess."""
    env = RaggedText(rows=4)
    algo, meter = on_text("grpo", env, group=2, minibatches=2), Meter()
    with torch.no_grad():
        algo.buffer.extend(algo.credit(algo.rollout(env)))
    monkeypatch.setattr(gradients, "mine_of", lambda batch, divided: batch[: parts.pop(0)])
    loop.learn(algo, meter)
    assert not parts and of_ratios(meter.ratios, algo.policy).keys() - {"tolerance"} == {measured}
