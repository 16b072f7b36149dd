"""Other ways to learn something: sizes, retries, seeds, errors and logs, and what the network shows."""

import random
import tempfile
import traceback
import warnings
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any

import httpx
import msgspec
import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_client.client import Client
from privateer_client.ledger.ledger import Ledger
from privateer_client.participation import Participation
from privateer_core.errors import OutOfRange, PrivateerError, UnfitValueWarning
from privateer_core.policies.decisions import Arms
from privateer_core.privacy.trust import TRUST
from privateer_core.sampling.entropy import SecureNoise
from privateer_core.wire.identity import SIGNED_HEADER, Identity
from privateer_core.wire.merkle import MerkleTree
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import decode_publication, digest
from privateer_core.wire.transparency_log import Entry, Head, prove
from privateer_lab.audit.lower_bounds import Scores
from privateer_lab.audit.network.sealed_reports import ALONE, LIMITS, opened
from privateer_lab.audit.network.traffic import nothing_visible_depends_on_records, recorded_logs, services_are_silent
from privateer_server.rounds.open_round import OpenRound

_ORIGIN = f"privateer/log/{0:016x}"
_CONTEXT, _REWARD = 0.377_190_542, 0.918_273_645
"""Marks that must turn up nowhere."""


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
            said.append(_error_of(lambda: session.report(f"{_REWARD}")))
            said += [_error_of(lambda: session.report(_REWARD)) for _ in range(2)]
            said += [repr(session), repr(session.refusal)]
            made = _contribution(session._participation, np.array([_CONTEXT]), np.array([_REWARD]))
            said += [repr(made), str(made), repr(session._choice), str(session._choice)]
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
