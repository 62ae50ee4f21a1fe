"""Types of configuration fields; a value outside the range is refused with one line."""

from typing import Annotated, Literal

from annotated_types import Ge, Gt, Le

Positive = Annotated[float, Gt(0)]
NonNegative = Annotated[float, Ge(0)]
Fraction = Annotated[float, Ge(0), Le(1)]
Count = Annotated[int, Ge(1)]
Natural = Annotated[int, Ge(0)]
Schedule = Literal["constant", "linear"]
