"""A model folder with an edited file is what transformers makes of it, or is refused in one line."""

import contextlib
import io
import json
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
from support.edits import CONFIG, RULES, SETTINGS, drawn, each, edited
from support.small_model import TOKENIZER
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors
from tokenizers import Tokenizer as Core

from rlkit.api import UserError
from rlkit.language import folders
from rlkit.language.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")
ROWS = (torch.arange(24) * 7 % 100)[None]
SIZES = {"vocab_size": 100, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "head_dim": 8}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 128, "rms_norm_eps": 1e-6}
NATIVE = {kind: {"model_type": kind, **SIZES} for kind in ("llama", "qwen2", "qwen3")}
NATIVE["mistral"] = {"model_type": "mistral", **SIZES, "sliding_window": None}
TEXTS = ["the cat", "the  cat sat . It , is ' n't !  ", "a<s> b </s> c<s>\nthe cat", "ﬁ ① é 東京 12345", "  dog dog "]
TEXTS += ["THE <|x|>  cat<|x|>dog", "a <|n|>  b <|y|> c <|u|> b", "<s>", "</s> <s> the"]
VOCABULARY = 700


@pytest.mark.slow
@pytest.mark.parametrize("kind", NATIVE)
def test_an_edited_configuration_gives_the_logits_of_transformers(kind: str, tmp_path: Path) -> None:
    equal = 0
    for edits in [[], *drawn(each(CONFIG), seed=0, pairs=100)]:
        config = edited(NATIVE[kind], edits)
        (tmp_path / "config.json").write_text(json.dumps(config))
        theirs = built(tmp_path, NATIVE[kind])
        try:
            decoder = folders.read_decoder(tmp_path)
        except UserError:
            continue
        if theirs is None:  # it refuses, or cannot compute
            continue
        with torch.no_grad():
            found = decoder.logits(decoder(ROWS))
        assert (found - theirs).abs().max() <= 2e-4 * theirs.abs().max(), (kind, edits)
        equal += 1
    assert equal > 150


def built(folder: Path, usual: dict[str, Any]) -> torch.Tensor | None:
    """Logits of the model of this config.json with random weights, which stand in the folder then."""
    with contextlib.redirect_stderr(io.StringIO()):
        try:
            config, known = transformers.AutoConfig.from_pretrained(folder), True
            model = transformers.AutoModelForCausalLM.from_config(config).float().eval()
        except Exception:
            config, known = transformers.AutoConfig.for_model(**usual), False
            model = transformers.AutoModelForCausalLM.from_config(config).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(1 + 0.3 * noise if parameter.dim() == 1 else 0.35 * noise)
    weights = {name: x for name, x in model.state_dict().items() if name != folders.HEAD or not tied(model)}
    folders.save(folder / folders.WHOLE, weights)
    if not known:
        return None
    with torch.no_grad(), contextlib.suppress(Exception):
        logits: torch.Tensor = model(input_ids=ROWS, use_cache=False).logits
        return logits
    return None


def tied(model: Any) -> bool:  # a model of transformers
    return model.get_output_embeddings().weight is model.get_input_embeddings().weight


def byte_level() -> Core:
    core = Core.from_str(TOKENIZER.core.to_str())
    core.add_special_tokens([AddedToken(text, normalized=False) for text in ("<s>", "</s>")])
    core.add_tokens([AddedToken("<think>", normalized=False)])
    return core


def sentence_piece() -> Core:
    letters = "▁abcdefghijklmnopqrstuvwxyzT0123456789.,!?'<>|/"
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *letters, "▁t", "he", "▁the"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    merges = [("▁", "t"), ("h", "e"), ("▁t", "he")]
    core = Core(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    core.pre_tokenizer = pre_tokenizers.Metaspace("▁", "first", split=False)
    parts = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    core.decoder = decoders.Sequence(parts)
    core.add_special_tokens([AddedToken(text, normalized=False) for text in pieces[:3]])
    core.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return core


def unigram() -> Core:
    letters = dict.fromkeys("▁abcdefghijklmnopqrstuvwxyz0123456789.,!?'")
    pieces = [("<unk>", 0.0), ("<s>", 0.0), ("</s>", 0.0), *((x, -3.0) for x in letters), ("▁the", -2.0)]
    core = Core(models.Unigram(pieces, 0, False))
    core.pre_tokenizer, core.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    core.add_special_tokens(["<s>", "</s>", "<unk>"])
    return core


@pytest.mark.slow
@pytest.mark.parametrize("make", [byte_level, sentence_piece, unigram])
def test_an_edited_tokenizer_gives_the_ids_and_texts_of_transformers(make: Any, tmp_path: Path) -> None:
    """Also where it was saved here: what is written is read alike."""
    plain = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": "<s>", "eos_token": "</s>"}
    core, random = json.loads(make().to_str()), Random(0)
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    rules = [*({rule} for rule in RULES), *(set(random.sample(list(RULES), 2)) for _ in range(20))]
    settings: list[Any] = [(set(), edits) for edits in drawn(each(SETTINGS), 0, 60)]
    equal = 0
    for ruled, edits in [(set(), []), *((rule, []) for rule in rules), *settings]:
        content = edited(core, [])
        for name in ruled:
            RULES[name](content)
        (tmp_path / "tokenizer.json").write_text(json.dumps(content))
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(edited(plain, edits)))
        theirs, ours = read_by_transformers(tmp_path), None
        with contextlib.suppress(UserError):
            ours = Tokenizer.load(tmp_path, VOCABULARY)
        if theirs is None or ours is None:
            continue
        compare(ours, theirs, (ruled, edits))
        ours.save(tmp_path)
        compare(ours, read_by_transformers(tmp_path), ("saved", ruled, edits))
        equal += 1
    assert equal > 100


def read_by_transformers(folder: Path) -> Any:
    """The tokenizer of transformers; None where it refuses the folder. Its library may even panic."""
    try:
        return transformers.AutoTokenizer.from_pretrained(folder)
    except BaseException as error:
        if not isinstance(error, Exception) and type(error).__name__ != "PanicException":
            raise
        return None


def compare(ours: Tokenizer, theirs: Any, given: object) -> None:
    plain = {"add_special_tokens": False, "truncation": False, "padding": False}
    for text in TEXTS:
        (ids,) = ours.encode([text])
        assert ids == theirs(text, **plain)["input_ids"], (given, text)
        for special in (False, True):
            (shown,) = ours.decode([ids], special)
            assert shown == theirs.decode(ids, skip_special_tokens=not special), (given, text)
    assert ours.eos_id == theirs.eos_token_id, given
