"""People who are not where they are expected, and reports of one bucket, which do not tell: values tell masses."""

from functools import cache

import numpy as np
import pytest

from privateer_core.algorithms.partition import PartitionSpec
from privateer_core.codec import decode, encode
from privateer_server.algorithms.partition.feature_selection import FeatureSelector
from privateer_server.algorithms.partition.kernel import Hyperparameters
from privateer_server.algorithms.partition.state import PartitionState
from tests.support.partitions import same
from tests.support.people import rounds
from tests.support.specs import make_spec

SKEWED = 2
"""This many of the six features are skewed."""
TRUE = np.array([0.25, 0.5, 0.75, 1.0]) ** 0.25
MASSES = np.diff(TRUE, prepend=0.0)
"""Shares of people in the quarters of the fourth power of a uniform number: .71, .13, .09, .07."""


def spec() -> PartitionSpec:
    changes = {"privacy.epsilon": 1.0, "experiment.round_size": 1000, "experiment.horizon": 2_000_000}
    return make_spec({**changes, "experiment.arms": ["a", "b", "c"]}, dimension=6)


def means(contexts):
    """Nothing matters, and few rewards are 1."""
    return np.tile([0.12, 0.1, 0.1], (len(contexts), 1))


def skewed(rng, people):
    contexts = rng.random((people, 6))
    contexts[:, :SKEWED] **= 4
    return contexts


def even(rng, people):
    return rng.random((people, 6))


@cache
def selected(sample):
    """The learner's state at the end of the feature selection."""
    return next(one.state for one in rounds(spec(), means, 5, sample) if not one.state.selection.open)


def distance(ratios):
    """Of masses from the true ones, over those features that may be skewed: root of the mean square of the ratios'."""
    return float(np.sqrt(np.mean((np.asarray(ratios) - 4 * MASSES) ** 2)))


def test_values_tell_who_is_where():
    """A ratio has a standard error of about .2, so that one in a million runs fails.

    The masses come nearer to the true ones by half at least; those of people who are even, below, do not.
    """
    found = selected(skewed).selection.ratios[: 4 * SKEWED].reshape(SKEWED, 4)
    assert distance(found) < distance(np.ones((SKEWED, 4))) / 2


def test_people_who_are_where_they_are_expected_stay_there():
    """No ratio is further from 1 than 4.5 standard errors: one in 6,000 runs fails."""
    found = selected(even).selection.ratios.reshape(6, 4)
    assert np.abs(found - 1).max() < 0.9
    assert distance(found[:SKEWED]) > distance(np.ones((SKEWED, 4))) / 2


@pytest.mark.parametrize("sample", [skewed, even])
def test_bins_expect_the_people_that_values_told(sample):
    """By hand, for bins that are halves of a feature: the mean ratio of the quarters in each."""
    state = selected(sample)
    selector = FeatureSelector(spec())
    tree = state.tree.root().with_level(0).split(np.array([True]))[0]
    ratios = state.selection.ratios.reshape(6, 4)
    others = np.prod(ratios[1:].mean(axis=1))
    expected = 0.5 * np.array([ratios[0, :2].mean(), ratios[0, 2:].mean()]) * others
    assert selector.expected(state.selection, tree) == pytest.approx(expected)
    assert selector.expected(None, tree) == pytest.approx([0.5, 0.5])


def test_the_state_keeps_what_was_found():
    state = selected(skewed)
    again = decode(encode(state), PartitionState)
    assert same(again.selection, state.selection)
    assert isinstance(again.hyperparameters, Hyperparameters)
    assert again.hyperparameters.common == state.hyperparameters.common
