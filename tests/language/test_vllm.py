"""vLLM as an engine, behind the protocol of the native one. A stand-in takes vLLM's place: it says nothing of vLLM."""

import copy
from pathlib import Path

import pytest
import torch
from support.vllm_stand_in import PROMPTS, REAL, StandIn, built, served
from tensordict import TensorDict
from torch.testing import assert_close

from rlkit.language.asked import Written
from rlkit.language.generate import Rule
from rlkit.language.model import LanguageModel
from rlkit.language.network import LanguageNetwork
from rlkit.language.turns import Talk
from rlkit.language.vllm_engine import _Talking
from rlkit.seeding import generator
from rlkit.settings import config
from rlkit.settings.assemble import assemble


@pytest.fixture(params=["native", "server", "inside", *(["real"] if REAL else [])])
def policy(request: pytest.FixtureRequest, server: StandIn, monkeypatch: pytest.MonkeyPatch) -> LanguageModel:
    """The same model behind each engine."""
    return built(request.param, server, monkeypatch)


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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
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


@pytest.mark.slow
def test_an_engine_that_is_off_is_weighed_and_named() -> None:
    """A server that rounds: truncated importance sampling is on, and the gap is told."""
    with served() as server:
        policy_keys = f"policy.engine=vllm policy.server={server.url} algo.sampler_cap=1.5"
        words = f"algo=grpo env=gsm8k env.rows=4 algo.group=4 algo.entropy_coef=0.01 env.max_tokens=16 {policy_keys}"
        given = config.read(words.split())
        algo, env = (parts := assemble(given)).algo, parts.env
        with torch.no_grad():
            rollout = algo.rollout(env)
            rollout["sampler_log_prob"] += 0.5
            algo.buffer.extend(algo.credit(rollout.clone()))
        batch = next(iter(algo.buffer))
        ratio = (batch["log_prob"] - batch["sampler_log_prob"]).exp().clamp(max=1.5)[batch["mask"]]
        assert_close(ratio.mean(), torch.tensor(0.6065), atol=1e-3, rtol=0)


def test_a_stop_string_may_begin_in_an_earlier_request_of_the_same_turn() -> None:
    policy = native()
    begun, rest, more = (policy.tokenizer.encode_after([text])[0] for text in ("2>", "> 5 8", " apples"))
    rule = Rule(1.0, False, policy.tokenizer.stop_ids, stopping=policy.stopping([">>"]))
    talking = _Talking([[1, 2]], rule, Talk(lambda rows, turns: [None] * len(rows), 40, 40, 100))
    for tokens in (begun, rest + more):  # vLLM says of both that a stop string ended them
        talking.hear(talking.requests(0, 0), [Written(tokens, [0.0] * len(tokens), True)])
    assert policy.tokenizer.decode(talking.said) == ["2>>"] and not talking.open
