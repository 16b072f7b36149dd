"""Allotments: the reports that an allotment covers compose to the promise at most, and nearly to it."""

import math

import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot, allotted_local_epsilon
from privateer_core.accounting.amplification import amplified_local_epsilon
from privateer_core.accounting.events import (
    Approximate,
    Gaussian,
    Parallel,
    Pure,
    Repeated,
    Sequential,
    ShuffledMessage,
    ShuffledResponse,
    ShuffledSubset,
)
from privateer_core.accounting.gaussian import gaussian_standard_deviation
from privateer_core.errors import SpecError

EPSILON, DELTA = 1.0, 1e-6


@pytest.mark.parametrize("reports", [2, 20, 1000])
def test_an_allotment_composes_to_the_promise_by_another_accountant(reports: int) -> None:
    share = allot(EPSILON, DELTA, reports, 1e-15)
    deviation = share.standard_deviation / math.sqrt(reports)
    normal = pld.from_gaussian_mechanism(deviation, value_discretization_interval=1e-4)
    failing = 1 - (1 - share.slack) ** reports
    independent = failing + (1 - failing) * normal.get_delta_for_epsilon(EPSILON)
    assert independent <= share.composed_delta(EPSILON) <= DELTA
    assert account(Repeated(share.report_event, reports)).delta(EPSILON) == pytest.approx(independent, rel=1e-3)
    # Little is given away: the best normal noise for so many releases needs half a percent less.
    assert share.standard_deviation < 1.005 * math.sqrt(reports) * gaussian_standard_deviation(EPSILON, DELTA)


def test_reports_in_rounds_of_all_sizes_keep_the_promise_together() -> None:
    """Composed event by event: the largest local epsilons that a share covers, in batches of any size and alphabet."""
    share = allot(EPSILON, DELTA, 5, 1e-15)
    small, large = (ShuffledResponse(allotted_local_epsilon(share, *kind, 6.0), *kind) for kind in ((2, 200), (9, 300)))
    mixed = account(Sequential((small, large, small, large, large))).delta(EPSILON)
    assert mixed <= account(Repeated(Parallel((share.report_event, small, large)), 5)).delta(EPSILON) <= DELTA
    bolder = ShuffledResponse(1.15 * large.local_epsilon, large.symbols, large.honest)
    assert not share.can_cover(bolder)
    assert account(Repeated(Parallel((bolder,)), 5)).delta(EPSILON) > DELTA


def test_a_single_reports_budget_is_too_large_for_each_of_several() -> None:
    """The planted defect: a round that is calibrated for the whole promise."""
    share = allot(EPSILON, DELTA, 2, 1e-15)
    whole = ShuffledResponse(amplified_local_epsilon(EPSILON, DELTA, 2, 300, 6.0), 2, 300)
    assert not share.can_cover(whole)
    assert account(Repeated(whole, 2)).delta(EPSILON) > 100 * DELTA


@pytest.mark.parametrize("batch", [500, pytest.param(9000, marks=pytest.mark.nightly)])
def test_subset_selections_keep_the_promise_together(batch: int) -> None:
    """Planted: an eighth more for each report, the cost of a single report, and a cost no message may have."""
    share, sizes = allot(EPSILON, DELTA, 5, 1e-15), (64, 21)
    message = ShuffledSubset(allotted_local_epsilon(share, 64, batch, 8.0, n_own=21), *sizes, batch)
    assert not share.can_cover(ShuffledMessage(message.local_epsilon, batch))
    assert (
        account(Repeated(message, 5)).delta(EPSILON) <= account(Repeated(share.report_event, 5)).delta(EPSILON) <= DELTA
    )
    assert account(Repeated(message, 5)).delta(EPSILON) > 1e-3 * DELTA
    for local in (1.125 * message.local_epsilon, amplified_local_epsilon(EPSILON, DELTA, 64 / 21, batch, 8.0)):
        assert not share.can_cover(ShuffledSubset(local, *sizes, batch))
        assert account(Repeated(ShuffledSubset(local, *sizes, batch), 5)).delta(EPSILON) > DELTA


def test_a_batch_above_the_maximum_counts_as_the_maximum() -> None:
    share = allot(EPSILON, DELTA, 5, 1e-15)
    assert len({allotted_local_epsilon(share, 64, batch, 16.0, n_own=21) for batch in (10**6, 200_000)}) == 1
    assert share.can_cover(ShuffledMessage(4.0, 10**6)) == share.can_cover(ShuffledMessage(4.0, 200_000))


def test_normal_noise_and_its_sampler_fit_the_budget() -> None:
    share = allot(EPSILON, DELTA, 20, 1e-8)
    assert share.can_cover(Gaussian(2 * share.standard_deviation, 2.0), sampling=7.5e-9)
    assert not share.can_cover(Gaussian(2 * share.standard_deviation, 2.0), sampling=2e-8)
    assert not share.can_cover(Gaussian(1.99 * share.standard_deviation, 2.0))


@pytest.mark.parametrize(("epsilon", "reports"), [(1.0, 20), (0.1, 3), (4.0, 7), (1.0, 1000)])
def test_without_delta_epsilons_add_up(epsilon: float, reports: int) -> None:
    share = allot(epsilon, 0.0, reports, 1e-8)
    assert account(Repeated(Parallel((share.report_event, share.report_event)), reports)).delta(epsilon) == 0
    assert share.composed_delta(epsilon) == 0
    assert share.can_cover(Pure(share.pure))
    assert not share.can_cover(Pure(1.001 * share.pure))
    assert not share.can_cover(ShuffledResponse(1.001 * share.pure, 2, 1))


def test_a_delta_without_room_is_refused() -> None:
    with pytest.raises(SpecError, match=r"privacy\.delta: must be at least 4e-07 for 20 reports a person") as refused:
        allot(EPSILON, 1e-7, 20, 1e-8)
    assert "experiment.reports_per_person" in str(refused.value)


def test_failure_probabilities_are_composed_exactly() -> None:
    curve = account(Sequential((Gaussian(3.0), Approximate(0.0, 1e-3), Approximate(0.0, 1e-3))))
    failing = 1 - (1 - 1e-3) ** 2
    assert curve.delta(0.5) == pytest.approx(failing + (1 - failing) * account(Gaussian(3.0)).delta(0.5), rel=1e-8)
    assert curve.epsilon(0.01) == pytest.approx(
        account(Gaussian(3.0)).epsilon((0.01 - failing) / (1 - failing)), rel=1e-6
    )


@pytest.mark.parametrize("epsilon", [0.3, 0.9, 2.5, 8.0])
def test_every_epsilon_and_delta_has_an_allotment(epsilon: float) -> None:
    share = allot(epsilon, DELTA, 3, 1e-8)
    assert 0.9 * DELTA < share.composed_delta(epsilon) < DELTA
    assert share.standard_deviation == float(f"{share.standard_deviation:.4g}")
