"""Frozen weights in a checkpoint: fingerprints where the model they came from has them, and the weights where not."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from rlkit.errors import UserError
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.reward_model import RewardModel
from rlkit.policies import frozen_copy
from rlkit.seeding import generator

LORA = LanguageNetwork(lora=2)


def stored(policy: LanguageModel | RewardModel) -> set[str]:
    return {name for name, x in policy.state_dict().items() if isinstance(x, Tensor)}


def spoil(policy: LanguageModel) -> LanguageModel:
    """Every parameter another one."""
    with torch.no_grad():
        for p in policy.parameters():
            p.add_(1.0)
    return policy


def equal(one: torch.nn.Module, other: torch.nn.Module) -> bool:
    return all(torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))


def test_of_a_policy_with_adapters_only_they_are_stored_and_all_comes_back() -> None:
    policy = LORA.build(seed=1)
    assert stored(policy) == {name for name, p in policy.named_parameters() if p.requires_grad}
    state = {name: x.clone() if isinstance(x, Tensor) else x for name, x in policy.state_dict().items()}
    back = LORA.build(seed=2)
    assert not equal(back, policy)
    assert not any(back.load_state_dict(state))
    assert equal(back, policy)


def test_a_reference_of_a_model_that_is_trained_whole_is_a_fingerprint() -> None:
    policy = LanguageNetwork().build()
    reference = policy.reference()
    spoil(policy)
    assert stored(policy) == {name for name, _ in policy.named_parameters()} and stored(reference) == set()
    back = LanguageNetwork().build().reference()
    back.load_state_dict(reference.state_dict())
    assert equal(back, LanguageNetwork().build())


@pytest.mark.parametrize("fresh", [False, True])
def test_a_reference_has_no_value_head_and_reads_what_an_earlier_version_kept_with_one(fresh: bool) -> None:
    """Shards never had one there, and any number of ranks goes on with a run."""
    network = LanguageNetwork(fresh=fresh)
    reference = network.build(value_head=True).reference()
    state = reference.state_dict()
    assert not any("value_head" in key for key in (*state, *state.get("frozen", {})))
    reference.load_state_dict(frozen_copy(network.build(value_head=True)).state_dict())
    assert equal(reference, network.build())


def test_frozen_weights_that_have_moved_since_are_stored() -> None:
    """A running average of the policy is frozen, too, and no source has it; so is what was taken later."""
    average = frozen_copy(LanguageNetwork().build())
    moved = average.decoder.model.norm.weight
    moved.data.mul_(0.5)  # which torch does not count as a change
    assert stored(average) == {"decoder.model.norm.weight"}
    back = frozen_copy(LanguageNetwork().build())
    back.load_state_dict(average.state_dict())
    assert equal(back, average)
    later = spoil(LanguageNetwork().build()).reference()
    assert stored(later) == {name for name, _ in later.named_parameters()}


def test_random_weights_have_no_source_and_are_stored() -> None:
    reference = LanguageNetwork(fresh=True).build().reference()
    assert stored(reference) == {name for name, _ in reference.named_parameters()}


def test_what_an_earlier_version_stored_whole_is_read() -> None:
    policy = LORA.build(seed=1)
    whole = {name: p.detach().clone() for name, p in policy.named_parameters()}
    back = LORA.build(seed=2)
    assert not any(back.load_state_dict(whole))
    assert equal(back, policy)


def test_a_reward_models_writer_and_its_base_are_fingerprints() -> None:
    judge = RewardModel.on(LORA.build(), writes=True)
    assert stored(judge) == {name for name, p in judge.named_parameters() if p.requires_grad}
    back = RewardModel.on(LORA.build(seed=2), writes=True)
    back.load_state_dict(judge.state_dict())
    assert equal(back, judge)
    whole = RewardModel.on(LanguageNetwork().build(), writes=True)
    assert all(not name.startswith("writer.") for name in stored(whole))


def test_other_weights_than_those_of_the_checkpoint_are_refused_in_one_line(tmp_path: Path) -> None:
    keys = LanguageNetwork(model=str(tmp_path), lora=2)
    start = LanguageModel.load("tiny")
    start.save(tmp_path)
    state = keys.build().state_dict()
    start.decoder.initialize(generator(0, "other"))
    start.save(tmp_path)
    with pytest.raises(UserError, match=r"^policy.model=.* has other weights than when the run began, and .* back$"):
        keys.build().load_state_dict(state)
