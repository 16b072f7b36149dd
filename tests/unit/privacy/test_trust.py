"""The table of trust models: every row is complete, and agrees with the wire format."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import SpecError
from privateer_core.mechanisms import MECHANISMS
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans, VectorSum
from privateer_core.privacy.terms import calibrate, uninvited_terms
from privateer_core.privacy.trust import TRUST, count_honest, trust_of
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
    assert row.shuffled == (row.endpoint == "shuffler")


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda kind: type(kind).__name__)
@pytest.mark.parametrize("row", TRUST.values(), ids=lambda row: row.name)
def test_every_row_answers_every_question_and_keeps_its_promise(row, question):
    promise = privacy(row)
    terms = calibrate(promise, 2000, question)
    assert type(terms.mechanism) in row.serves[type(question)].mechanisms
    assert terms.keeps_promise
    assert (terms.true_delta < 1) == row.promises
    assert (terms.honest > 0) == row.batched
    assert math.isinf(terms.epsilon) != row.promises
    if row.promises:
        weak = replace(terms, mechanism=terms.mechanism.with_less_noise(4.0))
        assert not weak.keeps_promise, "planted: a quarter of the noise"


@pytest.mark.parametrize(("model", "delta"), [("shuffle", 1e-6), ("central", 1e-6), ("central", 0.0)])
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


def test_honest_people_are_rounded_down_to_three_digits():
    (shuffled,) = (row for row in TRUST.values() if row.batched)
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
    models = set(example_promises())
    assert models == set(TRUST)
    for name in ALGORITHMS:
        if not name.startswith("paper-"):
            assert {spec.privacy.model for spec in algorithm(name).spec.instances().values()} == models
