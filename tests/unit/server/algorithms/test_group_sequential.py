import numpy as np
import pytest

from privateer_server.algorithms.trial.group_sequential import (
    critical_values,
    decision_time,
    estimate_stagewise,
    find_drift,
    p_values,
    power,
)
from tests.support.trials import growing_fractions

GROWING = growing_fractions(1_000, 17_000)
EQUAL = tuple((np.arange(1, 21) / 20).tolist())


def walks(times: tuple[float, ...], drift: float, count: int, seed: int) -> np.ndarray:
    """B(t) at the times, (count, looks), from its definition."""
    steps = np.diff((0.0, *times))
    return np.cumsum(np.random.default_rng(seed).normal(drift * steps, np.sqrt(steps), (count, len(steps))), axis=1)


def test_boundaries_are_those_of_the_literature() -> None:
    assert critical_values(GROWING, 0.05)[::-1][:4] == pytest.approx([2.068, 2.399, 2.694, 2.963], abs=0.003)
    last = [critical_values(tuple((np.arange(1, k + 1) / k).tolist()), 0.05)[-1] for k in (5, 10, 20)]
    assert last == pytest.approx([2.11, 2.17, 2.22], abs=0.005)


@pytest.mark.parametrize("times", [GROWING, EQUAL])
def test_without_an_effect_any_look_crosses_with_probability_alpha(times: tuple[float, ...]) -> None:
    """20,000 walks: 4 standard errors are .006, so a false alarm comes once in 16,000."""
    scores = walks(times, 0.0, 20_000, 1) / np.sqrt(times)
    crossed = (np.abs(scores) > critical_values(times, 0.05)).any(axis=1).mean()
    assert crossed == pytest.approx(0.05, abs=0.006)
    assert (np.abs(scores) > 1.96).any(axis=1).mean() > 0.15  # what looking without boundaries does


def test_sequential_p_values_are_valid_and_agree_with_the_boundaries() -> None:
    scores = (walks(GROWING, 0.0, 20_000, 2) / np.sqrt(GROWING)).T.copy()
    p = p_values(GROWING, scores)
    assert (np.diff(p, axis=0) <= 0).all()
    for alpha in (0.01, 0.05, 0.3):
        crossed = (np.abs(scores) > critical_values(GROWING, alpha)[:, None]).any(axis=0)
        assert ((p[-1] <= alpha) == crossed).mean() > 0.999
    scores[:, 0] = np.nan
    assert (p_values(GROWING, scores)[:, 0] == 1).all()


def test_a_look_without_new_people_has_no_boundary_and_costs_nothing() -> None:
    with_pause = (*GROWING[:4], GROWING[3] + 1e-5, *GROWING[4:], 1.0)
    boundaries = critical_values(with_pause, 0.05)
    assert np.isinf(boundaries[[4, -1]]).all()
    assert np.delete(boundaries, [4, len(boundaries) - 1]) == pytest.approx(critical_values(GROWING, 0.05))


def test_power_and_decision_time_are_those_of_simulated_walks() -> None:
    assert find_drift(GROWING, 0.05) == pytest.approx(2.871, abs=0.002)
    assert find_drift(GROWING, 0.05, 0.9) == pytest.approx(3.314, abs=0.002)
    crossed = np.abs(walks(GROWING, 2.871, 20_000, 3) / np.sqrt(GROWING)) > critical_values(GROWING, 0.05)
    first = np.where(crossed.any(axis=1), np.array(GROWING)[crossed.argmax(axis=1)], 1.0)
    assert power(GROWING, 0.05, np.array([2.871]))[0] == pytest.approx(crossed.any(axis=1).mean(), abs=0.012)
    assert decision_time(GROWING, 0.05, 2.871) == pytest.approx(first.mean(), abs=0.01)


def test_stagewise_limits_have_the_stated_coverage() -> None:
    """20,000 walks for each of the two limits and the estimate: 4 standard errors are .0044 and .014."""
    times, score = GROWING[:6], 3.4
    limits = estimate_stagewise(times, 0.05, score, 1 / np.sqrt(times[-1]))
    assert limits.low < limits.estimate < limits.high
    assert limits.estimate < score / np.sqrt(times[-1])  # the plain estimate is inflated by stopping
    edges = critical_values(times, 0.05)
    for limit, probability in ((limits.low, 0.025), (limits.estimate, 0.5), (limits.high, 0.975)):
        scores = walks(times, limit, 20_000, 4) / np.sqrt(times)
        outside = np.abs(scores) > edges
        early = outside[:, :-1].any(axis=1)
        above = np.take_along_axis(scores, outside.argmax(axis=1)[:, None], axis=1)[:, 0] > 0
        assert np.where(early, above, scores[:, -1] > score).mean() == pytest.approx(probability, abs=0.014)
    mirrored = estimate_stagewise(times, 0.05, -score, 1 / np.sqrt(times[-1]))
    assert (mirrored.estimate, mirrored.low) == pytest.approx((-limits.estimate, -limits.high))
