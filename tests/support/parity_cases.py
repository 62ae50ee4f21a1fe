"""Which preset of which plug-in is which call of which system: `CASES` is what test_parity.py holds to 1e-6."""

from typing import Any

from torch import Tensor

from support import systems, systems_trl, systems_verl
from support.parity import GROUP, LENGTH, Case
from support.systems import Batch

Options = dict[str, Any]


def trl(
    call: str, member: str, options: Options | None = None, empty: bool = True, preset: str = "trl", **theirs: Any
) -> Case:
    """GRPOTrainer."""
    scale = theirs.get("scale_rewards", "group")
    return Case(
        system="TRL",
        call=f"GRPOConfig({call})",
        member=member,
        preset=preset,
        options=options or {},
        formula=lambda batch: systems_trl.grpo(batch, max_completion_length=LENGTH, **theirs),
        advantages=lambda batch: systems_trl.advantages(batch.scores, scale),
        empty=empty,
        settings={"max_completion_length": LENGTH} | theirs,
    )


def trl_rloo(call: str, options: Options, beta: float) -> Case:
    return Case(
        system="TRL",
        call=f"RLOOConfig({call})",
        member="rloo",
        preset="trl",
        options=options,
        formula=lambda batch: systems_trl.rloo(batch, beta),
        advantages=lambda batch: systems_trl.rloo_advantages(batch, beta),
        settings={"beta": beta},
    )


def verl(call: str, member: str, options: Options | None = None, empty: bool = True, **theirs: Any) -> Case:
    estimator, by_std = theirs.get("adv_estimator", "grpo"), theirs.get("norm_adv_by_std_in_grpo", True)
    return Case(
        system="verl",
        call=call,
        member=member,
        preset="verl",
        options=options or {},
        formula=lambda batch: systems_verl.policy_loss(batch, **theirs),
        advantages=lambda batch: systems_verl.advantages(batch, estimator, by_std),
        empty=empty,
    )


def verl_reinforce(call: str, kl_coef: float) -> Case:
    def advantages(batch: Batch) -> Tensor:
        return systems_verl.reinforce_plus_plus(batch, kl_coef)

    return Case(
        system="verl",
        call=call,
        member="reinforce_pp",
        preset="verl",
        options={"group": 1, "kl_coef": kl_coef} if kl_coef else {"group": 1},
        formula=lambda batch: systems_verl.policy_loss(batch, advantage=advantages(batch)),
        advantages=advantages,
        empty=True,
    )


def openrlhf(
    call: str,
    member: str,
    options: Options | None = None,
    preset: str = "openrlhf",
    reward_kl: float = 0.0,
    **theirs: Any,
) -> Case:
    estimator = call.split()[0]

    def advantages(batch: Batch) -> Tensor:
        return systems.openrlhf_advantages(batch, estimator, reward_kl)

    return Case(
        system="OpenRLHF",
        call=call,
        member=member,
        preset=preset,
        options=options or {},
        formula=lambda batch: systems.openrlhf(batch, advantages(batch), **theirs),
        advantages=advantages,
    )


def group_relative(batch: Batch) -> Tensor:
    """GRPO's advantages; DI-engine leaves them to its caller."""
    return systems_trl.advantages(batch.scores)


def pairs(system: str, call: str, options: Options, formula: Any) -> Case:
    return Case(system, call, "dpo", None, {"group": 2} | options, formula)


TRL = [
    trl("", "grpo"),
    trl('loss_type="grpo"', "grpo", {"over": "sequence"}, empty=False, loss_type="grpo"),
    trl('scale_rewards="batch"', "grpo", {"scale": "batch"}, scale_rewards="batch"),
    trl('scale_rewards="none"', "grpo", {"scale": "none"}, scale_rewards="none"),
    trl("delta=4", "grpo", {"dual_clip": 4.0}, delta=4.0),
    trl("beta=0.3", "grpo", {"kl_coef": 0.3, "kl": "unbiased"}, beta=0.3),
    trl(
        "beta=0.3, use_bias_correction_kl=False",
        "grpo",
        {"kl_coef": 0.3, "kl": "k3"},
        beta=0.3,
        use_bias_correction_kl=False,
    ),
    trl("entropy_coef=0.3", "grpo", {"entropy_coef": 0.3}, entropy_coef=0.3),
    trl(
        f'loss_type="dr_grpo", scale_rewards="none", max_completion_length={LENGTH}',
        "dr_grpo",
        loss_type="dr_grpo",
        scale_rewards="none",
    ),
    trl("epsilon_high=0.28", "dapo", epsilon_high=0.28),
    trl('loss_type="bnpo"', "bnpo", loss_type="bnpo"),
    trl('loss_type="cispo", epsilon_high=5', "cispo", loss_type="cispo", epsilon_high=5.0),
    trl('loss_type="sapo"', "sapo", empty=False, loss_type="sapo"),
    trl('importance_sampling_level="sequence"', "gspo", importance_sampling_level="sequence"),
    trl(
        'loss_type="grpo", importance_sampling_level="sequence", epsilon=3e-4, epsilon_high=4e-4',
        "gspo",
        {"std_eps": 1e-4},
        empty=False,
        preset="paper",
        loss_type="grpo",
        importance_sampling_level="sequence",
        epsilon=3e-4,
        epsilon_high=4e-4,
    ),
    trl_rloo("", {}, 0.05),
    trl_rloo("beta=0", {"kl_coef": 0.0}, 0.0),
    Case("TRL", "GMPOConfig()", "gmpo", "trl", {}, systems_trl.gmpo, group_relative, settings={}),
    pairs("TRL", "DPOConfig()", {}, systems_trl.dpo),
    pairs("TRL", 'DPOConfig(loss_type="hinge")', {"loss": "hinge"}, lambda b: systems_trl.dpo(b, "hinge")),
    pairs("TRL", 'DPOConfig(loss_type="ipo")', {"loss": "ipo", "side": "mean"}, lambda b: systems_trl.dpo(b, "ipo")),
    pairs(
        "TRL",
        'CPOConfig(loss_type="simpo", cpo_alpha=0, beta=2)',
        {"loss": "simpo", "beta": 2.0},
        lambda batch: systems_trl.simpo(batch, beta=2.0),
    ),
]

VERL = [
    verl("adv_estimator=grpo", "grpo"),
    verl(
        "adv_estimator=grpo loss_agg_mode=seq-mean-token-mean",
        "grpo",
        {"over": "sequence"},
        loss_agg_mode="seq-mean-token-mean",
    ),
    verl("adv_estimator=grpo use_kl_loss=True kl_loss_coef=0.3", "grpo", {"kl_coef": 0.3}, kl_loss_coef=0.3),
    verl(
        "adv_estimator=grpo use_kl_loss=True kl_loss_coef=0.3 kl_loss_type=k2",
        "grpo",
        {"kl_coef": 0.3, "kl": "k2", "kl_clip": None},
        kl_loss_coef=0.3,
        kl_loss_type="k2",
    ),
    verl(
        f"norm_adv_by_std_in_grpo=False loss_agg_mode=seq-mean-token-sum-norm loss_scale_factor={LENGTH}",
        "dr_grpo",
        empty=False,
        norm_adv_by_std_in_grpo=False,
        loss_agg_mode="seq-mean-token-sum-norm",
        loss_scale_factor=LENGTH,
    ),
    verl("adv_estimator=grpo clip_ratio_high=0.28", "dapo", clip_ratio_high=0.28),
    verl("adv_estimator=rloo", "rloo", adv_estimator="rloo"),
    verl_reinforce("adv_estimator=reinforce_plus_plus", 0.0),
    verl_reinforce("adv_estimator=reinforce_plus_plus use_kl_in_reward=True kl_coef=0.3", 0.3),
    verl(
        "adv_estimator=reinforce_plus_plus_baseline",
        "reinforce_pp",
        {"baseline": "group", "group": GROUP},
        adv_estimator="reinforce_plus_plus_baseline",
    ),
    verl("loss_mode=gspo", "gspo", loss_mode="gspo"),
    verl("loss_mode=cispo", "cispo", loss_mode="cispo"),
    verl("loss_mode=sapo", "sapo", loss_mode="sapo"),
    verl(
        "loss_mode=geo_mean clip_ratio=0.4",
        "gmpo",
        empty=False,
        loss_mode="geo_mean",
        clip_ratio_low=0.4,
        clip_ratio_high=0.4,
    ),
]

DI_ENGINE = [
    Case(
        "DI-engine",
        "grpo_policy_error(beta=0.1)",
        "grpo",
        "di_engine",
        {},
        lambda batch: systems.di_engine_grpo(batch, group_relative(batch)),
        group_relative,
    ),
    Case("DI-engine", "rloo_policy_error()", "rloo", "di_engine", {}, systems.di_engine_rloo),
]

OPENRLHF = [
    openrlhf("group_norm", "grpo"),
    openrlhf("group_norm dual_clip=3", "grpo", {"dual_clip": 3.0}, dual_clip=3.0),
    openrlhf("group_norm kl.use_loss kl.estimator=k3 kl.init_coef=0.3", "grpo", {"kl_coef": 0.3}, kl_coef=0.3),
    openrlhf("group_norm policy_loss_type=gspo", "gspo", policy_loss_type="gspo"),
    openrlhf("dr_grpo", "dr_grpo"),
    openrlhf("rloo", "rloo"),
    openrlhf("reinforce", "reinforce_pp", {"group": 1}),
    openrlhf("reinforce kl.init_coef=0.3", "reinforce_pp", {"group": 1, "kl_coef": 0.3}, reward_kl=0.3),
    openrlhf("reinforce_baseline", "reinforce_pp", {"baseline": "group", "group": GROUP}),
    pairs("OpenRLHF", "train_dpo", {}, systems.openrlhf_dpo),
    pairs(
        "OpenRLHF",
        "train_dpo label_smoothing=0.1",
        {"label_smoothing": 0.1},
        lambda batch: systems.openrlhf_dpo(batch, label_smoothing=0.1),
    ),
    pairs("OpenRLHF", "train_dpo ipo", {"loss": "ipo"}, lambda batch: systems.openrlhf_dpo(batch, ipo=True)),
]

CASES = TRL + VERL + DI_ENGINE + OPENRLHF
