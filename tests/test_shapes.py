"""Losses and returns refuse shapes that would broadcast."""

import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import get_args

import pytest
import torch
from torch import Tensor

from rlkit import divergences, gaps, group_scores, losses, preference_losses, returns, shapes

SETS = {
    "cap": 2.0,
    "gamma": 0.9,
    "lam": 0.9,
    "n": 2,
    "low": 0.2,
    "high": 0.2,
    "bound": 3.0,
    "positive": 1.0,
    "scale": 0.5,
    "negative": 1.0,
}
SETS |= {"cap": 2.0, "beta": 0.1, "clip": 0.2}
ONE = {"reduction", "overlong"}  # one tensor of any shape


def public(*modules: ModuleType) -> list[Callable[..., object]]:
    found = {name: x for module in modules for name, x in vars(module).items() if inspect.isfunction(x)}
    return [x for name, x in found.items() if not name.startswith("_") and x.__module__ != shapes.__name__]


def tensors(function: Callable[..., object]) -> list[str]:
    annotations = {name: x.annotation for name, x in inspect.signature(function).parameters.items()}
    return [name for name, x in annotations.items() if x is Tensor or Tensor in get_args(x)]


FUNCTIONS = public(losses, returns, gaps, divergences, preference_losses, group_scores)
SEVERAL = [x for x in FUNCTIONS if len(tensors(x)) > 1]
GROUPS = [x for x in FUNCTIONS if len(tensors(x)) == 1 and x.__name__ not in ONE]


def cases() -> Iterator[tuple[Callable[..., object], str]]:
    for function in SEVERAL:
        yield from ((function, name) for name in tensors(function))


def test_every_public_function_is_looked_at() -> None:
    assert len(SEVERAL) == 35 and len(GROUPS) == 7
    assert all(x.__module__ == group_scores.__name__ for x in GROUPS)


@pytest.mark.parametrize(("right", "wrong"), [((3, 4), (3, 1)), ((5,), (5, 1)), ((5, 1), (5,))])
@pytest.mark.parametrize(("function", "name"), list(cases()), ids=lambda x: x if isinstance(x, str) else x.__name__)
def test_one_tensor_of_another_shape_is_refused_by_name(
    function: Callable[..., object], name: str, right: tuple[int, ...], wrong: tuple[int, ...]
) -> None:
    need = [x for x, p in inspect.signature(function).parameters.items() if p.default is inspect.Parameter.empty]
    given = {x: torch.zeros(right) if x in tensors(function) else SETS[x] for x in [*need, name]}
    given[name] = torch.zeros(wrong)
    with pytest.raises(ValueError, match="the shapes must be equal: ") as error:
        function(**given)
    assert f"{name} {list(wrong)}" in str(error.value) and f"{list(right)}" in str(error.value)


@pytest.mark.parametrize("function", GROUPS, ids=lambda x: x.__name__)
@pytest.mark.parametrize("shape", [(6,), (2, 3, 4)])
def test_scores_that_are_not_in_groups_are_refused(function: Callable[..., object], shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"score must have the shape \[P, G\]"):
        function(torch.zeros(shape))


def test_a_discount_per_step_goes_into_the_target() -> None:
    reward, value, no = torch.tensor([1.0, 1.0]), torch.tensor([2.0, 4.0]), torch.tensor([False, False])
    assert returns.td_target(reward, value, no, torch.tensor([0.5, 0.25])).tolist() == [2.0, 2.0]
