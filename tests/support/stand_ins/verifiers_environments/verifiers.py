"""What docs/formats.md uses of verifiers up to 0.3, as its documentation has it: an Environment, its rubric, turns."""

import importlib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from datasets import Dataset

State = dict[str, Any]
Messages = list[Any]


class ClientConfig:
    """What a client for completions is made from."""


@dataclass
class AssistantMessage:
    content: str
    role: str = "assistant"

    def __getitem__(self, key: str) -> str:
        return str(vars(self)[key])


class Rubric:
    """Functions that name what they need of a state, `async` or not, and their weights."""

    def __init__(self, funcs: list[Callable[..., Any]], weights: list[float] | None = None) -> None:
        self.funcs, self.weights = funcs, weights or [1.0] * len(funcs)

    async def score_rollout(self, state: State) -> None:
        state["metrics"] = {}
        for function in self.funcs:
            known = {key: state[key] for key in inspect.signature(function).parameters}
            found = function(**known)
            state["metrics"][function.__name__] = float(await found if inspect.isawaitable(found) else found)
        state["reward"] = sum(w * x for w, x in zip(self.weights, state["metrics"].values(), strict=True))


class MultiTurnEnv:
    def __init__(self, dataset: Dataset, rubric: Rubric, max_turns: int = -1) -> None:
        self.rubric, self.max_turns = rubric, max_turns
        rows = [
            row | {"example_id": at, "prompt": [{"role": "user", "content": row["question"]}]}
            for at, row in enumerate(dataset)
        ]
        self.dataset = Dataset.from_list(rows)

    def get_dataset(self) -> Dataset:
        return self.dataset

    async def init_state(self, input: State, client: object, model: str) -> State:
        assert client is not None
        return dict(input) | {"client": client, "trajectory": [], "completion": None, "final_env_response": None}

    async def setup_state(self, state: State) -> None:
        """For subclasses."""

    async def env_response(self, messages: Messages, state: State) -> Messages:
        raise NotImplementedError

    async def is_completed(self, state: State) -> bool:
        over = 0 < self.max_turns <= len(state["trajectory"])
        return over or state["final_env_response"] is not None

    async def get_prompt_messages(self, state: State) -> Messages:
        if not state["trajectory"]:
            return list(state["prompt"])
        last = state["trajectory"][-1]
        messages = [*last["prompt"], *last["completion"]]
        return [*messages, *await self.env_response(messages, state)]

    async def render_completion(self, state: State) -> None:
        last = state["trajectory"][-1]
        whole = [*last["prompt"], *last["completion"], *(state["final_env_response"] or [])]
        state["completion"] = whole[len(state["prompt"]) :]


class SingleTurnEnv(MultiTurnEnv):
    def __init__(self, dataset: Dataset, rubric: Rubric) -> None:
        super().__init__(dataset, rubric, max_turns=1)


def load_environment(env_id: str) -> MultiTurnEnv:
    made: MultiTurnEnv = importlib.import_module(env_id).load_environment()
    return made
