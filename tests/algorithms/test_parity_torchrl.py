"""TorchRL's own GRPOLoss on log-probabilities given to it, and two ways in which that library is not an oracle."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from support import parity, systems, systems_trl
from support.fakes import gradient_of
from support.parity import Case, Play
from support.parity_cases import trl
from support.systems import Batch
from tensordict import TensorDict
from torch import Tensor, nn
from torch.testing import assert_close

llm = pytest.importorskip("torchrl.objectives.llm")

TOKEN = trl("", "grpo", empty=False)
SEQUENCE = trl('loss_type="grpo"', "grpo", {"over": "sequence"}, empty=False, loss_type="grpo")


class Given(nn.Module):
    """An actor whose log-probabilities are known already."""

    def __init__(self, batch: Batch) -> None:
        super().__init__()
        self.dist = SimpleNamespace(log_prob=lambda action: batch.new, mask=batch.mask.bool())

    def get_dist(self, tensordict: TensorDict, logits_key: str) -> Any:
        return self.dist


def torchrl_loss(kind: str, batch: Batch, **options: Any) -> Any:
    """The loss module's output; TorchRL wants one advantage for each token, with a last dimension of 1."""
    loss = getattr(llm, kind)(entropy_bonus=False, clip_epsilon=0.2, **options)
    loss.__dict__["actor_network"] = Given(batch)
    advantage = systems_trl.advantages(batch.scores).unsqueeze(1).expand_as(batch.mask)
    data = {
        "advantage": advantage.unsqueeze(-1),
        ("tokens", "full"): torch.zeros_like(batch.mask),
        ("log_probs", "full"): batch.old,
        ("next", "ref_log_probs", "full"): batch.ref,
    }
    return loss.double()(TensorDict(data, batch_size=[len(advantage)]))


@pytest.mark.parametrize(("case", "aggregation"), [(TOKEN, "token_mean"), (SEQUENCE, "prompt_mean")])
def test_grpo_is_torchrls_grpo_loss(case: Case, aggregation: str) -> None:
    for p in parity.plays(case):
        ours = p.algo.loss(p.learned)[0]
        theirs = torchrl_loss("GRPOLoss", p.batch(), aggregation=aggregation).loss_objective.sum()
        assert parity.gap(ours.detach(), theirs.detach()) < 1e-6
        assert parity.gap(gradient_of(p.algo, ours), gradient_of(p.algo, theirs)) < 1e-6


def far() -> tuple[Play, Batch, Tensor]:
    p = parity.play(TOKEN, seed=0, move=1.2)
    batch = p.batch()
    return p, batch, systems_trl.advantages(batch.scores)


def test_torchrls_cispo_drops_the_very_tokens_that_cispo_keeps() -> None:
    p, batch, advantage = far()
    theirs, formula = (
        torchrl_loss("CISPOLoss", batch).loss_objective.sum(),
        systems.torchrl_cispo(batch, advantage, 0.2, 0.2),
    )
    assert_close(theirs, formula)
    assert_close(
        gradient_of(p.algo, theirs), gradient_of(p.algo, systems.torchrl_cispo(p.batch(), advantage, 0.2, 0.2))
    )
    leaf = batch.new.detach().requires_grad_()
    systems.torchrl_cispo(Batch(leaf, batch.old, batch.ref, batch.mask, batch.scores), advantage, 0.2, 0.2).backward()
    clipped = ((leaf - batch.old).exp() - 1).abs().gt(0.2) & batch.mask.bool()
    assert clipped.any() and not leaf.grad[clipped].any()


def test_torchrls_penalty_shrinks_with_the_padding() -> None:
    _, batch, _ = far()
    theirs = torchrl_loss("GRPOLoss", batch, kl_to_ref_coeff=1.0).loss_kl_to_ref
    assert_close(theirs, systems.torchrl_kl_to_ref(batch))
    assert_close(theirs, (systems.k3(batch) * batch.mask).sum() / batch.mask.sum() * batch.mask.mean())
