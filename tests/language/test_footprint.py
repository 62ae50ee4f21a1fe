"""The peak of memory is predicted: what is counted from the shape is what torch allocates."""

import gc
import weakref

import pytest
import torch
from support.small_model import PROMPTS, TOKENIZER
from tensordict import TensorDict
from torch.profiler import ProfilerActivity, profile

from rlkit import forecast, memory
from rlkit.errors import UserError
from rlkit.forecast import Footprint, Forecast, Work
from rlkit.language import adapters
from rlkit.language.adapters import Lora
from rlkit.language.decoder import Decoder
from rlkit.language.footprint import DRAWN, footprint, holes, kept_by, learning, writing
from rlkit.language.model import LanguageModel
from rlkit.seeding import generator
from rlkit.text import Pair, PairEnv, TextEnv
from rlkit.text.problems import Problem
from rlkit.text.tools import load_tool

MB = 2**20


def wide(**options) -> LanguageModel:
    """Wide enough that what is counted is more than what nobody counts."""
    return LanguageModel.fresh(TOKENIZER, width=192, layers=6, heads=3, inner=512, context=512, **options)


def allocated(model: LanguageModel, rows: int, width: int) -> int:
    """Bytes that are alive at once in a forward and a backward pass of rows that share nothing."""
    text = torch.randint(3, 250, (rows, width + 1), generator=generator(0, "rows"))
    mask = torch.ones(rows, width, dtype=torch.bool)
    mask[:, 0] = False  # the prompt is the first token
    batch = {"observation": text[:, :-1], "action": text[:, 1:], "mask": mask}
    data = TensorDict(batch, batch_size=[rows])
    gc.collect()
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        model.evaluate(data, entropy=False)["log_prob"].sum().backward()
    alive = peak = 0
    events = [e for e in seen.profiler.kineto_results.events() if e.name() == "[memory]"]
    for event in sorted(events, key=lambda e: e.start_ns()):
        alive += event.nbytes()
        peak = max(peak, alive)
    return peak


def test_sizes_without_data_tell_what_a_token_leaves() -> None:
    real = wide().decoder
    with torch.device("meta"):
        sizes = Decoder(real.shape)
    assert kept_by(sizes)[0] == pytest.approx(kept_by(real)[0], rel=0.02)  # other kernels keep a little else


def test_what_was_predicted_of_does_not_stay_in_memory() -> None:
    decoder = wide().decoder
    kept_by(decoder)
    weight = weakref.ref(decoder.head.untyped_storage())
    del decoder
    gc.collect()
    assert weight() is None


@pytest.mark.parametrize("way", ["all", "attention", "lora", "all again", "lora again"])
@pytest.mark.slow
def test_learning_takes_what_is_foretold(way: str) -> None:
    kind, _, again = way.partition(" ")
    model = wide(tied=False) if kind != "attention" else wide()
    if kind == "lora":
        model.lora = Lora(4, 8.0, adapters.targets("all"))
        adapters.attach(model.decoder, model.lora, generator(0, "adapters"))
    if kind == "attention":
        for name, parameter in model.decoder.named_parameters():
            parameter.requires_grad_(model.decoder.in_attention(name))
    model.decoder.checkpointing = bool(again)
    model.micro_steps = None
    trained = sum(p.numel() for p in model.parameters() if p.requires_grad)
    work = Work(prompts=12, group=1, prompt=1, written=99)
    tokens = 12 * 100
    predicted = learning(model.decoder, None, 4 * trained, work) - holes(model.decoder, tokens)
    assert predicted == pytest.approx(allocated(model, 12, 100), rel=0.2)


def test_what_a_token_leaves_grows_with_the_layers() -> None:
    few, many = (LanguageModel.fresh(TOKENIZER, layers=layers).decoder for layers in (2, 4))
    (one, _), (two, _) = kept_by(few), kept_by(many)
    assert 1.8 < two / one < 2.0  # what stands before the first and after the last block is there once
    assert not few.checkpointing and all(p.grad is None for p in few.parameters())


def test_weights_that_are_cast_are_kept_once_and_not_by_each_token() -> None:
    exact, cast = wide(tied=False), wide(tied=False)
    cast.decoder.dtype = torch.bfloat16
    (_, none), (_, shared) = kept_by(exact.decoder), kept_by(cast.decoder)
    layers = sum(p.numel() for p in cast.decoder.model.layers.parameters() if p.dim() == 2)
    assert shared - none == pytest.approx(2 * layers, rel=0.1)
    assert kept_by(cast.decoder)[0] < kept_by(exact.decoder)[0], "half the bytes"


def test_writing_by_hand() -> None:
    decoder = LanguageModel.fresh(TOKENIZER, width=32, layers=2, heads=2, kv_heads=1, inner=48).decoder
    work = Work(prompts=3, group=4, prompt=10, written=40)
    stored = 2 * 2 * 1 * 16 * 4  # keys and values, two layers, one head of 16, four bytes
    columns = 64  # two blocks of 32
    expected = stored * 3 * (10 + 4 * columns) + DRAWN * len(TOKENIZER) * 12 + 3 * 48 * 4 * 3 * 10
    assert writing(decoder, 256, work) == expected
    assert writing(decoder, 4, work) < expected / 2  # the texts of one prompt at a time


def test_fewer_tokens_at_a_time_take_less() -> None:
    model, work = wide(), Work(prompts=8, group=8, prompt=20, written=50)
    sizes = [footprint(model.decoder, 1000, 256, steps, work, [work]).size for steps in (None, 1000, 100)]
    assert sizes[0] > 2 * sizes[1] > 4 * sizes[2]
    assert footprint(model.decoder, 1000, 256, 10**9, work, [work]).size == sizes[0]


def test_what_lowers_it_is_what_takes_it() -> None:
    decoder = wide().decoder
    everything = sum(p.numel() for p in decoder.parameters())
    learns, little, writes = Work(8, 8, 20, 50), Work(1, 1, 1, 1), [Work(10_000, 1, 1, 1)]
    said = footprint(decoder, everything, 256, 4096, learns, []).remedy
    assert said.startswith("set policy.gradient_checkpointing=true or give a smaller policy.micro_steps")
    assert "policy.lora=16" in said
    assert "lora" not in footprint(decoder, 1000, 256, 4096, learns, []).remedy
    assert footprint(decoder, 1000, 10_000, 4096, little, writes).remedy == "lower policy.rows"
    whole = footprint(decoder, 1000, 8, 4096, little, [Work(1, 9000, 1, 9)]).remedy
    assert whole == "lower env.max_tokens, or algo.group", "a group is written whole"


def test_a_text_is_as_long_as_its_tokens() -> None:
    model = wide()
    assert model.longest([*PROMPTS, "a b"] * 20) == max(map(len, model.prompt_ids(PROMPTS)))


def test_what_will_not_fit_is_refused_before_anything_is_written() -> None:
    Forecast(taken=memory.GIB, free=8 * memory.GIB, coming=Footprint(10 * memory.GIB, "give less")).check()
    with pytest.raises(UserError, match=r"^an iteration needs about 11\.0 GB beside the model, 8\.0 GB are free: give"):
        Forecast(taken=memory.GIB, free=8 * memory.GIB, coming=Footprint(11 * memory.GIB, "give less")).check()


def test_the_line_says_the_peak_and_what_there_is() -> None:
    line = str(Forecast(taken=memory.GIB, free=7 * memory.GIB, coming=Footprint(memory.GIB // 2, "")))
    assert line == "at most about 1.5 GB at the peak, of 8.0 GB"


def test_the_line_says_what_is_assumed_of_replies() -> None:
    line = str(Forecast(memory.GIB, 7 * memory.GIB, Footprint(memory.GIB // 2, ""), replies=True))
    assert line == "about 1.5 GB at the peak, of 8.0 GB, with replies as long as turns"


def test_no_row_is_longer_than_the_context() -> None:
    decoder = wide().decoder
    sizes = [
        footprint(decoder, 1000, 256, 4096, work, [work]).size
        for work in (Work(2, 4, 20, most) for most in (decoder.context - 20, 2 * decoder.context))
    ]
    assert sizes[0] == sizes[1]


def test_a_gpu_is_asked_for_its_own_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda device: 5)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 7)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 200))
    assert forecast.taken_and_free(torch.device("cuda")) == (5, 102)


def problems(lengths: dict[str, int]) -> TextEnv:
    made = {split: [Problem("apples " * size, "#### 5")] * 300 for split, size in lengths.items()}
    return TextEnv(made, rows=2, seed=0, max_tokens=7)


def test_a_long_problem_to_train_on_is_not_read_in_a_measurement() -> None:
    env, model = problems({"train": 40, "validation": 3, "test": 2}), wide()
    env.check(model)
    rest = len(model.prompt_ids([env.asking.prompts([env.problems["test"][0]], model)[0]])[0])
    assert env.learned(4).prompt > 40 > rest
    assert env.written(4, {"test": 300, "validation": 0}) == [env.learned(4), Work(300, 1, rest, 7)]


def test_what_a_tool_writes_counts() -> None:
    plain, called = problems({"train": 2, "test": 2}), problems({"train": 2, "test": 2})
    called.turns = load_tool("calculator", 1.0)
    assert plain.learned(4).written == 7
    assert [(work.written, work.replies) for work in called.written(4, {"test": 2})] == [(14, True), (14, True)]
    assert not plain.learned(4).replies


def test_problems_that_are_solved_beside_stored_pairs_count() -> None:
    env, model = problems({"train": 1, "validation": 3, "test": 2}), wide()
    pairs = PairEnv({"train": [Pair("a", "b c", "d")]}, 3, 0, problems=env)
    pairs.check(model)
    prompt, chosen = model.tokenizer.encode(["a", "b c"])
    assert pairs.learned(9) == Work(3, 2, len(prompt), len(chosen) + 1)  # and the end token
    assert [work.prompts for work in pairs.written(9, {"test": 300, "validation": 20})] == [300, 20]


@pytest.mark.parametrize("keys", [{"group": "none"}, {"group": 0}, {"minibatches": None}, {"minibatches": 0}, {}])
def test_keys_of_ones_own_that_are_no_counts_say_nothing(keys: dict[str, object]) -> None:
    env, model = problems({"train": 2, "test": 2}), wide()
    env.check(model)
    cpu = torch.device("cpu")
    plain = forecast.forecast(model, env, cpu, {"group": 1, "minibatches": 1}, {"test": 300})
    found = forecast.forecast(model, env, cpu, keys, {"test": 300})
    assert plain is not None and found is not None and found.coming == plain.coming
    more = forecast.forecast(model, env, cpu, {"group": 900}, {"test": 300})
    assert more is not None and more.coming.size > found.coming.size
    model.micro_steps = 8
    parts, whole = (forecast.forecast(model, env, cpu, {"group": 900}, {"test": 300}, each) for each in (False, True))
    assert parts is not None and whole is not None and whole.coming.size > parts.coming.size
    assert "policy.micro_steps" in more.coming.remedy and "lower env.rows" in whole.coming.remedy


def test_an_environment_that_checks_nothing_runs_all_the_same() -> None:
    env = problems({"train": 2, "test": 2})  # and `check` was never called
    assert forecast.forecast(wide(), env, torch.device("cpu"), {}, {"test": 300}) is not None
