"""A saved state of a text environment whose counters count nothing is refused, whatever its checksum says."""

import pytest

from rlkit.settings import plugins


@pytest.mark.parametrize("name", ["gsm8k", "guess", "preferences"])
def test_counters_that_count_nothing_are_refused(name: str) -> None:
    plugin = plugins.load("envs", name)
    env = plugin.make(plugin.Config(), 0, "cpu")
    state = env.state_dict()
    env.load_state_dict(state)
    counters = [key for key, value in state.items() if isinstance(value, int)]
    assert counters
    for key in counters:
        for value in (-1, 1.0, True, "1"):
            with pytest.raises(TypeError, match="counts nothing"):
                env.load_state_dict({**state, key: value})
