"""docs/your_own.md does what it says: its files are written, its commands and its Python are run, in their order."""

import re
import shlex
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from support.processes import run
from tensordict import TensorDict
from torch import Tensor
from torch.testing import assert_close

from rlkit import losses, policies, returns
from rlkit.api import Algorithm, Metrics
from rlkit.scaffold import write
from rlkit.settings import config, plugins
from rlkit.settings.assemble import assemble

ROOT = Path(__file__).resolve().parent.parent
PAGE = (ROOT / "docs" / "your_own.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+) ?(\S*)\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
SMALL = {  # words of the page that make a run long, and what stands for them here
    "env_steps=40_000": "env_steps=2_000 evaluation_episodes=5",
    "env_steps=16_000": "env_steps=2_000 evaluation_episodes=5",
    "seed=0,1,2": "seed=0,1",
    "iterations=12": "iterations=1 evaluation_episodes=8 validation_episodes=8",
}


def shortened(command: str) -> list[str]:
    for long, short in SMALL.items():
        command = command.replace(long, short)
    python, *words = shlex.split(command)
    assert python == "python"
    return words


def test_what_is_shortened_stands_on_the_page() -> None:
    assert all(long in PAGE for long in SMALL)


@pytest.mark.slow
def test_the_page_works_from_top_to_bottom(tmp_path: Path) -> None:
    pytest.importorskip("torchrl")
    kinds = [kind for kind, _, _ in BLOCKS]
    assert len(kinds) == PAGE.count("\n```") // 2 and set(kinds) == {"console", "python", "json"}
    for kind, name, text in BLOCKS:
        if name:
            (tmp_path / name).write_text(text, encoding="utf-8")
        elif kind == "python":
            run(tmp_path, "-c", text)
        else:
            for command in text.splitlines():
                run(tmp_path, *shortened(command))


def test_paths_of_code_and_of_data_are_absolute_in_the_configuration(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the page says; a dotted name stays as it is."""
    assert "(`env.reward`) and data (`env.source`) are absolute in config.yaml" in PAGE
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def f(prompts, completions, **columns):\n    return [0.0 for _ in completions]\n")
    rows = "".join(f'{{"prompt": "{n}?", "answer": "{n}"}}\n' for n in range(20))
    Path("rows.jsonl").write_text(rows)
    words = ["algo=grpo", "env=text", "env.source=./rows.jsonl", "env.reward=./mine.py:f,rlkit.text.grader:strict"]
    text = assemble(config.read(words)).text
    assert f"source: {tmp_path}/rows.jsonl" in text and f"{tmp_path}/mine.py:f,rlkit.text.grader:strict" in text


def test_the_page_counts_the_lines_of_the_file() -> None:
    template = (ROOT / "rlkit" / "templates" / "algo.py.txt").read_text(encoding="utf-8")
    assert f"`my_algo.py` is REINFORCE with PPO's clip, {len(template.splitlines())} lines." in PAGE


def test_the_methods_of_the_page_count_the_tokens_that_the_model_wrote(tmp_path: Path) -> None:
    """docs/turns.md: γ does not count what others wrote. Four steps with a gap of one, a reward of 1 at the end."""
    write("algo", "my_algo", tmp_path)
    (tmp_path / "my_critic.py").write_text(next(text for _, name, text in BLOCKS if name == "my_critic.py"))
    mask = torch.tensor([[True, False, True, True]])
    end, reward = torch.tensor([[False, False, False, True]]), torch.tensor([[0.0, 0.0, 0.0, 1.0]])
    to_go = torch.tensor([[0.25, 0.25, 0.5, 1.0]])
    for name in ("my_algo", "my_critic"):
        module = plugins.load("algorithms", str(tmp_path / f"{name}.py"))
        given = {"reward": reward, "done": end, "mask": mask, "value": torch.zeros(1, 4)}
        algo = SimpleNamespace(config=module.Config(gamma=0.5))
        found = module.make.credit(algo, TensorDict(given, [1, 4]))
        assert_close(found["advantage"][mask], returns.standardize(to_go, mask)[mask])
    assert_close(found["return"][mask], to_go[mask])


def test_the_targets_of_the_replayed_example_bootstrap_unless_the_task_ended(tmp_path: Path) -> None:
    """Against numpy, on steps of which some ended and some were cut short; then the target follows by tau."""
    text = next(text for _, name, text in BLOCKS if name == "my_dqn.py")
    assert sum(bool(line.strip()) for line in text.splitlines()) <= 30
    (tmp_path / "my_dqn.py").write_text(text)
    algo = assemble(config.read([f"algo={tmp_path}/my_dqn.py", "env=cartpole", "algo.gamma=0.5", "algo.tau=0.25"])).algo
    with torch.no_grad():
        for p in algo.target.parameters():
            p += 0.1
    end, draw = torch.tensor([True, False, False, True]), torch.Generator().manual_seed(0)
    now, after = torch.randn(2, 4, 4, generator=draw)
    step = {"observation": now, "next_observation": after, "action": torch.tensor([0, 1, 1, 0]), "terminated": end}
    batch = TensorDict(step | {"reward": torch.arange(4.0), "weight": torch.full((4,), 0.25)}, [4])
    loss, _ = algo.loss(batch)
    chosen, ahead = (x.detach().double().numpy() for x in (algo.policy(now), algo.target(after)))
    error = np.arange(4) + 0.5 * ~end.numpy() * ahead.max(1) - chosen[np.arange(4), [0, 1, 1, 0]]
    huber = np.where(abs(error) < 1, error**2 / 2, abs(error) - 0.5)
    assert_close(loss.item(), huber.mean(), rtol=1e-5, atol=1e-6)
    algo.after_step([])
    assert all(torch.allclose(t - p, torch.tensor(0.075), atol=1e-6) for t, p in pairs(algo))


def pairs(algo: Algorithm) -> list[tuple[torch.Tensor, torch.Tensor]]:
    return list(zip(algo.target.parameters(), algo.policy.parameters(), strict=True))


class Wider(plugins.load("algorithms", "grpo").GRPO):  # type: ignore[misc]  # loaded by name
    """GRPO with a term that counts in rows without advantage, too."""

    def loss(self, batch: TensorDict) -> tuple[Tensor, Metrics]:
        loss, metrics = super().loss(batch)
        return loss - losses.weighted(self.policy.evaluate(batch)["entropy"], batch["weight"]), metrics


def test_a_loss_of_ones_own_in_the_grpo_family_gets_the_rows_without_advantage() -> None:
    """The shipped loss leaves them out, as they add nothing to it."""
    grpo, cartpole = plugins.load("algorithms", "grpo"), plugins.load("envs", "cartpole")
    rows = []
    for made in (grpo.GRPO, Wider):
        env = cartpole.make(cartpole.Config(rows=4), seed=0, device="cpu")
        algo = made(grpo.Config(group=4), env, policies.Network(hidden=(8,)))
        with torch.no_grad():
            rollout = algo.rollout(env)
            rollout["score"][:2] = 1.0
            algo.buffer.extend(algo.credit(rollout))
        rows.append(sum(map(len, algo.buffer)))
    assert rows[0] <= 8 and rows[1] == 16
