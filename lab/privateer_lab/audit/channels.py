"""Other ways to learn something: sizes, retries, seeds, errors and logs, and what the network shows."""

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
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation, Sealer
from privateer_client.states import Outcome
from privateer_core.errors import OutOfRange, PrivateerError, UnfitValueWarning
from privateer_core.policies.decisions import Arms
from privateer_core.privacy.trust import TRUST
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.spec.spec import Spec
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, Header, encode_envelope, header_of
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, prove
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.sealed_reports import ALONE, LIMITS, audit_spec, opened
from privateer_lab.audit.watched_services import Seen, services
from privateer_server.rounds.open_round import OpenRound

_ORIGIN = f"privateer/log/{0:016x}"
_CONTEXT, _REWARD = 0.377_190_542, 0.918_273_645
"""Marks that must turn up nowhere."""
_BEYOND: Final = 7
"""People who report after the first round, so that the next one is seen, too."""
_SLOT, _KEY = 1_296_126_539, 1_380_010_067
"""Marks that a record carries, as numbers; as bytes they read KRAM and SEAR."""
_READING: Final = 0.377_190_542
_MARKS: Final = (str(_SLOT), f"{_SLOT:x}", str(_KEY), f"{_KEY:x}", "KRAM", "SEAR", str(_READING), "377190542")


def channels() -> dict[str, Callable[[], bool]]:
    """Return checks by name; each tells whether nothing is revealed."""
    return {
        "sizes of sealed reports": sizes_are_equal,
        "a retry sends the same bytes": retries_are_identical,
        "noise ignores seeds": noise_ignores_seeds,
        "errors and logs of devices": devices_are_silent,
        "answers and logs of services": services_are_silent,
        **{f"what the network shows, {model}": partial(nothing_visible_depends_on_records, model) for model in TRUST},
    }


def _report(participation: Participation, context: float, reward: float) -> bytes:
    contexts, coins = np.array([[context]]), participation.coins(1)
    return participation.reports(contexts, coins, participation.decide(contexts, coins), np.array([reward]))[0]


def _contribution(participation: Participation, contexts: Scores, rewards: Scores) -> Any:
    coins, arms = np.zeros(len(rewards), np.uint32), Arms(np.zeros(len(rewards), np.int64))
    return participation.policy.contribute(contexts[:, None], coins, arms, rewards)


def sizes_are_equal() -> bool:
    """Tell whether reports have the published size under each trust model, whatever the record."""
    for model in TRUST:
        current, _ = opened(model)
        participation = Participation(current.publication, "audit", LIMITS)
        records = product((0.0, 0.3, 1.0), (0.0, 0.5, 1.0), range(8))
        sizes = {len(_report(participation, context, reward)) for context, reward, _ in records}
        if sizes != {current.round.sealed_size}:
            return False
    return True


class _Flaky:
    """A server that breaks off twice, then answers; keeps what it was sent."""

    def __init__(self, current: OpenRound) -> None:
        self._published, self.sent = SignedPublication(current.publication), []  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return self._published.answer(request)
        self.sent.append(request.content)
        if len(self.sent) < 3:
            raise httpx.ReadError("broken off")
        return httpx.Response(202, json={"accepted": 1, "refused": {}})


def retries_are_identical() -> bool:
    """Tell whether a report is randomized once: another draw for every retry would average the noise away."""
    service = _Flaky(opened(ALONE)[0])
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        with Client("http://audit", limits=LIMITS, ledger=ledger, transport=httpx.MockTransport(service)) as client:
            session = client.join("audit")
            session.choose({"x": 0.3})
            session.report(1.0)
    return len(service.sent) == 3 and len(set(service.sent)) == 1


def noise_ignores_seeds() -> bool:
    """Tell whether seeding every generator in reach changes nothing, and no two draws are alike."""
    seen = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        seen.append(SecureNoise().words(64).tobytes())
        current, _ = opened(ALONE)
        participation = Participation(current.publication, "audit", LIMITS)
        seen.append(participation.coins(64).tobytes())
        made = _contribution(participation, np.full(400, 0.3), np.full(400, 0.5))
        seen.append(participation.terms.mechanism.randomize(made, participation._noise).tobytes())
    return len(set(seen)) == len(seen) and isinstance(participation._noise, SecureNoise)


def devices_are_silent() -> bool:
    """Tell whether bad input of every kind leaves no mark of a context or reward in messages, logs, or what prints."""
    with recorded_logs() as lines:
        said = _said_by_a_device()
    marks = [str(_CONTEXT), str(_REWARD), "377190", "918273"]
    return len(said) > 6 and not any(mark in line for line in [*said, *lines] for mark in marks)


def _said_by_a_device() -> list[str]:
    current, _ = opened(ALONE)
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        published = SignedPublication(current.publication)
        transport = httpx.MockTransport(lambda request: _refuse(request, published))
        with Client("http://audit", limits=LIMITS, ledger=ledger, transport=transport) as client:
            session = client.join("audit")
            contexts: list[dict[str, object]] = [{"x": f"{_CONTEXT}"}, {"y": _CONTEXT}, {"x": [_CONTEXT]}, {}]
            said.extend(_error_of(partial(session.choose, context)) for context in contexts)
            said.append(_error_of(lambda: session.report(_REWARD)))
            session.choose({"x": _CONTEXT})
            said += [repr(session._shown), str(session._shown), repr(session._choice)]
            said.append(_error_of(lambda: session.report(f"{_REWARD}")))
            said += [_error_of(lambda: session.report(_REWARD)) for _ in range(2)]
            said += [repr(session), repr(session.refusal)]
            made = _contribution(session._participation, np.array([_CONTEXT]), np.array([_REWARD]))
            said += [repr(made), str(made)]
    return said


class SignedPublication:
    """Answers devices that ask for a publication, or for its place in the log."""

    def __init__(self, publication: bytes) -> None:
        self._publication, identity, tree = publication, Identity(Ed25519PrivateKey.generate()), MerkleTree()
        facts, name = decode_publication(publication).round, digest(publication)
        tree.append(Entry(facts.experiment, facts.version, name).leaf)
        head = Head.sign(_ORIGIN, 1, tree.root(1), identity.key)
        self._proof, self._signed = msgspec.json.encode(prove(tree, head, 0, None)), identity.signed(name)

    def answer(self, request: httpx.Request) -> httpx.Response:
        """Answer a GET."""
        if request.url.path.endswith("/log/proof"):
            return httpx.Response(200, content=self._proof)
        return httpx.Response(200, content=self._publication, headers={SIGNED_HEADER: self._signed})


def _refuse(request: httpx.Request, published: SignedPublication) -> httpx.Response:
    refusal = httpx.Response(400, content=problem_body(OutOfRange("not a report", remedy="send one")))
    return published.answer(request) if request.method == "GET" else refusal


def _error_of(action: Callable[[], object]) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", UnfitValueWarning)
            action()
    except (PrivateerError, UnfitValueWarning) as error:
        return "".join(traceback.format_exception(error)) + f"{error.args} {error!r}"
    return "no error"


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
            if outcomes[-1] is not Outcome.ACCEPTED:
                break  # it shows, and clients of services that fail would each ask for as long as clients do
            if here.people.taken == len(outcomes) == spec.first_batch(""):
                await here.reach(2)
            standing.append(await here.stand())
        # How often the shuffler asks for news depends on the machine alone.
        deliveries = [seen for seen in here.upstream.seen if seen.method == "POST"]
        return _Transcript(outcomes, standing, here.people.seen, deliveries)


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
