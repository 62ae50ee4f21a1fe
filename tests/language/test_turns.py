"""Rows of several turns: the mask has gaps, where the environment or a tool wrote."""

import pytest
import torch
from support.small_model import TOKENIZER, model
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit.seeding import generator

ACTED = [[0, 1, 1, 0, 0, 1, 1, 1], [1, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1], [0, 1, 0, 1, 0, 1, 0, 1]]


@pytest.fixture
def turns() -> TensorDict:
    tokens = torch.randint(len(TOKENIZER), (4, 9), generator=generator(0, "tokens"))
    batch = {"observation": tokens[:, :-1], "action": tokens[:, 1:], "mask": torch.tensor(ACTED, dtype=torch.bool)}
    return TensorDict(batch, batch_size=4)


def with_values():
    policy = model(value_head=True, temperature=0.7)
    with torch.no_grad():
        policy.value_head.weight.normal_(generator=generator(0, "head"))
    return policy


def test_the_next_value_of_an_acted_step_is_that_of_the_next_acted_step(turns):
    policy = with_values()
    every = policy.record(TensorDict({**turns, "mask": torch.ones(4, 8, dtype=torch.bool)}, batch_size=4))["value"]
    found = policy.record(turns)
    for row, acted in enumerate(ACTED):
        places = [t for t, a in enumerate(acted) if a]
        value, following = torch.zeros(8), torch.zeros(8)
        for place, after in zip(places, [*places[1:], None], strict=True):
            value[place] = every[row, place]
            following[place] = 0 if after is None else every[row, after]
        assert_close(found["value"][row], value)
        assert_close(found["next_value"][row], following)


def test_groups_of_turns_are_recorded_row_by_row(turns):
    policy = with_values()
    rows, groups = policy.record(turns), policy.record(turns.view(2, 2))
    for key in ("value", "next_value"):
        assert_close(groups[key].view(4, 8), rows[key])


def test_log_probabilities_stand_where_the_policy_acted(turns):
    policy = with_values()
    found = policy.evaluate(turns)
    logits = policy.decoder.logits(policy.decoder(turns["observation"])) / 0.7
    expected = logits.log_softmax(-1).gather(-1, turns["action"][..., None])[..., 0] * turns["mask"]
    assert_close(found["log_prob"], expected)
    found["log_prob"].sum().backward()


def test_a_row_in_which_nobody_acted_has_no_values(turns):
    policy = with_values()
    turns["mask"][1] = False
    found = policy.record(turns)
    assert not found["value"][1].any() and not found["next_value"][1].any() and found["next_value"][0].any()


def test_texts_of_several_turns_are_decoded_without_what_others_wrote(turns):
    texts = model().decode(turns)
    rows = zip(turns["action"], turns["mask"], strict=True)
    assert texts == TOKENIZER.decode([row[acted].tolist() for row, acted in rows])
