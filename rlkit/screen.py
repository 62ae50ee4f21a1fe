"""Draws tables, bars and wrapped text in a terminal, with rich, through the filter of `rlkit.terminal`."""

import sys
from collections.abc import Iterable
from typing import IO, cast

from rich import console
from rich.console import ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from rlkit.terminal import Out, harmless


class Screen(console.Console):
    """rich's console for standard output; only rich's own control characters reach the terminal."""

    def __init__(self, quiet: bool = False, force_jupyter: bool | None = None) -> None:
        out = cast("IO[str]", Out(sys.stdout))  # typeshed gives io.TextIOBase no such name
        super().__init__(file=out, quiet=quiet, highlight=False, force_jupyter=force_jupyter)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))

    def command(self, text: str) -> None:
        """Print a command to be copied on a line of its own, without wrapping."""
        self.print(Text(f"  {text}"), soft_wrap=True)
