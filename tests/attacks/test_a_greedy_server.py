"""A server that invents experiments, or asks much of one, leaves the budget of the others alone."""

import math
from pathlib import Path
from typing import Any

import httpx
import pytest

from privateer_client import Client, Ledger, Outcome
from privateer_core.errors import BudgetExceeded
from privateer_core.privacy.terms_verification import Limits
from tests.support.notary import notarized
from tests.support.publications import published, shuffle_spec
from tests.support.specs import make_spec

CONTEXT = {"x1": 0.3, "x2": 0.9}


class World:
    """Servers at every address; what experiments there ask for is told by their addresses."""

    def __init__(self, **specs: Any) -> None:
        self.specs, self.sent = specs, list[str]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.sent.append(request.url.host)
            return httpx.Response(202)
        name = request.url.path.split("/")[-2]
        return httpx.Response(200, content=published(self.specs[request.url.host](name)))


def local(epsilon: float) -> Any:
    return lambda name: make_spec({"experiment.name": name, "privacy.epsilon": epsilon})


def shuffled(delta: float) -> Any:
    return lambda name: shuffle_spec(**{"experiment.name": name, "privacy.delta": delta})


def curated(name: str) -> Any:
    return make_spec({"experiment.name": name, "privacy.model": "central", "privacy.delta": 1e-6})


def report(world: World, ledger: Ledger, url: str, name: str) -> Outcome:
    limits = Limits(epsilon=8, delta=1e-5, local_epsilon=math.inf, honest_fraction=1, min_batch=2, curator=True)
    transport = notarized(world)
    with Client(url, shuffler="http://m", limits=limits, ledger=ledger, transport=transport) as client:
        session = client.join(name)
        session.choose(CONTEXT)
        return session.report(1.0)


def drain(world: World, ledger: Ledger, url: str) -> BudgetExceeded:
    """Take part in what a server invents, until the ledger stops it."""
    for number in range(50):
        try:
            report(world, ledger, url, f"invented-{number}")
        except BudgetExceeded as refusal:
            return refusal
    raise AssertionError("a server took everything")


@pytest.mark.parametrize("spelling", ["http://greedy", "http://greedy/other", "http://GREEDY:80"])
def test_many_experiments_of_one_server_take_half(tmp_path: Path, spelling: str) -> None:
    world = World(greedy=local(0.5), honest=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=4.0)
    report(world, ledger, "http://greedy", "first")
    refusal = drain(world, ledger, spelling)
    assert refusal.field == "epsilon"
    assert "spent 2 at http://greedy, asked 0.5, limit 2" in str(refusal)
    assert "per_server_epsilon" in str(refusal)
    for number in range(2):
        assert report(world, ledger, "http://honest", f"real-{number}") is Outcome.ACCEPTED


def test_a_large_epsilon_is_no_way_around(tmp_path: Path) -> None:
    world = World(greedy=local(4.0), honest=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=4.0)
    with pytest.raises(BudgetExceeded, match="spent 0 at http://greedy, asked 4, limit 2"):
        report(world, ledger, "http://greedy", "dear")
    assert world.sent == []
    assert report(world, ledger, "http://honest", "real") is Outcome.ACCEPTED


def test_delta_runs_out_as_epsilon_does(tmp_path: Path) -> None:
    """A server that asks for little epsilon, and each time for a delta with which everything is told."""
    world = World(greedy=shuffled(1e-6), honest=shuffled(1e-6))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=1000.0, total_delta=6e-6)
    refusal = drain(world, ledger, "http://greedy")
    assert refusal.field == "delta"
    assert "spent 3e-06 at http://greedy, asked 1e-06, limit 3e-06" in str(refusal)
    assert report(world, ledger, "http://honest", "real") is Outcome.ACCEPTED


def test_local_epsilon_runs_out_as_epsilon_does(tmp_path: Path) -> None:
    """What a server and a shuffler together would learn is limited, too."""
    world = World(greedy=shuffled(1e-6))
    ledger = Ledger(tmp_path / "ledger.db", total_local_epsilon=24.0)
    refusal = drain(world, ledger, "http://greedy")
    assert refusal.field == "local_epsilon"
    assert sum(payment.local_epsilon for payment in ledger.payments()) <= 12.0


def test_a_record_that_a_curator_sees_overruns_any_local_limit(tmp_path: Path) -> None:
    world = World(curator=curated)
    ledger = Ledger(tmp_path / "ledger.db", total_local_epsilon=1e9)
    with pytest.raises(BudgetExceeded, match="spent 0, asked inf, limit 1e\\+09"):
        report(world, ledger, "http://curator", "all")
    assert world.sent == []
    ledger.forget("http://curator/all")  # the choice waits for a larger budget
    assert report(world, Ledger(tmp_path / "ledger.db"), "http://curator", "all") is Outcome.ACCEPTED
    with pytest.raises(BudgetExceeded, match="spent inf"):
        report(World(honest=local(1.0)), ledger, "http://honest", "real")


def test_shares_may_be_set(tmp_path: Path) -> None:
    world = World(one=local(1.0), other=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=3.0, per_server_epsilon=1.0)
    assert report(world, ledger, "http://one", "a") is Outcome.ACCEPTED
    with pytest.raises(BudgetExceeded, match="limit 1"):
        report(world, ledger, "http://one", "b")
    alone = Ledger(tmp_path / "alone.db", per_server_epsilon=1.0)
    assert report(world, alone, "http://one", "a") is Outcome.ACCEPTED
    with pytest.raises(BudgetExceeded, match="limit 1"):
        report(world, alone, "http://one", "b")
