"""People made up from shares by cell are in the cells in these shares, and are valid contexts."""

from typing import Any

import numpy as np

from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.additive.cells import Cells
from privateer_server.algorithms.additive.terms_learner import build_contexts

SPEC: dict[str, Any] = {
    "experiment": {"name": "t", "arms": ["a", "b"], "horizon": 5000},
    "context": {
        "features": {
            "age": {"low": 0, "high": 80, "missing": True},
            "size": {"levels": ["s", "m", "l"], "ordered": True},
            "job": {"levels": ["cook", "smith", "clerk"]},
            "member": {"boolean": True},
        }
    },
    "privacy": {"model": "none"},
    "algorithm": {"name": "additive", "bins": 4},
}


def test_simulated_contexts_follow_the_cell_shares() -> None:
    spec: Any = parse_spec(SPEC)
    cells: Cells = spec.questions.cells
    rng = np.random.default_rng(3)
    masses = np.ones(cells.count)
    for place in range(len(cells.features)):
        columns = cells.feature_slice(place)
        masses[columns] = rng.dirichlet(np.ones(columns.stop - columns.start))
    people = 20_000
    contexts = build_contexts(cells, masses, spec.dimension, rng.random((people, len(cells.features), 2)))
    assert contexts.min() >= 0
    assert contexts.max() <= 1
    shares = np.bincount(cells.locate(contexts).ravel(), minlength=cells.count) / people
    # Seven deviations of a share: a false alarm in 10^11 runs.
    assert np.abs(shares - masses)[1:].max() < 7 * 0.5 / np.sqrt(people)
