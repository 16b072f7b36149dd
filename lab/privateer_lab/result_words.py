"""What a result says: its headline, what is decided and why, what ended it, and the rows that pictures draw."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple, get_args

import msgspec

from privateer_core.result import Effect, Reason, Result

OVER: Final = ("stopped", "finished", "failed")
_ENDED: Final = {
    "its rule": "The rule that it declared ended it, and nobody is asked any more.",
    "its horizon": "Its horizon ended it: the planned people were asked, and nobody is asked any more.",
    "stopped": "An operator stopped it, and nobody is asked any more.",
    "failed": "It failed, and nobody is asked any more.",
}


def sentences(result: Result, status: str = "") -> Iterator[str]:
    """Say what a result recommends and why, how many effects are decided, and what ended the experiment.

    Parameters
    ----------
    status
        Where the experiment stands; "" if that is not known.
    """
    yield headline(result, status)
    if result.effects:
        yield decided_in_words(result.effects)
    if ended := _ENDED.get(result.ended or status) or ("Nobody is asked any more." if result.stopped else ""):
        yield ended


def headline(result: Result, status: str = "") -> str:
    """Say which single option a result recommends, and what that rests on."""
    option, ground, over = result.recommended, result.ground, result.stopped or status in OVER
    if option is None:
        return f"It recommends no single option{'' if over else ' so far'}."
    if ground is None:
        return f"It names {option}. How sure that is, the result does not say."
    if ground.startswith("decided"):
        return f"{'It recommends' if over else 'So far it recommends'} {option}: {ground}."
    if ground == "everybody gets it from now on":
        return f"It recommends {option}: {ground}."
    why = "given most, and too few people have reported to say more" if ground == "too few people to say" else ground
    return f"It decided nothing that recommends a single option. {option} is {why}."


def decided_in_words(effects: Sequence[Effect]) -> str:
    """Say how many effects are decided, and why the others are not."""
    found = Counter(one.reason for one in effects)
    order = sorted(found, key=get_args(Reason).index)
    named = "; ".join(f"{reason}: {found[reason]:,}" for reason in order)
    return f"Of {len(effects):,} effects: {named}." if len(effects) > 1 else f"Of the effect: {effects[0].reason}."


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """Return effects in the order in which they are shown: what is decided first, what nothing is known of last."""
    return sorted(effects, key=lambda one: (not one.is_decided, one.value is None))


def name_of(effect: Effect) -> str:
    """Name an effect by its option, and by its group if it has one."""
    return effect.option if effect.group is None else f"{effect.option}: {effect.group}"


class Drawn(NamedTuple):
    """A row of a picture: an estimate with its interval, and whether it is decided; None: nobody says."""

    name: str
    value: float
    low: float
    high: float
    decided: bool | None = None


def rows_drawn(result: Result) -> list[Drawn]:
    """Return the effects of a result of which something is known, decided ones first; else its plain estimates."""
    if not result.effects:
        return [Drawn(*msgspec.structs.astuple(one)) for one in result.estimates]
    return [
        Drawn(name_of(one), one.value, *_open_ends(one), one.is_decided)
        for one in ranked(result.effects)
        if one.value is not None
    ]


def _open_ends(one: Effect) -> tuple[float, float]:
    return -math.inf if one.low is None else one.low, math.inf if one.high is None else one.high


def most_drawn(rows: Sequence[Drawn], most: int) -> int:
    """Return how many rows a picture has room for: all that are decided are among them."""
    return max(most, sum(one.decided is True for one in rows))


def left_out(shown: int, all_: int) -> str:
    """Say how many rows a picture leaves out, none of them decided; empty if it has all."""
    return "" if shown == all_ else f"; {all_ - shown:,} more of {all_:,} are not drawn, and none of them is decided"
