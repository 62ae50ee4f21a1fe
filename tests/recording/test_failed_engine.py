"""A server that writes the text and goes away loses nothing: the iteration is repeated, wherever one runs by then."""

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.resuming import differences
from support.vllm_stand_in import StandIn, served

from rlkit import evaluate, run

WORDS = ["algo=grpo", "algo.group=2", "env=gsm8k", "env.rows=2", "env.max_tokens=6", "iterations=3"]
WORDS += ["checkpoint_every=100", "evaluation_episodes=2", "evaluations=0", "policy.engine=vllm"]


def failing_after(server: StandIn, rows: int) -> None:
    """Let the server answer so many completions more."""
    answer, left = server.answer, [rows]

    def some(path: str, body: object) -> object:
        if path == "/v1/completions":
            left[0] -= 1
            if left[0] < 0:
                return 503, {"error": {"message": "the engine is dead\x1b[31m"}}
        return answer(path, body)

    server.answer = some


@pytest.mark.slow
def test_a_server_that_goes_away_loses_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with served() as server:
        assert run.main([*WORDS, f"policy.server={server.url}", f"out={tmp_path / 'b'}"]) == 0
        header = capsys.readouterr().out
    assert f"vLLM 0.32.0 at {server.url}; its sums depend" in " ".join(header.split())
    with served() as server:
        failing_after(server, 16 + 2 + 4 + 4 + 4 + 1)  # to see which model it is, before.json, iterations
        capsys.readouterr()
        assert run.main([*WORDS, f"policy.server={server.url}", f"out={tmp_path / 'a'}"]) == 2
        said = capsys.readouterr().err
    assert said.startswith(f"rlkit: policy.server={server.url} refused /v1/completions with status 503: the engine is ")
    assert said.endswith(f"; fix it, then resume with: python -m rlkit.run resume={tmp_path / 'a'}\n")
    assert said.count("\n") == 1 and "\x1b" not in said
    last = json.loads((tmp_path / "a" / "metrics.jsonl").read_text().splitlines()[-1])
    assert last["doctor/engine_error"] == 1.0 and last["iteration"] == 3
    assert run.main([f"resume={tmp_path / 'a'}"]) == 2  # nobody is there
    with served() as server:
        assert run.main([f"resume={tmp_path / 'a'}", f"policy.server={server.url}"]) == 0
    assert differences(tmp_path / "a", tmp_path / "b") == []
    assert evaluate.main([str(tmp_path / "a"), "episodes=2"]) == 0  # which needs no server


@pytest.mark.parametrize("ahead", [[], ["policy.staleness=1"]])
@pytest.mark.slow
def test_a_run_that_has_failed_waits_for_no_answer(ahead: list[str], tmp_path: Path) -> None:
    """One row is refused; the others are answered when the run is over, and not before."""
    gate, lock, left = threading.Event(), threading.Lock(), [16 + 2 + 1]
    waited: list[bool] = []  # in vain, for the end of the run
    with served() as server:
        answer = server.answer

        def held(path: str, body: object) -> object:
            if path == "/v1/completions":
                with lock:
                    left[0] -= 1
                    last = left[0]
                if last == 0:
                    return 503, {"error": {"message": "the engine is dead"}}
                if last < 0 and not gate.wait(20):
                    waited.append(True)
            return answer(path, body)

        server.answer = held
        words = [*WORDS, *ahead, f"policy.server={server.url}", f"out={tmp_path / 'a'}"]
        with subprocess.Popen([sys.executable, "-m", "rlkit.run", *words], stdout=-3, stderr=subprocess.PIPE) as child:
            said = child.communicate()[1].decode()
            gate.set()
    assert child.returncode == 2 and said.count("\n") == 1 and "the engine is dead" in said
    assert not waited
