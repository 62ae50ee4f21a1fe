"""What optimizers keep for each parameter comes back as it was."""

from pathlib import Path

import pytest
import torch
from support.resuming import same
from support.state import holding

from rlkit.progress import Progress, restore, save

OPTIMIZERS = ("Adadelta", "Adagrad", "Adam", "Adamax", "AdamW", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop", "SGD")


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_an_optimizer_of_torch_goes_on_as_if_it_had_not_stopped(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    """Some keep a number in float32 for each parameter, whatever that is of."""

    def learn(optimizer: torch.optim.Optimizer, steps: int) -> torch.Tensor:
        (weight,) = optimizer.param_groups[0]["params"]
        for _ in range(steps):
            weight.grad = torch.cos(weight.detach())
            optimizer.step()
        moved: torch.Tensor = weight.detach()
        return moved

    weights = [torch.linspace(-1, 1, 5, dtype=dtype).requires_grad_() for _ in range(2)]
    one, two = (getattr(torch.optim, name)([weight], lr=0.01) for weight in weights)
    algo, env = holding("second", one, saved=("second",))
    weights[1].data.copy_(learn(one, 3))
    save(tmp_path, algo, env, Progress())
    restore(tmp_path, *holding("second", two, saved=("second",)))
    assert same(two.state_dict(), one.state_dict())
    assert torch.equal(learn(one, 3), learn(two, 3))
