"""Language models on one GPU: the speed of writing and of learning, and GSM8K from end to end.

    python benchmarks/gpu_text.py speed                          Qwen2's shape of 0.5 B parameters, random weights
    python benchmarks/gpu_text.py gsm8k train.jsonl [key=value]  algo=grpo policy.model=smollm2 on GSM8K's own problems
    python benchmarks/gpu_text.py speed --smoke                  the same code on a CPU, tiny: its figures mean nothing

`speed` writes the same greedy texts with transformers, and compares learning with a large product of matrices. `gsm8k`
takes a file in GSM8K's format (test.jsonl beside it is the test split) and keys of `rlkit.run`; TRL does the same work
where it is installed. The result is JSON on stdout, all else goes to stderr. Without a GPU: one line, exit code 2.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from gpu_gsm8k import gsm8k
from gpu_measuring import SMOKE, Found, Peak, Size, seconds
from tensordict import TensorDict
from torch import Tensor

from rlkit import policies
from rlkit.buffers import split
from rlkit.language import folders
from rlkit.language.decoder import Decoder
from rlkit.language.engine import Native
from rlkit.language.generate import Prompts, Rule
from rlkit.language.model import LanguageModel
from rlkit.language.shape import Shape
from rlkit.language.tokenizer import Tokenizer
from rlkit.seeding import generator


def model(size: Size) -> LanguageModel:
    decoder = Decoder(Shape.read(size.config), size.dtype).initialize(generator(0, "initialise"))
    tokenizer = Tokenizer.load(folders.locate("tiny"), size.vocab)  # no text is read: the ids are random
    return LanguageModel(decoder, tokenizer).to(size.device)


def writing(size: Size, ours: LanguageModel) -> Found:
    """Tokens a second of greedy texts of one length, each prompt `repeats` times, and GB beyond the weights."""
    ids = torch.randint(size.vocab, (size.prompts, size.read), generator=generator(0, "prompts"))
    count, engine, texts = size.prompts * size.repeats, Native(), {}
    rule = Rule(1.0, True, (size.vocab,))  # a token that there is not: nothing ends before the budget
    engine.sync(ours.decoder)

    def write() -> None:
        texts["rlkit"] = engine.write(Prompts(ids.tolist(), size.repeats, rule, rows=count), size.written).tokens

    used = Peak(size)
    found: Found = {"rlkit": count * size.written / seconds(size, write), "rlkit_gb": used.gb()}
    theirs = reference(size, ours)
    if theirs is not None:
        rows = ids.repeat_interleave(size.repeats, 0).to(size.device)
        length = {"max_new_tokens": size.written, "min_new_tokens": size.written}

        @torch.inference_mode()
        def generate() -> None:
            done = theirs.generate(rows, attention_mask=torch.ones_like(rows), do_sample=False, **length)
            texts["transformers"] = done[:, size.read :]

        used = Peak(size)
        found |= {"transformers": count * size.written / seconds(size, generate), "transformers_gb": used.gb()}
        found |= {"ratio": found["rlkit"] / found["transformers"]}
        found |= {"same_first_token": float((texts["rlkit"][:, 0] == texts["transformers"][:, 0]).float().mean())}
    return found


def reference(size: Size, ours: LanguageModel) -> Any:
    """The same weights in transformers, in the precision that is computed in; none where it is not installed."""
    try:
        from transformers import Qwen2Config, Qwen2ForCausalLM
    except ImportError:
        return None
    theirs = Qwen2ForCausalLM(Qwen2Config(**{**size.config, "eos_token_id": None}))
    theirs.load_state_dict(ours.decoder.state_dict(), strict=False)  # the head is the embedding
    theirs.tie_weights()
    return theirs.to(size.device, size.dtype).eval()


def learning(size: Size, ours: LanguageModel) -> Found:
    """Tokens a second of a policy-gradient step, and its share of what products of matrices reach at best."""
    ids = torch.randint(size.vocab, (size.rows, size.time + 1), generator=generator(0, "rows")).to(size.device)
    mask = torch.ones(size.rows, size.time, dtype=torch.bool, device=size.device)
    batch = TensorDict({"observation": ids[:, :-1], "action": ids[:, 1:], "mask": mask}, [size.rows])
    optimizer = policies.adam(ours, policies.Optimization())

    def step() -> None:
        optimizer.zero_grad()
        for part in split(batch, ours.micro_steps):
            torch.autograd.backward(ours.evaluate(part)["log_prob"].mean())
        optimizer.step()

    used, tokens = Peak(size), size.rows * size.time
    taken, most = seconds(size, step), used.gb()
    ceiling = 2 * size.matrix**3 / seconds(size, product(size))
    flops = step_flops(ours.decoder, tokens, size.time)
    figures: Found = {"tokens_per_second": tokens / taken, "flops_per_token": flops / tokens, "gb": most}
    return figures | {"flops_per_second": flops / taken, "ceiling": ceiling, "share": flops / taken / ceiling}


def step_flops(decoder: Decoder, tokens: int, length: int) -> float:
    """6 N for each token, and causal attention: scores and values, half of each square, once forward and twice back.

    N counts the matrices that a token is multiplied by: a tied embedding as the head, an untied one not at all.
    """
    shape = decoder.shape
    matrices = sum(x.numel() for x in decoder.parameters() if x.dim() == 2)
    matrices -= 0 if shape.tied else shape.vocab * shape.width
    attention = 3 * shape.layers * 2 * length * shape.heads * shape.head_dim
    return float(tokens * (6 * matrices + attention))


def product(size: Size) -> Callable[[], Tensor]:
    a, b = (torch.randn(size.matrix, size.matrix, device=size.device).to(size.dtype) for _ in range(2))
    return lambda: a @ b


def speed(size: Size) -> Found:
    ours = model(size)
    found: Found = {"parameters": sum(x.numel() for x in ours.parameters())}
    return found | {"generation": writing(size, ours), "training": learning(size, ours)}


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["speed", "gsm8k"])
    parser.add_argument("source", nargs="?", help="gsm8k: a JSONL file in GSM8K's format")
    parser.add_argument("keys", nargs="*", help="gsm8k: keys of rlkit.run, such as iterations=50")
    parser.add_argument("--smoke", action="store_true", help="tiny, on a CPU")
    asked = parser.parse_args(argv)
    if not asked.smoke and not torch.cuda.is_available():
        print("no GPU is here, so nothing is measured: --smoke runs the same code on a CPU", file=sys.stderr)
        return 2
    if asked.what == "gsm8k" and not asked.source:
        print("gsm8k needs a file: python benchmarks/gpu_text.py gsm8k train.jsonl", file=sys.stderr)
        return 2
    size = SMOKE if asked.smoke else Size()
    with tempfile.TemporaryDirectory() as folder, redirect_stdout(sys.stderr):
        found = speed(size) if asked.what == "speed" else gsm8k(size, asked.source, asked.keys, Path(folder))
    device = torch.cuda.get_device_name() if size.device == "cuda" else "cpu, smoke: the figures mean nothing"
    print(json.dumps({"device": device, "torch": torch.__version__, **found}, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
