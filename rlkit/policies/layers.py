"""What networks of control problems are made of: what encodes an observation, and the layers behind it."""

import itertools
from dataclasses import dataclass
from typing import Annotated, Literal
from weakref import WeakValueDictionary

import torch
from annotated_types import Ge, Le
from gymnasium.spaces import Box
from torch import Tensor, nn

from rlkit import memory, seeding, spaces
from rlkit.api import Env
from rlkit.errors import UserError
from rlkit.fields import Choose, Count, Needs, Place, Switch
from rlkit.policies import encoders, own_encoder
from rlkit.policies.normalize import Normalizer
from rlkit.policies.perceptron import Perceptron
from rlkit.tape import joined

MOST_LAYERS = 100
Encoder = Annotated[str, Place("code", words=own_encoder.WORDS)]
DRAWN: "WeakValueDictionary[int, Tensor]" = WeakValueDictionary()  # by their id, weights that were drawn here
MASKED = "an action_mask beside the observations (env.action_masks=false ignores one that env=gym finds in info)"
NARROW = 50  # numbers that features of images are brought to where actions join them


@dataclass(frozen=True)
class Layers:
    """The `policy.` keys that say what networks are made of."""

    hidden: Annotated[tuple[Count, ...], Choose((64,), (64, 64), (256, 256))] = (64, 64)  # widths of the hidden layers
    activation: Annotated[Literal["tanh", "relu"], Needs("hidden")] = "tanh"  # activation function between layers
    encoder: Encoder = "auto"  # auto, flat, nature, impala, small: network for images; or ./my_net.py, PATH.py:NAME
    log_std: Annotated[float, Ge(-20), Le(20)] = 0.0  # initial log standard deviation of continuous actions
    init: Literal["orthogonal", "uniform"] = "orthogonal"  # first weights: orthogonal, or uniform in ±1/√inputs
    fast: bool = True  # compute small networks on a CPU forward and backward by hand; false: all by autograd
    memory: Literal["none", "gru"] = "none"  # memory of the episode: none, or a gated recurrent unit
    memory_size: Annotated[Count, Needs("memory", "gru")] = 64  # units of the memory
    share: Literal["auto", "all", "none"] = "auto"  # layers that actor and critic share; auto: all on images
    dtype: Literal["float32", "float64"] = "float32"  # precision that networks learn and act in
    normalize: Switch = False  # standardize observations by running statistics

    def __post_init__(self) -> None:
        if self.encoder.endswith(".py"):
            object.__setattr__(self, "encoder", f"{self.encoder}:make")

    @property
    def own_encoder(self) -> bool:
        """Whether the encoder is not a word of ours."""
        return self.encoder not in own_encoder.WORDS


class Wide(nn.Module):
    """Real numbers in float64."""

    def forward(self, x: Tensor) -> Tensor:
        return x.double() if x.is_floating_point() else x


def widened(network: Layers) -> list[nn.Module]:
    """What brings numbers to float64, before and behind what encodes an observation; empty: all stays float32."""
    return [Wide()] if network.dtype == "float64" else []


def linear(inputs: int, outputs: int, gain: float, network: Layers, generator: torch.Generator) -> nn.Linear:
    """A layer with weights of `policy.init`, for which nothing is drawn from torch's own generator."""
    layer: nn.Linear = nn.utils.skip_init(nn.Linear, inputs, outputs)  # type: ignore[no-untyped-call]
    initialize(layer, gain, network, generator)
    return layer


def initialize(layer: nn.Linear | nn.Conv2d, gain: float, network: Layers, generator: torch.Generator) -> None:
    """Orthogonal weights times `gain` and zero biases (Saxe et al. 2013, arXiv:1312.6120), or both as in torch:

    uniform in ±1/√n, for n numbers that each output is made of.
    """
    assert layer.bias is not None, "all layers here have one"
    DRAWN[id(layer.weight)] = layer.weight
    if network.init == "orthogonal":
        nn.init.orthogonal_(layer.weight, gain, generator=generator)
        nn.init.zeros_(layer.bias)
        return
    bound = layer.weight[0].numel() ** -0.5
    for parameter in (layer.weight, layer.bias):
        nn.init.uniform_(parameter, -bound, bound, generator=generator)


def encoder(env: Env, network: Layers, name: str, normalizer: Normalizer | None) -> tuple[int, list[nn.Module]]:
    """What stands before the first layer, with its own named initialization, and how many numbers it hands on."""
    space = env.observation_space
    assert space is not None, "a control problem has spaces"
    generator = seeding.generator(env.seed, "init", name, "encoder")
    if network.own_encoder:
        own = own_encoder.made(network.encoder, space, generator)
        return encoders.features(space, own), [own] if normalizer is None else [normalizer, own]
    with torch.random.fork_rng(devices=[]):  # torch draws weights when a module is made; ours come below
        made = encoders.of_space(space, network.encoder)
    for module in made.modules() if made is not None else ():
        if isinstance(module, nn.Conv2d):
            initialize(module, 2**0.5, network, generator)
    return encoders.features(space, made), [module for module in (normalizer, made) if module is not None]


def perceptron(
    env: Env, width: int, outputs: int, gain: float, network: Layers, name: str, before: list[nn.Module]
) -> Perceptron:
    """Layers from `width` numbers to `outputs` behind what stands `before` them."""
    generator = seeding.generator(env.seed, "init", name)
    activation = {"tanh": nn.Tanh, "relu": nn.ReLU}[network.activation]
    sizes = (width, *network.hidden, outputs)
    if len(network.hidden) > MOST_LAYERS:
        raise UserError(f"policy.hidden has {len(network.hidden):,} layers: give at most {MOST_LAYERS}")
    weights = sum(a * b + b for a, b in itertools.pairwise(sizes))
    given = f"policy.hidden={','.join(map(str, network.hidden))} on {width} inputs"
    memory.check(16 * weights, given, "give fewer or smaller layers")  # float32: itself, its gradient, Adam's moments
    wide = widened(network)
    layers = [*wide, *before, *wide]
    for size in network.hidden:
        layers.extend([linear(width, size, 2**0.5, network, generator), activation()])
        width = size
    made = Perceptron(*layers, linear(width, outputs, gain, network, generator), fast=network.fast).to(env.device)
    return made.double() if wide else made


def mlp(
    env: Env, outputs: int, gain: float, network: Layers, name: str, normalizer: Normalizer | None = None
) -> Perceptron:
    """A network from the env's observations to `outputs`, with its own named initialization."""
    width, before = encoder(env, network, name, normalizer)
    return perceptron(env, width, outputs, gain, network, name, before)


def common(env: Env, width: int, network: Layers, before: list[nn.Module]) -> tuple[int, nn.Sequential]:
    """All layers but the last one, for networks that share them, and how many numbers they hand on."""
    whole = perceptron(env, width, 1, 1.0, network, "common", before)
    return (width, *network.hidden)[-1], nn.Sequential(*list(whole)[:-1])


class ActionValue(nn.Module):
    """Q(s, a) of actions that are `size` real numbers: they join what the observation is encoded as.

    The features of images are brought to 50 numbers in [-1, 1] before (as in arXiv:1910.01741), or the thousands of
    them would drown the few of the action.
    """

    def __init__(self, env: Env, size: int, network: Layers, name: str, normalizer: Normalizer | None) -> None:
        super().__init__()
        width, before = encoder(env, network, name, normalizer)
        if encoders.learns(before):
            generator = seeding.generator(env.seed, "init", name, "narrow")
            narrow = linear(width, NARROW, 2**0.5, network, generator)
            width, before = NARROW, [*before, narrow, nn.LayerNorm(NARROW), nn.Tanh()]
        wide = widened(network)
        self.encoder = nn.Sequential(*wide, *before, *wide).to(env.device)
        if wide:
            self.encoder.double()
        self.layers = perceptron(env, width + size, 1, 1.0, network, name, [])

    def forward(self, observation: Tensor, action: Tensor) -> Tensor:
        """[..., observation], [..., d] → [...]."""
        out: Tensor = self.layers(joined(self.encoder(observation), action))
        return out.squeeze(-1)


def idle_keys(
    env: Env, network: Layers, normalizer: Normalizer | None, deviates: bool, unshared: str = ""
) -> tuple[tuple[str, str], ...]:
    """The keys of `Layers` that have no effect, each with the reason.

    deviates: actions are drawn with a deviation; unshared: why there is nothing to share.
    """
    space = env.observation_space
    assert space is not None, "a control problem has spaces"
    still = "a deterministic actor" if isinstance(env.action_space, Box) else "discrete actions"
    found = [] if deviates else [("log_std", still)]
    found += [("share", unshared)] if unshared else []
    boxes = [part for _, part in spaces.leaves(space) if isinstance(part, Box)]
    if not network.own_encoder and not any(len(box.shape) > 1 for box in boxes):
        found.append(("encoder", "observations without an image"))
    if normalizer is None:
        kind = "composite" if spaces.is_composite(space) else "byte" if boxes else "discrete"
        masked = isinstance(spaces.beside_mask(space), Box) and spaces.masks_actions(space)
        found.append(("normalize", MASKED if masked else f"{kind} observations"))
    return tuple(found)
