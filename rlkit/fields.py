"""Types of configuration fields; a value outside the range is refused with one line."""

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
