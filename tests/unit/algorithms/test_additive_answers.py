"""Where a curator asks everybody one question: what a person moves, what it costs, and what is learned from it."""

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Pure
from privateer_core.codec import decode, encode
from privateer_core.errors import TermsRefused
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.vectors.vector_noise import CentralVectors
from privateer_core.policies.decisions import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.terms_verification import verify
from privateer_lab.simulation.devices import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.part_sums import PartSums
from privateer_server.algorithms.additive.question_shares import one_each
from tests.unit.algorithms.test_additive import spec_of
from tests.unit.privacy.test_terms_verification import WIDE, facts_of
from tests.unit.server.algorithms.test_additive_learner import MASSES, QUESTIONS

TWO = {"age": {"low": 0.0, "high": 1.0}, "job": {"levels": ["clerk", "cook", "driver"]}}
ALARM = 1e-6
PEOPLE = 3000


def scene(features=TWO, **more):
    """A spec of few features, and the policy of its second round, whose questions are half about each feature."""
    spec = spec_of("central", context={"features": features}, **more)
    learner = learner_for(spec)
    policy = learner.next(learner.start(1), 1, 7).policy
    rng = np.random.default_rng(2)
    return spec, replace(policy, means=policy.means + rng.integers(-900, 900, policy.means.shape, np.int16))


def people(spec, count=PEOPLE, seed=1):
    """Encoded contexts, coins, arms and rewards."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, spec.dimension))
    contexts[:, 1:] = contexts[:, 1:] > 0.5
    coins = rng.integers(0, 2**32, count, dtype=np.uint32)
    return contexts, coins, Arms(rng.integers(0, 3, count)), (rng.random(count) < 0.3).astype(float)


def test_a_person_moves_all_sums_by_two_values_whatever_they_are_asked():
    """On the grid, exactly. Planted: somebody who answers a question about each feature."""
    spec, policy = scene()
    mechanism = policy.terms.mechanism
    made = policy.contribute(*people(spec, 60))

    rows = mechanism.randomize(made, SeededNoise(np.random.default_rng(3)))
    alone = np.array([mechanism.add(mechanism.empty(), one[None]).cells.ravel() for one in rows])
    apart = np.abs(alone[:, None] - alone).sum(axis=2)
    assert apart.max() == 2 * mechanism.unit
    assert len(set(made.keys.tolist())) > 20
    twice = alone[::2] + alone[1::2]
    assert np.abs(twice[:, None] - twice).sum(axis=2).max() > 2 * mechanism.unit


def test_an_answer_names_the_part_of_the_question_that_coins_choose():
    """Coins ask about each feature in one way, half of people each; the key says part and arm."""
    spec, policy = scene()
    contexts, coins, decisions, rewards = people(spec)
    made = policy.contribute(contexts, coins, decisions, rewards)
    parts, arms = np.divmod(made.keys, 3)
    assert (arms == decisions.arms).all()
    asked = policy.questions.of_part[parts]
    features = np.array([place for place, _ in policy.questions.parts])[asked]
    assert len(set(asked.tolist())) == 2
    assert set(features.tolist()) == {0, 1}
    assert abs((features == 0).mean() - 0.5) < 5 * np.sqrt(0.25 / PEOPLE)
    terms = policy.questions.cells.locate(contexts)
    assert policy.questions.matrix[parts, terms[np.arange(PEOPLE), features]].all()
    values = policy.residuals.of(policy.expected(terms, decisions.arms), rewards)
    assert made.values == pytest.approx((1 + values) / 2)
    again = decode(encode(policy), type(policy))
    assert (again.contribute(contexts, coins, decisions, rewards).keys == made.keys).all()


def test_a_release_costs_epsilon_and_no_delta_and_less_noise_is_refused():
    spec, policy = scene()
    terms = policy.terms
    assert terms.event == Pure(1.0)
    assert account(terms.event).delta(1.0) == 0.0
    assert terms.holds
    facts = facts_of(spec, terms)
    verify(terms, spec, "", facts, WIDE)
    for factor in (1.01, 2.0):
        with pytest.raises(TermsRefused) as refused:
            verify(replace(terms, mechanism=terms.mechanism.weaker(factor)), spec, "", facts, WIDE)
        assert refused.value.field == "delta"


def test_policies_whose_answers_are_others_are_refused():
    spec, policy = scene()
    assert policy.fits(spec)
    layout = replace(policy.terms.mechanism.layout, thresholds=policy.terms.mechanism.layout.thresholds[1:])
    for mechanism in (
        msgspec.structs.replace(policy.terms.mechanism, layout=layout),
        CellTriples(policy.terms.mechanism.layout, policy.terms.mechanism.scale),
    ):
        assert not replace(policy, terms=replace(policy.terms, mechanism=mechanism)).fits(spec)
    assert not replace(policy, counts_arms=True).fits(spec)


@pytest.mark.parametrize(
    ("features", "more", "kind"),
    [
        (1, {}, CellPairs),
        (4, {}, CellPairs),
        (8, {}, CentralVectors),
        (1, {"privacy": {"epsilon": 8.0}}, CellPairs),
        (4, {"privacy": {"epsilon": 8.0}}, CentralVectors),
        (8, {"privacy": {"epsilon": 0.05}}, CentralVectors),
        (4, {"experiment": {"round_size": 50_000, "horizon": 100_000}}, CentralVectors),
        (1, {"experiment": {"reports_per_person": 3}}, CentralVectors),
    ],
)
def test_who_answers_one_question_and_who_all(features, more, kind):
    """By the noise of a sum; several reports of a person share out normal noise."""
    numbers = {f"x{place}": {"low": 0.0, "high": 1.0} for place in range(features)}
    told = {"algorithm": {"name": "additive", "bins": 16}, **more}
    _, policy = scene(numbers, **told)
    assert type(policy.terms.mechanism) is kind
    assert policy.asks_one == (kind is CellPairs)


@pytest.mark.parametrize("rare", [False, True])
def test_sums_of_answers_are_those_of_people_and_as_exact_as_they_say(rare):
    """Against an oracle that adds up everybody's residuals by itself; 60 releases.

    Squares of some 600 scores, of which cells are independent: both bounds are wrong once in a million times. Planted:
    noise that is taken to be half of what it is, and sums that are not of all people but of those who were asked.
    """
    spec, policy = scene(reward={"base_rate": 0.03} if rare else {})
    assert (policy.below < 1) == rare
    rng, scores, planted, counts = np.random.default_rng(8), [], [], []
    for seed in range(60):
        contexts, coins, decisions, rewards = people(spec, seed=seed)
        release = policy.terms.mechanism.simulate(policy.contribute(contexts, coins, decisions, rewards), rng)
        told = PartSums.of(policy, release)
        terms = policy.questions.cells.locate(contexts)
        parts = policy.questions.answers(terms) + policy.questions.starts[:-1]
        values = policy.residuals.of(policy.expected(terms, decisions.arms), rewards)
        exact, squares, count = np.zeros((3, *told.sums.shape))
        for place, weight in ((exact, values), (squares, values**2), (count, values**0)):
            np.add.at(place, (decisions.arms[:, None], parts), weight[:, None])
        asked = np.isfinite(told.noise)
        # Half of people are asked about each feature: each of them counts twice, or not at all.
        noise = (1 + policy.below**2) * 4 * policy.terms.mechanism.noise
        variances = noise + squares[:, asked]
        said = told.variances(count, squares)[:, asked] - squares[:, asked]
        assert said == pytest.approx(variances)
        scores.append(((told.sums - exact)[:, asked] / np.sqrt(variances)).ravel())
        planted.append(((told.sums / 2 - exact)[:, asked] / np.sqrt(variances)).ravel())
        counted = (told.counts - count)[:, asked].sum(axis=0)
        counts.append(counted / np.sqrt(told.doubts(count.sum(axis=0) / PEOPLE, PEOPLE)[asked]))
    scores, n = np.concatenate(scores), 60 * scores[0].size
    low, high = chi2.ppf([ALARM / 2, 1 - ALARM / 2], n) / n
    # Values are rounded to a grid, which adds next to nothing.
    assert 0.98 * low < np.square(scores).mean() < 1.02 * high
    assert not 0.98 * low < 2 * np.square(scores).mean() < 1.02 * high
    assert abs(scores.mean()) < 5 / np.sqrt(n)
    counts = np.concatenate(counts)
    low, high = chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(counts)) / len(counts)
    assert low < np.square(counts).mean() < high
    assert rare or abs(np.concatenate(planted).mean()) > 5 / np.sqrt(n)


def test_a_feature_is_asked_about_in_merged_cells_until_much_is_known():
    """Of a function that is the same in neighbours two cells tell more than six, while noise hides each.

    Planted: cells that have nothing to do with each other, of which only their own question tells.
    """
    rough = np.diag([0.05**2, *[0.1**2] * 6, *[1e-6] * 3])
    smooth = rough.copy()
    smooth[1:7, 1:7] = 0.1**2 * np.exp(-np.abs(np.subtract.outer(np.arange(6), np.arange(6))) / 8)

    def asked(covariance, people):
        factors = np.stack([np.linalg.cholesky(covariance)] * 2)
        found = one_each(QUESTIONS, factors, people * np.stack([MASSES] * 2), 32.0, np.full(2, 0.25), MASSES, 0.5)
        assert [QUESTIONS.parts[question][0] for question in found] == [0, 1]
        return int(QUESTIONS.sizes[found[0]])

    assert asked(smooth, 600) == 2
    assert asked(smooth, 1e6) == 6
    assert asked(rough, 600) == 6


def test_edges_ask_nobody_but_one_question_of_each_feature():
    _, policy = scene()
    shares = policy.shares
    assert np.count_nonzero(shares) == 2
    assert shares[shares > 0] == pytest.approx(0.5, abs=1 / UNIT)


def test_somebody_says_nothing_of_features_that_tell_no_level():
    """Of a feature with many levels each term is less what all have in common: one in five is asked about that."""
    _, policy = scene({"town": {"levels": list(range(70))}})
    assert policy.asks_one
    assert policy.shares == pytest.approx([0.2, 0.8], abs=1 / UNIT)
