"""Somebody hands on a certificate, or a record, that claims more privacy than its events give, to be drawn."""

import json
from typing import Any

import msgspec
import pytest

import privateer_lab as lab
from privateer_core.errors import SpecError
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.record import make_record

SPEC = "examples/peaks-shuffle.toml"


def documents() -> list[dict[str, Any]]:
    spec = lab.spec(SPEC)
    terms = spec.planned("")
    assert terms is not None
    made = certify(spec.name, spec.privacy, [terms], planned=True), make_record(spec, {})
    return [json.loads(msgspec.json.encode(one)) for one in made]


@pytest.mark.parametrize("place", [0, 1])
def test_a_claim_that_does_not_hold_is_not_drawn(place: int) -> None:
    document = documents()[place]
    assert lab.plot.privacy(document).title
    for claim in document.get("claims") or document["certificate"]["claims"]:
        claim["epsilon"] = 0.001
    with pytest.raises(SpecError):
        lab.plot.privacy(document)
