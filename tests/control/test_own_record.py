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


@pytest.mark.parametrize("key", ["reward/bonus", "rated/bonus"])
def test_the_names_of_reward_functions_are_kept(key: str) -> None:
    """What is logged under them is a mean over the rows that a reward function rated."""
    with pytest.raises(UserError, match=rf"^Own\.record returned '{key}', a name of reward functions: "):
        played({key: torch.zeros(2, 3)})


def test_a_record_without_return_is_one_line() -> None:
    with pytest.raises(UserError, match=r"^Own\.record returned a NoneType: let it return a dict of tensors$"):
        played(None)


def test_other_keys_are_added() -> None:
    bonus = torch.rand(2, 3)
    assert torch.equal(played({"bonus": bonus})["bonus"], bonus)
    assert "bonus" in played(TensorDict({"bonus": bonus}, batch_size=[2])).keys()
    assert set(played({}).keys()) == set(played({"bonus": bonus}).keys()) - {"bonus"}


class InPlace(Own):
    """Adds to the rollout, and returns it as it is then, in all or in part."""

    def record(self, batch: TensorDict) -> Any:
        batch["bonus"] = torch.ones(2, 3)
        if "reward" in self.noted:
            return batch.update(self.noted)
        return batch.select(*self.noted) if self.noted else batch


@pytest.mark.parametrize("parts", [(), ("bonus",), ("bonus", "mask")])
def test_what_was_played_may_be_returned_as_it_was(parts: tuple[str, ...]) -> None:
    env = cartpole.make(cartpole.Config(rows=2), 0, torch.device("cpu"))
    assert env.rollout(InPlace(parts), steps=3)["bonus"].all()
    with pytest.raises(UserError, match=r"^InPlace\.record returned 'reward', which the rollout has already: "):
        env.rollout(InPlace({"reward": torch.zeros(2, 3)}), steps=3)


def test_the_log_probability_of_an_engine_may_be_replaced() -> None:
    rollout = TensorDict({"log_prob": torch.zeros(2, 3), "mask": torch.ones(2, 3)}, batch_size=[2])
    assert buffers.recorded(Own({"log_prob": torch.ones(2, 3)}), rollout)["log_prob"].all()
