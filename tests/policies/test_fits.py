"""What does not fit into memory is refused when an algorithm is made: nothing was allocated, nothing played."""

from pathlib import Path

import pytest

from rlkit import memory, session
from rlkit.comparison import plan
from rlkit.errors import UserError
from rlkit.settings import config
from rlkit.settings.assemble import assemble


def refused(monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    monkeypatch.setattr(memory, "free", lambda: memory.GIB)
    with pytest.raises(UserError) as caught:
        assemble(config.read(words))
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("algo=ppo env=cartpole policy.hidden=1000000000", "policy.hidden=1000000000 on 4 inputs needs "),
        ("algo=dqn env=cartpole policy.hidden=30000,30000", "policy.hidden=30000,30000 on 4 inputs needs "),
        ("algo=ppo env=cartpole algo.horizon=1000000000", "algo.horizon=1000000000 with env.rows=8 needs "),
        ("algo=a2c env=cartpole algo.horizon=1000000000", "algo.horizon=1000000000 with env.rows=8 needs "),
        ("algo=ppo env=cartpole env.rows=100000", "algo.horizon=32 with env.rows=100000 needs "),
        ("algo=ppo env=cartpole env.rows=10000000", "env.rows=10000000 needs "),
        ("algo=reinforce env=cartpole env.rows=100000", "env.rows=100000 needs "),
        ("algo=ppo env=gym env.id=CartPole-v1 env.rows=10000000", "env.rows=10000000 needs "),
        ("algo=grpo env=cartpole algo.group=1000000000", "algo.group=1000000000 with env.rows=4 needs "),
        ("algo=dpo env=cartpole algo.group=1000000000", "algo.group=1000000000 with env.rows=8 needs "),
        ("algo=grpo env=gsm8k algo.group=1000000000", "algo.group=1000000000 with env.rows=32 needs "),
        ("algo=reward_model env=gsm8k algo.group=1000000000", "algo.group=1000000000 with env.rows=32 needs "),
        ("algo=dqn env=cartpole algo.capacity=1000000000 algo.prioritized=true", "algo.capacity=1000000000 needs "),
        ("algo=dqn env=cartpole algo.steps=1000000000", "algo.steps=1000000000 with env.rows=4 needs "),
        ("algo=dqn env=cartpole algo.batch_size=1000000000", "algo.batch_size=1000000000 with algo.updates=8 needs "),
        ("algo=q_learning env=taxi algo.steps=1000000000", "algo.steps=1000000000 with env.rows=64 needs "),
        ("algo=td env=taxi algo.steps=1000000000", "algo.steps=1000000000 with env.rows=32 needs "),
    ],
)
def test_what_does_not_fit_is_named_as_it_was_given(words: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    said = refused(monkeypatch, *words.split())
    assert said.startswith(what) and " GB, 1.0 GB are free: give " in said


@pytest.mark.parametrize("words", ["algo=dqn env=cartpole algo.n_step=501", "algo=td env=taxi algo.n=201"])
def test_no_sum_reaches_beyond_the_longest_episode(words: str, monkeypatch: pytest.MonkeyPatch) -> None:
    key, _, value = words.split()[-1].partition("=")
    said = refused(monkeypatch, *words.split())
    most = int(value) - 1
    assert said == (
        f"{key}={value} exceeds the longest episode, which env.step_limit ends after {most} steps: give "
        f"{key}={most} or less, or longer episodes"
    )


def test_a_table_of_too_many_states_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    from gymnasium.spaces import Discrete

    from rlkit.policies import sizes

    env = SimpleNamespace(observation_space=Discrete(10**12), action_space=Discrete(4))
    with pytest.raises(UserError, match=r"^a table of 1,000,000,000,000 states and 4 actions needs 3e\+04 GB|^a table"):
        sizes(env, "q_learning")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (
            ["env=cartpole", f"policy.hidden={','.join(['2'] * 101)}"],
            r"^policy\.hidden has 101 layers: give at most 100$",
        ),
        (["env=gsm8k", "env.train=1000000000000"], r"^env\.train=1000000000000 is not allowed: give .* 100000$"),
        (["env=gsm8k", "env.test=1000000000"], r"^env\.test=1000000000 is not allowed: give .* 100000$"),
        (["env=cartpole", "evaluation_episodes=100000000000000"], r"^evaluation_episodes=1\d+ is not allowed: give .*"),
    ],
)
def test_what_would_take_for_ever_is_refused(words: list[str], told: str) -> None:
    with pytest.raises(UserError, match=told):
        assemble(config.read(["algo=ppo", *words]))


@pytest.mark.parametrize("algo", ["algo=dqn env=cartpole", "algo=sac env=pendulum", "algo=td3 env=pendulum"])
def test_a_replay_that_does_not_fit_is_refused_where_it_would_be_filled(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, algo: str
) -> None:
    """A policy that is only measured needs no memory for the replay of its run."""
    words = [*algo.split(), "algo.capacity=100000000", f"out={tmp_path / 'run'}"]
    monkeypatch.setattr(memory, "free", lambda: memory.GIB)
    with pytest.raises(UserError, match=r"^algo.capacity=100000000 needs .* 1\.0 GB are free: give a smaller one$"):
        session.carry_out(config.read(words))
    assert not (tmp_path / "run").exists()
    with pytest.raises(UserError, match=r"algo.capacity=100000000 needs .* give a smaller one"):
        plan.plan(plan.parse([word for word in words if "out=" not in word]))
    assemble(config.read(words))
