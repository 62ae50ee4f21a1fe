"""No algorithm plays what the environment forbids, or gives it probability; and masks make learning faster."""

from functools import partial
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from support.fakes import algorithm, iterate
from support.marks import slow_if
from torch.testing import assert_close

from rlkit import exact, policies, spaces
from rlkit.api import UserError
from rlkit.control import ControlEnv
from rlkit.control.contract import check_copies
from rlkit.control.masks import MaskInObservation, tells_mask
from rlkit.policies import Network
from rlkit.policies.base import any_of
from rlkit.policies.encoders import FORBIDDEN, Allowed
from rlkit.settings import plugins

CARDS = 12


class Hand(gymnasium.Env[Any, Any]):
    """Four cards of twelve, to be played from the lowest up: 1 for each in order. A card that is not there ends it."""

    def __init__(self, told: bool = True) -> None:
        self.observation_space, self.action_space = MultiBinary(CARDS), Discrete(CARDS)
        self.told = told

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.hand = np.zeros(CARDS, np.int8)
        self.hand[self.np_random.choice(CARDS, 4, replace=False)] = 1
        return self.hand.copy(), self.info()

    def info(self) -> dict[str, Any]:
        return {"action_mask": self.hand.copy()} if self.told else {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        if not self.hand[action]:
            assert not self.told, "a card that is not in the hand was played"
            return self.hand.copy(), 0.0, True, False, self.info()
        reward = float(action == self.hand.argmax())
        self.hand[action] = 0
        return self.hand.copy(), reward, not self.hand.any(), False, self.info()


def game(masked: bool = True, rows: int = 8) -> ControlEnv:
    made = (lambda: MaskInObservation(Hand())) if masked else partial(Hand, told=False)
    return ControlEnv(lambda n: SyncVectorEnv([made] * n, autoreset_mode=AutoresetMode.DISABLED), rows)


def taxi(rows: int = 4) -> ControlEnv:
    def made() -> gymnasium.Env[Any, Any]:
        return MaskInObservation(gymnasium.make("Taxi-v4", max_episode_steps=30))

    return ControlEnv(lambda n: SyncVectorEnv([made] * n, autoreset_mode=AutoresetMode.DISABLED), rows)


REPLAY = {"warmup_steps": 16, "steps": 4, "updates": 4, "batch_size": 32, "capacity": 2000}
CONFIGS: dict[str, dict[str, Any]] = {
    "ppo": {"horizon": 16, "entropy_coef": 0.01},
    "a2c": {"horizon": 8, "entropy_coef": 0.01},
    "reinforce": {"baseline": "value"},
    "dqn": {**REPLAY, "hold": 3, "dueling": True, "n_step": 2},
    "sac": REPLAY,
    "dpo": {"group": 4},
    **{name: {"group": 4} for name in ("grpo", "rloo", "gspo", "reinforce_pp")},
    "dapo": {"group": 4, "dynamic_sampling": False},
}
TABLES: dict[str, dict[str, Any]] = {name: {"epsilon": 0.7} for name in ("q_learning", "sarsa", "expected_sarsa")}


def played(name: str, env: ControlEnv, config: dict[str, Any], iterations: int = 6) -> Any:
    """Train, and look at each action that was played."""
    algo = algorithm(name, env, Network(hidden=(16,)), **config)
    at = spaces.part_at(env.observation_space, ("action_mask",))
    for _ in range(iterations):
        rollout = iterate(algo, env)
        mask = rollout["observation"][..., at.start : at.end].bool()
        if "mask" in rollout.keys():
            taken = mask.gather(-1, rollout["action"].unsqueeze(-1)).squeeze(-1)
            assert taken[rollout["mask"]].all()
    env.evaluate(algo.policy, 8)
    env.evaluate(algo.policy, 8, greedy=False)
    return algo


@pytest.mark.parametrize("name", CONFIGS)
def test_no_algorithm_plays_what_is_forbidden(name: str) -> None:
    """Also after an update, greedy and not; in the card game a forbidden card fails the test at once."""
    algo = played(name, game(), CONFIGS[name])
    observation = torch.from_numpy(np.stack([seen(np.eye(CARDS)[i] + np.eye(CARDS)[0]) for i in range(1, CARDS)]))
    for _ in range(50):
        for greedy in (True, False):
            action = algo.policy.act(observation, greedy)
            assert all(a in (0, i) for i, a in enumerate(action.tolist(), start=1))


@pytest.mark.parametrize("name", slow_if(lambda name: name not in ("ppo", "q_learning"), [*CONFIGS, *TABLES]))
def test_taxis_keep_to_their_streets(name: str) -> None:
    played(name, taxi(), {**CONFIGS, **TABLES}[name], iterations=3)


def seen(mask: Any) -> Any:
    """An observation of the card game."""
    space = MaskInObservation(Hand()).observation_space
    return spaces.one(space, {"observation": np.asarray(mask, np.int8), "action_mask": np.asarray(mask, np.int8)})


def test_a_forbidden_action_has_probability_zero_and_no_gradient() -> None:
    env = game()
    actor = Network(hidden=()).actor(env)
    with torch.no_grad():
        actor.actor[-1].bias.copy_(torch.linspace(5, -5, CARDS))
    mask = torch.zeros(CARDS)
    mask[[3, 7, 9]] = 1
    observation = torch.from_numpy(seen(mask.numpy()))[None]
    logits = actor.outputs(observation)
    probability = logits.softmax(-1)[0]
    assert (probability[mask == 0] == 0).all()
    raw = actor.actor(observation)[0]
    assert_close(probability[mask == 1], raw[mask == 1].softmax(-1))
    from tensordict import TensorDict

    found = actor.evaluate(TensorDict({"observation": observation, "action": torch.tensor([7])}, [1]))
    expected = torch.distributions.Categorical(logits=raw[mask == 1])
    assert_close(found["entropy"][0], expected.entropy())
    assert_close(found["log_prob"][0], expected.log_prob(torch.tensor(1)))
    (found["log_prob"] + found["entropy"]).sum().backward()
    assert (actor.actor[-1].bias.grad[mask == 0] == 0).all() and (actor.actor[-1].bias.grad[mask == 1] != 0).all()


def test_several_choices_are_masked_one_by_one() -> None:
    space = Dict({"at": Box(-1, 1, (1,)), "action_mask": Box(0, 1, (5,), np.int8)})
    spaces.check_spaces(space, MultiDiscrete([2, 3]))
    with pytest.raises(UserError, match=r"has 5 entries, and .* has 4 values to choose from"):
        spaces.check_spaces(space, Discrete(4))
    allowed = Allowed(space)
    row = torch.from_numpy(spaces.one(space, {"at": [0.5], "action_mask": np.array([0, 1, 1, 0, 1], np.int8)}))[None]
    scores = allowed.forbid(row, torch.zeros(1, 5), (2, 3))
    assert scores.tolist() == [[FORBIDDEN, 0, 0, FORBIDDEN, 0]]
    ended = torch.from_numpy(spaces.one(space, {"at": [0.5], "action_mask": np.array([0, 0, 1, 0, 0], np.int8)}))[None]
    assert allowed.forbid(ended, torch.zeros(1, 5), (2, 3)).tolist() == [[0, 0, 0, FORBIDDEN, FORBIDDEN]]
    with pytest.raises(UserError, match="asks for an action and allows none"):
        allowed.check(ended, (2, 3))


def test_random_actions_are_even_among_the_allowed_ones() -> None:
    q = torch.tensor([1.0, FORBIDDEN, 3.0, FORBIDDEN, 0.0]).expand(9000, 5)
    counts = torch.bincount(any_of(q, torch.rand(9000, generator=torch.Generator().manual_seed(0))), minlength=5)
    assert counts[[1, 3]].eq(0).all() and (counts[[0, 2, 4]] - 3000).abs().max() < 150
    draw = torch.rand(500, generator=torch.Generator().manual_seed(1))
    assert torch.equal(any_of(torch.zeros(500, 7), draw), (draw * 7).long())
    assert_close(exact.epsilon_greedy(q[:1], 0.3), torch.tensor([[0.1, 0.0, 0.8, 0.0, 0.1]]))


@pytest.mark.parametrize("scale", [1e9, 1e20])
def test_values_far_below_zero_belong_to_allowed_actions(scale: float) -> None:
    """Rewards of -1e8 a step lead to such values."""
    space = Dict({"at": Box(-1, 1, (1,)), "action_mask": Box(0, 1, (3,), np.int8)})
    row = torch.from_numpy(spaces.one(space, {"at": [0.5], "action_mask": np.array([0, 1, 1], np.int8)}))[None]
    q = Allowed(space).forbid(row, torch.tensor([[0.0, -3 * scale, -2 * scale]]), (3,))
    assert q.argmax(-1).tolist() == [2]
    draw = torch.rand(200, generator=torch.Generator().manual_seed(0))
    assert torch.bincount(any_of(q.expand(200, 3), draw), minlength=3)[1:].gt(70).all()
    assert_close(exact.epsilon_greedy(q, 0.5), torch.tensor([[0.0, 0.25, 0.75]]))


def test_a_mask_is_found_missing_or_wrong_in_one_line() -> None:
    assert tells_mask(Hand) and not tells_mask(partial(Hand, told=False))
    env = MaskInObservation(Hand())
    env.reset(seed=0)
    env.unwrapped.told = False
    with pytest.raises(UserError, match="gave an action_mask before and gives none now"):
        env.step(int(env.unwrapped.hand.argmax()))
    env = MaskInObservation(Hand())
    env.unwrapped.info = lambda: {"action_mask": np.ones(3)}
    with pytest.raises(UserError, match="action_mask has 3 entries, and there are 12 actions"):
        env.reset(seed=0)


@pytest.mark.parametrize("name", ["ppo", "dqn", "grpo", "sac"])
@pytest.mark.slow
def test_masks_make_learning_faster(name: str) -> None:
    found = []
    for masked in (True, False):
        env = game(masked, rows=16)
        algo = algorithm(name, env, Network(hidden=(64,)), **{**CONFIGS[name], "lr": 3e-3})
        scores = []
        for _ in range(4):
            for _ in range(8):
                iterate(algo, env)
            scores.append(float(env.evaluate(algo.policy, 100).score.mean()))
        found.append(sum(scores) / 4)
    assert found[0] > found[1] + 0.3, found


def test_the_bootstrap_is_of_allowed_actions_only() -> None:
    """Q of a forbidden action is large, and counts nowhere."""
    env = game()
    algo = algorithm("dqn", env, Network(hidden=()), **REPLAY)
    with torch.no_grad():
        algo.policy.q[-1].bias.copy_(torch.arange(CARDS).float())
    mask = np.zeros(CARDS)
    mask[[2, 5]] = 1
    observation = torch.from_numpy(seen(mask))[None]
    raw = algo.policy.q(observation)[0]
    assert raw.argmax() != 5 or raw[5] < raw[11]
    assert_close(algo.policy.value(observation)[0], raw[[2, 5]].max())
    table = policies.Table(500, 6, 0).masked(MaskInObservation(gymnasium.make("Taxi-v4")).observation_space)
    assert table.state_at is not None


def test_an_environment_of_gymnasium_that_tells_its_mask_is_masked() -> None:
    module = plugins.load("envs", "gym")
    for masks in (True, False):
        env = module.make(module.Config(id="Taxi-v4", action_masks=masks), 0, torch.device("cpu"))
        assert spaces.masks_actions(env.observation_space) is masks


def test_a_run_goes_on_exactly_where_what_is_forbidden_is_an_error() -> None:
    """Rows are replayed together, each from its own reset on; till then it would play what another episode forbids."""
    one, other = game(), game()
    policy = algorithm("ppo", one, Network(hidden=(16,)), horizon=5).policy
    for _ in range(3):
        one.rollout(policy, steps=5)  # episodes of four steps: rows are at different places of theirs
    other.load_state_dict(one.state_dict())
    state = policy.generator.get_state()
    rollout = one.rollout(policy, steps=9)
    policy.generator.set_state(state)
    again = other.rollout(policy, steps=9)
    assert all(torch.equal(rollout[key], again[key]) for key in rollout.keys())


class Timed(Hand):
    """Ends after a number of cards of its own, so that rows do not end together."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.hand[self.np_random.integers(CARDS)] = 1
        return self.hand.copy(), self.info()


def test_rows_that_end_at_different_times_are_replayed_within_their_masks() -> None:
    def made() -> ControlEnv:
        copies = [lambda: MaskInObservation(Timed())] * 6
        return ControlEnv(lambda n: SyncVectorEnv((copies * n)[:n], autoreset_mode=AutoresetMode.DISABLED), 6)

    one, other = made(), made()
    policy = algorithm("ppo", one, Network(hidden=(16,)), horizon=5).policy
    for steps in (3, 4, 7, 2):
        one.rollout(policy, steps=steps)
        other.load_state_dict(one.state_dict())
        state = policy.generator.get_state()
        again = other.rollout(policy, steps=6)
        policy.generator.set_state(state)
        assert torch.equal(one.rollout(policy, steps=6)["observation"], again["observation"])


def test_the_first_look_at_an_environment_keeps_to_its_mask() -> None:
    check_copies(Hand, "env.entry=hand:Hand")
    check_copies(lambda: MaskInObservation(Hand()), "env.entry=hand:Hand")


def test_what_says_nothing_of_choices_is_no_mask() -> None:
    with pytest.raises(UserError, match=r"action_mask, which says what choices are allowed, and Box.* has none"):
        spaces.check_spaces(Dict({"action_mask": Box(0, 1, (1,)), "b": Box(0, 1, (1,))}), Box(-1, 1, (1,)))
    with pytest.raises(UserError, match="has nothing but action_mask: give what the policy sees, too"):
        spaces.check_spaces(Dict({"action_mask": MultiBinary(3)}), Discrete(3))
    with pytest.raises(UserError, match="has the key 0: write the keys of a Dict as texts"):
        spaces.check_spaces(Dict({0: Box(0, 1, (1,)), 1: Box(0, 1, (1,))}), Discrete(3))  # type: ignore[dict-item]


def test_a_lawful_action_is_kept_and_another_replaced() -> None:
    space = Tuple((Discrete(3), MultiBinary(2)))
    allowed = np.array([[0, 1, 1, 1, 0, 0, 1], [1, 0, 0, 1, 1, 1, 1]], bool)
    action = np.array([[0, 1, 0], [0, 1, 1]])
    assert spaces.lawful(space, allowed, action).tolist() == [[1, 0, 1], [0, 1, 1]]


@pytest.mark.parametrize("mode", list(AutoresetMode))
@pytest.mark.parametrize("name", ["ppo", "dqn", "sac"])
def test_where_a_game_is_over_nothing_is_allowed_and_nothing_is_asked(name: str, mode: AutoresetMode) -> None:
    """An empty hand allows no card; a step that only resets is not chosen by the policy."""
    env = ControlEnv(lambda n: SyncVectorEnv([lambda: MaskInObservation(Hand())] * n, autoreset_mode=mode), 3)
    policy = algorithm(name, env, Network(hidden=(8,))).policy
    rollout = env.rollout(policy, steps=30)
    assert rollout["episode_length"][rollout["done"]].tolist() == [4] * (
        3 * (6 if mode == AutoresetMode.NEXT_STEP else 7)
    )
    assert env.evaluate(policy, 5).length.tolist() == [4] * 5


def test_a_random_action_that_is_held_is_asked_for_where_one_is_allowed_only() -> None:
    env = game(rows=1)
    explorer = algorithm("dqn", env, Network(hidden=()), hold=3).explorer
    with pytest.raises(UserError, match="asks for an action and allows none"):
        explorer.act(torch.from_numpy(seen(np.zeros(CARDS)))[None])
