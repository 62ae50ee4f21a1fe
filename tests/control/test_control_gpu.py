"""Control on a GPU: `pytest -m gpu` on a machine that has one. CI runs each of these on a pretended one."""

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path

import pytest
import torch
from support.pretend_cuda import pretended
from torch import Tensor, nn
from torch.testing import assert_close

from rlkit import exact, loop, progress, ranks
from rlkit.buffers import Replay
from rlkit.control import TabularEnv
from rlkit.doctor import Doctor
from rlkit.meter import Meter
from rlkit.progress import Progress
from rlkit.settings import config
from rlkit.settings.assemble import Parts, assemble

GPU = "cuda:0"
REAL = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU here")]
RUNS = (
    "algo=ppo env=cartpole algo.horizon=16 policy.normalize=true",
    "algo=grpo env=cartpole env.step_limit=20",
    "algo=dqn env=cartpole algo.warmup_steps=8 algo.n_step=3 algo.prioritized=true",
    "algo=sac env=pendulum algo.warmup_steps=8",
    "algo=td3 env=pendulum algo.warmup_steps=8 algo.n_step=2",
    "algo=sarsa env=taxi",
)


@pytest.fixture(params=["pretended", pytest.param("real", marks=REAL)], autouse=True)
def kind(request: pytest.FixtureRequest) -> Iterator[str]:
    with pretended() if request.param == "pretended" else nullcontext():
        yield request.param


def made(words: str, device: str) -> Parts:
    return assemble(config.read([*words.split(), f"device={device}"]))


def walk(parts: Parts, iterations: int) -> None:
    for _ in range(iterations):
        loop.walk(parts.algo, parts.env, Meter())


def learned(parts: Parts) -> dict[str, Tensor]:
    """The parameters, on the CPU."""
    assert isinstance(parts.algo.policy, nn.Module)
    return {name: x.detach().cpu() for name, x in parts.algo.policy.named_parameters()}


@pytest.mark.parametrize("words", RUNS)
@pytest.mark.slow
def test_a_run_resumed_on_the_device_goes_on_as_the_one_that_was_not_stopped(words: str, tmp_path: Path) -> None:
    """A checkpoint brings the steps of a replay, and those that wait for others, to the CPU."""
    first, second = made(words, GPU), made(words, GPU)
    walk(first, 3)
    progress.save(tmp_path, first.algo, first.env, Progress())
    progress.restore(tmp_path, second.algo, second.env)
    for parts in (first, second):
        walk(parts, 2)
    assert isinstance(first.algo.policy, nn.Module) and all(x.is_cuda for x in first.algo.policy.parameters())
    assert_close(learned(second), learned(first), rtol=0, atol=0)


@pytest.mark.slow
def test_images_of_a_replay_that_was_resumed_on_the_device_are_drawn_as_before(tmp_path: Path) -> None:
    words = "algo=dqn env=gym env.entry=support.screens:Screen policy.encoder=flat algo.warmup_steps=8"
    first, second = made(words, GPU), made(words, GPU)
    walk(first, 3)
    progress.save(tmp_path, first.algo, first.env, Progress())
    progress.restore(tmp_path, second.algo, second.env)
    drawn = []
    for parts in (first, second):
        buffer = parts.algo.buffer
        assert isinstance(buffer, Replay) and buffer.frames is not None
        buffer.extend(parts.algo.credit(parts.env.rollout(parts.algo.policy, 5)))
        drawn.append([{key: x.cpu() for key, x in batch.items()} for batch in buffer])
    assert_close(drawn[1], drawn[0], rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("words", RUNS)
def test_the_first_steps_on_the_device_learn_what_the_cpu_learns(words: str) -> None:
    there, here = made(words, GPU), made(words, "cpu")
    for parts in (there, here):
        walk(parts, 3)
    assert_close(learned(there), learned(here), rtol=1e-3, atol=1e-4)


@pytest.mark.slow
def test_the_doctor_reads_the_ratios_of_all_ranks_beside_what_lies_on_the_device(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts, meter = made("algo=ppo env=cartpole algo.horizon=16", GPU), Meter()
    rollout, credited = loop.walk(parts.algo, parts.env, meter)
    with monkeypatch.context() as several:
        several.setattr(ranks, "size", lambda: 2)
        several.setattr(ranks, "everyones", lambda mine: [mine, mine])
        meter.share()
    found = Doctor().measure(parts.algo, parts.env, rollout, credited, meter)
    assert 0 < found["train/ess"] <= 1 and found["steps"] == rollout["mask"].numel()


@pytest.mark.slow
def test_a_table_of_actions_may_lie_elsewhere_than_the_device() -> None:
    """That of a model does, which is computed on the CPU."""
    env = made("algo=q_learning env=frozenlake", GPU).env
    model = env.model()
    assert model is not None and isinstance(env, TabularEnv)
    table = exact.greedy(model, exact.optimal_values(model, 0.99), 0.99)
    scores = [env.evaluate(x, 20).score for x in (table, table.to(GPU))]
    assert_close(scores[0], scores[1], rtol=0, atol=0)
    assert env.exact(table) == env.exact(table.to(GPU))
