"""How a run in a program is followed and stopped, and what it leaves alone."""

import copy
import importlib.util
import os
import pickle
import random
import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.resuming import differences
from support.trained import PPO, SHORT

import rlkit
from rlkit import signals
from rlkit.python.surroundings import ATTENTION, PRODUCTS, Turns, flushes, usual
from rlkit.recording import checkpoint


@pytest.mark.slow
def test_threads_signals_and_global_random_states_stay_as_they_were(tmp_path: Path) -> None:
    class Reckless(importlib.import_module("gymnasium").Env):  # type: ignore[misc, name-defined]
        observation_space = importlib.import_module("gymnasium").spaces.Box(-1, 1, (1,), np.float32)
        action_space = importlib.import_module("gymnasium").spaces.Discrete(2)

        def reset(self, **_: Any) -> Any:
            random.seed(0)
            np.random.seed(0)
            torch.manual_seed(0)
            return np.zeros(1, np.float32), {}

        def step(self, action: int) -> Any:
            return np.zeros(1, np.float32), random.random(), True, False, {}

    def state() -> Any:
        numbers = [getattr(signal, name) for name in ("SIGINT", *signals.LEAVE)]
        drawn = np.random.get_state()
        handlers = [signal.getsignal(number) for number in numbers]
        return [torch.get_num_threads(), handlers, random.getstate(), drawn[1].tolist(), torch.get_rng_state().tolist()]

    torch.set_num_threads(3)
    try:
        before = state()
        found = rlkit.train("ppo", Reckless, quiet=True, out=tmp_path / "r", iterations=2, **SHORT)
        assert state() == before
        found.evaluate(episodes=2)
        rlkit.load(tmp_path / "r", env=Reckless).policy.predict(np.zeros(1))
        found.resume(iterations=3, quiet=True)
        assert state() == before
    finally:
        torch.set_num_threads(1)


def precisions() -> list[str]:
    return [kind.fp32_precision for kind in PRODUCTS]


@pytest.mark.parametrize("precision", ["high", "medium"])
def test_a_run_multiplies_in_whole_float32(precision: str) -> None:
    torch.set_float32_matmul_precision(precision)
    try:
        before = precisions()
        with usual():
            assert {*precisions()} == {"ieee", "none"}
        assert precisions() == before
        assert torch.get_float32_matmul_precision() == precision
    finally:
        torch.set_float32_matmul_precision("highest")


def test_a_run_convolves_in_whole_float32() -> None:
    """As torch.backends.fp32_precision sets it for each kind of product."""
    convolution = torch.backends.mkldnn.conv  # type: ignore[attr-defined]  # torch's stubs lack it
    convolution.fp32_precision = "bf16"
    try:
        with usual():
            assert convolution.fp32_precision == "ieee"
        assert convolution.fp32_precision == "bf16"
    finally:
        convolution.fp32_precision = "none"


def test_a_precision_for_all_kinds_is_the_callers_alone_to_change_afterwards() -> None:
    """No kind keeps it as one of its own, which what the caller then sets for all would not reach."""
    every = PRODUCTS[0]
    every.fp32_precision = "tf32"
    try:
        with usual():
            assert {*precisions()} <= {"ieee", "none"}
        assert every.fp32_precision == torch.backends.mkldnn.conv.fp32_precision == "tf32"  # type: ignore[attr-defined]
    finally:
        every.fp32_precision = "none"
    assert {*precisions()} <= {"ieee", "none"}


def test_a_run_chooses_among_all_kernels_and_keeps_the_smallest_numbers() -> None:
    """Another kernel for attention rounds otherwise."""
    torch.backends.cuda.enable_flash_sdp(False)
    torch.set_flush_denormal(True)
    try:
        with usual():
            assert all(enabled() for enabled, _ in ATTENTION)
            assert not flushes()
        assert [enabled() for enabled, _ in ATTENTION] == [False, True, True, True]
        assert flushes()
    finally:
        torch.backends.cuda.enable_flash_sdp(True)
        torch.set_flush_denormal(False)
    with usual():
        pass
    assert all(enabled() for enabled, _ in ATTENTION) and not flushes()


@pytest.mark.slow
def test_off_the_main_thread_it_is_the_same_run(trained: dict[str, rlkit.Run], tmp_path: Path) -> None:
    found: list[rlkit.Run] = []
    words = {"quiet": True, "out": tmp_path / "r", **PPO}
    thread = threading.Thread(target=lambda: found.append(rlkit.train("ppo", "cartpole", **words)))
    thread.start()
    thread.join()
    assert not differences(trained["ppo"].folder, found[0].folder)
    assert found[0].evaluate(episodes=2)


@pytest.mark.slow
def test_a_listener_hears_of_each_iteration_and_may_stop_the_run(tmp_path: Path) -> None:
    heard: list[dict[str, float]] = []

    def listen(metrics: dict[str, float]) -> bool:
        heard.append(metrics)
        return metrics["iteration"] == 2

    cut = rlkit.train("ppo", "cartpole", quiet=True, on_iteration=listen, out=tmp_path / "cut", **PPO)
    assert heard == cut.metrics and [line["env_steps"] for line in heard] == [256, 512]
    assert cut.summary is not None and not cut.summary["finished"] and "after" in cut.summary["evaluation"]
    whole = rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / "whole", **PPO)
    assert cut.resume(quiet=True) is cut and cut.summary["finished"]
    assert not differences(whole.folder, cut.folder)
    last = rlkit.train(
        "ppo", "cartpole", quiet=True, on_iteration=lambda x: x["iteration"] == 4, out=tmp_path / "4", **PPO
    )
    assert not differences(whole.folder, last.folder), "in the last iteration there is nothing left to stop"


@pytest.mark.parametrize(("answer", "stops"), [(12, False), ([1], False), ("done", False), (np.True_, True)])
def test_only_true_stops_the_run(answer: Any, stops: bool, tmp_path: Path) -> None:
    """`file.write` answers with a number, `ax.plot` with a list."""
    run = rlkit.train("ppo", "cartpole", quiet=True, on_iteration=lambda _: answer, out=tmp_path / "r", **PPO)
    assert run.summary is not None and run.summary["finished"] is not stops


def test_what_a_listener_raises_is_raised_and_the_run_can_go_on(tmp_path: Path) -> None:
    def fail(metrics: dict[str, float]) -> None:
        if metrics["iteration"] == 2:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        rlkit.train("ppo", "cartpole", quiet=True, on_iteration=fail, out=tmp_path / "r", **PPO)
    assert rlkit.load(tmp_path / "r").resume(quiet=True).summary


def test_a_run_that_was_open_is_read_anew_where_its_resume_was_stopped(tmp_path: Path) -> None:
    keys = {"quiet": True, "iterations": 1, "checkpoint_every": 1, "evaluation_episodes": 1, "threads": 1}
    run = rlkit.train("q_learning", "gridworld", out=tmp_path / "r", **keys)
    assert run.evaluate(1)["iteration"] == 1

    def stop(metrics: dict[str, float]) -> None:
        if metrics["iteration"] == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run.resume(quiet=True, iterations=4, on_iteration=stop)
    assert run.evaluate(1)["iteration"] == 2, "of the newest checkpoint"


def test_one_thread_trains_at_a_time(tmp_path: Path) -> None:
    """Both would draw from the global random generators; a listener may train in the same thread."""
    told: list[str] = []

    def train(name: str, **keys: Any) -> None:
        try:
            rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / name, **{**PPO, "iterations": 1}, **keys)
        except rlkit.UserError as error:
            told.append(str(error))

    def listen(_: dict[str, float]) -> None:
        train("inner")
        thread = threading.Thread(target=train, args=("beside",))
        thread.start()
        thread.join()

    train("first", on_iteration=listen)
    assert [text.partition(":")[0] for text in told] == [
        "another thread of this program is training, and both would draw from the same random generators"
    ]
    train("beside")  # nothing is left of what was refused
    assert len(told) == 1 and all(rlkit.load(tmp_path / name).summary for name in ("first", "inner", "beside"))


@pytest.mark.slow
def test_ctrl_c_keeps_the_run_and_twice_stops_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def interrupt(times: int) -> Any:
        def at_two(metrics: dict[str, float]) -> None:
            for _ in range(times if metrics["iteration"] == 2 else 0):
                os.kill(os.getpid(), signal.SIGINT)

        return at_two

    once = rlkit.train("ppo", "cartpole", on_iteration=interrupt(1), out=tmp_path / "once", **PPO)
    said = capsys.readouterr().out
    assert f"\ninterrupted; continue with:\n  python -m rlkit.run resume={tmp_path / 'once'}\n" in said
    assert once.summary is not None and once.summary["iterations"] == 2
    with pytest.raises(KeyboardInterrupt, match="continue with"):
        rlkit.train("ppo", "cartpole", quiet=True, on_iteration=interrupt(2), out=tmp_path / "twice", **PPO)
    twice = rlkit.load(tmp_path / "twice").resume(quiet=True)
    assert not differences(once.resume(quiet=True).folder, twice.folder)


@pytest.mark.slow
def test_quiet_prints_nothing_whatever_happens(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    def interrupt(metrics: dict[str, float]) -> None:
        if metrics["iteration"] == 2:
            os.kill(os.getpid(), signal.SIGINT)

    found = rlkit.train("ppo", "cartpole", quiet=True, on_iteration=interrupt, out=tmp_path / "r", **PPO)
    for path in (tmp_path / "r" / "checkpoints").glob("*"):
        path.unlink()
    (tmp_path / "r" / "summary.json").unlink()
    found.resume(quiet=True)
    assert capfd.readouterr() == ("", "")
    found.resume(iterations=5)
    assert "env_steps" in capfd.readouterr().out


@pytest.mark.parametrize("name", signals.LEAVE)
def test_a_signal_to_leave_reaches_the_handler_of_whoever_called(name: str, tmp_path: Path) -> None:
    heard: list[int] = []
    number = signal.Signals[name]
    before = signal.signal(number, lambda number, _: heard.append(number))
    try:
        found = rlkit.train(
            "ppo",
            "cartpole",
            quiet=True,
            on_iteration=lambda metrics: os.kill(os.getpid(), number) if metrics["iteration"] == 2 else None,
            out=tmp_path / "r",
            **PPO,
        )
    finally:
        signal.signal(number, before)
    assert heard == [number] and found.summary is None
    assert checkpoint.load(found.folder)["progress"]["iteration"] == 2


@pytest.mark.slow
def test_measurements_and_predictions_of_a_run_in_several_threads_take_turns(tmp_path: Path) -> None:
    """They share its environment and its generators."""
    run = rlkit.train("ppo", "cartpole", quiet=True, out=tmp_path / "run", **(PPO | {"iterations": 2}))
    asked = ["test", "validation"] * 4

    def measured(split: str) -> Any:
        run.policy.predict([0.0, 0.0, 0.1, 0.0], greedy=False)
        return {key: x for key, x in run.evaluate(20, split).items() if key in ("greedy", "sampled")}

    one_by_one = [measured(split) for split in asked]
    with ThreadPoolExecutor(4) as threads:
        assert list(threads.map(measured, asked)) == one_by_one


@pytest.mark.slow
def test_a_measurement_may_wait_for_a_thread_that_asks_another_run(trained: dict[str, rlkit.Run]) -> None:
    """As an environment does whose opponent or whose judge is a policy of rlkit, behind a time limit."""
    folder = trained["ppo"].folder
    run, opponent, other = (rlkit.load(folder) for _ in range(3))
    with run._turns, ThreadPoolExecutor(1) as threads:
        assert threads.submit(opponent.policy.predict, [0.0, 0.0, 0.1, 0.0]).result() in (0, 1)
        copied = pickle.loads(pickle.dumps(run))
        assert threads.submit(copied.policy.predict, [0.0, 0.0, 0.1, 0.0]).result() in (0, 1)
    assert copy.deepcopy(other.policy).predict([0.0, 0.0, 0.1, 0.0]) in (0, 1)


def test_a_fork_does_not_wait_for_a_thread_that_it_lacks() -> None:
    turns, held, over = Turns(), threading.Event(), threading.Event()

    def hold() -> None:
        with turns:
            held.set()
            over.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    if not (child := os.fork()):
        with turns:
            os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    over.set()
    thread.join()
