"""Routes of public evidence that devices compare: the log, its entries and proofs, and the server's token keys."""

import base64
from typing import Annotated, Final

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from fastapi import APIRouter, Query
from fastapi.responses import PlainTextResponse
from pydantic import BaseModel
from starlette.responses import Response

from privateer_core.errors import NotFound, ParameterInvalid, Unavailable
from privateer_core.serving.http.openapi import REF, describe_answer, describe_content, describe_refusals
from privateer_core.serving.http.report_endpoint import json_response
from privateer_core.serving.token_gate import TokenGate
from privateer_core.wire.identity import fingerprint
from privateer_core.wire.token_keys import MEDIA_TYPE
from privateer_core.wire.transparency_log import verifier_key
from privateer_server.data import PublicationLog

_TOKEN_KEY_RESPONSES: Final = describe_content(
    "The issuer's name, and the keys of this experiment.", MEDIA_TYPE, {"$ref": REF.format(name="Directory")}
) | describe_refusals(NotFound)
_MAX_LEAF_INDEX: Final = 1 << 53
_HEAD_DOCS: Final = describe_content(
    "A signed note (C2SP tlog-checkpoint).", "text/plain", {"type": "string"}
) | describe_refusals(Unavailable)
_PROOF_DOCS: Final = describe_answer("Proof", "The proof.") | describe_refusals(NotFound, ParameterInvalid, Unavailable)
_PROOF_REFUSALS: Final = describe_refusals(NotFound, ParameterInvalid, Unavailable)
Name = Annotated[str, Query(description="Name of the experiment.")]
Version = Annotated[int, Query(ge=1, lt=1 << 63, description="Version of the publication.")]
Block = Annotated[int | None, Query(ge=0, le=_MAX_LEAF_INDEX, description="Number of the block to begin with.")]
Size = Annotated[int | None, Query(ge=1, le=_MAX_LEAF_INDEX, description="Number of leaves; by default all.")]
Place = Annotated[int, Query(ge=0, le=_MAX_LEAF_INDEX)]
Leaves = Annotated[int, Query(ge=1, le=_MAX_LEAF_INDEX)]


def tokens_router(gate: TokenGate | None) -> APIRouter:
    """Return the route of token keys."""
    router = APIRouter(tags=["experiments"])

    @router.get("/experiments/{name}/token-keys", response_class=Response, responses=_TOKEN_KEY_RESPONSES)
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
    """Return the routes of the public log."""
    router = APIRouter(prefix="/log", tags=["log"])

    @router.get("/key")
    def key() -> ServerKey:
        """Show the key to pin."""
        public = log.identity.public
        public_key = Ed25519PublicKey.from_public_bytes(public)
        verifier_line = verifier_key(log.origin, public_key)
        return ServerKey(key=public.hex(), fingerprint=fingerprint(public), log=log.origin, verifier=verifier_line)

    @router.get("/head", response_class=PlainTextResponse, responses=_HEAD_DOCS)
    def head() -> Response:
        """Get the signed head of the log."""
        return PlainTextResponse(log.append_and_sign_head().signed, headers={"Cache-Control": "no-cache"})

    @router.get("/proof", responses=_PROOF_DOCS)
    def proof(experiment: Name, version: Version, block: Block = None) -> Response:
        """Prove to a device that a publication is in the log, and how the log went on."""
        return json_response(log.make_proof(experiment, version, block), 200)

    @router.get("/inclusion", responses=_PROOF_REFUSALS)
    def inclusion(experiment: Name, version: Version, size: Size = None) -> Inclusion:
        """Prove that a publication is in the log of so many leaves."""
        index, leaves, hashes = log.prove_inclusion(experiment, version, size)
        return Inclusion(index=index, size=leaves, hashes=_encode_hashes(hashes))

    @router.get("/consistency", responses=_PROOF_REFUSALS)
    def consistency(first: Leaves, second: Leaves) -> Consistency:
        """Prove that the log of ``second`` leaves begins with that of ``first``."""
        return Consistency(first=first, second=second, hashes=_encode_hashes(log.prove_consistency(first, second)))

    @router.get("/entries", responses=describe_refusals(ParameterInvalid, Unavailable))
    def entries(start: Place = 0, end: Leaves = _MAX_LEAF_INDEX) -> LogEntries:
        """List entries, 1,000 at most."""
        rows = log.read_entries(start, end)
        facts = ((row.experiment, row.version, row.digest.hex()) for row in rows)
        entries = [PublicLogEntry(experiment=name, version=version, digest=digest) for name, version, digest in facts]
        return LogEntries(start=start, entries=entries)

    return router


def _encode_hashes(hashes: list[bytes]) -> list[str]:
    return [base64.b64encode(content).decode() for content in hashes]
