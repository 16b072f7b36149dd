"""Batteries: a test of a grid of cases runs a sample of the cases by day, and the rest by night.

The words of a case are those of its id, which a hyphen separates: `partition-shuffle-hidden`, `200-0.5`; or, where the
marker names parameters, their values. By day each word comes at least once: every algorithm, mechanism and trust model,
and every value of every parameter, but not every combination of them. Functions of one grid have different samples,
which are the same in every run; where the marker says ``of``, those that look at the same
draws have the same sample.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any
from zlib import crc32

import pytest

from privateer_core.algorithms import ALGORITHMS

_WORD = re.compile("|".join([*(re.escape(name) for name in ALGORITHMS if "-" in name), "[^-]+"]))


def sample(cases: Mapping[str, set[str]], grid: str) -> set[str]:
    """Return few cases that have all words of all; ``of`` decides between cases that are as good."""
    order = sorted(cases, key=lambda case: crc32(f"{grid} {case}".encode()))
    uncovered, chosen = set().union(*cases.values()), set[str]()
    while uncovered:
        best = max(order, key=lambda case: len(cases[case] & uncovered))
        chosen.add(best)
        uncovered -= cases[best]
    return chosen


def words(case: str) -> set[str]:
    """Return the words of an id; an algorithm's name is one word, whatever hyphens it has."""
    return set(_WORD.findall(case))


def move_to_the_night(items: Iterable[pytest.Item]) -> None:
    """Mark the cases of batteries that are not in the sample of their function."""
    batteries: dict[str, dict[str, Any]] = defaultdict(dict)
    for item in items:
        name, is_case, case = item.nodeid.partition("[")
        if is_case and item.get_closest_marker("battery") and not item.get_closest_marker("nightly"):
            batteries[name][case.removesuffix("]")] = item
    for name, cases in batteries.items():
        grid = next(iter(cases.values())).get_closest_marker("battery").kwargs.get("of", name)
        for case in cases.keys() - sample({case: _words_of(case, item) for case, item in cases.items()}, grid):
            cases[case].add_marker(pytest.mark.nightly)


def _words_of(case: str, item: Any) -> set[str]:
    named = item.get_closest_marker("battery").args
    return {str(item.callspec.params[name]) for name in named} if named else words(case)
