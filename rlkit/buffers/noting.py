"""What a policy adds to the steps that it played."""

from collections.abc import Mapping

from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from rlkit.api import Plays
from rlkit.errors import UserError
from rlkit.scores import RATED, REWARD


def recorded(policy: Plays, rollout: TensorDict) -> Mapping[str, Tensor] | TensorDictBase:
    """What `policy.record` returns; of the keys of a rollout it may replace the log_prob that an engine computed.

    Raises: UserError where it is not a dictionary, or would write over what was played: rewards, ends, scores.
    """
    played = dict(rollout.items())
    noted: object = policy.record(rollout)
    called = f"{type(policy).__name__}.record"
    if not isinstance(noted, Mapping | TensorDictBase):
        raise UserError(f"{called} returned a {type(noted).__name__}: let it return a dict of tensors")
    # What is returned as it was played, as by one that adds to the rollout and returns all of it, changes nothing.
    if taken := [key for key, x in noted.items() if key in played and key != "log_prob" and x is not played[key]]:
        raise UserError(
            f"{called} returned '{taken[0]}', which the rollout has already: give it another name, or change it in "
            "credit"
        )
    if kept := [key for key in noted.keys() if key not in played and str(key).startswith((REWARD, RATED))]:
        raise UserError(f"{called} returned '{kept[0]}', a name of reward functions: give it another name")
    return noted
