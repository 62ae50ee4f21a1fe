"""What the policy reaches of the algorithm's state, and what shares memory or parameter groups in a resumed run."""

from functools import partial
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from support.state import Helper, holding
from torch import nn

from rlkit.api import UserError
from rlkit.buffers import Rollout
from rlkit.doctor.doctor import Doctor
from rlkit.held import check_saved, fingerprints, of_policy
from rlkit.progress import Progress, restore, restore_policy, save
from rlkit.recording.undo import as_before


class Scale:
    def __init__(self) -> None:
        self.sums = torch.ones(2)

    def read(self) -> torch.Tensor:
        return self.sums

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"sums": self.sums}

    def load_state_dict(self, state: dict[str, torch.Tensor]) -> None:
        self.sums = state["sums"]


WAYS = {
    "attribute": lambda algo: algo.scale,
    "method": lambda algo: algo.scale.read,
    "partial": lambda algo: partial(algo.scale.read),
    "closure": lambda algo: lambda scale=algo.scale: scale.read(),
    "inside": lambda algo: SimpleNamespace(parts={"scale": [algo.scale]}),
    "tensor": lambda algo: algo.scale.sums,
    "algorithm": lambda algo: algo,
    "layer": lambda algo: (algo.net[0][0],),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_the_policy_reaches_is_measured_with_it(way: str) -> None:
    algo, env = holding("scale", Scale(), saved=("scale", "net", "steps", "far"))
    algo.net, algo.steps, algo.far = nn.ModuleList([nn.Sequential(nn.Linear(2, 2), nn.Tanh())]), 3, torch.zeros(2)
    algo.policy.near, algo.policy.steps = WAYS[way](algo), 3
    expected = {"layer": {"net"}, "algorithm": {"scale", "net", "steps", "far", "buffer"}}.get(way, {"scale"})
    assert {*of_policy(algo, env)} - {"policy", "policy.epsilon"} == expected


def test_a_buffer_that_the_policy_reads_is_measured_with_it() -> None:
    algo, env = holding("buffer", Rollout(0))
    assert "buffer" not in of_policy(algo, env)
    algo.policy.memory = algo.buffer
    assert "buffer" in of_policy(algo, env)


def test_what_only_holds_the_policy_is_not_needed_to_act() -> None:
    algo, env = holding("nets", nn.Module(), saved=("nets",))
    algo.policy.encoder = algo.nets.encoder = nn.Linear(2, 2)
    algo.nets.critic = nn.Linear(2, 1)
    assert {*of_policy(algo, env)} - {"policy.epsilon"} == {"policy"}


def test_an_algorithm_of_rlkits_may_be_given_more() -> None:
    algo, env = holding("mark", 0)
    algo = type(algo).__base__(algo.config, env, None)
    assert "scale" not in of_policy(algo, env)
    algo.scale = algo.policy.scale = Scale()
    algo.saved = (*algo.saved, "scale")
    assert "scale" in of_policy(algo, env)


def test_large_collections_are_looked_through_last() -> None:
    algo, env = holding("scale", Scale(), saved=("scale",))
    algo.policy.table, algo.policy.read = [[i] for i in range(10**5)], algo.scale.read
    assert "scale" in of_policy(algo, env)


def test_an_older_best_without_it_is_measured_with_a_warning(tmp_path: Path, capsys: Any) -> None:
    algo, env = holding("scale", Scale(), saved=("scale",))
    save(tmp_path, algo, env, Progress())
    again, second = holding("scale", Scale(), saved=("scale", "net"))
    again.net = nn.Linear(2, 2)
    vars(again.policy)["net"] = again.net  # not a module of it
    restore_policy(tmp_path, again, second, "latest")
    assert "its checkpoint latest, of an older rlkit, has no net: they are as they are made" in capsys.readouterr().err


class Wrapping(torch.optim.SGD):
    """As SAM: its base moves the parameters, and a schedule sets the rate of the groups that both have."""

    def __init__(self, parameters: Any, whole: bool) -> None:
        super().__init__(parameters, lr=0.1)
        self.base = torch.optim.SGD(self.param_groups, lr=0.1)
        if whole:
            self.param_groups = self.base.param_groups


@pytest.mark.parametrize("whole", [True, False], ids=["one list", "the same groups in two lists"])
def test_optimizers_share_their_groups_again(whole: bool, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("net", nn.Linear(2, 2), saved=("net", "optimizer", "optimizer.base"))
        algo.optimizer = Wrapping(algo.net.parameters(), whole)
        return algo, env

    save(tmp_path, *made(), Progress())
    algo, env = made()
    restore(tmp_path, algo, env)
    assert (algo.optimizer.param_groups is algo.optimizer.base.param_groups) == whole
    assert algo.optimizer.param_groups[0] is algo.optimizer.base.param_groups[0]
    assert algo.optimizer.param_groups[0]["params"][0] is algo.net.weight


class Showing(torch.optim.SGD):
    """Its groups are always those of the optimizer inside it."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner = inner
        self.state, self.defaults = inner.state, inner.defaults

    @property
    def param_groups(self) -> list[dict[str, Any]]:  # type: ignore[override]
        return self.inner.param_groups

    def state_dict(self) -> dict[str, Any]:
        return self.inner.state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state)


def test_an_optimizer_may_show_the_groups_of_another(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("net", nn.Linear(2, 2), saved=("net",))
        algo.base = torch.optim.SGD(algo.net.parameters(), lr=0.1)
        algo.saved = ("policy", "buffer", "net", "base", "optimizer")
        algo.optimizer = Showing(algo.base)
        return algo, env

    save(tmp_path, *made(), Progress())
    algo, env = made()
    restore(tmp_path, algo, env)
    assert algo.optimizer.param_groups is algo.base.param_groups


def test_parameters_that_are_parts_of_a_vector_stay_so(tmp_path: Path) -> None:
    """As evolution strategies move them: all at once."""

    def made() -> tuple[Any, Any]:
        algo, env = holding("net", nn.Linear(2, 2), saved=("net", "flat"))
        algo.flat = torch.cat([p.detach().flatten() for p in algo.net.parameters()])
        algo.net.weight.data, algo.net.bias.data = algo.flat[:4].view(2, 2), algo.flat[4:]
        return algo, env

    algo, env = made()
    algo.flat += 1
    save(tmp_path, algo, env, Progress())
    again, second = made()
    restore(tmp_path, again, second)
    assert torch.equal(again.net.weight, algo.net.weight)
    again.flat += 1
    assert torch.equal(again.net.weight, algo.net.weight + 1)


def test_a_weight_that_is_made_in_the_memory_of_another_does_not_overwrite_it(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("net", torch.nn.utils.spectral_norm(nn.Linear(3, 3)), saved=("net", "net.weight"))
        return algo, env

    algo, env = made()
    algo.net(torch.ones(1, 3))  # which puts the normalized weight into a tensor of its own
    save(tmp_path, algo, env, Progress())
    again, second = made()
    assert again.net.weight.data_ptr() == again.net.weight_orig.data_ptr()
    restore(tmp_path, again, second)
    assert torch.equal(again.net.weight_orig, algo.net.weight_orig) and torch.equal(again.net.weight, algo.net.weight)


def test_a_constant_of_the_first_act_is_no_change_after_a_resume(tmp_path: Path) -> None:
    algo, env = holding("mark", 0)
    algo.policy.scale = torch.ones(2)  # made while the untrained policy was measured
    save(tmp_path, algo, env, Progress(held=fingerprints(algo, env)))
    for value, same in ((1.0, True), (2.0, False)):
        again, second = holding("mark", 0)
        progress = restore(tmp_path, again, second)
        progress.held = fingerprints(again, second)
        again.policy.scale = value * torch.ones(2)
        if same:
            save(tmp_path, again, second, progress)
        else:
            with pytest.raises(UserError, match=r"Mine\.policy\.scale has changed"):
                save(tmp_path, again, second, progress)


class Looking(torch.optim.SGD):
    """As Lookahead: it wraps another optimizer, calls no `super().__init__`, and has a state of its own form."""

    def __init__(self, inner: torch.optim.Optimizer) -> None:
        self.inner, self.param_groups, self.state = inner, inner.param_groups, inner.state
        self.defaults, self.steps = inner.defaults, 0
        self._optimizer_step_pre_hooks: Any = {}

    def state_dict(self) -> dict[str, Any]:
        return {"fast": self.inner.state_dict(), "steps": self.steps}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.inner.load_state_dict(state["fast"])
        self.steps = state["steps"]


def test_an_optimizer_around_another_resumes(tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("net", nn.Linear(2, 2), saved=("net", "optimizer"))
        algo.optimizer = Looking(torch.optim.Adam(algo.net.parameters()))
        return algo, env

    algo, env = made()
    Doctor().attach(algo.optimizer)
    algo.optimizer.steps = 3
    save(tmp_path, algo, env, Progress())
    again, second = made()
    restore(tmp_path, again, second)
    assert again.optimizer.steps == 3
    assert again.optimizer.param_groups is again.optimizer.inner.param_groups, "a schedule reaches the one that steps"


class Several(torch.optim.Optimizer):
    """Adam for the matrices and SGD for the rest, held in a list or a dict, and saved one by one."""

    def __init__(self, net: nn.Linear, kind: type) -> None:
        a, b = torch.optim.Adam([net.weight]), torch.optim.SGD([net.bias], lr=0.1)
        self.inner: Any = [a, b] if kind is list else {"a": a, "b": b}
        super().__init__([group for x in self.all() for group in x.param_groups], {})
        self.param_groups = [group for x in self.all() for group in x.param_groups]

    def all(self) -> list[torch.optim.Optimizer]:
        return list(self.inner.values() if isinstance(self.inner, dict) else self.inner)

    def state_dict(self) -> dict[str, Any]:
        return {str(i): x.state_dict() for i, x in enumerate(self.all())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for i, x in enumerate(self.all()):
            x.load_state_dict(state[str(i)])


@pytest.mark.parametrize("kind", [list, dict])
def test_a_schedule_reaches_optimizers_in_a_collection_after_a_resume(kind: Any, tmp_path: Path) -> None:
    def made() -> tuple[Any, Any]:
        algo, env = holding("net", nn.Linear(2, 2), saved=("net", "optimizer"))
        algo.optimizer = Several(algo.net, kind)
        return algo, env

    save(tmp_path, *made(), Progress())
    algo, env = made()
    restore(tmp_path, algo, env)
    groups = [group for x in algo.optimizer.all() for group in x.param_groups]
    assert len(groups) == 2 and all(a is b for a, b in zip(groups, algo.optimizer.param_groups, strict=True))


def with_helper(shared: bool) -> tuple[Any, Any]:
    """`saved` names a number in an object that has no state_dict, to which the policy may refer, too."""
    algo, env = holding("helper", Helper(0), saved=("helper.inside",))
    if shared:
        algo.policy.helper = algo.helper
    return algo, env


@pytest.mark.parametrize("shared", [False, True])
def test_a_number_that_saved_names_in_an_object_may_change_and_is_restored(shared: bool, tmp_path: Path) -> None:
    algo, env = with_helper(shared)
    progress = Progress(held=fingerprints(algo, env))
    algo.helper.inside = 3
    save(tmp_path, algo, env, progress)
    again, second = with_helper(shared)
    restore(tmp_path, again, second)
    assert again.helper.inside == 3
    algo.helper.other = 1
    names = "helper, policy.helper" if shared else "helper"
    with pytest.raises(UserError, match=rf"^Mine\.helper .* and give {names} a state_dict and a load_state_dict$"):
        save(tmp_path, algo, env, progress)


def test_measuring_leaves_numbers_to_which_the_policy_refers_by_what_holds_them() -> None:
    algo, env = with_helper(shared=True)
    own, other = holding("count", 0, saved=("count",))
    own.policy.owner = own
    with as_before(algo, env), as_before(own, other):
        algo.helper.inside, own.count = 9, 9
    assert algo.helper.inside == own.count == 0


def test_what_saved_names_inside_is_looked_through_as_what_it_names(tmp_path: Path) -> None:
    algo, env = holding("helper", SimpleNamespace(net=nn.Linear(2, 2)), saved=("helper.net",))
    progress = Progress(held=fingerprints(algo, env))
    algo.helper.net.count = 1
    with pytest.raises(UserError, match=r"^Mine\.helper\.net\.count has changed since the run began and would not be"):
        save(tmp_path, algo, env, progress)


@pytest.mark.parametrize("helper", [ModuleType("helper"), Exception()])
def test_a_number_in_any_object_may_be_named(helper: Any, tmp_path: Path) -> None:
    algo, env = holding("helper", helper, saved=("helper.level",))
    helper.level = 0
    progress = Progress(held=fingerprints(algo, env))
    helper.level = 3
    with as_before(algo, env):
        save(tmp_path, algo, env, progress)
    helper.level = 0
    restore(tmp_path, algo, env)
    assert helper.level == 3


def test_a_number_of_a_class_cannot_be_named() -> None:
    algo, env = holding("helper", type("Helper", (), {"level": 0}), saved=("helper.level",))
    with pytest.raises(UserError, match=r"^Mine\.saved names 'helper\.level', and there is no such attribute"):
        check_saved(algo, env)


def test_the_progress_by_which_a_policy_acts_is_restored(tmp_path: Path) -> None:
    algo, env = holding("mark", 0)
    algo.progress = 0.75
    save(tmp_path, algo, env, Progress())
    for back in (restore, lambda *given: restore_policy(*given, "latest")):
        algo.progress = 0.0
        back(tmp_path, algo, env)
        assert algo.progress == 0.75


def test_a_compiled_network_may_be_called_first_in_a_loss(tmp_path: Path) -> None:
    algo, env = holding("net", torch.compile(nn.Linear(2, 2), backend="eager"), saved=("net",))
    progress = Progress(held=fingerprints(algo, env))
    algo.net(torch.ones(1, 2))
    save(tmp_path, algo, env, progress)
