"""Which runs are copies of others: a copy says nothing that the other one does not say."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from rlkit.comparison.marks import MARKS, content
from rlkit.comparison.records import Record
from rlkit.settings import repeat
from rlkit.terminal import warn

# Keys for what a record has as it was: one length, or one number of episodes, may be given in several ways.
COUNTED = {*repeat.LENGTHS, *repeat.VALIDATION, "evaluation_episodes"}


def once(found: Sequence[Record]) -> list[Record]:
    """Without copies of a run: its settings and seed give one result, which is one draw wherever else it lies.

    Of copies the first one counts, or one that had its length from the start.
    """
    counted: list[Record] = []
    alike: dict[str, list[int]] = {}  # what copies share → where such runs are in `counted`
    for r in found:
        places = alike.setdefault(_shared(r), [])
        i = next((i for i in places if _went_alike(counted[i], r)), None)
        if i is None:
            places.append(len(counted))
            counted.append(r)
            continue
        copy, other = (counted[i], r) if counted[i].longer and not r.longer else (r, counted[i])
        counted[i] = other
        warn(f"left out: {copy.folder} has the settings, the seed and the score of {other.folder}: it counts once")
    return counted


def _shared(r: Record) -> str:
    """What a copy shares with a run, wherever their files lie."""
    given = {key: value for key, value in r.settings.items() if not key.startswith(MARKS) and key not in COUNTED}
    settings = {key: content(r.settings, given[key]) for key in sorted(given)}
    settings[MARKS] = repr(sorted(mark for key, mark in r.settings.items() if key.startswith(MARKS)))
    apart = replace(r, folder=Path(), seconds=0.0, command="", alarms=[], curves={}, versions={}, longer=False)
    return repr(replace(apart, settings=settings))


def _went_alike(one: Record, other: Record) -> bool:
    """Whether two runs of one score learned alike: by their training curves, or by what made them.

    At a ceiling the scores of other code are equal, too, and a curve that stays at one value says nothing of them.
    """
    a, b = _curve(one), _curve(other)
    common = a.keys() & b.keys()
    if any(a[span] != b[span] for span in common):
        return False
    return len({a[span] for span in common}) > 1 or (one.versions, one.longer) == (other.versions, other.longer)


def _curve(r: Record) -> dict[tuple[float, float], float]:
    """The mean return of the attempts, by the steps of a logged line and of the one before it, between which they lie.

    With other evaluations a run has other lines, and a mean over other attempts in some of them.
    """
    curve = r.curves.get("training")
    if curve is None:
        return {}
    steps = curve.env_steps.tolist()
    return dict(zip(zip([0.0, *steps], steps, strict=False), curve.value.tolist(), strict=True))
