"""Rows of preferences in TRL's formats: texts or chat messages, with the prompt separate or in both sides.

    {"prompt": "2 + 3?", "chosen": " 5", "rejected": " 6"}
    {"chosen": "2 + 3? 5", "rejected": "2 + 3? 6"}
    {"prompt": [user], "chosen": [assistant], "rejected": [assistant]}
    {"chosen": [user, assistant], "rejected": [user, assistant]}

Without a prompt, the common beginning of both sides is the prompt, as in TRL's `extract_prompt`. A `prompt` of text
is ignored where the sides are whole conversations, which repeat it (TRL's `maybe_extract_prompt`).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from rlkit.errors import UserError
from rlkit.prompts import Turn
from rlkit.terminal import warn
from rlkit.text.pairs import Pair
from rlkit.text.rows import conversation, prompt_turns, refuse_told
from rlkit.text.sources import Row, text_field

REFERENCE = ("ref_chosen_logps", "ref_rejected_logps")
ASKED = ("question", "instruction", "query", "input")  # what other data sets call a prompt
LEAST = -1e9  # least log-probability of a text: no token is below e^-1000, and no text has a million tokens
T = TypeVar("T")


def pairs_from(rows: Sequence[Row]) -> list[Pair]:
    """The pair in each row.

    Raises: UserError that names the first invalid row.
    """
    return [_pair(where, row) for where, row in rows]


def shared(chosen: Sequence[T], rejected: Sequence[T]) -> int:
    """The length of the common beginning of two different sides; each side keeps at least one item."""
    shorter = min(len(chosen), len(rejected))
    return next((i for i in range(shorter) if chosen[i] != rejected[i]), shorter - 1)


def tell_continued(splits: Mapping[str, Sequence[Pair]], name: str) -> None:
    """Warn in one line each of held-out pairs that may have a question of the train split, for rows without a prompt.

    Where the answers of a pair begin alike, the common beginning of its sides is the question and a part of an answer.
    """
    texts = {split: [pair.prompt for pair in pairs if not pair.turns] for split, pairs in splits.items()}
    begun = _begun({prompt for prompts in texts.values() for prompt in prompts})
    trained = {begun[prompt] for prompt in texts["train"]}
    for split in ("validation", "test"):
        if count := sum(begun[prompt] in trained for prompt in texts[split]):
            warn(
                f"{name}: {count:,} of {len(splits[split]):,} {split} pairs begin as pairs of the train split do, and "
                f"may have their questions, so {split} measures what was trained on: give every row its 'prompt'"
            )


def _begun(prompts: Collection[str]) -> dict[str, str]:
    """For each prompt the shortest one that it continues on the same line."""
    found: dict[str, str] = {}
    shorter: list[str] = []
    for prompt in sorted(prompts):  # those that one begins with stand before it, and nothing else between
        while shorter and not prompt.startswith(shorter[-1]):
            shorter.pop()
        goes_on = bool(shorter) and "\n" not in prompt[len(shorter[-1]) :]
        found[prompt] = found[shorter[-1]] if goes_on else prompt
        shorter.append(prompt)
    return found


def shown(x: object) -> str:
    """A value of a row as messages show it, shortened."""
    try:
        text = repr(x)
    except ValueError:  # Python prints no number of more than 4,300 digits
        text = "a number of thousands of digits"
    return text if len(text) <= 40 else f"{text[:37]}..."


def _pair(where: str, row: dict[str, object]) -> Pair:
    sides = [row.get(key) for key in ("chosen", "rejected")]
    kinds = {isinstance(side, list) for side in sides if side is not None}
    if len(kinds) == 2:
        raise UserError(
            f"{where}: of 'chosen' and 'rejected' one is a text and one a list of messages; write both as the same"
        )
    chats = True in kinds
    if chats and None in sides:
        missing = "chosen" if sides[0] is None else "rejected"
        raise UserError(f"{where}: {missing!r} is missing; every row needs a list of messages there")
    if not chats and isinstance(row.get("prompt"), list):
        raise UserError(
            f"{where}: 'prompt' is a list of messages and the sides are texts; write each side as a list with one "
            "message of the assistant"
        )
    turns, prompt, chosen, rejected = _chat(where, row) if chats else _texts(where, row)
    return Pair(prompt, chosen, rejected, _reference(where, row), turns)


def _texts(where: str, row: dict[str, object]) -> tuple[tuple[Turn, ...], str, str, str]:
    chosen, rejected = text_field(where, row, "chosen"), text_field(where, row, "rejected")
    _check_differ(where, chosen, rejected)
    if "prompt" in row:
        return (), text_field(where, row, "prompt"), chosen, rejected
    _check_asked(where, row, chosen)
    end = shared(chosen, rejected)
    if end and chosen[end] != rejected[end] and chosen[end - 1] == " ":
        end -= 1  # the space belongs to the sides
    _check_prompt(where, bool(chosen[:end].strip()), "is missing")
    return (), chosen[:end], chosen[end:], rejected[end:]


def _chat(where: str, row: dict[str, object]) -> tuple[tuple[Turn, ...], str, str, str]:
    refuse_told(where, row)
    chosen, rejected = (conversation(where, key, row[key]) for key in ("chosen", "rejected"))
    _check_differ(where, chosen, rejected)
    prompt = row.get("prompt")
    if isinstance(prompt, list):
        turns = prompt_turns(where, prompt)
    else:
        end = shared(chosen, rejected)
        found = "is a text and the sides are messages" if isinstance(prompt, str) else "is missing"
        _check_prompt(where, end > 0, found)
        turns, chosen, rejected = chosen[:end], chosen[end:], rejected[end:]
    for key, side in (("chosen", chosen), ("rejected", rejected)):
        if turns[-1].role != "user" or len(side) != 1 or side[0].role != "assistant":
            roles = ", ".join(turn.role for turn in (turns[-1], *side))
            raise UserError(
                f"{where}: from the end of the prompt on, {key!r} is {roles}; a prompt ends with the user, and a "
                "side is one message of the assistant: drop such rows"
            )
    text = "\n".join(f"{turn.role}: {turn.content}" for turn in turns)
    return turns, text, chosen[0].content, rejected[0].content


def _check_differ(where: str, chosen: object, rejected: object) -> None:
    if chosen == rejected:
        raise UserError(f"{where}: 'chosen' and 'rejected' are the same text, so nothing is preferred; drop such rows")


def _check_asked(where: str, row: dict[str, object], chosen: str) -> None:
    """Refuse a row whose prompt has another name: what its sides begin with alike would be taken for the prompt."""
    for key in ASKED:
        text = row.get(key)
        if isinstance(text, str) and text.strip() not in chosen:
            raise UserError(f"{where}: 'prompt' is missing, and the sides do not repeat the {key!r}: call it 'prompt'")


def _check_prompt(where: str, there: bool, found: str) -> None:
    if not there:
        raise UserError(
            f"{where}: 'prompt' {found}, and 'chosen' and 'rejected' begin differently; give a 'prompt' of the same "
            "form, or sides that begin with it"
        )


def _reference(where: str, row: dict[str, object]) -> tuple[float, float] | None:
    """log π_ref of both sides, under TRL's names."""
    given = [row[key] for key in REFERENCE if row.get(key) is not None]
    if not given:
        return None
    numbers = [float(x) for x in given if isinstance(x, int | float) and not isinstance(x, bool) and LEAST <= x <= 0]
    if len(numbers) < 2:
        found = ", ".join(f"{key}={shown(row.get(key))}" for key in REFERENCE)
        raise UserError(f"{where}: {found}; give both as log-probabilities, numbers from {LEAST:g} to 0, or neither")
    return numbers[0], numbers[1]
