"""What stands in for vLLM in tests: its HTTP API and its class `LLM`, with rlkit's own generation behind them.

It says nothing about vLLM. What vLLM 0.32 answers was compared by hand with what is answered here.
"""

import json
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch

from rlkit import ranks
from rlkit.language import folders
from rlkit.language.generate import Prompts, Rule, generate
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.stopping import Stopping
from rlkit.language.tokenizer import Tokenizer

REAL = os.environ.get("RLKIT_VLLM_SERVER")  # of a vLLM that serves tiny: the contract is checked with it, too
PROMPTS = ["What is 3 + 4?\n", "Bob has 5 apples and eats 2. How many are left?\n"]
MODE = "processed_logprobs"


class Core:
    """A model with its label, and how one row is written."""

    def __init__(self, folder: str | Path) -> None:
        self.label, self.loads, self.stale = "default", 0, False
        self.reload(folder)
        self.stale = False
        self.tokenizer = Tokenizer.load(Path(folder), self.decoder.vocab)

    def reload(self, folder: str | Path) -> None:
        self.decoder = folders.read_decoder(Path(folder))
        self.loads, self.stale = self.loads + 1, True  # until what is kept of prompts is forgotten

    def write(self, ids: list[int], asked: dict[str, Any]) -> dict[str, Any]:
        """tokens, log_prob and finish_reason."""
        assert not self.stale, "the prefix cache holds what older weights computed"
        greedy = asked["temperature"] == 0
        stopping = Stopping(asked["stop"], self.tokenizer.decode) if asked["stop"] else None
        forbidden = tuple(int(token) for token in asked["logit_bias"] or {})
        rule = Rule(asked["temperature"] or 1.0, greedy, tuple(asked["stop_token_ids"]), forbidden, stopping)
        generator = None if greedy else torch.Generator().manual_seed(asked["seed"])
        done = generate(self.decoder, Prompts([ids], 1, rule, generator), asked["max_tokens"])
        length = int(done.length)
        return {
            "tokens": done.tokens[0, :length].tolist(),
            "log_prob": done.log_prob[0, :length].tolist(),
            "finish_reason": "length" if bool(done.truncated) else "stop",
        }


class StandIn(ThreadingHTTPServer):
    """The routes of `vllm serve`; asked: the bodies of all completions so far."""

    daemon_threads = True
    request_queue_size = 2048  # as the server of vLLM has it: hundreds of rows ask at the same time

    def __init__(self, folder: str | Path, version: str = "0.32.0", mode: str = MODE, developing: bool = True) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.core, self.version, self.mode, self.developing = Core(folder), version, mode, developing
        self.context = self.core.decoder.context
        self.asked: list[dict[str, Any]] = []
        self.failing: str | None = None  # a route that answers with an error
        self.broken: Any = None  # what completions answer in place of a row
        self.key = ""  # as `--api-key` gives it: the routes below /v1 ask for it
        self.url = f"http://127.0.0.1:{self.server_address[1]}"

    def allows(self, path: str, authorization: str | None) -> bool:
        return not self.key or not path.startswith("/v1") or authorization == f"Bearer {self.key}"

    def answer(self, path: str, body: dict[str, Any] | None) -> tuple[int, Any]:
        if path == self.failing:
            return 500, {"error": {"message": "it fails", "code": 500}}
        plain = {"/version": self._version, "/v1/models": self._models}
        plain |= {"/tokenize": self._tokenize, "/v1/completions": self._completions}
        developers = {"/server_info": self._info, "/weight_info": self._weights, "/collective_rpc": self._rpc}
        developers |= {"/reset_prefix_cache": self._forget, "/update_weight_version": self._label}
        routes = {**plain, **(developers if self.developing else {})}
        return (200, routes[path](body)) if path in routes else (404, {"detail": "Not Found"})

    def _version(self, _: Any) -> Any:
        return {"version": self.version}

    def _models(self, _: Any) -> Any:
        return {"data": [{"id": "served", "parent": None, "max_model_len": self.context}]}

    def _info(self, _: Any) -> Any:
        return {"vllm_config": {"model_config": {"logprobs_mode": self.mode}}}

    def _weights(self, _: Any) -> Any:
        return {"weight_version": self.core.label}

    def _tokenize(self, body: Any) -> Any:
        return {"tokens": self.core.tokenizer.encode([body["prompt"]])[0]}

    def _rpc(self, body: Any) -> Any:
        assert body["method"] == "reload_weights"
        self.core.reload(body["kwargs"]["weights_path"])
        return {"results": [None]}

    def _forget(self, _: Any) -> Any:
        self.core.stale = False
        return {"success": True}

    def _label(self, body: Any) -> Any:
        self.core.label = body["new_version"]
        return {"success": True}

    def _completions(self, body: Any) -> Any:
        self.asked.append(body)
        assert body["model"] == "served" and body["return_token_ids"] and body["logprobs"] == 0 and body["ignore_eos"]
        if self.broken is not None:
            return self.broken
        done = self.core.write(body["prompt"], body)
        said = {"token_logprobs": [max(x, -9999.0) for x in done["log_prob"]]}
        choice = {"token_ids": done["tokens"], "logprobs": said, "finish_reason": done["finish_reason"]}
        return {"choices": [choice]}


class Handler(BaseHTTPRequestHandler):
    server: StandIn

    def do_GET(self) -> None:
        self._send(*self.server.answer(self.path.partition("?")[0], None))

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self._send(*self.server.answer(self.path, body))

    def _send(self, status: int, answer: Any) -> None:
        if not self.server.allows(self.path, self.headers["Authorization"]):
            status, answer = 401, {"error": f"Unauthorized: {self.headers['Authorization']}"}
        data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def served(folder: str | Path = folders.TINY, **keys: Any) -> Iterator[StandIn]:
    """A server in a thread."""
    with StandIn(folder, **keys) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


class LLM:
    """Of vLLM's class what rlkit asks of it."""

    def __init__(self, model: str, dtype: str, max_model_len: int, logprobs_mode: str, **_: Any) -> None:
        assert logprobs_mode == MODE and dtype == "float32"
        self.core = Core(model)

    def collective_rpc(self, method: str, kwargs: dict[str, str]) -> list[None]:
        assert method == "reload_weights"
        self.core.reload(kwargs["weights_path"])
        return [None]

    def reset_prefix_cache(self) -> bool:
        self.core.stale = False
        return True

    def generate(self, prompts: list[dict[str, list[int]]], rules: list[dict[str, Any]], use_tqdm: bool) -> list[Any]:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ranks, "_part", None)  # vLLM's engine is another process, which has no part of a rollout
            rows = [self.core.write(p["prompt_token_ids"], rule) for p, rule in zip(prompts, rules, strict=True)]
        return [SimpleNamespace(outputs=[self._output(row)]) for row in rows]

    def _output(self, row: dict[str, Any]) -> SimpleNamespace:
        pairs = zip(row["tokens"], row["log_prob"], strict=True)
        said = [{token: SimpleNamespace(logprob=x)} for token, x in pairs]
        return SimpleNamespace(token_ids=row["tokens"], logprobs=said, finish_reason=row["finish_reason"])


def module(version: str = "0.32.0") -> ModuleType:
    """What `import vllm` finds."""
    made = ModuleType("vllm")
    made.__version__, made.LLM, made.SamplingParams = version, LLM, dict  # type: ignore[attr-defined]
    return made


def built(kind: str, server: StandIn, monkeypatch: pytest.MonkeyPatch, **keys: object) -> LanguageModel:
    monkeypatch.setitem(sys.modules, "vllm", module())
    engines = {"native": {}, "server": {"engine": "vllm", "server": server.url}, "inside": {"engine": "vllm"}}
    engine = {**engines, "real": {"engine": "vllm", "server": REAL}}[kind]
    return LanguageNetwork(temperature=0.8, **engine, **keys).build(0)
