"""Frozen weights in a checkpoint: fingerprints replace them, as their model can be loaded again at resume.

A module with a `source` has two hooks of torch. On saving, a fingerprint replaces each frozen parameter that still
equals the source. On loading, fingerprints are compared with the parameters that were loaded from the source.
"""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor, nn

from rlkit.errors import UserError
from rlkit.shards import whole
from rlkit.waiting import counted

KEY = "frozen"  # key of the fingerprints in a state_dict


@dataclass(frozen=True)
class Source:
    """A model that can be loaded again."""

    name: str  # the value of policy.model
    marks: dict[str, str]  # parameter name → fingerprint right after loading

    @classmethod
    def of(cls, name: str, module: nn.Module) -> Self:
        """The source of a module that was just loaded."""
        return cls(
            name, {key: fingerprint([p]) for key, p in counted(list(module.named_parameters(remove_duplicate=False)))}
        )


class Sourced(nn.Module):
    """A module that may come from a source."""

    source: Source | None = None

    def stored_by_source(self) -> None:
        """From now on, save frozen parameters as fingerprints."""
        self.register_state_dict_post_hook(_out)  # type: ignore[no-untyped-call]  # torch's
        self.register_load_state_dict_pre_hook(_in)  # type: ignore[no-untyped-call]


def fingerprint(tensors: Iterable[Tensor], dtype: torch.dtype | None = None) -> str:
    """SHA-256 over sizes and bytes; with dtype: of the tensors rounded to that precision."""
    found = hashlib.sha256()
    for x in tensors:
        x = whole(x.detach()).to(dtype or x.dtype).cpu().contiguous()
        found.update(f"{x.dtype} {tuple(x.shape)}\n".encode())
        found.update(x.reshape(-1).view(torch.uint8).numpy().data)
    return found.hexdigest()


def _out(module: Sourced, state: dict[str, Any], prefix: str, _: object) -> None:
    if (source := module.source) is None:
        return
    frozen = {
        name: p
        for name, p in module.named_parameters(remove_duplicate=False)
        if not p.requires_grad and prefix + name in state
    }
    # Computed each time: a parameter without an optimizer may still change, for example as a running average.
    same = {name: fingerprint([p]) for name, p in frozen.items() if name in source.marks}
    same = {name: mark for name, mark in same.items() if mark == source.marks[name]}
    for name in same:
        del state[prefix + name]
    if same:
        state[prefix + KEY] = same


def _in(module: Sourced, state: dict[str, Any], prefix: str, *_: object) -> None:
    absent = tuple(f"{prefix}{name}." for name, child in module._modules.items() if child is None)
    for key in [key for key in state if key.startswith(absent)]:
        del state[key]  # rlkit 0.5 kept the value head of a reference
    was = state.pop(prefix + KEY, None)  # missing in checkpoints of rlkit 0.5, which hold all tensors
    if was is None:
        return
    was = {name: mark for name, mark in was.items() if not f"{prefix}{name}".startswith(absent)}
    there = dict(module.named_parameters(remove_duplicate=False))
    if any(name not in there or fingerprint([there[name]]) != mark for name, mark in was.items()):
        name = "" if module.source is None else module.source.name
        raise UserError(
            f"policy.model={name} has other weights than when the run began, and the checkpoint holds only what was "
            "trained: put them back"
        )
    state |= {prefix + name: there[name] for name in was}
