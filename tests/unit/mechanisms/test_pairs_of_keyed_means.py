"""Pairs of sums for keyed means: their terms, a participant's influence, and the advantage of an attack."""

import math
from itertools import product
from typing import Any

import numpy as np
import pytest

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Repeated
from privateer_core.mechanisms.cell_pairs import SENSITIVITY, CellPairs
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.privacy import Privacy
from privateer_lab.audit.law import Scores
from privateer_lab.simulation.scores import SeededNoise
from tests.support.statistics import realised_epsilon

DRAWS = 40_000
NEIGHBOURS = (((0, 1.0), (0, 0.0)), ((0, 1.0), (1, 1.0)), ((0, 0.4), (-1, 0.0)))


def terms_of(delta: float = 1e-6, reports: int = 1, epsilon: float = 1.0, **question: Any) -> Terms:
    layout = question.pop("layout", Layout.ungrouped(3, 5))
    keyed_means = KeyedMeans(layout, **{"has_counts": True, **question})
    return calibrate(Privacy(model="central", epsilon=epsilon, delta=delta), 1000, keyed_means, reports=reports)


def contributions_of(people: list[tuple[int, float]]) -> KeyedValues:
    keys, values = (np.array(part) for part in zip(*people, strict=True))
    return KeyedValues.ungrouped(np.zeros(len(keys), np.uint32), keys, values)


def release_pairs(mechanism: CellPairs, people: list[tuple[int, float]], seed: int = 0) -> np.ndarray:
    noise = SeededNoise(seed)
    total = mechanism.add(mechanism.empty(), mechanism.randomize(contributions_of(people), noise))
    release = mechanism.release(total, noise)
    return np.concatenate([release.positive.ravel(), (release.hits - release.positive).ravel()])


@pytest.mark.parametrize("delta", [0.0, 1e-6])
def test_one_report_has_pairs_of_a_pure_promise(delta: float) -> None:
    terms = terms_of(delta)
    assert isinstance(terms.mechanism, CellPairs)
    assert terms.keeps_promise
    assert account(terms.mechanism.release_event).delta(1.0) == 0.0
    assert account(terms.mechanism.release_event).delta(0.999) > 0.0
    assert terms.mechanism.noise == pytest.approx(8.0, rel=1e-3)


def test_several_reports_have_pairs_where_their_allotments_are_pure_and_sums_elsewhere() -> None:
    """All reports of a participant together keep the promise, by the accountant."""
    pure, normal = terms_of(0.0, 3), terms_of(1e-6, 3)
    assert isinstance(pure.mechanism, CellPairs)
    assert isinstance(normal.mechanism, CentralSums)
    assert pure.keeps_promise
    assert normal.keeps_promise
    event = pure.event
    assert event is not None
    assert account(Repeated(event, 3)).delta(1.0) == 0.0
    assert account(Repeated(event, 4)).delta(1.0) > 0.0


def test_pairs_are_no_part_of_an_allotment_of_normal_noise() -> None:
    """Planted: pairs that share epsilon out beside reports that share out normal noise; a device refuses them."""
    normal = terms_of(1e-6, 3)
    pairs = terms_of(0.0, 3).mechanism
    lie = Terms("central", 1.0, 1e-6, normal.calibration, 1000, 0, pairs, 3)
    assert not lie.keeps_promise


def test_there_are_sums_where_coins_choose_or_no_counts_are_wanted() -> None:
    assert isinstance(terms_of(layout=Layout.example()).mechanism, CentralSums)
    assert isinstance(terms_of(has_counts=False).mechanism, CentralSums)
    assert CellPairs in TRUST["central"].serves[KeyedMeans].mechanisms


def test_no_two_people_differ_by_more_than_the_sensitivity() -> None:
    exact = CellPairs(terms_of().mechanism.layout)  # type: ignore[union-attr,arg-type]
    people = [release_pairs(exact, [person]) for person in product((-1, 0, 1, 2), (0.0, 0.3, 1.0))]
    max_distance = max(np.abs(release - other).sum() for release, other in product(people, people))
    assert max_distance == pytest.approx(SENSITIVITY)


def scores(mechanism: CellPairs, people: tuple[Any, Any], seed: int) -> list[Scores]:
    """Return the log likelihood ratio of two neighbours for each release of either, in six steps."""
    exact = [release_pairs(CellPairs(mechanism.layout), [person]) for person in people]
    rng, ratios = np.random.default_rng(seed), []
    for person in people:
        releases = [mechanism.simulate(contributions_of([person]), rng) for _ in range(DRAWS // 20)]
        sums = np.array([np.concatenate([r.positive.ravel(), (r.hits - r.positive).ravel()]) for r in releases])
        ratio = (np.abs(sums - exact[1]) - np.abs(sums - exact[0])).sum(axis=1)
        ratios.append(np.rint(3 * np.clip(ratio, -SENSITIVITY, SENSITIVITY) / SENSITIVITY))
    return ratios


@pytest.mark.parametrize("people", NEIGHBOURS, ids=str)
def test_an_attack_finds_no_more_than_is_promised(people: tuple[Any, Any]) -> None:
    mechanism = terms_of(epsilon=2.0).mechanism
    assert isinstance(mechanism, CellPairs)
    assert realised_epsilon(*scores(mechanism, people, 1)) <= 2.0


def test_half_of_the_noise_is_caught() -> None:
    """Planted: pairs with noise for twice the promise; the attack proves more than is claimed, and devices refuse."""
    honest = terms_of(epsilon=2.0)
    assert isinstance(honest.mechanism, CellPairs)
    half = honest.mechanism.with_less_noise(2.0)
    assert realised_epsilon(*scores(half, NEIGHBOURS[0], 1)) > 2.0
    lie = Terms("central", 2.0, 1e-6, honest.calibration, 1000, 0, half)
    assert not lie.keeps_promise
    assert math.isclose(lie.true_delta, account(half.release_event).delta(2.0))


def test_people_counted_by_key_and_reward_have_the_law_of_people_one_by_one() -> None:
    """Means and variances over 2,000 releases agree within five standard errors."""
    mechanism = terms_of().mechanism
    assert isinstance(mechanism, CellPairs)
    counts = np.array([[[5, 2]], [[0, 7]], [[3, 0]]])
    people = [(key, float(value)) for key in range(3) for value in (0, 1) for _ in range(counts[key, 0, value])]
    rng = np.random.default_rng(3)
    by_counts = np.array([mechanism.simulate_counts(counts, 4, rng).positive.ravel() for _ in range(2000)])
    one_by_one = np.array(
        [mechanism.simulate(contributions_of([*people, *[(-1, 0.0)] * 4]), rng).positive.ravel() for _ in range(2000)]
    )
    error = 5 * np.sqrt(2 * mechanism.noise / 2000)
    assert np.abs(by_counts.mean(axis=0) - one_by_one.mean(axis=0)).max() < error
    assert mechanism.simulate_counts(counts, 4, rng).reports == 21
    assert by_counts.var(axis=0) == pytest.approx(mechanism.noise, rel=0.25)
