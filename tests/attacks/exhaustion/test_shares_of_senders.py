"""A sender that floods delays other senders by a single request; pages that cost it far more."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import numpy as np
import pytest

from privateer_core.accounting import amplification
from privateer_core.algorithms import parse_spec
from privateer_core.policies.expected_rewards import ExpectedRewards
from privateer_core.privacy.certificate import certify
from privateer_core.privacy.risk import assess_risks
from privateer_core.privacy.terms import Terms, calibrate
from privateer_core.serving.connections import Connections, ConnectionStage
from privateer_core.serving.fair_queue import RequestQueue
from privateer_core.serving.http_protocol import GuardedProtocol
from privateer_core.serving.process import _make_config
from privateer_core.spec.categories import Categorical
from privateer_core.spec.features import Feature
from privateer_server.app import create_app
from privateer_server.conclusions.rule_search import build_feature_parts
from privateer_server.conclusions.rules import find_arm_rules, forecast_rewards
from privateer_server.settings import ServerSettings
from tests.support.asgi import serving
from tests.support.servers import SHUFFLED, TOKEN, Api
from tests.unit.serving.test_connections import FakeConnection
from tests.unit.serving.test_http_protocol import State

CONNECTIONS, DEPTH = 16, 2
MAX_BEFORE: Final = 2
"""Requests of the flood that may be answered before an honest one: of the pass under way, and of the next."""
GREEDY, HONEST = "192.0.2.9", "192.0.2.3"
POLICY: Final = b"GET /experiments/test/policy HTTP/1.1\r\nhost: here\r\naccept: application/msgpack\r\n\r\n"
KEPT: Final = [
    *("/healthz", "/keys", "/limits", "/openapi.json", "/experiments", "/", "/dashboard/app.mjs", "/nothing"),
    *("/log/key", "/log/head", "/log/entries", "/log/proof?experiment=test&version=1"),
    *(f"/experiments/test{page}" for page in ("", "/policy", "/answer", "/state", "/history", "/privacy", "/risk")),
]
"""Pages whose bytes are kept."""
MADE: Final = [
    *("/readyz", "/log/inclusion?experiment=test&version=1", "/log/consistency?first=1&second=1", "/log/entries?end=1"),
    *("/experiments/test/token-keys", "/experiments/none/token-keys", "/experiments/none", "/log/none"),
    *("/experiments/test/policy?wait=5", "/experiments/test/policy/1"),
]


class Wire:
    """A transport that notes who is answered."""

    def __init__(self, sender: str, answered: list[str]) -> None:
        self._sender, self._answered, self._is_closing = sender, answered, False

    def write(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1 "):
            self._answered.append(self._sender)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return (self._sender, 1) if name == "peername" else default

    def is_closing(self) -> bool:
        return self._is_closing

    def get_write_buffer_size(self) -> int:
        return 0

    def abort(self) -> None:
        self._is_closing = True

    close = abort

    def __getattr__(self, name: str) -> Callable[..., None]:
        assert name in ("pause_reading", "resume_reading", "set_write_buffer_limits", "write_eof")
        return lambda *_, **__: None


class CountingState(State):
    """Counts the tasks of requests."""

    n_tasks = 0

    def __init__(self) -> None:
        super().__init__()
        state = self

        class Tasks(set[Any]):
            def add(self, task: Any) -> None:
                state.n_tasks += 1
                super().add(task)

        self.tasks = Tasks()


class Door:
    """The public listener of a server, without sockets."""

    def __init__(self, app: Any) -> None:
        self.answered: list[str] = []
        self._table, self._state = Connections(1000), CountingState()
        self._config = _make_config(app, "off", self._table)
        self._config.load()

    def connect(self, sender: str) -> Any:
        connection: Any = GuardedProtocol(self._table, config=self._config, server_state=self._state, app_state={})
        connection.connection_made(Wire(sender, self.answered))
        return connection

    async def wait_for(self, sender: str, answers: int) -> None:
        async with asyncio.timeout(30):
            while self.answered.count(sender) < answers:
                await asyncio.sleep(0)

    async def ask(self, route: str) -> bytes:
        """Ask for a page, which is kept from then on if it may be, and return the request."""
        method, _, target = route.rpartition(" ")
        head = f"{method or 'GET'} {target} HTTP/1.1\r\nhost: here\r\naccept: text/html\r\n"
        request = f"{head}content-length: 2\r\n\r\nab".encode() if method else f"{head}\r\n".encode()
        answers = self.answered.count(GREEDY)
        self.connect(GREEDY).data_received(request)
        await self.wait_for(GREEDY, answers + 1)
        return request

    async def count_tasks(self, route: str) -> int:
        """The tasks that a request begins."""
        before = self._state.n_tasks
        await self.ask(route)
        return self._state.n_tasks - before

    async def count_before(self, route: str) -> int:
        """The most requests of a flood that are answered between an honest request and its answer."""
        request, honest = await self.ask(route), self.connect(HONEST)
        for _ in range(CONNECTIONS):
            self.connect(GREEDY).data_received(DEPTH * request)
        max_before = 0
        for times in range(1, 6):
            before = len(self.answered)
            honest.data_received(POLICY)
            await self.wait_for(HONEST, times)
            max_before = max(max_before, self.answered[before:].index(HONEST))
        await self.wait_for(GREEDY, 1 + CONNECTIONS * DEPTH)  # nothing is left for the next route
        return max_before


@asynccontextmanager
async def open_door(folder: Path) -> AsyncIterator[Door]:
    server = create_app(ServerSettings(data=folder / "data", admin_token=TOKEN))
    async with serving(server) as client:
        assert (await Api(client).create(SHUFFLED)).status_code == 201
        yield Door(server.public)


async def test_nobody_waits_for_more_than_one_request_of_another(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        for route in (*KEPT, *MADE, "POST /reports"):
            door.answered.clear()
            assert await door.count_before(route) <= MAX_BEFORE, route


async def test_without_turns_everybody_waits_for_the_flood(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: all that has come is answered in one pass, as it came."""
    monkeypatch.setattr(
        RequestQueue, "put", lambda _, __, answer: asyncio.get_running_loop().call_soon(answer) is not None
    )
    async with open_door(tmp_path) as door:
        assert await door.count_before("/healthz") >= CONNECTIONS


async def test_what_is_kept_is_answered_without_a_task(tmp_path: Path) -> None:
    async with open_door(tmp_path) as door:
        for path in KEPT:
            await door.ask(path)
            assert await door.count_tasks(path) == 0, path
        assert await door.count_tasks("/log/none") > 0, "planted: a page that is made"


async def test_a_head_is_signed_anew_after_a_publication(tmp_path: Path) -> None:
    server = create_app(ServerSettings(data=tmp_path / "data", admin_token=TOKEN))
    async with serving(server) as client:
        heads = []
        for name in ("one", "two", "three"):
            assert (await Api(client).create({"experiment.name": name})).status_code == 201
            heads += [(await client.get("/log/head")).text for _ in range(2)]
        assert [head.split("\n")[1] for head in heads] == ["1", "1", "2", "2", "3", "3"]


async def test_a_sender_that_fills_the_table_closes_its_connections_alone() -> None:
    """Uploads that never end leave nobody else's connection for long, if the earliest stage alone counts."""
    table, others = Connections(128), []
    for _ in range(128):
        greedy = FakeConnection(table, GREEDY)
        table.enter(greedy)
        table.move(greedy, ConnectionStage.READING)
    for sender in range(20):
        others.append(FakeConnection(table, f"198.51.100.{sender}"))
        table.enter(others[-1])
        for _ in range(3):
            table.enter(FakeConnection(table, GREEDY))
    assert not any(other.dropped for other in others)
    assert len(table) == 128


ARMS = 16
WIDE: dict[str, Feature] = {f"city{k}": Categorical(levels=tuple(f"c{j}" for j in range(255))) for k in range(5)}
COLUMNS = sum(feature.columns for feature in WIDE.values())


def means(contexts: Any) -> Any:
    """Rewards that differ between all levels of all features."""
    weights = np.random.default_rng(3).normal(size=(COLUMNS, ARMS))
    return 0.5 + 0.3 * np.sin(20 * contexts @ weights)


def widest() -> ExpectedRewards:
    return ExpectedRewards.everywhere(
        COLUMNS, lambda rows: (means(rows), np.full((len(rows), ARMS), 0.01)), lambda *_: 0.01
    )


def test_the_widest_spec_has_no_more_parts_than_a_search_has_time_for() -> None:
    expected = widest()
    forecast = forecast_rewards(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    likes = forecast.population.weights[:, None] * forecast.means
    parts = build_feature_parts(WIDE, forecast.population.contexts, (expected.lower, expected.upper), likes)
    assert 200 < len(parts) <= 240  # 2,600 took some minutes


def test_rules_of_the_widest_spec_take_seconds() -> None:
    expected = widest()
    forecast = forecast_rewards(WIDE, expected, SimpleNamespace(decide=_best), (True,) * ARMS)  # type: ignore[arg-type]
    began = time.process_time()
    rules = find_arm_rules([f"a{k}" for k in range(ARMS)], WIDE, (0.0, 1.0), forecast)
    assert time.process_time() - began < 20
    assert 1 < len(rules.rules) <= 7


def _best(contexts: Any, _coins: Any) -> Any:
    return SimpleNamespace(arms=means(contexts).argmax(axis=1))


# Strangers who ask for a privacy record, or its risks, again and again: the server reckons each round once.


SPEC = parse_spec(
    {
        "experiment": {"name": "test", "arms": ["a", "b"], "horizon": 90_000, "reports_per_person": 4},
        "context": {"features": {"x": {"low": 0.0, "high": 1.0}}},
        "privacy": {"model": "shuffle", "epsilon": 1.0, "delta": 1e-6},
        "algorithm": {"name": "linear"},
    }
)
FEW = 300
"""A curve on its grid needs about a thousand sums over a batch, which take a tenth of a second a round."""


@pytest.fixture(scope="module")
def terms() -> list[Terms]:
    """The privacy terms of three rounds."""
    batches = (1001, 1303, 1707)
    return [calibrate(SPEC.privacy, batch, SPEC.typical_question(), reports=SPEC.reports) for batch in batches]


@pytest.fixture
def summed_batches(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of the batches for which the accountant has computed a sum."""
    amplification.shuffled_delta.cache_clear()
    batch_sizes: list[int] = []
    binomial_range = amplification.binomial_range

    def count_and_sum(trials: int, probability: float, tail: float) -> tuple[int, int]:
        batch_sizes.append(trials)
        return binomial_range(trials, probability, tail)

    monkeypatch.setattr(amplification, "binomial_range", count_and_sum)
    return batch_sizes


def test_a_record_that_is_asked_for_again_costs_nothing(summed_batches: list[int], terms: list[Terms]) -> None:
    first = certify("test", SPEC.privacy, terms)
    assert len(summed_batches) > FEW, "planted: the first who asks has the server reckon"
    assess_risks(first)
    summed_batches.clear()
    certificate = certify("test", SPEC.privacy, list(terms))
    assert (certificate, assess_risks(certificate)) == (first, assess_risks(first))
    assert not summed_batches


def test_a_round_that_is_added_leaves_the_others_as_they_are(summed_batches: list[int], terms: list[Terms]) -> None:
    certify("test", SPEC.privacy, terms)
    added_terms = calibrate(SPEC.privacy, 1999, SPEC.typical_question(), reports=SPEC.reports)
    summed_batches.clear()
    certify("test", SPEC.privacy, [*terms, added_terms])
    assert not {term.honest - 1 for term in terms} & set(summed_batches)
