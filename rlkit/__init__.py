"""rlkit: one loop, one batch, one set of losses, from a Q-table to a language model.

    run = rlkit.train("ppo", "cartpole", seed=1, env_steps=50_000, **{"algo.lr": 1e-3})
    action = run.policy.predict(observation)

The Python interface: train, load, run_comparison, list_algorithms, list_environments, UserError. docs/python.md

Shape letters, used in every docstring:
    P starts (reset states or prompts)   G attempts from each start   B rows (= P·G)   T time
    N flattened minibatch                V vocabulary                 S states         A actions

Batch keys, one TensorDict [B, T] (or [P, G, T] until credit is given) that only gains keys:
    observation       what the policy saw              action         what it chose there
    log_prob          log π_b(a|s) of the behavior policy, at the temperature that `evaluate` uses
    value             V(s) at the time of acting       next_value     V of the true next observation (0 once terminated)
    reward            of this step                     next_observation  true successor, never the reset's
    terminated bool   the task ended: no bootstrap     done bool      the episode ended (terminated or cut short)
    mask bool         True where the policy acted      score          one number a row: return, or a grader's verdict
    advantage, return the credit                       ref_log_prob   log π_ref(a|s) of a frozen reference
    weight            each element's share of the loss, computed before a minibatch is split
    discount          γ to the number of steps summed in reward     index     the step's place in the replay
    episode_return, episode_length   of the episode that ended here; elsewhere the length is 0 (control)
    problem           index of the row's problem, [B] (text)
    reward/NAME       reward of one function for the row, without its weight, [B]; 0 where rated/NAME is False,
                      which means that the function had no opinion (text)
    truncated bool    True where the row was cut at its limit, [B] (text)
    sampler_log_prob  log μ(a|s) of the engine that sampled, where its numbers are not π_b's (text)
    version           which weights wrote the row, [B] (text, with policy.staleness=1)
    memory            of the policy before the first step of the row, [B, 1, size] (policy.memory)
    begins bool       True where the memory began anew within the row (policy.memory)
    kl_coef           weight of the KL penalty that this rollout paid (ppo)
    preference        1 for the better of two attempts that a judge compared, 0 for the worse, 0.5 without a verdict
    rollout/NAME      counts per row, such as turns, tool_calls and KIND/drawn of a mixture, [B] (text)
"""

import importlib
import random
from pathlib import Path
from typing import TYPE_CHECKING

from rlkit import _moved as _moved  # the module names of 0.3.0
from rlkit import outside as outside  # from now on it records when modules are imported

__version__ = "0.5.0"

# In a checkout the plug-in folders are beside this folder; a wheel contains them inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file():
    __path__.append(str(_root))

if TYPE_CHECKING:
    from rlkit.errors import UserError as UserError
    from rlkit.python.functions import Comparison as Comparison
    from rlkit.python.functions import load as load
    from rlkit.python.functions import run_comparison as run_comparison
    from rlkit.python.functions import train as train
    from rlkit.python.listing import list_algorithms as list_algorithms
    from rlkit.python.listing import list_environments as list_environments
    from rlkit.python.run import Run as Run

_WHERE = {  # name in the Python API → module that is imported at its first use
    "Comparison": "python.functions",
    "Run": "python.run",
    "UserError": "errors",
    "list_algorithms": "python.listing",
    "list_environments": "python.listing",
    "load": "python.functions",
    "run_comparison": "python.functions",
    "train": "python.functions",
}
__all__ = [*_WHERE, "__version__"]


def __getattr__(name: str) -> object:
    if name not in _WHERE:
        raise AttributeError(f"module 'rlkit' has no attribute '{name}'")
    before = random.getstate()  # some packages draw from it while they are imported
    found: object = getattr(importlib.import_module(f"rlkit.{_WHERE[name]}"), name)
    random.setstate(before)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
