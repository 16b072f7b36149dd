"""An experiment's publications, taken and verified as by devices and auditors: as a process of its own, too."""

import base64
import json
import math
import sys
from collections.abc import Mapping
from typing import Any

import msgspec
import numpy as np

from privateer_client.participation import Participation
from privateer_client.publication_parts import parse_spec_body
from privateer_core.mechanisms.vectors.running_vectors import Factorization, RunningVectors
from privateer_core.primitives.row_ball import RowBall
from privateer_core.privacy.certificate import recompute
from privateer_core.privacy.record import Row, describe_terms, make_record
from privateer_core.privacy.record_verification import read_certificates
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_core.wire.publication import decode_publication
from privateer_server.rounds.schedule import Schedule
from tests.documents.offline import published
from tests.support.processors import arithmetic

LIMITS = Limits(math.inf, 1.0, math.inf, 1.0, 1, "hidden", allow_central=True)
"""The settings of a device that allows every trust model that keeps its promise."""


def make_documents(spec: Spec) -> dict[str, Any]:
    """The publication of an experiment's round, its record before that round, and in it."""
    publication = published(spec)
    terms = Schedule(spec).open(7).policy.terms
    row = Row(version=4, received=0, released=False, **msgspec.structs.asdict(describe_terms(terms)))
    records = [
        make_record(spec, {}),
        *([_record(spec, row)] if terms.batch_size and spec.privacy.trust.is_served else []),
    ]
    return {
        "publication": base64.b64encode(publication).decode(),
        "records": [msgspec.to_builtins(record) for record in records],
    }


def _record(spec: Spec, row: Row) -> Any:
    return make_record(spec, {"": [row]}, silent=(1, 2, 3))


def read_spec(document: dict[str, Any]) -> Spec:
    """The spec that a publication carries."""
    return parse_spec_body(decode_publication(base64.b64decode(document["publication"])).spec)


def verify(document: dict[str, Any]) -> None:
    """Take part in the round as a device, and verify the records as an auditor: raises what either refuses."""
    spec = read_spec(document)
    is_simulated = spec.privacy.trust.is_simulated
    publication = base64.b64decode(document["publication"])
    followed = Participation(publication, spec.name, LIMITS, is_paused=is_simulated)
    columns = np.full((1, spec.dimension), 0.25)
    followed.decide(columns, np.array([7], np.uint32))
    for record in document["records"]:
        for certificate in read_certificates(record).values():
            assert is_simulated or all(verdict.holds for verdict in recompute(certificate))


def sensitivities() -> list[tuple[str, str]]:
    """Those of continual release and the noise that they need, of many sizes, to the last digit."""
    balls = [(steps, RowBall(2, dimension, 0.2)) for steps in range(2, 200, 3) for dimension in (1, 3, 10)]
    mechanisms = [RunningVectors.from_promise(ball, 1.0, 1e-6, "root", steps) for steps, ball in balls]
    return [
        (Factorization("root", m.steps).sensitivity(m.ball.sensitivity, m.ball.coordinates).hex(), str(m))
        for m in mechanisms
    ]


def norms() -> list[str]:
    """Norms as BLAS computes them: the planted defect of `sensitivities`."""
    return [float(np.linalg.norm(np.arange(1.0, size) ** -0.5)).hex() for size in range(2, 200, 3)]


def everything(specs: Mapping[str, Spec]) -> dict[str, Any]:
    """All of it for some experiments, by name."""
    documents = {name: make_documents(spec) for name, spec in specs.items()}
    return {"documents": documents, "sensitivities": sensitivities(), "norms": norms(), "arithmetic": arithmetic()}


if __name__ == "__main__":
    documents = json.load(sys.stdin)
    for document in documents.values():
        verify(document)
    json.dump(everything({name: read_spec(document) for name, document in documents.items()}), sys.stdout)
