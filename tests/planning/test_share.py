"""What each GPU holds: shares of what is sharded, adapters in place of weights, and what would fit."""

from dataclasses import asdict, replace

import pytest

from rlkit.language import footprint
from rlkit.planning.coefficients import USUAL
from rlkit.planning.memory import Model, decoder, kept, of_learner
from rlkit.planning.models import find
from rlkit.planning.predict import predict
from rlkit.planning.remedies import fits, remedies
from rlkit.planning.setting import Setting


def model(name: str = "0.5b", lora: int = 0) -> Model:
    return Model(*find(name), lora)


SMALL = model()
BIG = Setting(model="7b", gpus=8, shard="none", micro_steps=16384)
SEVEN = model("7b")


@pytest.mark.parametrize("rank", [0, 4])
def test_one_layer_and_two_tell_of_all(rank: int) -> None:
    shape = replace(find("135m")[1], layers=4)
    assert kept(shape, rank) == pytest.approx(footprint.kept_by(decoder(shape, rank)), rel=1e-12)


def test_weights_gradients_and_moments_are_four_four_and_eight_bytes() -> None:
    memory = of_learner(Setting(model="0.5b"), SMALL, False)
    total = SMALL.sizes.total
    assert (memory.parameters, memory.gradients, memory.moments) == (4 * total, 4 * total, 8 * total)
    assert (memory.engine, memory.gathered) == (2 * total, 0)
    assert memory.peak == 14 * total + max(memory.cache, memory.gradients + memory.activations)


@pytest.mark.parametrize("gpus", [2, 8, 64])
def test_a_shard_is_one_in_as_many_as_there_are_gpus(gpus: int) -> None:
    setting = Setting(model="0.5b", gpus=gpus)
    whole, share = (of_learner(setting, SMALL, sharded) for sharded in (False, True))
    for name in ("parameters", "gradients", "moments"):
        assert getattr(share, name) == getattr(whole, name) / gpus
    assert share.engine == whole.engine, "the engine has all of the weights"
    assert share.activations < whole.activations, "no second copy of the weights is kept"


def test_of_two_ranks_none_holds_more_than_half() -> None:
    setting = Setting(model="0.5b", gpus=2)
    whole, share = (of_learner(setting, SMALL, sharded) for sharded in (False, True))
    trained = [m.parameters + m.gradients + m.moments for m in (whole, share)]
    assert trained[1] <= 0.55 * trained[0]


@pytest.mark.parametrize("rank", [0, 16])
def test_a_checkpoint_has_what_is_trained_and_its_moments(rank: int) -> None:
    setting, given = Setting(model="0.5b", lora=rank), model(lora=rank)
    assert predict(setting, given).saving * 10 == pytest.approx(12 * given.trained / USUAL.disk)


def test_adapters_alone_have_gradients_and_moments() -> None:
    adapted = model(lora=16)
    memory = of_learner(Setting(model="0.5b", lora=16), adapted, False)
    frozen = SMALL.sizes.total
    assert adapted.trained < 0.03 * frozen
    assert memory.moments == 8 * adapted.trained
    assert memory.gradients == 4 * adapted.trained
    assert memory.parameters == 2 * frozen + 4 * adapted.trained, "what is frozen stays in bfloat16"


def test_an_engine_is_spread_over_its_gpus_and_pages_its_cache() -> None:
    setting = Setting(model="0.5b", gpus=8, engine="vllm", tensor=4, prompt_tokens=100, longest=900)
    memory = of_learner(setting, SMALL, False)
    assert memory.engine == 2 * SMALL.sizes.total / 4
    assert memory.cache == SMALL.sizes.stored * 1000 / 4


def test_gpus_that_only_write_leave_room_on_the_others() -> None:
    setting = Setting(model="0.5b", gpus=8, engine="vllm", engine_gpus=4)
    step = predict(setting, SMALL)
    assert (step.memory.engine, step.memory.cache) == (0, 0)
    busy = step.forward + step.learning + step.between
    assert step.together == min(step.writing.total, busy)
    assert step.total == pytest.approx(max(step.writing.total, busy) + step.transfer + step.saving)
    in_turn = predict(replace(setting, engine_gpus=0), SMALL)
    assert in_turn.total == pytest.approx(
        in_turn.writing.total + in_turn.forward + in_turn.learning + in_turn.between + in_turn.transfer + in_turn.saving
    )


def test_checkpointing_takes_more_time_and_less_memory() -> None:
    plain, again = (predict(Setting(model="0.5b", gradient_checkpointing=on), SMALL) for on in (False, True))
    assert again.learning == pytest.approx(plain.learning * 4 / 3)
    assert again.memory.activations < plain.memory.activations / 2


def test_a_reference_reads_everything_once_more() -> None:
    one, two = (predict(Setting(model="0.5b", kl=kl), SMALL) for kl in (False, True))
    assert two.forward == pytest.approx(2 * one.forward)


def test_a_reference_is_a_copy_of_the_weights_that_learn() -> None:
    one, two = (of_learner(Setting(model="0.5b", kl=kl), SMALL, False) for kl in (False, True))
    assert two.reference == SMALL.stored == two.peak - one.peak
    assert of_learner(Setting(model="0.5b", kl=True, gpus=8), SMALL, True).reference == SMALL.stored / 8
    adapted = Model("0.5b", SMALL.shape, 16)
    assert of_learner(Setting(model="0.5b", kl=True, lora=16), adapted, False).reference == 0


def test_one_gpu_waits_for_no_other_and_shards_nothing() -> None:
    step = predict(Setting(model="0.5b"), SMALL)
    assert (step.between, step.sharded, step.memory.gathered) == (0, False, 0)


def test_auto_shards_where_a_whole_copy_does_not_fit() -> None:
    assert not predict(Setting(model="0.5b", gpus=8), SMALL).sharded
    step = predict(Setting(model="7b", gpus=8), SEVEN)
    assert step.sharded and step.fits
    assert not predict(Setting(model="7b", gpus=8, shard="none"), SEVEN).fits


def test_auto_shards_by_the_rule_of_a_run() -> None:
    """In a run activations do not count: where only they are too much, the plan does not fit and says what helps."""
    long = Setting(model="0.5b", gpus=8, prompts=512, micro_steps=36864)
    assert not predict(long, SMALL).sharded and not predict(long, SMALL).fits
    assert predict(replace(long, shard="full"), SMALL).fits and {"shard": "full"} in remedies(long, SMALL)


@pytest.mark.slow
def test_what_is_proposed_fits_and_changes_few_keys() -> None:
    assert not predict(BIG, SEVEN).fits
    found = remedies(BIG, SEVEN)
    assert {"shard": "full", "gradient_checkpointing": True} in found or {"shard": "full", "micro_steps": 1024} in found
    assert all(fits(BIG, change, {0: SEVEN}) for change in found)
    assert len({len(change) for change in found}) == 1


def test_more_gpus_are_proposed_where_only_adapters_fit() -> None:
    alone = Setting(model="7b", gpu="a6000")
    found = remedies(alone, SEVEN)
    assert found and "lora" in found[0]
    assert found[-1]["gpus"] in (2, 4, 8) and "lora" not in found[-1]


def test_where_nothing_helps_nothing_is_proposed() -> None:
    assert remedies(Setting(model="0.5b", longest=10**9), SMALL) == []


@pytest.mark.parametrize("prompts", [63, 100, 512])
def test_more_gpus_are_proposed_for_the_prompts_that_were_asked_for(prompts: int) -> None:
    """As it is printed, beside the keys that were given: neither refused, nor of another number of prompts."""
    asked = Setting(model="7b", prompts=prompts)
    change = remedies(asked, SEVEN)[-1]
    assert isinstance(change["gpus"], int) and change["gpus"] > 1
    meant = Setting(**(asdict(asked) | change))
    assert predict(meant, SEVEN).fits and prompts <= (meant.prompts or 0) < prompts + change["gpus"]
