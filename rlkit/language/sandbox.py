"""The process that renders chat templates, with limits of time and memory.

A template is untrusted code. It may loop forever or build a text of a gigabyte. Nothing inside a process can stop that,
so templates are rendered in a separate process, which imports nothing but jinja2.
"""

import json
import re
import sys
from contextlib import suppress
from datetime import datetime
from typing import Any

import jinja2
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

TODAY = datetime(2024, 7, 26, 12)  # the date that Llama's templates fall back to
ADDRESS = re.compile(r"0x[0-9a-f]{6}", re.IGNORECASE)  # first digits; the template may add text after them
PRINTED = re.compile(rf" at ({ADDRESS.pattern})", re.IGNORECASE)


class Generation(Extension):
    """{% generation %} marks the assistant's text for training on it; here its content is just rendered.

    What it sets ends with it, as in transformers.
    """

    tags = {"generation"}  # noqa: RUF012  # as jinja2 declares it

    def parse(self, parser: jinja2.parser.Parser) -> jinja2.nodes.Node:
        line = next(parser.stream).lineno
        return jinja2.nodes.Scope(parser.parse_statements(("name:endgeneration",), drop_needle=True), lineno=line)


class Names(Namespace):
    """A namespace without names that begin with an underscore: those give access to Python internals."""

    def __init__(*args: Any, **keys: Any) -> None:  # Any: as jinja2's own, so that a key may be called self
        self, *rest = args
        for name in dict(*rest, **keys):
            Names.check(name)
        Namespace.__init__(self, *rest, **keys)

    def __setitem__(self, name: str, value: object) -> None:
        Names.check(name)
        super().__setitem__(name, value)

    @staticmethod
    def check(name: str) -> None:
        if name.startswith("_"):
            raise jinja2.exceptions.SecurityError(f"a namespace with the name {name!r}")


def refuse(message: str) -> None:
    """The function that a template calls if it cannot render a conversation."""
    raise jinja2.exceptions.TemplateError(message)


def as_json(x: object, ensure_ascii: bool = False, **form: Any) -> str:  # Any: what json.dumps takes
    return json.dumps(x, ensure_ascii=ensure_ascii, **form)


def day(form: str) -> str:
    """A fixed date, so that runs are repeatable. %-d is %d without its zero, also where the system lacks it."""
    return TODAY.strftime(re.sub(r"%-(\w)", lambda code: TODAY.strftime(f"%{code[1]}").lstrip("0") or "0", form))


def environment() -> ImmutableSandboxedEnvironment:
    """The settings with which `transformers` renders chat templates, without random functions: runs are repeatable."""
    found = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    found.filters["tojson"] = as_json
    del found.filters["random"], found.globals["lipsum"]
    found.globals.update(raise_exception=refuse, strftime_now=day, namespace=Names)
    return found


def bound(seconds: int, room: int) -> None:
    """Limit the seconds and bytes of this process, and forbid it to write files."""
    with suppress(ImportError):  # Windows has no such limits; there only the parent limits the time
        import resource

        spent = resource.getrusage(resource.RUSAGE_SELF)
        time = int(spent.ru_utime + spent.ru_stime) + seconds
        limits = {resource.RLIMIT_CPU: time, resource.RLIMIT_AS: room, resource.RLIMIT_CORE: 0}
        for what, most in (limits | {resource.RLIMIT_FSIZE: 0}).items():
            with suppress(ValueError, OSError):  # this system lacks this limit
                resource.setrlimit(what, (most, most))


def check_addresses(text: str, given: set[str]) -> None:
    """Refuse a text with the memory address of an object (Python's default text of an object): it differs in each run.

    given: addresses that the conversation or the template itself contains, for example in a question about a program.
    """
    for m in PRINTED.finditer(text):
        if m[1].lower() not in given:
            what = text[max(0, m.start() - 60) : m.start()].rpartition("<")[2]
            raise ValueError(f"it writes the address of a {what}, which is another each time")


def rendered(asked: dict[str, Any]) -> list[str]:
    """The text of each conversation. Any: JSON values."""
    template = environment().from_string(asked["template"])
    texts, left, given = [], asked["longest"], {x.lower() for x in ADDRESS.findall(json.dumps(asked))}
    for messages in asked["conversations"]:
        parts, room = [], min(left, asked["prompt"])
        for part in template.generate(messages=messages, **asked["names"]):
            left, room = left - len(part), room - len(part)
            if room < 0:
                most, what = (asked["longest"], "") if left < 0 else (asked["prompt"], " for a prompt")
                raise ValueError(f"it writes more than {most:,} characters{what}")
            parts.append(part)
        texts.append("".join(parts))
        check_addresses(texts[-1], given)
    return texts


def main() -> None:
    """Read the request from stdin and write the answer to stdout."""
    asked = json.load(sys.stdin)
    bound(asked["seconds"], asked["room"])
    try:
        answer: dict[str, object] = {"texts": rendered(asked)}
    except MemoryError:
        answer = {"error": "it takes too much memory"}
    except jinja2.exceptions.TemplateSyntaxError as error:
        answer = {"error": f"line {error.lineno}: {error.message}"}
    except Exception as error:  # untrusted code may raise anything
        answer = {"error": str(error)[:300] or type(error).__name__}
    json.dump(answer, sys.stdout)
