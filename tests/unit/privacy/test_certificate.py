"""Certificates: claims are recomputed from the document alone, and every change of it is caught."""

import json
import math
from typing import Any

import msgspec
import pytest

from privateer_core.accounting.events import Gaussian, Pure
from privateer_core.errors import SpecError
from privateer_core.mechanisms import CentralVectors
from privateer_core.primitives.clipping import Ball
from privateer_core.primitives.public_coins import Layout
from privateer_core.primitives.questions import KeyedMeans, VectorSum
from privateer_core.privacy.certificate import certify, read_certificate, recompute
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.privacy import Privacy
from privateer_papers.published_trust import PublishedPrivacy

PRIVACY = {
    "local": Privacy(model="local", epsilon=1.0),
    "shuffle": Privacy(model="shuffle", epsilon=1.0, delta=1e-6),
    "split": Privacy(model="split", epsilon=1.0, delta=1e-6),
    "central": Privacy(model="central", epsilon=1.0, delta=1e-6),
    "none": Privacy(model="none"),
}
BALL = Ball("max", 0.5, 4)
VECTORS = {
    "local": Privacy(model="local", epsilon=4.0),
    "local with a delta": Privacy(model="local", epsilon=1.0, delta=0.25),
    "local as published": PublishedPrivacy(model="local", epsilon=10.0, delta=0.25),
    "shuffle": Privacy(model="shuffle", epsilon=4.0, delta=1e-6, min_batch=2, honest_fraction=0.6),
    "central": Privacy(model="central", epsilon=4.0, delta=1e-6),
    "central as published": PublishedPrivacy(model="central", epsilon=10.0, delta=0.25),
    "none": Privacy(model="none"),
}


def keyed_rounds(model: str) -> list[Terms]:
    return [
        calibrate(PRIVACY[model], batch, KeyedMeans(Layout.example(), 1.0, share))
        for batch, share in ((1000, 1.0), (1000, 0.25), (5000, 0.25))
    ]


def vector_rounds(name: str) -> list[Terms]:
    return [calibrate(VECTORS[name], batch, VectorSum(BALL, 9)) for batch in (40, 60, 300)]


def document(model: str) -> dict[str, Any]:
    """A certificate of three rounds, as JSON brings it."""
    certificate = certify("spring", PRIVACY[model], keyed_rounds(model))
    return dict(json.loads(msgspec.json.encode(certificate)))


@pytest.mark.parametrize("model", PRIVACY)
def test_claims_are_recomputed_from_the_document_alone(model: str) -> None:
    certificate = read_certificate(document(model))
    verdicts = recompute(certificate)
    assert verdicts
    assert all(verdict.holds for verdict in verdicts)
    assert certificate.assumes


def test_each_adversary_has_its_epsilon() -> None:
    shuffle = {claim["adversary"]: claim for claim in document("shuffle")["claims"]}
    assert shuffle["the server"]["epsilon"] == 1.0
    assert 1.0 < shuffle["server and shuffler"]["epsilon"] <= 6.0
    assert shuffle["server and shuffler"]["delta"] == 0
    assert {claim["epsilon"] for claim in document("none")["claims"]} == {None}


def test_local_reports_reveal_more_to_adversaries_who_see_arms() -> None:
    """The coins that chose the arm travel with the report."""
    claims = {claim["adversary"]: claim["protects"] for claim in document("local")["claims"]}
    assert claims == {
        "everybody together, who see no arms": "the whole record",
        "everybody together, who see arms too": "reward, and context among bins where the report's coins give the arm",
    }


@pytest.mark.parametrize("model", PRIVACY)
def test_hidden_arms_are_assumed_where_the_promise_depends_on_them(model: str) -> None:
    hidden = PRIVACY[model].model_copy(update={"arm_visibility": "hidden"})
    visible, unseen = (certify("test", privacy, keyed_rounds(model)) for privacy in (PRIVACY[model], hidden))
    assert (unseen.assumes != visible.assumes) == (model in ("shuffle", "split", "central"))
    added_claims = unseen.claims[len(visible.claims) :]
    assert unseen.claims[: len(visible.claims)] == visible.claims
    # Reports whose coins chose the arm say to whoever sees arms what they say where nobody shuffles.
    claims = [(claim.adversary, claim.epsilon, claim.protects.split(",")[0]) for claim in added_claims]
    epsilon = visible.claims[-1].epsilon
    assert claims == ([("server and shuffler, who see arms too", epsilon, "reward")] if model == "shuffle" else [])
    assert all(verdict.holds for verdict in recompute(unseen))


@pytest.mark.parametrize("name", VECTORS)
def test_certificates_of_vectors_hold_and_say_what_is_true(name: str) -> None:
    rounds, privacy = vector_rounds(name), VECTORS[name]
    certificate = certify("test", privacy, rounds)
    assert read_certificate(msgspec.json.decode(msgspec.json.encode(certificate))) == certificate
    assert all(verdict.holds for verdict in recompute(certificate))
    first, *others = certificate.claims
    assert first.epsilon == privacy.epsilon
    if name != "none":
        assert (first.delta == privacy.delta) == all(terms.keeps_promise for terms in rounds)
        assert first.delta >= max(terms.true_delta for terms in rounds) * (1 - 1e-6)
    assert [claim.adversary for claim in others] == {"local": [], "shuffle": ["server and shuffler"]}.get(
        privacy.model, ["the server"]
    )
    assert all(claim.epsilon is None for claim in others)


def test_a_published_calibration_that_breaks_its_promise_is_certified_for_what_it_keeps() -> None:
    assert certify("test", VECTORS["central as published"], vector_rounds("central as published")).claims[
        0
    ].delta == pytest.approx(0.789, abs=0.001)


@pytest.mark.parametrize("weak", [0.0, 0.9])
def test_tight_rounds_that_break_the_promise_do_not_hold(weak: float) -> None:
    """Planted: a round with less noise than promised, and a round without noise."""
    privacy, (first, *others) = VECTORS["central"], vector_rounds("central")
    assert isinstance(first.mechanism, CentralVectors)
    noise = weak * first.mechanism.standard_deviation
    terms = Terms("central", 4.0, 1e-6, "tight", 40, 0, CentralVectors(BALL, noise))
    certificate = certify("test", privacy, [terms, *others])
    claim, verdict = certificate.claims[0], recompute(certificate)[0]
    assert claim.epsilon is None if weak == 0 else not verdict.holds


def test_the_epsilon_of_a_planned_report_is_bounded() -> None:
    """The cost of a single report under shuffle depends on the round; the bound does not."""
    planned = certify("test", PRIVACY["shuffle"], keyed_rounds("shuffle")[:1], planned=True)
    assert planned.claims[1].epsilon == 4.0
    assert planned.claims[1].event == Pure(4.0)
    vectors = VECTORS["shuffle"], vector_rounds("shuffle")[:1]
    assert certify("test", *vectors, planned=True) == certify("test", *vectors)


@pytest.mark.parametrize("row", TRUST.values(), ids=TRUST)
def test_every_trust_model_is_certified_against_its_reader(row: Any) -> None:
    first = certify("test", PRIVACY[row.name], keyed_rounds(row.name)).claims[0]
    assert first.adversary.startswith(row.reader)
    assert (first.epsilon is not None) == row.promises


def test_central_rounds_with_a_delta_of_0() -> None:
    """Laplace noise keeps it, and normal noise does not."""
    pure = Privacy(model="central", epsilon=1.0)
    certificate = certify("test", pure, [calibrate(pure, 1000, KeyedMeans(Layout.example()))])
    assert recompute(certificate)[0].holds
    forged = msgspec.structs.replace(certificate.claims[0], event=Gaussian(1e6, 2.0))
    assert not recompute(msgspec.structs.replace(certificate, claims=(forged,)))[0].holds


def with_value(model: str, claim: int, path: str, value: Any) -> dict[str, Any]:
    body = document(model)
    *places, last = path.split(".")
    target = body["claims"][claim]
    for place in places:
        target = target[int(place) if place.isdigit() else place]
    assert last in target or last == "surprise"
    target[last] = value
    return body


@pytest.mark.parametrize(
    ("model", "claim", "path", "value"),
    [
        ("local", 0, "epsilon", 0.99),
        ("local", 0, "event.epsilon", 1.01),
        ("shuffle", 0, "epsilon", 0.9),
        ("shuffle", 0, "delta", 1e-7),
        ("shuffle", 0, "event.events.0.honest", 500),
        ("shuffle", 0, "event.events.1.local_epsilon", 5.5),
        ("shuffle", 1, "epsilon", 2.0),
        ("central", 0, "event.standard_deviation", 8.0),
        ("central", 0, "event.sensitivity", 2.1),
        ("central", 0, "delta", 0.99e-6),
        ("central", 1, "delta", 0.5),
        ("shuffle", 0, "exact", True),
        ("none", 0, "delta", 0.9),
    ],
)
def test_a_claim_that_does_not_follow_is_caught(model: str, claim: int, path: str, value: Any) -> None:
    verdicts = recompute(read_certificate(with_value(model, claim, path, value)))
    assert not verdicts[claim].holds


def test_the_proof_that_is_shown_is_the_verifiers_own() -> None:
    forged = with_value("shuffle", 0, "proof", "audited by an authority")
    assert "privacy blanket" in recompute(read_certificate(forged))[0].proof


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"certificate": {}},
        with_value("local", 0, "event", {"event": "magic"}),
        with_value("local", 0, "event.epsilon", -1.0),
        with_value("local", 0, "epsilon", -1.0),
        with_value("local", 0, "surprise", 1),
        with_value("local", 0, "event", {"event": "pure\ud800", "epsilon": 1.0}),
        document("local") | {"format": "privateer/certificate/1"},
        document("local") | {"claims": []},
        document("local") | {"claims": 2 * document("local")["claims"]},
    ],
)
def test_a_malformed_certificate_is_refused(value: Any) -> None:
    with pytest.raises(SpecError) as refused:
        read_certificate(value)
    assert math.isfinite(len(str(refused.value)))
    assert refused.value.field


def test_normal_noise_with_delta_0_is_caught() -> None:
    forged = with_value("central", 0, "event", {"event": "gaussian", "standard_deviation": 1e6, "sensitivity": 2.0})
    forged["claims"][0] |= {"delta": 0.0, "sampling": 0.0}
    assert not recompute(read_certificate(forged))[0].holds
