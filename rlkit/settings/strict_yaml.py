"""YAML as people write a configuration: no tags, no aliases, no key twice, and a bound on its depth.

Words stand for what YAML 1.2's core schema says: true and null, and neither on, no nor 2026-01-01, which are texts.

A file of a stranger's with a few aliases of aliases stands for terabytes; what rlkit writes has none.
"""

import re
from collections.abc import Hashable
from typing import Any

import yaml

LONGEST = 4300  # digits of a number: Python reads no more on a command line either
LONGEST_CODED = 1000  # of one that is not decimal: no message could show a longer one as a number
CODED = {"0o": 8, "0x": 16}
DEEPEST = 20  # lists and mappings inside each other
CORE = {  # YAML 1.2.2, section 10.3.2; an int may be read as a float, so it comes first
    "null": (re.compile(r"~|null|Null|NULL|"), "~nN"),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), "tTfF"),
    "int": (re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"), "-+0123456789"),
    "float": (
        re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"),
        "-+.0123456789",
    ),
}


def refused(what: str, event: Any) -> yaml.YAMLError:  # Any: PyYAML says less of events than they have
    return yaml.composer.ComposerError(problem=what, problem_mark=event.start_mark)


class Loader(yaml.SafeLoader):
    """PyYAML's safe loader, less what a configuration does not need."""

    depth = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]  # PyYAML's has no types
        if isinstance(event, yaml.AliasEvent):
            raise refused("aliases (*name) are not read", event)
        if isinstance(event, yaml.ScalarEvent | yaml.CollectionStartEvent) and event.tag is not None:
            raise refused("tags (!name) are not read: write the value alone", event)
        if self.depth >= DEEPEST:
            raise refused(f"nested more than {DEEPEST} deep", event)
        self.depth += 1
        try:
            return super().compose_node(parent, index)
        finally:
            self.depth -= 1

    def construct_number(self, node: yaml.ScalarNode) -> float:
        most = LONGEST_CODED if node.value[:2] in CODED else LONGEST
        if len(node.value) > most:
            problem = f"a number of more than {most:,} digits"
            raise yaml.constructor.ConstructorError(problem=problem, problem_mark=node.start_mark)
        if node.tag != "tag:yaml.org,2002:int":
            return self.construct_yaml_float(node)
        return self.construct_whole(node)

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        return int(node.value, CODED.get(node.value[:2], 10))

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        found: dict[Hashable, Any] = super().construct_mapping(node, deep)
        if len(found) < len(node.value):
            raise yaml.constructor.ConstructorError(problem="a key is given twice", problem_mark=node.start_mark)
        return found


for kind in ("int", "float"):
    Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_number)


class Dumper(yaml.SafeDumper):
    """Quotes texts that would be read as anything else, by YAML 1.1 or 1.2."""


def _text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    """A line break of Unicode is escaped: elsewhere it is read as a blank."""
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"' if "\x85" in text else None)


Dumper.add_representer(str, _text)

Loader.yaml_implicit_resolvers = {}
for kind, (form, first) in CORE.items():
    exact = re.compile(rf"(?:{form.pattern})\Z")
    for resolver in (Loader, Dumper):
        resolver.add_implicit_resolver(f"tag:yaml.org,2002:{kind}", exact, [*first, *([""] if kind == "null" else [])])


class TextLoader(Loader):
    """Reads lists and mappings of texts: no text becomes a number or a truth value."""


TextLoader.yaml_implicit_resolvers = {}


class OldLoader(Loader):
    """Reads what was written before 0.5, by YAML 1.1: there 1e5 and 08 are texts, and were written without quotes."""

    def construct_whole(self, node: yaml.ScalarNode) -> int:
        return int(self.construct_yaml_int(node))


OldLoader.yaml_implicit_resolvers = yaml.SafeLoader.yaml_implicit_resolvers


def load(text: str, texts: bool = False, old: bool = False) -> Any:  # Any: whatever YAML holds
    """What a text stands for; `texts` leaves numbers as they are written, `old` reads as rlkit 0.4 did.

    Raises: yaml.YAMLError for all that cannot be read, of which `reason` tells one line.
    """
    try:
        return yaml.load(text, TextLoader if texts else OldLoader if old else Loader)
    except (ValueError, OverflowError, RecursionError) as error:  # such as a number of 5,000 digits
        raise yaml.YAMLError(str(error)) from None


def dump(value: object) -> str:
    """The text of plain values, which `load` reads as it was, and so does any other reader."""
    return yaml.dump(value, Dumper=Dumper, sort_keys=False, allow_unicode=True)


def reason(error: Exception) -> str:
    """What is wrong, in one line without the place."""
    told = error.problem if isinstance(error, yaml.MarkedYAMLError) else None
    return " ".join(str(told or error).split())


def lines(error: Exception) -> list[int]:
    """The line that is wrong, counted from 1, where it is known."""
    mark = error.problem_mark if isinstance(error, yaml.MarkedYAMLError) else None
    return [] if mark is None else [mark.line + 1]
