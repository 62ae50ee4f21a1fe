"""Acts on spaces: networks, tables, normalizers, exploration, optimizers; knows no kind of environment."""

from rlkit.policies.base import PolicyModule, frozen_copy, reference
from rlkit.policies.distributions import pick
from rlkit.policies.exploration import Persistent, epsilon
from rlkit.policies.factory import Network
from rlkit.policies.networks import Actor, ActorCritic, QNetwork
from rlkit.policies.normalize import Normalizer, RewardScale
from rlkit.policies.optimizers import LearningRate, Optimization, adam, clip_gradients, discount, rmsprop
from rlkit.policies.requirements import (
    check_reach,
    check_rollout,
    known_model,
    longest,
    refuse_alone,
    refuse_groups,
    refuse_old_memory,
    refuse_stored,
    sizes,
    step_size,
)
from rlkit.policies.tables import PolicyTable, StepSize, Table, ValueTable, meetings
from rlkit.policies.twins import Temperature, fixed, follow
from rlkit.shards import parameters_of
from rlkit.tape import Tape

__all__ = [
    "Actor",
    "ActorCritic",
    "LearningRate",
    "Network",
    "Normalizer",
    "Optimization",
    "Persistent",
    "PolicyModule",
    "PolicyTable",
    "QNetwork",
    "RewardScale",
    "StepSize",
    "Table",
    "Tape",
    "Temperature",
    "ValueTable",
    "adam",
    "check_reach",
    "check_rollout",
    "clip_gradients",
    "discount",
    "epsilon",
    "fixed",
    "follow",
    "frozen_copy",
    "known_model",
    "longest",
    "meetings",
    "parameters_of",
    "pick",
    "reference",
    "refuse_alone",
    "refuse_groups",
    "refuse_old_memory",
    "refuse_stored",
    "rmsprop",
    "sizes",
    "step_size",
]
