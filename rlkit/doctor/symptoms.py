"""Diagnostic statistics of one iteration: numbers, left on their device until all of them are read at once."""

import math
from typing import Protocol, runtime_checkable

import numpy as np
import torch
from gymnasium.spaces import Box, Discrete
from tensordict import TensorDict
from torch import Tensor

from rlkit.api import Algorithm, Env, Policy, Writes
from rlkit.buffers import last_step, per_step
from rlkit.meter import Ratio, ratios_of

Found = dict[str, Tensor | float]


def read(found: Found) -> dict[str, float]:
    """All of them as numbers, in one transfer. What ranks have put together lies on the CPU, wherever the rest does."""
    tensors = {name: x for name, x in found.items() if isinstance(x, Tensor)}
    device = next((x.device for x in tensors.values()), None)
    numbers = torch.stack([x.to(device, torch.float64) for x in tensors.values()]).tolist() if tensors else []
    return {name: x for name, x in found.items() if not isinstance(x, Tensor)} | dict(
        zip(tensors, numbers, strict=True)
    )


def of_texts(rollout: TensorDict, policy: Policy) -> Found:
    """Whether each text ends where its end token stands, at no other place, and begins before one. Rows: [..., T]."""
    if not isinstance(policy, Writes) or rollout["mask"].dim() < 2:
        return {}
    mask, action, observation = (rollout[key].flatten(0, -2) for key in ("mask", "action", "observation"))
    ids = torch.tensor(policy.tokenizer.stop_ids, device=mask.device)
    last = (last_step(mask) - 1).clamp(min=0).unsqueeze(-1)
    ended = torch.isin(action.gather(-1, last), ids)[:, 0]
    stops = (torch.isin(action, ids) & mask).sum(-1)
    first = observation.gather(-1, mask.int().argmax(-1, keepdim=True))  # the last token of the prompt
    found: Found = {"texts": float(len(mask)), "end_token": float(policy.tokenizer.eos_id)}
    cut = torch.zeros_like(ended)
    if "truncated" in rollout.keys():
        cut = rollout["truncated"].flatten()
        found["rollout/truncated"] = cut.float().mean()
    stopped = torch.zeros_like(ended)  # by one of env.stop, which is not a token
    if "rollout/stopped" in rollout.keys():
        stopped = rollout["rollout/stopped"].flatten() > 0
    odd = (ended == cut) & ~stopped | (stops > ended.int())
    if "rollout/turns" in rollout.keys():  # each turn may end in an end token, and the last one as the other side likes
        odd = torch.zeros_like(odd)
    acted = mask.any(-1)
    return found | {
        "odd_ends": (odd & acted).sum(),
        "ended_prompts": torch.isin(first, ids).sum(),
        "empty": (ended & (mask.sum(-1) == 1)).sum(),
    }


def of_notes(rollout: TensorDict) -> Found:
    """The means of what was counted in each row: rollout/NAME [...]."""
    return {key: x.float().mean() for key, x in rollout.items() if key.startswith("rollout/")}


def of_groups(rollout: TensorDict) -> Found:
    """The share of starts whose attempts all score the same, where there are several of each: score [P, G].

    Where a judge compared them, its preference is looked at instead.
    """
    score = rollout.get("preference", rollout.get("score", None))
    if score is None or score.dim() < 2 or score.shape[1] < 2:
        return {}
    judged: Found = {"judged": 1.0} if "preference" in rollout.keys() else {}
    equal = (score.amax(1) == score.amin(1)).float().mean()
    return judged | {"rollout/equal_groups": equal, "groups": float(len(score))}


def of_observations(rollout: TensorDict, env: Env) -> Found:
    """How far the observations that were acted on lie outside their space, and in which component."""
    space = env.observation_space
    found: Found = {}
    if isinstance(env.action_space, Box):
        found["dimensions"] = float(rollout["action"].shape[-1])
    if not isinstance(space, Box | Discrete) or not len(x := rollout["observation"][rollout["mask"]]):
        return found
    if isinstance(space, Discrete):
        return found | {"outside": torch.maximum(-x.min(), x.max() - int(space.n) + 1), "component": 0.0}
    rows = x.float()
    with np.errstate(over="ignore"):  # 1e300 is infinite here
        bounds = [bound.astype(np.float32) for bound in (space.low, space.high)]
    low, high = (torch.from_numpy(bound).reshape(-1).to(rows) for bound in bounds)
    outside, component = torch.maximum(low - rows.amin(0), rows.amax(0) - high).max(0)
    return found | {"outside": outside, "component": component}


FEW_ACTIONS = 32  # these do not show how far actions reach


def of_actions(rollout: TensorDict, env: Env) -> Found:
    """The component of a box of actions that fits the policy least: its bounds, and where the actions lie.

    saturated: the share at or beyond one bound; reach: their range in that of the space, 1 where that is infinite.
    A component whose bounds are one number leaves nothing to choose, and is not looked at.
    """
    space = env.action_space
    if not isinstance(space, Box) or not (free := np.flatnonzero(space.low < space.high)).size:
        return {}
    x = rollout["action"][rollout["mask"]][:, free]
    if len(x) < FEW_ACTIONS:
        return {}
    low, high = (torch.from_numpy(bound.reshape(-1)[free]).to(x) for bound in (space.low, space.high))
    lowest, highest = x.amin(0), x.amax(0)
    saturated = torch.maximum((x <= low).float().mean(0), (x >= high).float().mean(0))
    width = high - low
    reach = torch.where(width.isfinite(), (highest - lowest) / width, 1.0)
    worst = torch.maximum(saturated, 1 - torch.minimum(reach, 1 / reach)).argmax()
    told = {"low": low, "high": high, "lowest_action": lowest, "highest_action": highest}
    told |= {"saturated": saturated, "reach": reach}
    return {"action_component": torch.from_numpy(free).to(x.device)[worst]} | {
        name: each[worst] for name, each in told.items()
    }


ROUNDING = 100  # units of the last place by which equal returns may differ


def of_credit(credited: TensorDict) -> Found:
    """How far advantages reach, and 1 − Var(R − V)/Var(R): what of the returns the critic explains.

    nan where returns are equal up to rounding: R is the sum of the advantage and V, so it keeps some of what V had.
    """
    mask = credited["mask"]
    found: Found = {}
    if "advantage" in credited.keys():
        advantage = per_step(credited["advantage"], mask)[mask]
        if len(advantage) > 1:
            square = (advantage - advantage.mean()).square()
            total = square.sum()
            found = {
                "advantage": advantage.abs().max(),
                "peak": square.max() / torch.where(total > 0, total, 1.0),  # none has a share of nothing
                "steps": float(len(square)),
            }
    if {"value", "return"} <= set(credited.keys()) and "advantage" in found:
        target, value = (per_step(credited[key], mask)[mask] for key in ("return", "value"))
        spread, largest = target.std(), torch.maximum(target.abs(), value.abs()).max()
        explained = 1 - ((target - value).std() / spread).square()
        differ = spread > ROUNDING * torch.finfo(target.dtype).eps * largest
        found["train/explained_variance"] = torch.where(differ, explained, math.nan)
        found["spread"] = spread / target.mean().abs()
    return found


@runtime_checkable
class Copies(Protocol):
    """An algorithm whose target network is a copy of the one that learns, made now and then."""

    @property
    def target_copied(self) -> bool:
        """Whether it was copied since the run began; before that it holds random values."""
        ...


def of_target(algo: Algorithm) -> Found:
    """Whether the target network was copied, where there is one that is."""
    return {"target_copied": float(algo.target_copied)} if isinstance(algo, Copies) else {}


def of_sampler(rollout: TensorDict) -> Found:
    """The mean of |log π_b − log μ| over the tokens that another function μ drew, in nats."""
    if "sampler_log_prob" not in rollout.keys():
        return {}
    gap = (rollout["log_prob"] - rollout["sampler_log_prob"]).abs()
    return {"rollout/sampler_gap": gap[rollout["mask"]].mean()}


def of_ratios(ratios: list[list[Ratio]], policy: Policy, clip_width: float = math.inf) -> Found:
    """How far ρ is from 1 before the first update, and (Σρ)²/(N·Σρ²) before the last one (Kish 1965).

    A ratio may be off by what rounding does, and by a tenth of what the clip allows at the most.
    """
    if not ratios:
        return {}
    first, last = (ratios_of(parts) for parts in (ratios[0], ratios[-1]))
    found: Found = {}
    if len(first):
        found["first_ratio"] = (first - 1).abs().mean()
        found["tolerance"] = min(tolerance(policy.dtype), clip_width / 10)
    if len(last):
        found["train/ess"] = last.mean().square() / last.square().mean()
    return found


def tolerance(dtype: torch.dtype) -> float:
    """How far from 1 rounding alone may take a ratio: 1e-3, or a few bits of the precision of log-probabilities."""
    return max(1e-3, 8 * torch.finfo(dtype).eps)
