"""What a loss reports is averaged; what cannot be is named."""

import itertools
import math
from typing import Any

import pytest
import torch
from tensordict import TensorDict

from rlkit import meter as meter_module
from rlkit.api import Elementwise, UserError
from rlkit.doctor import Doctor
from rlkit.meter import Clock, Meter, averages, detached, ratios_of
from rlkit.progress import Progress


@pytest.mark.parametrize("value", ["high", None, 0.5, [1.0]], ids=str)
def test_a_metric_that_is_no_tensor_is_named(value: Any) -> None:
    kind = type(value).__name__
    with pytest.raises(UserError, match=rf"^the metric 'mood' of a loss is a {kind}: give a tensor, or leave it out$"):
        detached({"kl": torch.zeros(3), "mood": value})
    with pytest.raises(UserError, match=rf"^the metric 'mood' of a loss is a {kind}: give a tensor, or leave it out$"):
        detached({"mood": Elementwise(torch.add, (torch.zeros(3), value))})


@pytest.mark.parametrize("name", ["loss", "grad_norm", "update_ratio", "ess"])
def test_a_metric_with_the_name_of_one_of_the_loop_is_refused(name: str) -> None:
    """Its average would be of both, or the doctor would take one for the other."""
    with pytest.raises(UserError, match=f"^the metric .{name}. of a loss has the name of rlkit.s own train/{name}: "):
        detached({name: torch.zeros(3)})


def test_a_metric_of_your_own_that_the_doctor_measures_too_stays_in_its_line() -> None:
    """The checks look at it; a line with the doctor's number would say another one under the same name."""
    seen, own = {"train/explained_variance": 0.5, "train/ess": 1.0}, {"train/explained_variance": -7.0}
    found = Doctor().name(seen, own, 1, lambda name, message: None)
    assert found == {"train/explained_variance": -7.0, "train/ess": 1.0}


def test_a_metric_of_any_shape_is_averaged() -> None:
    meter = Meter()
    mask = torch.tensor([[True, False], [True, True]])
    for _ in range(2):
        meter.add(
            {"one": torch.tensor(2.0), "row": torch.tensor([1.0, 3.0]), "odd": torch.eye(3), "none": torch.zeros(0)},
            mask,
        )
    assert meter.read() == {"one": 2.0, "row": 2.0, "odd": pytest.approx(1 / 3)}


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_a_metric_counts_no_masked_step_whatever_it_is_there(wild: float) -> None:
    """Such as 1/G of a row of whole episodes, whose return G behind the end is 0."""
    meter, x = Meter(), torch.tensor([[1.0, wild], [2.0, 6.0]])
    mask = torch.tensor([[True, False], [True, True]])
    meter.add({"share": x, "later": Elementwise(torch.neg, (x,))}, mask)
    assert meter.read() == {"share": 3.0, "later": -3.0}


def test_an_elementwise_metric_is_called_once_for_all_batches_and_averages_the_same() -> None:
    """Rows of different lengths, as micro-batches have them, and batches without time."""
    calls = []

    def gap(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        calls.append(x.shape)
        return (x - y).abs()

    generator = torch.Generator().manual_seed(0)
    for shapes in (((2, 3), (4, 5)), ((6,), (2,))):
        lazy, eager = Meter(), Meter()
        lazy.begin()
        eager.begin()
        for shape in shapes:
            x, y = torch.rand(2, *shape, generator=generator)
            mask = torch.rand(shape, generator=generator) > 0.3
            lazy.add({"gap": Elementwise(gap, (x, y)), "ratio": Elementwise(torch.exp, (x,))}, mask)
            eager.add({"gap": (x - y).abs(), "ratio": x.exp()}, mask)
        lazy.settle()
        assert calls.pop() == (sum(math.prod(shape) for shape in shapes),) and not calls
        assert lazy.read() == pytest.approx(eager.read())
        assert torch.equal(ratios_of(lazy.ratios[0]), ratios_of(eager.ratios[0]))


def test_only_the_ratios_of_the_first_and_the_last_minibatch_are_kept_and_of_these_all() -> None:
    meter, mask = Meter(), torch.ones(1, dtype=torch.bool)
    for value in (1.0, 2.0, 3.0):
        meter.begin()
        for micro_batch in (value, value + 0.5):
            meter.add({"ratio": torch.tensor([micro_batch])}, mask)
    assert [ratios_of(parts).tolist() for parts in meter.ratios] == [[1.0, 1.5], [3.0, 3.5]]


def test_what_is_kept_until_the_end_of_an_iteration_holds_no_graph() -> None:
    meter, x = Meter(), torch.ones(3, requires_grad=True)
    meter.add({"twice": 2 * x, "log": Elementwise(torch.log, (3 * x,))})
    (twice, _), (log, _) = meter.waiting["twice"][0], meter.waiting["log"][0]
    assert isinstance(twice, torch.Tensor) and not twice.requires_grad
    assert isinstance(log, Elementwise) and not log.tensors[0].requires_grad
    assert meter.read() == pytest.approx({"twice": 2.0, "log": math.log(3)})


def test_a_metric_of_no_step_is_left_out() -> None:
    meter = Meter()
    meter.add({"entropy": torch.ones(2, 3)}, torch.zeros(2, 3, dtype=torch.bool))
    assert meter.read() == {}


@pytest.mark.parametrize(
    "state", [{"sums": {"kl": "1"}}, {"episodes": [(1.0, "1")]}, {"episodes": [(torch.zeros(1), 1)]}]
)
def test_a_state_of_what_is_no_number_is_refused(state: Any) -> None:
    good = {"sums": {"kl": torch.tensor(1.0)}, "counts": {"kl": 2}, "episodes": [(1.0, 3)]}
    Meter().load_state_dict(good)
    with pytest.raises(TypeError, match="stands in place of a number"):
        Meter().load_state_dict(good | state)


@pytest.mark.parametrize("key", ["streaks", "past"])
def test_a_state_of_the_doctor_that_is_no_number_is_refused(key: str) -> None:
    state = Progress().state_dict()
    state["doctor"][key] = {"lowest": torch.zeros(2)}
    with pytest.raises(TypeError, match="stands in place of a number"):
        Progress().load_state_dict(state)


class Time:
    """Stands in for the module `time`."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


def test_saving_takes_a_twentieth_of_the_time_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    """A save of 3 seconds, asked for at each second, with an evaluation each time, is due once a minute."""
    time = Time()
    monkeypatch.setattr(meter_module, "time", time)
    clock, spent, times = Clock(0), 0.0, []
    while time.now < 1100:
        time.now += 1
        if clock.save_is_due(evaluated=True):
            times.append(time.now)
            with clock.saving():
                time.now += 3
                spent += 3
    assert times[0] == 101 and {b - a for a, b in itertools.pairwise(times)} == {60}
    assert spent / 1000 <= 0.05 + 3 / 1000


def test_a_save_that_takes_no_time_is_due_after_twice_as_long_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    monkeypatch.setattr(meter_module, "time", time)
    clock, times = Clock(0), []
    while time.now < 300:
        time.now += 1
        if clock.save_is_due(evaluated=False):
            with clock.saving():
                times.append(time.now - 100)
    assert times == [5, 15, 35, 75, 135, 195]


def test_what_a_reward_gave_is_averaged_where_it_had_an_opinion() -> None:
    meter = Meter()
    for given, rated in (([1.0, 0.0], [True, False]), ([0.5, 2.0], [True, True]), ([0.0, 0.0], [False, False])):
        rollout = TensorDict({"reward/mine": torch.tensor(given), "rated/mine": torch.tensor(rated)}, batch_size=[2])
        meter.play(rollout)
    assert averages(meter) == {"reward/mine": pytest.approx(3.5 / 3)}
    nothing = {"reward/mine": torch.zeros(2), "rated/mine": torch.zeros(2, dtype=torch.bool)}
    meter.play(TensorDict(nothing, batch_size=[2]))
    assert averages(meter) == {}, "nobody said anything"
