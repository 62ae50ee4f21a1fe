"""Multi-layer perceptrons: on a CPU their forward and backward passes are written out."""

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from rlkit import ranks
from rlkit.attributes import Derived
from rlkit.policies.normalize import Normalizer
from rlkit.tape import add_gradient, changed, hooked, hooks, recording

PRECISIONS = (torch.float32, torch.float64)
FEW = 2**18  # products of numbers in a layer; numpy computes more of them in several threads
Array = NDArray[np.float32]


class Perceptron(nn.Sequential):
    """Linear layers with tanh or ReLU between them, behind whatever stands before the first one. [..., n] → [..., m]

    Where the layers lie on a CPU, they are computed as one, and backward by hand where a tape asks for it (tape.py).
    Elsewhere, where a layer is of another kind, and with fast=False each is called in turn, and autograd goes back.
    Both give the same numbers up to rounding.
    """

    def __init__(self, *layers: nn.Module, fast: bool = True) -> None:
        super().__init__(*layers)
        self.fast = fast
        self._parts = Parts(())

    def forward(self, x: Tensor) -> Tensor:
        parts = self._found()
        for module in parts.first:
            x = module(x)
        tape = recording()
        into = tape is not None and id(x) in tape.leaves  # its gradient is also needed
        by_hand = into or not x.requires_grad if tape else not torch.is_grad_enabled()
        layers = self._plain() if by_hand and x.device.type == "cpu" and x.dtype in PRECISIONS else []
        if not layers:
            for module in parts.modules[len(parts.first) :]:
                x = module(x)
            return x
        with torch.no_grad():
            *inputs, out = forward(x, layers, parts.tanh)
        learning = [(weight.requires_grad, bias.requires_grad) for weight, bias in layers]  # now, not at the way back
        if tape is None or not (into or any(map(any, learning))):
            return out
        back = partial(backward, inputs=inputs, layers=layers, learning=learning, tanh=parts.tanh, into=into)
        tape.note((out,), back, reads=needed(x, layers, learning, into))
        return out

    def _found(self) -> "Parts":
        modules = tuple(self._modules.values())
        if self._parts.modules != modules:
            self._parts = Parts(modules)
        return self._parts

    def _plain(self) -> list["Layer"]:
        """The layers, if they are as torch has them, with parameters of their own, and unwatched; else none."""
        parts = self._parts
        found: list[Layer] = []
        if not self.fast or any(parts.hooks) or any("forward" in own for own in parts.attributes):
            return []
        for layer, own in zip(parts.linear, parts.parameters, strict=True):
            weight, bias = own.get("weight"), own.get("bias")
            if type(layer) is not nn.Linear or weight is None or bias is None:
                return []
            if not weight.is_leaf or hooked(weight) or hooked(bias):
                return []
            found.append((weight, bias))
        return found

    def on_arrays(self, rows: int) -> Callable[[Array], Array] | None:
        """This network as a function of arrays [rows, n], with its weights as they are now; torch takes twice as long.

        None where the layers are not plain ones on a CPU, or where so many rows are better left to torch: the rows of
        all ranks count, as each way draws its noise in another order.
        """
        parts = self._found()
        if type(self) is not Perceptron or changed(self):
            return None
        layers = parts.arrays(self._plain())
        if not layers or ranks.everyone(rows) * max(weight.size for weight, _ in layers) > FEW:
            return None
        before = [module.on_arrays() for module in parts.first if type(module) is Normalizer and not changed(module)]
        if len(before) < len(parts.first):
            return None

        def run(x: Array) -> Array:
            for function in before:
                x = function(x)
            with np.errstate(all="ignore"):  # what is not finite is found and reported with the rollout
                for i, (weight, bias) in enumerate(layers):
                    if i:
                        np.tanh(x, out=x) if parts.tanh else np.maximum(x, 0, out=x)
                    x = x @ weight
                    x += bias
            return x

        return run


def on_arrays(module: nn.Module, rows: int) -> Callable[[Array], Array] | None:
    """A network as a function of arrays; None where it is a user's, or where torch is faster."""
    return module.on_arrays(rows) if isinstance(module, Perceptron) else None


class Parts(Derived):
    """What stands before the first linear layer, and the layers: none, where what follows is not regular."""

    def __init__(self, modules: tuple[nn.Module, ...]) -> None:
        self.modules = modules
        start = next((i for i, module in enumerate(modules) if type(module) is nn.Linear), len(modules))
        self.first, rest = modules[:start], modules[start:]
        # The modules' own dictionaries, which are looked at in each pass.
        self.hooks = [found for module in rest for found in hooks(module)]
        self.attributes = [vars(module) for module in rest]
        linear = [module for module in rest[::2] if type(module) is nn.Linear and module.bias is not None]
        between = {type(module) for module in rest[1::2]}
        regular = 2 * len(linear) == len(rest) + 1 and between in ({nn.Tanh}, {nn.ReLU}, set())
        self.linear, self.tanh = linear if regular else [], nn.Tanh in between
        # Where each layer keeps them: to ask the module itself takes several times as long.
        self.parameters = [layer._parameters for layer in self.linear]
        self.places: list[int] = []
        self.views: list[tuple[Array, Array]] = []

    def __deepcopy__(self, memo: object) -> "Parts":
        return Parts(())  # a copy of the network looks at its own layers

    def arrays(self, parameters: Sequence["Layer"]) -> list[tuple[Array, Array]]:
        """The weights [n, m] and biases of the layers, in their own memory; none if they are not float32 on a CPU."""
        places = [p.data_ptr() for layer in parameters for p in layer]
        if self.places != places:  # they were moved, or have not been checked yet
            plain = all(p.dtype == torch.float32 and p.device.type == "cpu" for layer in parameters for p in layer)
            self.places = places
            self.views = [(w.detach().numpy().T, b.detach().numpy()) for w, b in parameters] if plain else []
        return self.views


Layer = tuple[Tensor, Tensor]  # weight [m, n] and bias [m]


def forward(x: Tensor, layers: Sequence[Layer], tanh: bool) -> list[Tensor]:
    """What goes into each layer, and what comes out of the last: y = W_L·f(… f(W_1·x + b_1) …) + b_L. [..., n]"""
    found = [x]
    for weight, bias in layers:
        if len(found) > 1:
            tanh_(x) if tanh else x.relu_()
        x = torch.nn.functional.linear(x, weight, bias)
        found.append(x)
    return found


def tanh_(x: Tensor) -> None:
    """tanh in place, by numpy, which is several times as fast; by torch where that has to see it, as for an export."""
    if not torch._C._is_tracing():
        try:
            array = x.numpy()
        except RuntimeError:  # it has no memory: it stands for others under torch.export and vmap
            pass
        else:
            np.tanh(array, out=array)
            return
    x.tanh_()


def backward(
    gradient: Tensor,
    inputs: Sequence[Tensor],
    layers: Sequence[Layer],
    learning: Sequence[tuple[bool, bool]],
    tanh: bool,
    into: bool,
) -> None:
    """Add to the gradients of the layers that learn, given that of what came out [..., m]; `into`: of inputs[0], too.

    With h_l what goes into layer l and g_l = ∂/∂(W_l·h_l + b_l): ∂W_l = g_lᵀ·h_l, ∂b_l = Σ g_l, and
    g_{l−1} = (g_l·W_l) ⊙ f′, where f′ is 1 − h_l² for tanh and [h_l > 0] for ReLU.
    """
    g = gradient.reshape(-1, gradient.shape[-1])
    for (weight, bias), learns, x in zip(reversed(layers), reversed(learning), reversed(inputs), strict=True):
        h = x.reshape(-1, x.shape[-1])
        if learns[1]:
            add_gradient(bias, g.sum(0))
        if learns[0]:
            add_product(weight, g, h)
        if x is not inputs[0]:
            g = g * weight if len(weight) == 1 else g @ weight  # the same, and several times as fast for one output
            if tanh:
                torch.ops.aten.tanh_backward.grad_input(g, h, grad_input=g)
            else:
                torch.ops.aten.threshold_backward.grad_input(g, h, 0, grad_input=g)
        elif into:
            add_gradient(x, (torch.mm(weight.t(), g.t()).t() if narrow(weight) else g @ weight).reshape(x.shape))


def needed(x: Tensor, layers: Sequence[Layer], learning: Sequence[tuple[bool, bool]], into: bool) -> tuple[Tensor, ...]:
    """What comes from outside and `backward` reads: x, where W_1 learns, and W_l, where something before it does."""
    before = [into or any(map(any, learning[:i])) for i in range(len(layers))]
    weights = tuple(weight for (weight, _), needs in zip(layers, before, strict=True) if needs)
    return (x, *weights) if learning[0][0] else weights


def add_product(weight: Tensor, g: Tensor, h: Tensor) -> None:
    """weight.grad += gᵀ·h."""
    if weight.grad is None:
        weight.grad = torch.zeros_like(weight)
    if narrow(weight):
        weight.grad.t().add_(torch.mm(h.t(), g))
    else:
        weight.grad.addmm_(g.t(), h)


def narrow(weight: Tensor) -> bool:
    """Whether so few numbers go in that a product is several times as fast transposed."""
    return 2 * weight.shape[1] <= weight.shape[0]
