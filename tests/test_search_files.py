"""Damaged and hostile files from a seed: a run, a model or a source with one file gone wrong, and a command.

Exit 0, or one line and exit 2; no traceback,
    no hang; nothing of a stranger's is executed and nothing is written outside
of the run's folder. A failure prints the file, what is wrong with it, and how to run it alone.
"""

import os
from itertools import islice
from pathlib import Path

import pytest
from support.forked import Warm
from support.hostile import Cases
from support.searching import search

SEED, QUICK, SLOW, SHARDS = 0, 30, 300, 2
CAMPAIGN = 4000

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="children are forked and watched as on Linux")


def test_a_sample_of_damaged_files_keeps_every_promise(warm: Warm, runs: dict[str, Path]) -> None:
    search(warm, runs, Cases(SEED), range(QUICK))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
def test_hundreds_of_damaged_files_keep_every_promise(warm: Warm, runs: dict[str, Path], shard: int) -> None:
    size = SLOW // SHARDS
    search(warm, runs, Cases(SEED), range(shard * size, (shard + 1) * size))


@pytest.mark.campaign
@pytest.mark.parametrize("seed", range(1, 5))
def test_a_campaign(warm: Warm, runs: dict[str, Path], seed: int) -> None:
    search(warm, runs, Cases(seed), range(CAMPAIGN // 4))


def test_the_slow_cases_damage_every_file_in_most_ways() -> None:
    cases = Cases(SEED)
    list(islice(cases, SLOW))
    tried = cases.report()
    assert tried["file"][0] == tried["file"][1]
    assert tried["way"][0] > 0.6 * tried["way"][1]
