"""Certificates: what they claim recomputes from the document alone, and every change of it is caught."""

import json
import math
from typing import Any

import msgspec
import pytest

from privateer.certificate import certify, read_certificate, recompute
from privateer.errors import SpecError
from privateer.experiment import Privacy
from privateer.terms import calibrate

PRIVACY = {
    "local": Privacy(model="local", epsilon=1.0),
    "shuffle": Privacy(model="shuffle", epsilon=1.0, delta=1e-6),
    "central": Privacy(model="central", epsilon=1.0, delta=1e-6),
    "none": Privacy(model="none"),
}


def document(model: str) -> dict[str, Any]:
    """A certificate of three rounds, as JSON brings it."""
    privacy = PRIVACY[model]
    rounds = [calibrate(privacy, batch, 1.0, share) for batch, share in ((1000, 1.0), (1000, 0.25), (5000, 0.25))]
    made = certify("spring", privacy.bound, privacy.delta, rounds)
    return dict(json.loads(msgspec.json.encode(made)))


@pytest.mark.parametrize("model", PRIVACY)
def test_it_recomputes_from_the_document_alone(model: str) -> None:
    certificate = read_certificate(document(model))
    verdicts = recompute(certificate)
    assert verdicts
    assert all(verdict.holds for verdict in verdicts)
    assert certificate.assumes


def test_against_whom() -> None:
    shuffle = {claim["against"]: claim for claim in document("shuffle")["claims"]}
    assert shuffle["the server"]["epsilon"] == 1.0
    assert 1.0 < shuffle["server and shuffler"]["epsilon"] <= 6.0
    assert shuffle["server and shuffler"]["delta"] == 0
    assert {claim["epsilon"] for claim in document("none")["claims"]} == {None}


def changed(model: str, claim: int, path: str, value: Any) -> dict[str, Any]:
    made = document(model)
    *places, last = path.split(".")
    target = made["claims"][claim]
    for place in places:
        target = target[int(place) if place.isdigit() else place]
    target[last] = value
    return made


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
        ("central", 0, "event.deviation", 8.0),
        ("central", 0, "event.sensitivity", 2.1),
        ("central", 0, "delta", 0.99e-6),
        ("central", 1, "delta", 0.5),
        ("shuffle", 0, "exact", True),
        ("none", 0, "delta", 0.9),
    ],
)
def test_a_claim_that_does_not_follow_is_caught(model: str, claim: int, path: str, value: Any) -> None:
    verdicts = recompute(read_certificate(changed(model, claim, path, value)))
    assert not verdicts[claim].holds


def test_the_proof_that_is_shown_is_the_verifiers_own() -> None:
    forged = changed("shuffle", 0, "proof", "audited by an authority")
    assert "privacy blanket" in recompute(read_certificate(forged))[0].proof


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        {},
        {"certificate": {}},
        changed("local", 0, "event", {"event": "magic"}),
        changed("local", 0, "event.epsilon", -1.0),
        changed("local", 0, "epsilon", -1.0),
        changed("local", 0, "surprise", 1),
        changed("local", 0, "event", {"event": "pure\ud800", "epsilon": 1.0}),
        document("local") | {"format": "privateer/certificate/2"},
        document("local") | {"claims": []},
    ],
)
def test_what_is_no_certificate_is_refused(value: Any) -> None:
    with pytest.raises(SpecError) as refused:
        read_certificate(value)
    assert math.isfinite(len(str(refused.value)))
    assert refused.value.field


def test_normal_noise_with_delta_0_is_caught() -> None:
    forged = changed("central", 0, "event", {"event": "gaussian", "standard_deviation": 1e6, "sensitivity": 2.0})
    forged["claims"][0] |= {"delta": 0.0, "sampling": 0.0}
    assert not recompute(read_certificate(forged))[0].holds
