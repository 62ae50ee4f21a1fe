"""Rows of your own task: a prompt, as text or as messages of a conversation, and any other columns."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from rlkit.errors import UserError
from rlkit.prompts import Role, Turn, data
from rlkit.text.grader import BUILT_IN, gradable
from rlkit.text.problems import Problem
from rlkit.text.sources import Row, kind_of, told

ROLES: tuple[Role, ...] = get_args(Role)
RESERVED = ("prompts", "completions")  # arguments of reward functions beside the columns
TOLD = ("tools", "chat_template_kwargs")  # columns that TRL passes to the chat template


@dataclass(frozen=True, slots=True)
class Task(Problem):
    """A row: reward functions receive its columns unchanged, and nothing else."""

    @property
    def worked(self) -> str:
        """The answer with the white space at its ends, which belongs to the text behind the prompt."""
        given = self.columns.get("answer")
        return given if isinstance(given, str) else self.answer

    def given(self) -> Mapping[str, object]:
        return self.columns


def tasks_from(rows: list[Row]) -> list[Problem]:
    """Problems from rows with `prompt`: text, or messages as in TRL. `answer` is the reference: text or number.

    Raises: UserError that names the first invalid row.
    """
    return [_task(where, row) for where, row in rows]


def check_answers(problems: Sequence[Problem], names: str, source: str, key: str = "env.reward") -> None:
    """Refuse rows without an answer that the built-in rewards can compare with.

    names: rewards, as the key gives them; those of the user's own compare with what they like.
    """
    for name in [name.strip() for name in names.split(",") if name.strip() in BUILT_IN]:
        for problem in problems:
            if not problem.answer:
                raise UserError(
                    f"{source}: {name} compares with a right answer, and the row {_shown(problem.question)} has no "
                    "'answer' that is a text or a number; give every row one, or a reward function of your own: "
                    f"{key}=./mine.py:function"
                )
            if not gradable(name, problem.answer):
                raise UserError(
                    f"{source}: the answer {_shown(problem.answer)} is not one number, which {name} needs; write it as "
                    f"'#### N' or as a number, or give {key}=boxed or ./mine.py:function"
                )


def _task(where: str, row: dict[str, object]) -> Task:
    if taken := sorted({*RESERVED} & row.keys()):
        raise UserError(f"{where}: {' and '.join(taken)}: rewards take an argument of that name; rename it")
    prompt = row.get("prompt")
    turns = prompt_turns(where, prompt) if isinstance(prompt, list) else ()
    if not isinstance(prompt, list) and not (isinstance(prompt, str) and prompt.strip()):
        found = "is missing" if "prompt" not in row else f"is {_shown(prompt)}"
        split = "; of its 'messages', write the last one's text as 'answer', the others as 'prompt'"  # as TRL has them
        there = f"(this one has: {_shown(', '.join(row))}){split if 'messages' in row else ''}"
        raise UserError(
            f"{where}: 'prompt' {found}; every row needs a text there, or a list of messages "
            f"{{'role': ..., 'content': ...}} {there}"
        )
    text = prompt if isinstance(prompt, str) else "\n".join(f"{turn.role}: {turn.content}" for turn in turns)
    columns = {key: value for key, value in row.items() if key != "prompt"}
    return Task(text, told(row.get("answer")).strip(), kind_of(row), columns, turns)


def conversation(where: str, key: str, messages: object) -> tuple[Turn, ...]:
    """The turns in a field of a row that is a list of messages."""
    listed = messages if isinstance(messages, list) else []
    return tuple(_turn(f"{where}: message {number} of {key!r}", each) for number, each in enumerate(listed, 1))


def prompt_turns(where: str, messages: list[object]) -> tuple[Turn, ...]:
    """The turns of a row's prompt, which must end with a message of the user."""
    turns = conversation(where, "prompt", messages)
    if not turns:
        raise UserError(f"{where}: 'prompt' is an empty list; give it messages, the last of them of the user")
    if turns[-1].role != "user":
        raise UserError(
            f"{where}: the last message of 'prompt' is of the {turns[-1].role}; a prompt ends with what the user says"
        )
    return turns


def refuse_told(where: str, row: Mapping[str, object]) -> None:
    """Refuse a row that is learned from and says what its chat template should read beside the messages."""
    if given := [key for key in TOLD if row.get(key)]:
        raise UserError(f"{where}: {given[0]!r} is not given to the chat template here; leave it out")


def _turn(what: str, message: object) -> Turn:
    if not isinstance(message, dict):
        raise UserError(f"{what} is {_shown(message)}; give an object with 'role' and 'content'")
    role, content = message.get("role"), message.get("content")
    found: Role | None = next((each for each in ROLES if each == role), None)
    if found is None:
        raise UserError(f"{what} has the role {_shown(role)}; allowed are {', '.join(ROLES)}")
    if not isinstance(content, str) or not content.strip():
        raise UserError(f"{what} has the content {_shown(content)}; every message needs a text there")
    more = [key for key, value in message.items() if key not in ("role", "content") and value is not None]
    if more:
        raise UserError(f"{what} has {_shown(', '.join(more))}, too; only its role and content are read: leave it out")
    return Turn(found, data(content))


def _shown(x: object) -> str:
    """A value as messages show it, in one short line."""
    try:
        text = json.dumps(x, default=str)
    except ValueError:  # Python prints no number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 60 else f"{text[:57]}..."
