"""What a GPU would do, on a pretended one: its graphs, its bfloat16, a step of learning, a run and its resumption."""

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from support.pretend_cuda import Device, pretended
from support.resuming import REWARD, Killed, differences
from support.small_model import PROMPTS as TEXTS
from support.small_model import model as small_model
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.testing import assert_close

from rlkit import loop, run
from rlkit.language import generate as generation
from rlkit.language.cache import Cache
from rlkit.language.decoder import Decoder
from rlkit.language.folders import fresh_config
from rlkit.language.generate import Completions, Prompts, Rule, generate
from rlkit.language.precision import product
from rlkit.language.shape import Shape
from rlkit.language.turns import Talk, converse
from rlkit.meter import Meter
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble

VOCAB, GPU = 40, "cuda:0"
PROMPTS = [[5, 6, 7], [1], [9, 9, 3, 2, 8, 30, 11], [4, 0, 4, 0], [12, 13]]
WAITS = 32  # of the CPU for the device in a micro-batch, at most: for how its rows lie, not for each layer or token
RULE = Rule(0.8, False, (0, 3, 17))


@pytest.fixture
def device() -> Iterator[Device]:
    with pretended() as device:
        yield device


def decoder() -> Decoder:
    """A small random model whose next-token distributions are far from uniform."""
    shape = Shape.read({**fresh_config("llama", VOCAB, 32, 2, 4, 2, 48, context=128, end=0)})
    model = Decoder(shape).initialize(generator(3, "llama"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter *= 5.0 if parameter.dim() == 2 else 1.0
    return model.requires_grad_(False)


def write(model: Decoder, rule: Rule = RULE) -> Completions:
    return generate(model, Prompts(PROMPTS, 6, rule, generator(0, "draw")), 40)


def assert_same_texts(done: Completions, expected: Completions) -> None:
    assert done.length.tolist() == expected.length.tolist()
    within = torch.arange(expected.tokens.shape[1]) < expected.length[:, None]
    assert torch.equal(done.tokens.cpu()[within], expected.tokens[within])
    assert_close(done.log_prob.cpu()[within], expected.log_prob[within], rtol=1e-4, atol=1e-4)


# The pretended device itself


def test_it_says_that_it_is_cuda_and_computes_what_the_cpu_computes(device: Device) -> None:
    x = torch.arange(6.0).view(2, 3)
    y = x.to(GPU).requires_grad_()
    assert y.is_cuda and y.device == torch.device("cuda", 0) and torch.zeros(3, device=GPU).is_cuda
    (y.softmax(-1)[:, 1] * y.sum()).sum().backward()
    z = x.clone().requires_grad_()
    (z.softmax(-1)[:, 1] * z.sum()).sum().backward()
    assert y.grad is not None and y.grad.is_cuda and torch.equal(y.grad.cpu(), z.grad)


@pytest.mark.parametrize(
    "mixed",
    [
        lambda gpu, cpu: gpu + cpu,
        lambda gpu, cpu: torch.cat((gpu, cpu)),
        lambda gpu, cpu: gpu @ cpu,
        lambda gpu, cpu: cpu[gpu.long()],
        lambda gpu, cpu: gpu.gather(0, cpu.long()),
        lambda gpu, cpu: gpu.index_put_((cpu.long(),), cpu),
    ],
)
def test_mixed_devices_are_an_error(device: Device, mixed: Callable[[Tensor, Tensor], Tensor]) -> None:
    gpu, cpu = torch.zeros(3, device=GPU), torch.zeros(3)
    with pytest.raises(RuntimeError, match=r"on cuda:0 and on the CPU"), torch.inference_mode():
        mixed(gpu, cpu)
    gpu[cpu.long()].copy_(cpu).add_(torch.tensor(1.0))  # indices, copies and single numbers may come from the CPU


SYNCS: list[Callable[[Tensor], object]] = [
    lambda x: x.sum().item(),
    lambda x: bool(x.any()),
    lambda x: x.tolist(),
    lambda x: x.cpu(),
    lambda x: x.nonzero(),
    lambda x: x[x > 0],
    lambda x: x.index_put_((x > 0,), x[:1].expand(3)),
    lambda x: torch.equal(x, x),
    lambda x: torch.zeros(3).copy_(x),
]


@pytest.mark.parametrize("wait", SYNCS)
def test_what_the_cpu_waits_for_is_counted_and_may_not_be_captured(
    device: Device, wait: Callable[[Tensor], object]
) -> None:
    x = torch.ones(3, device=GPU)
    wait(x)
    assert device.syncs.total() >= 1
    with pytest.raises(RuntimeError, match="during a capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
        wait(x)


def test_neither_may_what_is_brought_to_the_device(device: Device) -> None:
    x = torch.ones(3, device=GPU)
    x[x > 0] = 2.0  # one number fills: no question
    for bring in (lambda: torch.tensor([1], device=GPU), lambda: x[torch.tensor([1])], lambda: x.copy_(torch.ones(3))):
        bring()
        with pytest.raises(RuntimeError, match="during a capture"), torch.cuda.graph(torch.cuda.CUDAGraph()):
            bring()
    assert not device.syncs


def test_a_graph_runs_in_place_when_it_is_replayed_and_not_when_it_is_captured(device: Device) -> None:
    x, y = torch.ones(2, device=GPU), torch.zeros(2, device=GPU)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y += x * 2
        out = y + 1
    assert y.tolist() == [0, 0]
    x.fill_(3)
    graph.replay()
    graph.replay()
    assert y.tolist() == [12, 12] and out.tolist() == [13, 13] and device.replays == 2


def test_a_graph_does_not_see_a_tensor_that_took_the_place_of_another(device: Device) -> None:
    x, y = torch.ones(2, device=GPU), torch.zeros(2, device=GPU)
    old, graph = x, torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y.copy_(x)
    x = torch.full((2,), 5.0, device=GPU)
    graph.replay()
    assert y.tolist() == old.tolist() == [1, 1]
    del old
    with pytest.raises(RuntimeError, match="freed"):
        graph.replay()


# Generation


@pytest.mark.slow
def test_graphs_write_the_tokens_that_the_cpu_writes(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows are dropped to powers of two, the cache grows, and every shape is one graph of one pool."""
    expected = write(decoder())
    monkeypatch.setitem(generation.BLOCK, "cuda", 8)
    real, shapes = generation.Writing._step, []

    def step(writing: generation.Writing) -> None:
        shapes.append((len(writing.row), writing.cache.keys[0].shape[2]))
        real(writing)

    monkeypatch.setattr(generation.Writing, "_step", step)
    done = write(decoder().to(GPU))
    assert_same_texts(done, expected)
    rows, columns = ([*dict.fromkeys(x)] for x in zip(*shapes, strict=True))
    assert len(rows) > 2 and all(size & (size - 1) == 0 for size in rows[1:])
    assert columns == [8, 16, 24, 32, 40]
    assert len(device.graphs) <= len(set(shapes)) and len({graph.pool for graph in device.graphs}) == 1
    eager = len(shapes) - len(device.graphs)  # a capture calls the step, too
    assert eager + device.replays == 39 and device.replays > 2 * eager
    looks = 1 + 39 // generation.EVERY
    assert device.syncs.total() <= looks + 5 * len(rows) * len(columns) + 1


@pytest.mark.slow
def test_graphs_take_the_turns_that_the_cpu_takes(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers are put into memory that the graphs read, and longer ones into new memory with a graph of its own."""

    def talk(model: Decoder) -> dict[str, Tensor]:
        def respond(rows: list[int], turns: list[list[int]]) -> list[list[int] | None]:
            said = [row + sum(turn) for row, turn in zip(rows, turns, strict=True)]
            return [None if n % 5 == 0 else [] if n % 5 == 1 else [n % VOCAB, 7, 8, 9] * (n % 4) for n in said]

        return converse(model, Prompts(PROMPTS, 6, RULE, generator(0, "draw")), Talk(respond, 30, 12, 128))

    expected = talk(decoder())
    monkeypatch.setitem(generation.BLOCK, "cuda", 8)
    done = talk(decoder().to(GPU))
    assert done["length"].tolist() == expected["length"].tolist()
    assert done["truncated"].tolist() == expected["truncated"].tolist()
    within = torch.arange(expected["tokens"].shape[1]) < expected["length"][:, None]
    for key in ("tokens", "acted", "ends"):
        assert torch.equal(done[key].cpu()[within], expected[key][within]), key
    assert_close(done["log_prob"].cpu()[within], expected["log_prob"][within], rtol=1e-4, atol=1e-4)
    assert device.replays > 10 and not expected["acted"][within].all()


@pytest.mark.slow
def test_a_cache_that_replaces_what_a_graph_reads_would_be_caught(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    def advance(cache: Cache) -> None:
        cache.column = cache.column + 1  # not in place
        cache.bias.index_fill_(0, cache.column, 0.0)

    expected = write(decoder())
    monkeypatch.setattr(Cache, "advance", advance)
    with pytest.raises((AssertionError, RuntimeError), match=r"freed|not equal|assert"):
        assert_same_texts(write(decoder().to(GPU)), expected)


def test_a_step_that_waits_would_be_caught(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    real = Cache.advance

    def advance(cache: Cache) -> None:
        real(cache)
        assert int(cache.column) < 1000

    monkeypatch.setattr(Cache, "advance", advance)
    with pytest.raises(RuntimeError, match=r"_local_scalar_dense: .*during a capture"):
        write(decoder().to(GPU))


@pytest.mark.slow
def test_bfloat16_writes_with_weights_of_its_own_that_follow_the_learners(device: Device) -> None:
    """The engine's twin. The CPU is told to attend as the pretended device does: bfloat16 shows every other order."""
    texts: dict[str, list[Tensor]] = {"cpu": [], GPU: []}
    for place, found in texts.items():
        policy = small_model()
        policy.decoder.dtype = policy.dtype = torch.bfloat16
        policy.to(place)
        for _ in range(2):
            with sdpa_kernel(SDPBackend.MATH):
                done = policy.generate(TEXTS, repeats=4, max_tokens=24)
            found += [done["action"].cpu(), done["log_prob"].cpu()]
            with torch.no_grad():
                for parameter in policy.parameters():
                    parameter *= 0.9
    for one, other in zip(*texts.values(), strict=True):
        assert_close(one, other, rtol=1e-5, atol=1e-5)
    assert len(device.graphs) >= 2


@pytest.mark.parametrize("shape", [(5, 4), (3, 5, 4), (2, 3, 5, 4)])
def test_products_of_bfloat16_have_float32_results(device: Device, shape: tuple[int, ...]) -> None:
    a, b = torch.randn(shape).bfloat16(), torch.randn(*shape[:-2], 6, 4).bfloat16()
    found = product(a.to(GPU), b.to(GPU).mT)
    assert found.dtype == torch.float32
    assert_close(found.cpu(), a.float() @ b.float().mT)


# Learning


LEARNERS = ["grpo algo.group=4 algo.minibatches=2 algo.kl_coef=0.1", "ppo algo.minibatches=2"]
LEARNERS += [f"{LEARNERS[0]} policy.lora=4"]


@pytest.mark.parametrize("algo", LEARNERS)
@pytest.mark.slow
def test_an_iteration_leaves_the_parameters_that_the_cpu_leaves(device: Device, algo: str) -> None:
    """With a reference, a value head, adapters; and the CPU waits for the device a few times for each micro-batch."""
    words = f"algo={algo} env=gsm8k env.rows=2 env.max_tokens=10 policy.dtype=float32 {REWARD}"
    left, metrics = [], []
    for place in ("cpu", GPU):
        made, meter = assemble(config.read([*words.split(), f"device={place}"])), Meter()
        with torch.no_grad():
            made.algo.policy.refresh()
            made.algo.buffer.extend(made.algo.credit(made.algo.rollout(made.env)))
        device.syncs.clear()
        loop.learn(made.algo, meter)
        assert (device.syncs.total() <= 2 * WAITS) if place == GPU else not device.syncs  # two micro-batches in all
        left.append([x.detach().cpu() for x in made.algo.policy.parameters()])
        metrics.append(meter.read())
    assert metrics[0] == pytest.approx(metrics[1], rel=1e-3, abs=1e-5)
    for ours, theirs in zip(*left, strict=True):
        assert_close(ours, theirs, rtol=1e-4, atol=2e-5)


@pytest.mark.slow
def test_a_run_that_is_killed_and_resumed_is_the_run_that_was_not(
    device: Device, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = "env.train=8 env.test=1 env.validation=1 validation_episodes=1 evaluation_episodes=1 threads=1"
    words = f"algo=grpo algo.group=4 env=gsm8k env.rows=1 env.max_tokens=8 iterations=2 checkpoint_every=1 {small}"
    words = [*words.split(), REWARD, f"device={GPU}"]
    run.run([*words, f"out={tmp_path / 'whole'}"])
    real, calls = loop.walk, itertools.count(1)

    def walk(*parts):  # type: ignore[no-untyped-def]
        if next(calls) == 2:
            raise Killed
        return real(*parts)

    with monkeypatch.context() as patch, pytest.raises(Killed):
        patch.setattr(loop, "walk", walk)
        run.run([*words, f"out={tmp_path / 'killed'}"])
    run.run([f"resume={tmp_path / 'killed'}", "trust=true"])
    assert differences(tmp_path / "whole", tmp_path / "killed") == []
    assert device.graphs
