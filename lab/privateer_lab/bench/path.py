"""What a report costs from its upload to the policy that learned from it, over HTTP, sealed and durable."""

import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import httpx

from privateer_core.errors import Unavailable
from privateer_core.wire.envelope import MEDIA_TYPE
from privateer_core.wire.keys import own_key
from privateer_lab.bench.processor_time import cpu_seconds, open_seconds
from privateer_lab.bench.sealed import Sealed, bench_spec, seal_round
from privateer_lab.bench.sender import send_all
from privateer_lab.bench.stages import stage_seconds
from privateer_lab.services.processes import Services, free_port, running
from privateer_lab.services.rest import create

EXPERIMENTS: Final = 4
_OVERLAP: Final = 2
"""So many experiments' people report at the same time."""
_PATIENCE: Final = 120.0
_NAMES: Final = ("shuffler", "server")
_ACCEPTED: Final = 202


class _Used(NamedTuple):
    """Wall time, and the processor time of each service and of this process, in seconds."""

    wall: float
    services: dict[str, float]
    generator: float


def bench_path(people: int) -> dict[str, dict[str, float]]:
    """Have people report under each way of uploading, with reports that were sealed before the clock starts.

    Several experiments are open at once, as on a server with more than one team, and their rounds fill one after the
    other. A run ends when every experiment has learned from its round.

    Parameters
    ----------
    people
        In each run.

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
        return {name: cpu_seconds(at.processes.pid(name)) for name in _NAMES}

    before, own, started = now(), time.process_time(), time.perf_counter()
    work()
    wall, own = time.perf_counter() - started, time.process_time() - own
    return _Used(wall, {name: seconds - before[name] for name, seconds in now().items()}, own)


def report(server: str, url: str | Sequence[str], names: list[str], rounds: list[Sealed], version: int = 2) -> None:
    """Send what all people send, to one address or several, and wait for the ``version`` that learned from it.

    Raises
    ------
    Unavailable
        If a service refuses an upload, or takes too long to learn.
    """
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
