"""policy.encoder=./my_net.py: what it is handed, what it has to return, its seed, trust and resume."""

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Space, Tuple
from rlkit.envs import cartpole
from torch import nn

import rlkit
from rlkit import spaces
from rlkit.errors import UserError
from rlkit.policies import Network
from rlkit.policies.own_encoder import Own, check_encoders, made
from rlkit.run import main
from rlkit.settings import assemble

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        first = next(iter(x.values())) if isinstance(x, dict) else x[0] if isinstance(x, tuple) else x
        return first.reshape(len(first), -1).float()

def make(space):
    return nn.Sequential(nn.Flatten(), nn.Linear(space.shape[0], 16), nn.Tanh())

def no_module(space):
    return len

class Wrong(Net):
    def forward(self, x):
        return super().forward(x)[:, 0]

class Whole(Net):
    def forward(self, x):
        return super().forward(x).long()

def chance(space):
    return nn.Sequential(nn.Linear(space.shape[0], 16), nn.BatchNorm1d(16), nn.Dropout(0.5), Recurrent())

class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.GRU(16, 16, num_layers=2, dropout=0.5)

    def forward(self, x):
        return self.inner(x[None])[0][0]

class Deep(nn.Module):
    def __init__(self, space):
        super().__init__()
        self.inner = nn.Linear(3, 16)

    def forward(self, x):
        return self.inner(x["at"] if isinstance(x, dict) else x)

def lazy(space):
    return nn.LazyLinear(16)

class Nothing(Net):
    def forward(self, x):
        return None

class Squeezed(Deep):
    def forward(self, x):
        return super().forward(x[:, :3]).squeeze()

class ByHeart(Deep):
    def forward(self, x):
        assert len(x) < 3, "no more"
        return super().forward(x[:, :3])

class Unknown(Net):
    def forward(self, x):
        return super().forward(x) + None

class Misspelled(Net):
    def __init__(self, space):
        super().__init__(spaces)

class Writes(Deep):
    def forward(self, x):
        x /= 255
        return super().forward(x[:, :3])

class Listed(Net):
    def __init__(self, space):
        super().__init__(space)
        self.layers = [nn.Linear(4, 4)]

class Fine(Net):
    def __init__(self, space):
        super().__init__(space)
        self.first = nn.Linear(4, 4)
        self.parts = [nn.Sequential(self.first, nn.ReLU()), nn.Linear(4, 4).requires_grad_(False)]
        self.activations = {"tanh": nn.Tanh()}

    def forward(self, x):
        return self.parts[1](self.first(x))

class Half(Net):
    def forward(self, x):
        return super().forward(x).half()

class Precise(Net):
    def __init__(self, space):
        super().__init__(space)
        self.inner = nn.Linear(4, 4).double()

    def forward(self, x):
        return self.inner(x.double())

class Counts(Deep):
    n = 0

    def forward(self, x):
        self.n += 1
        return super().forward(x[:, :3])

class Draws(Deep):
    def forward(self, x):
        return nn.functional.dropout(super().forward(x[:, :3]), 0.5)

class Detached(Deep):
    def forward(self, x):
        with torch.no_grad():
            return super().forward(x[:, :3])

def scripted(space):
    return torch.jit.script(nn.Sequential(nn.Linear(4, 16), nn.Tanh()))

def still(space):
    return Detached(space).requires_grad_(False)

ONE, COUNT = [], [0]

def counted(space):
    COUNT[0] += 1
    return nn.Linear(4, COUNT[0])

def same(space):
    ONE.append(nn.Linear(4, 16))
    return nn.Sequential(ONE[0], nn.Tanh())

def none_taken():
    return nn.Linear(4, 16)

def wide(space):
    return nn.Linear(8, 32)

def frozen(space):
    return same(space).requires_grad_(False)
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "my_net.py"
    path.write_text(NET)
    return str(path)


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (Box(-1, 1, (2, 3)), lambda x: x.shape == (4, 2, 3) and x.dtype == torch.float32),
        (Box(0, 255, (5, 5, 3), np.uint8), lambda x: x.shape == (4, 5, 5, 3) and x.dtype == torch.uint8),
        (Discrete(3, start=5), lambda x: x.shape == (4,) and x.dtype == torch.int64 and x.max() < 3),
        (MultiDiscrete([2, 3]), lambda x: x.shape == (4, 2) and x.dtype == torch.int64),
        (MultiBinary(3), lambda x: x.shape == (4, 3)),
        (
            Dict({"a": Box(-1, 1, (2, 2)), "b": Tuple((Discrete(2), MultiBinary(2)))}),
            lambda x: x["a"].shape == (4, 2, 2) and x["b"][0].shape == (4,) and x["b"][1].shape == (4, 2),
        ),
        (Dict({"action_mask": MultiBinary(2), "observation": Box(-1, 1, (2,))}), lambda x: x.shape == (4, 2)),
        (Dict({"action_mask": MultiBinary(2), "a": Box(-1, 1, (2,))}), lambda x: {*x} == {"a", "action_mask"}),
    ],
)
def test_it_is_handed_what_the_space_holds(file: str, space: Space, expected: object) -> None:
    space.seed(0)
    rows = np.stack([spaces.one(space, space.sample()) for _ in range(4)])
    own = Own(f"{file}:Net", space)
    flat = own(torch.from_numpy(rows))
    assert expected(own.inner.seen[-1])
    lead = own(torch.from_numpy(rows).unflatten(0, (2, 2)))  # [rows, steps]
    torch.testing.assert_close(lead, flat.unflatten(0, (2, 2)))


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("no_module", r"made builtin_function_or_method: it has to return a torch.nn.Module"),
        ("Wrong", r"gave torch.float32 \[2\] for 2 observations: it has to return real numbers, \[2, features\]"),
        ("Whole", r"gave torch.int64 \[2, 4\] for 2 observations"),
        ("Nothing", r"gave NoneType for 2 observations"),
        ("none_taken", r"cannot be called with the space \(too many positional arguments\): let it take that"),
        ("wide", r":wide fails on observations float32 \[2, 4\]: mat1 and mat2 shapes .*\(2x4 and 8x32\)"),
        ("Squeezed", r"gave torch.float32 \[16\] for 1 observations"),
        ("ByHeart", r"fails on observations float32 \[3, 4\]: AssertionError: no more \(my_net.py, line 61\)$"),
        ("Unknown", r"float32 \[2, 4\]: TypeError: unsupported .* 'NoneType' \(my_net.py, line 66\)$"),
        ("Misspelled", r"cannot be made: NameError: name 'spaces' is not defined \(my_net.py, line 70\); correct it$"),
        (
            "Writes",
            r"changes the observations that it is handed, which others read, too: write x = x / 255 in place of",
        ),
        (
            "Listed",
            r":Listed: layers of its Listed is a list of layers, which nothing would train: make it a torch.nn.",
        ),
        ("Draws", r":Draws draws random numbers when it reads observations, so .*: leave that out, or write F.dropout"),
        ("Detached", r":Detached gives features without gradient, so nothing would train its weights: leave out "),
        ("missing", r"has no function or class 'missing'"),
        ("same", r"gives the same weights each time: let it make a new module, so that none is shared"),
    ],
)
def test_what_it_returns_wrongly_is_one_line(file: str, name: str, says: str) -> None:
    env = cartpole.make(cartpole.Config(rows=1), 0, "cpu")
    with pytest.raises(UserError, match=says):
        check_encoders(Network(encoder=f"{file}:{name}", share="none").actor_critic(env))


def test_a_run_that_is_there_goes_on_though_its_encoder_draws(
    file: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run with it is refused; an earlier version began this one."""
    with monkeypatch.context() as patched:
        patched.setattr(assemble, "check_encoders", lambda policy: None)
        rlkit.train("ppo", "cartpole", **{"policy.encoder": f"{file}:Draws"}, out=str(tmp_path / "run"), iterations=1,
                    evaluation_episodes=1, quiet=True)  # fmt: skip
    run = rlkit.load(tmp_path / "run", trust=True)
    assert run.evaluate(episodes=2) and run.resume(iterations=2, quiet=True).folder == run.folder


def test_parts_of_observations_that_do_not_fit_are_named(file: str) -> None:
    space = Dict({"a": Box(-1, 1, (2, 2)), "b": Tuple((Discrete(2), MultiBinary(2)))})
    says = r"fails on observations {a: float32 [2, 2, 2], b: (int64 [2], uint8 [2, 2])}: TypeError: linear()"
    with pytest.raises(UserError, match=re.escape(says)):
        made(f"{file}:wide", space, torch.Generator())


def test_it_is_made_once_for_each_network(file: str) -> None:
    """It may read a large file each time."""
    env, network = cartpole.make(cartpole.Config(rows=1), 0, "cpu"), Network(encoder=f"{file}:counted", share="none")
    policy = network.actor_critic(env)
    assert [policy.actor[1].in_features, policy.critic[1].in_features] == [1, 2]


@pytest.mark.parametrize("name", ["make", "lazy"])
def test_it_is_drawn_from_the_seed_and_normalized(file: str, name: str) -> None:
    env, file = cartpole.make(cartpole.Config(rows=1), 0, "cpu"), f"{file}:{name}"
    first, second = (Network(encoder=file, normalize=True).actor(env) for _ in range(2))
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    linear = [x for x in first.modules() if isinstance(x, nn.Linear)]
    assert linear[0].weight.std() > 0.1 and first.normalizer is not None
    state = torch.get_rng_state()
    Network(encoder=file).actor(env)
    assert torch.equal(torch.get_rng_state(), state), "the program's own numbers are not touched"


def test_a_list_may_hold_layers_that_are_trained_elsewhere_or_not_at_all(file: str) -> None:
    """Layers that are registered, too, frozen ones, and activations."""
    Network(encoder=f"{file}:Fine").actor(cartpole.make(cartpole.Config(rows=1), 0, "cpu"))


def test_frozen_weights_may_be_shared(file: str) -> None:
    Network(encoder=f"{file}:frozen").actor(cartpole.make(cartpole.Config(rows=1), 0, "cpu"))


@pytest.mark.parametrize("normalize", [False, True])
@pytest.mark.parametrize("space", [Box(-1, 1, (3,)), Dict({"at": Box(-1, 1, (3,)), "which": Discrete(2)})])
def test_it_computes_in_the_precision_of_the_policy(file: str, space: Space, normalize: bool) -> None:
    network = Network(encoder=f"{file}:Deep", normalize=normalize, dtype="float64")
    env = SimpleNamespace(observation_space=space, action_space=Box(-1, 1, (2,)), seed=0, device="cpu")
    seen = torch.from_numpy(spaces.one(space, space.sample())[None])
    for policy in (network.actor(env), network.twin_critics(env)):
        assert {p.dtype for p in policy.parameters()} == {torch.float64}
        assert policy.act(seen).dtype == torch.float64
    assert policy.q(seen, torch.zeros(1, 2)).dtype == torch.float64


def test_a_folder_asks_for_trust_and_goes_on(file: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "run"
    words = ["algo=ppo", "env=cartpole", "algo.horizon=16", "evaluation_episodes=2", "validation_episodes=2"]
    assert main([*words, f"policy.encoder={file}", "iterations=2", f"out={folder}"]) == 0
    assert main([f"resume={folder}", "iterations=3"]) == 2
    assert f"policy.encoder={file}:make; trust=true allows it" in capsys.readouterr().err
    assert main([f"resume={folder}", "iterations=3", "trust=true"]) == 0
    config = folder / "config.yaml"
    config.write_text(config.read_text().replace(f"{file}:make", file))  # as nobody writes it but a stranger
    assert main([f"resume={folder}", "iterations=4"]) == 2
    Path(file).write_text(NET + "\n")
    assert main([f"resume={folder}", "iterations=4", "trust=true"]) == 2
    assert "has changed since the run" in capsys.readouterr().err


def test_who_acts_and_who_learns_compute_the_same_function(file: str) -> None:
    """Dropout would draw anew at each call, and a batch norm look at who else is in the batch."""
    env = cartpole.make(cartpole.Config(rows=4), 0, "cpu")
    policy = Network(encoder=f"{file}:chance").actor_critic(env)
    state = {key: x.clone() for key, x in policy.state_dict().items()}
    rollout = env.rollout(policy, steps=8)
    assert torch.equal(env.evaluate(policy, 2).score, env.evaluate(policy, 2).score)
    torch.testing.assert_close(policy.evaluate(rollout[:1])["log_prob"], rollout["log_prob"][:1])
    assert all(torch.equal(x, state[key]) for key, x in policy.state_dict().items())
    policy.evaluate(rollout)["value"].sum().backward()


@pytest.mark.parametrize("name", ["Half", "Precise"])
def test_features_of_another_precision_are_brought_to_that_of_the_policy(file: str, name: str) -> None:
    env = cartpole.make(cartpole.Config(rows=1), 0, "cpu")
    for kind in ("float32", "float64"):
        policy = Network(encoder=f"{file}:{name}", dtype=kind).actor(env)
        seen = env.rollout(policy, steps=2)["observation"]
        assert policy.outputs(seen).dtype == getattr(torch, kind)


def test_a_compiled_one_has_a_target_network(file: str, tmp_path: Path) -> None:
    env = cartpole.make(cartpole.Config(rows=1), 0, "cpu")
    policy = Network(encoder=f"{file}:scripted").q_network(env)
    target, seen = policy.frozen(), torch.ones(2, 4)
    assert torch.equal(target(seen), policy(seen)) and not any(p.requires_grad for p in target.parameters())
    before = target(seen)
    policy(seen).sum().backward()
    torch.optim.SGD(policy.parameters(), 1.0).step()
    assert torch.equal(target(seen), before) and not torch.equal(policy(seen), before)
    words = {"policy.encoder": f"{file}:scripted", "algo.warmup_steps": 1, "evaluation_episodes": 1}
    run = rlkit.train("dqn", "cartpole", quiet=True, iterations=2, out=tmp_path / "r", **words)
    run.resume(iterations=3, quiet=True)


def test_weights_that_are_frozen_need_no_gradient(file: str) -> None:
    Network(encoder=f"{file}:still").actor(cartpole.make(cartpole.Config(rows=1), 0, "cpu"))


def test_a_counter_in_it_is_refused_with_what_saves_it(file: str) -> None:
    says = r"policy.q.0.inner.n has changed .*, or in that module self.register_buffer\('n', TENSOR\)$"
    with pytest.raises(UserError, match=says):
        rlkit.train("dqn", "cartpole", quiet=True, iterations=1, **{"policy.encoder": f"{file}:Counts"})
