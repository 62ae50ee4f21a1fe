"""Policies that learn from replayed steps: an actor with two estimates of Q(s, a), of which the smaller one counts.

Two, because the maximum over one noisy estimate is too high (Fujimoto et al. 2018, arXiv:1802.09477).
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from torch import Tensor, nn

from rlkit import seeding
from rlkit.api import Choices, Env, TwinCritics
from rlkit.errors import UserError
from rlkit.policies.base import Exploring, Function, Numbers, any_of
from rlkit.policies.distributions import pick, squashed
from rlkit.policies.encoders import FORBIDDEN, allowed_by
from rlkit.policies.layers import ActionValue, Layers, idle_keys, mlp
from rlkit.policies.normalize import normalizer_for
from rlkit.policies.perceptron import on_arrays
from rlkit.tape import tanh

LOG_STD = (-20.0, 2.0)  # bounds of a state's log σ


@contextmanager
def fixed(parameters: Sequence[Tensor]) -> Iterator[None]:
    """Inside this context the parameters get no gradient; the inputs still do."""
    learning = [p for p in parameters if p.requires_grad]
    for p in learning:
        p.requires_grad_(False)
    try:
        yield
    finally:
        for p in learning:
            p.requires_grad_(True)


@torch.no_grad()
def follow(targets: Iterable[nn.Parameter], online: Iterable[nn.Parameter], tau: float) -> None:
    """target ← target + τ·(online − target), parameter by parameter (Polyak averaging)."""
    torch._foreach_lerp_([*targets], [*online], tau)


class Temperature(nn.Module):
    """α > 0, the weight of the entropy, as the exponential of what is learned."""

    def __init__(self, start: float, learned: bool) -> None:
        super().__init__()
        self.log_alpha = nn.Parameter(torch.tensor(math.log(start)), requires_grad=learned)

    def forward(self) -> Tensor:
        return self.log_alpha.detach().exp()


class Twins(Exploring):
    """Base class: two critics, and actions that are uniformly random with probability `epsilon`."""

    def __init__(self, env: Env, network: Layers, outputs: int, continuous: bool) -> None:
        super().__init__(seeding.generator(env.seed, "action"))
        self.noise = 0.0
        self.normalizer = normalizer_for(env, network.normalize)
        self.idle_keys = idle_keys(env, network, self.normalizer, continuous, "critics that learn from replayed steps")
        self.actor = mlp(env, outputs, 0.01, network, "actor", self.normalizer)
        self.critics = nn.ModuleList([self.critic(env, network, f"critic {i}") for i in (1, 2)])

    def critic(self, env: Env, network: Layers, name: str) -> nn.Module:
        """One of the two."""
        raise NotImplementedError


class Continuous(Twins):
    """Actions in a finite box. Actor and critics work in [-1, 1]^d, which is scaled to the box."""

    low: Tensor
    radius: Tensor  # half its width

    def __init__(self, env: Env, network: Layers, space: Box, outputs: int, learned_deviation: bool = False) -> None:
        self.size = size = math.prod(space.shape)
        super().__init__(env, network, outputs * size, learned_deviation)
        low, high = (torch.as_tensor(x.reshape(-1), dtype=torch.float32) for x in (space.low, space.high))
        self.register_buffer("low", low.to(env.device), persistent=False)
        self.register_buffer("radius", ((high - low) / 2).to(env.device), persistent=False)

    def critic(self, env: Env, network: Layers, name: str) -> nn.Module:
        return ActionValue(env, self.size, network, name, self.normalizer)

    def scaled(self, unit: Tensor) -> Tensor:
        """From [-1, 1]^d into the box."""
        return self.low + (unit + 1) * self.radius

    def noisy(self, observation: Tensor) -> Tensor:
        """What is played in [-1, 1]^d while it learns. [..., observation] → [..., d]."""
        raise NotImplementedError

    def best(self, observation: Tensor) -> Tensor:
        """What is played in [-1, 1]^d once it has learned. [..., observation] → [..., d]."""
        raise NotImplementedError

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        if greedy:
            return self.scaled(self.best(observation))
        action = self.noisy(observation)
        if self.epsilon:
            rows = action.shape[:-1]
            anywhere = (2 * self.uniform(action.shape) - 1).to(action.device)
            random = self.uniform((*rows, 1)).to(action.device) < self.epsilon
            action = torch.where(random, anywhere, action)
        return self.scaled(action)

    def q(self, observation: Tensor, action: Tensor) -> Tensor:
        return self.q_of_unit(observation, (action - self.low) / self.radius - 1)

    def q_of(self, observation: Tensor, choices: Choices, estimates: int = 2) -> Tensor:
        return self.q_of_unit(observation, choices.action, estimates).unsqueeze(-1)

    def q_of_unit(self, observation: Tensor, unit: Tensor, estimates: int = 2) -> Tensor:
        return torch.stack([critic(observation, unit) for critic in list(self.critics)[:estimates]])

    def value(self, observation: Tensor) -> Tensor:
        """The smaller Q(s, a) of the best action."""
        return self.q_of_unit(observation, self.best(observation)).amin(0)

    def disturbed(self, action: Tensor, deviation: float, limit: float) -> Tensor:
        noise = deviation * self.normal(action.shape).to(action.device)
        return (action + noise.clamp(-limit, limit)).clamp(-1, 1)

    def entropy_target(self, choices: Choices) -> Tensor:
        """−d (Haarnoja et al. 2018, arXiv:1812.05905, appendix D)."""
        return choices.log_prob.new_full(choices.log_prob.shape[:-1], -float(self.size))


class SquashedGaussian(Continuous):
    """a = tanh(μ(s) + σ(s)·ε) with ε ~ N(0, I), scaled to the box (arXiv:1812.05905, appendix C)."""

    def __init__(self, env: Env, network: Layers, space: Box) -> None:
        super().__init__(env, network, space, 2, learned_deviation=True)
        start = min(network.log_std, LOG_STD[1])  # above, it would be clipped and have no gradient
        with torch.no_grad():
            self.actor.get_parameter(f"{len(self.actor) - 1}.bias")[self.size :] = start

    def drawn(self, observation: Tensor) -> tuple[Tensor, Tensor]:
        out: Tensor = self.actor(observation)
        noise = self.normal((*out.shape[:-1], self.size)).to(out.device)
        return squashed(out, noise, *LOG_STD)

    def choices(self, observation: Tensor) -> Choices:
        action, log_prob = self.drawn(observation)
        return Choices(torch.ones_like(log_prob).unsqueeze(-1), log_prob.unsqueeze(-1), action)

    def noisy(self, observation: Tensor) -> Tensor:
        return self.drawn(observation)[0]

    def best(self, observation: Tensor) -> Tensor:
        out: Tensor = self.actor(observation)
        return out[..., : self.size].tanh()

    def prepared(self, steps: int, rows: int) -> Function | None:
        """What `act` does in each of the next steps, from arrays to arrays; its draws are made at once."""
        outputs = None if self.epsilon else on_arrays(self.actor, rows)
        if outputs is None:
            return None
        drawn = iter(self.normal((steps, rows, self.size), 1).numpy())
        size, low, radius = self.size, self.low.numpy(), self.radius.numpy()

        def act(observation: Numbers) -> Numbers:
            out = outputs(observation)
            std = np.exp(np.clip(out[:, size:], *LOG_STD))
            action: Numbers = low + (np.tanh(out[:, :size] + std * next(drawn)) + 1) * radius
            return action

        return act


class Deterministic(Continuous):
    """a = tanh(μ(s)), scaled to the box; played with Gaussian noise of deviation `noise` in [-1, 1]^d."""

    def __init__(self, env: Env, network: Layers, space: Box) -> None:
        super().__init__(env, network, space, 1)

    def choices(self, observation: Tensor) -> Choices:
        action = self.best(observation)
        one = torch.ones_like(action[..., :1])
        return Choices(one, torch.zeros_like(one), action)

    def noisy(self, observation: Tensor) -> Tensor:
        return self.disturbed(self.best(observation), self.noise, math.inf)

    def best(self, observation: Tensor) -> Tensor:
        return tanh(self.actor(observation))

    def prepared(self, steps: int, rows: int) -> Function | None:
        """What `act` does in each of the next steps, from arrays to arrays; its draws are made at once."""
        outputs = None if self.epsilon else on_arrays(self.actor, rows)
        if outputs is None:
            return None
        drawn = iter((self.noise * self.normal((steps, rows, self.size), 1)).numpy())
        low, radius = self.low.numpy(), self.radius.numpy()

        def act(observation: Numbers) -> Numbers:
            action: Numbers = low + (np.clip(np.tanh(outputs(observation)) + next(drawn), -1, 1) + 1) * radius
            return action

        return act


class Categorical(Twins):
    """Discrete actions, with the expectation over all of them in place of one that is drawn (arXiv:1910.07207)."""

    def __init__(self, env: Env, network: Layers, space: Discrete) -> None:
        self.size = int(space.n)
        super().__init__(env, network, self.size, continuous=False)
        self.allowed = allowed_by(env.observation_space)

    def critic(self, env: Env, network: Layers, name: str) -> nn.Module:
        return mlp(env, self.size, 1.0, network, name, self.normalizer)

    def choices(self, observation: Tensor) -> Choices:
        log_p = self.logits(observation).log_softmax(-1)
        return Choices(log_p.exp(), log_p, torch.arange(self.size, device=log_p.device).expand_as(log_p))

    def logits(self, observation: Tensor) -> Tensor:
        """The logits of forbidden actions are so low that their probability is 0."""
        logits: Tensor = self.actor(observation)
        return logits if self.allowed is None else self.allowed.forbid(observation, logits, (self.size,))

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        logits = self.logits(observation)
        if self.allowed is not None:
            self.allowed.check(observation, (self.size,))
        if greedy:
            return logits.argmax(-1)
        # Gumbel-max, as in `Actor`.
        drawn = (logits - self.exponential(logits.shape).log().to(logits.device)).argmax(-1)
        if not self.epsilon:
            return drawn
        draw = self.uniform((2, *drawn.shape), 1).to(drawn.device)
        return torch.where(draw[0] < self.epsilon, any_of(logits, draw[1]), drawn)

    def q(self, observation: Tensor, action: Tensor) -> Tensor:
        q = self.all_actions(observation)
        return pick(q, action.expand(q.shape[:-1]))

    def q_of(self, observation: Tensor, choices: Choices, estimates: int = 2) -> Tensor:
        return self.all_actions(observation)[:estimates]

    def all_actions(self, observation: Tensor) -> Tensor:
        return torch.stack([critic(observation) for critic in self.critics])

    def value(self, observation: Tensor) -> Tensor:
        """Σ_a π(a|s)·Q(s, a) of the smaller Q."""
        return (self.choices(observation).probability * self.all_actions(observation).amin(0)).sum(-1)

    def disturbed(self, action: Tensor, deviation: float, limit: float) -> Tensor:
        raise NotImplementedError("discrete actions have no noise")

    def entropy_target(self, choices: Choices) -> Tensor:
        """Half of log A, the entropy of the uniform policy: a fraction of it as in arXiv:1910.07207, and less.

        A counts the actions that are allowed: of a few among many, no policy comes to half of the entropy of all.
        """
        allowed = (choices.log_prob > FORBIDDEN / 2).sum(-1)
        return 0.5 * allowed.to(choices.log_prob.dtype).log()


def twin_critics(env: Env, network: Layers, deterministic: bool) -> TwinCritics:
    """The policy for the environment's actions.

    Raises: UserError for an action space that it does not fit.
    """
    space = env.action_space
    if isinstance(space, Discrete) and not deterministic:
        return Categorical(env, network, space)
    if not isinstance(space, Box | Discrete):
        raise UserError(f"critics of actions read one choice or real numbers and here they are {space}; use algo=ppo")
    if isinstance(space, Discrete):
        raise UserError(
            f"a deterministic actor needs continuous actions and here they are {space}; use algo=sac, or algo=dqn"
        )
    with np.errstate(over="ignore"):
        low, high = space.low.astype(np.float32), space.high.astype(np.float32)
        near = np.isfinite(high - low).all()
    if not (space.is_bounded() and (low < high).all() and near):
        raise UserError(
            f"actions are scaled to a box with finite bounds, low below high, and here they are {space}: use algo=ppo, "
            "or an action_space with such bounds, in the environment or in a wrapper of your own"
        )
    return Deterministic(env, network, space) if deterministic else SquashedGaussian(env, network, space)
