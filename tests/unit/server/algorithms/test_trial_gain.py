"""What choosing by segment gains over one arm for all, from people who came after both were chosen."""

import numpy as np
import pytest

from privateer_server.algorithms.trial.boundaries import critical_values
from privateer_server.algorithms.trial.design import Design
from privateer_server.algorithms.trial.evidence import Epoch
from privateer_server.algorithms.trial.gain import hold

DESIGN = Design(0.05, 5e3, np.array([0.5, 0.5]), np.array([0.5, 0.25, 0.25]))
EVEN = np.full((3, 2), 0.5)


def released(people: float, hits: np.ndarray, rates: np.ndarray) -> Epoch:
    return Epoch(people, hits * rates, hits, 1.0, 0.0, 0.0, EVEN)


def test_a_gain_is_the_sum_over_segments_where_the_arms_differ() -> None:
    """By hand: the treatment for all loses .2 where a fifth of people are, whom the control would suit."""
    held = hold(DESIGN, 3e3, np.array([1, 0, 1]), constant=1)
    assert held.gain() is None
    hits = np.array([[600.0, 600.0], [200.0, 200.0], [200.0, 200.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.4, 0.4]])
    found = held.add(released(2_000, hits, rates)).gain()
    assert found is not None
    deviation = 0.2 * np.sqrt(0.4 * 0.6 * (1 / 200 + 1 / 200))
    between = critical_values((1.0,), 0.05)[-1] * deviation
    assert found == pytest.approx((0.2 * 0.2, 0.04 - between, 0.04 + between))


def test_nobody_gains_from_the_same_arm() -> None:
    held = hold(DESIGN, 3e3, np.ones(3, np.int64), constant=1)
    assert held.add(released(2_000, np.full((3, 2), 300.0), np.full((3, 2), 0.4))).gain() == (0.0, 0.0, 0.0)


def test_a_segment_with_nobody_gains_nothing_and_hides_nothing() -> None:
    hits = np.array([[600.0, 600.0], [400.0, 400.0], [0.0, 0.0]])
    rates = np.array([[0.3, 0.5], [0.5, 0.3], [0.0, 0.0]])
    found = hold(DESIGN, 3e3, np.array([1, 0, 0]), constant=1).add(released(2_000, hits, rates)).gain()
    assert found is not None
    assert found[0] == pytest.approx(0.4 * 0.2)
