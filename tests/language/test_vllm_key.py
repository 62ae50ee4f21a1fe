"""A vLLM server that asks for a key: the environment has it. A stand-in takes vLLM's place."""

from pathlib import Path

import pytest
from support.vllm_stand_in import served

from rlkit import run
from rlkit.errors import EngineFailed, UserError
from rlkit.language.network import LanguageNetwork


def test_a_server_with_a_key_gets_the_one_of_the_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """It is stored and shown nowhere, not even where the server repeats it."""
    monkeypatch.setenv("VLLM_API_KEY", "my-secret-7")
    words = ["algo=grpo", "env=gsm8k", "iterations=1", "env.rows=2", "algo.group=2", "env.max_tokens=8"]
    words += ["evaluation_episodes=1", "validation_episodes=1", "policy.engine=vllm", f"out={tmp_path / 'run'}"]
    with served() as server:
        server.key = "my-secret-7"
        assert run.main([*words, f"policy.server={server.url}"]) == 0 and len(server.asked) >= 4
        server.failing = "/version"
        server.answer = lambda *_: (500, {"error": "what is my-secret-7?"})
        assert run.main([f"resume={tmp_path / 'run'}", "iterations=2"]) == 2
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert len(written) > 5 and not any(b"secret-7" in content for content in written)
    said = "".join(capfd.readouterr())
    assert "what is ***?" in said and "secret-7" not in said


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("", "refused /v1/models with status 401, as VLLM_API_KEY in the environment is not set: set it to the server"),
        ("other-7", "status 401, as VLLM_API_KEY in the environment is another key: set it to the server's$"),
        ("schlüssel-7", "^VLLM_API_KEY in the environment has characters beyond printable ASCII: correct or unset"),
        ("two\nlines-7", "^VLLM_API_KEY in the environment has characters beyond printable ASCII: correct or unset"),
    ],
)
def test_a_server_that_asks_for_another_key_is_one_line(key: str, line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VLLM_API_KEY", key)
    with served() as server:
        server.key = "my-secret-7"
        with pytest.raises((EngineFailed, UserError), match=line) as told:
            LanguageNetwork(engine="vllm", server=server.url).build(0)
    assert "-7" not in str(told.value).replace(server.url, "")
