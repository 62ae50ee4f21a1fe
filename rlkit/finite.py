"""Values of a run that are NaN, and parameters that are not finite: found before a checkpoint holds them."""

import math
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from tensordict import TensorDict
from torch import Tensor, nn

from rlkit import shards
from rlkit.api import Algorithm, State
from rlkit.errors import Diverged
from rlkit.meter import Meter


def check_finite(algo: Algorithm, held: State) -> None:
    """Raise before NaN or a parameter that is not finite is saved; other values may be infinite, such as a mask.

    Raises: Diverged.
    """
    check_parameters(algo)
    if bad := not_sound(leaves(held)):
        raise Diverged(f"not finite: {', '.join(bad[:5])}; checkpoints written before are kept; try a smaller algo.lr")


def not_sound(found: Iterable[tuple[str, object]]) -> list[str]:
    """The names of values that hold NaN on any rank."""
    named = list(found)
    wrong = shards.agreed([not sound(x) for _, x in named], shards.any_in(x for _, x in named))
    return [name for (name, _), bad in zip(named, wrong, strict=True) if bad]


def sound(x: object) -> bool:
    """Whether a tensor, an array or a number has no NaN; for a shard, in this rank's part."""
    if isinstance(x, Tensor):
        x = shards.mine(x)
        return not (x.is_floating_point() or x.is_complex()) or not bool(x.isnan().any())
    if isinstance(x, np.ndarray | np.generic):
        return x.dtype.kind not in "fc" or not bool(np.isnan(x).any())
    return not (isinstance(x, float) and math.isnan(x))


def leaves(x: object, path: str = "", seen: set[int] | None = None) -> Iterator[tuple[str, object]]:
    """All values in nested dicts, lists and tuples, with their paths; those of one dict or list only once."""
    seen = set() if seen is None else seen
    items = x.items() if isinstance(x, dict) else enumerate(x) if isinstance(x, list | tuple) else None
    if items is None:
        yield path, x
    elif id(x) not in seen:
        if not isinstance(x, tuple):
            seen.add(id(x))
        for key, item in items:
            yield from leaves(item, f"{path}.{key}" if path else str(key), seen)


def not_finite(algo: Algorithm, parameters: Iterable[Tensor]) -> list[str]:
    """The names in the policy of those parameters that are not finite."""
    given = list(parameters)
    shared = shards.any_in(given)
    if not shared and (not given or bool(torch.stack([p.detach().isfinite().all().cpu() for p in given]).all())):
        return []
    wrong = shards.agreed([not bool(shards.mine(p.detach()).isfinite().all()) for p in given], shared)
    names = {x.data_ptr(): f"policy.{key}" for key, x in algo.policy.state_dict().items() if _has_memory(x)}
    if shared and isinstance(algo.policy, nn.Module):
        names |= {id(p): f"policy.{key}" for key, p in algo.policy.named_parameters()}
    keys = [id(p) if shards.is_shard(p) else p.data_ptr() for p in given]
    return [names.get(key, f"parameter {i}") for i, (key, bad) in enumerate(zip(keys, wrong, strict=True)) if bad]


def _has_memory(x: object) -> bool:
    return isinstance(x, Tensor) and not shards.is_shard(x)


def unsound(algo: Algorithm) -> list[str]:
    """The names in a policy of values that cannot have been saved: NaN, and parameters that are not finite."""
    held = not_sound((f"policy.{key}", x) for key, x in leaves(algo.policy.state_dict()))
    return held or not_finite(algo, algo.policy.parameters())


def check_parameters(algo: Algorithm) -> None:
    """Raises: Diverged where an optimizer step left parameters that are not finite."""
    if bad := not_finite(algo, (p for group in algo.optimizer.param_groups for p in group["params"])):
        raise Diverged(f"not finite: {', '.join(bad[:5])}; checkpoints written before are kept; try a smaller algo.lr")


def check_iteration(meter: Meter, rollout: TensorDict) -> None:
    """Raise before parameters that are not finite are saved, and name the values."""
    watched, meter.watched = meter.watched, []
    if not watched or math.isfinite(float(torch.stack(watched).abs().max() if len(watched) > 1 else watched[0])):
        return
    meter.share()
    bad = [f"train/{name}" for name, x in meter.read().items() if not math.isfinite(x)]
    floats: dict[str, Tensor] = {key: x for key, x in rollout.items() if x.is_floating_point()}
    bad += [f"rollout key {key!r}" for key, x in floats.items() if not bool(x.isfinite().all())]
    bad = bad or ["train/loss or train/grad_norm"]  # where an iteration is not logged, no more is measured
    raise Diverged(f"not finite: {', '.join(bad)}; checkpoints written before are kept; try a smaller algo.lr")
