"""Mistakes of a first algorithm: a step that is missing or misspelt, or returns something else."""

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rlkit import new, run
from rlkit.policies.optimizers import check_apart
from rlkit.settings import config
from rlkit.settings.assemble import assemble

INHERITED = """
from rlkit.algorithms import ppo

Config = ppo.Config


class Mine(ppo.Algorithm):
    def credit(self, rollout):
        return rollout


make = Mine
"""
MISTAKES = {
    ("def loss(", "def los("): "/mine.py: Algorithm has no loss: write it, or inherit it from another algorithm",
    ("def rollout(", "def play("): "/mine.py: Algorithm has no rollout: write it, or inherit it from another algorithm",
    ("self.optimizer =", "self.adam ="): (
        "/mine.py: Algorithm has no optimizer; "
        "set it in its __init__: self.optimizer = policies.adam(self.policy, config)"
    ),
    ("return rollout.set(", "rollout.set("): (
        "rlkit: Algorithm.credit returned a NoneType: let it return the rollout, a TensorDict"
    ),
    ("return rollout.set(", "return rollout.select().set("): (
        "rlkit: Algorithm.credit returned no key mask: let it return the rollout, with all its keys"
    ),
    ("adam(self.policy, config)", "adam(self.policy, config)\n        self.policy = __import__('torch').nn.Tanh()"): (
        "/mine.py: self.policy, a Tanh, has no name, dtype, micro_steps, refresh, record: "
        "let it inherit policies.PolicyModule"
    ),
    ("class Config(policies.Optimization)", "class Config"): (
        "rlkit: policies.adam reads beta2, adam_eps, weight_decay of Config: let it inherit policies.Optimization"
    ),
    ('batch["weight"]), metrics', 'batch["weight"])'): (
        'rlkit: Algorithm.loss returned a Tensor: let it return (each * batch["weight"]).sum(), metrics'
    ),
    ('losses.weighted(each, batch["weight"])', "each"): (
        '): let it return (each * batch["weight"]).sum(), metrics'  # a loss of the shape (46,)
    ),
    ('batch["weight"]), metrics', 'batch["weight"]), None'): (
        'rlkit: Algorithm.loss returned (Tensor, NoneType): let it return (each * batch["weight"]).sum(), metrics'
    ),
    ('batch["weight"]), metrics', 'batch["weight"]).detach(), metrics'): (
        "rlkit: Algorithm.loss returned a loss without a gradient: compute it from self.policy.evaluate(batch)"
    ),
    ("env.rollout(self.policy)", "env.rollout(self.policy, repeats=2)"): (
        "rlkit: Algorithm.credit returned groups, [P, G, T]: let it return buffers.flatten_groups(rollout)"
    ),
    ("config.minibatches, whole_rows)", 'config.minibatches, False, "sequence")'): (
        'rlkit: over="sequence" weighs rows, and here are single steps: let the buffer have whole_rows=True'
    ),
    ('to_go, rollout["mask"])', 'to_go, rollout["mask"]).mean(-1)'): (
        "rlkit: credit gave the advantage the shape (8,), and it is learned step by step: "
        "give one for each step, (8, 46)"
    ),
}


@pytest.mark.parametrize(("right", "wrong"), MISTAKES)
def test_a_mistake_in_a_step_is_one_line(
    right: str, wrong: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    file = tmp_path / "mine.py"
    assert right in file.read_text()
    file.write_text(file.read_text().replace(right, wrong))
    assert run.main([f"algo={file}", "env=cartpole", "iterations=1", f"out={tmp_path / 'run'}"]) == 2
    assert capsys.readouterr().err.endswith(f"{MISTAKES[right, wrong]}\n")


def test_single_steps_for_a_policy_that_reads_whole_rows_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace("minibatches, whole_rows)", "minibatches, False)"))
    few = ["iterations=1", "evaluation_episodes=2", f"out={tmp_path / 'run'}"]
    assert run.main([f"algo={file}", "env=cartpole", "policy.memory=gru", *few]) == 2
    assert "rlkit: the buffer gives single steps, and this policy reads whole rows: " in capsys.readouterr().err


@pytest.mark.parametrize(("more", "warned"), [("(network.actor(env), 1e-3)", 1), ("(network.q_network(env), 1e-3)", 0)])
def test_two_networks_that_learn_from_the_same_weights_are_said(
    more: str, warned: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each call of network begins alike, and two critics of one kind would stay equal."""
    assert new.main(["algo", "mine", f"out={tmp_path}"]) == 0
    file = tmp_path / "mine.py"
    file.write_text(file.read_text().replace("adam(self.policy, config)", f"adam(self.policy, config, {more})"))
    few = ["iterations=1", "evaluation_episodes=2", f"out={tmp_path / 'run'}"]
    assert run.main([f"algo={file}", "env=cartpole", *few]) == 0
    said = "two networks of Algorithm learn from the same first weights [64, 4]"
    assert capsys.readouterr().err.count(said) == warned


def test_what_inherits_the_interface_in_place_of_an_algorithm_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.py").write_text(INHERITED)
    assert run.main([f"algo={tmp_path}/mine.py", "env=cartpole", f"out={tmp_path / 'run'}"]) == 2
    assert "/mine.py: Mine has no __init__, rollout, loss: write it, or inherit it from" in capsys.readouterr().err


OWN_POLICY = """
import torch
from rlkit import policies, seeding


class Actor(policies.PolicyModule):
    def __init__(self, env, network):
        super().__init__(seeding.generator(env.seed, "action"))
        layer = torch.nn.utils.skip_init(torch.nn.Linear, 4, network.hidden[0], bias=False)
        torch.nn.init.orthogonal_(layer.weight)
        self.out = torch.nn.Linear(network.hidden[0], 2)
        self.layers = torch.nn.Sequential(layer, torch.nn.Tanh(), self.out)

    def act(self, observation, greedy=False):
        return self.layers(observation).argmax(-1) if greedy else self.draw(observation)

    def draw(self, observation):
        return torch.distributions.Categorical(logits=self.layers(observation)).sample()

    def evaluate(self, batch):
        log_p = self.layers(batch["observation"]).log_softmax(-1)
        return {"log_prob": policies.pick(log_p, batch["action"]), "entropy": -(log_p.exp() * log_p).sum(-1)}

    def record(self, batch):
        return super().record(batch) | {"log_prob": self.evaluate(batch)["log_prob"]}

"""


def test_encoders_that_read_one_file_begin_alike_on_purpose(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "net.py").write_text(
        "import torch\n\ndef make(space):\n    net = torch.nn.Linear(4, 3)\n"
        "    net.load_state_dict({'weight': torch.arange(12.0).view(3, 4), 'bias': torch.ones(3)})\n    return net\n"
    )
    assemble(config.read(["algo=ppo", "env=cartpole", f"policy.encoder={tmp_path / 'net.py'}", "policy.share=none"]))
    assert "first weights" not in capsys.readouterr().err


def test_layers_that_torch_copies_begin_alike_without_a_word(capsys: pytest.CaptureFixture[str]) -> None:
    blocks = torch.nn.TransformerEncoder(torch.nn.TransformerEncoderLayer(4, 2, 8, batch_first=True), 2)
    assert torch.equal(blocks.layers[0].linear1.weight, blocks.layers[1].linear1.weight)
    check_apart(SimpleNamespace(optimizer=torch.optim.SGD(blocks.parameters())))
    assert not capsys.readouterr().err


@pytest.mark.parametrize("kept", [False, True])
def test_a_key_that_a_policy_of_ones_own_does_not_read_is_refused(
    kept: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that keeps the keys may read them later."""
    monkeypatch.chdir(tmp_path)
    assert new.main(["algo", "mine"]) == 0
    text = Path("mine.py").read_text(encoding="utf-8").replace("network.actor(env)", "Actor(env, network)")
    text = text.replace("self.optimizer =", "self.network, self.optimizer = network,") if kept else text
    Path("mine.py").write_text(text.replace("@dataclass", f"{OWN_POLICY}\n@dataclass", 1), encoding="utf-8")
    words = ["algo=./mine.py", "env=cartpole", "iterations=1", "policy.hidden=8", "evaluation_episodes=2"]
    assert run.main([*words, "policy.init=orthogonal", "out=a"]) == 0
    capsys.readouterr()
    assert run.main([*words, "policy.activation=relu", "out=b"]) == (0 if kept else 2)
    told = "policy.activation=relu does nothing: ./mine.py does not read network.activation; leave it out"
    assert (told in capsys.readouterr().err) is not kept


def test_a_make_of_ones_own_may_copy_the_keys_of_the_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All keys count as read: what is done with the copy, nobody knows."""
    monkeypatch.chdir(tmp_path)
    assert new.main(["algo", "mine"]) == 0
    text = Path("mine.py").read_text(encoding="utf-8").replace("network.actor(env)", "Actor(env, twin(network))")
    twin = "def twin(keys):\n    import copy, pickle\n    return pickle.loads(pickle.dumps(copy.deepcopy(keys)))\n"
    Path("mine.py").write_text(text.replace("@dataclass", f"{OWN_POLICY}\n{twin}\n@dataclass", 1), encoding="utf-8")
    words = ["algo=./mine.py", "env=cartpole", "iterations=1", "policy.hidden=8", "evaluation_episodes=2"]
    assert run.main([*words, "policy.activation=relu", "out=a"]) == 0
