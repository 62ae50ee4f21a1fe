"""A vLLM server: the requests to its routes, and the checks before a run depends on it.

The routes that load weights exist only if the server was started with VLLM_SERVER_DEV_MODE=1. Nothing is pickled:
weights go through a folder of safetensors that both sides can access, everything else is JSON.
"""

from collections.abc import Sequence
from pathlib import Path

from rlkit.errors import EngineFailed, UserError
from rlkit.language import threads
from rlkit.language.asked import MODE, Request, Written, check_version, finite
from rlkit.language.over_http import PATIENCE, QUICK, Client, Json, Refused
from rlkit.language.tokenizer import Tokenizer

KEY = "policy.server"
START = f"VLLM_SERVER_DEV_MODE=1 vllm serve MODEL --logprobs-mode {MODE}"
PROBE = "Ann's 3 cats + 47 dogs = 50; naïve Ω 你好.\n\n  x != y"  # tokenizers of different models split it differently


class Server:
    """Requests all rows at the same time; the server batches them."""

    per_rank = False

    def __init__(self, url: str, tokenizer: Tokenizer) -> None:
        self.client = Client(url, KEY)
        version = self._version()
        self.context: int | None
        self.model, self.context = self._served()
        self._check_mode()
        self._check_tokenizer(tokenizer)
        self.name = f"vLLM {version} at {url}"

    # Checks

    def _version(self) -> str:
        said = self.client.ask("/version").get("version")
        if not isinstance(said, str):
            raise EngineFailed(f"{self.client.named} does not say which vLLM it is: give a vLLM server")
        check_version(said, self.client.named)
        return said[:20]

    def _served(self) -> tuple[str, int]:
        """The name of the served model, and its context."""
        models = self.client.ask("/v1/models").get("data")
        for model in models if isinstance(models, list) else []:
            if isinstance(model, dict) and model.get("parent") is None:  # otherwise it is an adapter
                name, context = model.get("id"), model.get("max_model_len")
                if isinstance(name, str) and isinstance(context, int):
                    return name, context
        raise EngineFailed(f"{self.client.named} serves no model: start it as in {START}")

    def _check_mode(self) -> None:
        """Refuse a server that cannot load weights, or whose log-probabilities ignore the temperature."""
        info = self._developing("/server_info?config_format=json").get("vllm_config")
        model = info.get("model_config") if isinstance(info, dict) else None
        mode = model.get("logprobs_mode") if isinstance(model, dict) else None
        if mode != MODE:
            raise UserError(
                f"{self.client.named} gives {str(mode)[:40]}, which leave out the temperature: start it with "
                f"--logprobs-mode {MODE}"
            )

    def _check_tokenizer(self, tokenizer: Tokenizer) -> None:
        wanted = tokenizer.encode([PROBE])[0]
        asked: Json = {"model": self.model, "prompt": PROBE, "add_special_tokens": False}
        if self.client.ask("/tokenize", asked).get("tokens") != wanted:
            raise UserError(
                f"{self.client.named} serves {self.model[:80]!r}, whose tokenizer is another than that of "
                "policy.model: serve the model of the run"
            )

    def _developing(self, path: str, body: Json | None = None, patience: float = QUICK) -> Json:
        """The answer of a route that exists only in developer mode."""
        try:
            return self.client.ask(path, body, patience)
        except Refused as error:
            if error.status != 404:
                raise
            raise UserError(
                f"{self.client.named} has no {path.partition('?')[0]}, so it takes no weights: start it as in {START}"
            ) from None

    # The interface of a backend

    def label(self) -> str:
        return str(self._developing("/weight_info").get("weight_version"))

    def load(self, folder: Path, label: str) -> None:
        """Load the weights of a folder in place of those that are served.

        vLLM's prefix cache was computed with older weights, and is reset. If a run is stopped meanwhile, no label is
        set, so that the weights of an earlier checkpoint are not mistaken for loaded ones.
        """
        self._name("being loaded")
        asked: Json = {"method": "reload_weights", "kwargs": {"weights_path": str(folder)}}
        try:
            self._developing("/collective_rpc", asked, PATIENCE)
        except Refused as error:
            raise EngineFailed(
                f"{self.client.named} cannot load the weights of this run ({error.said}): serve the same model, give "
                "policy.exchange=FOLDER, a folder that both sides see, and start the server again, which may hold half"
            ) from None
        self._developing("/reset_prefix_cache", {})
        self._name(label)

    def _name(self, label: str) -> None:
        self._developing("/update_weight_version", {"new_version": label})

    def write(self, requests: Sequence[Request], at_once: int) -> list[Written]:
        return threads.each(self._row, requests, at_once, "rlkit-vllm")

    def _row(self, request: Request) -> Written:
        asked: Json = {"model": self.model, "prompt": request.ids, "return_token_ids": True, **request.parameters()}
        answer = self.client.ask("/v1/completions", asked, PATIENCE)
        found = written(answer, request.tokens)
        if found is None:
            raise EngineFailed(f"{self.client.named} answered /v1/completions without the tokens that were asked for")
        return found


def written(answer: Json, most: int) -> Written | None:
    """The row in an answer; None where the answer is invalid."""
    choices = answer.get("choices")
    choice = choices[0] if isinstance(choices, list) and len(choices) == 1 else None
    if not isinstance(choice, dict) or choice.get("finish_reason") not in ("stop", "length"):
        return None
    said, tokens = choice.get("logprobs"), choice.get("token_ids")
    log_prob = said.get("token_logprobs") if isinstance(said, dict) else None
    if not isinstance(tokens, list) or not isinstance(log_prob, list) or len(tokens) != len(log_prob):
        return None
    whole = all(type(x) is int and 0 <= x < 1 << 31 for x in tokens) and all(type(x) in (int, float) for x in log_prob)
    if not whole or not 1 <= len(tokens) <= most:
        return None
    return Written(tokens, [finite(x) for x in log_prob], choice["finish_reason"] == "stop")
