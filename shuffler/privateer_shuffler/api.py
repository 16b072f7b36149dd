"""The endpoint that takes reports, and the OpenAPI document of the shuffler."""

import asyncio
from typing import Any, Final

import msgspec
from starlette.types import Scope

from privateer_core import errors
from privateer_core.serving.admission import ShufflerLimits
from privateer_core.serving.http import openapi
from privateer_core.serving.http.answer import AnswerTiming, HttpAnswer, wait_for_turn
from privateer_core.serving.http.bodies import Body, Budget
from privateer_core.serving.http.report_endpoint import UploadEndpoint, UploadReceipt
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.batch import UploadAnswer
from privateer_core.wire.keys import TrustedKeys
from privateer_core.wire.publication import Envelope, check_single_report, split_sealed
from privateer_core.wire.token_keys import MEDIA_TYPE, Directory
from privateer_shuffler.followed_rounds import FollowedRounds, TrackedRound
from privateer_shuffler.metrics import ShufflerMetrics
from privateer_shuffler.pool.uploads import PoolReceipt

EXPERIMENT: Final = "privateer.experiment"  # key of a request's scope for the experiment of its path


class PoolEndpoint(UploadEndpoint):
    """The endpoint that holds the reports of envelopes, and answers once accepted reports are durable.

    The answer is 202 if any report was accepted, otherwise the problem of the first refusal.
    """

    route = "/experiments/{name}/reports"

    def __init__(
        self,
        rounds: FollowedRounds,
        metrics: ShufflerMetrics,
        budget: Budget,
        body_limit: int,
        senders: TrustedKeys,
        gate: TokenGate | None = None,
    ) -> None:
        super().__init__(budget, body_limit, senders, metrics.count_refusals, gate)
        self._rounds, self._metrics = rounds, metrics

    def _record_timing(self, scope: Scope, timing: AnswerTiming) -> None:
        self._metrics.count_upload(scope[EXPERIMENT], timing)

    def _experiment_name(self, scope: Scope) -> str:
        return str(scope[EXPERIMENT])

    def _submit(self, scope: Scope, envelope: Envelope, body: Body) -> asyncio.Future[PoolReceipt] | None:
        _check_address(scope, envelope)
        followed = self._rounds.get_cached_round(envelope.header)
        return self._hold(envelope, followed, body) if followed else None

    async def _submit_and_wait(self, scope: Scope, envelope: Envelope, body: Body) -> PoolReceipt:
        _check_address(scope, envelope)
        try:
            followed = await self._rounds.get_current_round(envelope.header)
        finally:
            await wait_for_turn(scope)  # many wait for the same answer of the server
        return await self._hold(envelope, followed, body)

    def _hold(self, envelope: Envelope, followed: TrackedRound, body: Body) -> asyncio.Future[PoolReceipt]:
        """Put the reports of an envelope into their pool, or return a receipt with the refusal of all of them."""
        try:
            pool = self._rounds.admit(envelope.header, followed)
        except errors.PrivateerError as error:
            reports = len(envelope.sealed) // followed.round.report_size
            receipt: asyncio.Future[PoolReceipt] = asyncio.get_running_loop().create_future()
            receipt.set_result(PoolReceipt(0, {error.slug: max(1, reports)}, error))
            return receipt
        if not body.is_signed:
            check_single_report(envelope, followed.round)
        return pool.hold(split_sealed(envelope, followed.round), body.admission)

    def _receipt_answer(self, receipt: UploadReceipt) -> HttpAnswer:
        self._count_refusals(receipt.refused)
        return super()._receipt_answer(receipt)

    def _failure_answer(self, error: errors.PrivateerError) -> HttpAnswer:
        return self._refuse_body(error)


def _check_address(scope: Scope, envelope: Envelope) -> None:
    if envelope.header.experiment != scope[EXPERIMENT]:
        raise errors.Malformed("the reports are for another experiment than the address", remedy="correct the address")


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
_SERVER_ERRORS: Final = (errors.SignatureInvalid, errors.KeyChanged)  # errors of the server that the shuffler reports


def build_openapi_document() -> dict[str, Any]:
    """Return the OpenAPI document."""

    def get(summary: str, operation: str, answers: Any, *refusals: Any, **fields: Any) -> dict[str, Any]:
        return {
            "get": openapi.describe_page(summary, operation, answers, openapi.describe_refusals(*refusals), **fields)
        }

    named = {"parameters": [openapi.NAME_PARAMETER]}
    reports = {
        "parameters": [openapi.NAME_PARAMETER, openapi.SENDER_PARAMETER, openapi.TOKEN_PARAMETER],
        "requestBody": openapi.ENVELOPE,
    }
    held_answer = openapi.describe_answer("UploadAnswer", "Some reports are held.", 202)
    upload_refusals = openapi.describe_refusals(
        *openapi.UPLOAD_REFUSALS, *openapi.TOKEN_REFUSALS, *_SERVER_ERRORS, errors.SpecError
    )
    post = openapi.describe_page("Hold sealed reports for a batch.", "reports", held_answer, upload_refusals, **reports)
    status = openapi.describe_answer("ExperimentStatus", "The round.")
    status_refusals = (errors.NotFound, errors.Deleted, *_SERVER_ERRORS, errors.Unavailable)
    keys = openapi.describe_content("Its keys.", MEDIA_TYPE, {"$ref": openapi.REF.format(name="Directory")})
    paths = {
        "/experiments/{name}/reports": {"post": post},
        "/experiments/{name}": get(
            "Show the open round of an experiment.", "experiment", status, *status_refusals, **named
        ),
        "/experiments/{name}/token-keys": get(
            "Show the token keys of an experiment.", "token_keys", keys, errors.NotFound, **named
        ),
        "/keys": get("Show the key that signs batches.", "keys", openapi.describe_answer("SigningKey", "The key.")),
        "/limits": get(
            "Show the shuffler's limits.", "limits", openapi.describe_answer("ShufflerLimits", "The limits.")
        ),
        "/held": get("Show what is held.", "held", openapi.describe_answer("HeldRounds", "In tenths of a batch.")),
    }
    readiness = "Say whether reports can be held and sent on."
    structs = (UploadAnswer, ExperimentStatus, SigningKey, ShufflerLimits, Directory, HeldRounds)
    return openapi.describe_service("Privateer shuffler", _DESCRIPTION, readiness, paths, structs)
