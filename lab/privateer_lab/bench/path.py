"""Measures a report over HTTP from its upload to the policy that learned from it."""

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import httpx
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from privateer_core.clock import SystemClock
from privateer_core.errors import Unavailable
from privateer_core.wire.envelope import MEDIA_TYPE, Envelope, binding, decode_envelope, pieces
from privateer_core.wire.keys import own_key
from privateer_lab.bench.processor_time import cpu_seconds, open_seconds
from privateer_lab.bench.uploads import Sealed, bench_spec, seal_round, send_all
from privateer_lab.services.processes import Services, free_port, running
from privateer_lab.services.rest import create
from privateer_server.data import Data, open_data
from privateer_server.intake.accumulator import Accumulator
from privateer_server.rounds.closing import Closer
from privateer_server.rounds.open_round import first_round, record
from privateer_server.settings import ServerSettings

EXPERIMENTS: Final = 4
_OVERLAP: Final = 2
"""So many experiments' people report at the same time."""
_PATIENCE: Final = 120.0
_SERVICES: Final = ("shuffler", "server")
_ACCEPTED: Final = 202
_GROUP: Final = 900
"""Reports that the server commits at once under load."""
_STAGED: Final = "bench"


class _Used(NamedTuple):
    """Wall time, and the processor time of each service and of this process, in seconds."""

    wall: float
    services: dict[str, float]
    generator: float


def bench_path(people: int) -> dict[str, dict[str, float]]:
    """Have people report under each way of uploading, with reports that were sealed before the clock starts.

    Several experiments are open at once, as on a server with more than one team, and their rounds fill one after the
    other. A run ends when every experiment has learned from its round.

    people: in each run.

    Returns
    -------
    dict
        Figures by run: the processor time of a report at the client, the shuffler and the server, in multiples of one
        open on the same machine. ``end_to_end`` is the reports a second, as a share of the opens that one core does in
        a second. ``stages in the server`` has the same multiples for what the server does with a report.
    """
    before, stages = open_seconds(), stage_seconds(people)
    runs = {
        "shuffled, 100 an upload": _run("shuffler", people, 100),
        "shuffled, one an upload": _run("shuffler", people, 1),
        "to the server, 100 an upload": _run("server", people, 100),
        "to the server, one an upload": _run("server", people, 1),
    }
    unit = (before + open_seconds()) / 2
    in_server = {stage: seconds / people / unit for stage, seconds in stages.items()}
    return {
        "one open": {"microseconds": unit * 1e6},
        "stages in the server": in_server,
        **{name: in_opens(unit) for name, in_opens in runs.items()},
    }


def _run(endpoint: str, people: int, batch: int) -> Callable[[float], dict[str, float]]:
    """Measure one way of uploading; return what makes its figures of the seconds of one open."""
    each = people // EXPERIMENTS
    names = [f"bench-{number}" for number in range(EXPERIMENTS)]
    with (
        tempfile.TemporaryDirectory(prefix="privateer-") as folder,
        running(Path(folder), free_port(), free_port(), quiet=True) as at,
    ):
        for name in names:
            create(at.admin, bench_spec(name, endpoint, each), at.token)
        key = own_key(at.sender_key, "--data")
        rounds = [seal_round(publication(at.server, name), name, each, batch, key) for name in names]
        url = at.shuffler if endpoint == "shuffler" else at.server
        used = _measure(at, lambda: report(at.server, url, names, rounds))
    sealing = sum(one.seconds for one in rounds)

    def in_opens(unit: float) -> dict[str, float]:
        seconds = {"client": sealing} | used.services | {"generator": used.generator}
        return {role: each / people / unit for role, each in seconds.items()} | {
            "end_to_end": people * unit / used.wall
        }

    return in_opens


def publication(server: str, name: str) -> bytes:
    """Fetch what an experiment publishes now."""
    page = f"{server}/experiments/{name}/policy"
    return httpx.get(page, headers={"Accept": MEDIA_TYPE}).raise_for_status().content


def _measure(at: Services, work: Callable[[], None]) -> _Used:
    def now() -> dict[str, float]:
        return {name: cpu_seconds(at.processes.pid(name)) for name in _SERVICES}

    before, own, started = now(), time.process_time(), time.perf_counter()
    work()
    wall, own = time.perf_counter() - started, time.process_time() - own
    return _Used(wall, {name: seconds - before[name] for name, seconds in now().items()}, own)


def report(server: str, url: str | Sequence[str], names: list[str], rounds: list[Sealed], version: int = 2) -> None:
    """Send what all people send, to one address or several, and wait for the ``version`` that learned from it."""
    statuses = send_all(url, _staggered([one.requests for one in rounds]))
    if set(statuses) != {_ACCEPTED}:
        raise Unavailable(f"the services answered {dict(statuses)}", remedy="see their log above")
    with httpx.Client() as asking:  # a client of its own for each question would cost as much as hundreds of reports
        for name in names:
            _wait(asking, server, name, version)


def _staggered(requests: list[list[bytes]]) -> list[bytes]:
    """Return all requests, mixed so that one experiment's round fills after the other's, as they do over a day."""
    timed = [
        (number + turn / len(those) * _OVERLAP, one)
        for number, those in enumerate(requests)
        for turn, one in enumerate(those)
    ]
    return [one for _, one in sorted(timed, key=lambda pair: pair[0])]


def _wait(asking: httpx.Client, server: str, name: str, version: int) -> None:
    deadline, page = time.monotonic() + _PATIENCE, f"{server}/experiments/{name}"
    while asking.get(page).raise_for_status().json()["version"] < version:
        if time.monotonic() > deadline:
            raise Unavailable(f"{name} did not learn from its round", remedy="see the services' log above")
        time.sleep(0.02)


def stage_seconds(people: int) -> dict[str, float]:
    """Return the processor time that each stage takes for the reports of a round of so many people, in seconds."""
    with tempfile.TemporaryDirectory(prefix="privateer-") as folder:
        data = open_data(ServerSettings(data=Path(folder), admin_token=bytes(32)))
        try:
            return _Stages(data, people).run()
        finally:
            data.close()


class _Stages:
    """One round of an experiment on a data folder, and the processor time that it took so far, by stage."""

    def __init__(self, data: Data, people: int) -> None:
        spec = bench_spec(_STAGED, "server", people)
        self._data, self._people = data, people
        self._current = first_round(spec, data.keys.make())
        self._opener = data.keys.find(self._current.round.public_key)
        data.store.create(_STAGED, self._current.schedule.encoded, record(self._current, self._opener))
        self._spent = dict.fromkeys(("open", "add", "commit", "learn"), 0.0)

    def run(self) -> dict[str, float]:
        """Take the reports of the whole round, in groups, and learn from it."""
        key = Ed25519PrivateKey.generate()
        for body in seal_round(self._current.publication, _STAGED, self._people, _GROUP, key).bodies:
            self._take(decode_envelope(body))
        with self._timed("learn"):
            Closer(self._data, SystemClock()).close(self._current)
        return self._spent

    def _take(self, envelope: Envelope) -> None:
        facts, opener = self._current.round, self._opener
        assert opener is not None, "its key was just made"
        with self._timed("open"):
            sealed = pieces(envelope.sealed, facts.sealed_size)
            opened = opener.open(sealed, binding(envelope.header, facts.model))
        with self._timed("add"):
            with self._data.store.locked([_STAGED]) as locked:
                seen = locked.seen(_STAGED, opened)
            accumulator = Accumulator(self._current, seen, opener)
            accumulator.examine(opened)
            accumulator.take(envelope, opened)
            self._current, change = accumulator.close()
        with self._timed("commit"):
            self._data.store.commit([change])

    @contextmanager
    def _timed(self, stage: str) -> Iterator[None]:
        started = time.process_time()
        yield
        self._spent[stage] += time.process_time() - started
