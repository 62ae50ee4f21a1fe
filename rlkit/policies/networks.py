"""Networks for control: a Q-network, an actor, an actor-critic.

`act` is called once per environment step and does as little as it can; `record` and `evaluate` see whole batches.
"""

from collections import OrderedDict
from dataclasses import replace

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import seeding, spaces
from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.policies.base import EpsilonGreedy, Function, Numbers, PolicyModule
from rlkit.policies.distributions import categorical, categoricals, gaussian
from rlkit.policies.encoders import allowed_by, learns
from rlkit.policies.layers import Layers, common, encoder, idle_keys, mlp, perceptron
from rlkit.policies.normalize import Normalizer, normalizer_for
from rlkit.policies.perceptron import Perceptron, on_arrays
from rlkit.policies.recurrent import Memory, beginnings
from rlkit.tape import changed, squeezed


class Dueling(nn.Module):
    """Q(s, a) = V(s) + A(s, a) − mean_b A(s, b) from two streams (Wang et al. 2015, arXiv:1511.06581, eq. 9)."""

    def __init__(self, value: nn.Module, advantage: nn.Module) -> None:
        super().__init__()
        self.value, self.advantage = value, advantage

    def forward(self, features: Tensor) -> Tensor:
        value: Tensor = self.value(features)
        advantage: Tensor = self.advantage(features)
        return value + advantage - advantage.mean(-1, keepdim=True)


class QNetwork(EpsilonGreedy):
    """Q(s, ·) as a network, acted on ε-greedily: [..., observation] → [..., A].

    Dueling: V and A have one last hidden layer each, if there is one, and share those before it.
    """

    def __init__(self, env: Env, network: Layers, dueling: bool = False) -> None:
        super().__init__(env.seed)
        space = env.action_space
        if not isinstance(space, Discrete):
            other = "sac" if isinstance(space, Box) else "ppo"  # of several choices
            raise UserError(f"a Q-network needs discrete actions and this environment has {space}; use algo={other}")
        self.normalizer = normalizer_for(env, network.normalize)
        self.idle_keys = idle_keys(env, network, self.normalizer, False, "a network without actor")
        self.allowed = allowed_by(env.observation_space)
        self.q: nn.Sequential = mlp(env, int(space.n), 1.0, network, "q", self.normalizer)
        if dueling:
            own = 3 if network.hidden else 1  # layers of each stream: hidden, activation, output
            value = mlp(env, 1, 1.0, network, "value", self.normalizer)
            streams = (nn.Sequential(OrderedDict(list(stream.named_children())[-own:])) for stream in (value, self.q))
            self.q = nn.Sequential(*list(self.q)[:-own], Dueling(*streams))

    def forward(self, observation: Tensor) -> Tensor:
        q: Tensor = self.q(observation)
        return q if self.allowed is None else self.allowed.forbid(observation, q, (q.shape[-1],))

    def on_arrays(self, rows: int) -> Function | None:
        return on_arrays(self.q, rows)


class Actor(PolicyModule):
    """π(a|s): a categorical for each choice of an action, a diagonal Gaussian with free log σ for continuous ones."""

    def __init__(self, env: Env, network: Layers, critic: bool = False) -> None:
        super().__init__(seeding.generator(env.seed, "action"))
        space = env.action_space
        self.continuous = isinstance(space, Box)
        assert space is not None, "a control problem has spaces"
        spaces.check_action(space)
        self.choices = spaces.choices(space) or (0,)  # values of each choice of an action
        size = self.size = spaces.width(space) if isinstance(space, Box) else sum(self.choices)
        self.normalizer = normalizer_for(env, network.normalize)
        self.idle_keys = idle_keys(
            env, network, self.normalizer, self.continuous, "" if critic else "a policy without critic"
        )
        self.allowed = None if self.continuous else allowed_by(env.observation_space)
        self.memory = Memory(env, network, self.normalizer) if network.memory == "gru" else None
        self.memoryless = self.memory is None
        shared = trunk(env, network, self.memory, self.normalizer) if critic else None
        self.width = None if shared is None else shared[0]  # numbers that the layers hand on that a critic shares
        self.trunk: nn.Module = nn.Identity() if shared is None else shared[1]
        if network.share == "all" and shared is not None and not learns(shared[1]):
            self.idle_keys += (("share", "no hidden layers"),)
        self.actor = self.head(env, size, 0.01, network, "actor")
        self.single = isinstance(space, Discrete)
        if self.continuous:
            start = torch.full((size,), network.log_std, device=env.device)
            self.log_std = nn.Parameter(start.double() if network.dtype == "float64" else start)

    def head(self, env: Env, outputs: int, gain: float, network: Layers, name: str) -> Perceptron:
        """A network from what the trunk hands on, from observations or from what is remembered, to `outputs`."""
        if self.width is not None:
            return perceptron(env, self.width, outputs, gain, replace(network, hidden=()), name, [])
        if self.memory is None:
            return mlp(env, outputs, gain, network, name, self.normalizer)
        return perceptron(env, self.memory.size, outputs, gain, network, name, [])

    def as_read(self, batch: TensorDict) -> Tensor:
        """The observations; with memory what is remembered at each step of whole rows, it included. [..., T, size]

        A batch that does not say what was remembered before its first step holds episodes from their start.
        """
        observation: Tensor = batch["observation"]
        if self.memory is None:
            return observation
        mask = batch["mask"]
        if "memory" not in batch.keys():
            before = self.start(mask.shape[:-1].numel())
            return self.memory.read(observation, before, torch.zeros_like(mask))
        begins = batch["begins"] if "begins" in batch.keys() else beginnings(batch["done"], mask)
        return self.memory.read(observation, batch["memory"][..., 0, :], begins)

    def start(self, rows: int) -> Tensor:
        assert self.memory is not None, "without memory there is nothing to begin with"
        return self.memory.start(rows)

    def recall(self, observation: Tensor, memory: Tensor, greedy: bool = False) -> tuple[Tensor, Tensor]:
        assert self.memory is not None, "without memory there is nothing to recall"
        after = self.memory.step(observation, memory)
        return self.choose(observation, greedy, after), after

    def outputs(self, observation: Tensor, features: Tensor | None = None) -> Tensor:
        """Means, or the logits of all choices, those of forbidden actions so low that their probability is 0."""
        out: Tensor = self.actor(self.trunk(observation) if features is None else features)
        return out if self.allowed is None else self.allowed.forbid(observation, out, self.choices)

    def highest(self, scores: Tensor) -> Tensor:
        """The value with the highest score of each choice. [..., Σ n_i] → [..., k], or [...] of a single one."""
        if self.single:
            return scores.argmax(-1)
        return torch.stack([part.argmax(-1) for part in torch.split(scores, [*self.choices], -1)], -1)

    def act(self, observation: Tensor, greedy: bool = False) -> Tensor:
        """A policy with memory acts as in the first step of an episode; `recall` goes on from there."""
        if self.memory is not None:
            return self.recall(observation, self.start(len(observation)), greedy)[0]
        return self.choose(observation, greedy, observation)

    def choose(self, observation: Tensor, greedy: bool, seen: Tensor) -> Tensor:
        out = self.outputs(observation, self.trunk(seen))
        if self.allowed is not None:
            self.allowed.check(observation, self.choices)
        if greedy:
            return out if self.continuous else self.highest(out)
        if self.continuous:
            return out + self.log_std.exp() * self.normal(out.shape).to(out.device)
        # Gumbel-max: argmax(logits − log E) with E exponential is a draw from the softmax, without normalizing.
        noise = self.exponential(out.shape).to(out.device)
        return self.highest(out - noise.log())

    def prepared(self, steps: int, rows: int) -> Function | None:
        """What `act` does in each of the next steps, from arrays to arrays; its draws are made at once."""
        alone = self.memory is None and type(self.trunk) is nn.Identity and not changed(self.trunk)
        outputs = on_arrays(self.actor, rows) if alone else None
        if outputs is None:
            return None
        shape = (steps, rows, self.size)
        if self.continuous:
            noise = self.log_std.detach().exp() * self.normal(shape, 1)
            drawn = iter(noise.numpy())
            return lambda observation: outputs(observation) + next(drawn)
        gumbel = iter(self.exponential(shape, 1).log_().neg_().numpy())
        if self.single:
            return lambda observation: (outputs(observation) + next(gumbel)).argmax(-1)
        ends = np.cumsum(self.choices)[:-1]

        def act(observation: Numbers) -> Numbers:
            scores = np.split(outputs(observation) + next(gumbel), ends, -1)
            return np.stack([part.argmax(-1) for part in scores], -1)

        return act

    def log_prob_entropy(self, batch: TensorDict, features: Tensor) -> tuple[Tensor, Tensor]:
        out = self.outputs(batch["observation"], features)
        action: Tensor = batch["action"]
        if self.continuous:
            return gaussian(out, self.log_std, action)
        return categorical(out, action) if self.single else categoricals(out, action, self.choices)

    def evaluate(self, batch: TensorDict, entropy: bool = True) -> dict[str, Tensor]:
        return self.judged(batch, self.trunk(self.as_read(batch)))

    def judged(self, batch: TensorDict, features: Tensor) -> dict[str, Tensor]:
        log_prob, spread = self.log_prob_entropy(batch, features)
        return {"log_prob": log_prob, "entropy": spread}

    def record(self, batch: TensorDict) -> dict[str, Tensor]:
        seen = self.as_read(batch)
        noted = super().record(batch) | self.noted(batch, seen, self.trunk(seen))
        if "memory" in batch.keys():  # a step that `credit` leaves out of the mask was acted on, and is remembered
            noted["begins"] = beginnings(batch["done"], batch["mask"])
        return noted

    def noted(self, batch: TensorDict, seen: Tensor, features: Tensor) -> dict[str, Tensor]:
        return {"log_prob": self.log_prob_entropy(batch, features)[0]}


def trunk(
    env: Env, network: Layers, memory: Memory | None, normalizer: Normalizer | None
) -> tuple[int, nn.Sequential] | None:
    """The layers that actor and critic share, and how many numbers they hand on; None where each has its own."""
    if network.share == "none":
        return None
    width, before = (memory.size, []) if memory is not None else encoder(env, network, "common", normalizer)
    if network.share == "auto" and not learns(before if memory is None else [memory.encoder]):
        return None
    return common(env, width, network, before)


class ActorCritic(Actor):
    """An actor and V(s): two networks, or one with two last layers."""

    def __init__(self, env: Env, network: Layers) -> None:
        super().__init__(env, network, critic=True)
        self.critic = self.head(env, 1, 1.0, network, "critic")

    def value(self, observation: Tensor) -> Tensor:
        """V(s); with memory, as in the first step of an episode. [..., observation] → [...]"""
        if self.memory is None:
            return self.worth(self.trunk(observation))
        return self.worth(self.trunk(self.memory.step(observation, self.start(len(observation)))))

    def worth(self, features: Tensor) -> Tensor:
        """What the critic makes of observations, of what is remembered, or of what the trunk makes of either."""
        return squeezed(self.critic(features))

    def judged(self, batch: TensorDict, features: Tensor) -> dict[str, Tensor]:
        return super().judged(batch, features) | {"value": self.worth(features)}

    def noted(self, batch: TensorDict, seen: Tensor, features: Tensor) -> dict[str, Tensor]:
        """V(s_{t+1}) is V of the next column, except where the next column is not the true successor."""
        value = self.worth(features)
        next_value = torch.cat([value[..., 1:], value[..., -1:]], -1)
        elsewhere = batch["done"].clone()
        elsewhere[..., -1] = True
        next_value[elsewhere] = self.successors(batch["next_observation"][elsewhere], seen, elsewhere)
        next_value = next_value.masked_fill(batch["terminated"], 0.0)
        return super().noted(batch, seen, features) | {"value": value, "next_value": next_value}

    def successors(self, observation: Tensor, seen: Tensor, where: Tensor) -> Tensor:
        """V of the true successors of some steps, by what was remembered there. [n, observation], [..., T] → [n]"""
        if self.memory is None:
            return self.value(observation)
        return self.worth(self.trunk(self.memory.step(observation, seen[where])))
