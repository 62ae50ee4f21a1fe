"""Code of the user's may change what it was handed: rlkit reads its own again."""

from collections import deque
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Discrete, MultiBinary, MultiDiscrete
from gymnasium.vector import AutoresetMode
from support.fakes import RaggedText, environment, on_text
from tensordict import TensorDict

from rlkit import new, run, spaces
from rlkit.api import Elementwise
from rlkit.buffers import Replay, Rollout
from rlkit.control import Batched, ControlEnv, TabularEnv, from_outcomes
from rlkit.control.video import frames
from rlkit.loop import as_played, learn, walk
from rlkit.meter import Meter
from rlkit.policies import ActorCritic, Network
from rlkit.recording.undo import noted
from rlkit.scores import Scores, checked
from rlkit.settings import plugins, sections
from rlkit.text.judging import Judge
from rlkit.text.scoring import Rewards

POPS = """
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Config(Config):
    scales: dict[str, float] = field(default_factory=lambda: {"early": 0.5})


class make(Algorithm):
    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        assert config.scales.pop("early") == 0.5
"""


def test_a_configuration_is_kept_as_it_was_given(tmp_path: Path) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    with (tmp_path / "mine.py").open("a", encoding="utf-8") as file:
        file.write(POPS)
    words = [f"algo={tmp_path / 'mine.py'}", "env=cartpole", "iterations=1", "evaluation_episodes=2"]
    assert run.main([*words, f"out={tmp_path / 'r'}"]) == 0
    assert sections.read(tmp_path / "r" / "config.yaml")["algo"]["scales"] == {"early": 0.5}
    assert run.main([f"resume={tmp_path / 'r'}", "iterations=2", "trust=true"]) == 0


class Walk(Batched):
    """Counts its actions from −1 on, in the array that it gets."""

    def __init__(self, n: int) -> None:
        high = np.full(2, 100, dtype=np.float32)
        super().__init__(n, 60, 2, Box(-high, high), Discrete(3))

    def start(self, draw: np.random.Generator) -> tuple[float, float]:
        return draw.uniform(-1, 1), draw.uniform(-1, 1)

    def advance(self, actions: Any) -> tuple[Any, Any]:
        actions -= 1
        self.state[0] += 0.3 * actions
        return 1 - np.abs(self.state[0]), np.abs(self.state[0]) > 9


def test_actions_are_replayed_as_they_were_chosen() -> None:
    first, second, third = (ControlEnv(Walk, 3, seed=0, device="cpu", source="walk") for _ in range(3))
    policy = ActorCritic(first, Network(hidden=(8,)))
    for _ in range(3):
        first.rollout(policy, steps=5)
    second.load_state_dict(first.state_dict())
    third.load_state_dict(second.state_dict())
    played = [env.rollout(ActorCritic(env, Network(hidden=(8,))), steps=5) for env in (first, third)]
    assert torch.equal(played[0]["observation"][:, 0], played[1]["observation"][:, 0])


class Counting(RaggedText):
    kind = "text"

    def __init__(self) -> None:
        super().__init__(rows=2)
        self.counts = {"rollouts": [1]}

    def state_dict(self) -> dict[str, Any]:
        return {"counts": self.counts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.counts = state["counts"]


def test_what_failed_is_undone_in_a_state_that_is_handed_out_as_it_is() -> None:
    env: Any = Counting()  # a part of an environment
    go_back = noted(on_text("reinforce", env), env)
    env.counts["rollouts"].append(2)
    go_back()
    assert env.counts == {"rollouts": [1]}


def test_a_metric_is_what_it_was_in_its_minibatch() -> None:
    meter, scale, mask = Meter(), torch.nn.Parameter(torch.tensor(1.0)), torch.tensor([[True, False]])
    row = torch.ones(1, 2)
    for value in (2.0, 4.0):
        meter.add({"scale": scale, "row": torch.tensor([[value, 0.0]]), "neg": Elementwise(torch.neg, (row,))}, mask)
        row.fill_(9.0)
        with torch.no_grad():
            scale.fill_(3.0)
        mask.fill_(True)
    assert meter.read() == {"scale": 2.0, "row": pytest.approx((2 + 4 + 0) / 3), "neg": pytest.approx(-(1 + 9 + 9) / 3)}


def test_keys_that_credit_removes_were_played() -> None:
    cartpole, reinforce = plugins.load("envs", "cartpole"), plugins.load("algorithms", "reinforce")
    env = cartpole.make(cartpole.Config(rows=2), 0, "cpu")
    algo = reinforce.make(reinforce.Config(), env, Network(hidden=(8,)))
    credit = algo.credit

    def lean(rollout: TensorDict) -> TensorDict:
        rollout = credit(rollout)
        kept = ("observation", "action", "log_prob", "advantage", "return", "mask", "reward", "done", "terminated")
        return rollout.select(*(key for key in kept if key in rollout.keys()), inplace=True)

    algo.credit = lean
    rollout, _ = walk(algo, env, Meter())
    assert {"episode_return", "episode_length"} <= set(rollout.keys())


def test_what_credit_puts_in_another_place_was_played_as_it_was() -> None:
    """Also in a TensorDict inside."""
    inner = TensorDict({"x": torch.zeros(2)}, batch_size=[2])
    rollout = TensorDict({"mask": torch.ones(2), "inner": inner, "reward": torch.ones(2)}, batch_size=[2])
    found = as_played(rollout, "control")
    rollout["inner", "x"].fill_(1)
    rollout["reward"].fill_(0)
    del rollout["mask"]
    assert bool((found["reward"] == 1).all()) and bool((found["inner", "x"] == 0).all()) and "mask" in found.keys()


def test_a_model_that_is_changed_is_not_the_one_that_is_played() -> None:
    env = environment("frozenlake", rows=2)
    right = env.reference
    model = env.model()
    model.transition.mul_(0.5)
    model.reward.sub_(1.0)
    assert env.reference == right and torch.equal(env.model().transition, 2 * model.transition)


def test_a_loss_may_write_into_the_weights_of_replayed_steps() -> None:
    buffer = Replay(0, capacity=8, batch_size=4, updates=3, warmup=1)
    seen = {key: torch.zeros(2, 4, 3) for key in ("observation", "next_observation")}
    flags = {key: torch.ones(2, 4, dtype=torch.bool) for key in ("mask", "done", "terminated")}
    steps = seen | flags | {"action": torch.zeros(2, 4), "reward": torch.zeros(2, 4)}
    buffer.extend(TensorDict(steps, batch_size=[2, 4]))
    for batch in buffer:
        assert bool((batch["weight"] == 0.25).all())
        batch["weight"].mul_(2)


@pytest.mark.parametrize("minibatches", [1, 2])
def test_a_loss_may_write_into_its_batch(minibatches: int) -> None:
    data = TensorDict({"advantage": torch.ones(4, 3), "mask": torch.ones(4, 3, dtype=torch.bool)}, batch_size=[4])
    buffer = Rollout(0, epochs=3, minibatches=minibatches)
    buffer.extend(data)
    for batch in buffer:
        assert bool((batch["advantage"] == 1).all())
        batch["advantage"].mul_(0.5)
    assert bool((data["advantage"] == 1).all()), "the log is of these"


def test_a_judge_may_take_the_pairs_from_its_list() -> None:
    def shorter(prompts: list[str], completions: list[list[str]]) -> list[int]:
        found = []
        while completions:
            one, other = completions.pop(0)
            found.append(int(len(other) < len(one)))
        return found

    assert Judge(shorter)(["?"] * 2, [("a", "bb"), ("aa", "b")]).first == [1.0, 0.0]


class Restarting(Walk):
    """Writes into the lists and arrays by which it is reset."""

    metadata = {"autoreset_mode": AutoresetMode.DISABLED}  # noqa: RUF012

    def __init__(self, n: int, writes: bool = True) -> None:
        super().__init__(n)
        self.writes = writes

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        own = [x + 7919 for x in seed]
        given = None if options is None else {"reset_mask": options["reset_mask"].copy()}
        if self.writes:
            seed[:] = [0] * len(seed)
            if options is not None:
                options["reset_mask"][:] = False
        return super().reset(seed=own, options=given)


@pytest.mark.parametrize("restored", [False, True])
def test_seeds_and_masks_of_a_reset_may_be_changed(restored: bool) -> None:
    found = []
    for writes in (False, True):
        env, again = (
            ControlEnv(lambda n, writes=writes: Restarting(n, writes), 3, seed=0, device="cpu", source="it")
            for _ in range(2)
        )
        policy = ActorCritic(env, Network(hidden=(8,)))
        env.rollout(policy, steps=70)
        if restored:
            again.load_state_dict(env.state_dict())
        found.append((again if restored else env).rollout(policy, steps=70))
    for key in ("observation", "reward", "done"):
        assert torch.equal(found[0][key], found[1][key])
    assert bool(found[0]["done"].any())


def test_an_environment_gets_no_memory_of_the_policy() -> None:
    """A policy may remember the tensor that its `act` returned."""
    for space in (Discrete(3), Discrete(3, start=2), MultiDiscrete([3, 3]), MultiBinary(2), Box(-1, 1, (2,))):
        held = np.ones((2, *spaces.action_shape(space)[0]), dtype=spaces.action_shape(space)[1])
        spaces.executed(space, held)[...] = 0
        assert (held == 1).all(), space


def test_a_model_is_of_the_start_that_it_was_given() -> None:
    outcomes = {0: {0: [(1.0, 1, 0.5, True)]}, 1: {0: [(1.0, 1, 0.0, True)]}}
    start = np.array([1.0, 0.0])
    env = TabularEnv(from_outcomes(outcomes, start=start), 2, 0, "cpu", step_limit=5, source="it")
    low = env.reference.low
    start[:] = [0.0, 1.0]
    assert low == env.reference.low == 0.5 and env.model().start.tolist() == [1.0, 0.0]


def test_after_step_gets_each_metric_as_it_was() -> None:
    """Also one in a tensor that the loss fills again for the next part of its minibatch."""
    env = RaggedText(rows=4)
    algo, shared, seen = on_text("reinforce", env), torch.zeros(1), list[list[float]]()
    algo.policy.micro_steps = 4
    loss, written = algo.loss, list[float]()

    def filled(batch: TensorDict) -> Any:
        found, metrics = loss(batch)
        written.append(float(len(written)))
        return found, metrics | {"mine": shared.fill_(written[-1])}

    algo.loss, algo.after_step = filled, lambda learned: seen.append([float(each["mine"]) for _, each in learned])
    algo.buffer.extend(algo.credit(algo.rollout(env)))
    learn(algo, Meter())
    assert len(written) > 2 and [x for part in seen for x in part] == written


def test_a_reward_may_change_columns_of_any_collection() -> None:
    def spoils(prompts: list[str], completions: list[str], words: list[Any]) -> list[float]:
        found = [float(len(each)) for each in words]
        for each in words:
            each.clear()
        return found

    for _ in range(2):
        assert Rewards([spoils])(["?"] * 2, ["x", "y"], {"words": [{"a", "b"}, deque("a")]}).score == [2.0, 1.0]


class Reused(Walk):
    """Shows one array, into which it writes."""

    def observe(self) -> Any:
        self.shown = vars(self).get("shown", np.zeros((self.num_envs, 2), np.float32))
        self.shown[:] = self.state.T
        return self.shown


class Last(ActorCritic):
    """Acts by how far its observation has moved."""

    copies = True
    last: torch.Tensor | None = None

    def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
        before, self.last = self.last, observation.clone() if self.copies else observation
        known = before is not None and before.shape == observation.shape
        moved = (observation - before)[:, 0] if known else torch.zeros(len(observation))
        return torch.where(moved > 0, 0, 2)


def test_a_policy_may_remember_its_observation() -> None:
    found = []
    for copies in (True, False):
        env = ControlEnv(Reused, 3, seed=0, device="cpu", source="walk")
        policy = Last(env, Network(hidden=(8,)))
        policy.copies = copies
        found.append(env.rollout(policy, steps=9)["action"])
        found.append(env.evaluate(policy, 4).score)
    assert torch.equal(found[0], found[2]) and torch.equal(found[1], found[3]) and bool((found[0] == 0).any())


def test_a_frame_shows_what_the_policy_was_given() -> None:
    class Scales(ActorCritic):
        def act(self, observation: torch.Tensor, greedy: bool = False) -> torch.Tensor:
            observation /= 10
            return super().act(observation, greedy)

    env = environment("cartpole", rows=2)
    plain, scaled = (frames(env, kind(env, Network(hidden=(8,))), 0, draw=False) for kind in (ActorCritic, Scales))
    assert plain[0]["observation"] == scaled[0]["observation"] and plain[0]["value"] == scaled[0]["value"]


def test_scores_of_a_measurement_are_no_others() -> None:
    env, score, length = environment("cartpole", rows=2), torch.ones(2), torch.ones(2)
    kept = checked(env, Scores(score, length))
    score.fill_(5)
    length.fill_(5)
    assert kept.score.tolist() == kept.length.tolist() == [1, 1]


def test_metrics_are_over_the_steps_that_were_learned_from() -> None:
    found = []
    for writes in (False, True):
        algo, meter = on_text("reinforce", env := RaggedText(rows=4)), Meter()
        loss = algo.loss

        def halved(batch: TensorDict, loss: Any = loss, writes: bool = writes) -> Any:
            batch = batch if writes else batch.clone()
            batch["mask"][:, ::2] = False
            return loss(batch)

        algo.loss = halved
        walk(algo, env, meter)
        found.append(meter.read()["entropy"])
    assert found[0] == found[1]
