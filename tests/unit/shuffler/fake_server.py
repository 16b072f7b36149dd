"""A server without learning: it publishes the rounds of tests and keeps delivered batches."""

import asyncio
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from privateer_core.errors import Conflict, RoundUnknown, Unavailable
from privateer_core.wire.batch import SIGNATURE_HEADER, BatchAnswer, decode_batch
from privateer_core.wire.identity import SIGNED_HEADER
from privateer_core.wire.problem import MEDIA_TYPE as PROBLEM
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import (
    Envelope,
    Header,
    Publication,
    Round,
    decode_publication,
    digest,
    encode_envelope,
    encode_publication,
    report_header,
)
from privateer_lab.services.processes import free_port
from tests.support.notary import Notary

SIZE = 96
KEY = bytes(range(32))


class FakeServer:
    """Publishes rounds and takes batches once each, by experiment and version.

    Attributes
    ----------
    delivered
        Bodies of the delivered batches, by experiment and version.
    attempts
        Every batch that arrived, the refused ones included.
    signatures
        Their signatures.
    questions
        How often a publication was asked for.
    busy
        How many of the next batches to refuse as unavailable.
    mute
        Whether to take batches but never answer.
    insatiable
        Whether to ask for another batch of the same version each time.
    claims
        Ids of the keys of those who claimed an experiment first, by its name.
    deaf
        Whether long polls end only when their time is up.
    delay
        Seconds before a publication is given, as it was when it was asked for.
    healthy
        Whether it answers the question for its key.
    interrupted
        Whether a proxy answers instead: a page that nobody has signed.
    closing
        Whether to answer everything at once, for the end of a test.
    """

    def __init__(self) -> None:
        self.publications: dict[str, bytes] = {}
        self.delivered: dict[tuple[str, int], bytes] = {}
        self.attempts: list[bytes] = []
        self.signatures: list[str] = []
        self.questions = 0
        self.busy = 0
        self.mute = False
        self.insatiable = False
        self.claims: dict[str, str] = {}
        self.deaf = False
        self.delay = 0.0
        self.healthy = True
        self.interrupted = False
        self.closing = False
        self.identity = Notary().identity
        self.app = Starlette(
            routes=[
                Route("/log/key", self._key),
                Route("/experiments/{name}/policy", self._policy),
                Route("/experiments/{name}/shuffler", self._claim, methods=["POST"]),
                Route("/batches", self._batch, methods=["POST"]),
            ]
        )

    def publish(self, name: str = "spring", version: int = 1, batch: int = 5, **changes: object) -> Header:
        """Publish a round; gives the header of its reports."""
        fields = {"model": "shuffle", "sealed_size": SIZE, "public_key": KEY, "policy": b"p"} | changes
        policy = fields.pop("policy")
        body = encode_publication(Publication(Round(name, version, batch_size=batch, **fields), b"{}", policy))
        self.publications[name] = body
        return self.header(name)

    def header(self, name: str = "spring") -> Header:
        """The header of reports for what is published now."""
        body = self.publications[name]
        return report_header(decode_publication(body).round, digest(body))

    def received(self, name: str = "spring", version: int = 1) -> list[bytes]:
        """The sealed reports of a delivered batch, in their order."""
        sealed = decode_batch(self.delivered[name, version]).sealed
        return [sealed[start : start + SIZE] for start in range(0, len(sealed), SIZE)]

    async def _key(self, _: Request) -> Response:
        return JSONResponse({"key": self.identity.public.hex()}, 200 if self.healthy else 500)

    async def _policy(self, request: Request) -> Response:
        self.questions += 1
        name, known_tag = request.path_params["name"], request.headers.get("if-none-match")
        body = self.publications.get(name)
        given_at = time.monotonic() + self.delay
        while not self.closing and time.monotonic() < given_at:
            await asyncio.sleep(0.01)
        if body is None:
            return Response(status_code=404)
        end_time = time.monotonic() + float(request.query_params["wait"])
        while known_tag == f'"{digest(body).hex()}"':
            if self.interrupted:
                break
            if self.closing or time.monotonic() >= end_time:
                return Response(status_code=304)
            await asyncio.sleep(0.01)
            body = body if self.deaf else self.publications[name]
        if self.interrupted:
            return Response(b"<html>back soon</html>")
        return Response(body, headers={SIGNED_HEADER: self.identity.signature_header(digest(body))})

    async def _claim(self, request: Request) -> Response:
        key_id = request.headers[SIGNATURE_HEADER].partition(".")[0]
        if self.claims.setdefault(request.path_params["name"], key_id) != key_id:
            return Response(problem_body(Conflict("claimed")), 409, media_type=PROBLEM)
        return JSONResponse({})

    async def _batch(self, request: Request) -> Response:
        body = await request.body()
        self.attempts.append(body)
        self.signatures.append(request.headers[SIGNATURE_HEADER])
        if self.busy:
            self.busy -= 1
            return Response(problem_body(Unavailable("busy")), 503, media_type=PROBLEM)
        header = decode_batch(body).header
        is_repeated = self.delivered.get((header.experiment, header.version)) == body
        if not is_repeated and header != self.header(header.experiment):
            return Response(problem_body(RoundUnknown("not published")), 409, media_type=PROBLEM)
        stored = self.delivered.setdefault((header.experiment, header.version), body)
        while self.mute and not self.closing:
            await asyncio.sleep(0.01)
        answer = BatchAnswer(1, {}, closed=not self.insatiable)
        return Response(msgspec.json.encode(answer), 202 if stored is body else 200)


def body_of(header: Header, sealed: list[bytes]) -> bytes:
    """A request body with these sealed reports."""
    return encode_envelope(Envelope(header, b"".join(sealed)))


@contextmanager
def listening(fake: FakeServer) -> Iterator[str]:
    """The address of a server while it runs in a thread."""
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(fake.app, port=port, log_level="error", lifespan="off"))
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        while not server.started:
            time.sleep(0.01)
        yield f"http://127.0.0.1:{port}"
    finally:
        fake.closing = server.should_exit = True
        thread.join()
