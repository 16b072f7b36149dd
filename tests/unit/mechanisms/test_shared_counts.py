"""Counts of shared votes: the cost of a server's noise by an independent computation, and the sum of both noises.

Statistical tests have fixed seeds, and each would fail by chance once in a million.
"""

import math
from itertools import product

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot
from privateer_core.errors import SpecError
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.shared_counts import STEPS, SharedCounts
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.vdaf.batch import verify_many
from privateer_core.vdaf.field import FIELD_128
from privateer_core.vdaf.prio3 import Prio3
from privateer_lab.simulation.scores import SeededNoise
from tests.unit.vdaf.test_batch import is_accepted, make_reports
from tests.unit.vdaf.votes import ALGORITHM, CONTEXT, KEY

LENGTHS = [(3,), (8,), (2, 3), (4, 2, 3)]
PROMISES = [(0.3, 1e-6), (1.0, 1e-6), (4.0, 1e-8)]
PRIME = FIELD_128.modulus


def vote_distances(mechanism: SharedCounts) -> tuple[float, int]:
    """Return the largest L2 and L1 distance of two votes' bits, of all pairs of votes."""
    bits = np.array([mechanism.encode_vote(cells) for cells in product(*map(range, mechanism.lengths))])
    differences = np.abs(bits[:, None] - bits[None])
    return float(np.sqrt((differences**2).sum(axis=-1)).max()), int(differences.sum(axis=-1).max())


def integrate_delta(epsilon: float, standard_deviation: float, distance: float) -> float:
    """Integrate the excess of a normal density over e^epsilon times another one, at a distance."""
    first, second = stats.norm(0.0, standard_deviation), stats.norm(distance, standard_deviation)

    def excess(x: float) -> float:
        return max(0.0, first.pdf(x) - math.exp(epsilon) * second.pdf(x))

    # The densities' ratio is e^epsilon at the edge; 12 standard deviations below it nothing is left.
    edge = distance / 2 - epsilon * standard_deviation**2 / distance
    return quad(excess, min(edge, 0.0) - 12 * standard_deviation, edge, epsabs=0.0, epsrel=1e-10, limit=400)[0]


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_servers_normal_noise_keeps_the_promise_and_no_more(
    lengths: tuple[int, ...], epsilon: float, delta: float
) -> None:
    mechanism = SharedCounts.calibrated(lengths, epsilon, delta)
    distance, _ = vote_distances(mechanism)
    spent_budget = integrate_delta(epsilon, mechanism.standard_deviation, distance)
    assert 0.95 * delta <= spent_budget + mechanism.sampling <= delta
    assert account(mechanism.release_event).delta(epsilon) == pytest.approx(spent_budget, rel=1e-6)
    weak = SharedCounts(lengths, mechanism.standard_deviation / math.sqrt(2))
    planted = "planted: each server adds half of the variance, so that both together add what one has to"
    assert integrate_delta(epsilon, weak.standard_deviation, distance) > 2 * delta, planted


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("lengths", LENGTHS, ids=str)
def test_a_servers_laplace_noise_keeps_the_promise_and_no_more(lengths: tuple[int, ...], epsilon: float) -> None:
    mechanism = SharedCounts.calibrated(lengths, epsilon, 0.0)
    _, distance = vote_distances(mechanism)
    spent_budget = distance * STEPS / math.ceil(mechanism.scale * STEPS)  # of a ratio of products of e^(-|k| / scale)
    assert 0.999 * epsilon <= spent_budget <= epsilon
    assert spent_budget <= account(mechanism.release_event).epsilon(0.0) <= spent_budget * (1 + 1e-8)
    assert mechanism.sampling == 0


def test_several_reports_of_a_person_share_a_promise() -> None:
    share = allot(1.0, 1e-6, 3, 1e-8)
    assert share.can_cover(SharedCounts.calibrated((4, 2), 1.0, 1e-6, share).release_event, 0.0, 1e-9)
    assert not share.can_cover(SharedCounts.calibrated((4, 2), 1.0, 1e-6).release_event, 0.0, 1e-9)


def test_keyed_means_have_twice_the_variance_of_a_curators() -> None:
    """A cell for each key, group and value: scores are the difference of two cells, and hits their sum."""
    layout = Layout(3, np.zeros((4, 1), np.uint32))
    central = CentralSums.calibrated(KeyedMeans(layout), 1.0, 1e-6)
    mechanism = SharedCounts.calibrated((2 * layout.keys * layout.groups,), 1.0, 1e-6)
    one_server = 2 * mechanism.standard_deviation**2
    assert one_server == pytest.approx(central.standard_deviation**2, rel=1e-5)
    assert 2 * mechanism.variance == 2 * one_server


@pytest.mark.parametrize("promise", [(1.0, 1e-6), (1.0, 0.0)], ids=["normal", "laplace"])
def test_the_release_of_two_servers_is_as_simulated(promise: tuple[float, float]) -> None:
    """Of 40,000 numbers the variance has a standard error of 0.7 % (normal) and 1.1 %: 5 of them are allowed.

    The planted release with one server's noise has half of the variance, 45 standard errors away.
    """
    mechanism = SharedCounts.calibrated((20_000, 20_000), *promise)
    rng, noises = np.random.default_rng(59), [SeededNoise(1), SeededNoise(2)]
    votes = rng.integers(0, 20_000, size=(3_000, 2))
    counts = np.bincount((votes + mechanism.starts).ravel(), minlength=40_000)
    masks = [int.from_bytes(rng.bytes(15), "little") for _ in range(40_000)]
    shares = [masks, [(int(count) - mask) % PRIME for count, mask in zip(counts, masks, strict=True)]]
    noisy = [mechanism.add_noise(share, noise) for share, noise in zip(shares, noises, strict=True)]
    released, simulated = mechanism.release(noisy) - counts, mechanism.simulate(votes, rng) - counts
    allowed = 5 * 0.011 * mechanism.variance
    for residuals in (released, simulated):
        assert residuals.var() == pytest.approx(mechanism.variance, abs=allowed)
        assert residuals.mean() == pytest.approx(0.0, abs=5 * math.sqrt(mechanism.variance / 40_000))
    assert stats.ks_2samp(released, simulated).pvalue > 1e-6
    silent = [noisy[0], [number * STEPS % PRIME for number in shares[1]]]
    planted = mechanism.release(silent) - counts
    assert planted.var() < mechanism.variance - 8 * allowed, "planted: the helper adds no noise"


def test_votes_of_devices_are_counted_and_a_double_vote_is_refused() -> None:
    """Noise of a hundredth of a vote: rounding gives another count with probability below 1e-200."""
    mechanism = SharedCounts((3, 4), 0.01)
    assert mechanism.circuit.field is FIELD_128
    prio3, votes = Prio3(mechanism.circuit, ALGORITHM), np.random.default_rng(3).integers(0, [3, 4], size=(12, 2))
    bits = [tuple(mechanism.encode_vote(vote)) for vote in votes.tolist()]
    double = (1, 1, 0, *bits[0][3:])
    leader, helper = (
        verify_many(prio3, KEY, CONTEXT, party, reports)
        for party, reports in enumerate(make_reports(prio3, [*bits, double]))
    )
    accepted = [is_accepted(prio3, leader, helper, index) for index in range(13)]
    assert accepted == [True] * 12 + [False]
    shares = [mechanism.add_noise(batch.add_up(accepted), SecureNoise()) for batch in (leader, helper)]
    counts = [(votes[:, block] == cell).sum() for block, length in enumerate((3, 4)) for cell in range(length)]
    released = mechanism.release(shares)
    assert np.rint(released).tolist() == counts
    assert np.all(released != counts), "each number has noise"


def test_a_vote_outside_of_its_blocks_and_a_mechanism_without_noise_are_refused() -> None:
    with pytest.raises(ValueError, match="a cell of each block"):
        SharedCounts((3, 4), 1.0).encode_vote([3, 0])
    for arguments in ((), (1.0, 1.0), (-1.0,)):
        with pytest.raises(SpecError, match="one of the two"):
            SharedCounts((3,), *arguments)
    with pytest.raises(SpecError, match="sum of at most"):
        SharedCounts((3, 0), 1.0)
