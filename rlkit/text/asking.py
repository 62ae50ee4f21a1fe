"""How a problem is put to a model: as plain text, or as turns of a conversation through its own chat template."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, runtime_checkable

from rlkit.api import Plays, UserError, Writes
from rlkit.prompts import QUESTION, Prompt, Turn, cut, data, filled, joined
from rlkit.seeding import derive
from rlkit.text.problems import Problem
from rlkit.text.templates import Draw

PROMPT = "{question}\n"
BETWEEN = "\n\n"  # plain text: after each example
ANSWERED, SAID = "what the assistant answered", "what the other side said"  # stand for texts in a template


@runtime_checkable
class Chats(Writes, Protocol):
    """Knows how a conversation is put to it."""

    @property
    def chats(self) -> bool:
        """Whether it has a chat template."""
        ...

    def chat(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> list[Prompt]:
        """A prompt for each conversation, up to where the answer begins; options: further variables of the template."""
        ...


@dataclass(frozen=True)
class Asking:
    """What stands around a question, and where the answer ends."""

    prompt: str | None = None  # None: the question alone, and in plain text a line break
    chat: bool | None = False  # None: where the model has a chat template
    system: str = ""
    shots: tuple[Problem, ...] = ()  # worked examples that come before
    stop: tuple[str, ...] = ()  # strings that end an answer
    options: Mapping[str, object] = field(default_factory=dict)  # further variables of the template

    def __post_init__(self) -> None:
        prompt = self.template(chat=True)
        if QUESTION not in prompt:
            raise UserError(f"env.prompt={prompt!r} does not contain {{question}}; put it where the question belongs")
        for key, text in (("prompt", prompt), ("system", self.system), *(("stop", text) for text in self.stop)):
            try:
                text.encode()
            except UnicodeEncodeError:  # how Python holds bytes that are not UTF-8
                raise UserError(f"env.{key}={ascii(text)[:80]} is not Unicode text; write it in UTF-8") from None
        if "" in self.stop:
            raise UserError("env.stop has an empty text, which would end every answer at once: leave it out")
        if any("\ufffd" in text for text in self.stop):
            raise UserError("env.stop has a text with U+FFFD, which stands for half of a letter: leave it out")

    def template(self, chat: bool) -> str:
        """What is written around the question."""
        return self.prompt if self.prompt is not None else QUESTION if chat else PROMPT

    def chats(self, policy: Plays) -> bool:
        """Whether this policy is asked in turns."""
        able = isinstance(policy, Chats) and policy.chats
        return able if self.chat is None else self.chat

    def check(self, policy: Plays) -> None:
        """Refuse what means something in turns only, where there are none."""
        if not self.chats(policy) and (idle := [name for name in ("system", "options") if vars(self)[name]]):
            key = {"system": "env.system", "options": "env.chat_options"}[idle[0]]
            why = "with env.chat=false" if self.chat is False else "because the model has no chat template"
            raise UserError(f"{key} does nothing {why}: leave it out, or put the text into env.prompt")

    def prompts(self, problems: Sequence[Problem], policy: Plays) -> list[Prompt]:
        """The prompt of each problem, for this policy."""
        if not self.chats(policy):
            if any(problem.turns for problem in (*problems, *self.shots)):
                raise UserError(
                    "a prompt of chat messages needs a model with a chat template, and env.chat=auto or true: give "
                    "such a model with policy.model, or prompts that are texts"
                )
            template = self.template(chat=False)
            before = [joined([filled(template, x.question), data(x.answer), BETWEEN]) for x in self.shots]
            return [joined([*before, filled(template, problem.question)]) for problem in problems]
        if not isinstance(policy, Chats):
            raise UserError(f"a {type(policy).__name__} has no chat template; give env.chat=false")
        shown = [turn for x in self.shots for turn in (*self._turns(x), Turn("assistant", data(x.answer)))]
        return policy.chat([self._conversation(problem, shown) for problem in problems], self.options)

    def _conversation(self, problem: Problem, shown: Sequence[Turn]) -> list[Turn]:
        """A system message, examples, and what is asked; a conversation's own system message comes in place of ours."""
        own, ours = problem.turns[: _begins(problem)], [Turn("system", Prompt(self.system))] if self.system else []
        return [*(own or ours), *shown, *self._turns(problem)]

    def _turns(self, problem: Problem) -> list[Turn]:
        """What is asked, without the system message before it."""
        if not problem.turns:
            return [Turn("user", filled(self.template(chat=True), problem.question))]
        return [*problem.turns[_begins(problem) :]]

    def replies(self, policy: Plays) -> Callable[[str], Prompt]:
        """What stands between two turns of this policy where the other side says a text.

        In turns it is what the chat template writes from the end of the assistant's turn to where the next one begins;
        in plain text what stands around a question. What is said is data.
        """
        if not self.chats(policy):
            return partial(filled, self.template(chat=False))
        if not isinstance(policy, Chats):
            raise UserError(f"a {type(policy).__name__} has no chat template; give env.chat=false")
        said = Turn("user", filled(self.template(chat=True), SAID))
        (whole,) = policy.chat([[said, Turn("assistant", data(ANSWERED)), said]], self.options)
        between, found, after = whole.rpartition(ANSWERED)[2].partition(SAID)
        if ANSWERED not in whole or not found:
            raise UserError(
                "the chat template leaves out what was said before: give env.chat=false, or another template"
            )
        return lambda text: joined([between, data(text), after])

    def before_stop(self, completions: Sequence[str]) -> list[str]:
        """What counts of each completion: what stands before the first stop string."""
        return [cut(text, self.stop) for text in completions]

    def settled(self, policy: Plays) -> dict[str, object]:
        """The keys that were left open, as they are for this policy."""
        chat = self.chats(policy)
        return {"chat": chat, "prompt": self.template(chat)}

    def manner(self, policy: Plays) -> str:
        """How a policy with a chat template is asked, in words."""
        if not isinstance(policy, Chats) or not policy.chats:
            return ""
        given = [f"examples: {len(self.shots)}"] if self.shots else []
        given += ["a system message"] if self.system else []
        if self.chats(policy):
            return ", ".join(["chat turns by the model's template (env.chat=true)", *given])
        return "plain text, although the model has a chat template (env.chat=false)"


def _begins(problem: Problem) -> int:
    """Where a conversation begins: behind its own system message."""
    return int(bool(problem.turns) and problem.turns[0].role == "system")


def take_examples(problems: Sequence[Problem], count: int, seed: int) -> tuple[tuple[Problem, ...], list[Problem]]:
    """Worked examples, drawn by the seed, and the problems that are left to train on: none that asks the same."""
    draw, order = Draw(derive(seed, "examples")), list(problems)
    chosen: dict[str, Problem] = {}
    while order and len(chosen) < count:
        at = int(draw.random() * len(order))
        order[at], order[-1] = order[-1], order[at]
        problem = order.pop()
        chosen.setdefault(problem.question, problem)
    return tuple(chosen.values()), [problem for problem in problems if problem.question not in chosen]
