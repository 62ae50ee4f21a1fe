"""A wait says how far it has come, and a bar shows that once the wait has lasted."""

import pytest
import torch
from rich.progress import Progress
from support.fakes import algorithm, cartpole

from rlkit.language import folders
from rlkit.language.generate import Prompts, Rule, chunks
from rlkit.policies import Network
from rlkit.recording import bars
from rlkit.waiting import advance, shown_by


def test_nobody_has_to_look() -> None:
    advance(1, 2)
    seen: list[tuple[int, int]] = []
    with shown_by(lambda done, total: seen.append((done, total))):
        advance(1, 2)
        with shown_by(lambda done, total: None):
            advance(2, 2)
    advance(3, 3)
    assert seen == [(1, 2)]


def test_episodes_and_answers_report_how_many_are_done() -> None:
    seen: list[tuple[int, int]] = []
    with shown_by(lambda done, total: seen.append((done, total))):
        env = cartpole(2, 20)
        env.evaluate(algorithm("ppo", env, Network()).policy, 5, "test")
    counts = [done for done, total in seen if total == 5]
    assert counts == sorted(counts) and counts[-1] == 5
    seen.clear()
    with shown_by(lambda done, total: seen.append((done, total))):
        for _ in chunks(Prompts([[1]] * 10, 2, Rule(1.0, True, ()), rows=8), 1, torch.device("cpu")):
            pass
    assert seen == [(4, 10), (8, 10), (10, 10)]


def test_only_a_bar_of_its_own_is_stopped_after_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bars, "PATIENCE", -1.0)
    monkeypatch.setenv("FORCE_COLOR", "1")  # a terminal, to rich
    with bars.bars("preparing"):
        advance(0, 2)
        advance(1, 2)
    with Progress(transient=True) as live:  # as the log has one, with the bar of the run
        wait = bars.WaitBar(live)
        for done in range(3):
            wait(done, 2)
        assert live.live.is_started


def test_a_model_that_is_loaded_reports_its_weights() -> None:
    seen: list[tuple[int, int]] = []
    with shown_by(lambda done, total: seen.append((done, total))):
        weights = sum(1 for _ in folders.read_decoder(folders.TINY).parameters())
    assert seen == [(i, weights) for i in range(weights + 1)]


def test_a_bar_appears_once_a_wait_has_lasted_and_goes_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 0.5, 2.0, 2.5, 3.0, 10.0, 10.5, 20.0])
    monkeypatch.setattr(bars.time, "monotonic", lambda: next(now))
    progress = Progress(disable=True)
    bar = bars.WaitBar(progress)
    rows = []
    for done, total in [(0, 4), (1, 4), (2, 4), (3, 4), (4, 4), (1, 2), (2, 2), (1, 9)]:
        bar(done, total)
        rows.append([(task.completed, task.total) for task in progress.tasks])
    assert rows == [[], [], [(2, 4)], [(3, 4)], [], [], [], []]
