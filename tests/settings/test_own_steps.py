"""Mistakes of a first algorithm: a step that is missing or misspelt, or returns something else."""

from pathlib import Path

import pytest

from rlkit import new, run

INHERITED = """
from rlkit.algorithms import ppo

Config = ppo.Config


class Mine(ppo.Algorithm):
    def credit(self, rollout):
        return rollout


make = Mine
"""
MISTAKES = {
    ("def loss(", "def los("): "/mine.py: Algorithm has no loss: write it, or inherit it from another algorithm",
    ("def rollout(", "def play("): "/mine.py: Algorithm has no rollout: write it, or inherit it from another algorithm",
    ("self.optimizer =", "self.adam ="): (
        "/mine.py: Algorithm has no optimizer; "
        "set it in its __init__: self.optimizer = policies.adam(self.policy, config)"
    ),
    ("return rollout.set(", "rollout.set("): (
        "rlkit: Algorithm.credit returned a NoneType: let it return the rollout, a TensorDict"
    ),
    ("return rollout.set(", "return rollout.select().set("): (
        "rlkit: Algorithm.credit returned no key mask: let it return the rollout, with all its keys"
    ),
    ("adam(self.policy, config)", "adam(self.policy, config)\n        self.policy = __import__('torch').nn.Tanh()"): (
        "/mine.py: self.policy, a Tanh, has no name, dtype, micro_steps, refresh, record: "
        "let it inherit policies.PolicyModule"
    ),
    ("class Config(policies.Optimization)", "class Config"): (
        "rlkit: policies.adam reads beta2, adam_eps, weight_decay of Config: let it inherit policies.Optimization"
    ),
    ('batch["weight"]), metrics', 'batch["weight"])'): (
        'rlkit: Algorithm.loss returned a Tensor: let it return (each * batch["weight"]).sum(), metrics'
    ),
    ('losses.weighted(each, batch["weight"])', "each"): (
        '): let it return (each * batch["weight"]).sum(), metrics'  # a loss of the shape (46,)
    ),
    ('batch["weight"]), metrics', 'batch["weight"]), None'): (
        'rlkit: Algorithm.loss returned (Tensor, NoneType): let it return (each * batch["weight"]).sum(), metrics'
    ),
    ('batch["weight"]), metrics', 'batch["weight"]).detach(), metrics'): (
        "rlkit: Algorithm.loss returned a loss without a gradient: compute it from self.policy.evaluate(batch)"
    ),
    ('to_go, rollout["mask"])', 'to_go, rollout["mask"]).mean(-1)'): (
        "rlkit: credit gave the advantage the shape (8,), and it is learned step by step: "
        "give one for each step, (8, 46)"
    ),
}


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_a_step_is_one_line(
    right: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    file = tmp_path / "mine.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    assert run.main([f"algo={file}", "env=cartpole", "iterations=1", f"out={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err.endswith(f"{MISTAKES[right, wrong]}\n")


def test_what_inherits_the_interface_in_place_of_an_algorithm_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(INHERITED)
    assert run.main([f"algo={tmp_path}/mine.py", "env=cartpole", f"out={tmp_path / 'run'}"]) == 2
    assert "/mine.py: Mine has no __init__, rollout, loss: write it, or inherit it from" in capsys.readouterr().err
