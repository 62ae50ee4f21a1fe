"""State that a checkpoint would lose is refused by name: before the run, or as soon as it changes."""

import random
import re
from collections import Counter
from operator import attrgetter
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from support.fakes import algorithm, cartpole, iterate
from support.state import CHANGING, LOST, OTHER, REPLACED, Helper, holding

from rlkit import buffers, loop, policies, run
from rlkit.api import UserError
from rlkit.attributes import can_be_saved
from rlkit.held import check_saved, fingerprints
from rlkit.progress import Progress, restore, save
from rlkit.recording import checkpoint
from rlkit.settings.config import Run


@pytest.mark.parametrize("what", LOST)
def test_state_that_would_be_lost_is_refused_by_name(what: str) -> None:
    algo, env = holding("memory", LOST[what]())
    algo.rollout = lambda env: pytest.fail("it began to play")
    words = (
        r"^Mine\.memory looks like state \(\w+\) and would not be saved: "
        r"write saved = \(\*QLearning\.saved, 'memory'\) in Mine"
    )
    if not can_be_saved(algo.memory):
        kind = type(algo.memory).__name__
        words += (
            rf", and keep numbers, texts, tensors or lists of them in place of memory, a {kind}( with \w+ inside)?, "
        )
        words += "which no checkpoint can hold"
    words += "$"
    with pytest.raises(UserError, match=words) as error:
        loop.train(algo, env, Run(iterations=1), SimpleNamespace(), Progress())
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("value", [None, "text", (1, 2), [0.5], {"a": {"b": [None]}}, torch.float32, max, slice(3)])
def test_what_holds_no_state_is_no_concern(value: Any, tmp_path: Path) -> None:
    algo, env = holding("memory", value)
    check_saved(algo, env)
    save(tmp_path, algo, env, Progress(held=fingerprints(algo, env)))


CANNOT = [
    ([torch.nn.Linear(2, 2)], "a list with Linear inside"),
    ({"one": torch.nn.Linear(2, 2)}, "a dict with Linear inside"),
    ([1.0, [{"pool": torch.nn.Linear(2, 2).state_dict()}]], "a list with OrderedDict inside"),
    (Helper(), "a Helper"),
    (max, "a builtin_function_or_method"),
    ([Helper()], "a list with Helper inside"),
    (np.ma.masked_array([1.0, 2.0], [False, True]), "a MaskedArray"),
]


@pytest.mark.parametrize(("value", "what"), CANNOT)
def test_what_is_declared_and_cannot_be_saved_is_refused(value: Any, what: str) -> None:
    algo, env = holding("memory", value, saved=("memory",))
    with pytest.raises(UserError, match=rf"^Mine\.saved names 'memory', {what}: only numbers, texts, tensors"):
        check_saved(algo, env)


def test_a_name_of_nothing_is_refused() -> None:
    algo, env = holding("memory", None, saved=("memroy",))
    with pytest.raises(UserError, match=r"^Mine\.saved names 'memroy', and there is no such attribute: remove it, or"):
        check_saved(algo, env)


def refused(folder: Path, algo: Any, env: Any, progress: Progress, name: str) -> None:
    """What has changed is told by its name, and the checkpoint before stays."""
    with pytest.raises(UserError, match=rf"^Mine\.{name} has changed since the run began and would not be saved"):
        save(folder, algo, env, progress)
    assert checkpoint.load(folder)["progress"]["iteration"] == 0


@pytest.mark.parametrize("what", CHANGING)
def test_whatever_changes_and_is_not_saved_is_refused_when_the_run_is_saved(what: str, tmp_path: Path) -> None:
    make, change = CHANGING[what]
    algo, env = holding("memory", make())
    check_saved(algo, env)
    progress = Progress(held=fingerprints(algo, env))
    algo.progress = 0.7  # the loop sets it anew
    save(tmp_path, algo, env, progress)
    change(algo.memory)
    refused(tmp_path, algo, env, progress, "memory")


@pytest.mark.parametrize("what", REPLACED)
def test_whatever_is_replaced_and_not_saved_is_refused_when_the_run_is_saved(what: str, tmp_path: Path) -> None:
    algo, env = holding("memory", REPLACED[what][0])
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.memory = REPLACED[what][1]
    refused(tmp_path, algo, env, progress, "memory")


@pytest.mark.parametrize("part", ["policy", "buffer", "window", "policy.q"])
def test_plain_attributes_of_what_is_saved_are_looked_at_too(part: str, tmp_path: Path) -> None:
    algo, env = holding("window", buffers.Window(1), saved=("window",))
    held = attrgetter(part)(algo)
    held.temp = 0
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    iterate(algo, env)  # what they do have in their state may change
    save(tmp_path, algo, env, progress)
    held.temp = 1
    refused(tmp_path, algo, env, progress, rf"{part}\.temp")


class Counting(buffers.Rollout):
    pass


class Slow(torch.optim.Adam):
    pass


@pytest.mark.parametrize("what", CHANGING)
@pytest.mark.parametrize("part", ["buffer.added", "optimizer.added", "optimizer._added"])
def test_what_a_subclass_adds_to_a_part_of_a_library_is_looked_at_too(part: str, what: str, tmp_path: Path) -> None:
    make, change = CHANGING[what]
    algo, env = holding("memory", None)
    kind = Counting(env.seed, 1, 1) if "buffer" in part else Slow([torch.nn.Parameter(torch.zeros(1))])
    vars(algo)[part.split(".")[0]] = kind
    added = vars(kind)[part.split(".")[1]] = make()
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    change(added)
    refused(tmp_path, algo, env, progress, re.escape(part))


@pytest.mark.parametrize("prioritized", [True, False])
def test_a_subclass_of_a_part_of_a_library_that_adds_nothing_is_of_no_concern(
    prioritized: bool, tmp_path: Path
) -> None:
    env = cartpole(3, step_limit=40)
    algo = algorithm("dqn", env, policies.Network(), prioritized=prioritized, warmup_steps=8, capacity=64, batch_size=4)
    vars(algo)["buffer"].__class__ = type("Mine", (type(algo.buffer),), {})
    algo.optimizer = type("Own", (torch.optim.Adam,), {})(algo.policy.parameters())
    progress = Progress(held=fingerprints(algo, env))
    torch.optim.lr_scheduler.StepLR(algo.optimizer, 1)  # leaves marks of its own
    for _ in range(12):
        iterate(algo, env)
    save(tmp_path, algo, env, progress)


class Counted(random.Random):
    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.count = 0


def test_what_a_class_adds_to_a_generator_is_refused_unless_it_is_named(tmp_path: Path) -> None:
    algo, env = holding("luck", Counted(0), saved=("luck",))
    progress = Progress(held=fingerprints(algo, env))
    algo.luck.gauss()  # which keeps the second of two numbers
    save(tmp_path, algo, env, progress)
    algo.luck.count += 1
    refused(tmp_path, algo, env, progress, r"luck\.count")
    algo, env = holding("luck", Counted(0), saved=("luck", "luck.count"))
    progress = Progress(held=fingerprints(algo, env))
    algo.luck.count += 1
    save(tmp_path, algo, env, progress)
    again, second = holding("luck", Counted(1), saved=("luck", "luck.count"))
    restore(tmp_path, again, second)
    assert again.luck.count == 1 and again.luck.gauss() == algo.luck.gauss()


def test_a_second_name_of_a_generators_bits_is_of_no_concern(tmp_path: Path) -> None:
    algo, env = holding("draw", np.random.default_rng(0), saved=("draw",))
    algo.bits = algo.draw.bit_generator
    progress = Progress(held=fingerprints(algo, env))
    algo.bits.random_raw()
    save(tmp_path, algo, env, progress)


def test_a_buffer_that_no_state_dict_holds_is_refused(tmp_path: Path) -> None:
    algo, env = holding("memory", None)
    algo.policy.register_buffer("average", torch.zeros(3), persistent=False)
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.policy.average += 1
    refused(tmp_path, algo, env, progress, r"policy\.average")


def test_all_that_is_missing_is_told_at_once_and_so_is_the_line_that_saves_it() -> None:
    algo, env = holding("critics", torch.nn.Linear(2, 2), saved=("count",))
    algo.count, algo.log_alpha = 3, torch.zeros(())
    with pytest.raises(
        UserError, match=r"Mine\.critics looks .*, Mine\.log_alpha looks like state \(Tensor\)"
    ) as error:
        check_saved(algo, env)
    line = str(error.value).partition("write ")[2].partition(" in Mine")[0]
    assert line == "saved = (*QLearning.saved, 'count', 'critics', 'log_alpha')"


def test_a_text_in_place_of_names_is_said_as_such() -> None:
    algo, env = holding("memory", None)
    type(algo).saved = "policy"
    with pytest.raises(
        UserError, match=r"^Mine\.saved is 'policy': write a tuple of names, saved = \(\*Algorithm\.saved"
    ):
        check_saved(algo, env)


@pytest.mark.parametrize("what", OTHER)
def test_what_becomes_something_else_and_could_not_be_put_back_is_refused(what: str, tmp_path: Path) -> None:
    first, then, was, now = OTHER[what]
    algo, env = holding("memory", first, saved=("memory",))
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    algo.memory = then
    with pytest.raises(UserError, match=rf"^Mine\.memory was {was} when the run began and is {now} now, which could"):
        save(tmp_path, algo, env, progress)


def test_what_was_declared_only_after_a_checkpoint_had_not_changed_before_it(tmp_path: Path) -> None:
    save(tmp_path, *holding("memory", Counter()), Progress())
    algo, env = holding("memory", Counter(), saved=("memory",))
    restore(tmp_path, algo, env)
    assert algo.memory == Counter()


def test_what_is_no_longer_declared_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """As where an attribute has another name in the code that goes on: only `trust=changed` comes here with it."""
    save(tmp_path, *holding("count", 3, saved=("count",)), Progress())
    algo, env = holding("counter", 0, saved=("counter",))
    restore(tmp_path, algo, env)
    assert algo.counter == 0
    line = "its checkpoint has count, which Mine no longer saves: the values are lost"
    assert capsys.readouterr().err == f"{tmp_path}: {line}\n"


@pytest.mark.parametrize("key", ["memory", "later"])
@pytest.mark.parametrize("what", LOST)
def test_state_that_came_only_later_is_refused_when_the_run_is_saved(what: str, key: str, tmp_path: Path) -> None:
    algo, env = holding("memory", None)
    progress = Progress(held=fingerprints(algo, env))
    save(tmp_path, algo, env, progress)
    vars(algo)[key] = LOST[what]()
    with pytest.raises(UserError, match=rf"^Mine\.{key} looks like state \(\w+\) and would not be saved"):
        save(tmp_path, algo, env, progress)


MINE = """
import torch
from rlkit.algorithms import q_learning

Config = q_learning.Config


class Mine(q_learning.QLearning):
    {saved}
    def __init__(self, config, env, network):
        super().__init__(config, env, network)
        self.average = torch.nn.Linear(1, 1)


make = Mine
"""


@pytest.mark.parametrize("saved", ["", "saved = (*q_learning.QLearning.saved, 'average')\n"])
def test_a_plug_in_that_would_lose_its_state_ends_in_one_line(saved: str, tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "mine.py").write_text(MINE.format(saved=saved))
    keys = [f"algo={tmp_path / 'mine.py'}", "env=frozenlake", "iterations=2", "evaluation_episodes=2", "threads=1"]
    assert run.main([*keys, f"out={tmp_path / 'r'}"]) == (0 if saved else 2)
    said = capsys.readouterr().err
    assert ("Mine.average looks like state (Linear)" in said) == (not saved)
    assert bool((tmp_path / "r" / "checkpoints").exists()) == bool(saved)


def test_a_mode_that_was_left_is_told_once_and_by_the_outermost_module(tmp_path: Path) -> None:
    algo, env = holding("world", torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Dropout()), saved=("world",))
    progress = Progress(held=fingerprints(algo, env))
    algo.world.eval()
    words = r"^Mine\.world went from \.train\(\) to \.eval\(\) or back since the run began, and the mode would"
    with pytest.raises(UserError, match=words):
        save(tmp_path, algo, env, progress)
    algo.world.train()
    save(tmp_path, algo, env, progress)
