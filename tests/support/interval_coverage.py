"""How often intervals of trials hold the effect, by outcome, shares of arms, effect, promise, and how people come."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from scipy.special import ndtri

from privateer_core.spec.privacy import Privacy
from privateer_papers.paper_4.frontier import Trials, trial_setting
from privateer_server.algorithms.trial.allocation import compute_matching_shares
from privateer_server.algorithms.trial.treatment_effects import compute_effects
from tests.support.numeric_trials import NumericTrials, Rewards, revenue

PEOPLE: Final = 20_000
RATES: Final = {"bits at .004": 0.004, "bits at .02": 0.02, "bits at .08": 0.08, "bits at .5": 0.5}
NUMBERS: Final = {
    "money": revenue(0.1),
    "counts": Rewards(np.arange(11) / 10, np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.03, 0.01, 0.005, 0.003, 0.001, 0.001])),
}
OUTCOMES: Final = (*RATES, *NUMBERS)
SHARES: Final = (0.5, 0.2, 0.1, 0.05, 0.8, 0.9, 0.95)
"""Shares of the treatment."""
FACTORS: Final = (1.0, 1.5, 2.0, 0.5)
"""Factors between the control's mean and the treatment's."""
PROMISES: Final = {
    "none": Privacy(model="none"),
    "central 1": Privacy(model="central", epsilon=1.0),
    "shuffle 1": Privacy(model="shuffle", epsilon=1.0, delta=1e-6, local_epsilon_max=8.0),
    "local 4": Privacy(model="local", epsilon=4.0),
}
WAYS: Final = {"analyze": (1, False), "service": (8, False), "adaptive": (8, True)}
"""Looks, and whether shares follow them."""
_FLOOR: Final = 0.05


@dataclass(frozen=True)
class Cell:
    """One cell of the matrix."""

    outcome: str
    share: float
    factor: float
    promise: str
    way: str

    @property
    def shares(self) -> tuple[float, float]:
        return 1 - self.share, self.share


@dataclass(frozen=True)
class Coverage:
    """Coverage and width of intervals in many trials of a cell.

    Attributes
    ----------
    resolved, coverage
        The share of trials that have an interval, and the share of these intervals that hold the effect.
    decided
        Share of all trials whose last interval leaves 0 out.
    width
        Mean width over that of a plain interval of the same people without noise (Welch's), where one look is taken.
    """

    resolved: float
    coverage: float
    decided: float
    width: float


def measure_coverage(cell: Cell, count: int, seed: int) -> Coverage:
    """Play so many trials of a cell."""
    looks, adapts = WAYS[cell.way]
    trials, effect, plain = _trials(cell, count, looks)
    rng, shares, evidence = np.random.default_rng(seed), np.tile(cell.shares, (count, 1)), trials.begin()
    ends = [round(PEOPLE / 1.5**look) for look in reversed(range(looks))]
    for people in np.diff([0, *ends]).tolist():
        evidence = evidence.add(trials.draw_epoch(rng, people, shares))
        shares = compute_matching_shares(evidence, _FLOOR) if adapts else shares
    last = compute_effects(evidence)
    low, high = last.low[:, 0], last.high[:, 0]
    resolved = np.isfinite(low) & np.isfinite(high)
    if not resolved.any():
        return Coverage(0.0, np.nan, 0.0, np.nan)
    coverage = ((low <= effect) & (effect <= high))[resolved].mean()
    decided = (resolved & ((low > 0) | (high < 0))).mean()
    width = (high - low)[resolved].mean() / plain
    return Coverage(float(resolved.mean()), float(coverage), float(decided), float(width))


def _trials(cell: Cell, count: int, looks: int) -> tuple[Trials | NumericTrials, float, float]:
    """Return the trials of a cell, the true effect, and the width of a plain interval."""
    law = NUMBERS.get(cell.outcome)
    if law is None:
        rate = RATES[cell.outcome]
        treated = min(rate * cell.factor, 1.0)
        setting = trial_setting(PROMISES[cell.promise], 1, PEOPLE // looks)
        trials = Trials(setting, np.ones(1), np.array([[rate, treated]]), PEOPLE, count, arms=cell.shares)
        each = (p * (1 - p) / (PEOPLE * share) for p, share in zip((rate, treated), cell.shares, strict=True))
        return trials, treated - rate, 2 * float(-ndtri(0.025) * np.sqrt(sum(each)))
    model, _, epsilon = cell.promise.partition(" ")
    arms = law, law.with_effect((cell.factor - 1) * law.mean)
    numeric = NumericTrials(model, float(epsilon or 0), arms, PEOPLE, count, law.mean, 8.0, cell.shares, looks)
    return numeric, numeric.effect, 2 * numeric.welch
