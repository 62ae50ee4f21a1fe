"""The seconds of each phase, by hand on a model and a GPU of small numbers."""

from dataclasses import replace

import pytest
import torch

from rlkit.language.decoder import Decoder
from rlkit.language.shape import Shape
from rlkit.planning.coefficients import Coefficients
from rlkit.planning.hardware import Gpu
from rlkit.planning.models import KINDS, adapters, config, find, sizes
from rlkit.planning.seconds import (
    Texts,
    between,
    casting,
    computing,
    operations,
    passes,
    saving,
    step_of,
    transfer,
    writing,
)

SMALL = {
    "model_type": "llama",
    "hidden_size": 4,
    "intermediate_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "vocab_size": 10,
    "tie_word_embeddings": True,
}
OF = sizes(Shape.read(SMALL))
GPU = Gpu(peak=1000.0, bandwidth=500.0, memory=1e4, link=100.0, network=10.0)
KNOWN = Coefficients(use=0.5, stream=0.8, layer=0.25, handover=3.0, carried=100.0, disk=50.0, links=0.5)


def test_parameters_are_counted_from_the_shape() -> None:
    assert OF.layer == 4 * (2 * 4 + 2 * 2 + 3 * 8)  # q and o; k and v; gate, up and down
    assert (OF.head, OF.attended) == (40, 4)
    assert OF.total == 2 * (144 + 8) + 4 + 40  # with two norms a layer, and the last one
    assert OF.multiplied == 2 * 144 + 40
    assert OF.stored == 2 * 2 * 2 * 2  # keys and values, bfloat16, one head of size 2, two layers
    assert adapters(Shape.read(SMALL), 3) == 3 * 2 * (2 * (4 + 4) + 2 * (4 + 2) + 3 * (4 + 8))


def test_known_models_have_the_parameters_of_the_decoder() -> None:
    for name in KINDS:
        shape = Shape.read(config(name) | {"num_hidden_layers": 2})
        with torch.device("meta"):
            decoder = Decoder(shape)
        assert sizes(shape).total == sum(p.numel() for p in decoder.parameters()), name


@pytest.mark.parametrize(
    ("name", "billions"),
    [("0.5b", 0.494), ("1.5b", 1.54), ("7b", 7.61), ("32b", 32.8), ("72b", 72.7), ("8b", 8.03), ("70b", 70.6)],
)
def test_known_models_are_as_large_as_their_makers_say(name: str, billions: float) -> None:
    assert sizes(find(name)[1]).total / 1e9 == pytest.approx(billions, rel=0.006)


def test_operations_are_two_a_weight_and_those_of_attention() -> None:
    assert operations(OF, tokens=10, length=6, passes=3) == 3 * 10 * (2 * 328 + 2 * 4 * 6 * 2)
    assert [passes(lora, again) for lora in (False, True) for again in (False, True)] == [3, 4, 2, 3]


def test_gpus_share_what_is_computed() -> None:
    one = computing(GPU, 1, OF, 10, 6, 3, KNOWN)
    assert one == pytest.approx(22560 / 500)
    assert computing(GPU, 4, OF, 10, 6, 3, KNOWN) == pytest.approx(one / 4)


def test_a_step_of_writing_reads_weights_and_caches() -> None:
    fixed, each = step_of(GPU, 1, OF, context=20, known=KNOWN)
    assert fixed == pytest.approx(2 * 328 / 400 + 2 * 0.25)
    assert each == pytest.approx(20 * 16 / 400 + 2 * 328 / 500)
    halved, less = step_of(GPU, 2, OF, context=20, known=KNOWN)
    assert halved == pytest.approx(2 * 328 / 800 + 2 * 0.25), "a layer's own time stays"
    assert less == pytest.approx(each / 2)


def test_writing_lasts_until_the_longest_answer_has_ended() -> None:
    texts = Texts(prompts=4, group=2, prompt=5, answer=10, longest=30)
    fixed, each = step_of(GPU, 1, OF, context=10, known=KNOWN)
    found = writing(GPU, 2, 1, OF, texts, most=100, known=KNOWN)
    assert found.prompts == pytest.approx(operations(OF, 20, 5, 1) / 1000)
    assert found.full == pytest.approx(10 * fixed + 4 * 10 * each), "four texts to an engine"
    assert found.waiting == pytest.approx(20 * fixed)
    assert found.total == pytest.approx(found.prompts + found.full + found.waiting)
    assert writing(GPU, 2, 1, OF, replace(texts, longest=10), 100, KNOWN).waiting == 0


def test_more_texts_than_an_engine_holds_take_turns() -> None:
    texts = Texts(prompts=4, group=2, prompt=5, answer=10, longest=10)
    fixed, each = step_of(GPU, 1, OF, context=10, known=KNOWN)
    assert writing(GPU, 1, 1, OF, texts, most=2, known=KNOWN).full == pytest.approx(4 * 10 * fixed + 8 * 10 * each)


def test_prompts_count_once_for_their_group() -> None:
    texts = Texts(prompts=4, group=2, prompt=5, answer=10, longest=30)
    assert (texts.count, texts.read, texts.length) == (8, 4 * (5 + 20), 15)


def test_weights_and_checkpoints_take_their_size() -> None:
    assert transfer(OF, KNOWN) == pytest.approx(3 + 2 * 348 / 100)
    assert casting(GPU, 4 * 348, OF, KNOWN) == pytest.approx(6 * 348 / 400)
    assert saving(1000, KNOWN) == 20


def test_one_gpu_sends_nothing() -> None:
    assert between(GPU, 1, 8, 348, 348, 5, KNOWN) == 0


def test_gradients_go_round_twice_and_shards_once() -> None:
    assert between(GPU, 4, 8, 100, 348, 0, KNOWN) == pytest.approx(0.75 * 2 * 400 / 50)
    assert between(GPU, 4, 8, 100, 348, 2, KNOWN) == pytest.approx(0.75 * (400 + 2 * 2 * 348) / 50)
    assert between(GPU, 16, 8, 100, 348, 0, KNOWN) == pytest.approx(15 / 16 * 800 / 5), "between machines it is slower"
