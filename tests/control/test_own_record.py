"""What `record` of a policy of one's own returns: keys beside those that were played, and nothing in their place."""

from typing import Any

import pytest
import torch
from rlkit.envs import cartpole
from tensordict import TensorDict

from rlkit import buffers, policies, seeding
from rlkit.api import UserError


class Own(policies.PolicyModule):
    def __init__(self, noted: Any) -> None:
        super().__init__(seeding.generator(0, "action"))
        self.noted = noted

    def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
        return torch.zeros(len(observation), dtype=torch.long)

    def record(self, batch: TensorDict) -> Any:
        return self.noted


def played(noted: Any) -> TensorDict:
    env = cartpole.make(cartpole.Config(rows=2), 0, torch.device("cpu"))
    return env.rollout(Own(noted), steps=3)


@pytest.mark.parametrize("key", ["reward", "mask", "done", "terminated", "score", "episode_return", "action"])
def test_what_was_played_is_not_written_over(key: str) -> None:
    """`rollout/return` and the steps that count would be others than those that were played."""
    with pytest.raises(UserError, match=rf"^Own\.record returned '{key}', which the rollout has already: "):
        played({"value": torch.zeros(2, 3), key: torch.zeros(2, 3)})


def test_a_record_without_return_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^Own\.record returned a NoneType: let it return a dict of tensors$"):
        played(None)


def test_other_keys_are_added() -> None:
    bonus = torch.rand(2, 3)
    assert torch.equal(played({"bonus": bonus})["bonus"], bonus)
    assert "bonus" in played(TensorDict({"bonus": bonus}, batch_size=[2])).keys()
    assert set(played({}).keys()) == set(played({"bonus": bonus}).keys()) - {"bonus"}


def test_the_log_probability_of_an_engine_may_be_replaced() -> None:
    rollout = TensorDict({"log_prob": torch.zeros(2, 3), "mask": torch.ones(2, 3)}, batch_size=[2])
    assert buffers.recorded(Own({"log_prob": torch.ones(2, 3)}), rollout)["log_prob"].all()
