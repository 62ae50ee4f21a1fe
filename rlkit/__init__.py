"""rlkit: one loop, one batch, one set of losses, from a Q-table to a language model.

Shape letters, used in every docstring:
    P starts (reset states or prompts)   G attempts from each start   B rows (= P·G)   T time
    N flattened minibatch                V vocabulary                 S states         A actions

Batch keys, one TensorDict [B, T] (or [P, G, T] until credit is given) that only gains keys:
    observation       what the policy saw              action         what it chose there
    log_prob          log π_b(a|s) of the behaviour policy, at the temperature that `evaluate` uses
    value             V(s) at the time of acting       next_value     V of the true next observation (0 once terminated)
    reward            of this step                     next_observation  true successor, never the reset's
    terminated bool   the task ended: no bootstrap     done bool      the episode ended (terminated or cut short)
    mask bool         True where the policy acted      score          one number a row: return, or a grader's verdict
    advantage, return the credit                       ref_log_prob   log π_ref(a|s) of a frozen reference
    weight            each element's share of the loss, fixed before a minibatch is split
    discount          γ to the number of steps summed in reward     index     the step's place in the replay
"""

from pathlib import Path

__version__ = "0.3.0"

# In a checkout the plug-in folders lie beside this one; a wheel carries them inside it.
_root = Path(__file__).resolve().parent.parent
if (_root / "pyproject.toml").is_file():
    __path__.append(str(_root))
