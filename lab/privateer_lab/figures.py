"""Figures as people read them: what each is called, and how its value is written."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

_SHOWN: Final = 8
"""Items of a list that are shown."""
_NAMES_SHOWN: Final = 40
"""Options and features that a page lists by name."""
_NAMES: Final = {
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
    "stopped": "share of runs that stopped by themselves",
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
    "batch": "reports in a round",
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
"""Names of figures, by their keys in JSON; others are their keys with blanks."""


def name_of(key: str) -> str:
    """Return what people call the figure that JSON has under a key."""
    return _NAMES.get(key, key.replace("_", " "))


def named(figures: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the rows of a table: each figure with its name."""
    return [(name_of(key), value) for key, value in figures.items()]


def whole_percent(share: float) -> str:
    """Write a share in whole percent: what is not all is never rounded to all, nor something to nothing."""
    whole = f"{share:.0%}"
    if whole == "0%" and share > 0:
        return "below 1%"
    return "above 99%" if whole == "100%" and share < 1 else whole


def readable(value: Any) -> str:
    """Write a figure for people: thousands separated, four significant digits for small fractions, yes or no.

    Zero has no sign.
    """
    if value is None:
        return "none"
    if isinstance(value, list):
        shown = ", ".join(readable(one) for one in value[:_SHOWN])
        return shown if len(value) <= _SHOWN else f"{shown}, ... ({len(value):,} in all)"
    if isinstance(value, dict):
        return ", ".join(f"{name} {readable(one)}" for name, one in value.items())
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:z,.0f}" if abs(value) >= 100 else f"{value:z.4g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def listed(names: Sequence[str]) -> str:
    """Write the first names of a list, and how many there are if there are more."""
    shown = ", ".join(names[:_NAMES_SHOWN])
    return shown if len(names) <= _NAMES_SHOWN else f"{shown}, ... ({len(names):,} in all)"


def margin(half: float | None) -> str:
    """Write half of an interval; nothing where there is none."""
    return "" if half is None else f"± {readable(half)}"


def percent(share: float) -> str:
    """Write a share in percent, rounded up to a tenth so that it stays a bound."""
    return f"{math.ceil(share * 1000 - 1e-9) / 10:g} %"
