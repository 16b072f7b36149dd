"""The OpenAPI document of the shuffler."""

from typing import Any, Final

import msgspec

from privateer_core.errors import Deleted, KeyChanged, NotFound, SignatureInvalid, SpecError, Unavailable
from privateer_core.serving.admission import ShufflerLimits
from privateer_core.serving.http.openapi import (
    ENVELOPE,
    NAME_PARAMETER,
    REF,
    SENDER_PARAMETER,
    TOKEN_PARAMETER,
    TOKEN_REFUSALS,
    UPLOAD_REFUSALS,
    describe_answer,
    describe_content,
    describe_page,
    describe_refusals,
    describe_service,
)
from privateer_core.wire.batch import UploadAnswer
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory


class ExperimentStatus(msgspec.Struct, frozen=True):
    """The followed round of an experiment, and whether it takes reports now."""

    experiment: str
    version: int
    model: str
    batch_size: int
    open: bool


class HeldRound(msgspec.Struct, frozen=True):
    """Number of participants with held reports of a round, in tenths of its batch, and whether the batch is full."""

    experiment: str
    version: int
    batch_size: int
    held: int
    full: bool


class HeldRounds(msgspec.Struct, frozen=True):
    """The held rounds of a shuffler, named by the id of its key, and the smallest batch that its operator accepts."""

    shuffler: str
    min_batch: int
    rounds: list[HeldRound]


class SigningKey(msgspec.Struct, frozen=True):
    """The Ed25519 public key that batches are signed with, 64 hexadecimal digits."""

    public_key: str


_DESCRIPTION: Final = (
    "It holds sealed reports until a batch is full. /held, /version and /metrics are on the private listener alone."
)
_SERVER_ERRORS: Final = (SignatureInvalid, KeyChanged)  # errors of the server that the shuffler reports


def document() -> dict[str, Any]:
    """Return the OpenAPI document."""

    def get(summary: str, operation: str, answers: Any, *refusals: Any, **fields: Any) -> dict[str, Any]:
        return {"get": describe_page(summary, operation, answers, describe_refusals(*refusals), **fields)}

    named = {"parameters": [NAME_PARAMETER]}
    reports = {"parameters": [NAME_PARAMETER, SENDER_PARAMETER, TOKEN_PARAMETER], "requestBody": ENVELOPE}
    held_answer = describe_answer("UploadAnswer", "Some reports are held.", 202)
    upload_refusals = describe_refusals(*UPLOAD_REFUSALS, *TOKEN_REFUSALS, *_SERVER_ERRORS, SpecError)
    post = describe_page("Hold sealed reports for a batch.", "reports", held_answer, upload_refusals, **reports)
    status = describe_answer("ExperimentStatus", "The round.")
    status_refusals = (NotFound, Deleted, *_SERVER_ERRORS, Unavailable)
    keys = describe_content("Its keys.", MEDIA_TYPE, {"$ref": REF.format(name="Directory")})
    paths = {
        "/experiments/{name}/reports": {"post": post},
        "/experiments/{name}": get(
            "Show the open round of an experiment.", "experiment", status, *status_refusals, **named
        ),
        "/experiments/{name}/token-keys": get(
            "Show the token keys of an experiment.", "token_keys", keys, NotFound, **named
        ),
        "/keys": get("Show the key that signs batches.", "keys", describe_answer("SigningKey", "The key.")),
        "/limits": get("Show the shuffler's limits.", "limits", describe_answer("ShufflerLimits", "They.")),
        "/held": get("Show what is held.", "held", describe_answer("HeldRounds", "In tenths of a batch.")),
    }
    readiness = "Say whether reports can be held and sent on."
    structs = (UploadAnswer, ExperimentStatus, SigningKey, ShufflerLimits, Directory, HeldRounds)
    return describe_service("Privateer shuffler", _DESCRIPTION, readiness, paths, structs)
