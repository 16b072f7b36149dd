"""The policy, for devices that ask for it again and again: as the control route answers, at a fraction of its cost."""

import time
from collections.abc import Callable
from typing import Final

from starlette.types import Scope, Send

from privateer_core.errors import PrivateerError
from privateer_core.serving.http.answer import Headers, HttpAnswer, with_body
from privateer_core.serving.http.report_endpoint import Reply
from privateer_core.serving.http.timing import Answered
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, ASKS_PUBLISHED
from privateer_server.experiments.catalog import Experiments
from privateer_server.experiments.experiment import Experiment

ROUTE: Final = "/experiments/{name}/policy"
_PAGE: Final = "/policy"
_OK, _NOT_MODIFIED = 200, 304
_TYPE: Final = MEDIA_TYPE.encode()
_ASKS: Final = ASKS_HEADER.lower().encode()
_SIGNED: Final = SIGNED_HEADER.lower().encode()


class Policies:
    """Answers what devices ask: for the publication, or whether it still is the one that they have.

    Parameters
    ----------
    identity
        Signs what is published.
    tell
        Takes how long an answer took.
    """

    def __init__(self, experiments: Experiments, identity: Identity, tell: Callable[[Answered], None]) -> None:
        self._experiments, self._identity, self._tell = experiments, identity, tell

    async def answer(self, scope: Scope, send: Send) -> bool:
        """Answer a request, or return False: the control route answers everything else."""
        answer = self._timed(scope)
        if answer:
            await answer.send(scope, send)
        return answer is not None

    def at_once(self, scope: Scope, reply: Reply) -> bool:
        """Answer a request without a task of its own, as `answer` does."""
        answer = self._timed(scope)
        if answer:
            reply(answer)
        return answer is not None

    def _timed(self, scope: Scope) -> HttpAnswer | None:
        began = time.perf_counter()
        answer = self._found(scope)
        if answer:
            self._tell(Answered("GET", ROUTE, answer.status, time.perf_counter() - began))
        return answer

    def _found(self, scope: Scope) -> HttpAnswer | None:
        path: str = scope["path"]
        if not path.endswith(_PAGE) or scope["method"] != "GET" or scope["query_string"]:
            return None
        parts = path.split("/")
        if len(parts) != 4 or parts[1] != "experiments":
            return None
        try:
            return self._answered(self._experiments.get(parts[2]), dict(scope["headers"]))
        except PrivateerError:  # there is none of that name
            return None

    def _answered(self, experiment: Experiment, asked: dict[bytes, bytes]) -> HttpAnswer | None:
        known = asked.get(b"if-none-match")
        tag = b'"%s"' % experiment.current.digest.hex().encode()
        if known == tag:
            return HttpAnswer(_NOT_MODIFIED, self._headers(experiment, tag))
        if known is None and _TYPE in asked.get(b"accept", b""):
            return with_body(_OK, experiment.current.publication, _TYPE, self._headers(experiment, tag))
        return None

    def _headers(self, experiment: Experiment, tag: bytes) -> Headers:
        asks = ASKS_NOBODY if experiment.is_silent else ASKS_PUBLISHED
        # The last two are always there, so that no cache keeps an earlier one with an answer that did not change.
        signed = self._identity.signed(experiment.current.digest).encode()
        unchanging = (b"etag", tag), (b"vary", b"Accept"), (b"cache-control", b"no-cache")
        return (*unchanging, (_ASKS, asks.encode()), (_SIGNED, signed))
