"""Rollouts that are written while the learner learns: one version old, weighed, and none of them lost."""

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from support.resuming import REWARD, cut
from support.vllm_stand_in import StandIn, served
from torch.testing import assert_close

from rlkit import run
from rlkit.errors import EngineFailed, UserError
from rlkit.loop import walk
from rlkit.meter import Meter
from rlkit.settings import config
from rlkit.settings.assemble import Parts, assemble

WORDS = ["env=gsm8k", "env.rows=2", "env.max_tokens=8", "algo.lr=0.01", "policy.engine=vllm", "policy.staleness=1"]


@pytest.fixture
def server() -> Iterator[StandIn]:
    with served() as found:
        yield found


def parts_of(server: StandIn, *words: str) -> Parts:
    algo = [] if any(word.startswith("algo=") for word in words) else ["algo=grpo"]
    given = [*algo, "algo.group=4", *WORDS, f"policy.server={server.url}", *words]
    return assemble(config.read(given))


def test_rows_are_one_version_old_and_say_so(server: StandIn) -> None:
    """What the engine said is what the learner said one optimizer step ago; log_prob is what it says now."""
    parts = parts_of(server)
    algo, env = parts.algo, parts.env
    before = algo.policy.reference()
    for version in (0, 0, 1, 2):
        now = algo.policy.reference()
        rollout, _ = walk(algo, env, Meter())
        rows = rollout.flatten()
        assert rows["version"].unique().tolist() == [version]
        assert_close(rows["sampler_log_prob"], before.evaluate(rows)["log_prob"], rtol=1e-4, atol=1e-4)
        assert_close(rows["log_prob"], now.evaluate(rows)["log_prob"], rtol=1e-4, atol=1e-4)
        before = now
    age = rollout["rollout/staleness"]
    assert (age == 1).all() and (rows["log_prob"] - rows["sampler_log_prob"]).abs().max() > 1e-3


@pytest.mark.slow
def test_rollouts_of_one_iteration_are_of_the_weights_that_wrote_them(server: StandIn) -> None:
    """DAPO plays on until enough groups differ: the weights of its second rollout are those that learn from it."""
    words = ("algo=dapo", "algo.overlong_buffer=0", REWARD)
    parts = parts_of(server, *words)
    algo, env = parts.algo, parts.env
    algo.rows = 3  # more than one rollout has
    before = algo.policy.reference()
    for iteration, versions in enumerate([{0}, {0, 1}, {1, 2}]):
        now = algo.policy.reference()
        rows = walk(algo, env, Meter())[0].flatten()
        assert {*rows["version"].tolist()} == versions
        assert torch.equal(rows["rollout/staleness"], (iteration - rows["version"]).float())
        for version, writer in ((iteration - 1, before), (iteration, now)):
            mine = rows[rows["version"] == version]
            if len(mine):
                assert_close(mine["sampler_log_prob"], writer.evaluate(mine)["log_prob"], rtol=1e-4, atol=1e-4)
        before = now
    again = parts_of(server, *words)
    again.algo.rows = 3
    again.env.load_state_dict(env.state_dict())
    assert {*walk(again.algo, again.env, Meter())[0]["version"].flatten().tolist()} == {3}


@pytest.mark.slow
def test_the_next_rollout_is_under_way_while_this_one_is_learned_from(server: StandIn) -> None:
    parts, gate, asked, answer = parts_of(server), threading.Event(), threading.Semaphore(0), server.answer
    parts.algo.policy.generate(["a"], 1, 1)  # now the server is known and has the weights
    left = [8]  # rows of the first rollout, which are answered at once

    def held(path: str, body: object) -> object:
        if path == "/v1/completions":
            left[0] -= 1
            if left[0] < 0:
                asked.release()
                assert gate.wait(60)
        return answer(path, body)

    server.answer = held
    try:
        walk(parts.algo, parts.env, Meter())  # it learns, though nobody answers for the next one yet
        assert asked.acquire(timeout=60)
    finally:
        gate.set()
    assert walk(parts.algo, parts.env, Meter())[0]["version"].unique().tolist() == [0]


@pytest.mark.slow
def test_what_is_measured_is_measured_with_the_newest_weights(server: StandIn) -> None:
    parts = parts_of(server)
    walk(parts.algo, parts.env, Meter())
    found = parts.env.evaluate(parts.algo.policy, 4).score
    label = parts.algo.policy.engine.label
    assert server.core.label == label
    native = assemble(config.read(["algo=grpo", "env=gsm8k", "env.max_tokens=8"]))
    native.algo.policy.load_state_dict(parts.algo.policy.state_dict())
    assert torch.equal(found, native.env.evaluate(native.algo.policy, 4).score)


@pytest.mark.slow
def test_no_problem_is_left_out_where_a_run_goes_on(server: StandIn) -> None:
    words = ("env.curriculum=success",)
    parts = parts_of(server, *words)
    seen = [walk(parts.algo, parts.env, Meter())[0]["problem"] for _ in range(3)]
    again = parts_of(server, *words)
    again.env.load_state_dict(parts.env.state_dict())
    following = [walk(each.algo, each.env, Meter())[0] for each in (parts, again)]
    assert torch.equal(following[0]["problem"], following[1]["problem"])
    assert not torch.equal(following[0]["problem"], seen[-1])
    assert following[0]["version"].unique().tolist() == [2] and following[1]["version"].unique().tolist() == [3]


@pytest.mark.slow
def test_a_server_that_goes_away_meanwhile_is_told_where_its_rows_are_due(
    server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    parts = parts_of(server)
    walk(parts.algo, parts.env, Meter())
    parts.algo.policy.engine.pending.result()
    server.failing = "/v1/completions"
    walk(parts.algo, parts.env, Meter())  # these rows are there
    before = parts.env.state_dict()
    with pytest.raises(EngineFailed, match="refused /v1/completions with status 500: it fails"), torch.no_grad():
        parts.algo.rollout(parts.env)
    parts.env.load_state_dict(before)
    server.failing = None
    walk(parts.algo, parts.env, Meter())


@pytest.mark.slow
def test_the_first_screen_says_what_is_not_exact(
    server: StandIn, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=ppo", *WORDS, "iterations=2", "evaluations=0", "evaluation_episodes=2", f"out={tmp_path / 'a'}"]
    assert run.main([*words, f"policy.server={server.url}"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "a resumed run may write otherwise; rows are learned from one version later" in said
    assert '"rollout/staleness": 1.0' in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1]


@pytest.mark.slow
def test_a_run_that_was_killed_goes_on(
    server: StandIn, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["algo=grpo", "algo.group=4", *WORDS, f"policy.server={server.url}", "iterations=4", "checkpoint_every=1"]
    cut([*words, "evaluations=0", "evaluation_episodes=2"], tmp_path / "a", monkeypatch)
    assert run.main([f"resume={tmp_path / 'a'}"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "a" / "metrics.jsonl").read_text().splitlines()]
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4]
    assert [line["rollout/staleness"] for line in lines] == [0, 1, 0, 1]  # the third was begun anew


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("algo=grpo env=gsm8k env.tool=calculator", "writes completions ahead, and not conversations with a tool"),
        ("algo=reinforce env=gsm8k", "does nothing: it needs an algorithm with algo.sampler_cap, such as grpo and ppo"),
        ("algo=sft env=gsm8k", "does nothing: it needs an algorithm with algo.sampler_cap, such as grpo and ppo"),
    ],
)
def test_what_cannot_be_written_ahead_is_refused(server: StandIn, words: str, line: str) -> None:
    keys = f"policy.engine=vllm policy.staleness=1 policy.server={server.url}"
    with pytest.raises(UserError, match=line):
        assemble(config.read(f"{words} {keys}".split()))


def test_without_a_server_nothing_is_written_ahead() -> None:
    with pytest.raises(UserError, match=r"staleness=1 does nothing with policy.server=none: it needs policy.server"):
        assemble(config.read(["algo=grpo", "env=gsm8k", "policy.staleness=1"]))
