"""Nothing that is not finite is saved: the last good checkpoint stays, and one line names what went wrong."""

import math
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from support.damage import raw, signed
from support.fakes import environment
from support.resuming import REWARD

from rlkit import loop, run
from rlkit.errors import Diverged
from rlkit.finite import check_finite
from rlkit.language.folders import TINY
from rlkit.moments import check_optimizer, options_of
from rlkit.progress import Progress, save
from rlkit.recording import checkpoint
from rlkit.settings import plugins

RUN = ["iterations=9", "checkpoint_every=1", "keep=0", "evaluation_episodes=2", "validation_episodes=2", "threads=1"]
GSM8K = ["env=gsm8k", REWARD, "env.train=8", "env.test=2", "env.validation=2", "env.rows=2", "env.max_tokens=8"]
RUNS = {
    "ppo": ["algo=ppo", "env=cartpole", "algo.horizon=8", "env.rows=2", "policy.normalize=true"],
    "table": ["algo=q_learning", "env=cliffwalking", "algo.steps=9"],
    "text": ["algo=grpo", *GSM8K, "algo.group=4"],
}


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.slow
def test_a_step_that_ends_in_infinity_is_not_saved(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The third step leaves what no loss has seen."""
    monkeypatch.setattr(loop, "set_progress", spoil)
    assert run.main([*RUNS[name], *RUN, "algo.lr=1e-3", f"out={tmp_path}"]) == 1
    told = capsys.readouterr().err
    assert (
        told.count("\n") == 1
        and told.startswith("rlkit: not finite: ")
        and "checkpoints written before are kept" in told
    )
    state = checkpoint.load(tmp_path)
    assert 1 <= state["progress"]["iteration"] < 9
    assert all(bool(x.isfinite().all()) for x in tensors(state["parts"]["policy"]))
    monkeypatch.undo()
    assert run.main([f"resume={tmp_path}", "trust=true"]) == 0


def tensors(state: Any) -> list[torch.Tensor]:
    """Those of a policy's state; of frozen weights it holds fingerprints."""
    return [x for x in state.values() if isinstance(x, torch.Tensor)]


def spoil(algo: Any, progress: Progress, run: Any, real: Any = loop.set_progress) -> None:
    """From the third iteration on each step is infinite."""
    real(algo, progress, run)
    if progress.iteration >= 2:
        for group in algo.optimizer.param_groups:
            group["lr"] = math.inf


@pytest.mark.parametrize("name", RUNS)
def test_an_infinite_learning_rate_is_one_line(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run.main([*RUNS[name], *RUN, "algo.lr=1e30", f"out={tmp_path}"])
    told = capsys.readouterr().err
    assert code in (1, 2) and told.count("\n") == 1 and "Traceback" not in told
    assert not checkpoint.resumable(tmp_path) or all(
        bool(x.isfinite().all()) for x in tensors(checkpoint.load(tmp_path)["parts"]["policy"])
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_model_with_a_weight_that_is_no_number_is_refused(
    value: float, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(TINY, tmp_path / "model")
    weights = load_file(tmp_path / "model" / "model.safetensors")
    name = "model.layers.0.mlp.up_proj.weight"
    weights[name][0, 0] = value
    save_file(weights, tmp_path / "model" / "model.safetensors", {"format": "pt"})
    assert run.main([*RUNS["text"], *RUN, f"policy.model={tmp_path / 'model'}", f"out={tmp_path / 'r'}"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and name in told and "finite" in told
    assert not (tmp_path / "r").exists()


def algorithm() -> tuple[Any, Any]:
    module = plugins.load("algorithms", "q_learning")
    env = environment("frozenlake", rows=2)
    return module.make(module.Config(), env, None), env


@pytest.mark.parametrize("where", ["policy.extra", "optimizer.state", "buffer.sum", "count"])
def test_every_part_is_looked_at(where: str, tmp_path: Path) -> None:
    algo, env = algorithm()
    save(tmp_path, algo, env, Progress())
    part, _, key = where.partition(".")
    held = {part: {key: torch.tensor([1.0, math.nan])} if key else math.nan}
    with pytest.raises(Diverged, match=rf"^not finite: {where}; checkpoints written before are kept"):
        check_finite(algo, held)


NAN: list[Any] = [
    math.nan,
    np.float32("nan"),
    np.array([1, math.nan]),
    torch.tensor([math.nan]),
    torch.tensor(1j * math.nan),
]


@pytest.mark.parametrize("x", NAN, ids=lambda x: type(x).__name__)
def test_what_is_no_number_is_refused_whatever_holds_it(x: Any) -> None:
    algo, _ = algorithm()
    with pytest.raises(Diverged, match=r"^not finite: memory\.0;"):
        check_finite(algo, {"memory": [x]})


def test_infinity_is_no_harm_but_in_parameters() -> None:
    algo, _ = algorithm()
    mask, lowest = torch.tensor([0.0, -math.inf]), torch.tensor([math.inf])
    held = {"policy": {"mask": mask}, "change": math.inf, "lowest": lowest, "array": np.array([math.inf, 1])}
    check_finite(algo, held | {"ids": torch.ones(2).int(), "names": np.array(["a"])})
    with torch.no_grad():
        next(algo.policy.parameters()).view(-1)[0] = math.inf
    with pytest.raises(Diverged, match=r"^not finite: policy\.q\.weight;"):
        check_finite(algo, held)


def test_an_algorithm_without_parameters_is_finite() -> None:
    optimizer = SimpleNamespace(param_groups=[])
    check_finite(SimpleNamespace(optimizer=optimizer), {})


@pytest.mark.parametrize("value", ["1e-300", "1e300"])
def test_a_temperature_that_leaves_no_probabilities_is_one_line(
    value: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run.main([*RUNS["text"], *RUN, f"policy.temperature={value}", f"out={tmp_path / 'r'}"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and "policy.temperature" in told


def spoiled(tensors: dict[str, torch.Tensor], name: str, change: Any) -> dict[str, torch.Tensor]:
    """The first tensor of a checkpoint whose name has these words is another."""
    key = next(key for key in tensors if all(word in key for word in name.split()))
    return tensors | {key: change(tensors[key])}


@pytest.mark.parametrize(
    ("name", "change", "line"),
    [
        (
            "exp_avg_sq",
            lambda x: x - 1,
            "does not fit this run (ValueError: exp_avg_sq is negative)",
        ),
        ("exp_avg", lambda x: x.flatten()[:1].clone(), "(ValueError: exp_avg has the shape (1,), not "),
        ("env actions", lambda x: x.flatten()[:2].clone(), "'env' of its checkpoint does not fit this run"),
    ],
)
@pytest.mark.slow
def test_a_checkpoint_that_nobody_can_have_saved_is_refused(
    name: str, change: Any, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=dqn", "env=cartpole", "env.rows=2", "algo.warmup_steps=10", "algo.batch_size=4", "policy.hidden=4"]
    assert run.main([*words, *RUN, "evaluations=0", f"out={tmp_path}"]) == 0
    path = tmp_path / "checkpoints" / "latest.safetensors"
    metadata, tensors = raw(path)
    signed(path, metadata, spoiled(tensors, name, change))
    capsys.readouterr()
    assert run.main([f"resume={tmp_path}", "iterations=12"]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1 and line in told


@pytest.mark.parametrize(
    ("key", "value", "error"),
    [
        ("exp_avg", torch.tensor(0.0), ValueError),  # the fused kernel would write past its end
        ("exp_avg_sq", [], TypeError),
        ("exp_avg", None, KeyError),
        ("step", torch.zeros(3, 2), ValueError),
    ],
)
def test_a_state_that_a_kernel_would_trust_is_refused(key: str, value: Any, error: type[Exception]) -> None:
    parameters = [torch.nn.Parameter(torch.ones(3, 2)) for _ in range(2)]
    optimizer = torch.optim.AdamW(parameters, fused=True)
    for parameter in parameters:
        parameter.grad = torch.ones(3, 2)
    optimizer.step()
    made = options_of(optimizer)
    check_optimizer(optimizer, made)
    held = optimizer.state_dict()
    last = held["state"][1]
    changed = {name: x for name, x in last.items() if name != key} | ({} if value is None else {key: value})
    optimizer.load_state_dict(held | {"state": {0: held["state"][0], 1: changed}})
    with pytest.raises(error, match=key):
        check_optimizer(optimizer, made)


@pytest.mark.parametrize("name", ["AdamW", "RMSprop", "SGD"])
def test_the_state_of_every_optimizer_comes_back(name: str) -> None:
    parameter = torch.nn.Parameter(torch.tensor(1.0))
    for more in ({}, {"momentum": 0.9} if name != "AdamW" else {"amsgrad": True}):
        optimizer = getattr(torch.optim, name)([parameter], lr=0.1, **more)
        made = options_of(optimizer)
        parameter.grad = torch.tensor(2.0)
        optimizer.step()
        optimizer.load_state_dict(optimizer.state_dict())
        check_optimizer(optimizer, made)


def test_an_optimizer_that_computes_something_else_is_refused() -> None:
    optimizer = torch.optim.RMSprop([{"params": [torch.zeros(2)], "centered": True}])
    made = options_of(optimizer)
    check_optimizer(optimizer, made)
    group = optimizer.defaults | {"centered": False, "params": [0]}
    optimizer.load_state_dict({"state": {}, "param_groups": [group]})
    with pytest.raises(ValueError, match=r"^it computes .*'centered': False.*, not .*'centered': True"):
        check_optimizer(optimizer, made)


@pytest.mark.parametrize("key", ["betas", "eps", "weight_decay"])
def test_options_that_are_gone_or_flags_in_place_of_numbers_are_refused(key: str) -> None:
    optimizer = torch.optim.AdamW([torch.zeros(2)])
    made = options_of(optimizer)
    for wrong in (None, True):
        optimizer.param_groups[0][key] = wrong
        with pytest.raises(TypeError, match=f"^{key} is {wrong}$"):
            check_optimizer(optimizer, made)
    del optimizer.param_groups[0][key]
    with pytest.raises(TypeError, match=f"^{key} is None$"):
        check_optimizer(optimizer, made)


def test_a_learning_rate_of_one_element_is_one() -> None:
    optimizer = torch.optim.Adam([torch.zeros(2)], lr=torch.tensor([1e-3]))
    made = options_of(optimizer)
    for value in (1e-3, torch.tensor(1e-3), torch.tensor([2e-3])):
        optimizer.param_groups[0]["lr"] = value
        check_optimizer(optimizer, made)


@pytest.mark.parametrize("betas", [0, 0.9, (0.9,), (0.9, 0.99, 0.999)])
def test_other_numbers_than_an_optimizer_unpacks_are_refused(betas: Any) -> None:
    optimizer = torch.optim.AdamW([torch.zeros(2)])
    made = options_of(optimizer)
    optimizer.param_groups[0]["betas"] = betas
    with pytest.raises((TypeError, ValueError), match=r"^betas is"):
        check_optimizer(optimizer, made)
