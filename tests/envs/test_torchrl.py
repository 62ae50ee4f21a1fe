"""Simulators through TorchRL: their spaces, ends and seeds are those of the library."""

from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete
from support.fakes import algorithm

from rlkit.api import UserError
from rlkit.control import specs
from rlkit.policies import Network
from rlkit.settings import config, plugins

torchrl = plugins.load("envs", "torchrl")
SMALL = Network(hidden=(8,))


def made(**keys: Any) -> Any:
    return torchrl.make(torchrl.Config(**{"rows": 2, **keys}), 0, torch.device("cpu"))


@pytest.mark.parametrize("name", ["CartPole-v1", "Pendulum-v1"])
def test_it_is_the_environment_that_gymnasium_has(name: str) -> None:
    env = made(lib="gym", id=name, step_limit=30)
    assert env.longest == 30 and env.source == f"TorchRL gym {name}"
    rollout = env.rollout(algorithm("ppo", env, SMALL).policy, steps=60)
    other = gymnasium.make(name, max_episode_steps=30)
    seed = env._seed("reset", 0, 0)
    other.reset(seed=seed)  # TorchRL resets once with the seed and once without
    seen = other.reset()[0]
    for t in range(30):
        assert np.array_equal(seen, rollout["observation"][0, t].numpy())
        action = rollout["action"][0, t].numpy()
        action = np.clip(action, -2, 2) if isinstance(other.action_space, Box) else int(action)
        seen, reward, terminated, truncated, _ = other.step(action)
        assert np.float32(reward) == rollout["reward"][0, t].numpy()
        assert (terminated, terminated or truncated) == (rollout["terminated"][0, t], rollout["done"][0, t])
        if terminated or truncated:
            break
    assert rollout["done"][0, t]


def test_a_mask_is_a_part_of_the_observation_and_no_key_ignores_it() -> None:
    """TorchRL hands on no info, so there is none with a mask that env.action_masks=false could ignore."""
    with pytest.raises(UserError, match=r"no key 'env\.action_masks'"):
        config.build(torchrl.Config, {"lib": "gym", "id": "CartPole-v1", "action_masks": False}, "env")


def test_specs_are_spaces_and_back() -> None:
    from torchrl.data import (
        Binary,
        Bounded,
        Categorical,
        Composite,
        MultiCategorical,
        MultiOneHot,
        NonTensor,
        OneHot,
        Unbounded,
    )

    x = torch.tensor
    cases: list[tuple[Any, Any, Any, Any]] = [
        (OneHot(3), Discrete(3), x([0, 1, 0]), 1),
        (OneHot(3, shape=(2, 3)), MultiDiscrete([3, 3]), x([[0, 0, 1], [1, 0, 0]]), [2, 0]),
        (Categorical(3), Discrete(3), x(2), 2),
        (Categorical(3, shape=(2,)), MultiDiscrete([3, 3]), x([2, 0]), [2, 0]),
        (MultiCategorical([2, 3]), MultiDiscrete([2, 3]), x([1, 2]), [1, 2]),
        (MultiOneHot([2, 3]), MultiDiscrete([2, 3]), x([0, 1, 0, 0, 1]), [1, 2]),
        (Binary(2), MultiBinary(2), x([True, False]), [1, 0]),
        (Bounded(False, True, (2, 2), dtype=torch.bool), MultiBinary(4), x([[True, False]] * 2), [1, 0, 1, 0]),
        (Bounded(-1.0, 2.0, (2,), dtype=torch.float64), Box(-1, 2, (2,)), x([0.5, 1.0]), [0.5, 1.0]),
        (Bounded(0, 255, (2,), dtype=torch.uint8), Box(0, 255, (2,), np.uint8), x([3, 4]), [3, 4]),
        (Unbounded((1,)), Box(-np.inf, np.inf, (1,)), x([7.0]), [7.0]),
    ]
    for spec, space, tensor, value in cases:
        assert specs.space(spec, "it") == space
        assert np.array_equal(specs.seen(spec, space, tensor), value), spec
        assert torch.equal(specs.given(spec, value).to(tensor.dtype), tensor), spec
    nested = Composite(a=OneHot(2), b=Composite(c=Unbounded((1,))))
    space = Dict(a=Discrete(2), b=Dict(c=Box(-np.inf, np.inf, (1,))))
    assert specs.space(nested, "it") == space
    assert specs.seen(nested, space, {"a": x([0, 1]), "b": {"c": x([1.0])}}) == {"a": 1, "b": {"c": [1.0]}}
    with pytest.raises(UserError, match=r"^it at b is a NonTensor of shape \(1,\), which no policy here takes: "):
        specs.space(Composite(a=OneHot(2), b=NonTensor(shape=(1,))), "it")


@pytest.mark.parametrize("both", [False, True])
def test_the_state_from_which_a_simulator_goes_on_is_not_seen(both: bool) -> None:
    """jumanji and brax: it holds what an agent does not see, and the key of the next draws, of up to 2^31."""
    from torchrl.data import Bounded, Composite, OneHot, Unbounded

    state = Composite(key=Unbounded((2,), dtype=torch.int32), hidden=Unbounded((1,)))
    mask = {"action_mask": Bounded(False, True, (2,), dtype=torch.bool)} if both else {}
    now = {"observation": torch.ones(1), "state": {"key": torch.tensor([2**30, 7])}, "action_mask": torch.ones(2) > 0}
    stub = SimpleNamespace(
        batch_size=(),
        action_keys=["action"],
        action_key="action",
        observation_spec=Composite(observation=Unbounded((1,)), state=state.clone(), **mask),
        state_spec=Composite(state=state),
        action_spec=OneHot(2),
        reset=lambda: now,
    )
    env = torchrl.Adapted(stub, "it", 0)
    box = Box(-np.inf, np.inf, (1,))
    assert env.observation_space == (Dict(observation=box, action_mask=MultiBinary(2)) if both else box)
    seen = env.reset()[0]
    assert seen.keys() == {"observation", "action_mask"} if both else seen == [1.0]
    assert "state" in env.now and "state" in stub.observation_spec.keys()


@pytest.mark.parametrize("key", torchrl.TORCHRLS)
@pytest.mark.parametrize("lib", ["gym", "brax"])
def test_torchrl_starts_nothing_and_changes_nothing_by_a_keyword(
    lib: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes (num_workers), compilers (compile), imports (backend), devices; and what would do nothing here."""
    monkeypatch.setattr(torchrl, "find_spec", lambda name: name)
    monkeypatch.setattr(torchrl, "world", lambda *_, **__: pytest.fail("it was made"))
    with pytest.raises(UserError, match=rf"^env\.kwargs\.{key} is not allowed(: TorchRL would | with env\.lib=brax: )"):
        made(lib=lib, id="CartPole-v1", kwargs={key: 2})


def test_what_torchrl_reads_itself_is_known() -> None:
    """A keyword that a newer TorchRL reads beside those known is to be looked at before it may be given."""
    import inspect
    import re

    from torchrl.envs import common
    from torchrl.envs.libs import gym

    owners = (
        common._EnvPostInit.__call__,
        common._pop_compile_kwargs,
        common._EnvWrapper.__init__,
        common.EnvBase.__init__,
    )
    owners += (gym._GymAsyncMeta.__call__, gym.GymWrapper.__init__, gym.GymEnv.__init__, gym.GymEnv._build_env)
    found = set()
    for owner in owners:
        signature = inspect.signature(owner).parameters.values()
        found |= {x.name for x in signature if x.kind in (x.POSITIONAL_OR_KEYWORD, x.KEYWORD_ONLY)}
        found |= set(re.findall(r"kwargs\.(?:pop|get|setdefault)\(\s*\"(\w+)\"", inspect.getsource(owner)))
    harmless = {*torchrl.PIXELS, "self", "cls", "kwargs", "frameskip", "render_mode", "options", "run_type_checks"}
    assert {x for x in found if not x.startswith("_")} - harmless <= set(torchrl.TORCHRLS)


def test_frames_may_be_skipped() -> None:
    one, four = (made(lib="gym", id="CartPole-v1", kwargs=x) for x in ({}, {"frame_skip": 4}))
    left = [env._make("fresh", 1) for env in (one, four)]
    for copies in left:
        copies.reset([3])
    for _ in range(4):
        left[0].step(np.zeros(1, dtype=np.int64))
    assert left[1].step(np.zeros(1, dtype=np.int64))[1] == 4.0
    assert np.array_equal(left[0].observation, left[1].observation)


def test_a_domain_and_a_task_are_given_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A stand-in for dm_control, whose package is large."""
    from torchrl.envs import GymEnv
    from torchrl.envs.libs import dm_control

    def load(domain: str, task: str, random: int | None = None, **keys: Any) -> Any:
        assert random == 0  # some draw their model from it, and without it from what no seed gives
        if domain != "cartpole":
            raise RuntimeError(f"{domain} with task {task} is unknown in dm_control")
        return GymEnv({"swingup": "CartPole-v1"}[task], **keys)

    monkeypatch.setattr(torchrl, "find_spec", lambda name: name)
    load.available_envs = [("cartpole", ["balance", "swingup"])]  # type: ignore[attr-defined]
    monkeypatch.setattr(dm_control, "DMControlEnv", load)
    assert made(lib="dm_control", id="cartpole/swingup").source == "TorchRL dm_control cartpole/swingup"
    with pytest.raises(
        UserError, match=r"^env\.id=cartpol/swingup of env\.lib=dm_control .*: did you mean cartpole/sw"
    ):
        made(lib="dm_control", id="cartpol/swingup")
    with pytest.raises(UserError, match=r"env\.lib=dm_control needs env\.id=cartpole/swingup$"):
        made(lib="dm_control", id="cartpole")


def test_dm_control_itself() -> None:
    pytest.importorskip("dm_control")
    env = made(lib="dm_control", id="cartpole/swingup")
    rollout = env.rollout(algorithm("ppo", env, SMALL).policy, steps=1001)
    assert rollout["done"][:, 999].all() and not rollout["terminated"].any()


def test_all_copies_have_the_same_model() -> None:
    pytest.importorskip("dm_control")
    seen = []
    for _ in range(2):
        env = torchrl.world("dm_control", "lqr/lqr_2_1")  # which draws masses when it is made
        env.reset(seed=1)
        seen.append([env.step(env.action_space.high)[:2] for _ in range(9)][-1])
    assert repr(seen[0]) == repr(seen[1])


def test_what_does_not_fit_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        UserError, match=r"^env\.lib=dmcontrol is not a library of TorchRL's that fits: did you mean dm_c"
    ):
        made(lib="dmcontrol", id="a/b")
    with pytest.raises(UserError, match=r"^env\.lib=vmas has several agents: use env=pettingzoo"):
        made(lib="vmas", id="balance")
    with pytest.raises(UserError, match=r"^env\.lib=jumanji needs the package jumanji, .* pip install jumanji$"):
        monkeypatch.setattr(torchrl, "find_spec", lambda name: None)
        made(lib="jumanji", id="Snake-v1")
    monkeypatch.undo()
    with pytest.raises(UserError, match=r"^env\.id=CartPool-v1 of env\.lib=gym cannot be made: did you mean CartPole"):
        made(lib="gym", id="CartPool-v1")
    with pytest.raises(UserError, match=r"^env\.lib=procgen plays many copies in one, and here each copy is one env"):
        made(lib="procgen", id="coinrun")
    with pytest.raises(UserError, match=r"^env\.id=x is \(2,\) environments in one: "):
        torchrl.Adapted(SimpleNamespace(batch_size=(2,)), "env.id=x", print)
    several = SimpleNamespace(batch_size=(), action_keys=[("agents", "action")], action_key=("agents", "action"))
    with pytest.raises(UserError, match=r"^env\.id=x has several agents or actions: use env=pettingzoo"):
        torchrl.Adapted(several, "env.id=x", print)


@pytest.mark.skipif(find_spec("dm_control") is not None, reason="the package is there")
def test_a_folder_by_the_name_of_a_package_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dm_control").mkdir()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UserError, match=r"^env\.id=a/b of env\.lib=dm_control cannot be made: "):
        made(lib="dm_control", id="a/b")


@pytest.mark.parametrize(
    ("seen", "action"),
    [
        (Box(0, 1, (2,)), Discrete(3, start=2)),
        (Box(0, 1, (2,)), MultiDiscrete([2, 3], start=[1, -1])),
        (Dict({"a": Discrete(3, start=1)}), Discrete(3)),
    ],
)
def test_choices_that_do_not_count_from_0_are_refused(seen: gymnasium.Space[Any], action: gymnasium.Space[Any]) -> None:
    """TorchRL would play 0 where 2 was chosen."""

    class World(gymnasium.Env[Any, Any]):
        observation_space, action_space = seen, action

    gymnasium.register("CountsFromElsewhere-v0", entry_point=lambda **_: World(), disable_env_checker=True)
    try:
        with pytest.raises(UserError, match=r"whose start TorchRL leaves out: use env=gym env\.id=\.\.\.$"):
            torchrl.world("gym", "CountsFromElsewhere-v0")
    finally:
        del gymnasium.registry["CountsFromElsewhere-v0"]


@pytest.mark.slow
def test_a_limit_above_that_of_the_simulator_is_told_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torchrl, "_told", set())
    env = made(lib="gym", id="MountainCar-v0", step_limit=250)
    assert not env.rollout(algorithm("ppo", env, SMALL).policy, steps=401)["terminated"].any()
    told = "env.id=MountainCar-v0 truncated an episode by itself after 200 steps, before env.step_limit=250\n"
    assert capsys.readouterr().err == told
    torchrl.tell_early("env.id=MountainCar-v0", 120, 250)  # of another length
    env = made(lib="gym", id="MountainCar-v0", step_limit=200)
    env.rollout(algorithm("ppo", env, SMALL).policy, steps=201)
    assert capsys.readouterr().err == ""
