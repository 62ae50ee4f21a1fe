"""Small stand-ins that test files share: a causal sequence policy, ragged text, two environments of known value."""

from typing import Any

import gymnasium as gym
import torch
from gymnasium.spaces import Discrete
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers import TimeLimit
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import loop, seeding
from rlkit.buffers import last_step
from rlkit.control import ControlEnv
from rlkit.gaps import following
from rlkit.meter import Meter
from rlkit.policies import PolicyModule
from rlkit.progress import Progress
from rlkit.settings import plugins
from rlkit.settings.config import Run

VOCABULARY = 6


class Ring(gym.Env):
    """Four states in a ring, reward 1 a step, no terminal state: V = 1 / (1 - γ) everywhere."""

    observation_space, action_space = Discrete(4), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        self.state = 0
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.state = (self.state + 1) % 4
        return self.state, 1.0, False, False, {}


class Walk(gym.Env):
    """States 0..5 from 2, action 0 goes left and 1 right; both ends are terminal and the right one pays 1."""

    observation_space, action_space = Discrete(6), Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[int, dict]:
        self.state = 2
        return self.state, {}

    def step(self, action: int) -> tuple[int, float, bool, bool, dict]:
        self.state += 2 * int(action) - 1
        return self.state, float(self.state == 5), self.state in (0, 5), False, {}


def control(make: type[gym.Env], rows: int, limit: int, seed: int = 0) -> ControlEnv:
    """`rows` copies of a Gymnasium environment under a time limit, reset by the control env itself."""

    def vector(n: int) -> SyncVectorEnv:
        return SyncVectorEnv([lambda: TimeLimit(make(), limit)] * n, autoreset_mode=AutoresetMode.DISABLED)

    return ControlEnv(vector, rows, seed)


class SequencePolicy(PolicyModule):
    """A causal language model in ten parameters a token: tanh of the running sum of embeddings, then a linear head."""

    memoryless, dtype = False, torch.float64

    def __init__(self, seed: int = 0, width: int = 4, critic: bool = False, micro_steps: int | None = None) -> None:
        super().__init__(seeding.generator(seed, "action"))
        draw = seeding.generator(seed, "fake policy")

        def normal(*shape: int) -> nn.Parameter:
            return nn.Parameter(torch.randn(shape, generator=draw, dtype=torch.float64))

        self.embedding, self.head = normal(VOCABULARY, width), normal(width, VOCABULARY)
        self.critic = normal(width) if critic else None
        self.micro_steps = micro_steps

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        hidden = self.embedding[batch["observation"]].cumsum(-2).tanh()
        log_p = (hidden @ self.head).log_softmax(-1)
        out = {
            "log_prob": log_p.gather(-1, batch["action"].unsqueeze(-1)).squeeze(-1),
            "entropy": -(log_p.exp() * log_p).sum(-1),
        }
        if self.critic is not None:
            out["value"] = hidden @ self.critic
        return {key: x.masked_fill(~batch["mask"], 0.0) for key, x in out.items()}

    def score(self, batch: TensorDict) -> Tensor:
        text = torch.cat([batch["observation"][:, :1], batch["action"]], 1)
        hidden = self.embedding[text].cumsum(-2).tanh()
        return hidden[torch.arange(len(text)), last_step(batch["mask"])] @ self.critic

    @torch.no_grad()
    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        out = self.evaluate(batch)
        out.pop("entropy")
        if self.critic is not None:
            out["next_value"] = following(out["value"], batch["mask"])
        return out

    def move(self, size: float, seed: int = 1) -> None:
        """Step away from the behavior policy, so that ratios differ from 1."""
        draw = seeding.generator(seed, "move")
        with torch.no_grad():
            for p in self.parameters():
                p += size * torch.randn(p.shape, generator=draw, dtype=p.dtype)


class RaggedText:
    """Prompts of 1-3 tokens and completions of 1-6, drawn at random, scored at random on the last token."""

    kind, metric, plays, stored_reference, longest = "text", "accuracy", True, False, None
    observation_space, action_space = None, None

    def __init__(self, rows: int = 6, seed: int = 0) -> None:
        self.rows, self.seed, self.device = rows, seed, torch.device("cpu")

    def batch(self, count: int) -> TensorDict:
        draw = seeding.generator(self.seed, "ragged text")
        start = torch.randint(1, 4, (count, 1), generator=draw)
        length = torch.randint(1, 7, (count, 1), generator=draw)
        text = torch.randint(VOCABULARY, (count, 9), generator=draw)
        column = torch.arange(1, 9)
        mask = (column >= start) & (column < start + length)
        last = column == start + length - 1
        score = torch.randn(count, 1, generator=draw, dtype=torch.float64)
        data = {"observation": text[:, :-1], "action": text[:, 1:], "mask": mask, "reward": last * score}
        data |= {"terminated": last, "done": last.clone(), "score": score[:, 0]}
        return TensorDict(data, batch_size=[count])

    def rollout(self, policy: SequencePolicy, steps: int | None = None, repeats: int = 1) -> TensorDict:
        batch = self.batch(self.rows * repeats)
        batch.update(policy.record(batch))
        return batch.unflatten(0, (self.rows, repeats)) if repeats > 1 else batch

    def demonstrations(self, policy: SequencePolicy, progress: float = 0.0, rows: int | None = None) -> TensorDict:
        return self.batch(rows or self.rows)


class Gives:
    """A network configuration whose policies are there already: one for actors, and one that has a scalar head."""

    def __init__(self, policy: Any, headed: Any = None) -> None:
        self.policy, self.headed = policy, headed or policy

    def actor(self, env: Any) -> Any:
        return self.policy

    def actor_critic(self, env: Any) -> Any:
        return self.headed

    def scorer(self, env: Any) -> Any:
        return self.headed

    def q_network(self, env: Any, dueling: bool = False) -> Any:
        return self.policy

    def twin_critics(self, env: Any, deterministic: bool = False) -> Any:
        return self.policy


def algorithm(name: str, env: Any, network: Any = None, **config: Any) -> Any:
    """A plug-in by its name, with some keys set."""
    module = plugins.load("algorithms", name)
    return module.make(module.Config(**config), env, network)


def on_text(name: str, env: RaggedText, **config: Any) -> Any:
    """A plug-in whose policy is the fake language model."""
    return algorithm(name, env, Gives(SequencePolicy(), headed=SequencePolicy(critic=True)), **config)


def credited(algo: Any, rollout: TensorDict) -> TensorDict:
    """The only minibatch of a rollout, with credit and weights."""
    with torch.no_grad():
        algo.buffer.extend(algo.credit(rollout))
    (batch,) = list(algo.buffer)
    return batch


def iterate(algo: Any, env: Any) -> TensorDict:
    """One iteration of the loop; returns what was played."""
    with torch.no_grad():
        rollout = algo.rollout(env)
        algo.buffer.extend(algo.credit(rollout))
    loop.learn(algo, Meter())
    return rollout


def set_progress(algo: Any, iteration: int, iterations: int) -> None:
    """What the loop does before an iteration of a run of so many."""
    loop.set_progress(algo, Progress(iteration=iteration), Run(iterations=iterations))


def gradient_of(algo: Any, *losses: Tensor) -> Tensor:
    """Of the sum of the losses, by all of the policy's parameters as one vector."""
    algo.policy.zero_grad()
    for loss in losses:
        loss.backward()
    return torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in algo.policy.parameters()])


def gradient(algo: Any, *parts: TensorDict) -> Tensor:
    """Of what the micro-batches add up to."""
    return gradient_of(algo, *(algo.loss(part)[0] for part in parts))


def parameters(module: nn.Module) -> Tensor:
    """All of them as one vector."""
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def cartpole(rows: int, step_limit: int = 500) -> ControlEnv:
    return environment("cartpole", rows=rows, step_limit=step_limit)


def pendulum(rows: int, step_limit: int = 200) -> ControlEnv:
    return environment("pendulum", rows=rows, step_limit=step_limit)


def environment(name: str, **config: Any) -> Any:
    """An environment by its name, with some keys set."""
    module = plugins.load("envs", name)
    return module.make(module.Config(**config), 0, torch.device("cpu"))


def in_double(algo: Any, rollout: TensorDict) -> TensorDict:
    """Turn the policy and what it played to double precision, so that an oracle can be met at default tolerances."""
    algo.policy.double()
    exact = TensorDict({key: x.double() if x.is_floating_point() else x for key, x in rollout.items()}, rollout.shape)
    with torch.no_grad():
        return exact.update(algo.policy.record(exact))


def off_policy(name: str, config: dict[str, Any], padding: int = 0) -> tuple[Any, TensorDict]:
    """An algorithm on ragged text, and its batch, after the policy moved away from the one that acted."""
    env = RaggedText(rows=5)
    algo = on_text(name, env, **config)
    batch = credited(algo, padded(algo.rollout(env), padding))
    algo.policy.move(0.3)
    return algo, batch


def padded(rollout: TensorDict, extra: int) -> TensorDict:
    """The same rows with `extra` more steps in which nobody acted, full of tokens and values that mean nothing."""
    mask, data = rollout["mask"], dict(rollout.items())
    for key, x in rollout.items():
        if x.shape == mask.shape:
            shape = (*mask.shape[:-1], extra)
            junk = torch.full(shape, 7.7) if key in ("value", "next_value") else torch.zeros(shape)
            junk = torch.full(shape, VOCABULARY - 1) if key in ("observation", "action") else junk
            data[key] = torch.cat([x, junk.to(x.dtype)], -1)
    return TensorDict(data, batch_size=rollout.batch_size)


def with_scores(name: str, scores: Tensor, **config: Any) -> tuple[Any, TensorDict]:
    """A member, and a rollout whose attempts scored so."""
    env = RaggedText(rows=len(scores))
    algo = on_text(name, env, group=scores.shape[1], **config)
    rollout = algo.rollout(env)
    final = rollout["reward"] != 0
    rollout["score"] = scores.double()
    rollout["reward"] = final * rollout["score"].unsqueeze(-1)
    return algo, rollout


# Scores of two groups of four, and what each lies above the mean of its group
SCORES = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 0.0]])
CENTERED = torch.tensor([[0.75, -0.25, -0.25, -0.25], [0.25, 0.25, 0.25, -0.75]]).double()
