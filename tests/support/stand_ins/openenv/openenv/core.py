"""What docs/formats.md uses of OpenEnv 0.10, as its documentation has it: a client. The game behind it plays here."""

from dataclasses import dataclass
from typing import Any


@dataclass
class StepResult:
    observation: dict[str, Any]
    reward: float | None = None
    done: bool = False


class GenericEnvClient:
    def __init__(self, base_url: str) -> None:
        assert base_url.startswith("http://")

    def sync(self) -> "GenericEnvClient":
        return self

    def reset(self, seed: int) -> StepResult:
        self.left = 2
        return StepResult({"prompt": f"seed {seed}: 2 left"})

    def step(self, action: dict[str, str]) -> StepResult:
        assert isinstance(action["message"], str)
        self.left -= 1
        return StepResult({"prompt": f"{self.left} left"}, float(self.left == 0), self.left == 0)

    def close(self) -> None:
        pass
