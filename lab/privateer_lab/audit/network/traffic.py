"""What services show: to whoever watches the network, and in answers and logs when input is bad."""

import asyncio
import logging
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import httpx
import msgspec

from privateer_client.delivery import Outcome
from privateer_client.participation import Sealer
from privateer_core.privacy.trust import TRUST
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, Header, encode_envelope, header_of
from privateer_core.wire.publication import decode_publication, digest
from privateer_lab.audit.network.sealed_reports import audit_spec
from privateer_lab.audit.network.watched_services import Seen, services

_BEYOND: Final = 7
"""People who report after the first round, so that the next one is seen, too."""


def nothing_visible_depends_on_records(model: str) -> bool:
    """Tell whether requests, sizes, headers, answers and the closing of a round are the same for unlike people."""
    spec = audit_spec(model)
    try:
        left, right = (asyncio.run(_transcript(spec, value)) for value in (0.9, 0.1))
    except TimeoutError:  # a full round did not close
        return False
    taken = [Outcome.ACCEPTED] * (spec.first_batch("") + _BEYOND)
    return left.outcomes == taken and left == right


class _Transcript(NamedTuple):
    """What became of reports, what services show after each, and all that people and the shuffler exchanged."""

    outcomes: list[Outcome]
    standing: list[Any]
    people: list[Seen]
    deliveries: list[Seen]


async def _transcript(spec: Spec, value: float) -> _Transcript:
    """Record every exchange of a round and a little more, and what both services then show, person by person."""
    outcomes: list[Outcome] = []
    standing: list[Any] = []
    async with services(spec) as here:
        for person in range(spec.first_batch("") + _BEYOND):
            # Rewards out of bounds, too: clipping must not show.
            outcomes.append(await here.person({"x": value}, 30 * value - 15 if person % 2 else value))
            if here.people.taken == len(outcomes) == spec.first_batch(""):
                await here.reach(2)
            standing.append(await here.stand())
        # How often the shuffler asks for news depends on the machine alone.
        deliveries = [seen for seen in here.upstream.seen if seen.method == "POST"]
        return _Transcript(outcomes, standing, here.people.seen, deliveries)


_SLOT, _KEY = 1_296_126_539, 1_380_010_067
"""Marks that a record carries, as numbers; as bytes they read KRAM and SEAR."""
_READING: Final = 0.377_190_542
_MARKS: Final = (str(_SLOT), f"{_SLOT:x}", str(_KEY), f"{_KEY:x}", "KRAM", "SEAR", str(_READING), "377190542")


def services_are_silent() -> bool:
    """Tell whether bad input of every kind, and a good record, leave no mark in any answer, header or log line."""
    with recorded_logs() as lines:
        models = [row.name for row in TRUST.values() if row.curated or row.shuffled]
        said = [line for model in models for line in asyncio.run(_provoked(model))]
    return len(said) > 20 and not any(mark in line for line in [*said, *lines] for mark in _MARKS)


async def _provoked(model: str) -> list[str]:
    said: list[str] = []
    async with services(audit_spec(model)) as here:
        publication = await here.ask("GET", "http://server/experiments/audit/policy", headers={"Accept": MEDIA_TYPE})
        endpoints = ("http://server/reports", "http://server/batches", "http://shuffler/experiments/audit/reports")
        for body in _bad_bodies(publication.content):
            said += [_text(await here.ask("POST", endpoint, content=body)) for endpoint in endpoints]
        for page in (
            "",
            "/policy",
            "/state",
            "/history",
            "/privacy",
            f"/policy?wait={_READING}x",
            f"/policy/{_READING}",
        ):
            said.append(_text(await here.ask("GET", f"http://server/experiments/audit{page}")))
        said += [_text(await here.ask("GET", f"http://{host}/metrics")) for host in ("server", "shuffler")]
    return said


def _bad_bodies(publication: bytes) -> list[bytes]:
    """Return a good sealed record, twice; strange, too long, cut and bare ones; and what is not an envelope."""
    round_ = decode_publication(publication).round
    header = header_of(round_, digest(publication))
    sealer, size = Sealer(round_, header), round_.sealed_size
    good = sealer.seal(struct.pack("<IIH", _SLOT, 0, 1)[: size - 64])
    strange = sealer.seal(struct.pack("<IIH", _SLOT, _KEY, 1)[: size - 64])
    long = sealer.seal(struct.pack("<IIH", _SLOT, _KEY, 1) * 3)
    plain = (struct.pack("<II", _SLOT, _KEY) * size)[:size]
    wrong = Header("audit", round_.version, header.key_id, b"KRAM" + header.digest[4:])
    sealed = [good, good, strange, long, long[:size], good[:-1], plain, b""]
    record = {"x": _READING, "slot": _SLOT, "key": _KEY}
    return [
        *(encode_envelope(Envelope(header, one)) for one in sealed),
        encode_envelope(Envelope(wrong, good)),
        msgspec.json.encode(record),
        msgspec.msgpack.encode([record, plain]),
    ]


def _text(response: httpx.Response) -> str:
    return f"{response.status_code} {dict(response.headers)} {response.text}"


class _Everything(logging.Handler):
    """Keeps what any part of the program logs, tracebacks and arguments included."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.args}")


@contextmanager
def recorded_logs() -> Iterator[list[str]]:
    """Record the lines that all loggers write meanwhile, down to the level of debugging."""
    handler, root = _Everything(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
