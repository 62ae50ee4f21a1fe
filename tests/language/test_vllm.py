"""vLLM as an engine, behind the protocol of the native one. A stand-in takes vLLM's place: it says nothing of vLLM."""

import copy
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.small_model import model
from support.vllm_stand_in import StandIn, module, served
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit.errors import Diverged, EngineFailed, UserError
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble

REAL = os.environ.get("RLKIT_VLLM_SERVER")  # of a vLLM that serves tiny: the contract is checked with it, too
PROMPTS = ["What is 3 + 4?\n", "Bob has 5 apples and eats 2. How many are left?\n"]


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with served() as found:
        yield found


@pytest.fixture(params=["native", "server", "inside", *(["real"] if REAL else [])])
def policy(request: pytest.FixtureRequest, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """The same model behind each engine."""
    return built(request.param, server, monkeypatch)


def built(kind: str, server: StandIn, monkeypatch: pytest.MonkeyPatch, **keys: object) -> LanguageModel:
    monkeypatch.setitem(sys.modules, "vllm", module())
    engines = {"native": {}, "server": {"engine": "vllm", "server": server.url}, "inside": {"engine": "vllm"}}
    engine = {**engines, "real": {"engine": "vllm", "server": REAL}}[kind]
    return LanguageNetwork(temperature=0.8, **engine, **keys).build(0)


def native(**keys: object) -> LanguageModel:
    return LanguageNetwork(temperature=0.8, **keys).build(0)


def alike(found: TensorDict, expected: TensorDict) -> None:
    """The same texts, and the same log-probabilities where those are of what was drawn."""
    for key in ("observation", "action", "mask", "truncated"):
        assert torch.equal(found[key], expected[key]), key


# The contract, which every engine keeps


def test_greedy_texts_are_the_same(policy: LanguageModel) -> None:
    alike(policy.generate(PROMPTS, 2, 24, greedy=True), native().generate(PROMPTS, 2, 24, greedy=True))


def test_first_tokens_that_are_forbidden_do_not_come(policy: LanguageModel) -> None:
    plain = native().generate(PROMPTS, 1, 12, greedy=True)
    first = [policy.tokenizer.decode([[row["action"][row["mask"]][0].item()]])[0] for row in plain[:, 0]]
    found = policy.generate(PROMPTS, 1, 12, greedy=True, forbid_first=first)
    alike(found, native().generate(PROMPTS, 1, 12, greedy=True, forbid_first=first))
    assert not torch.equal(found["action"], plain["action"][..., : found["action"].shape[-1]])


def test_stop_strings_end_a_row_with_the_token_that_completes_them(policy: LanguageModel) -> None:
    keys = {"greedy": True, "stop": ["3", ">>"]}
    alike(policy.generate(PROMPTS, 1, 32, **keys), native().generate(PROMPTS, 1, 32, **keys))


def test_a_draw_depends_on_the_generator_alone(policy: LanguageModel) -> None:
    first, again, other = (
        policy.generate(PROMPTS, 4, 16, generator=generator(seed, "draws"))["action"] for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert first.shape != other.shape or not torch.equal(first, other)
    rows = {tuple(row) for row in first[1].tolist()}
    assert len(rows) > 1, "each attempt draws anew"


def test_what_the_engine_says_is_the_learners_at_the_same_temperature(policy: LanguageModel) -> None:
    rollout = policy.generate(PROMPTS, 8, 16)
    found = policy.evaluate(rollout.flatten())["log_prob"].view_as(rollout["log_prob"])
    assert_close(rollout["log_prob"], found.detach(), rtol=1e-4, atol=1e-4)


def test_it_writes_with_the_newest_weights(policy: LanguageModel) -> None:
    policy.generate(PROMPTS, 1, 8)
    with torch.no_grad():
        policy.decoder.get_parameter("model.layers.0.mlp.down_proj.weight").mul_(0.3)
    rollout = policy.generate(PROMPTS, 4, 12)
    found = policy.evaluate(rollout.flatten())["log_prob"].view_as(rollout["log_prob"])
    assert_close(rollout["log_prob"], found.detach(), rtol=1e-4, atol=1e-4)


def test_a_copy_writes_with_its_own_weights(policy: LanguageModel) -> None:
    first, other = policy.generate(PROMPTS, 1, 8, greedy=True), copy.deepcopy(policy)
    with torch.no_grad():
        for parameter in other.decoder.parameters():
            parameter.mul_(0.5)
    other.generate(PROMPTS, 1, 8, greedy=True)
    assert torch.equal(policy.generate(PROMPTS, 1, 8, greedy=True)["action"], first["action"])


def test_conversations_are_the_same(policy: LanguageModel) -> None:
    def answers(rows: list[int], texts: list[str]) -> list[str | None]:
        counts.update({row: counts.get(row, 0) + 1 for row in rows})
        return [None if counts[row] > 2 + row % 2 else ["", " And 2 pears?\n"][row % 2] for row in rows]

    found = []
    for each in (policy, native()):
        counts: dict[int, int] = {}
        found.append(each.converse(PROMPTS, answers, 2, 40, turn_tokens=7, greedy=True, stop=["5", ">>"]))
    alike(*found)
    assert torch.equal(found[0]["turn_end"], found[1]["turn_end"]) and found[0]["turn_end"].sum() > 4


def test_conversations_end_where_the_context_does(policy: LanguageModel) -> None:
    def answers(rows: list[int], texts: list[str]) -> list[str | None]:
        return ["apples and pears " * 8] * len(rows)

    found = []
    for each in (policy, native()):
        each.decoder.context = 160
        found.append(each.converse(PROMPTS, answers, 1, 100, turn_tokens=5, greedy=True))
    alike(*found)
    assert found[0]["truncated"].all()


# What is vLLM's own


def test_the_learner_says_log_prob_and_the_engine_keeps_its_own(server: StandIn) -> None:
    policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
    rollout = policy.generate(PROMPTS, 2, 8)
    said = rollout["log_prob"].clone()
    rollout = rollout.update(policy.record(rollout))
    assert torch.equal(rollout["sampler_log_prob"], said)
    assert torch.equal(rollout["log_prob"].flatten(0, 1), policy.evaluate(rollout.flatten())["log_prob"].detach())


def test_requests_hold_ids_and_a_seed_each(server: StandIn) -> None:
    policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
    policy.generate(PROMPTS, 1, 4)
    del server.asked[:]
    policy.generate(PROMPTS, 3, 4)
    ids = policy.prompt_ids(PROMPTS)
    assert sorted(body["prompt"] for body in server.asked) == sorted(ids * 3)
    assert len({body["seed"] for body in server.asked}) == 6


def test_weights_are_handed_over_once(server: StandIn, tmp_path: Path) -> None:
    policy = LanguageNetwork(engine="vllm", server=server.url, exchange=str(tmp_path)).build(0)
    with torch.no_grad():
        policy.decoder.head.mul_(1.01)
    before = server.core.loads
    for _ in range(3):
        policy.generate(PROMPTS, 1, 4)
    assert server.core.loads == before + 1 and not list(tmp_path.iterdir())


def test_adapters_are_merged_for_the_engine(server: StandIn) -> None:
    policy = LanguageNetwork(engine="vllm", server=server.url, lora=4).build(0)
    with torch.no_grad():
        for _, linear in policy.decoder.adapted():
            linear.adapter.up.normal_(std=0.3, generator=generator(0, "up"))
    rollout = policy.generate(PROMPTS, 4, 8)
    rollout = rollout.update(policy.record(rollout))
    assert_close(rollout["log_prob"], rollout["sampler_log_prob"], rtol=1e-4, atol=1e-4)


def test_an_engine_that_is_off_is_weighed_and_named() -> None:
    """A server that rounds: truncated importance sampling is on, and the gap is told."""
    with served() as server:
        policy_keys = f"policy.engine=vllm policy.server={server.url} algo.sampler_cap=1.5"
        given = config.read(f"algo=grpo env=gsm8k env.rows=4 algo.group=4 env.max_tokens=16 {policy_keys}".split())
        algo, env = (parts := assemble(given)).algo, parts.env
        with torch.no_grad():
            rollout = algo.rollout(env)
            rollout["sampler_log_prob"] += 0.5
            algo.buffer.extend(algo.credit(rollout.clone()))
        batch = next(iter(algo.buffer))
        ratio = (batch["log_prob"] - batch["sampler_log_prob"]).exp().clamp(max=1.5)[batch["mask"]]
        assert_close(ratio.mean(), torch.tensor(0.6065), atol=1e-3, rtol=0)


# What is refused


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


def test_rows_that_the_server_has_no_room_for_are_one_line() -> None:
    with served() as server:
        server.context = 20
        policy = LanguageNetwork(engine="vllm", server=server.url).build(0)
        with pytest.raises(
            UserError, match=r"has room for 20 tokens, and rows may have .*: start it with --max-model-len"
        ):
            policy.generate(PROMPTS, 1, 30)


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


def test_several_ranks_are_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlkit.ranks.size", lambda: 2)
    with pytest.raises(UserError, match=r"policy.engine=vllm is for one process: leave it out"):
        LanguageNetwork(engine="vllm").build(0)
