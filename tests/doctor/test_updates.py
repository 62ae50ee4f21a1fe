"""The size of an update is measured on whatever is moved by then."""

from pathlib import Path

import pytest
import torch
from support.resuming import cut, differences, metrics

from rlkit import new, run
from rlkit.doctor.doctor import Doctor


def test_the_parameters_of_an_update_may_have_other_memory() -> None:
    """As `p.data = ...` gives them, in SAM or in averages of weights."""
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    doctor, optimizer = Doctor(), torch.optim.Adam([weight], lr=0.1)
    doctor.attach(optimizer)
    weight.data = torch.tensor([6.0, 8.0])
    weight.grad = torch.ones(2)
    optimizer.step()
    assert doctor.update == pytest.approx([0.1 * 2**0.5, 10.0], rel=1e-5)


def test_parameters_may_lie_in_any_order_of_memory() -> None:
    """Columns after columns, as torch.linalg.qr returns them."""
    weight = torch.nn.Parameter(torch.tensor([[3.0, 0.0, 0.0], [0.0, 4.0, 0.0]]).T.contiguous().T)
    assert not weight.is_contiguous()
    doctor, optimizer = Doctor(), torch.optim.Adam([weight], lr=0.1)
    doctor.attach(optimizer)
    weight.grad = torch.ones(2, 3)
    optimizer.step()
    assert doctor.update == pytest.approx([0.1 * 6**0.5, 5.0], rel=1e-5)


def test_one_optimizer_is_measured_and_each_step_once() -> None:
    weight = torch.nn.Parameter(torch.tensor([3.0, 4.0]))
    doctor, first, second = Doctor(), torch.optim.Adam([weight], lr=0.1), torch.optim.Adam([weight], lr=0.2)
    for optimizer in (first, first, second):
        doctor.attach(optimizer)
    weight.grad = torch.ones(2)
    first.step()
    assert not doctor.update
    second.step()
    assert doctor.update[0] == pytest.approx(0.2 * 2**0.5, rel=1e-5)


RESET = """

import torch


class make(Algorithm):
    def after_step(self, learned):
        if self.progress > 0.3:
            self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=self.config.lr)

    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.optimizer = torch.optim.Adam(self.policy.parameters(), lr=config.lr)
"""


def test_an_optimizer_that_is_made_anew_is_measured_as_after_a_resume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    with (tmp_path / "mine.py").open("a", encoding="utf-8") as file:
        file.write(RESET)
    words = [f"algo={tmp_path / 'mine.py'}", "env=cartpole", "iterations=6", "evaluations=0", "evaluation_episodes=2"]
    assert run.main([*words, "checkpoint_every=1", f"out={tmp_path / 'whole'}"]) == 0
    cut([*words, "checkpoint_every=1"], tmp_path / "cut", monkeypatch)
    assert run.main([f"resume={tmp_path / 'cut'}", "trust=true"]) == 0
    assert not differences(tmp_path / "whole", tmp_path / "cut")
    assert all(0 < line["train/update_ratio"] < 1 for line in metrics(tmp_path / "whole"))
