"""Attack LDPMAB's reports, as a whole and draw by draw of the Laplace noise in each cell."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import KeyedValues
from privateer_core.sampling.randomness import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, build_part
from privateer_lab.audit.law import LaplaceLaw, Law, Scores
from privateer_lab.audit.likelihoods import log_likelihood
from privateer_lab.audit.mechanisms import keyed
from privateer_lab.audit.views import Target, attack_reports, mechanism_case, model_for
from privateer_papers.paper_1.laplace_cells import GRID_POINTS_PER_UNIT, LaplaceCells
from privateer_papers.published_trust import PUBLISHED

_L1_SENSITIVITY: Final = 4
"""L1 sensitivity of all cells to a replaced participant, in units of a value."""


def cases(samples: int) -> list[Case]:
    """Return attacks on single reports, for two epsilons and two pairs of neighbours."""
    return [
        mechanism_case(
            f"cells for epsilon {epsilon:g}, {pair}",
            attack_reports,
            Target(
                LaplaceCells(keyed.LAYOUT, epsilon),
                (
                    keyed.keyed_factory(keyed.NEIGHBOUR_PAIRS[pair][0]),
                    keyed.keyed_factory(keyed.NEIGHBOUR_PAIRS[pair][1]),
                ),
            ),
            (epsilon, 0.0),
            samples // 4,
            PUBLISHED,
        )
        for epsilon in (1.0, 4.0)
        for pair in ("opposite rewards", "another bin")
    ]


def parts() -> list[MechanismPart]:
    """Return attacks on rewards and counts of every cell, of the participant and of others."""
    mechanism = LaplaceCells(keyed.ungrouped_layout(2), 4.0)
    exact = GRID_POINTS_PER_UNIT * np.array([[1, 0, 1, 0], [0, 1, 0, 1]])

    def observe(case: int, count: int) -> Integers:
        reports = mechanism.randomize(
            keyed.contribute_alike(mechanism.layout, keyed.OTHER_KEY[case], count), SecureNoise()
        )
        return mechanism.parse(reports.tobytes()).astype(np.int64)

    laws: tuple[Law, ...] = (LaplaceLaw(math.ceil(_L1_SENSITIVITY * GRID_POINTS_PER_UNIT / mechanism.epsilon)),) * 4
    sampler, model = "DiscreteLaplace.draw", model_for(attack_reports)
    return [
        build_part(
            name, mechanism, model, sampler, observe, Noise(laws, columns, exact), keyed.N_SUMS, calibration=PUBLISHED
        )
        for name, columns in (("rewards of all cells", (0, 1)), ("counts of all cells", (2, 3)))
    ]


@log_likelihood.register
def _likelihood(mechanism: LaplaceCells, contributions: KeyedValues, rows: NDArray[Any]) -> Scores:
    return np.asarray(-np.abs(rows - compute_noiseless_cells(mechanism, contributions)).sum(axis=1) / mechanism.scale)


def compute_noiseless_cells(mechanism: LaplaceCells, reports: KeyedValues) -> Scores:
    """Return rewards and counts of every cell before noise, on the grid, (n, 2 * cells)."""
    layout, keyed = mechanism.layout, np.flatnonzero(reports.keys >= 0)
    cells = np.zeros((len(reports), 2, layout.keys, layout.groups))
    cells[keyed, 0, reports.keys[keyed], reports.groups[keyed]] = GRID_POINTS_PER_UNIT * reports.values[keyed]
    cells[keyed, 1, reports.keys[keyed], reports.groups[keyed]] = GRID_POINTS_PER_UNIT
    return cells.reshape(len(reports), -1)
