"""Vectors of exports: a document of a finished experiment, what is chosen by it offline, and damaged copies."""

import base64
import hashlib
from typing import Any

import msgspec
import numpy as np

from privateer_client import OfflinePolicy
from privateer_client.participation import Participation
from privateer_core.answer.export import Export, make_export, read_export
from privateer_core.codec import canonical, encode
from privateer_core.errors import PrivateerError
from privateer_core.privacy.record import Row, make_record, planned_of
from privateer_core.spec.spec import Spec
from privateer_server.rounds.loop import Schedule
from tests.documents import vectors

PEOPLE = 40


def files() -> dict[str, Any]:
    """What the file has, by its name."""
    made = [(name, spec, exported(spec, body)) for name, spec, body in vectors.cases()]
    found = {
        "canonical": [{"json": value, "canonical": canonical(value).decode()} for value in _PLAIN],
        "exports": [_told(name, spec, export) for name, spec, export in made],
        "refused": _refused(plain(made[0][2])),
    }
    return {"exports": found}


_PLAIN: list[Any] = [
    {"\u20ac": "Euro", "\r": "return", "1": "one", "\u0080": "control", "\U0001f600": "smile", "\ufb33": "letter"},
    [333333333.33333329, 1e30, 4.50, 2e-3, 1e-27, 1e21, 1e-6, 1e-7, -0.0, 123456789012345680, 0.1, 5e-324, 1.0],
    {"text": "\u20ac$\u000f\nA'B\"\\/", "nothing": None, "yes": True, "no": False, "empty": [{}, []]},
]
"""Examples of RFC 8785, and numbers at the ends of what is written without an exponent."""


def exported(spec: Spec, publication: bytes) -> Export:
    """The export of an experiment with this publication."""
    step = Schedule(spec).open(7, 4)
    followed = Participation(publication, spec.name, vectors.LIMITS, is_paused=True)
    terms = followed.terms
    row = Row(version=4, received=0, released=False, **msgspec.structs.asdict(planned_of(terms)))
    return make_export(
        spec.name,
        4,
        "stopped",
        spec=spec.model_dump(mode="json", exclude_none=True),
        policy=followed.policy.view(spec),
        result=None,
        record=make_record(spec, {followed.policy.cohort: [row] if terms.batch else []}),
        state=encode(step.state),
        publication=publication,
    )


def plain(export: Export) -> dict[str, Any]:
    """An export as its file has it."""
    return dict(msgspec.json.decode(msgspec.json.encode(export)))


def _told(name: str, spec: Spec, export: Export) -> dict[str, Any]:
    policy, rng = OfflinePolicy(export), np.random.default_rng(11)
    people = []
    for _ in range(PEOPLE):
        context = {one: vectors.VALUES[one][int(rng.integers(len(vectors.VALUES[one])))] for one in spec.features}
        coins = int(rng.integers(0, 2**32))
        people.append({"context": context, "slot": coins, "arm": policy.choose(context, coins=coins)})
    return {"name": name, "document": plain(export), "people": people}


def _refused(document: dict[str, Any]) -> list[dict[str, Any]]:
    """Documents that nobody may decide by, and what is said of them."""
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
    return [_judged(name, redigested(document | changes)) for name, changes in changed.items()]


def redigested(document: dict[str, Any]) -> dict[str, Any]:
    """A document whose digest is made anew where it is None: not damaged, but forged."""
    if document["digest"] is not None:
        return document
    rest = {key: value for key, value in document.items() if key != "digest"}
    return rest | {"digest": hashlib.sha256(canonical(rest)).hexdigest()}


def _judged(name: str, document: dict[str, Any]) -> dict[str, Any]:
    try:
        OfflinePolicy(read_export(document, "FILE"))
    except PrivateerError as error:
        return {"name": name, "document": document, "refused": error.detail.partition(":")[0]}
    return {"name": name, "document": document, "refused": None}
