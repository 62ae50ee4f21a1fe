"""Who acts: a table, a Q-network, an actor, an actor-critic. Language models live in `language/` and are loaded lazily.

`act` is called once per environment step and does as little as it can; `record` and `evaluate` see whole batches.
"""

import copy
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import torch
from gymnasium.spaces import Box, Discrete
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import seeding
from rlkit.api import Count, Env, Natural, NonNegative, Positive, Schedule, UserError
from rlkit.normalize import Normalizer, Normalizing
from rlkit.tables import Table

P = TypeVar("P", bound=nn.Module)


@dataclass(frozen=True)
class Network:
    """The `policy.` keys on control environments."""

    hidden: tuple[Count, ...] = (64, 64)  # widths of the hidden layers
    activation: Literal["tanh", "relu"] = "tanh"  # between them
    log_std: float = 0.0  # initial log standard deviation of continuous actions
    normalize: bool = False  # observations to mean 0 and variance 1, by what was seen so far; states stay as they are


@dataclass(frozen=True)
class Optimization:
    """What every gradient method needs; algorithms inherit these fields and override the defaults."""

    lr: Positive = 3e-4  # learning rate
    schedule: Schedule = "constant"  # of the learning rate: constant, or linear to lr_end · lr at the end of the run
    lr_end: NonNegative = 0.0  # fraction of lr that a linear schedule ends at
    warmup: Natural = 0  # iterations over which the learning rate rises from 0
    max_grad_norm: Positive = 0.5  # gradients are scaled down to this global norm
    beta2: Positive = 0.999  # Adam's second-moment decay
    adam_eps: Positive = 1e-5  # Adam's ε
    weight_decay: NonNegative = 0.0  # decoupled, on matrices only


def adam(module: nn.Module, config: Optimization) -> torch.optim.Optimizer:
    """AdamW over the trainable parameters (Adam when weight_decay is 0): one fused kernel a step."""
    parameters = [p for p in module.parameters() if p.requires_grad]
    groups: list[dict[str, Any]] = [{"params": parameters, "weight_decay": 0.0}]
    if config.weight_decay:
        groups = [
            {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": config.weight_decay},
            {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
        ]
    return torch.optim.AdamW(
        [group for group in groups if group["params"]],
        lr=config.lr,
        betas=(0.9, config.beta2),
        eps=config.adam_eps,
        fused=True,
    )


def rmsprop(module: nn.Module, config: Optimization) -> torch.optim.Optimizer:
    """RMSprop (Tieleman & Hinton 2012) with beta2 as its decay and adam_eps as its ε."""
    if config.weight_decay:
        raise UserError(f"algo.weight_decay={config.weight_decay}: rmsprop has none; use algo.optimizer=adam, or 0")
    parameters = [p for p in module.parameters() if p.requires_grad]
    return torch.optim.RMSprop(parameters, lr=config.lr, alpha=config.beta2, eps=config.adam_eps, foreach=True)


def frozen_copy(policy: P, sharing: nn.Module | None = None) -> P:
    """A copy that no optimiser moves: the reference of a KL penalty, or a target network.

    `sharing` is a part that is not copied: a target network normalises observations as its policy does.
    """
    return copy.deepcopy(policy, {id(sharing): sharing}).requires_grad_(False)


def pick(values: Tensor, action: Tensor) -> Tensor:
    """values[..., a]: [..., A] and [...] → [...]."""
    return values.gather(-1, action.unsqueeze(-1)).squeeze(-1)


def linear(inputs: int, outputs: int, gain: float, generator: torch.Generator) -> nn.Linear:
    """A layer with orthogonal weights and zero bias (Saxe et al. 2013, arXiv:1312.6120)."""
    layer = nn.utils.skip_init(nn.Linear, inputs, outputs)
    nn.init.orthogonal_(layer.weight, gain, generator=generator)
    nn.init.zeros_(layer.bias)
    return layer


class OneHot(nn.Module):
    """Discrete observations as indicator vectors, so that the same networks take states."""

    def __init__(self, states: int) -> None:
        super().__init__()
        self.states = states

    def forward(self, observation: Tensor) -> Tensor:
        return nn.functional.one_hot(observation, self.states).float()


def mlp(
    env: Any, outputs: int, gain: float, network: Network, name: str, normalizer: Normalizer | None = None
) -> nn.Sequential:
    """A multi-layer perceptron from the env's observations to `outputs`, with its own named initialisation."""
    generator = seeding.generator(env.seed, "init", name)
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[network.activation]
    space = env.observation_space
    discrete = isinstance(space, Discrete)
    layers: list[nn.Module] = [OneHot(int(space.n))] if discrete else [] if normalizer is None else [normalizer]
    width = int(space.n) if discrete else int(torch.tensor(space.shape).prod())
    for size in network.hidden:
        layers += [linear(width, size, 2**0.5, generator), activation()]
        width = size
    return nn.Sequential(*layers, linear(width, outputs, gain, generator)).to(env.device)


def epsilon(start: float, end: float, decay: float, progress: float) -> float:
    """ε falls linearly from start to end over the first `decay` of the run."""
    return end + (start - end) * max(0.0, 1 - progress / decay) if decay > 0 else end


def refuse_stored(env: Any, algorithm: str) -> None:
    """Stored pairs are nobody's own attempts: methods that learn from those are refused."""
    if not getattr(env, "plays", True):
        raise UserError(
            f"{algorithm} learns from its own attempts and here nothing is played; use algo=dpo, or env=gsm8k"
        )


def longest(env: Any, instead: str) -> int:
    """The most steps that one attempt may take; an environment without a limit is refused."""
    limit: int | None = getattr(env, "longest", None)
    if limit is None:
        raise UserError(f"this environment does not say how long an attempt may be: set {instead}")
    return limit


def discrete_actions(env: Any, algorithm: str, instead: str) -> int:
    """How many actions there are; a continuous action space is refused."""
    space = env.action_space
    if not isinstance(space, Discrete):
        raise UserError(f"{algorithm} needs discrete actions and this environment has {space}; use {instead}")
    return int(space.n)


class Dueling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) − mean_b A(s, b) from two streams (Wang et al. 2015, arXiv:1511.06581, eq. 9)."""

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, features: Tensor) -> Tensor:
        advantage = self.advantage(features)
        return self.value(features) + advantage - advantage.mean(-1, keepdim=True)


class QNetwork(Normalizing, Table):
    """Q(s, ·) as a network, acted on ε-greedily: [..., observation] → [..., A].

    Dueling: V and A each have the last hidden layer, if there is one, for themselves, and share those before it.
    """

    def __init__(self, env: Any, network: Network, actions: int, dueling: bool = False) -> None:
        nn.Module.__init__(self)
        self.prepare(env, network)
        self.q = mlp(env, actions, 1.0, network, "q", self.normalizer)
        if dueling:
            own = 3 if network.hidden else 1  # layers of each stream: hidden, activation, output
            value = mlp(env, 1, 1.0, network, "value", self.normalizer)
            self.q = nn.Sequential(*self.q[:-own], Dueling(value[-own:], self.q[-own:]))
        self.epsilon, self.generator = 0.0, seeding.generator(env.seed, "action")

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        self.observe(batch)
        return {}


class Actor(Normalizing):
    """π(a|s): a categorical for discrete actions, a diagonal Gaussian with free log σ for continuous ones."""

    memoryless = True
    micro_steps: int | None = None  # small networks take a minibatch whole

    def __init__(self, env: Any, network: Network) -> None:
        super().__init__()
        space = env.action_space
        if not isinstance(space, (Discrete, Box)):
            raise UserError(f"action space {space} is not supported; allowed are Discrete and Box")
        self.continuous = isinstance(space, Box)
        size = int(torch.tensor(space.shape).prod()) if isinstance(space, Box) else int(space.n)
        self.prepare(env, network)
        self.actor = mlp(env, size, 0.01, network, "actor", self.normalizer)
        if self.continuous:
            self.log_std = nn.Parameter(torch.full((size,), network.log_std, device=env.device))
        self.generator = seeding.generator(env.seed, "action")

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        out = self.actor(observation)
        if greedy:
            return out if self.continuous else out.argmax(-1)
        if self.continuous:
            return out + self.log_std.exp() * torch.randn(out.shape, generator=self.generator).to(out.device)
        # Gumbel-max: argmax(logits − log E) with E exponential is a draw from the softmax, without normalising.
        noise = torch.empty(out.shape).exponential_(generator=self.generator).to(out.device)
        return (out - noise.log()).argmax(-1)

    def log_prob_entropy(self, batch: TensorDict) -> tuple[Tensor, Tensor]:
        out, action = self.actor(batch["observation"]), batch["action"]
        if self.continuous:
            normal = torch.distributions.Normal(out, self.log_std.exp().expand_as(out), validate_args=False)
            return normal.log_prob(action).sum(-1), normal.entropy().sum(-1)
        log_p = out.log_softmax(-1)
        return pick(log_p, action), -(log_p.exp() * log_p).sum(-1)

    def evaluate(self, batch: TensorDict) -> dict[str, Tensor]:
        log_prob, entropy = self.log_prob_entropy(batch)
        return {"log_prob": log_prob, "entropy": entropy}

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        self.observe(batch)
        return {"log_prob": self.log_prob_entropy(batch)[0]}


class ActorCritic(Actor):
    """An actor and a separate V(s)."""

    def __init__(self, env: Any, network: Network) -> None:
        super().__init__(env, network)
        self.critic = mlp(env, 1, 1.0, network, "critic", self.normalizer)

    def value(self, observation: Tensor) -> Tensor:
        return self.critic(observation).squeeze(-1)

    def evaluate(self, batch: TensorDict) -> dict[str, Tensor]:
        return super().evaluate(batch) | {"value": self.value(batch["observation"])}

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        """V(s_{t+1}) is V of the next column, except where the next column is not the true successor."""
        value = self.value(batch["observation"])
        next_value = torch.cat([value[..., 1:], value[..., -1:]], -1)
        elsewhere = batch["done"].clone()
        elsewhere[..., -1] = True
        next_value[elsewhere] = self.value(batch["next_observation"][elsewhere])
        next_value = next_value.masked_fill(batch["terminated"], 0.0)
        return super().record(batch) | {"value": value, "next_value": next_value}


def actor(env: Env, network: Any) -> Any:
    """A policy that can say log π(a|s): an MLP on control, a language model on text."""
    if isinstance(network, Network):
        return Actor(env, network)
    from rlkit.language.model import LanguageModel

    return LanguageModel.build(network, seed=env.seed, device=env.device)


def actor_critic(env: Env, network: Any) -> Any:
    """The same with V(s): a second MLP on control, a value head on the language model."""
    if isinstance(network, Network):
        return ActorCritic(env, network)
    from rlkit.language.model import LanguageModel

    return LanguageModel.build(network, value_head=True, seed=env.seed, device=env.device)


def scorer(env: Env, network: Any) -> Any:
    """r(prompt, completion); where attempts are played, a frozen copy of the start writes them."""
    from rlkit.language.reward_model import RewardModel

    model = RewardModel.build(network, seed=env.seed, device=env.device)
    return model.with_writer() if getattr(env, "plays", True) else model


def generators(owner: Any) -> dict[str, torch.Generator]:
    """The random generators that a policy (or an algorithm) draws from, by attribute name."""
    return {name: x for name, x in vars(owner).items() if isinstance(x, torch.Generator)}
