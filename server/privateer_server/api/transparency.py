"""Routes of what devices compare: the public log, its entries and proofs, and the token keys that the server knows."""

import base64
from typing import Annotated, Any, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.responses import Response

from privateer_core.errors import NotFound, ParameterInvalid, Unavailable
from privateer_core.serving.http.openapi import REF, answers, refusals
from privateer_core.serving.http.report_endpoint import answer
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.identity import fingerprint
from privateer_core.wire.token_keys import MEDIA_TYPE
from privateer_core.wire.transparency_log import verifier
from privateer_server.publication_log import PublicationLog

_KEYS: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The issuer's name, and the keys of this experiment.",
        "content": {MEDIA_TYPE: {"schema": {"$ref": REF.format(name="Directory")}}},
    },
    **refusals(NotFound),
}
_PLACE_MAX: Final = 1 << 53
_OK: Final = 200
_HEAD: Final[dict[int | str, dict[str, Any]]] = {
    _OK: {"description": "A signed note (C2SP tlog-checkpoint).", "content": {"text/plain": {}}},
    **refusals(Unavailable),
}
_PROOF: Final = answers("Proof", "The proof.") | refusals(NotFound, ParameterInvalid, Unavailable)
_PROVING: Final = refusals(NotFound, ParameterInvalid, Unavailable)
Name = Annotated[str, Query(description="Name of the experiment.")]
Version = Annotated[int, Query(ge=1, lt=1 << 63, description="Version of the publication.")]
Block = Annotated[int | None, Query(ge=0, le=_PLACE_MAX, description="Number of the block to begin with.")]
Size = Annotated[int | None, Query(ge=1, le=_PLACE_MAX, description="Number of leaves; by default all.")]
Place = Annotated[int, Query(ge=0, le=_PLACE_MAX)]
Leaves = Annotated[int, Query(ge=1, le=_PLACE_MAX)]


def tokens_router(gate: TokenGate | None) -> APIRouter:
    """Return the route, bound to what knows the keys."""
    router = APIRouter(tags=["experiments"])

    @router.get("/experiments/{name}/token-keys", response_class=Response, responses=_KEYS)
    async def token_keys(name: str) -> Response:
        """Show the token keys of an experiment, which are the same for everybody."""
        if gate is None:
            raise NotFound("no upload tokens are taken here", remedy="send reports without")
        return Response(gate.directory(name).encode(), media_type=MEDIA_TYPE)

    return router


class ServerKey(BaseModel):
    """The key that signs publications and heads (Ed25519, hex), its SHA-256, and how readers of notes take it."""

    key: str
    fingerprint: str
    log: str
    verifier: str


class PublicLogEntry(BaseModel):
    """A publication in the log."""

    experiment: str
    version: int
    digest: str


class LogEntries(BaseModel):
    """Entries in order, from a place on: as many as an answer has, or up to the end."""

    start: int
    entries: list[PublicLogEntry]


class Inclusion(BaseModel):
    """The proof that a leaf is in the tree of the first ``size`` leaves (RFC 9162, section 2.1.3), in base64."""

    index: int
    size: int
    hashes: list[str]


class Consistency(BaseModel):
    """The proof that one tree begins with another (RFC 9162, section 2.1.4), in base64."""

    first: int
    second: int
    hashes: list[str]


def log_router(log: PublicationLog) -> APIRouter:
    """Return the routes, bound to the log."""
    router = APIRouter(prefix="/log", tags=["log"])

    @router.get("/key")
    def key() -> ServerKey:
        """Show the key to pin."""
        public = log.identity.public
        read = Ed25519PublicKey.from_public_bytes(public)
        shown = verifier(log.origin, read)
        return ServerKey(key=public.hex(), fingerprint=fingerprint(public), log=log.origin, verifier=shown)

    @router.get("/head", response_class=PlainTextResponse, responses=_HEAD)
    def head() -> Response:
        """Get the signed head of the log."""
        return PlainTextResponse(log.head().signed, headers={"Cache-Control": "no-cache"})

    @router.get("/proof", responses=_PROOF)
    def proof(experiment: Name, version: Version, block: Block = None) -> Response:
        """Prove to a device that a publication is in the log, and how the log went on."""
        return answer(log.prove(experiment, version, block), _OK)

    @router.get("/inclusion", responses=_PROVING)
    def inclusion(experiment: Name, version: Version, size: Size = None) -> Inclusion:
        """Prove that a publication is in the log of so many leaves."""
        index, leaves, hashes = log.inclusion(experiment, version, size)
        return Inclusion(index=index, size=leaves, hashes=_shown(hashes))

    @router.get("/consistency", responses=_PROVING)
    def consistency(first: Leaves, second: Leaves) -> Consistency:
        """Prove that the log of ``second`` leaves begins with that of ``first``."""
        return Consistency(first=first, second=second, hashes=_shown(log.consistency(first, second)))

    @router.get("/entries", responses=refusals(ParameterInvalid, Unavailable))
    def entries(start: Place = 0, end: Leaves = _PLACE_MAX) -> LogEntries:
        """List entries, 1,000 at most."""
        found = log.entries(start, end)
        listed = [
            PublicLogEntry(experiment=one.experiment, version=one.version, digest=one.digest.hex()) for one in found
        ]
        return LogEntries(start=start, entries=listed)

    return router


def _shown(hashes: list[bytes]) -> list[str]:
    return [base64.b64encode(one).decode() for one in hashes]
