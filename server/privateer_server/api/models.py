"""Models of the answers, which /openapi.json describes.

Pydantic describes the server's own answers. Policies, what was found, privacy records and the answers to uploads are
msgspec structs, which other parties read as well; their own schemas describe them.
"""

from typing import Any, TypeVar

import msgspec
from pydantic import BaseModel, ValidationError

from privateer_core.answer import Answer
from privateer_core.answer.people import People
from privateer_core.answer.policy_view import PolicyView
from privateer_core.errors import BadRequest
from privateer_core.experiment_status import Status
from privateer_server.experiments.changes import Verb

M = TypeVar("M", bound=BaseModel)


class SealingKey(BaseModel):
    """The public key to which the reports of an open round are sealed (X25519, hex)."""

    experiment: str
    version: int
    public_key: str
    key_id: str


class Summary(BaseModel):
    """An experiment as lists show it; ``received`` counts the open round, ``accepted`` all rounds.

    ``people`` says what has become of each of those who were planned.
    """

    name: str
    status: Status
    model: str
    algorithm: str
    version: int
    batch_size: int
    received: int
    accepted: int
    people: People
    digest: str


class Details(Summary):
    """An experiment as it stands, and its spec."""

    refused: dict[str, int]  # by reason
    shuffler: str | None  # the shuffler that claimed it
    draining_until: str | None  # when it is over, if late reports alone are awaited
    allowed_changes: list[Verb]  # the changes that an operator can ask for in its status: others are refused
    publishes_result: bool  # if not, its policies are all that it finds
    spec: dict[str, Any]


class HistoryRow(BaseModel):
    """A published round: its participants, the randomization of their reports, and the learner's counts before."""

    version: int
    batch_size: int
    received: int
    digest: str
    cohort: str
    honest: int
    mechanism: dict[str, Any]
    figures: dict[str, float]


class RoundHistory(BaseModel):
    """All published rounds in order."""

    experiment: str
    rounds: list[HistoryRow]


class LogEntry(BaseModel):
    """A change: its time, action, author, the version then, and the first version in which it holds.

    ``since_version`` is null as long as the change waits for the open round to end.
    """

    at: str
    action: str
    detail: str
    operator: str
    version: int
    since_version: int | None


class Log(BaseModel):
    """All changes to an experiment in order."""

    experiment: str
    changes: list[LogEntry]


class Changed(BaseModel):
    """An experiment after a change: how it stands, whether that changed anything, and what waits for the open round.

    ``round_given_up``: the round that was open ended with the change, and nothing of what came in it is learned from.
    """

    experiment: str
    status: Status
    version: int
    changed: bool
    round_given_up: bool
    pending_changes: list[LogEntry]


class Deletion(BaseModel):
    """Says that an experiment is deleted, and whether it was there until now."""

    experiment: str
    changed: bool


class PublishedPolicy(msgspec.Struct, frozen=True):
    """A publication, for people and other languages."""

    experiment: str
    version: int
    model: str
    batch_size: int
    sealed_size: int
    messages: int
    least: int
    deadline: int | None
    key_id: str
    digest: str
    policy: PolicyView


class Progress(msgspec.Struct, frozen=True):
    """The progress of a round."""

    received: int
    batch_size: int
    deadline: int | None


class PublishedState(msgspec.Struct, frozen=True):
    """The state that the learner knew when it made the policy, from private releases alone, and the progress."""

    experiment: str
    version: int
    status: Status
    round: Progress
    answer: Answer


def parse_json_body(kind: type[M], body: bytes | bytearray) -> M:
    """Parse a JSON body that is larger than FastAPI's limit into a model."""
    try:
        return kind.model_validate(msgspec.json.decode(body))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise BadRequest("the body is not JSON", field="body", remedy="send JSON") from None
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        field = ".".join(map(str, first["loc"]))
        raise BadRequest(str(first["msg"]), field=field, remedy="see /openapi.json") from None
