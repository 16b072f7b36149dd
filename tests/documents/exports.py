"""Vectors of exports: a document of a finished experiment, choices by it offline, and damaged copies."""

import base64
import hashlib
from typing import Any

import msgspec
import numpy as np

from privateer_client import OfflinePolicy
from privateer_client.participation import Participation
from privateer_core.answer.export import Export, make_export, read_export
from privateer_core.codec import encode, encode_canonical_json
from privateer_core.errors import PrivateerError
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.spec.spec import Spec
from privateer_server.rounds.schedule import Schedule
from tests.documents import vectors

PEOPLE = 40


def files() -> dict[str, Any]:
    """Return the content of the file, by its name."""
    exports = [(name, spec, build_export(spec, body)) for name, spec, body in vectors.cases()]
    vectors_by_kind = {
        "canonical": [{"json": value, "canonical": encode_canonical_json(value).decode()} for value in _PLAIN],
        "exports": [_describe_choices(name, spec, export) for name, spec, export in exports],
        "refused": _refused_documents(decode_export(exports[0][2])),
    }
    return {"exports": vectors_by_kind}


_PLAIN: list[Any] = [
    {"\u20ac": "Euro", "\r": "return", "1": "one", "\u0080": "control", "\U0001f600": "smile", "\ufb33": "letter"},
    [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27, 1e21, 1e-6, 1e-7, -0.0, 123456789012345680, 0.1, 5e-324, 1.0],
    {"text": "\u20ac$\u000f\nA'B\"\\/", "nothing": None, "yes": True, "no": False, "empty": [{}, []]},
]
"""Examples of RFC 8785, and numbers at the ends of what is written without an exponent."""


def build_export(spec: Spec, publication: bytes) -> Export:
    """The export of an experiment with this publication."""
    step = Schedule(spec).open(7, 4)
    followed = Participation(publication, spec.name, vectors.LIMITS, is_paused=True)
    terms = followed.terms
    row = Row(version=4, received=0, released=False, **msgspec.structs.asdict(describe_terms(terms)))
    return make_export(
        spec.name,
        4,
        "stopped",
        spec=spec.model_dump(mode="json", exclude_none=True),
        policy=followed.policy.view(spec),
        result=None,
        record=make_record(spec, {followed.policy.cohort: [row] if terms.batch_size else []}),
        state=encode(step.state),
        publication=publication,
    )


def decode_export(export: Export) -> dict[str, Any]:
    """An export as its file has it."""
    return dict(msgspec.json.decode(msgspec.json.encode(export)))


def _describe_choices(name: str, spec: Spec, export: Export) -> dict[str, Any]:
    policy, rng = OfflinePolicy(export), np.random.default_rng(11)
    people = []
    for _ in range(PEOPLE):
        context = {
            feature: vectors.VALUES[feature][int(rng.integers(len(vectors.VALUES[feature])))]
            for feature in spec.features
        }
        coins = int(rng.integers(0, 2**32))
        people.append({"context": context, "slot": coins, "arm": policy.choose(context, coins=coins)})
    return {"name": name, "document": decode_export(export), "people": people}


def _refused_documents(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Return documents by which no device may decide, with the reason of each refusal."""
    other = base64.b64encode(b"another publication").decode()
    changed = {
        "as it is": {},
        "a newer format": {"format": "privateer/export/4"},
        "an older format": {"format": "privateer/export/1"},
        "no format": {"format": "something else"},
        "another version": {"version": 5},
        "another publication": {"publication": other},
        "another publication, with a digest of the document that fits": {"publication": other, "digest": None},
        "another key, with a digest that fits": {"more": 1, "digest": None},
        "no digest": {"digest": ""},
    }
    return [_judge_document(name, redigest(document | changes)) for name, changes in changed.items()]


def redigest(document: dict[str, Any]) -> dict[str, Any]:
    """A document whose digest is made anew where it is None: not damaged, but forged."""
    if document["digest"] is not None:
        return document
    rest = {key: value for key, value in document.items() if key != "digest"}
    return rest | {"digest": hashlib.sha256(encode_canonical_json(rest)).hexdigest()}


def _judge_document(name: str, document: dict[str, Any]) -> dict[str, Any]:
    try:
        OfflinePolicy(read_export(document, "FILE"))
    except PrivateerError as error:
        return {"name": name, "document": document, "refused": error.detail.partition(":")[0]}
    return {"name": name, "document": document, "refused": None}
