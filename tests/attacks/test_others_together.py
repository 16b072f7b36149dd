"""Everybody else together attack a curator's experiment: what is published, and what they get themselves."""

import pytest

from privateer_lab.audit.attacks.releases import billboard_cases
from privateer_lab.audit.mechanisms.moments import moment_cases
from privateer_lab.audit.suite import FALSE_ALARM, _attacked

ALARM = FALSE_ALARM / 60


def test_the_billboard_holds_and_a_leaky_one_breaks() -> None:
    """Planted: releases with a sixtieth of the noise (lower bounds of 2.3 to 2.6 in six runs, at a stated 1)."""
    (case,), (leaky,) = billboard_cases(30_000), billboard_cases(60_000, 60.0)
    assert _attacked(case, ALARM).holds
    assert not _attacked(leaky, ALARM).holds


@pytest.mark.parametrize("place", [0, *(pytest.param(place, marks=pytest.mark.nightly) for place in (1, 2))])
def test_leaky_choices_and_blocks_break(place: int) -> None:
    """Planted: noise of an eighth."""
    assert not _attacked(moment_cases(1000, 8.0)[place], ALARM).holds


@pytest.mark.nightly
def test_choices_and_blocks_hold() -> None:
    assert all(_attacked(case, ALARM).holds for case in moment_cases(200_000))
