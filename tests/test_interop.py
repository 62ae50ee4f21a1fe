"""TorchRL as the oracle of its own layout: its modules on our policies and batches compute what ours do."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from gymnasium.spaces import Box, Dict, MultiBinary, MultiDiscrete
from support.fakes import (
    Ring,
    algorithm,
    cartpole,
    control,
    credited,
    environment,
    gradient,
    gradient_of,
    in_double,
    iterate,
    parameters,
)
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close
from torchrl.envs import GymEnv
from torchrl.objectives import A2CLoss, ClipPPOLoss, DQNLoss
from torchrl.objectives.value import GAE

from rlkit import policies, returns
from rlkit.api import UserError
from rlkit.interop import from_torchrl, log_prob_key, to_torchrl
from rlkit.run import main
from rlkit.settings import plugins

ONCE = {"horizon": 32, "minibatches": 1, "epochs": 1, "entropy_coef": 0.01}


def pendulum(rows: int) -> Any:
    module = plugins.load("envs", "pendulum")
    return module.make(module.Config(rows=rows), 0, torch.device("cpu"))


ENVS = {"discrete": cartpole, "continuous": pendulum, "states": lambda rows: environment("frozenlake", rows=rows)}


def played(name: str, env: Any, **config: Any) -> tuple[Any, TensorDict]:
    """An algorithm and what it played, in double precision; states become one-hot vectors in single precision."""
    algo = algorithm(name, env, policies.Network(normalize=True), **config)
    rollout = algo.rollout(env)
    return algo, in_double(algo, rollout) if rollout["observation"].is_floating_point() else rollout


def moved(policy: torch.nn.Module) -> None:
    draw = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for p in policy.parameters():
            p += 0.1 * torch.randn(p.shape, generator=draw, dtype=p.dtype)


@pytest.mark.parametrize("kind", ENVS)
def test_a_policy_says_the_same_there(kind: str) -> None:
    algo, rollout = played("ppo", ENVS[kind](4), **ONCE)
    actor, critic = to_torchrl(algo.policy)
    there = to_torchrl(rollout)
    assert_close(actor.get_dist(there).log_prob(there["action"]), rollout["log_prob"])
    assert_close(critic(there.exclude("state_value"))["state_value"].squeeze(-1), rollout["value"])
    drawn = actor(there.select("observation"))
    assert drawn["action"].shape == there["action"].shape and drawn[log_prob_key()].shape == (4, 32)
    assert not torch.equal(drawn["action"], there["action"])  # at random, as ours


@pytest.mark.parametrize("kind", ENVS)
def test_an_optimisers_step_on_one_moves_the_other(kind: str) -> None:
    algo, rollout = played("ppo", ENVS[kind](2), **ONCE)
    loss = ClipPPOLoss(*to_torchrl(algo.policy))
    optimizer = torch.optim.SGD(loss.parameters(), lr=0.1)
    before, batch = parameters(algo.policy), to_torchrl(credited(algo, rollout))
    out = loss(batch)
    (out["loss_objective"] + out["loss_critic"] + out["loss_entropy"]).backward()
    optimizer.step()
    assert (parameters(algo.policy) != before).double().mean() > 0.2  # of frozenlake only the states that were seen
    assert {id(p) for p in loss.parameters()} == {id(p) for p in algo.policy.parameters()}


def test_an_actor_alone_and_a_q_network() -> None:
    actor = to_torchrl(algorithm("grpo", cartpole(2), policies.Network()).policy)
    policy = algorithm("dqn", cartpole(2), policies.Network(), dueling=True).policy
    observation = torch.randn(7, 4, generator=torch.Generator().manual_seed(0))
    data = TensorDict({"observation": observation}, [7])
    assert actor(data.clone())["action"].shape == (7,)
    out = to_torchrl(policy)(data)
    assert_close(out["action_value"], policy(observation))
    assert torch.equal(out["action"], policy.act(observation, greedy=True))


@pytest.mark.parametrize("lam", [0.0, 0.9, 1.0])
def test_gae_of_torchrl_on_the_batch_is_ours(lam: float) -> None:
    _, rollout = played("ppo", cartpole(4, step_limit=20), **ONCE)  # rows end by falling, by the limit, or not yet
    assert rollout["terminated"].any() and (rollout["done"] & ~rollout["terminated"]).any()
    there = GAE(gamma=0.96875, lmbda=lam, value_network=None, differentiable=False)(to_torchrl(rollout))
    r = rollout
    advantage, target = returns.gae(r["reward"], r["value"], r["next_value"], r["terminated"], r["done"], 0.96875, lam)
    assert_close(there["advantage"].squeeze(-1), advantage, rtol=1e-6, atol=1e-6)
    assert_close(there["value_target"].squeeze(-1), target, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("kind", ENVS)
def test_clip_ppo_loss_is_ours_in_value_and_gradient(kind: str) -> None:
    algo, rollout = played("ppo", ENVS[kind](4), **ONCE)
    batch = credited(algo, rollout)
    moved(algo.policy)
    options = {"clip_epsilon": 0.2, "entropy_coeff": 0.01, "critic_coeff": 0.25, "loss_critic_type": "l2"}
    out = ClipPPOLoss(*to_torchrl(algo.policy), normalize_advantage=False, **options)(to_torchrl(batch))
    theirs = out["loss_objective"] + out["loss_critic"] + out["loss_entropy"]
    assert_close(algo.loss(batch)[0], theirs)
    assert_close(gradient(algo, batch), gradient_of(algo, theirs))
    assert 0 < float(out["clip_fraction"]) < 1


def test_a2c_loss_is_ours_in_value_and_gradient() -> None:
    algo, rollout = played("a2c", cartpole(4), horizon=32, entropy_coef=0.01)
    batch = credited(algo, rollout)
    options = {"entropy_coeff": 0.01, "critic_coeff": 0.25, "loss_critic_type": "l2"}
    out = A2CLoss(*to_torchrl(algo.policy), **options)(to_torchrl(batch))
    theirs = out["loss_objective"] + out["loss_critic"] + out["loss_entropy"]
    assert_close(algo.loss(batch)[0], theirs)
    assert_close(gradient(algo, batch), gradient_of(algo, theirs))


@pytest.mark.filterwarnings("ignore:No target network updater")
@pytest.mark.parametrize("kind", ["discrete", "states"])
def test_dqn_loss_is_ours_in_value_and_gradient(kind: str) -> None:
    algo, rollout = played("dqn", ENVS[kind](4), steps=50, gamma=0.96875, double=False)
    algo.target.to(rollout["reward"].dtype)
    moved(algo.policy)
    algo.target.load_state_dict(algo.policy.state_dict())
    oracle = DQNLoss(to_torchrl(algo.policy), action_space="categorical", loss_function="smooth_l1", delay_value=True)
    oracle.make_value_estimator(oracle.default_value_estimator, gamma=0.96875)
    theirs = oracle(to_torchrl(rollout))["loss"]
    batch = algo.credit(rollout)
    batch["weight"] = torch.full_like(batch["reward"], 1 / batch["reward"].numel())
    assert_close(algo.loss(batch)[0], theirs)
    assert_close(gradient(algo, batch), gradient_of(algo, theirs))


def test_there_and_back_is_the_same_batch() -> None:
    algo, rollout = played("ppo", cartpole(4), **ONCE)
    batch = algo.credit(rollout)
    back = from_torchrl(to_torchrl(batch))
    assert set(back.keys()) == set(batch.keys())
    for key, x in batch.items():
        assert_close(back[key], x, rtol=0, atol=0)
    assert back.batch_size == batch.batch_size


@pytest.mark.parametrize("one_hot", [False, True])
def test_what_torchrl_collects_with_our_policy_is_a_rollout_of_ours(one_hot: bool) -> None:
    algo = algorithm("ppo", cartpole(2), policies.Network(), **ONCE)
    env = GymEnv("CartPole-v1", categorical_action_encoding=not one_hot)
    env.set_seed(0)
    actor, _ = to_torchrl(algo.policy)

    def act(data: TensorDict) -> TensorDict:
        data = actor(data)
        return data.set("action", torch.nn.functional.one_hot(data["action"], 2)) if one_hot else data

    with torch.random.fork_rng():
        torch.manual_seed(0)  # TorchRL draws from the global generator
        collected = env.rollout(64, act, break_when_any_done=False)
    rollout = from_torchrl(collected)
    assert rollout["action"].shape == rollout["mask"].shape == (1, 64) and rollout["mask"].all()
    assert rollout["done"].any() and float(rollout["score"]) == 64
    recorded = algo.policy.record(rollout)
    assert_close(rollout["log_prob"], recorded["log_prob"])
    batch = credited(algo, rollout.update(recorded))
    assert torch.isfinite(algo.loss(batch)[0])


def test_what_a_collector_padded_is_masked() -> None:
    steps = torch.tensor([[True, True, False], [True, True, True]])
    reward = torch.ones(2, 3, 1)
    after: dict[str, Tensor] = {"reward": reward, "done": steps[..., None], "terminated": steps[..., None]}
    after |= {"observation": torch.zeros(2, 3, 4), "state_value": reward}
    data = {"observation": torch.zeros(2, 3, 4), "action": torch.zeros(2, 3, 1), "next": after}
    rollout = from_torchrl(TensorDict(data | {"collector": {"mask": steps}}, [2, 3]))
    assert torch.equal(rollout["mask"], steps) and rollout["score"].tolist() == [2.0, 3.0]
    assert rollout["next_value"].tolist() == [[0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
    assert rollout["action"].shape == (2, 3, 1)  # continuous ones keep their dimension


@pytest.mark.parametrize("kind", [torch.uint8, torch.int64, torch.bool])
def test_one_hot_actions_are_numbers_where_a_collector_padded_with_zeros(kind: torch.dtype) -> None:
    steps = torch.tensor([[True, True, False], [True, True, True]])
    after = {"reward": torch.ones(2, 3, 1), "done": steps[..., None], "terminated": steps[..., None]}
    action = torch.nn.functional.one_hot(torch.tensor([[2, 1, 0], [0, 1, 2]]), 3) * steps[..., None]
    bits = torch.eye(3, dtype=torch.uint8).expand(2, 3, 3)  # an observation of rlkit's, as of a MultiBinary
    data = {"observation": bits, "action": action.to(kind), "next": after | {"observation": bits}}
    rollout = from_torchrl(TensorDict(data | {"collector": {"mask": steps}}, [2, 3]))
    assert rollout["action"].tolist() == [[2, 1, 0], [0, 1, 2]]
    assert torch.equal(rollout["observation"], bits) and torch.equal(rollout["next_observation"], bits)


@pytest.mark.parametrize(("sizes", "shape"), [([2, 3], (5,)), ([3, 3], (6,)), ([3, 3], (2, 3))])
def test_one_hot_vectors_of_several_choices_are_read_by_the_spaces(sizes: list[int], shape: tuple[int, ...]) -> None:
    """TorchRL's MultiOneHot, and its OneHot of equal choices, as of a Gymnasium MultiDiscrete."""
    env = control(Ring, 2, 3)
    env.action_space = env.observation_space = MultiDiscrete(sizes)
    chosen = torch.tensor([[[1, 2], [0, 1], [0, 0]]])
    hot = torch.cat([torch.nn.functional.one_hot(chosen[..., i], n) for i, n in enumerate(sizes)], -1)
    hot = hot.view(1, 3, *shape)
    flags = torch.zeros(1, 3, 1, dtype=torch.bool)
    after = {"reward": torch.ones(1, 3, 1), "done": flags, "terminated": flags, "observation": hot}
    batch = TensorDict({"observation": hot, "action": hot, "next": after}, [1, 3])
    rollout = from_torchrl(batch, env=env)
    assert all(torch.equal(rollout[key], chosen) for key in ("action", "observation", "next_observation"))
    with pytest.raises(UserError, match=r"^the actions look like several choices, .* from_torchrl\(batch, env=ENV\)"):
        from_torchrl(batch)
    plain = batch.update({"action": chosen, "observation": chosen, "next": after | {"observation": chosen}})
    assert torch.equal(from_torchrl(plain, env=env)["action"], chosen)  # numbers stay


@pytest.mark.parametrize("value", [0, 1])
def test_whole_actions_of_one_number_are_no_one_hot_vectors(value: int) -> None:
    flags = torch.zeros(2, 3, 1, dtype=torch.bool)
    after = {"reward": torch.ones(2, 3, 1), "done": flags, "terminated": flags, "observation": torch.zeros(2, 3, 4)}
    data = {"observation": torch.zeros(2, 3, 4), "action": torch.full((2, 3, 1), value), "next": after}
    assert from_torchrl(TensorDict(data, [2, 3]))["action"].tolist() == [[[value]] * 3] * 2


def test_what_is_neither_policy_nor_batch_is_refused() -> None:
    with pytest.raises(UserError, match=r"an Actor, ActorCritic or QNetwork, and this is a Table$"):
        to_torchrl(algorithm("q_learning", environment("gridworld"), policies.Network()).policy)


EXAMPLE = str(Path(__file__).resolve().parent.parent / "docs" / "examples" / "torchrl_ppo.py")


def test_the_example_with_torchrls_loss_starts_as_our_ppo() -> None:
    keys = {"entropy_coef": 0.01, "gamma": 0.98, "gae_lambda": 0.8, "epochs": 3, "lr": 1e-3}
    mine, ours = (algorithm(name, cartpole(4), policies.Network(), **keys) for name in (EXAMPLE, "ppo"))
    losses = []
    for algo in (mine, ours):
        env = cartpole(4)
        with torch.no_grad():
            algo.buffer.extend(algo.credit(algo.rollout(env)))
        losses.append(torch.stack([algo.loss(batch)[0].detach() for batch in algo.buffer]))
    assert_close(losses[0], losses[1])
    iterate(mine, cartpole(4)), iterate(ours, cartpole(4))
    assert_close(parameters(mine.policy), parameters(ours.policy), rtol=1e-3, atol=1e-4)


def test_the_example_runs_and_loses_nothing(tmp_path: Path) -> None:
    """A loss of TorchRL keeps notes of its own, which are not state."""
    words = [f"algo={EXAMPLE}", "env=cartpole", "threads=1", "iterations=2", "evaluation_episodes=2"]
    assert main([*words, f"out={tmp_path / 'run'}"]) == 0


@pytest.mark.slow
def test_the_example_learns_cartpole(tmp_path: Path) -> None:
    """100,000 steps, about half a minute on one idle core."""
    assert main([f"algo={EXAMPLE}", "env=cartpole", "threads=1", f"out={tmp_path / 'run'}"]) == 0
    assert json.loads((tmp_path / "run" / "summary.json").read_text())["evaluation"]["after"]["mean"] >= 450


def test_the_example_is_refused_on_text(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([f"algo={EXAMPLE}", "env=gsm8k"]) == 2
    assert "this one is text; use algo=ppo" in capsys.readouterr().err


def test_several_choices_are_refused() -> None:
    env = control(Ring, 2, 3)
    env.action_space = MultiDiscrete([2, 3])
    with pytest.raises(UserError, match="here they are several choices"):
        to_torchrl(policies.Network().actor(env))


@pytest.mark.parametrize("kind", ["actor", "actor_critic", "q_network"])
def test_a_policy_that_keeps_to_a_mask_is_refused(kind: str) -> None:
    """TorchRL's modules would choose what is forbidden, and give it a probability."""
    env = cartpole(rows=2)
    env.observation_space = Dict({"observation": Box(-1, 1, (4,)), "action_mask": MultiBinary(2)})
    with pytest.raises(UserError, match=r"this one keeps to an action_mask$"):
        to_torchrl(getattr(policies.Network(), kind)(env))


@pytest.mark.parametrize("share", ["all", "none"])
def test_layers_that_actor_and_critic_share_are_in_front_of_both(share: str) -> None:
    env = cartpole(rows=2)
    policy = policies.Network(hidden=(8,), share=share).actor_critic(env)
    if share == "none":
        policy.trunk = torch.nn.Linear(4, 4)  # a user's
    rollout = env.rollout(policy, steps=4)
    (actor, critic), batch = to_torchrl(policy), to_torchrl(rollout)
    assert_close(critic(batch.clone())["state_value"][..., 0], rollout["value"])
    assert_close(actor.get_dist(batch).log_prob(rollout["action"]), rollout["log_prob"])
    assert {id(p) for p in [*actor.parameters(), *critic.parameters()]} == {id(p) for p in policy.parameters()}
