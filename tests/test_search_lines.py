"""Command lines from a seed: exit 0, or one line and exit 2; no traceback, no hang, nothing written elsewhere.

A failure prints the line and how to run it alone. `-m slow` tries thousands of lines, `-m campaign` tens of thousands.
"""

import os
from itertools import islice
from pathlib import Path

import pytest
from support.forked import Warm
from support.lines import Lines
from support.searching import search

SEED, QUICK, SLOW, SHARDS = 0, 40, 2000, 4
CAMPAIGN = 20_000  # lines of other seeds, in as many parts as there are seeds
REAL = 100  # of the slow ones, as processes of their own

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="children are forked and watched as on Linux")


def test_a_sample_of_command_lines_keeps_every_promise(warm: Warm, runs: dict[str, Path]) -> None:
    search(warm, runs, Lines(SEED), range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_thousands_of_command_lines_keep_every_promise(warm: Warm, runs: dict[str, Path], shard: int) -> None:
    size = SLOW // SHARDS
    search(warm, runs, Lines(SEED), range(shard * size, (shard + 1) * size))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(2))
def test_a_hundred_of_them_do_as_processes_of_their_own(warm: Warm, runs: dict[str, Path], shard: int) -> None:
    """What forking could hide: how Python starts, reads its words and ends."""
    chosen = [line for line in islice(Lines(SEED), SLOW) if line.stage == "whole" and not line.long]
    every = len(chosen) // REAL
    search(warm, runs, iter(chosen[: REAL * every : every][shard::2]), range(REAL // 2), real=True)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 9))
def test_a_campaign(warm: Warm, runs: dict[str, Path], seed: int) -> None:
    search(warm, runs, Lines(seed), range(CAMPAIGN // 8))


def test_the_slow_lines_reach_every_pair_every_key_and_most_corners() -> None:
    """What is generated is read from the plug-ins: a new one, or a new key, is searched from its first day."""
    lines = Lines(SEED)
    generated = list(islice(lines, SLOW))
    tried = lines.report()
    print(tried)
    assert tried["pair"][0] == tried["pair"][1]
    assert tried["key"][0] == tried["key"][1]
    assert tried["corner"][0] > 0.7 * tried["corner"][1]
    assert tried["strange"][0] > 0.25 * tried["strange"][1]
    assert sum(line.stage == "whole" for line in generated) > 0.5 * SLOW


def test_a_seed_gives_the_same_lines_again() -> None:
    assert list(islice(Lines(3), 50)) == list(islice(Lines(3), 50)) != list(islice(Lines(4), 50))
