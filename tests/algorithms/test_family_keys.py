"""A key of the GRPO family exists only where it does something: each is changed, and something must follow."""

from typing import Any, get_type_hints

import pytest
import torch
from support.fakes import RaggedText, algorithm, gradient, off_policy, on_text
from tensordict import TensorDict

from rlkit.api import UserError
from rlkit.meter import detached
from rlkit.settings import config, plugins, schema
from rlkit.settings.sections import IDLE

MEMBERS = ["grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"]
OF_THE_LOOP = {"schedule", "lr_end", "warmup", "max_grad_norm"}  # which reads them: test_learning.py, test_policies.py
OF_CONTROL = {"starts"}  # refused on text: test_unrelated.py
PENALTY = {"kl_coef": 0.3, "kl": "k2", "kl_in": "loss"}
# For each key: values that none of the members has by default, and the settings under which they must show.
CHANGES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "lr": ((0.5,), {}),
    "beta2": ((0.5,), {}),
    "adam_eps": ((0.5,), {}),
    "weight_decay": ((0.1,), {}),
    "group": ((2, 3), {}),
    "epochs": ((2,), {}),
    "minibatches": ((2,), {}),
    "ratio": (("token", "mean", "sum"), {}),
    "over": (("sequence", "token", "constant"), {}),
    "length": ((5,), {"over": "constant"}),
    "kl_coef": ((0.1,), PENALTY),
    "kl": (("k1", "k2", "k3"), PENALTY | {"kl_in": "reward", "scale": "none", "beta": False}),
    "kl_in": (("loss", "reward"), PENALTY | {"scale": "none", "beta": False}),
    "kl_clip": ((0.01,), PENALTY),
    "entropy_coef": ((0.1,), {}),
    "scale": (("std", "batch", "none"), {"beta": False}),
    "std": (("unbiased", "biased"), {"beta": False, "scale": "std"}),
    "std_eps": ((0.5,), {"beta": False, "scale": "std"}),
    "clip_low": ((0.01, 0.05), {}),
    "clip_high": ((0.01, 0.05), {}),
    "dual_clip": ((1.01,), {}),
    "dynamic_sampling": ((True, False), {}),
    "tries": ((1, 2), {}),
    "overlong_filter": ((True, False), {}),
    "overlong_buffer": ((2, 3), {}),
    "overlong_penalty": ((0.5,), {"overlong_buffer": 3}),
    "baseline": (("none", "group"), {"group": 4}),
    "gamma": ((0.5,), {}),
    "tau_positive": ((3.0,), {}),
    "tau_negative": ((3.0,), {}),
    "beta": ((True, False), {}),
    "sampler_cap": ((1.5,), {}),
}


class Flat(RaggedText):
    """The attempts of the first start score the same, and rewards come at every step; some attempts are cut short."""

    longest = 6

    def rollout(self, policy: Any, steps: int | None = None, repeats: int = 1) -> TensorDict:
        batch = super().rollout(policy, steps, repeats)
        batch["score"][0] = 1.0
        batch["reward"] = batch["reward"] + 0.1 * batch["observation"] * batch["mask"]
        batch["truncated"] = batch["mask"].sum(-1) > 4
        batch["sampler_log_prob"] = batch["log_prob"] - 0.6 * (batch["observation"] % 2)  # weights of 1 and 1.8
        return batch


def keys(name: str) -> list[str]:
    return list(schema.settable(plugins.load("algorithms", name).Config))


def effect(name: str, settings: dict[str, Any]) -> list[Any]:
    """All that settings can change: what is learned from one rollout, with which weights and gradients, and how."""
    env = Flat(rows=16)
    algo = on_text(name, env, **settings)
    algo.policy.move(0.3, seed=2)  # away from the reference
    with torch.no_grad():
        algo.buffer.extend(algo.credit(algo.rollout(env)))
    algo.policy.move(1.0)  # and from the policy that acted
    seen: list[Any] = [[(g["lr"], g["betas"], g["eps"], g["weight_decay"]) for g in algo.optimizer.param_groups]]
    for batch in algo.buffer:
        seen += [batch[key].tolist() for key in ("weight", "advantage")]
        seen += [algo.loss(batch)[0].item(), gradient(algo, batch).tolist()]
    return seen


@pytest.mark.parametrize(("name", "key"), [(name, key) for name in MEMBERS for key in keys(name)])
def test_every_key_of_every_member_does_something(name: str, key: str) -> None:
    if key in OF_THE_LOOP | OF_CONTROL:
        return
    values, settings = CHANGES[key]
    settings = {k: x for k, x in settings.items() if k in keys(name)}
    default = effect(name, settings) if len(values) == 1 else None
    effects = [effect(name, settings | {key: value}) for value in values]
    effects += [default] if default is not None else []
    assert all(a != b for i, a in enumerate(effects) for b in effects[:i])


def test_all_words_that_a_key_may_be_are_tried() -> None:
    for name in MEMBERS:
        for key, hint in get_type_hints(plugins.load("algorithms", name).Config, include_extras=True).items():
            if key not in OF_THE_LOOP | OF_CONTROL and schema.allowed(hint).startswith("one of"):
                tried = {str(value) for value in CHANGES[key][0]} | ({"unbiased"} if key == "kl" else set())
                assert tried == set(schema.allowed(hint).removeprefix("one of: ").split(", ")), key


@pytest.mark.parametrize(
    ("name", "key"),
    [(name, key) for name, gone in IDLE.items() for key in gone] + [("sapo", "beta"), ("grpo", "gamma")],
)
def test_a_key_that_would_do_nothing_is_an_unknown_key(name: str, key: str) -> None:
    with pytest.raises(UserError, match=rf"no key 'algo\.{key}': .*kl_coef"):
        schema.build(plugins.load("algorithms", name).Config, {key: 0.5}, "algo")


@pytest.mark.parametrize("name", MEMBERS)
def test_every_member_reports_ratio_and_clip_for_each_step(name: str) -> None:
    sizes = {"dr_grpo": {"length": 8}, "rloo": {"kl": "k2"}}.get(name, {})
    algo, batch = off_policy(name, {"group": 4, "kl_coef": 0.1, "kl_in": "loss", "kl": "k3"} | sizes)
    metrics = detached(algo.loss(batch)[1])
    assert {"ratio", "clip_fraction", "kl", "entropy", "ref_kl"} <= metrics.keys()
    for key in ("ratio", "clip_fraction", "kl", "entropy", "ref_kl"):
        assert metrics[key].shape == batch["mask"].shape, key
    assert metrics["clip_fraction"].dtype == torch.bool
    if algo.config.ratio == "token":
        gap = algo.policy.evaluate(batch)["log_prob"] - batch["log_prob"]
        assert torch.equal(metrics["ratio"], gap.exp())
    gap = algo.policy.evaluate(batch)["log_prob"] - batch["log_prob"]  # of steps that the older policy drew
    torch.testing.assert_close(metrics["kl"], gap.exp() - 1 - gap)


WRITTEN = """# rlkit {version}; to repeat: python -m rlkit.run algo=sapo env=cartpole
run: {{seed: 0, iterations: 2}}
algo:
  name: {name}
  lr: 0.003
  max_grad_norm: 0.5
  group: 4
  clip_low: 0.2
  clip_high: 0.2
  dual_clip: null
  ratio: token
  scale: std
  std: unbiased
  std_eps: 0.0001
  over: token
  kl_coef: 0.0
env: {{name: cartpole, rows: 4}}
"""  # of what every member had in 0.3.0


@pytest.mark.parametrize("name", MEMBERS)
def test_a_run_folder_of_0_3_is_read_without_the_keys_that_did_nothing(tmp_path: Any, name: str) -> None:
    (tmp_path / "config.yaml").write_text(WRITTEN.format(version="0.3.0", name=name))
    given = config.from_folder(tmp_path).algo
    built = schema.build(plugins.load("algorithms", name).Config, given, "algo")
    assert built.lr == 0.003 and built.group == 4 and built.ratio == "token"
    (tmp_path / "config.yaml").write_text(WRITTEN.format(version="0.4.0", name=name))
    if name in IDLE:
        with pytest.raises(UserError, match=rf"no key 'algo\.({'|'.join(IDLE[name])})'"):
            schema.build(plugins.load("algorithms", name).Config, config.from_folder(tmp_path).algo, "algo")


def test_a_group_needs_two_attempts_except_where_nothing_is_compared() -> None:
    for name in MEMBERS:
        module = plugins.load("algorithms", name)
        if name == "reinforce_pp":
            assert schema.build(module.Config, {"group": 1}, "algo").group == 1
        else:
            with pytest.raises(UserError, match=r"algo\.group=1 is not allowed: give a whole number of at least 2"):
                schema.build(module.Config, {"group": 1}, "algo")


def test_stored_attempts_are_refused() -> None:
    env = RaggedText()
    env.plays = False
    with pytest.raises(UserError, match="the GRPO family learns from its own attempts"):
        algorithm("cispo", env)
