"""What docs/formats.md uses of verifiers 0.4, as its documentation has it: a Taskset, its tasks and their rewards."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Generic, TypeVar

from pydantic import BaseModel, ConfigDict

DataT = TypeVar("DataT")
TaskT = TypeVar("TaskT")
ConfigT = TypeVar("ConfigT")


class TaskConfig(BaseModel):
    pass


class TasksetConfig(BaseModel):
    task: TaskConfig = TaskConfig()


class AgentConfig(BaseModel):
    pass


class AgentInfo(BaseModel):
    config: AgentConfig


class TaskData(BaseModel):
    model_config = ConfigDict(frozen=True)
    idx: int | None = None
    prompt: str | list[dict[str, str]] | None = None


class TraceTask(BaseModel):
    type: str
    data: TaskData


class Trace(BaseModel):
    task: TraceTask
    agent: AgentInfo
    root_reply: str | None = None
    rewards: dict[str, float] = {}

    @property
    def last_reply(self) -> str:
        return (self.root_reply or "").strip()

    @property
    def reward(self) -> float:
        return sum(self.rewards.values())


def reward(function: Callable[..., Any]) -> Callable[..., Any]:
    function.reward = True  # type: ignore[attr-defined]
    return function


class Task(Generic[DataT]):
    def __init__(self, data: Any, config: TaskConfig) -> None:
        self.data, self.config = data, config

    async def score(self, trace: Trace) -> None:
        for name, function in vars(type(self)).items():
            if hasattr(function, "reward"):
                trace.rewards[name] = await function(self, trace)


class Taskset(Generic[TaskT, ConfigT]):
    def __init__(self, config: TasksetConfig) -> None:
        self.config = config

    def load(self) -> Iterable[Any]:
        raise NotImplementedError

    def __iter__(self) -> Iterator[Any]:
        for at, task in enumerate(self.load()):
            yield type(task)(task.data.model_copy(update={"idx": at}), task.config)
