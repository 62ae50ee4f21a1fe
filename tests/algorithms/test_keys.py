"""A key does something, or is refused: each is changed from its default, alone and with what its type says it needs.

The GRPO family, whose keys wait for more than one pass over a rollout, is in test_family_keys.py.
"""

import json
from functools import cache
from typing import Any, get_args, get_origin, get_type_hints
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, Tuple
from support.fakes import RaggedText, algorithm, cartpole, environment, iterate, on_text, parameters, set_progress

from rlkit.api import UserError
from rlkit.fields import AGAIN, CONTROL, EXPLORES, INEXACT
from rlkit.policies import Network
from rlkit.settings import config, idle, plugins, schema
from rlkit.settings.assemble import assemble

FAMILY = {"grpo", "dr_grpo", "dapo", "rloo", "reinforce_pp", "gspo", "cispo", "gmpo", "sapo", "bnpo"}
TEXT = {"sft", "dpo", "reward_model"}
CONTROLS = {"a2c", "ppo", "reinforce"}
BOXES = {"sac", "td3"}
STATES = {"dqn", "q_learning", "sarsa", "expected_sarsa", "td", "monte_carlo", "value_iteration", "policy_iteration"}
OF_THE_LOOP = {"schedule", "lr_end", "warmup", "max_grad_norm"}  # which reads them: test_learning.py, test_policies.py
OF_THE_DISK = {"storage"}  # where the replay lies, which changes no number: test_replay_in_files.py
# What a few small iterations need to show anything, and values of keys that a half or a double would not show.
SMALL: dict[str, dict[str, Any]] = {"dqn": {"warmup_steps": 8, "batch_size": 8, "sync_every": 3, "lr": 0.01}}
SMALL |= {"ppo": {"horizon": 16, "lr": 0.05}, "policy_iteration": {"gamma": 0.9}, "dpo": {"group": 4}}
SMALL |= {name: {"warmup_steps": 8, "batch_size": 8, "lr": 0.01} for name in BOXES}
SMALL |= {name: {"initial": 0.5} for name in ("q_learning", "sarsa", "expected_sarsa")}
OTHER: dict[str, Any] = {
    "clip": 1e-3, "value_clip": 1e-3, "capacity": 20, "adam_eps": 0.1, "hold": 5, "n_step": 3, "tolerance": 2.0,
    "n": 3, "epsilon_end": 0.9, "initial": 1.0, "lam": 0.5, "gae_lambda": 0.2, "warmup_steps": 50, "kl_coef": 0.5,
    "kl_target": 1e-4, "tau": 0.3, "kl_horizon": 20, "minibatches": 2, "steps": 3, "horizon": 9, "weight_decay": 0.2,
    "target_margin": 2.0,
}  # fmt: skip
JUDGE = ["algo=reward_model", "env=preferences"]
BEST = ["algo=q_learning", "env=gridworld", "measure=best"]
ON = {
    "clip": 0.1,
    "value_coef": 0.5,
    "kl_coef": 0.5,
    "kl_target": 1e-4,
    "target_noise": 0.9,
    "epsilon_decay": 0.9,
    "alpha": 0.6,
}  # what others need above 0


@cache
def effect(name: str, **changes: Any) -> list[float]:
    """What a few iterations lead to."""
    settings = SMALL.get(name, {}) | changes
    env: Any
    if name in TEXT:
        env = RaggedText(rows=8)
        algo = on_text(name, env, **settings)
    else:
        env = problem(name)
        algo = algorithm(name, env, Network(hidden=(8,)), **settings)
    for iteration in range(6):
        set_progress(algo, iteration, 6)
        iterate(algo, env)
    return parameters(algo.policy).tolist()


def problem(name: str) -> Any:
    if name in BOXES:
        return environment("pendulum", rows=4, step_limit=10)
    return cartpole(2, 20) if name in CONTROLS else environment("gridworld", size=4, goal=(3, 3), trap=(2, 1), rows=4)


def others(hint: Any, key: str, default: Any) -> list[Any]:
    """Values of a key that are not its default."""
    (kind, *_) = [m for m in schema.members(hint) if m is not type(None)]
    if get_origin(kind) is not None:
        return [x for x in get_args(kind) if x != default]
    if kind is bool:
        return [not default]
    return [OTHER[key] if key in OTHER else default + 1 if kind is int else (default or 1.0) / 2]


def enabling(cls: type, key: str) -> dict[str, Any]:
    """What else a key needs to do something."""
    found: dict[str, Any] = {}
    hints = get_type_hints(cls, include_extras=True)
    for need in schema.needs(hints[key]):
        if need.key in schema.settable(cls) and not need.unlike:
            found |= enabling(cls, need.key) | {need.key: need.values[0] if need.values else ON[need.key]}
    return found


def cases() -> list[tuple[str, str]]:
    names = [name for name in plugins.names("algorithms") if name not in FAMILY]
    return [
        (name, key)
        for name in names
        for key in schema.settable(plugins.load("algorithms", name).Config)
        if key not in OF_THE_LOOP | OF_THE_DISK
    ]


def test_every_algorithm_is_tried() -> None:
    assert set(plugins.names("algorithms")) == FAMILY | TEXT | CONTROLS | BOXES | STATES


@pytest.mark.parametrize(("name", "key"), cases())
def test_a_key_does_something_or_is_refused(name: str, key: str) -> None:
    cls = plugins.load("algorithms", name).Config
    usual, needed = schema.default(schema.settable(cls)[key]), enabling(cls, key)
    for settings in [{}, needed] if needed else [{}]:
        before = effect(name, **settings)
        for value in others(get_type_hints(cls, include_extras=True)[key], key, SMALL.get(name, {}).get(key, usual)):
            try:
                built = cls(**{**SMALL.get(name, {}), **settings, key: value})
                idle.refuse(built, [key], "algo", facts(built, control=name not in TEXT))
                after = effect(name, **settings | {key: value})
            except UserError as error:
                assert f"algo.{key}={schema.show(value)}" in str(error), error
                assert settings != needed or not needed, error
            else:
                assert after != before, (settings, value)


@pytest.mark.parametrize("name", sorted(FAMILY))
def test_a_key_of_the_family_that_waits_for_another_is_refused(name: str) -> None:
    cls = plugins.load("algorithms", name).Config
    for key, hint in get_type_hints(cls, include_extras=True).items():
        usual = {k: schema.default(f) for k, f in schema.settable(cls).items()}
        for need in schema.needs(hint):
            if not need.met(usual | {AGAIN: False, INEXACT: False}):
                value = others(hint, key, usual[key] if isinstance(usual[key], str) else 3)[0]
                with pytest.raises(
                    UserError, match=rf"^algo\.{key}=.* does nothing( with algo\.\w+=.*)?: it needs (algo|policy)\."
                ):
                    idle.refuse(schema.build(cls, {key: value}, "algo"), [key], "algo", {AGAIN: False, INEXACT: False})


def facts(built: Any, control: bool) -> dict[str, bool]:
    return {
        CONTROL: control,
        EXPLORES: True,
        INEXACT: False,
        AGAIN: max(getattr(built, key, 1) for key in ("epochs", "minibatches")) > 1,
    }


def test_bytes_are_not_called_an_image() -> None:
    env = Mock(seed=0, device="cpu", observation_space=Box(0, 255, (3,), np.uint8), action_space=Discrete(2))
    assert Network(normalize=True).q_network(env).idle("normalize") == "byte observations"


class Masked(gymnasium.Env[Any, Any]):
    """Four numbers, and in info which actions are allowed."""

    observation_space, action_space = Box(-1, 1, (4,)), Discrete(2)

    def reset(self, **given: Any) -> tuple[Any, dict[str, Any]]:
        return np.zeros(4, np.float32), {"action_mask": np.array([1, 0], np.int8)}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(4, np.float32), 0.0, False, False, self.reset()[1]


def test_a_mask_is_named_where_it_alone_forbids_to_normalize() -> None:
    words = ("algo=ppo", f"env.entry={__name__}:Masked", "env=gym", "env.step_limit=9", "policy.normalize=true")
    said = "policy.normalize=true does nothing with an action_mask beside the observations (env.action_masks=false "
    assert refused(*words).startswith(said)
    assert assemble(config.read([*words, "env.action_masks=false"])).algo.policy.idle("normalize") == ""
    for part, why in ((Box(0, 9, (2,)), "an action_mask"), (Tuple((Box(0, 9, (2,)),)), "composite")):
        space = Dict({"observation": part, "action_mask": MultiBinary(2)})
        env = Mock(seed=0, device="cpu", observation_space=space, action_space=Discrete(2))
        assert Network(normalize=True).q_network(env).idle("normalize").startswith(why)


def refused(*words: str) -> str:
    with pytest.raises(UserError) as caught:
        assemble(config.read(words))
    return str(caught.value)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algo=dqn", "env=acrobot", "algo.sync_every=9"], "does nothing with algo.tau=0.01: it needs algo.tau=none"),
        (["algo=ppo", "env=gsm8k", "algo.horizon=7"], "does nothing: it needs a control environment"),
        (["algo=bnpo", "env=cartpole", "algo.std_eps=0.5"], "with algo.beta=true: it needs algo.beta=false"),
        (["algo=dpo", "env=cartpole", "algo.loss=ipo", "algo.label_smoothing=0.1"], "needs algo.loss=sigmoid or simpo"),
        (["algo=sarsa", "env=cliffwalking", "algo.epsilon_decay=0.9"], "algo.epsilon other than algo.epsilon_end"),
        (
            ["algo=dqn", "env=cartpole", "algo.hold=9", "algo.epsilon_end=0", "algo.epsilon_decay=0"],
            "algo.hold=9 does nothing: it needs algo.epsilon_end, or algo.epsilon with algo.epsilon_decay; give that",
        ),
        (
            ["algo=q_learning", "env=gridworld", "algo.epsilon=0.3", "algo.epsilon_decay=0"],
            "algo.epsilon=0.3 does nothing with algo.epsilon_decay=0: it needs algo.epsilon_decay; give that, or leave",
        ),
        (["algo=dqn", "env=cartpole", "algo.epsilon=0", "algo.epsilon_decay=0"], "algo.epsilon=0 does nothing with"),
        (
            ["algo=sac", "env=pendulum", "algo.prioritized=true", "algo.alpha=0", "algo.beta=1"],
            "algo.beta=1 does nothing with algo.alpha=0: it needs algo.alpha; give that, or leave algo.beta out",
        ),
        (["algo=ppo", "env=cartpole", "policy.hidden=", "policy.share=all"], "does nothing with no hidden layers"),
        (
            ["algo=ppo", "env=cartpole", "algo.clip=inf", "algo.clip_schedule=linear"],
            "algo.clip_schedule=linear does nothing with algo.clip=inf: it needs algo.clip other than inf; give that",
        ),
        (["algo=ppo", "env=cartpole", "algo.value_coef=0", "algo.value_clip=1"], "it needs algo.value_coef; give that"),
        (["algo=sft", "env=gsm8k", "env.rare_demonstrations=0", "env.rare_repeat=5"], "needs env.rare_demonstrations;"),
        (["algo=td", "env=gridworld", "policy.hidden=8"], "policy.hidden=8 does nothing with a table in place of"),
        (["algo=q_learning", "env=taxi", "policy.log_std=1"], "policy.log_std=1 does nothing with a table in place of"),
        (["algo=dqn", "env=cartpole", "policy.log_std=1"], "policy.log_std=1 does nothing with discrete actions"),
        (["algo=ppo", "env=cartpole", "policy.log_std=1"], "policy.log_std=1 does nothing with discrete actions"),
        (["algo=td3", "env=pendulum", "policy.log_std=1"], "policy.log_std=1 does nothing with a deterministic actor"),
        (["algo=ppo", "env=taxi", "policy.normalize=true"], "does nothing with discrete observations: leave it out"),
        (["algo=dqn", "env=taxi", "policy.normalize=true"], "does nothing with discrete observations: leave it out"),
        (["algo=ppo", "env=cartpole", "policy.activation=relu", "policy.hidden="], "it needs policy.hidden"),
        (["algo=rloo", "env=cartpole", "algo.clip_low=0.1"], "it needs algo.epochs or algo.minibatches above 1; give"),
        (["algo=sapo", "env=gsm8k", "algo.minibatches=1", "algo.tau_positive=2"], "algo.epochs or algo.minibatches"),
        (["algo=ppo", "env=cartpole", "algo.epochs=1", "algo.clip=0.1"], "algo.epochs or algo.minibatches above 1"),
        (["algo=ppo", "env=frozenlake", "env.luck=own"], "an algorithm that plays several attempts from each start"),
        (["algo=reinforce_pp", "env=frozenlake", "env.luck=own"], "an algorithm that plays several attempts from"),
        (["algo=grpo", "env=gsm8k", "env.rare_repeat=3"], "an algorithm that learns from demonstrations, such as sft"),
        (["algo=sft", "env=gsm8k", "env.direct_from=0.5"], "does nothing with env.direct=0: it needs env.direct;"),
        (["algo=sft", "env=gsm8k", "env.train=100"], "attempts problems, as all do but sft, or env.shots; give that"),
        (["algo=sft", "env=preferences", "env.bare=0.1"], "needs an algorithm that learns from both sides of a pair"),
        (["algo=sft", "env=gsm8k", "env.reward=strict"], "needs an algorithm that attempts problems"),
        (["algo=sft", "env=gsm8k", "env.reward_weights=2"], "it needs an algorithm that attempts problems"),
        (["algo=sft", "env=arithmetic", "env.reward_weights=2"], "it needs an algorithm that attempts problems"),
        (["algo=sft", "env=reasoning", "env.task=chain_sum", "env.train=9", "env.reward=strict"], "as all do but sft"),
        ([*JUDGE, "policy.lora=4", "policy.trainable=attention"], "with adapters, which"),
        ([*JUDGE, "policy.base_dtype=bfloat16"], "does nothing with no adapters: weigh"),
        ([*JUDGE, "policy.temperature=0.5"], "does nothing with a reward model of stored pairs, for which nothing is"),
        ([*JUDGE, "policy.rows=8"], "does nothing with a reward model of stored pairs, for which nothing is written"),
        ([*JUDGE, "env.max_tokens=8"], "does nothing: it needs an algorithm that trains what answers"),
        (["algo=reward_model", "env=gsm8k", "env.metrics=strict"], "an algorithm that trains what answers"),
        (["algo=value_iteration", "env=gridworld", "env.rows=3"], "it needs an algorithm that plays"),
        (["algo=policy_iteration", "env=frozenlake", "env.rows=3"], "it needs an algorithm that plays"),
        (["algo=value_iteration", "env=taxi", "env.rows=3"], "it needs an algorithm that plays"),
        (["algo=policy_iteration", "env=cliffwalking", "env.rows=3"], "it needs an algorithm that plays"),
        (["algo=grpo", "env=gsm8k", "env.validation=0", "evaluate_every=0", "validation_episodes=9"], "no validation"),
        ([*BEST, "evaluations=1"], "measure=best chooses among evaluations, and there is one"),
        ([*BEST, "evaluations=3", "iterations=1"], "measure=best chooses among evaluations, and there is one"),
        ([*BEST, "evaluate_every=9", "iterations=9"], "measure=best chooses among evaluations, and there is one"),
    ],
)  # fmt: skip
def test_what_was_asked_for_in_vain_is_told_what_it_needs(words: list[str], message: str) -> None:
    if "env=reasoning" in words:
        pytest.importorskip("reasoning_gym", reason="pip install -e '.[reasoning]'", exc_type=ImportError)
    assert message in refused(*words)


@pytest.mark.parametrize(
    "words",
    [
        ["algo=dapo", "env=gsm8k", "algo.dynamic_sampling=false"],  # the pair's YAML has tries: 4
        ["algo=grpo", "env=cartpole", "algo.preset=trl"],  # kl: unbiased, for whoever sets kl_coef
        ["algo=dqn", "env=cartpole", "algo.alpha=0.6"],  # its default
        [*BEST, "evaluate_every=9"],  # of 100,000 steps
        [*BEST, "evaluate_every=9", "iterations=10"],
        ["algo=ppo", "env=pendulum", "policy.log_std=-1"],
        ["algo=ppo", "env=gsm8k", "algo.horizon=none", "env.rows=2"],  # which is what happens
        ["algo=a2c", "env=cartpole", "algo.gae_lambda=0.9", "algo.advantage=gae"],
        ["algo=dr_grpo", "env=cartpole", "algo.clip_low=0.1", "algo.minibatches=2"],
        ["algo=grpo", "env=frozenlake", "env.luck=own"],
        ["algo=sft", "env=gsm8k", "env.train=100", "env.shots=2"],  # they are drawn from the train split
        ["algo=sft", "env=preferences", "env.train=100"],
        ["algo=reward_model", "env=gsm8k", "policy.temperature=0.5", "policy.rows=8", "env.max_tokens=8"],
        ["algo=dpo", "env=preferences", "policy.temperature=0.5", "policy.rows=8", "env.max_tokens=8"],
    ],
)
def test_what_waits_in_a_yaml_or_is_the_default_is_accepted(words: list[str]) -> None:
    assemble(config.read(words))


@pytest.mark.parametrize("word", ["max_tokens=5", "train=5", "rare=0.1", "bare=0.1"])
def test_what_makes_embedded_pairs_does_nothing_with_a_file(tmp_path: Any, word: str) -> None:
    rows = [{"prompt": f"{n} + 1?", "chosen": "a", "rejected": "b"} for n in range(30)]
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = refused("algo=dpo", "env=preferences", f"env.source={tmp_path / 'pairs.jsonl'}", f"env.{word}")
    assert f"env.{word} does nothing with env.source=" in said and "needs env.source=embedded" in said


def test_where_the_rewards_measure_demonstrations_leave_them_something_to_do(tmp_path: Any) -> None:
    """On env=text evaluation uses the rewards of the run, whatever is learned from."""
    rows = [{"prompt": f"{n} + 1?", "answer": f"#### {n + 1}"} for n in range(30)]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    source = f"env.source={tmp_path / 'rows.jsonl'}"
    words = ["algo=sft", "env=text", source, "env.reward=strict", "env.reward_weights=2"]
    assert assemble(config.read(words)).env.metric == "return"


def test_no_yaml_of_a_pair_sets_a_key_in_vain() -> None:
    for path in sorted((config.Path(__file__).parents[2] / "configs").glob("*.yaml")):
        algo, _, env = path.stem.partition("-")
        cls, given = plugins.load("algorithms", algo).Config, config.pair(algo, env).algo
        built = schema.build(cls, given, "algo")
        idle.refuse(built, given, "algo", facts(built, control=env not in ("arithmetic", "gsm8k", "preferences")))


def test_a_run_folder_with_keys_in_vain_is_continued(tmp_path: Any) -> None:
    """0.3 accepted them, and whoever continues a run did not ask for them."""
    (tmp_path / "config.yaml").write_text(
        "run: {seed: 0, iterations: 2}\nalgo: {name: dqn, alpha: 0.9}\nenv: {name: cartpole}\npolicy: {log_std: 1.0}\n"
    )
    parts = assemble(config.read([f"resume={tmp_path}", "algo.alpha=0.9"]))
    assert parts.algo.config.alpha == 0.9  # type: ignore[attr-defined]


def test_help_says_what_a_key_needs() -> None:
    rows = dict(schema.explain(plugins.load("algorithms", "dqn").Config, {}, "algo"))
    assert rows["algo.alpha=0.6"].endswith("(a number from 0 to 1; only with algo.prioritized=true)")
    rows = dict(schema.explain(plugins.load("algorithms", "ppo").Config, {}, "algo"))
    assert rows["algo.horizon=128"].endswith("; only with a control environment)")
    assert rows["algo.kl_horizon=10000"].endswith("; only with algo.kl_target)")
