"""Other ways to learn something: sizes, retries, seeds, errors and logs, and what the network shows."""

import random
import tempfile
import traceback
from collections.abc import Callable
from functools import partial
from itertools import product
from pathlib import Path

import httpx
import numpy as np

from privateer.errors import OutOfRange, PrivateerError
from privateer.sampling.entropy import SecureNoise
from privateer.wire.problem import problem_body
from privateer_client.client import Client
from privateer_client.ledger import Ledger
from privateer_client.participation import Participation
from privateer_lab.audit.visible import nothing_visible_depends_on_records, recorded_logs, services_are_silent
from privateer_lab.audit.wire import LIMITS, MODELS, opened
from privateer_server.rounds import OpenRound

_CONTEXT, _REWARD = 0.377_190_542, 0.918_273_645
"""Marks that must turn up nowhere."""


def channels() -> dict[str, Callable[[], bool]]:
    """Checks by name; each returns whether nothing is told."""
    return {
        "sizes of sealed reports": sizes_are_equal,
        "a retry sends the same bytes": retries_are_identical,
        "noise ignores seeds": noise_ignores_seeds,
        "errors and logs of devices": devices_are_silent,
        "answers and logs of services": services_are_silent,
        **{f"what the network shows, {model}": partial(nothing_visible_depends_on_records, model) for model in MODELS},
    }


def _report(participation: Participation, context: float, reward: float) -> bytes:
    contexts, slots = np.array([[context]]), participation.slots(1)
    return participation.reports(contexts, slots, participation.choose(contexts, slots), np.array([reward]))[0]


def sizes_are_equal() -> bool:
    """One size under each trust model, whatever the record: the published one."""
    for model in MODELS:
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
        self._current, self.sent = current, []  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=self._current.publication)
        self.sent.append(request.content)
        if len(self.sent) < 3:
            raise httpx.ReadError("broken off")
        return httpx.Response(202, json={"accepted": 1, "refused": {}})


def retries_are_identical() -> bool:
    """A report is randomized once: another draw for every retry would average the noise away."""
    service = _Flaky(opened("local")[0])
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        with Client("http://audit", limits=LIMITS, ledger=ledger, transport=httpx.MockTransport(service)) as client:
            session = client.join("audit")
            session.choose({"x": 0.3})
            session.report(1.0)
    return len(service.sent) == 3 and len(set(service.sent)) == 1


def noise_ignores_seeds() -> bool:
    """Seeding every generator in reach changes nothing, and no two draws are alike."""
    seen = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)
        seen.append(SecureNoise().words(64).tobytes())
        current, _ = opened("local")
        participation = Participation(current.publication, "audit", LIMITS)
        seen.append(participation.slots(64).tobytes())
        rows = participation._mechanism.randomize(
            participation.policy.contribute(
                np.full((400, 1), 0.3), np.zeros(400, np.uint32), np.zeros(400, np.int64), np.full(400, 0.5)
            ),
            participation._noise,
        )
        seen.append(rows.tobytes())
    return len(set(seen)) == len(seen) and isinstance(participation._noise, SecureNoise)


def devices_are_silent() -> bool:
    """Bad input of every kind: no mark of a context or reward in messages, logs, or what prints."""
    with recorded_logs() as lines:
        said = _said_by_a_device()
    marks = [str(_CONTEXT), str(_REWARD), "377190", "918273"]
    return len(said) > 6 and not any(mark in line for line in [*said, *lines] for mark in marks)


def _said_by_a_device() -> list[str]:
    current, _ = opened("local")
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="privateer-audit-") as folder:
        ledger = Ledger(Path(folder) / "ledger.db")
        transport = httpx.MockTransport(lambda request: _refuse(request, current))
        with Client("http://audit", limits=LIMITS, ledger=ledger, transport=transport) as client:
            session = client.join("audit")
            contexts: list[dict[str, object]] = [{"x": f"{_CONTEXT}"}, {"y": _CONTEXT}, {"x": [_CONTEXT]}, {}]
            said.extend(_error_of(partial(session.choose, context)) for context in contexts)
            said.append(_error_of(lambda: session.report(_REWARD)))
            session.choose({"x": _CONTEXT})
            said.append(_error_of(lambda: session.report(f"{_REWARD}")))  # type: ignore[arg-type]
            said += [_error_of(lambda: session.report(_REWARD)) for _ in range(2)]
            said += [repr(session), repr(session.refusal)]
            told = session._followed.policy.contribute(
                np.array([[_CONTEXT]]), np.zeros(1, np.uint32), np.zeros(1, np.int64), np.array([_REWARD])
            )
            said += [repr(told), str(told), repr(session._choice), str(session._choice)]
    return said


def _refuse(request: httpx.Request, current: OpenRound) -> httpx.Response:
    refusal = httpx.Response(400, content=problem_body(OutOfRange("not a report", remedy="none")))
    return httpx.Response(200, content=current.publication) if request.method == "GET" else refusal


def _error_of(action: Callable[[], object]) -> str:
    try:
        action()
    except PrivateerError as error:
        return "".join(traceback.format_exception(error)) + f"{error.args} {error!r}"
    return "no error"
