"""People who report all the time, whatever happens, and what became of each report."""

import threading
from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple

import httpx

from privateer_core.wire.problem import read_slug
from privateer_core.wire.publication import decode_publication
from privateer_core.wire.token import REQUEST_TYPE, Challenge, PendingToken, authorization
from privateer_core.wire.token_keys import Directory
from tests.support.sealing import body_of, sealed_reports
from tests.support.senders import Signing
from tests.support.servers import MSGPACK

_SECONDS = 6.0
_SETTLING = 90.0
_PAUSE = 0.1
_LONGEST_PAUSE = 2.0
_FRESH = 8
"""So many reports are made for a publication before it is fetched again."""
_OVER = ("round-closed", "round-unknown", "wrong-digest", "wrong-key", "token-spent", "token-invalid", "token-expired")
"""Why a report is refused for good: its round is over, or its token."""


class Stop(NamedTuple):
    """Where an experiment's people report.

    Attributes
    ----------
    page, policy
        Addresses of uploads and of the publication.
    issuer, endpoint
        Addresses, where reports come with tokens; empty: a trusted sender signs them.
    """

    experiment: str
    page: str
    policy: str
    issuer: str = ""
    endpoint: str = ""


@dataclass
class Report:
    """What a device sends, the same bytes each time."""

    version: int
    content: bytes
    token: bytes | None = None
    is_uncertain: bool = False


class Totals:
    """Reports by version of the experiment.

    Attributes
    ----------
    acknowledged
        Somebody was told that they are taken.
    unknown
        Refused at last, after an attempt without an answer: they may be counted.
    """

    def __init__(self) -> None:
        self.acknowledged: Counter[int] = Counter()
        self.unknown: Counter[int] = Counter()

    @property
    def n_acknowledged_of_newest(self) -> int:
        """Acknowledged reports of the newest version."""
        return self.acknowledged[max(self.acknowledged, default=0)]


class Sender:
    """Sends the reports of an experiment, each until it is taken or its round is over."""

    def __init__(self, stop: Stop, totals: Totals) -> None:
        self._stop, self._totals = stop, totals
        self._client = httpx.Client(timeout=_SECONDS, trust_env=False, auth=None if stop.issuer else Signing())
        self._pending: list[Report] = []
        self._is_settling, self._over = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._publication, self._uses, self._pause = b"", 0, _PAUSE

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def settle(self) -> None:
        """Send the pending reports, and no new ones, until each has a final answer."""
        self._is_settling.set()
        self._thread.join(_SETTLING)
        assert not self._thread.is_alive(), f"{len(self._pending)} bodies of {self._stop.experiment} are not settled"

    def end(self) -> None:
        """Stop at once."""
        self._over.set()
        if self._thread.ident is not None:
            self._thread.join()
        self._client.close()

    def _run(self) -> None:
        while not self._over.is_set():
            if not self._pending:
                if self._is_settling.is_set():
                    return
                if (report := self._make_report()) is not None:
                    self._pending.append(report)
            self._pause = _PAUSE
            if self._pending and self._send(self._pending[0]):
                self._pending.pop(0)
            self._over.wait(self._pause)

    def _make_report(self) -> Report | None:
        """The next report; None: the publication or a token is not to be had."""
        try:
            if self._uses % _FRESH == 0:
                answer = self._client.get(self._stop.policy, headers=MSGPACK)
                if not answer.is_success:
                    return None
                self._publication = answer.content
            token = self._token() if self._stop.issuer else None
        except httpx.TransportError:
            return None
        if self._stop.issuer and token is None:
            return None
        self._uses += 1
        (sealed,) = sealed_reports(self._publication, 1, seed=self._uses)
        version = decode_publication(self._publication).round.version
        return Report(version, body_of(self._publication, [sealed]), token)

    def _token(self) -> bytes | None:
        name = self._stop.experiment
        keys = self._client.get(f"{self._stop.endpoint}/experiments/{name}/token-keys")
        if not keys.is_success:
            return None
        key = Directory.decode(keys.content).keys(name)[0]
        issuer, origin = (address.removeprefix("http://") for address in (self._stop.issuer, self._stop.endpoint))
        pending = PendingToken.draw(Challenge(issuer, origin, name), key)
        page, headers = f"{self._stop.issuer}/experiments/{name}/tokens", {"content-type": REQUEST_TYPE}
        answer = self._client.post(page, content=pending.request, headers=headers)
        return pending.finish(key, answer.content) if answer.is_success else None

    def _send(self, report: Report) -> bool:
        """Send a report; whether the answer is the last."""
        headers = {"authorization": authorization(report.token)} if report.token else {}
        try:
            answer = self._client.post(self._stop.page, content=report.content, headers=headers)
        except httpx.TransportError:
            report.is_uncertain = True
            return False
        slug = "" if answer.is_success else read_slug(answer.content)
        if answer.is_success or slug == "duplicate-report":
            self._totals.acknowledged[report.version] += 1
            return True
        if slug in _OVER:
            self._uses = 0
            self._totals.unknown[report.version] += report.is_uncertain
            return True
        report.is_uncertain |= answer.status_code >= 500
        self._pause = min(float(answer.headers.get("retry-after", 1)), _LONGEST_PAUSE)
        return False
