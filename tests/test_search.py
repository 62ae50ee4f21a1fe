"""Command lines, and damaged or hostile files, from a seed: what breaks a promise is printed with how to run it alone.

Exit 0, or one line and exit 2; no traceback, no hang; nothing of a stranger runs and nothing is written outside of the
run folder. `-m slow` tries thousands, `-m campaign` tens of thousands of other seeds.
"""

import os
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest
from support.forked import Warm
from support.hostile import Cases
from support.hostile_folders import FolderCases
from support.lines import Lines
from support.searching import held, search

SEED = 0
SHARDS = 4  # parts that may run at once
SEEDS = range(1, 9)  # of a campaign
REAL = 100  # of the slow lines, as processes of their own


class Searched(NamedTuple):
    source: type[Lines] | type[Cases]
    quick: int
    slow: int
    campaign: int


SEARCHED = {
    "lines": Searched(Lines, 24, 2400, 20_000),
    "files": Searched(Cases, 16, 300, 4000),
    "folders": Searched(FolderCases, 0, 200, 4000),  # to make the folders takes too long for the quick tests
}

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="children are forked and watched as on Linux")


@pytest.fixture(scope="session")
def there(warm: Warm, runs: dict[str, Path], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Those runs, a finished comparison and a finished search."""
    return runs | held(warm, tmp_path_factory.mktemp("held"))


@pytest.mark.parametrize("kind", ["lines", "files"])
def test_a_sample_keeps_every_promise(warm: Warm, runs: dict[str, Path], kind: str) -> None:
    search(warm, runs, SEARCHED[kind].source(SEED), range(SEARCHED[kind].quick))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("kind", SEARCHED)
def test_many_keep_every_promise(warm: Warm, there: dict[str, Path], kind: str, shard: int) -> None:
    size = SEARCHED[kind].slow // SHARDS
    search(warm, there, SEARCHED[kind].source(SEED), range(shard * size, (shard + 1) * size))


@pytest.mark.slow
@pytest.mark.parametrize("shard", range(2))
def test_a_hundred_lines_do_as_processes_of_their_own(warm: Warm, runs: dict[str, Path], shard: int) -> None:
    """What forking could hide: how Python starts, reads its words and ends. A served page would wait for its reader."""
    lines = (line for line in islice(Lines(SEED), SEARCHED["lines"].slow) if line.words[:1] != ("play",))
    chosen = [line for line in lines if line.stage == "whole" and not line.long]
    every = len(chosen) // REAL
    search(warm, runs, iter(chosen[: REAL * every : every][shard::2]), range(REAL // 2), real=True)


@pytest.mark.campaign
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", SEARCHED)
def test_a_campaign(warm: Warm, there: dict[str, Path], kind: str, seed: int) -> None:
    search(warm, there, SEARCHED[kind].source(seed), range(SEARCHED[kind].campaign // len(SEEDS)))


@pytest.mark.slow
def test_the_slow_lines_reach_every_pair_every_key_and_most_corners() -> None:
    """What is generated is read from the plug-ins: a new one, or a new key, is searched from its first day."""
    lines = Lines(SEED)
    generated = list(islice(lines, SEARCHED["lines"].slow))
    tried = lines.report()
    print(tried)
    assert tried["pair"][0] == tried["pair"][1]
    assert tried["key"][0] == tried["key"][1]
    assert tried["corner"][0] > 0.7 * tried["corner"][1]
    assert tried["strange"][0] > 0.2 * tried["strange"][1]
    assert sum(line.stage == "whole" for line in generated) > 0.5 * len(generated)


@pytest.mark.parametrize(("kind", "most"), [("files", 0.6), ("folders", 0.3)])
def test_the_slow_files_are_damaged_in_most_ways(kind: str, most: float) -> None:
    """A file's ways share their names and code, so that each is tried on one file or another."""
    cases = SEARCHED[kind].source(SEED)
    list(islice(cases, SEARCHED[kind].slow))
    tried = cases.report()
    assert tried["file"][0] == tried["file"][1]
    assert tried["way"][0] > most * tried["way"][1]


@pytest.mark.parametrize("kind", SEARCHED)
def test_a_seed_gives_the_same_again(kind: str) -> None:
    def some(seed: int) -> list[object]:
        return list(islice(SEARCHED[kind].source(seed), 50))

    assert some(3) == some(3) != some(4)
