"""Adds to /openapi.json what the framework does not find by itself: structs, uploads and batches, and all refusals."""

from collections.abc import Callable
from typing import Any, Final

import msgspec
from fastapi import FastAPI, Request
from starlette.responses import Response

from privateer_core.answer.conclusion import PublishedAnswer
from privateer_core.answer.export import Export
from privateer_core.errors import BatchRefused
from privateer_core.privacy.record import Record
from privateer_core.privacy.risk import Risks
from privateer_core.serving.admission import ServerLimits
from privateer_core.serving.http.listeners import IS_PUBLIC
from privateer_core.serving.http.openapi import (
    ENVELOPE,
    REF,
    SCHEMAS,
    SENDER,
    TOKEN,
    TOKEN_REFUSALS,
    UPLOAD_REFUSALS,
    answers,
    public_part,
    refusals,
    signature,
)
from privateer_core.serving.http.report_endpoint import answer
from privateer_core.wire.batch import SIGNATURE_HEADER, BatchAnswer, UploadAnswer
from privateer_core.wire.token_keys import Directory
from privateer_core.wire.transparency_log import Proof
from privateer_server.api.models import PublishedPolicy, PublishedState
from privateer_server.api.pages import KEPT

_OK: Final = 200
_STRUCTS: Final = (
    *(Record, Risks, PublishedPolicy, PublishedState, PublishedAnswer, Export),
    *(UploadAnswer, BatchAnswer, Proof, Directory, ServerLimits),
)
CLAIM: Final = signature(SIGNATURE_HEADER, "The shuffler's signature of the experiment's name.", required=True)
_BATCH: Final = signature(SIGNATURE_HEADER, "The shuffler's signature of the body.", required=True)
_REPORTS: Final[dict[str, Any]] = {
    "tags": ["reports"],
    "summary": "Take sealed reports: one person's, or a trusted sender's.",
    "operationId": "reports",
    "parameters": [SENDER, TOKEN],
    "requestBody": ENVELOPE,
    "responses": answers("UploadAnswer", "Some reports count.", 202) | refusals(*UPLOAD_REFUSALS, *TOKEN_REFUSALS),
}
_BATCHES: Final[dict[str, Any]] = {
    "tags": ["reports"],
    "summary": "Take a batch that a trusted shuffler signed, on the private listener.",
    "operationId": "batches",
    "parameters": [_BATCH],
    "requestBody": ENVELOPE,
    "responses": answers("BatchAnswer", "The batch was taken before.", 200)
    | answers("BatchAnswer", "The batch is taken.", 202)
    | refusals(*UPLOAD_REFUSALS, BatchRefused),
}


def describe(app: FastAPI, is_public: Callable[[str, str], bool]) -> None:
    """Complete the application's own description, and add the page that shows it.

    is_public: whether strangers may use a method on a path: to them the page shows these alone.
    """
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = made()
            document["paths"] |= {"/reports": {"post": _texts(_REPORTS)}, "/batches": {"post": _texts(_BATCHES)}}
            _without_the_frameworks_refusals(document)
            _with_entity_tags(document)
            _, schemas = msgspec.json.schema_components(_STRUCTS, ref_template=REF)
            document["components"]["schemas"] |= schemas | SCHEMAS
        return app.openapi_schema or {}

    app.openapi = openapi  # type: ignore[method-assign]

    @app.get("/openapi.json", include_in_schema=False)
    def show(request: Request) -> Response:
        document = openapi()
        return answer(public_part(document, is_public) if IS_PUBLIC in request.scope else document, _OK)


def _with_entity_tags(document: dict[str, Any]) -> None:
    """Say of the pages that are kept as bytes that they have entity tags."""
    for path in KEPT & document["paths"].keys():
        responses = document["paths"][path]["get"]["responses"]
        responses["200"].setdefault("headers", {}).setdefault("ETag", {"schema": {"type": "string"}})
        responses.setdefault("304", {"description": "The page has one of the entity tags of If-None-Match"})


def _texts(operation: dict[str, Any]) -> dict[str, Any]:
    """Return an operation whose statuses are text, as JSON has them."""
    return operation | {"responses": {str(status): answer for status, answer in operation["responses"].items()}}


def _without_the_frameworks_refusals(document: dict[str, Any]) -> None:
    """Take out the refusals that the framework assumes: every route says itself what it refuses."""
    for operations in document["paths"].values():
        for operation in operations.values():
            refused = operation["responses"].get("422", {"content": {}})
            if "application/json" in refused["content"]:
                del operation["responses"]["422"]
    for name in ("HTTPValidationError", "ValidationError"):
        document["components"]["schemas"].pop(name, None)
