"""The folder RUN/model of a text run is one that transformers loads, reads, computes and writes with as we do."""

from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from rlkit.language.model import LanguageModel
from rlkit.run import main
from rlkit.text.problems import embedded

transformers = pytest.importorskip("transformers")


@pytest.mark.slow
def test_a_text_runs_model_folder_is_transformers_own(tmp_path: Path) -> None:
    out, small = tmp_path / "run", ["env.rows=4", "evaluation_episodes=4", "validation_episodes=4"]
    assert main(["algo=grpo", "env=gsm8k", "iterations=1", "algo.lr=1e-3", *small, f"out={out}"]) == 0
    ours, start = LanguageModel.load(out / "model"), LanguageModel.load("tiny")
    assert any(not torch.equal(a, b) for a, b in zip(ours.parameters(), start.parameters(), strict=True))  # trained
    theirs = transformers.AutoModelForCausalLM.from_pretrained(out / "model").eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(out / "model")
    prompts = [f"{problem.question}\n" for problem in embedded(0, 8, 8, 8, 0.5)["test"]]
    written = ours.generate(prompts, max_tokens=48, greedy=True)
    for prompt, completion in zip(prompts, ours.decode(written), strict=True):
        inputs = tokenizer(prompt, return_tensors="pt", return_token_type_ids=False)
        tokens = inputs["input_ids"]
        assert tokens.tolist() == ours.tokenizer.encode([prompt])
        with torch.no_grad():
            assert_close(ours.decoder.logits(ours.decoder(tokens)), theirs(**inputs).logits, rtol=1e-4, atol=1e-4)
            answer = theirs.generate(**inputs, max_new_tokens=48, do_sample=False)[0, tokens.shape[1] :]
        assert tokenizer.decode(answer, skip_special_tokens=True) == completion
