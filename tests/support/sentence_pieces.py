"""A small tokenizer of SentencePiece's kind."""

from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers

from rlkit.language.chat import ChatTemplate
from rlkit.language.tokenizer import Tokenizer as Ours


def sentence_piece(kind: str, normalized: bool = False, template: str = "") -> Ours:
    """A tokenizer that puts a space before a text, in one of three ways."""
    pieces = ["<unk>", "</s>", *"▁s0123456789<>/=[]", "▁2", "▁24", ">>", *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary, merges = {piece: i for i, piece in enumerate(pieces)}, [("▁", "2"), ("▁2", "4"), (">", ">")]
    core = Tokenizer(models.BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    if kind == "legacy":
        core.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    else:
        core.pre_tokenizer = pre_tokenizers.Metaspace("▁", kind, split=False)
    core.add_special_tokens([AddedToken("</s>", normalized=normalized)])
    return Ours(core, 1, 1, template=ChatTemplate(template, "a test") if template else None)
