"""Text for readers: names and formats of figures, and sentences about decisions, endings and intervals."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

from privateer_core.answer import Answer
from privateer_core.answer.conclusion import Conclusion
from privateer_core.answer.estimates import DECIDED, Effect, Reason
from privateer_core.answer.facts import Between, Condition
from privateer_core.answer.parts import DriftTest, FeatureSelection

JSON_FORMAT: Final = "privateer/output/1"
"""The format of JSON from commands that has none of its own. Its number grows if a key goes or changes its meaning."""
_MAX_NAMES: Final = 40
"""Largest number of options or features that a page lists by name."""
_FIGURE_NAMES: Final = {
    # what is promised
    "model": "trust model",
    "arms": "arms in the world",
    "min_batch": "reports in a batch, at least",
    "honest_fraction": "honest share of a batch, at least",
    "local_epsilon": "epsilon of a report alone",
    "local_epsilon_max": "epsilon of a report alone, at most",
    "true_delta": "delta by the accountant",
    "holds": "the promise holds",
    # who took part, and what they sent
    "users": "people",
    "seeds": "runs",
    "clients_mean": "people who reported, a run",
    "accepted": "reports counted",
    "accepted_by_server": "reports that the server accepted",
    "accepted_by_shuffler": "reports that the shuffler accepted",
    "took_part": "people who took part",
    "not_asked": "people who were asked for no report",
    "refused": "reports refused",
    "messages_mean": "messages, a run",
    "bytes_mean": "bytes before sealing, a run",
    "bits_mean": "bits before sealing, a run",
    "rounds_mean": "rounds, a run",
    "versions": "policies that people followed",
    "rounds": "rounds with reports",
    "over": "the experiment is over",
    "waits": "times a service asked to come later",
    "waited": "seconds that people waited then, in all",
    "seconds": "seconds of the run",
    "wall_seconds": "seconds of all runs",
    "users_per_second": "people a second",
    "people_per_second": "people a second",
    # what it earned
    "reward": "reward of all people",
    "reward_mean": "mean reward",
    "regret_mean": "regret, mean of runs",
    "regret_ci95": "regret, half of its 95 % interval",
    "regret_worst": "regret of the worst run",
    "uniform_regret": "regret of options at random",
    "best_constant_regret": "regret of the best single option",
    "best_share": "share of people with the best arm at the end",
    # what it found
    "samples": "reports learned from",
    "uncertainty": "typical error of a mean reward",
    "stopped": "share of runs that stopped by themselves",
    "set_error_bound": "bound of the probability that the best options are wrong",
    "stopped_early": "share of runs that stopped early",
    "looks": "looks at the result",
    "decided": "effects decided",
    "judged": "effects estimated",
    "coverage": "share of intervals with the truth, at the end",
    "coverage_at_all_looks": "share of intervals with the truth, at all looks",
    "false_positives": "share of absent effects that are called",
    "effects_called": "share of present effects that are called",
    "effect_error": "error of effects, root mean square",
    "welfare_lost": "reward lost a person afterwards, by the largest estimates",
    "half_width": "half width of intervals, mean",
    "lost": "reports that came too late for any round",
    # calculators and ledgers
    "batch_size": "reports in a round",
    "received": "reports received in the round",
    "exact": "exact, not an upper bound",
    "honest": "honest reports, at least",
    "epsilon_in_sum": "sum of epsilon",
    "delta_in_sum": "sum of delta",
    "local_epsilon_in_sum": "sum of epsilon, every report alone",
    "epsilon_composed": "epsilon of all together",
    "at_delta": "at delta",
    "against_analytic_gaussian": "deviation beside exact normal noise",
}
"""Names of figures by their keys in JSON; the name of any other figure is its key with blanks."""


_MAX_LIST_ITEMS: Final = 8
"""Largest number of elements in a printed list."""


def format_figure(value: Any) -> str:
    """Format a figure for readers: thousands separated, four significant digits, yes or no, and zero without a sign."""
    if value is None:
        return "none"
    if isinstance(value, list):
        text = ", ".join(format_figure(element) for element in value[:_MAX_LIST_ITEMS])
        return text if len(value) <= _MAX_LIST_ITEMS else f"{text}, ... ({len(value):,} in all)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {format_figure(element)}" for name, element in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def figure_name(key: str) -> str:
    """Return the name of a figure for readers by its key in JSON."""
    return _FIGURE_NAMES.get(key, key.replace("_", " "))


def name_figures(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return pairs of readable name and value for figures by key."""
    return [(figure_name(key), value) for key, value in figures.items()]


def whole_percent(share: float) -> str:
    """Format a share in whole percent, without rounding to 0 % or 100 % unless it is exactly that."""
    text = f"{share:.0%}"
    if text == "0%" and share > 0:
        return "below 1%"
    return "above 99%" if text == "100%" and share < 1 else text


def format_confidence(share: float) -> str:
    """Format a confidence level in percent without rounding it up to 100."""
    return f"{share:.10%}".rstrip("%").rstrip("0").rstrip(".") + "%"


def format_list(names: Sequence[str]) -> str:
    """Format the first names of a list, with the total number if names are omitted."""
    text = ", ".join(names[:_MAX_NAMES])
    return text if len(names) <= _MAX_NAMES else f"{text}, ... ({len(names):,} in all)"


def format_margin(half_width: float | None) -> str:
    """Format the half width of an interval; empty if there is no interval."""
    return "" if half_width is None else f"± {format_figure(half_width)}"


def percent(share: float) -> str:
    """Format a share in percent, rounded up to a tenth so that it stays an upper bound."""
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"


FINAL_STATUSES: Final = ("stopped", "finished", "failed")
_ENDING_SENTENCES: Final = {
    "its rule": "The rule that it declared ended it, and nobody is asked any more.",
    "its horizon": "Its horizon ended it: the planned people were asked, and nobody is asked any more.",
    "its rows": "Its rows are all that there is of it: nobody is asked.",
    "an operator": "An operator stopped it, and nobody is asked any more.",
}
_SHARED_REASONS: Final[dict[Reason, str]] = {
    Reason.HOLDS_ZERO: "their intervals hold 0",
    Reason.CORRECTED: ("their intervals exclude 0, but not after the correction for several effects"),
    Reason.AGAIN: ("their tests decided at an earlier look, but their intervals hold 0 again"),
    Reason.HEAVY_TAIL: "each rests on a few large rewards",
    Reason.SHARE: "their shares of people are not told from 0",
}
"""Wording of reasons that several effects share, where it differs from that of one effect."""


def describe_conclusion(conclusion: Conclusion, answer: Answer) -> list[str]:
    """Return sentences: the headline, the numbers of decided and undecided effects with reasons, and the ending."""
    decisions = [describe_decisions(answer.effects)] if answer.effects else []
    if answer.stage == "failed":
        ending = ["It failed, and nobody is asked any more."]
    elif answer.stop_reason:
        ending = [_ENDING_SENTENCES[answer.stop_reason]]
    else:
        ending = ["Nobody is asked any more."] if answer.is_over else []
    return [conclusion.headline.sentence, *decisions, *ending]


def describe_decisions(effects: Sequence[Effect]) -> str:
    """Return a sentence with the number of decided effects, and the reasons of undecided effects."""
    n_by_reason = Counter(effect.reason for effect in effects)
    if len(effects) == 1:
        return f"Of the effect: {effects[0].reason}."
    if len(n_by_reason) == 1:
        reason = effects[0].reason
        if reason in DECIDED:
            return f"All {len(effects):,} effects are {reason}."
        return f"None of {len(effects):,} effects is decided: {_SHARED_REASONS.get(reason, reason)}."
    reasons = sorted(n_by_reason, key=list(Reason).index)
    counts = [_count_with_reason(n_by_reason[reason], reason) for reason in reasons]
    prefix = [] if DECIDED & n_by_reason.keys() else ["none is decided"]
    return f"Of {len(effects):,} effects {'; '.join([*prefix, *counts])}."


def _count_with_reason(n_effects: int, reason: Reason) -> str:
    """Return a clause with the number of effects that have a reason."""
    if reason in DECIDED:
        return f"{n_effects:,} {'is' if n_effects == 1 else 'are'} {reason}"
    stem = reason.removeprefix("its ")
    if stem != reason:
        return f"of {n_effects:,} the {stem}"
    return f"for {n_effects:,} there are {reason}" if reason.startswith("too few") else f"for {n_effects:,} {reason}"


def rank_effects(effects: Sequence[Effect]) -> list[Effect]:
    """Return effects in display order: decided effects first, effects without an estimate last."""
    return sorted(effects, key=lambda effect: (not effect.is_decided, effect.value is None))


def describe_bin(conditions: Sequence[Condition]) -> str:
    """Return the conditions of a bin of participants as text; "all" without conditions."""
    return "; ".join(map(_format_condition, conditions)) or "all"


def _format_condition(condition: Condition) -> str:
    """Write a condition on a feature as a range or as a list of levels."""
    if isinstance(condition, Between):
        text = f"{condition.feature} from {condition.low:z.4g} to {condition.high:z.4g}"
        return f"{text}, or missing" if condition.missing else text
    values = [f"{value:z.4g}" if isinstance(value, float) else format_figure(value) for value in condition.values] + [
        "missing"
    ] * condition.missing
    return f"{condition.feature}: {', '.join(values)}"


def format_arm_shares(arms: Mapping[str, float]) -> str:
    """Format the shares of arms; an arm that is always chosen has no share in the text."""
    played = {arm: share for arm, share in arms.items() if share > 0}
    return ", ".join(played if len(played) == 1 else (f"{arm} {whole_percent(share)}" for arm, share in played.items()))


def format_drift(test: DriftTest) -> str:
    """Return a sentence with the result of a drift test of recent rounds against earlier rounds."""
    if not test.detected:
        return "recent rounds do not contradict earlier ones"
    return (
        f"warning: rounds after the first {test.since:,} people contradict those before, so rewards move. What was "
        f"released is 10 ** {test.evidence:.1f} times as probable if they do. An experiment in which nothing moves "
        f"warns with probability {test.false_alarm_rate:g} at most. See docs/learning.md"
    )


def describe_feature_selection(selection: FeatureSelection) -> str:
    """Return a sentence about the selected features, or about the screening that selects them."""
    if selection.kept is None:
        return f"features are being screened: {selection.people:,} people so far were asked about one feature at a time"
    screening = f"{selection.people:,} people were asked about one feature at a time"
    return f"{screening}; kept of {selection.candidates}: {', '.join(selection.kept)}"
