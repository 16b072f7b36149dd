"""What the routes answer, as /openapi.json describes it.

Pydantic describes the server's own views. Privacy records, results and the answers to uploads are msgspec structs, which
the core defines and other parties read; they are described by their own schemas.
"""

from typing import Any, Final

import msgspec
from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict

from privateer.record import Record
from privateer.result import Result
from privateer.wire.batch import BatchAnswer
from privateer_server.experiment import Status

_REF: Final = "#/components/schemas/{name}"


class View(BaseModel):
    """An answer."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Health(View):
    """Whether the process answers, or can count reports."""

    status: str


class PublicKey(View):
    """The public key to which the reports of an open round are sealed (X25519, hex)."""

    experiment: str
    version: int
    public_key: str
    key_id: str


class PublicKeys(View):
    """The keys of all open rounds."""

    keys: list[PublicKey]


class Claim(View):
    """The id of the key of the shuffler that brings an experiment's batches."""

    shuffler: str | None


class Problem(View):
    """Why a request was refused (RFC 9457)."""

    model_config = ConfigDict(extra="allow")

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None


class Summary(View):
    """Where an experiment stands; ``received`` counts the open round, ``accepted`` all rounds."""

    name: str
    status: Status
    model: str
    algorithm: str
    version: int
    batch: int
    received: int
    accepted: int
    digest: str


class Summaries(View):
    """All experiments."""

    experiments: list[Summary]


class Details(Summary):
    """An experiment with its refusals by reason, the shuffler that claimed it, and its spec."""

    refused: dict[str, int]
    shuffler: str | None
    spec: dict[str, Any]


class PublishedPolicy(View):
    """A publication, for people and other languages."""

    experiment: str
    version: int
    model: str
    batch: int
    sealed_size: int
    messages: int
    least: int
    deadline: int | None
    key_id: str
    digest: str
    policy: dict[str, Any]


class Progress(View):
    """How far a round is."""

    received: int
    batch: int
    deadline: int | None


class State(View):
    """What the learner knew when it made the policy, which private releases alone decide; and how far the round is."""

    experiment: str
    version: int
    status: Status
    round: Progress
    state: dict[str, Any]


class HistoryRow(View):
    """A published round: whom it asked, how reports were randomized, and what the learner counted before it."""

    version: int
    batch: int
    received: int
    digest: str
    cohort: str
    honest: int
    mechanism: dict[str, Any]
    figures: dict[str, float]


class History(View):
    """All published rounds in order."""

    experiment: str
    rounds: list[HistoryRow]


class PublishedResult(msgspec.Struct, frozen=True):
    """What the learner had found when it made the current version."""

    experiment: str
    version: int
    status: Status
    result: Result


class UploadAnswer(msgspec.Struct, frozen=True):
    """How many reports of an upload are counted, and how many were refused, by reason."""

    accepted: int
    refused: dict[str, int]


def answers(kind: type[msgspec.Struct]) -> dict[int | str, dict[str, Any]]:
    """Return the description of a route that answers with a struct, for OpenAPI."""
    return {200: {"description": str(kind.__doc__).splitlines()[0], "content": _json(kind)}}


def describe_structs(app: FastAPI) -> None:
    """Have the application's description say what structs are, and what the endpoints for reports answer."""
    made = app.openapi
    _, schemas = msgspec.json.schema_components([Record, PublishedResult, UploadAnswer, BatchAnswer], ref_template=_REF)

    def openapi() -> dict[str, Any]:
        document = made()
        document["components"]["schemas"].update(schemas)
        for path, kind in (("/reports", UploadAnswer), ("/batches", BatchAnswer)):
            answer = {"description": "Counted, and durable", "content": _json(kind)}
            document["paths"][path] = {"post": {"tags": ["reports"], "responses": {"202": answer}}}
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _json(kind: type[msgspec.Struct]) -> dict[str, Any]:
    return {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
