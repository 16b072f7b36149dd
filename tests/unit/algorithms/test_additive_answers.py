"""Central additive bandits that ask each participant one question: sensitivity, privacy cost, and estimates."""

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest
from scipy.stats import chi2

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Pure
from privateer_core.codec import decode, encode
from privateer_core.errors import TermsRefused
from privateer_core.mechanisms.cell_pairs import CellPairs, CellTriples
from privateer_core.mechanisms.feature_sums import FeatureSums
from privateer_core.policies.policy import Arms
from privateer_core.primitives.public_coins import UNIT
from privateer_core.privacy.terms_verification import verify
from privateer_lab.simulation.scores import SeededNoise
from privateer_server.algorithms import learner_for
from privateer_server.algorithms.additive.observed_round import PartSums
from privateer_server.algorithms.additive.question_shares import best_questions
from tests.unit.algorithms.test_additive import spec_of
from tests.unit.privacy.test_terms_verification import WIDE, facts_of
from tests.unit.server.algorithms.test_additive_learner import MASSES, QUESTIONS

TWO = {"age": {"low": 0.0, "high": 1.0}, "job": {"levels": ["clerk", "cook", "driver"]}}
ALARM = 1e-6
PEOPLE = 3000


def make_half_asked_policy(features=TWO, **changes):
    """A spec of few features, and the policy of its second round, whose questions are half about each feature."""
    spec = spec_of("central", context={"features": features}, **changes)
    learner = learner_for(spec)
    policy: Any = learner.open_next_round(learner.start(1), 1, 7).policy
    rng = np.random.default_rng(2)
    return spec, replace(policy, means=policy.means + rng.integers(-900, 900, policy.means.shape, np.int16))


def people(spec, count=PEOPLE, seed=1):
    """Encoded contexts, coins, arms and rewards."""
    rng = np.random.default_rng(seed)
    contexts = rng.random((count, spec.dimension))
    contexts[:, 1:] = contexts[:, 1:] > 0.5
    coins = rng.integers(0, 2**32, count, dtype=np.uint32)
    return contexts, coins, Arms(rng.integers(0, 3, count)), (rng.random(count) < 0.3).astype(float)


def test_a_participant_changes_two_values_of_all_sums_whatever_the_question():
    """On the grid, exactly. Planted: somebody who answers a question about each feature."""
    spec, policy = make_half_asked_policy()
    mechanism = policy.terms.mechanism
    reports = policy.contribute(*people(spec, 60))

    rows = mechanism.randomize(reports, SeededNoise(np.random.default_rng(3)))
    sums = np.array([mechanism.add(mechanism.empty(), row[None]).cells.ravel() for row in rows])
    distances = np.abs(sums[:, None] - sums).sum(axis=2)
    assert distances.max() == 2 * mechanism.unit
    assert len(set(reports.keys.tolist())) > 20
    pairs = sums[::2] + sums[1::2]
    assert np.abs(pairs[:, None] - pairs).sum(axis=2).max() > 2 * mechanism.unit


def test_an_answer_names_the_part_of_the_question_that_coins_choose():
    """Coins ask about each feature in one way, half of people each; the key says part and arm."""
    spec, policy = make_half_asked_policy()
    contexts, coins, decisions, rewards = people(spec)
    reports = policy.contribute(contexts, coins, decisions, rewards)
    parts, arms = np.divmod(reports.keys, 3)
    assert (arms == decisions.arms).all()
    questions = policy.questions.question_of_part[parts]
    features = np.array([place for place, _ in policy.questions.partitions])[questions]
    assert len(set(questions.tolist())) == 2
    assert set(features.tolist()) == {0, 1}
    assert abs((features == 0).mean() - 0.5) < 5 * np.sqrt(0.25 / PEOPLE)
    terms = policy.questions.cells.locate(contexts)
    assert policy.questions.incidence_matrix[parts, terms[np.arange(PEOPLE), features]].all()
    values = policy.residuals.compute(policy.predict(terms, decisions.arms), rewards)
    assert reports.values == pytest.approx((1 + values) / 2)
    decoded = decode(encode(policy), type(policy))
    assert (decoded.contribute(contexts, coins, decisions, rewards).keys == reports.keys).all()


def test_a_release_costs_epsilon_and_no_delta_and_less_noise_is_refused():
    spec, policy = make_half_asked_policy()
    terms = policy.terms
    assert terms.event == Pure(1.0)
    assert account(terms.event).delta(1.0) == 0.0
    assert terms.keeps_promise
    facts = facts_of(spec, terms)
    verify(terms, spec, "", facts, WIDE)
    for factor in (1.01, 2.0):
        with pytest.raises(TermsRefused) as refused:
            verify(replace(terms, mechanism=terms.mechanism.with_less_noise(factor)), spec, "", facts, WIDE)
        assert refused.value.field == "delta"


def test_policies_with_other_questions_are_refused():
    spec, policy = make_half_asked_policy()
    assert policy.is_compatible(spec)
    layout = replace(policy.terms.mechanism.layout, thresholds=policy.terms.mechanism.layout.thresholds[1:])
    for mechanism in (
        msgspec.structs.replace(policy.terms.mechanism, layout=layout),
        CellTriples(policy.terms.mechanism.layout, policy.terms.mechanism.scale),
    ):
        assert not replace(policy, terms=replace(policy.terms, mechanism=mechanism)).is_compatible(spec)
    assert not replace(policy, counts_arms=True).is_compatible(spec)


@pytest.mark.parametrize(
    ("features", "changes", "kind"),
    [
        (1, {}, CellPairs),
        (4, {}, CellPairs),
        (8, {}, FeatureSums),
        (1, {"privacy": {"epsilon": 8.0}}, CellPairs),
        (4, {"privacy": {"epsilon": 8.0}}, FeatureSums),
        (8, {"privacy": {"epsilon": 0.05}}, FeatureSums),
        (4, {"experiment": {"round_size": 50_000, "horizon": 100_000}}, FeatureSums),
        (1, {"experiment": {"reports_per_person": 3}}, FeatureSums),
    ],
)
def test_participants_answer_one_question_or_all_by_the_noise_of_a_sum(features, changes, kind):
    """By the noise of a sum; several reports of a person share out normal noise."""
    numbers = {f"x{place}": {"low": 0.0, "high": 1.0} for place in range(features)}
    sections = {"algorithm": {"name": "additive", "bins": 16}, **changes}
    _, policy = make_half_asked_policy(numbers, **sections)
    assert type(policy.terms.mechanism) is kind
    assert policy.is_single_question == (kind is CellPairs)


@pytest.mark.parametrize("rare", [False, True])
def test_sums_of_answers_are_unbiased_and_vary_as_stated(rare):
    """Against an oracle that adds up everybody's residuals by itself; 60 releases.

    Squares of some 600 scores, of which cells are independent: both bounds are wrong once in a million times. Planted:
    noise that is taken to be half of what it is, and sums that are not of all people but of those who were asked.
    """
    spec, policy = make_half_asked_policy(reward={"base_rate": 0.03} if rare else {})
    assert (policy.below < 1) == rare
    rng, scores, planted, counts = np.random.default_rng(8), [], [], []
    for seed in range(60):
        contexts, coins, decisions, rewards = people(spec, seed=seed)
        release = policy.terms.mechanism.simulate(policy.contribute(contexts, coins, decisions, rewards), rng)
        totals = PartSums.from_release(policy, release)
        terms = policy.questions.cells.locate(contexts)
        parts = policy.questions.locate(terms) + policy.questions.starts[:-1]
        values = policy.residuals.compute(policy.predict(terms, decisions.arms), rewards)
        exact, squares, count = np.zeros((3, *totals.sums.shape))
        for place, weight in ((exact, values), (squares, values**2), (count, values**0)):
            np.add.at(place, (decisions.arms[:, None], parts), weight[:, None])
        is_asked = np.isfinite(totals.noise)
        # Half of people are asked about each feature: each of them counts twice, or not at all.
        noise = (1 + policy.below**2) * 4 * policy.terms.mechanism.noise
        variances = noise + squares[:, is_asked]
        stated = totals.variances(count, squares)[:, is_asked] - squares[:, is_asked]
        assert stated == pytest.approx(variances)
        scores.append(((totals.sums - exact)[:, is_asked] / np.sqrt(variances)).ravel())
        planted.append(((totals.sums / 2 - exact)[:, is_asked] / np.sqrt(variances)).ravel())
        counted = (totals.counts - count)[:, is_asked].sum(axis=0)
        counts.append(counted / np.sqrt(totals.count_variances(count.sum(axis=0) / PEOPLE, PEOPLE)[is_asked]))
    z = np.concatenate(scores)
    n = len(z)
    low, high = chi2.ppf([ALARM / 2, 1 - ALARM / 2], n) / n
    # Values are rounded to a grid, which adds next to nothing.
    assert 0.98 * low < np.square(z).mean() < 1.02 * high
    assert not 0.98 * low < 2 * np.square(z).mean() < 1.02 * high
    assert abs(z.mean()) < 5 / np.sqrt(n)
    counts = np.concatenate(counts)
    low, high = chi2.ppf([ALARM / 2, 1 - ALARM / 2], len(counts)) / len(counts)
    assert low < np.square(counts).mean() < high
    assert rare or abs(np.concatenate(planted).mean()) > 5 / np.sqrt(n)


def test_questions_merge_cells_until_noise_is_small():
    """Of a function that is the same in neighbours two cells tell more than six, while noise hides each.

    Planted: cells that have nothing to do with each other, of which only their own question tells.
    """
    rough = np.diag([0.05**2, *[0.1**2] * 6, *[1e-6] * 3])
    smooth = rough.copy()
    smooth[1:7, 1:7] = 0.1**2 * np.exp(-np.abs(np.subtract.outer(np.arange(6), np.arange(6))) / 8)

    def n_cells_asked(covariance, people):
        factors = np.stack([np.linalg.cholesky(covariance)] * 2)
        counts = people * np.stack([MASSES] * 2)
        questions = best_questions(QUESTIONS, factors, counts, 32.0, np.full(2, 0.25), MASSES, 0.5)
        assert [QUESTIONS.partitions[question][0] for question in questions] == [0, 1]
        return int(QUESTIONS.sizes[questions[0]])

    assert n_cells_asked(smooth, 600) == 2
    assert n_cells_asked(smooth, 1e6) == 6
    assert n_cells_asked(rough, 600) == 6


def test_question_thresholds_select_one_question_of_each_feature():
    _, policy = make_half_asked_policy()
    shares = policy.shares
    assert np.count_nonzero(shares) == 2
    assert shares[shares > 0] == pytest.approx(0.5, abs=1 / UNIT)


def test_a_feature_without_informative_levels_is_asked_about_less():
    """Expect a question about the common term of a feature with many levels from one participant in five."""
    _, policy = make_half_asked_policy({"town": {"levels": list(range(70))}})
    assert policy.is_single_question
    assert policy.shares == pytest.approx([0.2, 0.8], abs=1 / UNIT)
