"""What several files need."""

from collections.abc import Iterator

import pytest
from support.vllm_stand_in import StandIn, served


@pytest.fixture(scope="module")
def server() -> Iterator[StandIn]:
    with served() as found:
        yield found
