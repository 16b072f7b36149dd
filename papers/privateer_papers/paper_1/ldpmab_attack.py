"""Attack LDPMAB's reports, as a whole and draw by draw of the Laplace noise in each cell."""

import math
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from privateer_core.primitives.contributions import KeyedValues
from privateer_core.sampling.entropy import SecureNoise
from privateer_lab.audit.case import Case, Integers, MechanismPart, Noise, noise_part
from privateer_lab.audit.law import LaplaceLaw, Law
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.mechanisms.keyed import ELSEWHERE, LAYOUT, PAIRS, SUMS, maker, people, plain
from privateer_lab.audit.views import Target, log_likelihood, mechanism_case, model_of, reports
from privateer_papers.paper_1.laplace_cells import UNIT, LaplaceCells
from privateer_papers.published_trust import PUBLISHED

_L1: Final = 4
"""What a replaced person moves in all cells, in units of a value."""


def cases(samples: int) -> list[Case]:
    """Return attacks on reports one by one."""
    return [
        mechanism_case(
            f"cells for epsilon {epsilon:g}, {pair}",
            reports,
            Target(LaplaceCells(LAYOUT, epsilon), (maker(PAIRS[pair][0]), maker(PAIRS[pair][1]))),
            (epsilon, 0.0),
            samples // 4,
            PUBLISHED,
        )
        for epsilon in (1.0, 4.0)
        for pair in ("opposite rewards", "another bin")
    ]


def parts() -> list[MechanismPart]:
    """Return attacks on rewards and counts of every cell, whether the person is in it or not."""
    mechanism = LaplaceCells(plain(2), 4.0)
    exact = UNIT * np.array([[1, 0, 1, 0], [0, 1, 0, 1]])

    def observe(who: int, count: int) -> Integers:
        told = mechanism.randomize(people(mechanism.layout, ELSEWHERE[who], count), SecureNoise())
        return mechanism.parse(told.tobytes()).astype(np.int64)

    laws: tuple[Law, ...] = (LaplaceLaw(math.ceil(_L1 * UNIT / mechanism.epsilon)),) * 4
    sampler, model = "DiscreteLaplace.draw", model_of(reports)
    return [
        noise_part(name, mechanism, model, sampler, observe, Noise(laws, own, exact), SUMS, calibration=PUBLISHED)
        for name, own in (("rewards of all cells", (0, 1)), ("counts of all cells", (2, 3)))
    ]


@log_likelihood.register
def _likelihood(mechanism: LaplaceCells, made: KeyedValues, rows: NDArray[Any]) -> Scores:
    return np.asarray(-np.abs(rows - cells_of(mechanism, made)).sum(axis=1) / mechanism.scale)


def cells_of(mechanism: LaplaceCells, made: KeyedValues) -> Scores:
    """Return rewards and counts of every cell before noise, on the grid, (n, 2 * cells)."""
    layout, keyed = mechanism.layout, np.flatnonzero(made.keys >= 0)
    cells = np.zeros((len(made), 2, layout.keys, layout.groups))
    cells[keyed, 0, made.keys[keyed], made.groups[keyed]] = UNIT * made.values[keyed]
    cells[keyed, 1, made.keys[keyed], made.groups[keyed]] = UNIT
    return cells.reshape(len(made), -1)
