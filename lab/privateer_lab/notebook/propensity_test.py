"""A test of logged propensities that is exact however small they are: bets on 1 / p, whose mean must be 1."""

from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from privateer_lab.notebook.choice_log import ChoiceLog
from privateer_lab.notebook.policies import Array

FALSE_ALARM: Final = 1e-3
"""The probability that right propensities are called wrong."""
_STAKES: Final = 0.5 ** np.arange(1, 11)
"""Shares of the capital that a bet may lose."""
_MIN_ROWS: Final = 5
"""Rows of an arm in a cell, on average, where cells say what propensities depend on."""
_DUST: Final = 1e-6


@dataclass(frozen=True)
class PropensityTest:
    """Bets against the propensities of a log.

    For every row, [arm] / p has a mean of 1, whatever the rows before are. Who bets shares of a capital of 1 on values
    above or below has 1 / alpha or more with a probability of at most alpha if propensities are right (Ville 1939;
    Waudby-Smith and Ramdas 2024). So nothing need be normal, and the log may be that of a policy that learned. Bets on
    values below need the largest 1 / p: that of the arm and cell, or of all rows where nobody in the cell got the arm.
    """

    log: ChoiceLog

    def misfits(self, shares: Array) -> dict[int, str]:
        """Say of which arms propensities do not fit how often everybody, or those whom a policy gives it, got it.

        All tests together have a probability of `FALSE_ALARM` to find an arm by chance.

        Parameters
        ----------
        shares
            Shape (n, arms): the policy's.
        """
        sentences, limit = dict[int, str](), float(np.log(2 * len(self.log.arms) / FALSE_ALARM))
        for arm in np.unique(self.log.chosen).tolist():
            evidence, mean, whom = *self._of_everybody[arm], "everybody"
            if evidence < limit and shares[:, arm].min() < shares[:, arm].max():
                evidence, mean = self._evidence(arm, shares[:, arm])
                whom = "those whom the policy gives it"
            if evidence >= limit:
                sentences[arm] = (
                    f"the propensities of arm {self.log.arms[arm]!r} do not fit how often {whom} got it: 1 / p has a "
                    f"mean of {mean:.2f} in the place of 1. Either propensities are wrong, or some people can never "
                    "get the arm"
                )
        return sentences

    @cached_property
    def _of_everybody(self) -> dict[int, tuple[float, float]]:
        ones = np.ones(len(self.log))
        return {arm: self._evidence(arm, ones) for arm in np.unique(self.log.chosen).tolist()}

    def _evidence(self, arm: int, shares: Array) -> tuple[float, float]:
        """Return the logarithm of the capital of bets on an arm, and the mean of 1 / p, as shares, (n,), weight it."""
        log, is_arm = self.log, self.log.chosen == arm
        mean = float((shares * is_arm / log.propensities).mean() / shares.mean())
        cells, inverse = self._cells
        rows, times = np.arange(len(log)), np.ones(len(log))
        if not log.unit and shares.min() == shares.max():
            # Bets on rows of a cell without the arm are alike.
            others = np.flatnonzero(~is_arm)
            _, first, counts = np.unique(cells[others], return_index=True, return_counts=True)
            rows = np.append(np.flatnonzero(is_arm), others[first])
            times = np.append(np.ones(len(rows) - len(first)), counts)
        excess = shares[rows] * (is_arm[rows] / log.propensities[rows] - 1)
        most = inverse[arm, cells[rows]] - 1
        losses = np.divide(-excess, most, out=np.zeros(len(excess)), where=most > 0) / shares.max()
        if log.unit:
            n_rows = np.bincount(log.units)
            excess, losses = (np.bincount(log.units, bets) / n_rows for bets in (excess, losses))
            times = np.ones(len(n_rows))
        capitals = [np.log1p(stake * bets) @ times for bets in (excess, losses) for stake in _STAKES]
        return float(logsumexp(capitals)) - float(np.log(len(capitals))), mean

    @cached_property
    def _cells(self) -> tuple[NDArray[np.int64], Array]:
        """Return the cell of each row, (n,), and the largest 1 / p of each arm in each cell, (arms, cells).

        Cells are the values of the column that decides each arm's propensity, if there is one; else all rows are one.
        """
        log, n_arms = self.log, len(self.log.arms)
        columns = [np.unique(_texts(values), return_inverse=True)[1] for values in log.columns.values()]
        single = np.zeros(len(log), np.int64)
        for cells in (single, *sorted(columns, key=np.max)):
            groups = log.chosen * (int(cells.max()) + 1) + cells
            distinct, places, counts = np.unique(groups, return_inverse=True, return_counts=True)
            means = np.bincount(places, log.propensities) / counts
            is_same = np.abs(log.propensities - means[places]) < _DUST * log.propensities
            if is_same.all() and _MIN_ROWS * len(distinct) <= len(log):
                inverse = np.full((n_arms, int(cells.max()) + 1), 1 / log.propensities.min())
                inverse.ravel()[distinct] = 1 / means
                return cells, inverse
        return single, np.full((n_arms, 1), 1 / log.propensities.min())


def _texts(values: NDArray[np.generic]) -> NDArray[np.generic]:
    return values if values.dtype.kind in "fiub" else values.astype(str)
