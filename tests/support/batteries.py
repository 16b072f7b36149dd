"""Batteries: a test of a grid of cases runs a sample of them by day, and all others by night.

A case is named by its id, whose words a hyphen separates: `partition-shuffle-hidden`, `200-0.5`. By day each word comes
at least once: every algorithm, mechanism and trust model, and every value of every parameter, but not every combination
of them. Functions of one grid have different samples, which are the same in every run.
"""

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeVar
from zlib import crc32

import pytest

_Key = TypeVar("_Key")


def sample(cases: Iterable[str], of: str) -> set[str]:
    """Return few cases with all words that there are; ``of`` decides between cases that are as good."""
    words = {case: set(case.split("-")) for case in sorted(cases, key=lambda case: crc32(f"{of} {case}".encode()))}
    left, chosen = set().union(*words.values()), set[str]()
    while left:
        best = max(words, key=lambda case: len(words[case] & left))
        chosen.add(best)
        left -= words[best]
    return chosen


def move_to_the_night(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of batteries that are not in the sample of their function."""
    batteries: dict[str, dict[str, pytest.Item]] = defaultdict(dict)
    for item in items:
        name, has_case, case = item.nodeid.partition("[")
        if has_case and item.get_closest_marker("battery") and not item.get_closest_marker("nightly"):
            batteries[name][case.removesuffix("]")] = item
    for name, cases in batteries.items():
        for case in cases.keys() - sample(cases, name):
            cases[case].add_marker(pytest.mark.nightly)
