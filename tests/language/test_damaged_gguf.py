"""GGUF files with something wrong: they are read rightly, or are refused in one line before time or memory is taken."""

import os
import re
import struct
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from filelock import FileLock, Timeout
from support.gguf_files import write
from support.small_model import model

from rlkit.errors import UserError
from rlkit.language import gguf, gguf_file
from rlkit.language.model import LanguageModel

HEAD = model().decoder.shape.head_dim
GGML = "tokenizer.ggml"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "rlkit" / "gguf"


def refused(path: Path, says: str) -> None:
    with pytest.raises(UserError, match=re.escape(says)) as caught:
        LanguageModel.load(str(path))
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 600


OTHERWISE: dict[str, tuple[object, tuple[object, ...]]] = {  # what changes what llama.cpp computes, and what does not
    "llama.rope.scale_linear": (4.0, (1.0, 0.0)),
    "llama.rope.scaling.factor": (4.0, (1.0, 0.0)),
    "llama.rope.scaling.type": ("yarn", ("none", "linear")),
    "llama.rope.scaling.attn_factor": (2.0, (1.0,)),
    "llama.rope.dimension_count": (HEAD // 2, (HEAD,)),
    "llama.attention.value_length": (HEAD // 2, (HEAD,)),
    "llama.attention.causal": (False, (True,)),
    "llama.attention.sliding_window": (4096, (0,)),
}


@pytest.mark.parametrize("key", OTHERWISE)
def test_what_computes_otherwise_is_refused_unless_it_means_nothing(key: str, tmp_path: Path) -> None:
    given, idle = OTHERWISE[key]
    windows = "sliding windows, activations but silu and quantized weights are not supported; use another model"
    wrong = windows if "window" in key else f"{key.removeprefix('llama.')} is {given!r}, and "
    refused(write(tmp_path / "m.gguf", model(), **{key: given}), wrong)
    for value in idle:
        LanguageModel.load(str(write(tmp_path / "idle.gguf", model(), **{key: value})))


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "a list of heads": ({"llama.attention.head_count": [2, 2]}, "head_count is a list, not a whole number from 1"),
    "heads as a text": ({"llama.attention.head_count": "2"}, 'head_count is "2", not a whole number from 1'),
    "no heads": ({"llama.attention.head_count": 0}, "head_count is 0, not a whole number from 1"),
    "a width that is a text": ({"llama.embedding_length": "x"}, 'embedding_length is "x", not a whole number'),
    "an architecture that is a number": ({"general.architecture": None}, "general.architecture"),
    "a mistral": ({"general.architecture": "mistral"}, "the architecture is 'mistral', and llama, qwen2, qwen3"),
    "epsilon as a list": ({"llama.attention.layer_norm_rms_epsilon": [1e-5]}, "epsilon is a list, not a number from"),
    "a base that is not finite": ({"llama.rope.freq_base": float("nan")}, "freq_base is NaN, not a number from 1"),
    "a list of ends": ({f"{GGML}.eot_token_id": [1, 2]}, "eot_token_id is a list, not a whole number from 0 to"),
    "an end that is a fraction": ({f"{GGML}.eos_token_id": 1.5}, "eos_token_id is 1.5, not a whole number"),
    "a template that is a list": ({"tokenizer.chat_template": ["a"]}, "chat_template is a list, not a text"),
    "a cut that is a list": ({f"{GGML}.pre": ["default"]}, "tokenizer.ggml.pre is a list, not a text"),
    "merges of numbers": ({f"{GGML}.merges": [1, 2]}, "its tokenizer is damaged (merges is not a list of texts)"),
    "merges of what is not a token": (
        {f"{GGML}.merges": ["漢 字"]},
        "its tokenizer is damaged (Error while initializing",
    ),
    "tokens that are numbers": ({f"{GGML}.tokens": [1, 2]}, "its tokenizer is damaged (tokens is not a list of texts)"),
    "a token twice": ({f"{GGML}.tokens": ["a", "a"]}, "its tokenizer is damaged (it has no token, or one twice)"),
    "too few types": ({f"{GGML}.token_type": [1, 1]}, "its tokenizer is damaged (2 token_type for "),
    "alignment": ({"general.alignment": 0}, "not a readable GGUF file (general.alignment is not a power of two)"),
    "a layer too many": ({"blk.7.attn_norm": torch.ones(32)}, "a llama has no tensor 'blk.7.attn_norm.weight'"),
    "another width": ({"llama.embedding_length": 64}, "config and weights are of different models"),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_field_of_another_type_or_value_is_named(what: str, tmp_path: Path, cache: Path) -> None:
    fields, says = WRONG[what]
    if fields.get("general.architecture", "") is None:
        path = tmp_path / "m.gguf"
        path.write_bytes(raw([(b"general.architecture", struct.pack("<II", 4, 7))]))
    else:
        path = write(tmp_path / "m.gguf", model(), **fields)
    refused(path, says)
    assert not cache.exists() or not list(cache.iterdir())


def sentence_pieces(*more: str, score: float = 0.0) -> dict[str, Any]:
    tokens = ["<unk>", "a", "b", *more]
    return {
        f"{GGML}.model": "llama",
        f"{GGML}.tokens": tokens,
        f"{GGML}.scores": [score] * len(tokens),
        f"{GGML}.token_type": None,
        f"{GGML}.eos_token_id": 0,
    }


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (sentence_pieces("a" * 100_000), "a token of 100,000 characters, which no tokenizer needs"),
        (sentence_pieces(*(f"{i:0999}" for i in range(60))), "its tokens are longer than those of any vocabulary"),
        (sentence_pieces(score=float("nan")), "or a score is not finite"),
        (sentence_pieces() | {f"{GGML}.unknown_token_id": 3}, "unknown_token_id is 3, not a whole number from 0 to 2"),
        (sentence_pieces() | {f"{GGML}.scores": None}, "scores is not a list of numbers"),
        (sentence_pieces() | {f"{GGML}.scores": [0.0]}, "1 scores for 3 tokens"),
    ],
)
def test_pieces_that_no_vocabulary_has_are_refused(fields: dict[str, Any], says: str, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model(), **fields)
    refused(path, says)


def raw(fields: list[tuple[bytes, bytes]], keys: int | None = None, tensors: int = 0) -> bytes:
    """A file that says what it likes; each value begins with its type."""
    written = b"".join(struct.pack("<Q", len(key)) + key + value for key, value in fields)
    return b"GGUF" + struct.pack("<IQQ", 3, tensors, len(fields) if keys is None else keys) + written


def array(kind: int, length: int, content: bytes = b"") -> list[tuple[bytes, bytes]]:
    return [(b"x", struct.pack("<IIQ", 9, kind, length) + content)]


TENSOR = struct.pack("<Q", 1) + b"x" + struct.pack("<I", 2)
BOMBS = {
    "a long array": (raw(array(0, 3_000_000, bytes(3_000_000))), "its arrays have 3,000,000 entries, which no model"),
    "an array without end": (raw(array(0, 2**62)), "its arrays have 4,611,686,018,427,387,904 entries"),
    "texts without end": (raw(array(8, 2**20)), "it ends early"),
    "a text without end": (raw(array(8, 1, struct.pack("<Q", 2**63))), "it ends early"),
    "arrays in arrays": (raw(array(9, 1, struct.pack("<IQ", 9, 1) * 1000)), "'x' is of the unknown type 9"),
    "a type that is none": (raw([(b"x", struct.pack("<I", 77))]), "'x' is of the unknown type 77"),
    "keys without end": (raw([], keys=2**60), "1,152,921,504,606,846,976 keys and 0 tensors, which no model has"),
    "tensors without end": (raw([], tensors=2**60), "1,152,921,504,606,846,976 tensors, which no model has"),
    "a key twice": (raw([(b"x", struct.pack("<IB", 0, 0))] * 2), "the key 'x' is there twice"),
    "a huge tensor": (
        raw([], tensors=1) + TENSOR + struct.pack("<QQIQ", 2**40, 2**40, 0, 0),
        "it ends before 'x' does",
    ),
    "an empty tensor": (raw([], tensors=1) + TENSOR + struct.pack("<QQIQ", 0, 4, 0, 0), "cannot have the sizes [4, 0]"),
    "part of a block": (raw([], tensors=1) + TENSOR + struct.pack("<QQIQ", 7, 4, 8, 0), "cannot have the sizes [4, 7]"),
    "no kind of numbers": (
        raw([], tensors=1) + TENSOR + struct.pack("<QQIQ", 1, 1, 999, 0),
        "unknown quantization",
    ),
    "the first version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "its version is 1, and 2 and 3 are read"),
    "another file": (b"PK\x03\x04" + bytes(100), "it does not begin with GGUF"),
}


@pytest.mark.timeout(20)
@pytest.mark.parametrize("what", BOMBS)
def test_a_header_of_no_model_is_refused_before_it_is_read(what: str, tmp_path: Path) -> None:
    content, says = BOMBS[what]
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    refused(path, says)


def test_tensors_that_lie_in_each_other_take_no_disk(tmp_path: Path) -> None:
    """A file of some MB cannot be a folder of many GB."""
    infos = [struct.pack("<Q", 2) + b"%02d" % i + struct.pack("<IQIQ", 1, 1000, 0, 0) for i in range(50)]
    path = tmp_path / "m.gguf"
    path.write_bytes(raw([], tensors=50) + b"".join(infos) + bytes(5000))
    refused(path, "it ends before '01' does")


def test_a_header_beyond_the_bound_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf_file, "HEADER", 1000)
    refused(write(tmp_path / "m.gguf", model()), "not a readable GGUF file (it ends early, or its header has more than")


@pytest.mark.timeout(60)
@pytest.mark.slow
def test_a_few_hundred_flips_load_or_are_one_line(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model())
    content, draw, said = path.read_bytes(), Random(0), 0
    end = content.find(b"token_embd") + 1500
    for i in range(150):
        changed = bytearray(content)
        for _ in range(draw.choice([1, 1, 2, 4])):
            at = draw.randrange(end)
            changed[at] = draw.choice([0, 1, 255, 128, changed[at] ^ 1, changed[at] ^ 128, 8, 9])
        path.write_bytes(changed)
        try:
            folder = gguf.folder_of(path)
            if i % 8 == 0:
                LanguageModel.load(folder)
        except UserError as error:
            assert "\n" not in str(error) and len(str(error)) < 600
            said += 1
    assert said > 30


def test_what_a_killed_conversion_left_is_removed_and_a_living_one_is_waited_for(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (cache / ".new-of-a-killed-process").mkdir(parents=True)
    (cache / ".new-of-a-killed-process" / "model-00001.safetensors").write_bytes(bytes(100))
    convert = gguf._convert

    def watched(*given: Any) -> None:
        with pytest.raises(Timeout), FileLock(f"{cache}.lock", timeout=0):
            pass
        convert(*given)

    monkeypatch.setattr(gguf, "_convert", watched)
    folder = gguf.folder_of(write(tmp_path / "m.gguf", model()))
    assert list(cache.iterdir()) == [folder]


@pytest.mark.parametrize("file", ["model-00001.safetensors", "tokenizer.json", "config.json", "converted.json"])
@pytest.mark.parametrize("left", [None, 100])
def test_a_torn_folder_of_the_cache_is_made_again(file: str, left: int | None, tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", made := model())
    torn = gguf.folder_of(path) / file
    torn.unlink() if left is None else os.truncate(torn, left)
    assert torch.equal(LanguageModel.load(str(path)).decoder.head, made.decoder.head)


@pytest.mark.skipif(os.name == "nt", reason="no such limits")
def test_a_full_disk_is_one_line_and_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    import resource

    path = write(tmp_path / "m.gguf", model())
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, before[1]))
    try:
        refused(path, "make room there, or name another folder in XDG_CACHE_HOME")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert not list(cache.iterdir())
    LanguageModel.load(str(path))
