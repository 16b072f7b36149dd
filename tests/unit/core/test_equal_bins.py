"""Equal bins contain each context once, between their corners."""

import numpy as np
import pytest

from privateer_core.spec.context import EqualBins


@pytest.mark.parametrize(("sides", "columns"), [(1, 3), (4, 2), (3, 1), (5, 0)])
def test_a_context_is_between_the_corners_of_its_bin(sides: int, columns: int) -> None:
    bins, contexts = EqualBins(sides, columns), np.random.default_rng(1).random((500, columns))
    lower, upper = (corner[bins.locate(contexts)] for corner in bins.edges())
    assert lower.shape == contexts.shape
    assert ((lower <= contexts) & (contexts < upper)).all()
    assert len(bins.edges()[0]) == bins.count == sides**columns


def test_the_ends_of_columns_are_in_the_outer_bins() -> None:
    assert EqualBins(4, 2).locate(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]])).tolist() == [0, 3, 12, 15]
