"""What intervals of trials promise where rewards are numbers, on trials drawn from the exact laws of mechanisms.

Ranges are the promise and four standard errors, so that each alarm is false once in 16,000 runs; seeds are fixed.
"""

import numpy as np
import pytest

from privateer_server.algorithms.trial.evidence.weighted_sums import Sums
from tests.support.numeric_trials import SCORES, SKEWED, NumericTrials, Rewards, revenue

SETTINGS = [("none", 0.0), ("central", 1.0), ("central", 0.3), ("shuffle", 1.0), ("local", 4.0), ("local", 1.0)]
WIDTHS = {
    "scores": (SCORES, (1.055, 1.23, 2.3, 2.6, 1.95, 10.2)),
    "skewed scores": (SKEWED, (1.055, 1.27, 2.5, 2.85, 2.1, 10.9)),
    "revenue": (revenue(), (1.06, 2.12, 6.2, 4.9, 3.45, 19.8)),
}
"""Half-widths over those of a plain interval of everybody's rewards, at most; 1.055 is what eight looks cost."""


def trials(model: str, epsilon: float, law: Rewards, count: int) -> NumericTrials:
    return NumericTrials(model, epsilon, (law, law), count=count, expected=law.mean)


@pytest.mark.parametrize("place", [0, 1, 4])
def test_scores_have_intervals_four_times_narrower_than_bits_and_none_is_found_too_often(place: int) -> None:
    """200 effects of 0: .05 and four standard errors of .0155; of widths, medians, 2 %."""
    law, max_widths = WIDTHS["scores"]
    figures = trials(*SETTINGS[place], law, 200).play(adapt=False)
    assert figures.width < max_widths[place] * 1.02
    assert figures.rejection_rate <= 0.112
    assert figures.resolved == 1


def test_batches_of_bits_and_batches_of_levels_go_together() -> None:
    """500 effects of 0, the first looks of which have two levels and later ones more: .05 and four errors of .0097."""
    numeric_trials = NumericTrials(
        "shuffle", 1.0, (revenue(), revenue()), count=500, expected=revenue().mean, limit=16.0
    )
    assert [
        numeric_trials.mechanism(people).levels for people in (numeric_trials.sizes[0], numeric_trials.sizes[-1])
    ] == [2, 3]
    figures = numeric_trials.play(adapt=False)
    assert figures.rejection_rate <= 0.089
    assert figures.end >= 0.92


def test_planted_intervals_with_the_variance_of_bits_are_too_wide(monkeypatch: pytest.MonkeyPatch) -> None:
    of_bits = property(lambda self: np.repeat((self.middle * (1 - self.middle))[..., None], 2, axis=-1))
    monkeypatch.setattr(Sums, "variance_by_arm", of_bits)
    assert trials("none", 0.0, SCORES, 100).play(adapt=False).width > 4


def own_variances(sums: Sums) -> np.ndarray:
    """Each arm's own variance, of values that nobody adds noise to."""
    values, has_hits = sums.values, sums.den > 0
    hits = np.where(has_hits, sums.den, 1.0)
    variances = values.squares / hits - np.square(sums.num / hits)
    return np.where(has_hits, variances * sums.square / np.square(hits), np.inf)


def test_rare_revenue_is_not_found_too_often_where_shares_adapt() -> None:
    """600 effects of 0, one buyer in a hundred: .05 and four standard errors of .009."""
    assert trials("none", 0.0, revenue(0.01), 600).play(adapt=True).rejection_rate <= 0.086


def test_planted_variances_of_each_arm_without_the_gate_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Sums, "variances", property(own_variances))
    for name in ("is_ready", "can_steer"):
        monkeypatch.setattr(Sums, name, property(lambda sums: (sums.den > 0).all(axis=-1)))
    assert trials("none", 0.0, revenue(0.01), 600).play(adapt=True).rejection_rate > 0.1


@pytest.mark.nightly
@pytest.mark.parametrize("name", WIDTHS)
@pytest.mark.parametrize("place", range(len(SETTINGS)))
def test_widths_false_positives_and_coverage(name: str, place: int) -> None:
    """1,000 trials: standard errors .007 of false positives, .006 of coverage, which is .961 at the end."""
    law, max_widths = WIDTHS[name]
    none = trials(*SETTINGS[place], law, 1_000)
    arms = (law, law.with_effect(1.5 * none.welch))
    moved = NumericTrials(none.model, none.epsilon, arms, count=1_000, expected=law.mean)
    for adapt in (False, True):
        figures, effect = none.play(adapt), moved.play(adapt)
        assert figures.rejection_rate <= 0.078
        assert min(figures.end, effect.end) >= 0.935
        assert min(figures.always, effect.always) >= 0.922
        if not adapt:
            assert figures.width <= max_widths[place] * 1.02
            assert abs(effect.error) * none.welch <= 0.13 * effect.width * none.welch
