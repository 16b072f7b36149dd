"""Trust models, and the risks that they leave."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from privateer_core.accounting.accountant import account
from privateer_core.accounting.events import Event, Gaussian, Parallel, Pure, ShuffledResponse
from privateer_core.algorithms import ALGORITHMS, algorithm, parse_spec
from privateer_core.errors import SpecError
from privateer_core.mechanisms import MECHANISMS
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans, VectorSum
from privateer_core.privacy.certificate import FORMAT, RECORD, Certificate, Claim, certify
from privateer_core.privacy.risk import Risk, assess_risks, reconstruction_probability
from privateer_core.privacy.terms import calibrate, uninvited_terms
from privateer_core.privacy.trust import TRUST, Crowd, Curator, NoiseOrigin, Recipient, count_honest, trust_of
from privateer_core.spec.privacy import Privacy
from privateer_core.spec.spec import example_promises
from privateer_core.wire.publication import Round

QUESTIONS = (KeyedMeans(Layout(3, np.zeros((4, 2), np.uint32))), VectorSum(Ball("max", 1.0, 4), 3))


def privacy(row, **changes):
    return Privacy.model_validate({"model": row.name, **row.example, **changes})


@pytest.mark.parametrize("row", TRUST.values(), ids=lambda row: row.name)
def test_the_wire_sends_reports_where_the_row_says(row):
    round_ = Round("x", 1, row.name, 10, 70, bytes(32))
    assert round_.endpoint == row.endpoint


SERVED = [(row, question) for row in TRUST.values() for question in QUESTIONS if type(question) in row.serves]


@pytest.mark.parametrize(("row", "question"), SERVED, ids=lambda part: getattr(part, "name", type(part).__name__))
def test_every_row_answers_its_questions_and_keeps_its_promise(row, question):
    promise = privacy(row)
    terms = calibrate(promise, 2000, question)
    assert type(terms.mechanism) in row.serves[type(question)].mechanisms
    assert terms.keeps_promise
    assert (terms.true_delta < 1) == row.promises
    assert (terms.honest > 0) == (row.crowd is Crowd.BATCH)
    assert math.isinf(terms.epsilon) != row.promises
    if row.promises:
        weak = replace(terms, mechanism=terms.mechanism.with_less_noise(4.0))
        assert not weak.keeps_promise, "planted: a quarter of the noise"


@pytest.mark.parametrize(
    ("model", "delta"), [("shuffle", 1e-6), ("central", 1e-6), ("central", 0.0), ("split", 1e-6), ("split", 0.0)]
)
def test_reports_that_share_a_promise_have_more_noise_and_keep_it(model, delta):
    promise = privacy(TRUST[model], delta=delta)
    single, three = (calibrate(promise, 500, QUESTIONS[0], reports=reports) for reports in (1, 3))
    assert three.keeps_promise
    assert three.true_delta <= delta
    assert not replace(single, reports=3).keeps_promise, "planted: each report spends the whole promise"
    weak = three.mechanism.with_less_noise(1.1)
    assert not replace(three, mechanism=weak).keeps_promise, "planted: a tenth less noise"


@pytest.mark.parametrize("row", TRUST.values(), ids=lambda row: row.name)
def test_a_round_without_invitations_has_terms_without_reports(row):
    for question in QUESTIONS:
        terms = uninvited_terms(privacy(row), question)
        assert (terms.batch_size, terms.honest, terms.model) == (0, 0, row.name)


def test_two_servers_that_see_no_records_promise_against_each_and_nothing_against_both():
    row = TRUST["split"]
    assert (row.curator, row.noise, row.endpoint) == (Curator.NOBODY, NoiseOrigin.SERVERS, Recipient.SHUFFLER)
    promise = privacy(row)
    terms = calibrate(promise, 10, QUESTIONS[0])
    claims = {claim.adversary: claim for claim in certify("test", promise, (terms,)).claims}
    assert {adversary: claim.epsilon for adversary, claim in claims.items()} == {
        row.reader: 1.0,
        "server and shuffler": None,
    }
    assert claims[row.reader].event == terms.mechanism.server_noise.event, "of one server's noise"
    assert claims["server and shuffler"].proof.endswith("they add up the shares of a vote")
    trials = algorithm("trial").spec.instances()
    tables = {name: trials[name].model_dump(mode="json", exclude_none=True) for name in ("central", "central-learns")}
    pair = {"privacy": {"model": "split", "epsilon": 1.0}}
    spec: Any = parse_spec(tables["central"] | pair)
    assert (spec.smallest_batch, spec.has_arm_in_report, spec.questions) == (1, True, ())
    with pytest.raises(SpecError, match="a curator adds up records"):
        parse_spec(tables["central-learns"] | pair)


def test_honest_people_are_rounded_down_to_three_digits():
    (shuffled,) = (row for row in TRUST.values() if row.crowd is Crowd.BATCH)
    promise = privacy(shuffled, honest_fraction=0.9)
    counts = {fewest: count_honest(promise, fewest) for fewest in (1, 100, 1000, 5678, 123_457)}
    assert counts == {1: 0, 100: 90, 1000: 900, 5678: 5110, 123_457: 111_000}
    with pytest.raises(SpecError):
        calibrate(promise, 1, QUESTIONS[0])


def test_a_model_that_is_not_in_the_table_is_refused():
    with pytest.raises(SpecError) as refused:
        trust_of("federated")
    assert refused.value.field == "privacy.model"


def test_every_mechanism_serves_a_trust_model():
    served = {kind for row in TRUST.values() for serving in row.serves.values() for kind in serving.mechanisms}
    assert served == set(MECHANISMS)


def test_every_algorithm_has_an_instance_under_every_model():
    assert set(example_promises()) == set(TRUST)
    for name in ALGORITHMS:
        if not name.startswith("paper-"):
            kind = algorithm(name).spec
            models = {row.name for row in TRUST.values() if kind.question in row.serves}
            assert {"local", "shuffle", "central", "none"} <= models
            assert {spec.privacy.model for spec in kind.instances().values()} == models


def risk_of(epsilon: float | None, delta: float, event: Event | None, sampling: float = 0.0) -> Risk:
    claim = Claim("somebody", epsilon, delta, event, sampling, "a proof", exact=True, protects=RECORD)
    return assess_risks(Certificate(FORMAT, "test", (claim,), ())).risks[0]


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0, 16.0])
def test_randomized_response_leaves_its_bias(epsilon: float) -> None:
    risk = risk_of(epsilon, 0.0, Pure(epsilon))
    assert risk.advantage == pytest.approx(math.tanh(epsilon / 2), rel=1e-6)
    assert risk.guesses == pytest.approx(1 / (1 + math.exp(-epsilon)), rel=1e-6)
    assert risk.claimed


def test_the_best_attack_on_randomized_response_achieves_just_that() -> None:
    """The attack guesses the reported value. 400,000 draws: 5 standard errors are .004, missed once in a million."""
    rng, epsilon, people = np.random.default_rng(1), 1.0, 400_000
    truth = rng.random(people) < 0.5
    reported = np.where(rng.random(people) < 1 / (1 + math.exp(-epsilon)), truth, ~truth)
    advantage = reported[truth].mean() - reported[~truth].mean()
    assert advantage == pytest.approx(risk_of(epsilon, 0.0, Pure(epsilon)).advantage, abs=0.008)


def test_normal_noise_leaves_the_overlap_of_two_normals() -> None:
    risk = risk_of(1.0, 1e-6, Gaussian(4.0, 1.0))
    assert risk.advantage == pytest.approx(2 * norm.cdf(1 / 8) - 1, rel=1e-6)


def test_a_curve_says_more_than_epsilon_and_delta() -> None:
    by_claim = risk_of(1.0, 1e-6, None).advantage
    assert by_claim == pytest.approx((math.e - 1 + 2e-6) / (math.e + 1), rel=1e-9)
    assert risk_of(1.0, 1e-6, ShuffledResponse(2.0, 8, 10_000)).advantage < by_claim / 2


def test_a_curve_that_is_worse_than_the_claim_does_not_count() -> None:
    assert risk_of(1.0, 0.0, Pure(3.0)).advantage == pytest.approx(math.tanh(0.5), rel=1e-6)


def test_of_several_rounds_the_worst_counts() -> None:
    worst = risk_of(2.0, 0.0, Pure(2.0)).advantage
    assert risk_of(2.0, 0.0, Parallel((Pure(0.5), Pure(2.0), Pure(1.0)))).advantage == worst


def test_sampling_is_added() -> None:
    assert risk_of(4.0, 0.1, Pure(1.0), 0.01).advantage == pytest.approx(math.tanh(0.5) + 0.01, rel=1e-6)


def test_where_nothing_is_claimed_everything_may_be_guessed() -> None:
    risk = risk_of(None, 1.0, None)
    assert (risk.advantage, risk.guesses, risk.claimed) == (1.0, 1.0, False)


def claim_of(epsilon: float | None, delta: float, event: Event | None) -> Claim:
    return Claim("somebody", epsilon, delta, event, 0.0, "a proof", exact=True, protects=RECORD)


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("candidates", [2, 10, 100])
def test_reconstruction_is_what_response_over_the_candidates_attains(epsilon: float, candidates: int) -> None:
    attained = math.exp(epsilon) / (math.exp(epsilon) + candidates - 1)
    probability = reconstruction_probability(claim_of(epsilon, 0.0, Pure(epsilon)), candidates)
    assert probability == pytest.approx(attained, rel=1e-6)


def test_two_candidates_are_the_guesses_of_the_risk() -> None:
    for epsilon, delta, event in ((1.0, 1e-6, Gaussian(4.0, 1.0)), (1.0, 1e-6, ShuffledResponse(2.0, 8, 10_000))):
        guesses = risk_of(epsilon, delta, event).guesses
        assert reconstruction_probability(claim_of(epsilon, delta, event), 2) == pytest.approx(guesses, rel=1e-9)


@pytest.mark.parametrize("candidates", [2, 5, 20])
def test_no_attack_on_normal_noise_reconstructs_more(candidates: int) -> None:
    """Records are the corners of a simplex, a distance of 1 apart; the attack names the nearest.

    200,000 draws: 5 standard errors are .006, missed once in a million.
    """
    rng, standard_deviation, draws = np.random.default_rng(3), 1.5, 200_000
    truth = rng.integers(0, candidates, draws)
    noisy = np.eye(candidates)[truth] / math.sqrt(2) + standard_deviation * rng.standard_normal((draws, candidates))
    attained = float(np.mean(noisy.argmax(axis=1) == truth))
    event = Gaussian(standard_deviation, 1.0)
    curve = account(event)
    bound = reconstruction_probability(claim_of(curve.epsilon(1e-6), 1e-6, event), candidates)
    assert 1 / candidates < attained <= bound + 0.006
    # A bound that forgot to divide by the candidates, or took delta for 0 at epsilon 0, would be below the attack.
    assert reconstruction_probability(claim_of(0.05, 0.0, None), candidates) < attained - 0.006


def test_where_nothing_is_claimed_every_record_may_be_named() -> None:
    assert reconstruction_probability(claim_of(None, 1.0, None), 100) == 1.0
