"""The plug-ins under preset=trl beside TRL's own code: its trainers' `_compute_loss` on log-probabilities given to it.

Skipped without TRL 1.16 or newer (`pip install trl`). The advantages are given, too: TRL computes them in the middle of
its generation.
"""

from collections import defaultdict
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import parity
from support.fakes import gradient_of
from support.parity import Case
from support.parity_cases import TRL
from support.systems import Batch
from torch import Tensor
from torch.testing import assert_close

pytest.importorskip("trl", minversion="1.16")

CASES = [case for case in TRL if case.settings is not None]
KINDS = {"GRPO": "trl.trainer.grpo_trainer", "RLOO": "trl.trainer.rloo_trainer", "GMPO": "trl.experimental.gmpo"}


def trainer(kind: str, batch: Batch, settings: dict[str, Any]) -> Any:
    """The few attributes that `_compute_loss` reads; the configuration fields are those of the class's own defaults."""
    module = pytest.importorskip(KINDS[kind])
    config = getattr(module, f"{kind}Config")(
        output_dir="unused", report_to=[], bf16=False, use_cpu=True, steps_per_generation=1, **settings
    )
    high = config.epsilon if config.epsilon_high is None else config.epsilon_high
    accelerator = SimpleNamespace(
        num_processes=1, sync_gradients=True, gather=lambda x: x, reduce=lambda x, reduction: x
    )
    return SimpleNamespace(
        **{name: getattr(config, name, None) for name in ("beta", "loss_type", "importance_sampling_level")},
        **{name: getattr(config, name, None) for name in ("max_completion_length", "entropy_coef")},
        args=config,
        epsilon_low=config.epsilon,
        epsilon_high=high,
        accelerator=accelerator,
        model=SimpleNamespace(training=True),
        current_gradient_accumulation_steps=1,
        top_entropy_quantile=1.0,
        off_policy_mask_threshold=None,
        aux_loss_enabled=False,
        use_vllm=False,
        use_adaptive_entropy=False,
        _entropy_bonus_enabled=bool(getattr(config, "entropy_coef", 0)),
        _metrics={"train": defaultdict(list)},
        _get_per_token_logps_and_entropies=lambda *args, **kwargs: (batch.new, batch.entropy, None),
    )


def trl_loss(case: Case, batch: Batch) -> Tensor:
    kind = case.call[:4]
    assert case.settings is not None and case.advantages is not None
    ids, mask = torch.zeros_like(batch.mask, dtype=torch.long), batch.mask.long()
    inputs = {
        "prompt_ids": ids,
        "prompt_mask": mask,
        "completion_ids": ids,
        "completion_mask": mask,
        "advantages": case.advantages(batch),
        "old_per_token_logps": batch.old,
        "ref_per_token_logps": batch.ref,
        "old_logps": (batch.old * batch.mask).sum(1),
        "num_items_in_batch": mask.sum(),
    }
    loss = getattr(pytest.importorskip(KINDS[kind]), f"{kind}Trainer")._compute_loss
    return loss(trainer(kind, batch, case.settings), None, inputs)


@pytest.mark.filterwarnings("ignore:.*gradient_checkpointing:FutureWarning")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_preset_and_the_formula_are_what_trl_computes(case: Case) -> None:
    for p in parity.plays(case):
        ours, formula, theirs = p.algo.loss(p.learned)[0], case.formula(p.batch()), trl_loss(case, p.batch())
        gradient = gradient_of(p.algo, theirs)
        assert_close(formula, theirs)
        assert_close(gradient_of(p.algo, formula), gradient)
        assert parity.gap(ours.detach(), theirs.detach()) < 1e-6
        assert parity.gap(gradient_of(p.algo, ours), gradient) < 1e-6
