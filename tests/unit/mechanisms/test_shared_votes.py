"""Shared votes: the cost of a server's noise by an independent computation, and the sum of both noises.

Statistical tests have fixed seeds, and each would fail by chance once in a million.
"""

import math
from itertools import product
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from privateer_core.accounting.accountant import account
from privateer_core.accounting.allotment import allot
from privateer_core.errors import BatchRefused, OutOfRange, SpecError
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.central_sums import CentralSums
from privateer_core.mechanisms.mechanism import NO_KEY
from privateer_core.mechanisms.server_noise import STEPS, ServerNoise, join_shares
from privateer_core.mechanisms.shared_votes import SharedPairs, SharedProducts, SharedSums, SharedTriples, SharedVotes
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.primitives.public_coins import Layout, SlotLayout
from privateer_core.primitives.questions import KeyedHits, KeyedMeans
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.vdaf.batch import verify_many
from privateer_core.vdaf.field import FIELD_128
from privateer_core.vdaf.prio3 import NONCE_BYTES
from privateer_lab.simulation.scores import SeededNoise
from tests.unit.vdaf.test_batch import is_accepted, make_reports
from tests.unit.vdaf.votes import CONTEXT, KEY, shard

PROMISES = [(0.3, 1e-6), (1.0, 1e-6), (4.0, 1e-8)]
PRIME = FIELD_128.modulus
KEYS = Layout.ungrouped(2, 5)
KINDS: list[SharedVotes] = [
    SharedSums(Layout.example(), 1.0), SharedPairs(KEYS, 1.0), SharedTriples(KEYS, 1.0), SharedProducts(KEYS, 1.0)
]  # fmt: skip


def list_votes(mechanism: SharedVotes) -> Any:
    """Return all undivided votes, some divided votes, and those of people without a key."""
    unit, n_parts = mechanism.unit, mechanism.n_parts
    rows = [[unit if part == place else 0 for place in range(n_parts)] for part in range(n_parts)]
    if unit > 1:
        rows += np.random.default_rng(1).multinomial(unit, [1 / n_parts] * n_parts, size=3).tolist()
    pairs = [*product(range(mechanism.layout.keys), rows), (NO_KEY, rows[0])]
    votes = np.zeros(len(pairs), mechanism.message)
    votes["key"], votes["parts"] = [key for key, _ in pairs], [parts for _, parts in pairs]
    votes["slot"] = np.arange(len(pairs)) * 7919
    return mechanism.parse(votes.tobytes())


def vote_distances(mechanism: SharedVotes) -> tuple[float, float]:
    """Return the largest L2 and L1 distance of two people's cells, in votes, of all pairs of votes."""
    votes = list_votes(mechanism)
    totals = [mechanism.add(mechanism.empty(), votes[index : index + 1]) for index in range(len(votes))]
    cells = np.array([total.cells.ravel() for total in totals]) / mechanism.unit
    differences = np.abs(cells[:, None] - cells[None])
    return float(np.sqrt((differences**2).sum(axis=-1)).max()), float(differences.sum(axis=-1).max())


def integrate_delta(epsilon: float, standard_deviation: float, distance: float) -> float:
    """Integrate the excess of a normal density over e^epsilon times another one, at a distance."""
    first, second = stats.norm(0.0, standard_deviation), stats.norm(distance, standard_deviation)

    def excess(x: float) -> float:
        return max(0.0, first.pdf(x) - math.exp(epsilon) * second.pdf(x))

    # The densities' ratio is e^epsilon at the edge; 12 standard deviations below it nothing is left.
    edge = distance / 2 - epsilon * standard_deviation**2 / distance
    return quad(excess, min(edge, 0.0) - 12 * standard_deviation, edge, epsabs=0.0, epsrel=1e-10, limit=400)[0]


@pytest.mark.parametrize("mechanism", KINDS, ids=lambda kind: type(kind).__name__)
def test_a_replaced_vote_moves_all_cells_by_2_and_not_further(mechanism: SharedVotes) -> None:
    assert vote_distances(mechanism) == (pytest.approx(math.sqrt(2)), 2.0)


@pytest.mark.parametrize(("epsilon", "delta"), PROMISES)
def test_a_servers_normal_noise_keeps_the_promise_and_no_more(epsilon: float, delta: float) -> None:
    mechanism = SharedSums.calibrated(KeyedMeans(KEYS), epsilon, delta)
    distance, _ = vote_distances(mechanism)
    spent_budget = integrate_delta(epsilon, mechanism.standard_deviation, distance)
    assert 0.95 * delta <= spent_budget + mechanism.sampling <= delta
    assert account(mechanism.release_event).delta(epsilon) == pytest.approx(spent_budget, rel=1e-6)
    weak = mechanism.with_less_noise(math.sqrt(2))
    planted = "planted: each server adds half of the variance, so that both together add what one has to"
    assert integrate_delta(epsilon, weak.standard_deviation, distance) > 2 * delta, planted


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
@pytest.mark.parametrize("kind", [SharedPairs, SharedTriples, SharedProducts])
def test_a_servers_laplace_noise_keeps_the_promise_and_no_more(kind: type[SharedPairs], epsilon: float) -> None:
    mechanism = kind.calibrated(KeyedHits(SlotLayout.ungrouped(2, 5)), epsilon)
    _, distance = vote_distances(mechanism)
    spent_budget = distance * STEPS / math.ceil(mechanism.scale * STEPS)  # of a ratio of products of e^(-|k| / scale)
    assert 0.999 * epsilon <= spent_budget <= epsilon
    assert spent_budget <= account(mechanism.release_event).epsilon(0.0) <= spent_budget * (1 + 1e-8)
    assert mechanism.sampling == 0


def test_several_reports_of_a_person_share_a_promise() -> None:
    share, question = allot(1.0, 1e-6, 3, 1e-8), KeyedMeans(KEYS)
    assert share.can_cover(SharedSums.calibrated(question, 1.0, 1e-6, share).release_event, 0.0, 1e-9)
    assert not share.can_cover(SharedSums.calibrated(question, 1.0, 1e-6).release_event, 0.0, 1e-9)


def test_scores_have_twice_the_variance_of_a_curators() -> None:
    """Scores are the difference of two cells, and hits their sum; of numbers, the parts have twice the variance."""
    question, hits = KeyedMeans(Layout.example()), KeyedHits(SlotLayout.ungrouped(2, 5), 0.5)
    empty = np.zeros(0, np.int64)
    nobody = KeyedValues(np.zeros(0, np.uint32), empty, empty, np.zeros(0))
    rng = np.random.default_rng(1)
    for central, shared in (
        (CentralSums.calibrated(question, 1.0, 1e-6), SharedSums.calibrated(question, 1.0, 1e-6)),
        (CentralSums.calibrated(question, 1.0, 0.0), SharedSums.calibrated(question, 1.0, 0.0)),
        (CellPairs.calibrated(hits, 1.0), SharedPairs.calibrated(hits, 1.0)),
        (CellTriples.calibrated(hits, 1.0), SharedTriples.calibrated(hits, 1.0)),
    ):
        noises = [mechanism.simulate(nobody, rng).noise for mechanism in (central, shared)]
        laplace = (
            isinstance(central, CentralSums) and central.scale
        )  # of scores: two cells' are worth one of 4 / epsilon
        assert noises[1] == pytest.approx((1 if laplace else 2) * noises[0], rel=1e-5)


@pytest.mark.parametrize("mechanism", KINDS, ids=lambda kind: type(kind).__name__)
def test_shares_of_votes_are_released_as_votes_in_the_clear(mechanism: SharedVotes) -> None:
    """Noise of 3 in 100,000 votes: rounding to units gives another count with probability below 1e-25."""
    quiet = {"scale": 3e-5} | ({"standard_deviation": 0.0} if isinstance(mechanism, SharedSums) else {})
    mechanism = msgspec.structs.replace(mechanism, **quiet)
    prio3, votes = mechanism.prio3, list_votes(mechanism)
    bits = [tuple(row) for row in mechanism.encode(votes)]
    double = tuple(max(pair) for pair in zip(bits[0], bits[-1], strict=True))
    leader, helper = (
        verify_many(prio3, KEY, CONTEXT, party, reports)
        for party, reports in enumerate(make_reports(prio3, [*bits, double]))
    )
    accepted = [is_accepted(prio3, leader, helper, index) for index in range(len(votes) + 1)]
    assert accepted == [True] * len(votes) + [False], "planted: a device that votes twice"
    report = shard(prio3, bits[0], bytes(NONCE_BYTES))
    assert NONCE_BYTES + len(report.public) + sum(map(len, report.inputs)) == mechanism.sent_size
    noisy = mechanism.server_noise.add_to_share(helper.add_up(accepted), mechanism.unit, SecureNoise())
    cells = join_shares([[number * (STEPS // mechanism.unit) for number in leader.add_up(accepted)], noisy])
    assert np.count_nonzero(cells * mechanism.unit % STEPS), "there is noise"
    exact = mechanism.add(mechanism.empty(), votes)
    assert (np.rint(cells[:-1] * mechanism.unit / STEPS).reshape(exact.cells.shape) == exact.cells).all()
    joined = mechanism.join(votes["slot"], cells)
    released = mechanism.release(joined, SecureNoise())
    score_weights = np.linspace(-1, 1, mechanism.parts.count)
    by_value = exact.cells.reshape(-1, mechanism.parts.count, *exact.cells.shape[1:]).sum(axis=0) / mechanism.unit
    assert released.sums == pytest.approx(np.tensordot(score_weights, by_value, 1), abs=0.2)
    assert released.reports == len(votes)


@pytest.mark.parametrize("noise", [ServerNoise(6.0), ServerNoise(scale=2.0)], ids=["normal", "laplace"])
def test_the_noise_of_two_servers_is_as_simulated(noise: ServerNoise) -> None:
    """The variance of 40,000 numbers has a standard error of 0.7 % (normal) and 1.1 %: 5 of them are allowed.

    The planted release with one server's noise has half of the variance, 45 standard errors away.
    """
    rng, sources, size = np.random.default_rng(59), [SeededNoise(1), SeededNoise(2)], 40_000
    masks = [int.from_bytes(rng.bytes(15), "little") for _ in range(size)]
    shares = [masks, [-mask % PRIME for mask in masks]]
    noisy = [noise.add_to_share(share, 1, source) for share, source in zip(shares, sources, strict=True)]
    released, simulated = join_shares(noisy) / STEPS, noise.simulate(size, rng) / STEPS
    allowed = 5 * 0.011 * noise.variance
    for residuals in (released, simulated):
        assert residuals.var() == pytest.approx(noise.variance, abs=allowed)
        assert residuals.mean() == pytest.approx(0.0, abs=5 * math.sqrt(noise.variance / size))
    assert stats.ks_2samp(released, simulated).pvalue > 1e-6
    silent = [noisy[0], [number * STEPS % PRIME for number in shares[1]]]
    assert (join_shares(silent) / STEPS).var() < noise.variance - 8 * allowed, "planted: the helper adds no noise"


def test_shares_that_a_dishonest_server_made_up_are_refused() -> None:
    """A random share of 128 bits was an error of numpy's."""
    with pytest.raises(BatchRefused, match="do not add up to counts of votes"):
        join_shares([[2**100], [2**90]])


def test_a_vote_that_is_not_one_and_a_mechanism_without_noise_are_refused() -> None:
    mechanism = SharedTriples(KEYS, 1.0)
    for key, parts in ((0, [255, 1, 0]), (0, [254, 0, 0]), (2, [255, 0, 0]), (NO_KEY, [0, 255, 0])):
        vote = np.zeros(1, mechanism.message)
        vote["key"], vote["parts"] = key, parts
        with pytest.raises(OutOfRange):
            mechanism.parse(vote.tobytes())
    for arguments in ((), (1.0, 1.0), (-1.0,)):
        with pytest.raises(SpecError, match="one of the two"):
            SharedSums(KEYS, *arguments)
    with pytest.raises(SpecError, match="cells"):
        SharedPairs(Layout.ungrouped(1 << 19, 5), 1.0)
