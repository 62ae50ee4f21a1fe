"""What a vLLM is refused for: servers that are down, other ones or strange, weights that do not fit, wrong answers."""

import copy
import socket
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.small_model import model
from support.vllm_stand_in import PROMPTS, StandIn, built, module, served
from torch.testing import assert_close

from rlkit.errors import Diverged, EngineFailed, UserError
from rlkit.language.network import LanguageNetwork
from rlkit.language.over_http import Client


def test_a_server_that_is_down_is_one_line() -> None:
    with served() as server:
        url = server.url
    with pytest.raises(EngineFailed, match=f"policy.server={url} does not answer /version .*: see that it runs there"):
        LanguageNetwork(engine="vllm", server=url).build(0)


@pytest.mark.parametrize(
    "url", ["ftp://host:1", "host:8000", "http://", "http://me:pw@host", "http://h:x", "http://h/v1"]
)
def test_what_is_no_address_is_one_line(url: str) -> None:
    with pytest.raises(UserError, match="is not an address: write http://HOST:PORT"):
        LanguageNetwork(engine="vllm", server=url).build(0)


@pytest.mark.parametrize(
    ("keys", "line"),
    [
        ({"version": "0.11.2"}, "is vLLM 0.11.2, and rlkit needs 0.32 or a later one: install that"),
        ({"mode": "raw_logprobs"}, "gives raw_logprobs, which leave out the temperature: start it with "),
        ({"developing": False}, "has no /server_info, so it takes no weights: start it as in "),
    ],
)
def test_a_server_that_was_started_otherwise_is_one_line(keys: dict[str, object], line: str) -> None:
    with served(**keys) as server, pytest.raises(UserError, match=line):
        LanguageNetwork(engine="vllm", server=server.url).build(0)


@pytest.mark.parametrize(
    ("path", "answer", "line"),
    [
        ("/version", {"version": 3}, "does not say which vLLM it is: give a vLLM server"),
        ("/v1/models", {"data": [{"id": "x", "parent": "y", "max_model_len": 9}]}, "serves no model: start it as in"),
    ],
)
def test_what_is_no_vllm_is_one_line(path: str, answer: object, line: str) -> None:
    with served() as server:
        real = server.answer
        server.answer = lambda asked, body: (200, answer) if asked == path else real(asked, body)
        with pytest.raises(EngineFailed, match=line):
            LanguageNetwork(engine="vllm", server=server.url).build(0)


def test_a_refusal_is_told_in_the_servers_words() -> None:
    with served() as server:
        server.failing = "/tokenize"
        with pytest.raises(EngineFailed, match="refused /tokenize with status 500: it fails"):
            LanguageNetwork(engine="vllm", server=server.url).build(0)


def test_another_tokenizer_is_one_line(tmp_path: Path) -> None:
    model().save(tmp_path)
    with served(tmp_path) as server, pytest.raises(UserError, match="whose tokenizer is another than that of policy"):
        LanguageNetwork(engine="vllm", server=server.url).build(0)


@pytest.mark.slow
def test_another_model_is_one_line(tmp_path: Path) -> None:
    """It has the shape and the tokenizer, and takes the weights; what it computes is something else."""
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        policy.generate(PROMPTS, 1, 4)
        reload = server.core.reload

        def other(folder: str) -> None:
            reload(folder)
            server.core.decoder.frequencies = server.core.decoder.frequencies * 3
            with torch.no_grad():
                server.core.decoder.head.neg_()

        server.core.reload = other
        with pytest.raises(UserError, match=r"computes another model than policy.model: its log-probabilities are "):
            again = LanguageNetwork(engine="vllm", server=server.url).build(0)
            with torch.no_grad():
                again.decoder.head.mul_(1.01)
            again.generate(PROMPTS, 1, 4)


def test_weights_that_do_not_fit_are_one_line() -> None:
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        server.failing = "/collective_rpc"
        with pytest.raises(EngineFailed, match=r"cannot load the weights of this run .it fails.: serve the same model"):
            policy.generate(PROMPTS, 1, 4)


@pytest.mark.parametrize("route", ["/collective_rpc", "/reset_prefix_cache"])
def test_whoever_is_stopped_while_weights_are_loaded_leaves_no_label(route: str) -> None:
    """A run that goes on from the weights before those gives them to the server again."""
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        policy.generate(PROMPTS, 1, 4)
        before, loads = copy.deepcopy(policy.decoder.state_dict()), server.core.loads
        with torch.no_grad():
            policy.decoder.head.mul_(1.1)
        server.failing = route
        with pytest.raises(EngineFailed):
            policy.generate(PROMPTS, 1, 4)
        server.failing = None
        policy.decoder.load_state_dict(before)
        done = policy.generate(PROMPTS, 1, 4)
        assert server.core.loads > loads
        assert_close(done["log_prob"], policy.evaluate(done.flatten())["log_prob"].view(done["log_prob"].shape))


def test_weights_of_another_run_are_one_line() -> None:
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        policy.generate(PROMPTS, 1, 4)
        label = server.core.label
        answer = server.answer

        def later(path: str, body: object) -> object:
            if path == "/v1/completions":
                server.core.label = "another"
            return answer(path, body)

        server.answer = later
        with pytest.raises(EngineFailed, match="was given other weights while it wrote: let one run alone use it"):
            policy.generate(PROMPTS, 1, 4)
        assert label != server.core.label


ROW = {"token_ids": [5, 6], "logprobs": {"token_logprobs": [-1.0, -2.0]}, "finish_reason": "stop"}


@pytest.mark.parametrize(
    "change",
    [
        {"finish_reason": "abort"},
        {"token_ids": None},
        {"token_ids": [5]},
        {"token_ids": [5, -1]},
        {"token_ids": [5, True]},
        {"token_ids": [5] * 9, "logprobs": {"token_logprobs": [-1.0] * 9}},
        {"logprobs": None},
        {"logprobs": {"token_logprobs": [-1.0, "x"]}},
    ],
)
def test_an_answer_that_is_no_row_is_one_line(change: dict[str, object]) -> None:
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        policy.generate(PROMPTS, 1, 4)
        server.broken = {"choices": [{**ROW, **change}]}
        with pytest.raises(EngineFailed, match="answered /v1/completions without the tokens that were asked for"):
            policy.generate(PROMPTS, 1, 4)
        server.broken = b"<html>"
        with pytest.raises(EngineFailed, match="answered /v1/completions with what is not a JSON object"):
            policy.generate(PROMPTS, 1, 4)


@pytest.mark.parametrize(
    "change",
    [
        {"token_ids": [5, 99999], "finish_reason": "length"},
        {"token_ids": [5, 6], "finish_reason": "length"},
        {"token_ids": [5, 6]},
        {"token_ids": [5, 0], "logprobs": {"token_logprobs": [-1.0, 0.1]}},
    ],
    ids=["no token", "too few", "no end", "more than certain"],
)
def test_a_row_that_cannot_be_is_one_line(change: dict[str, object]) -> None:
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        tokens = 2 if 99999 in change["token_ids"] else 4
        policy.generate(PROMPTS, 1, tokens)
        server.broken = {"choices": [{**ROW, **change}]}
        with pytest.raises(EngineFailed, match="gave an impossible answer: unknown tokens, a row without"):
            policy.generate(PROMPTS, 1, tokens)


def test_an_answer_without_end_is_not_read(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlkit.language.over_http.LARGEST", 20)
    with pytest.raises(EngineFailed, match="its answer has more than 20 bytes"):
        LanguageNetwork(engine="vllm", server=server.url).build(0)


@pytest.mark.parametrize("begun", [b"", b'{"version": "0.3'])
def test_a_server_that_ends_within_an_answer_is_one_line(begun: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def answer() -> None:
            with server.accept()[0] as asks:
                asks.recv(1 << 16)
                asks.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n" + begun)

        threading.Thread(target=answer).start()
        client = Client(f"http://127.0.0.1:{server.getsockname()[1]}", "policy.server")
        with pytest.raises(EngineFailed, match=r"does not answer /version \(IncompleteRead.*: see that it runs there"):
            client.ask("/version")


def test_rows_that_the_server_has_no_room_for_are_one_line() -> None:
    with served() as server:
        server.context = 20
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        line = r"has room for 20 tokens, and rows may have .*: start it with --max-model-len"
        with pytest.raises(UserError, match=line):
            policy.generate(PROMPTS, 1, 30)
        with pytest.raises(UserError, match=line):
            policy.converse(["2 + 3?"], lambda rows, texts: [None] * len(rows), 1, 30)


def test_a_probability_that_is_no_number_diverges() -> None:
    with served() as server:
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        policy.generate(PROMPTS, 1, 4)
        row = {**ROW, "token_ids": [5, 0], "logprobs": {"token_logprobs": [-1.0, -9999.0]}}
        server.broken = {"choices": [row]}
        with pytest.raises(Diverged):
            policy.generate(PROMPTS, 1, 4)


def test_a_folder_that_cannot_be_written_is_one_line(server: StandIn, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    policy = LanguageNetwork(engine="vllm", server=server.url, exchange=str(tmp_path / "file")).build(0)
    with torch.no_grad():
        policy.decoder.head.mul_(1.02)
    with pytest.raises(EngineFailed, match=r"cannot write .*: a file is in the way; make room, or give another"):
        policy.generate(PROMPTS, 1, 4)


def test_without_vllm_the_line_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", None)
    with pytest.raises(UserError, match=r"needs the package vllm: pip install -c constraints-vllm.txt -e '.\[vllm\]'"):
        LanguageNetwork(engine="vllm").build(0)


def test_an_old_vllm_in_this_process_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "vllm", module("0.9.1"))
    with pytest.raises(UserError, match=r"policy.engine=vllm is vLLM 0.9.1, and rlkit needs 0.32"):
        LanguageNetwork(engine="vllm").build(0)


def test_a_vllm_in_this_process_that_fails_is_one_line(server: StandIn, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = built("inside", server, monkeypatch)
    policy.generate(PROMPTS, 1, 4)
    monkeypatch.setattr(policy.engine.backend.llm.core, "write", lambda *_: 1 / 0)
    with pytest.raises(EngineFailed, match=r"policy.engine=vllm cannot write \(division by zero\): its own lines"):
        policy.generate(PROMPTS, 1, 4)
    ended = SimpleNamespace(outputs=[SimpleNamespace(finish_reason="abort")])
    monkeypatch.setattr(policy.engine.backend.llm, "generate", lambda *_, **__: [ended] * 2)
    with pytest.raises(EngineFailed, match="a row ended by abort"):
        policy.generate(PROMPTS, 1, 4)
