"""Puts an answer into words: its headline, what is decided and why, what ended it, and whom a bin holds."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.estimates import DECIDED, Effect, Reason
from privateer_core.answer.facts import Between, Condition, Level
from privateer_core.answer.parts import Contradiction, FeatureSelection
from privateer_lab.figures import whole_percent

OVER: Final = ("stopped", "finished", "failed")
_ENDED: Final = {
    "its rule": "The rule that it declared ended it, and nobody is asked any more.",
    "its horizon": "Its horizon ended it: the planned people were asked, and nobody is asked any more.",
    "its rows": "Its rows are all that there is of it: nobody is asked.",
    "an operator": "An operator stopped it, and nobody is asked any more.",
}
_TOGETHER: Final[dict[Reason, str]] = {
    Reason.HOLDS_ZERO: "their intervals hold 0",
    Reason.CORRECTED: ("their intervals exclude 0, but not after the correction for several effects"),
    Reason.AGAIN: ("their tests decided at an earlier look, but their intervals hold 0 again"),
    Reason.HEAVY_TAIL: "each rests on a few large rewards",
    Reason.SHARE: "their shares of people are not told from 0",
}
"""Reasons that several effects have in common, where they are worded otherwise."""


def sentences(conclusion: Conclusion, answer: Answer) -> Iterator[str]:
    """Say what was concluded, how many effects are decided and why the others are not, and what ended it."""
    yield conclusion.headline.sentence
    if answer.effects:
        yield decided_in_words(answer.effects)
    if ended := ending(answer):
        yield ended


def ending(answer: Answer) -> str:
    """Say what ended an experiment; empty as long as nothing did."""
    if answer.status == "failed":
        return "It failed, and nobody is asked any more."
    if answer.ended:
        return _ENDED[answer.ended]
    return "Nobody is asked any more." if answer.is_over else ""


def decided_in_words(effects: Sequence[Effect]) -> str:
    """Say how many effects are decided, and why the others are not."""
    found = Counter(one.reason for one in effects)
    if len(effects) == 1:
        return f"Of the effect: {effects[0].reason}."
    if len(found) == 1:
        reason = effects[0].reason
        if reason in DECIDED:
            return f"All {len(effects):,} effects are {reason}."
        return f"None of {len(effects):,} effects is decided: {_TOGETHER.get(reason, reason)}."
    order = sorted(found, key=list(Reason).index)
    named = [_with_reason(found[reason], reason) for reason in order]
    none = [] if DECIDED & found.keys() else ["none is decided"]
    return f"Of {len(effects):,} effects {'; '.join([*none, *named])}."


def _with_reason(number: int, reason: Reason) -> str:
    """Say how many effects have a reason."""
    if reason in DECIDED:
        return f"{number:,} {'is' if number == 1 else 'are'} {reason}"
    kept = reason.removeprefix("its ")
    if kept != reason:
        return f"of {number:,} the {kept}"
    return f"for {number:,} there are {reason}" if reason.startswith("too few") else f"for {number:,} {reason}"


def ranked(effects: Sequence[Effect]) -> list[Effect]:
    """Return effects in the order in which they are shown: what is decided first, what nothing is known of last."""
    return sorted(effects, key=lambda one: (not one.is_decided, one.value is None))


class Drawn(NamedTuple):
    """A row of a picture: an estimate with its interval, and whether it is decided; None: nobody says."""

    name: str
    value: float
    low: float
    high: float
    decided: bool | None = None


def rows_drawn(answer: Answer) -> list[Drawn]:
    """Return the effects of an answer of which something is known, decided ones first; else its plain estimates."""
    if not answer.effects:
        return [Drawn(one.name, one.value, one.low, one.high) for one in answer.estimates]
    return [
        Drawn(one.name, one.value, *_open_ends(one), one.is_decided)
        for one in ranked(answer.effects)
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


def people_in(where: Sequence[Condition]) -> str:
    """Say which people a bin holds."""
    return "; ".join(map(_condition, where)) or "all"


def within(name: str, low: float, high: float) -> str:
    """Say from where to where a number of people is."""
    return f"{name} from {low:z.4g} to {high:z.4g}"


def _condition(one: Condition) -> str:
    if isinstance(one, Between):
        return within(one.feature, one.low, one.high) + (", or missing" if one.missing else "")
    values = [*map(_level, one.values), *(["missing"] if one.missing else [])]
    return f"{one.feature}: {', '.join(values)}"


def _level(value: Level) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:,}" if isinstance(value, int) else f"{value:z.4g}" if isinstance(value, float) else value


def chosen_by(arms: Mapping[str, float]) -> str:
    """Say how often each arm is chosen; one that has no rival is named alone."""
    shown = {arm: share for arm, share in arms.items() if share > 0}
    return ", ".join(shown if len(shown) == 1 else (f"{arm} {whole_percent(share)}" for arm, share in shown.items()))


def contradicted(found: Contradiction) -> str:
    """Say whether recent rounds contradict earlier ones."""
    if not found.found:
        return "recent rounds do not contradict earlier ones"
    return (
        f"warning: rounds after the first {found.since:,} people contradict those before, so rewards move. What was "
        f"released is 10 ** {found.evidence:.1f} times as probable if they do. An experiment in which nothing moves "
        f"warns with probability {found.false_alarm_rate:g} at most. See docs/learning.md"
    )


def selected(found: FeatureSelection) -> str:
    """Say which features were kept."""
    if found.kept is None:
        return f"features are being screened: {found.people:,} people so far were asked about one feature at a time"
    asked = f"{found.people:,} people were asked about one feature at a time"
    return f"{asked}; kept of {found.candidates}: {', '.join(found.kept)}"
