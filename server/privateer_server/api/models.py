"""What the routes answer, as /openapi.json describes it.

Pydantic describes the server's own answers. Privacy records, results and the answers to uploads are msgspec structs,
which other parties read as well; their own schemas describe them.
"""

from typing import Any, Final, TypeVar

import msgspec
from fastapi import FastAPI
from pydantic import BaseModel, ValidationError

from privateer.errors import BadRequest
from privateer.record import Record
from privateer.result import Result
from privateer.wire.batch import BatchAnswer
from privateer.wire.problem import MEDIA_TYPE
from privateer_server.experiment import Status
from privateer_server.exports import Export

M = TypeVar("M", bound=BaseModel)
_REF: Final = "#/components/schemas/{name}"


class Problem(BaseModel, extra="allow"):
    """Why a request was refused (RFC 9457)."""

    type: str
    title: str
    status: int
    detail: str
    field: str | None = None
    remedy: str | None = None


class PublicKey(BaseModel):
    """The public key to which the reports of an open round are sealed (X25519, hex)."""

    experiment: str
    version: int
    public_key: str
    key_id: str


class Summary(BaseModel):
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


class Details(Summary):
    """An experiment with its refusals by reason, the shuffler that claimed it, and its spec.

    ``draining_until`` is when it is over, where late reports alone are awaited.
    """

    refused: dict[str, int]
    shuffler: str | None
    draining_until: str | None
    spec: dict[str, Any]


class PublishedPolicy(BaseModel):
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


class Progress(BaseModel):
    """How far a round is."""

    received: int
    batch: int
    deadline: int | None


class State(BaseModel):
    """What the learner knew when it made the policy, which private releases alone decide; and how far the round is."""

    experiment: str
    version: int
    status: Status
    round: Progress
    state: dict[str, Any]


class HistoryRow(BaseModel):
    """A published round: whom it asked, how reports were randomized, and what the learner counted before it."""

    version: int
    batch: int
    received: int
    digest: str
    cohort: str
    honest: int
    mechanism: dict[str, Any]
    figures: dict[str, float]


class History(BaseModel):
    """All published rounds in order."""

    experiment: str
    rounds: list[HistoryRow]


class LogEntry(BaseModel):
    """A change: when, what, whose request, the version then, and the first version in which it holds.

    ``since`` is null as long as the change waits for the open round to end.
    """

    at: str
    action: str
    detail: str
    who: str
    version: int
    since: int | None


class Log(BaseModel):
    """All changes to an experiment in order."""

    experiment: str
    changes: list[LogEntry]


class Changed(BaseModel):
    """Where an experiment stands after a change, whether that changed anything, and what waits for the open round."""

    experiment: str
    status: Status
    version: int
    changed: bool
    waiting: list[LogEntry]


class Deletion(BaseModel):
    """Says that an experiment is deleted, and whether it was there until now."""

    experiment: str
    changed: bool


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


def read(kind: type[M], body: bytes | bytearray) -> M:
    """Read a body that is larger than what a route reads by itself.

    Raises
    ------
    BadRequest
        If it is not JSON, or not of this kind.
    """
    try:
        return kind.model_validate(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is not JSON", field="body", remedy="send JSON") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BadRequest(str(first["msg"]), field=field, remedy="see /openapi.json") from None


def answers(kind: type[msgspec.Struct], status: int = 200) -> dict[int | str, dict[str, Any]]:
    """Return the description of a route that answers with a struct, for OpenAPI."""
    content = {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
    return {status: {"description": str(kind.__doc__).splitlines()[0], "content": content}}


_ENDPOINTS: Final[dict[str, tuple[str, type[msgspec.Struct], tuple[int, ...]]]] = {
    "/reports": ("Take sealed reports.", UploadAnswer, (202,)),
    "/batches": ("Take a shuffler's batch; 200 says that it was taken before.", BatchAnswer, (202, 200)),
}
"""What the endpoints for reports do, what they answer, and with which statuses."""


def describe_structs(app: FastAPI) -> None:
    """Have the application's description say what structs are, and what the endpoints for reports answer."""
    made = app.openapi
    problem = {"$ref": _REF.format(name=Problem.__name__)}
    refusals = {"description": "A problem document (RFC 9457)", "content": {MEDIA_TYPE: {"schema": problem}}}
    _, schemas = msgspec.json.schema_components(
        [Record, PublishedResult, Export, UploadAnswer, BatchAnswer], ref_template=_REF
    )

    def openapi() -> dict[str, Any]:
        document = made()
        document["components"]["schemas"].update(schemas)
        for path, (what, kind, statuses) in _ENDPOINTS.items():
            good = {str(status): one for number in statuses for status, one in answers(kind, number).items()}
            route = {"summary": what, "responses": good | dict.fromkeys(("4XX", "5XX"), refusals)}
            document["paths"][path] = {"post": {"tags": ["reports"]} | route}
        for methods in document["paths"].values():
            for route in methods.values():
                refused = [status for status in route["responses"] if status[0] in "45"]
                route["responses"].update(dict.fromkeys(refused, refusals))
        return document

    app.openapi = openapi  # type: ignore[method-assign]
