"""Types of configuration fields; a value outside the range is refused with one line."""

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le, Lt


class Boundless:
    """In a field's type: infinity, or a whole number of any size, means something. Elsewhere such are refused."""


Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Decay = Annotated[float, Gt(0), Lt(1)]
Limit = Annotated[float, Gt(0), Boundless()]  # inf: none
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Seed = Annotated[int, Ge(0), Boundless()]
Schedule = Literal["constant", "linear"]


@dataclass(frozen=True)
class Place:
    """The mark of a field whose text names something outside the project.

    It makes the text absolute in config.yaml, lets `resume` notice a change, and asks for trust where it is code.
    """

    kind: Literal["file", "folder", "code"]
    words: tuple[str, ...] = ()  # texts that name none, such as tiny
    beside: tuple[str, ...] = ()  # files that are read with it where they lie beside it


File = Annotated[str, Place("file")]
Folder = Annotated[str, Place("folder")]  # with a model: config.json, *.safetensors
Code = Annotated[str, Place("code")]  # FILE.py:NAME, MODULE:NAME or model:FOLDER; commas between several
