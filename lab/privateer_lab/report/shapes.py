"""What a published policy or state can be drawn as, by its shape alone, as the dashboard does."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from privateer_core.context import columns_of, shown_box
from privateer_core.features import Feature
from privateer_lab.bin_map import people_in

Shares = dict[str, float]


class Box(NamedTuple):
    """A box of contexts: its corners, the values of its features in words, and the share of each arm."""

    lower: list[float]
    upper: list[float]
    where: dict[str, Any]
    arms: Shares


class Estimated(NamedTuple):
    """An estimate with its interval."""

    name: str
    value: float
    low: float
    high: float


def boxes(policy: Mapping[str, Any]) -> list[Box]:
    """Return a policy's boxes; empty if it has none."""
    rows = policy.get("bins")
    if not isinstance(rows, list) or not all(map(_is_box, rows)):
        return []
    return [Box(row["lower"], row["upper"], row.get("where", {}), row["arms"]) for row in rows]


def groups(policy: Mapping[str, Any]) -> list[tuple[str, Shares]]:
    """Return groups of people, and the share of each arm there; everybody is one group."""
    if is_shares(policy.get("arms")):
        return [("everybody", policy["arms"])]
    for rows in policy.values():
        if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
            continue
        if all(is_shares(row.get("arms")) and "lower" not in row for row in rows):
            return [(_named(row), row["arms"]) for row in rows]
    return []


def counts(policy: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Return how often each of several things is played, most often first; empty if that is not said."""
    plays = policy.get("plays")
    if not isinstance(plays, dict) or not all(map(_is_number, plays.values())):
        return []
    return sorted(plays.items(), key=lambda row: -row[1])


def coefficients(policy: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    """Return numbers by name for each arm; empty if a policy has none."""
    arms = policy.get("arms")
    if not isinstance(arms, dict) or not all(isinstance(one, dict) for one in arms.values()):
        return {}
    return arms if all(_is_number(value) for one in arms.values() for value in one.values()) else {}


def estimates(state: Mapping[str, Any]) -> list[Estimated]:
    """Return what a state says of means with standard errors, or of estimates with widths; empty if it does not."""
    arms = state.get("arms")
    if isinstance(arms, dict):
        rows = [(name, one, "mean", "standard_error", 1.96) for name, one in arms.items()]
    else:
        listed: list[dict[str, Any]] = next((rows for rows in state.values() if _are_widths(rows)), [])
        rows = [(_named(row, ("estimate", "width")), row, "estimate", "width", 1.0) for row in listed]
    return [
        Estimated(name, one[value], one[value] - times * one[error], one[value] + times * one[error])
        for name, one, value, error, times in rows
        if isinstance(one, dict) and _is_number(one.get(value)) and _is_number(one.get(error))
    ]


def box_estimates(
    state: Mapping[str, Any], features: Mapping[str, Feature], bounds: tuple[float, float]
) -> list[dict[str, str]]:
    """Return the means of a state's boxes with intervals of about 95 %, a row for each box; empty if it has none.

    Rows are in the order of the first feature, then of the second, as a picture of them is read from left to right.
    A box with corners that are none of these features' is left out: nobody can say which people it holds.
    What came out beyond the bounds of rewards is at the bound, and says so: no mean can be there.
    """
    rows = state.get("bins")
    if not isinstance(rows, list) or not all(
        isinstance(row, dict) and isinstance(row.get("arms"), dict) for row in rows
    ):
        return []
    found = []
    for row in sorted(rows, key=corner):
        low, high = corner(row), corner(row, "upper")
        told = {one.name: _within(one, *bounds) for one in estimates(row)}
        if told and len(low) == len(high) == len(columns_of(features)):
            found.append({"people": people_in(shown_box(features, np.array(low), np.array(high))), **told})
    return found


def _within(one: Estimated, least: float, most: float) -> str:
    value, low, high = (min(max(end, least), most) for end in (one.value, one.low, one.high))
    bound = "" if value == one.value else ", at the bound"
    return f"{value:z.3f} ({low:z.3f} to {high:z.3f}{bound})"


def corner(row: Mapping[str, Any], name: str = "lower") -> list[float]:
    """Return a corner of a box; empty if what a server told is none."""
    told = row.get(name)
    return told if isinstance(told, list) and all(map(_is_number, told)) else []


def is_shares(value: Any) -> bool:
    """Whether this is a share for each arm."""
    if not isinstance(value, dict) or not value or not all(map(_is_number, value.values())):
        return False
    return all(0 <= share <= 1 for share in value.values()) and abs(sum(value.values()) - 1) < 0.02


def _are_widths(rows: Any) -> bool:
    return (
        isinstance(rows, list)
        and bool(rows)
        and all(isinstance(row, dict) and _is_number(row.get("estimate")) and "width" in row for row in rows)
    )


def _is_box(row: Any) -> bool:
    if not isinstance(row, dict) or not isinstance(row.get("where", {}), dict):
        return False
    corners = (row.get("lower"), row.get("upper"))
    if not all(isinstance(one, list) and all(map(_is_number, one)) for one in corners):
        return False
    return len(row["lower"]) == len(row["upper"]) and is_shares(row.get("arms"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _named(row: Mapping[str, Any], apart: tuple[str, ...] = ("arms",)) -> str:
    return ", ".join(str(value) for key, value in row.items() if key not in apart) or "everybody"
