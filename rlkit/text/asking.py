"""How a problem becomes a prompt: as plain text, or as a conversation through the model's chat template."""

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
BETWEEN = "\n\n"  # in plain text, separates examples
ANSWERED, SAID = "what the assistant answered", "what the other side said"  # placeholders in templates
EDGES = ' "a"\n '  # shows what a template does to a content


@runtime_checkable
class Chats(Writes, Protocol):
    """Renders conversations as prompts."""

    @property
    def chats(self) -> bool:
        """Whether there is a chat template."""
        ...

    def chat(self, conversations: Sequence[Sequence[Turn]], options: Mapping[str, object]) -> list[Prompt]:
        """A prompt for each conversation, up to the beginning of the answer; options: more template variables."""
        ...


@dataclass(frozen=True)
class Asking:
    """The text around a question, and the end of an answer."""

    prompt: str | None = None  # None: the question alone; in plain text, a line break follows
    chat: bool | None = False  # None: if the model has a chat template
    system: str = ""
    shots: tuple[Problem, ...] = ()  # worked examples before the question
    stop: tuple[str, ...] = ()  # strings that end an answer
    options: Mapping[str, object] = field(default_factory=dict)  # more variables of the template

    def __post_init__(self) -> None:
        prompt = self.template(chat=True)
        if QUESTION not in prompt:
            raise UserError(f"env.prompt={prompt!r} does not contain {{question}}; put it where the question belongs")
        for key, text in (("prompt", prompt), ("system", self.system), *(("stop", text) for text in self.stop)):
            try:
                text.encode()
            except UnicodeEncodeError:  # Python's form of bytes that are not UTF-8
                raise UserError(f"env.{key}={ascii(text)[:80]} is not Unicode text; write it in UTF-8") from None
        if "" in self.stop:
            raise UserError("env.stop has an empty text, which would end every answer at once: leave it out")
        if any("\ufffd" in text for text in self.stop):
            raise UserError("env.stop has a text with U+FFFD, which stands for half of a letter: leave it out")

    def template(self, chat: bool) -> str:
        """The text around the question."""
        return self.prompt if self.prompt is not None else QUESTION if chat else PROMPT

    def chats(self, policy: Plays) -> bool:
        """Whether this policy is prompted with chat turns."""
        able = isinstance(policy, Chats) and policy.chats
        return able if self.chat is None else self.chat

    def check(self, policy: Plays) -> None:
        """Refuse options for chat turns where there are no chat turns."""
        if not self.chats(policy) and (idle := [name for name in ("system", "options") if vars(self)[name]]):
            key = {"system": "env.system", "options": "env.chat_options"}[idle[0]]
            why = "with env.chat=false" if self.chat is False else "because the model has no chat template"
            raise UserError(f"{key} does nothing {why}: leave it out, or put the text into env.prompt")

    def prompts(self, problems: Sequence[Problem], policy: Plays) -> list[Prompt]:
        """The prompt of each problem for this policy."""
        if not self.chats(policy):
            if any(problem.turns for problem in (*problems, *self.shots)):
                raise UserError(
                    "a prompt of chat messages needs a model with a chat template, and env.chat=auto or true: give "
                    "such a model with policy.model, or prompts that are texts"
                )
            template = self.template(chat=False)
            before = [joined([filled(template, x.question), data(x.worked), BETWEEN]) for x in self.shots]
            return [joined([*before, filled(template, problem.question)]) for problem in problems]
        if not isinstance(policy, Chats):
            raise UserError(f"a {type(policy).__name__} has no chat template; give env.chat=false")
        shown = [turn for x in self.shots for turn in (*self._turns(x), Turn("assistant", data(x.worked)))]
        return policy.chat([self._conversation(problem, shown) for problem in problems], self.options)

    def _conversation(self, problem: Problem, shown: Sequence[Turn]) -> list[Turn]:
        """System message, examples and the problem's turns; a system message of the problem replaces ours."""
        own, ours = problem.turns[: _begins(problem)], [Turn("system", Prompt(self.system))] if self.system else []
        return [*(own or ours), *shown, *self._turns(problem)]

    def _turns(self, problem: Problem) -> list[Turn]:
        """The turns of a problem without its system message."""
        if not problem.turns:
            return [Turn("user", filled(self.template(chat=True), problem.question))]
        return [*problem.turns[_begins(problem) :]]

    def replies(self, policy: Plays) -> Callable[[str], Prompt]:
        """A function from a reply to the text between two turns of this policy.

        In chat turns: the template's text from the end of the assistant's turn to the beginning of the next one. In
        plain text: the text around a question. The reply itself is marked as data.
        """
        if not self.chats(policy):
            return partial(filled, self.template(chat=False))
        if not isinstance(policy, Chats):
            raise UserError(f"a {type(policy).__name__} has no chat template; give env.chat=false")
        fill = partial(filled, self.template(chat=True))
        frame, told = _between(policy, [data(SAID), fill(EDGES)], self.options)
        before, found, after = frame.partition(SAID)
        if not found:
            raise UserError(
                "the chat template leaves out what was said before: give env.chat=false, or another template"
            )
        if joined([before, fill(EDGES), after]) == told:
            return lambda text: joined([before, fill(text), after])
        if joined([before, fill(EDGES).trimmed(), after]) == told:  # many templates leave out blanks at the ends
            return lambda text: joined([before, fill(text).trimmed(), after])
        return lambda text: _between(policy, [fill(text)], self.options)[0]

    def before_stop(self, completions: Sequence[str]) -> list[str]:
        """The part of each completion before its first stop string."""
        return [cut(text, self.stop) for text in completions]

    def settled(self, policy: Plays) -> dict[str, object]:
        """The keys that were left open, with their values for this policy."""
        chat = self.chats(policy)
        return {"chat": chat, "prompt": self.template(chat)}

    def manner(self, policy: Plays) -> str:
        """How a policy with a chat template is prompted, for messages."""
        if not isinstance(policy, Chats) or not policy.chats:
            return ""
        given = [f"examples: {len(self.shots)}"] if self.shots else []
        given += ["a system message"] if self.system else []
        if self.chats(policy):
            return ", ".join(["chat turns by the model's template (env.chat=true)", *given])
        return "plain text, although the model has a chat template (env.chat=false)"


def _between(policy: Chats, contents: Sequence[Prompt], options: Mapping[str, object]) -> list[Prompt]:
    """What the template writes behind an assistant's turn where a user says these next; nothing where it forgets."""
    said, answered = Turn("user", data(SAID)), Turn("assistant", data(ANSWERED))
    wholes = policy.chat([[said, answered, Turn("user", content)] for content in contents], options)
    return [whole.part(len(whole) - len(whole.partition(ANSWERED)[2])) for whole in wholes]


def _begins(problem: Problem) -> int:
    """The index at which a conversation begins, after its own system message."""
    return int(bool(problem.turns) and problem.turns[0].role == "system")


def take_examples(problems: Sequence[Problem], count: int, seed: int) -> tuple[tuple[Problem, ...], list[Problem]]:
    """Examples drawn by the seed, and the remaining problems to train on, none of which repeats an example."""
    draw, order = Draw(derive(seed, "examples")), list(problems)
    chosen: dict[str, Problem] = {}
    while order and len(chosen) < count:
        at = int(draw.random() * len(order))
        order[at], order[-1] = order[-1], order[at]
        problem = order.pop()
        chosen.setdefault(problem.question, problem)
    return tuple(chosen.values()), [problem for problem in problems if problem.question not in chosen]
