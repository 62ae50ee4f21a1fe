"""How far apart who writes and who learns may be."""

import pytest
import torch
from support.parrot import Parrot
from support.sick import name
from tensordict import TensorDict

from rlkit.doctor import Doctor
from rlkit.doctor.symptoms import of_ratios, of_sampler


def test_an_engine_that_is_far_from_the_learner_is_named() -> None:
    mask = torch.tensor([[True, True, False]])
    ours, theirs = torch.tensor([[-1.0, -2.0, 0.0]]), torch.tensor([[-1.2, -2.4, 9.0]])
    rollout = TensorDict({"mask": mask, "log_prob": ours, "sampler_log_prob": theirs}, batch_size=[1])
    found = {key: float(x) for key, x in of_sampler(rollout).items()}
    assert found == pytest.approx({"rollout/sampler_gap": 0.3})
    assert name(Doctor(), [found] * 3) == ["sampler"]
    assert name(Doctor(), [{"rollout/sampler_gap": 0.05}] * 3) == []


def test_a_narrow_clip_asks_for_a_ratio_that_is_nearer_to_1() -> None:
    ratio = torch.full((8,), 1 + 1e-4)
    assert float(of_ratios([[(ratio, ratio > 0)]], Parrot())["tolerance"]) == 1e-3
    found = of_ratios([[(ratio, ratio > 0)]], Parrot(), clip_width=3e-4)
    assert float(found["first_ratio"]) > float(found["tolerance"]) == pytest.approx(3e-5)
