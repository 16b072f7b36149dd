"""Checks of side channels: sizes, retries, seeds, errors, logs and network traffic."""

import asyncio
import logging
import random
import struct
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import msgspec
import numpy as np

from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation, Sealer
from privateer_client.session import Session
from privateer_client.states import ReportStatus
from privateer_core.errors import InvalidValueWarning, OutOfRange, PrivateerError
from privateer_core.policies.policy import Arms
from privateer_core.privacy.trust import TRUST, Crowd
from privateer_core.sampling.randomness import SecureNoise
from privateer_core.spec.spec import Spec
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import (
    MEDIA_TYPE,
    Envelope,
    Header,
    decode_publication,
    digest,
    encode_envelope,
    report_header,
)
from privateer_lab.audit.first_rounds import LIMITS, MemoryServer
from privateer_lab.audit.law import Scores
from privateer_lab.audit.sealed_reports import SINGLE_REPORT_MODEL, audit_spec, open_audit_round
from privateer_lab.audit.watched_services import Exchange, serve_watched

SERVED: Final = tuple(row.name for row in TRUST.values() if not row.is_simulated)
"""Trust models that services run."""
_CONTEXT, _REWARD = 0.377_190_542, 0.918_273_645
"""Values that no message or log may contain."""
_N_EXTRA_PARTICIPANTS: Final = 7
"""Participants who report after the first round, so that the next round is recorded, too."""
_SLOT, _KEY = 1_296_126_539, 1_380_010_067
"""Numbers in a marked record; as bytes they read KRAM and SEAR."""
_NUMBER: Final = 0.377_190_542
_MARKS: Final = (str(_SLOT), f"{_SLOT:x}", str(_KEY), f"{_KEY:x}", "KRAM", "SEAR", str(_NUMBER), "377190542")


def channel_checks() -> dict[str, Callable[[], bool]]:
    """Return the checks by name; each returns whether nothing is revealed."""
    return {
        "sizes of sealed reports": sizes_are_equal,
        "a retry sends the same bytes": retries_are_identical,
        "noise ignores seeds": noise_ignores_seeds,
        "errors and logs of devices": device_messages_hide_values,
        "answers and logs of services": services_are_silent,
        **{f"what the network shows, {model}": partial(nothing_visible_depends_on_records, model) for model in SERVED},
    }


def _contribute(participation: Participation, contexts: Scores, rewards: Scores) -> Any:
    coins, arms = np.zeros(len(rewards), np.uint32), Arms(np.zeros(len(rewards), np.int64))
    return participation.policy.contribute(contexts[:, None], coins, arms, rewards)


def sizes_are_equal() -> bool:
    """Return whether all reports have the published size, under each trust model and for each record."""
    for model in SERVED:
        participation = open_audit_round(model).join()
        records = np.array(list(product((0.0, 0.3, 1.0), (0.0, 0.5, 1.0), range(8))))
        contexts, coins = records[:, :1], participation.draw_coins(len(records))
        reports = participation.make_reports(contexts, coins, participation.decide(contexts, coins), records[:, 1])
        if {len(report) for report in reports} != {participation.round.sealed_size}:
            return False
    return True


@contextmanager
def _join_experiment(server: MemoryServer) -> Iterator[Session[ReportStatus]]:
    """Join the experiment of a server through the client library, with a ledger on the disk."""
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        with Client("http://audit", limits=LIMITS, ledger=ledger, transport=server) as client:
            yield client.join("audit")


def retries_are_identical() -> bool:
    """Return whether a report is randomized once: new noise at each retry would average out."""
    server = MemoryServer(open_audit_round(SINGLE_REPORT_MODEL).opened, n_broken=2)
    with _join_experiment(server) as session:
        session.choose({"x": 0.3})
        session.report(1.0)
    return len(server.uploads) == 3 and len(set(server.uploads)) == 1


def noise_ignores_seeds() -> bool:
    """Return whether no two draws are equal although every global generator is seeded."""
    draws = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        draws.append(SecureNoise().words(64).tobytes())
        participation = open_audit_round(SINGLE_REPORT_MODEL).join()
        draws.append(participation.draw_coins(64).tobytes())
        contribution = _contribute(participation, np.full(400, 0.3), np.full(400, 0.5))
        draws.append(participation.terms.mechanism.randomize(contribution, participation._noise).tobytes())
    return len(set(draws)) == len(draws) and isinstance(participation._noise, SecureNoise)


def device_messages_hide_values() -> bool:
    """Return whether errors, logs and representations contain no context or reward, for every kind of bad input."""
    with recorded_logs() as lines:
        messages = _collect_device_messages()
    marks = [str(_CONTEXT), str(_REWARD), "377190", "918273"]
    return len(messages) > 6 and not any(mark in line for line in [*messages, *lines] for mark in marks)


def _collect_device_messages() -> list[str]:
    """Collect every text that a device's client shows of bad contexts, bad rewards and refused reports."""
    problem = problem_body(OutOfRange("not a report", remedy="send one"))
    with _join_experiment(MemoryServer(open_audit_round(SINGLE_REPORT_MODEL).opened, problem=problem)) as session:
        contexts: list[dict[str, object]] = [{"x": f"{_CONTEXT}"}, {"y": _CONTEXT}, {"x": [_CONTEXT]}, {}]
        messages = [_format_error(partial(session.choose, context)) for context in contexts]
        messages.append(_format_error(lambda: session.report(_REWARD)))
        session.choose({"x": _CONTEXT})
        messages += [repr(session._shown_choice), str(session._shown_choice), repr(session._choice)]
        messages.append(_format_error(lambda: session.report(f"{_REWARD}")))
        messages += [_format_error(lambda: session.report(_REWARD)) for _ in range(2)]
        messages += [repr(session), repr(session.refusal)]
        contribution = _contribute(session._participation, np.array([_CONTEXT]), np.array([_REWARD]))
        return [*messages, repr(contribution), str(contribution)]


def _format_error(action: Callable[[], object]) -> str:
    """Run an action and return its error's or warning's whole traceback as text, or "no error"."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", InvalidValueWarning)
            action()
    except (PrivateerError, InvalidValueWarning) as error:
        return "".join(traceback.format_exception(error)) + f"{error.args} {error!r}"
    return "no error"


def nothing_visible_depends_on_records(model: str) -> bool:
    """Return whether traffic and the closing of a round are the same for participants with different records."""
    spec = audit_spec(model)
    try:
        left, right = (asyncio.run(_record_transcript(spec, value)) for value in (0.9, 0.1))
    except TimeoutError:  # a full round did not close
        return False
    accepted = [ReportStatus.ACCEPTED] * (spec.first_batch("") + _N_EXTRA_PARTICIPANTS)
    return left.outcomes == accepted and left == right


class _Transcript(NamedTuple):
    """Outcomes of reports, the public states after each report, and the traffic of devices and shuffler."""

    outcomes: list[ReportStatus]
    public_states: list[Any]
    devices: list[Exchange]
    deliveries: list[Exchange]


async def _record_transcript(spec: Spec, value: float) -> _Transcript:
    """Record the traffic of a round and of some further reports, and the public states after each report."""
    outcomes: list[ReportStatus] = []
    public_states: list[Any] = []
    async with serve_watched(spec) as stage:
        for person in range(spec.first_batch("") + _N_EXTRA_PARTICIPANTS):
            # Rewards out of bounds, too: clipping must not show.
            outcomes.append(await stage.run_participant({"x": value}, 30 * value - 15 if person % 2 else value))
            if outcomes[-1] is not ReportStatus.ACCEPTED:
                break  # it shows, and clients of services that fail would each ask for as long as clients do
            if stage.devices.n_accepted == len(outcomes) == spec.first_batch(""):
                await stage.wait_for_version(2)
            public_states.append(await stage.read_public_states())
        # How often the shuffler asks for news depends on the machine alone.
        deliveries = [exchange for exchange in stage.uploads.exchanges if exchange.method == "POST"]
        return _Transcript(outcomes, public_states, stage.devices.exchanges, deliveries)


def services_are_silent() -> bool:
    """Return whether responses and logs of services contain no marked value, for bad input and for a valid record."""
    with recorded_logs() as lines:
        models = [model for model in SERVED if TRUST[model].crowd is not Crowd.NOBODY]
        responses = [line for model in models for line in asyncio.run(_provoke_responses(model))]
    return len(responses) > 20 and not any(mark in line for line in [*responses, *lines] for mark in _MARKS)


async def _provoke_responses(model: str) -> list[str]:
    """Send bad bodies to every endpoint and fetch all pages; return the responses as text."""
    responses: list[str] = []
    async with serve_watched(audit_spec(model)) as stage:
        publication = await stage.send("GET", "http://server/experiments/audit/policy", headers={"Accept": MEDIA_TYPE})
        endpoints = ("http://server/reports", "http://server/batches", "http://shuffler/experiments/audit/reports")
        for body in _bad_bodies(publication.content):
            responses += [_to_text(await stage.send("POST", endpoint, content=body)) for endpoint in endpoints]
        for page in ("", "/policy", "/state", "/history", "/privacy", f"/policy?wait={_NUMBER}x", f"/policy/{_NUMBER}"):
            responses.append(_to_text(await stage.send("GET", f"http://server/experiments/audit{page}")))
        responses += [_to_text(await stage.send("GET", f"http://{host}/metrics")) for host in ("server", "shuffler")]
    return responses


def _bad_bodies(publication: bytes) -> list[bytes]:
    """Return upload bodies: valid, repeated, invalid, too long, truncated and unsealed records, and no envelopes."""
    round_ = decode_publication(publication).round
    header = report_header(round_, digest(publication))
    sealer, size = Sealer(round_, header), round_.sealed_size
    good = sealer.seal(struct.pack("<IIH", _SLOT, 0, 1)[: size - 64])
    strange = sealer.seal(struct.pack("<IIH", _SLOT, _KEY, 1)[: size - 64])
    long = sealer.seal(struct.pack("<IIH", _SLOT, _KEY, 1) * 3)
    plain = (struct.pack("<II", _SLOT, _KEY) * size)[:size]
    foreign_header = Header("audit", round_.version, header.key_id, b"KRAM" + header.digest[4:])
    sealed = [good, good, strange, long, long[:size], good[:-1], plain, b""]
    record = {"x": _NUMBER, "slot": _SLOT, "key": _KEY}
    return [
        *(encode_envelope(Envelope(header, report)) for report in sealed),
        encode_envelope(Envelope(foreign_header, good)),
        msgspec.json.encode(record),
        msgspec.msgpack.encode([record, plain]),
    ]


def _to_text(response: httpx.Response) -> str:
    return f"{response.status_code} {dict(response.headers)} {response.text}"


class _RecordingHandler(logging.Handler):
    """A handler that records all log lines, with tracebacks and arguments."""

    def __init__(self) -> None:
        super().__init__(level=logging.DEBUG)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{self.format(record)} {record.args}")


@contextmanager
def recorded_logs() -> Iterator[list[str]]:
    """Record the lines of all loggers within the block, at all levels."""
    handler, root = _RecordingHandler(), logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        root.removeHandler(handler)
        root.setLevel(level)
