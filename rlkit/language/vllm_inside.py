"""vLLM in this process, on the learner's device: it starts when it gets its first weights."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from rlkit import ranks
from rlkit.errors import EngineFailed, UserError, one_line
from rlkit.language.asked import MODE, Request, Written, check_version, finite

WHOLE = 4096  # most tokens of a prefill on a CPU
DEVICES = "CUDA_VISIBLE_DEVICES"
AGENT = "TORCHELASTIC_USE_AGENT_STORE"  # with True, torch opens no store and waits for that of torchrun
SHARE = 0.4  # vLLM's share of a GPU's memory; the learner has the rest


class Inside:
    """vLLM's class `LLM`. vLLM itself runs its engine in a child process. Each rank has one, on its own device."""

    per_rank = True

    def __init__(self, context: int, dtype: torch.dtype) -> None:
        try:
            from vllm import __version__
        except ImportError:
            raise UserError(
                "policy.engine=vllm without policy.server needs the package vllm: "
                "pip install -c constraints-vllm.txt -e '.[vllm]', or give policy.server=http://HOST:PORT of another"
            ) from None
        version = str(__version__)
        check_version(version, "policy.engine=vllm")
        self.context: int | None = context
        self.dtype, self.name = str(dtype).removeprefix("torch."), f"vLLM {version} in this process"
        self.llm: Any = None  # vllm.LLM; Any: the package is optional
        self.loaded = ""

    def label(self) -> str:
        return self.loaded

    def load(self, folder: Path, label: str) -> None:
        self.loaded = ""  # if loading fails, the loaded weights are unknown
        with failing("cannot load the weights of this run"):
            if self.llm is None:
                self.llm = self._started(folder)
            else:
                self.llm.collective_rpc("reload_weights", kwargs={"weights_path": str(folder)})
                self.llm.reset_prefix_cache()  # cached prefixes were computed with older weights
        self.loaded = label

    def _started(self, folder: Path) -> Any:
        from vllm import LLM

        # On a CPU, vLLM 0.32 cannot undo the draw after part of a prompt, so prompts are read whole there.
        whole = {"enable_chunked_prefill": False, "max_num_batched_tokens": max(WHOLE, self.context or 0)}
        with own_environment():
            return LLM(
                model=str(folder),
                dtype=self.dtype,
                max_model_len=self.context,
                logprobs_mode=MODE,
                gpu_memory_utilization=SHARE,
                generation_config="vllm",  # ignore the defaults in the folder
                trust_remote_code=False,
                **({} if torch.cuda.is_available() else whole),
            )

    def write(self, requests: Sequence[Request], at_once: int) -> list[Written]:
        """All requests at once: vLLM schedules as many as fit into its memory."""
        from vllm import SamplingParams

        prompts = [{"prompt_token_ids": request.ids} for request in requests]
        rules = [SamplingParams(**request.parameters()) for request in requests]
        with failing("cannot write"):
            answers = self.llm.generate(prompts, rules, use_tqdm=False) if requests else []
        return [_row(answer.outputs[0]) for answer in answers]


def _row(done: Any) -> Written:  # vllm.CompletionOutput
    if done.finish_reason not in ("stop", "length"):
        raise EngineFailed(f"policy.engine=vllm cannot write: a row ended by {done.finish_reason}")
    chosen = zip(done.token_ids, done.logprobs, strict=True)
    log_prob = [finite(said[token].logprob) for token, said in chosen]
    return Written(list(done.token_ids), log_prob, done.finish_reason == "stop")


@contextmanager
def failing(what: str) -> Iterator[None]:
    """Report errors in one line: vLLM's engine is another process and may raise anything."""
    try:
        yield
    except Exception as error:
        raise EngineFailed(f"policy.engine=vllm {what} ({one_line(error)}): its own lines above say more") from error


@contextmanager
def own_environment() -> Iterator[None]:
    """The environment variables that vLLM's engine, a new process, gets within the block from one of several ranks.

    It sees only this rank's GPU, as it takes the first that it sees, and opens a store in place of torchrun's.
    """
    if ranks.size() == 1:
        yield
        return
    before = {key: os.environ.get(key) for key in (DEVICES, AGENT)}
    os.environ[AGENT] = "False"
    if torch.cuda.is_available():
        mine, seen = torch.cuda.current_device(), before[DEVICES]
        os.environ[DEVICES] = str(mine) if seen is None else seen.split(",")[mine]
    try:
        yield
    finally:
        for key, value in before.items():
            if value is not None:
                os.environ[key] = value
            else:
                os.environ.pop(key, None)
