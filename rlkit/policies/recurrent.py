"""The memory of a policy: a gated recurrent unit reads the observations of an episode one after the other."""

import torch
from torch import Tensor, nn

from rlkit import seeding
from rlkit.api import Env
from rlkit.policies.layers import Layers, encoder, widened
from rlkit.policies.normalize import Normalizer


class Memory(nn.Module):
    """h_t = GRU(encoder(o_t), h_{t−1}), and 0 before an episode's first step (Cho et al. 2014, arXiv:1406.1078)."""

    def __init__(self, env: Env, network: Layers, normalizer: Normalizer | None) -> None:
        super().__init__()
        width, before = encoder(env, network, "memory", normalizer)
        wide = widened(network)
        self.encoder, self.size = nn.Sequential(*wide, *before, *wide).to(env.device), network.memory_size
        generator = seeding.generator(env.seed, "init", "memory")
        with torch.random.fork_rng(devices=[]):  # torch draws weights when a module is made; ours come below
            self.gru = nn.GRU(width, self.size, batch_first=True)
        for name, parameter in self.gru.named_parameters():
            if network.init == "uniform":
                nn.init.uniform_(parameter, -(self.size**-0.5), self.size**-0.5, generator=generator)  # as in torch
            elif name.startswith("weight"):
                for gate in parameter.detach().chunk(3):
                    nn.init.orthogonal_(gate, generator=generator)
            else:
                nn.init.zeros_(parameter)
        self.gru.to(env.device)
        if wide:
            self.double()

    def start(self, rows: int) -> Tensor:
        """The memory before an episode's first step. [rows, size]"""
        return next(self.gru.parameters()).new_zeros(rows, self.size)

    def step(self, observation: Tensor, memory: Tensor) -> Tensor:
        """The memory after these observations. [n, observation], [n, size] → [n, size]"""
        after: Tensor = self.gru(self.encoder(observation).unsqueeze(1), memory.unsqueeze(0).contiguous())[1]
        return after.squeeze(0)

    def read(self, observation: Tensor, memory: Tensor, begins: Tensor) -> Tensor:
        """The memory after each step of whole rows.

        observation: [..., T, observation]; memory: before the first step [..., size]; begins: bool [..., T], where a
        row forgets what was before. → [..., T, size]
        """
        x = self.encoder(observation).flatten(0, begins.dim() - 2)  # [N, T, features]
        state, forget = memory.reshape(1, -1, self.size).contiguous(), begins.flatten(0, -2)
        steps = forget.shape[1]
        cuts = sorted({0, *forget.any(0).nonzero()[:, 0].tolist()})  # from one to the next no row forgets
        found = []
        for start, end in zip(cuts, [*cuts[1:], steps], strict=True):
            state = state.masked_fill(forget[:, start, None], 0.0)
            part, state = self.gru(x[:, start:end], state)
            found.append(part)
        return torch.cat(found, 1).view(*begins.shape, self.size)


def beginnings(done: Tensor, mask: Tensor) -> Tensor:
    """Where a row acts for the first time in an episode, but for its own first step. bool [..., T] → bool [..., T]"""
    begins = torch.zeros_like(done)
    begins[..., 1:] = (done | ~mask)[..., :-1] & mask[..., 1:]
    return begins
