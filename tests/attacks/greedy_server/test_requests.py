"""A server that wants more of a person than it promised, by what it asks."""

import math
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import Client, Ledger, ReportStatus, in_time
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import BudgetExceeded, InputError, SpecError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_server.rounds.schedule import Schedule
from tests.support.experiments import CONTEXT as CONTEXT_OF_PERSON
from tests.support.experiments import CONTEXT as CONTEXT_OF_SESSIONS
from tests.support.experiments import OTHER, Device, Server
from tests.support.notary import notarized
from tests.support.publications import published, shuffle_spec
from tests.support.specs import SHUFFLE, make_spec

# A server that invents experiments, or asks much of one, leaves the budget of the others alone.


CONTEXT = {"x1": 0.3, "x2": 0.9}


class World:
    """A server at every address, with a spec for each host."""

    def __init__(self, **specs: Any) -> None:
        self.specs, self.reported_hosts = specs, list[str]()

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            self.reported_hosts.append(request.url.host)
            return httpx.Response(202)
        name = request.url.path.split("/")[-2]
        return httpx.Response(200, content=published(self.specs[request.url.host](name)))


def local(epsilon: float) -> Any:
    return lambda name: make_spec({"experiment.name": name, "privacy.epsilon": epsilon})


def shuffled(delta: float) -> Any:
    return lambda name: shuffle_spec(**{"experiment.name": name, "privacy.delta": delta})


def curated(name: str) -> Any:
    return make_spec({"experiment.name": name, "privacy.model": "central", "privacy.delta": 1e-6})


def report(world: World, ledger: Ledger, url: str, name: str) -> ReportStatus:
    limits = Limits(epsilon=8, delta=1e-5, local_epsilon=math.inf, honest_fraction=1, min_batch=2, allow_central=True)
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
def test_experiments_of_one_server_get_half_the_budget(tmp_path: Path, spelling: str) -> None:
    world = World(greedy=local(0.5), honest=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=4.0)
    report(world, ledger, "http://greedy", "first")
    refusal = drain(world, ledger, spelling)
    assert refusal.field == "epsilon"
    assert "spent 2 at http://greedy, asked 0.5, limit 2" in str(refusal)
    assert "per_server_epsilon" in str(refusal)
    for number in range(2):
        assert report(world, ledger, "http://honest", f"real-{number}") is ReportStatus.ACCEPTED


def test_a_large_epsilon_does_not_exceed_the_share(tmp_path: Path) -> None:
    world = World(greedy=local(4.0), honest=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=4.0)
    with pytest.raises(BudgetExceeded, match="spent 0 at http://greedy, asked 4, limit 2"):
        report(world, ledger, "http://greedy", "dear")
    assert world.reported_hosts == []
    assert report(world, ledger, "http://honest", "real") is ReportStatus.ACCEPTED


def test_the_ledger_limits_delta(tmp_path: Path) -> None:
    """A server that asks for little epsilon, and each time for a delta with which everything is told."""
    world = World(greedy=shuffled(1e-6), honest=shuffled(1e-6))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=1000.0, total_delta=6e-6)
    refusal = drain(world, ledger, "http://greedy")
    assert refusal.field == "delta"
    assert "spent 3e-06 at http://greedy, asked 1e-06, limit 3e-06" in str(refusal)
    assert report(world, ledger, "http://honest", "real") is ReportStatus.ACCEPTED


def test_the_ledger_limits_local_epsilon(tmp_path: Path) -> None:
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
    assert world.reported_hosts == []
    ledger.forget("http://curator/all")  # the choice waits for a larger budget
    assert report(world, Ledger(tmp_path / "ledger.db"), "http://curator", "all") is ReportStatus.ACCEPTED
    with pytest.raises(BudgetExceeded, match="spent inf"):
        report(World(honest=local(1.0)), ledger, "http://honest", "real")


def test_the_limit_for_each_server_can_be_set(tmp_path: Path) -> None:
    world = World(one=local(1.0), other=local(1.0))
    ledger = Ledger(tmp_path / "ledger.db", total_epsilon=3.0, per_server_epsilon=1.0)
    assert report(world, ledger, "http://one", "a") is ReportStatus.ACCEPTED
    with pytest.raises(BudgetExceeded, match="limit 1"):
        report(world, ledger, "http://one", "b")
    other_ledger = Ledger(tmp_path / "alone.db", per_server_epsilon=1.0)
    assert report(world, other_ledger, "http://one", "a") is ReportStatus.ACCEPTED
    with pytest.raises(BudgetExceeded, match="limit 1"):
        report(world, other_ledger, "http://one", "b")


# A server that wants more of a person than was promised, and devices that are started again and again.


DAY = 86_400.0
HONEST = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.reports_per_person": 3,
    "experiment.report_period_seconds": 7 * DAY,
}


def take_part(device: Device) -> ReportStatus:
    session = device.start().join("test")
    session.choose(CONTEXT_OF_PERSON)
    return session.report(1.0)


@pytest.mark.parametrize(
    "lie",
    [
        {"experiment.reports_per_person": 30},
        {"experiment.reports_per_person": 1},
        {"experiment.report_period_seconds": DAY},
        {"privacy.epsilon": 0.9},
        {"privacy.delta": 1e-5},
        {"privacy.model": "none", "privacy.epsilon": None, "privacy.delta": 0.0},
    ],
    ids=str,
)
def test_a_server_cannot_change_what_the_reports_share(tmp_path: Path, lie: dict[str, Any]) -> None:
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    assert take_part(device) is ReportStatus.ACCEPTED
    before = device.ledger().payments()
    device.clock.time += 7 * DAY
    server.moves_on(make_spec(HONEST | lie), 2)
    has_one_report = lie.get("experiment.reports_per_person") == 1
    with nullcontext() if has_one_report else pytest.raises(TermsRefused):
        assert take_part(device) is ReportStatus.ALREADY_REPORTED
    assert (device.ledger().payments(), len(server.posts)) == (before, 1)
    server.moves_on(make_spec(HONEST), 3)
    assert take_part(device) is ReportStatus.ACCEPTED


def test_a_server_that_promises_more_for_one_report_gets_none(tmp_path: Path) -> None:
    """Whether or not the device draws this time as the one on which it would report alone."""
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    take_part(device)
    before = device.ledger().payments()
    for version in (2, 3, 4):
        device.clock.time += 7 * DAY
        server.moves_on(make_spec(HONEST | {"privacy.model": "local", "privacy.delta": 0.0}), version)
        with suppress(TermsRefused):
            assert take_part(device) is ReportStatus.NOT_REQUESTED
    assert (device.ledger().payments(), len(server.posts)) == (before, 1)


def test_terms_cannot_change_between_a_choice_and_its_report(tmp_path: Path) -> None:
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT_OF_PERSON)
    session.save()
    server.moves_on(make_spec(HONEST | {"experiment.reports_per_person": 2}), 2)
    with pytest.raises(TermsRefused):
        device.start().resume("test").report(1.0)
    assert (device.ledger().payments(), server.posts) == ([], [])


def test_a_round_that_spends_the_whole_promise_on_one_report_is_refused(tmp_path: Path) -> None:
    """Planted: an experiment of three reports per participant has the noise of an experiment of a single report."""
    publication = published(make_spec(HONEST | {"experiment.reports_per_person": 1}))
    server = Server(publication)
    device = Device(tmp_path, server)
    server.moves_on(make_spec(HONEST | {"experiment.reports_per_person": 1}), 1, shown_spec=make_spec(HONEST))
    with pytest.raises(TermsRefused, match="reports"):
        device.start().join("test")
    server.moves_on(
        make_spec(HONEST | {"experiment.reports_per_person": 1}), 1, shown_spec=make_spec(HONEST), terms={"reports": 3}
    )
    with pytest.raises(TermsRefused, match="more than its share of the promise for 3 reports"):
        device.start().join("test")


def test_restarts_do_not_add_reports(tmp_path: Path) -> None:
    """Started every day for six weeks, with every round new, its clock set back now and then."""
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    rounds, accepted = 1, []
    for _ in range(6 * 7):
        rounds += 1
        server.moves_on(make_spec(HONEST), rounds)
        if rounds % 5 == 0:
            device.clock.step(-8 * DAY if rounds % 2 else 8 * DAY)
        if take_part(device) is ReportStatus.ACCEPTED:
            accepted.append(int(device.clock.now() // (7 * DAY)))
        device.clock.time += DAY
    assert len(accepted) == len(set(accepted)) == len(server.posts) == 3
    assert [payment.made for payment in device.ledger().payments()] == [3]


def test_a_round_gets_one_report_of_a_device(tmp_path: Path) -> None:
    """A server that keeps a round open, or opens an earlier one again, gets no second report to it."""
    server = Server(published(make_spec(HONEST), version=5))
    device = Device(tmp_path, server)
    take_part(device)
    for version in (5, 4, 1):
        device.clock.time += 7 * DAY
        server.moves_on(make_spec(HONEST), version)
        assert take_part(device) is ReportStatus.NOT_REQUESTED
    assert len(server.posts) == 1


@pytest.mark.parametrize("lie", [{"privacy.arm_visibility": "hidden"}, {"privacy.honest_fraction": 0.9}], ids=str)
def test_a_server_cannot_change_what_the_promise_assumes(tmp_path: Path, lie: dict[str, Any]) -> None:
    """The device would accept either assumption if it stood from the first report on."""
    honest = SHUFFLE | {"experiment.reports_per_person": 3, "privacy.honest_fraction": 0.5}
    server, limits = (
        Server(published(make_spec(honest))),
        Limits(delta=1e-5, local_epsilon=100.0, arm_visibility="hidden"),
    )
    device = Device(tmp_path, server, limits=limits, shuffler="http://shuffler")
    assert take_part(device) is ReportStatus.ACCEPTED
    device.clock.time += DAY
    server.moves_on(make_spec(honest | lie), 2)
    with pytest.raises(TermsRefused):
        take_part(device)
    assert len(server.posts) == 1


def _specs_of_returning_participants() -> dict[str, Spec]:
    """Every small spec whose people may come back three times."""
    specs: dict[str, Spec] = {}
    for name in ALGORITHMS:
        kind = algorithm(name).spec
        for instance, spec in kind.instances().items():
            data = spec.model_dump(mode="json", exclude_none=True)
            data["experiment"]["reports_per_person"] = 3
            with suppress(SpecError):
                specs[f"{name}-{instance}"] = parse_section(kind, data)
    return specs


RETURNING = _specs_of_returning_participants()


@pytest.mark.parametrize("spec", RETURNING.values(), ids=RETURNING)
def test_no_learner_asks_for_more_than_a_reports_share(spec: Spec) -> None:
    terms = Schedule(spec).open(7).policy.terms
    assert (terms.reports, terms.keeps_promise) == (spec.reports, True)


# A client of one person refuses what only two people have, and nothing that one person does.


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, Server(published(make_spec())))


def test_a_page_shows_one_arm_although_the_context_changes(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a minute `arm` joins anew, and the new session keeps the participant's arm."""
    monkeypatch.setattr(in_time, "SESSION_SECONDS", 0.0)
    with device.start() as client:
        arms = [
            client.arm("test", context, default="d", within=5.0)
            for context in (CONTEXT_OF_SESSIONS, OTHER, CONTEXT_OF_SESSIONS)
        ]
    assert len({id(arm.session) for arm in arms}) > 1  # the test can see
    assert {arm.fallback for arm in arms} == {None}
    assert len({arm.name for arm in arms}) == 1


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize(
    "value", [lambda: float("nan"), lambda: np.array([1, 2]), lambda: np.float64(0.5), lambda: None]
)
def test_an_invalid_value_does_not_raise_in_a_second_session(device: Device, value: Any) -> None:
    client = device.start()
    sessions = [client.join("test") for _ in range(2)]
    assert len({session.choose({"x1": value(), "x2": 0.5}) for session in sessions}) == 1


@pytest.mark.parametrize("other", [{"x1": np.array([1, 3]), "x2": 0.5}, {"x1": 0.25, "x2": 0.5}])
@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
def test_a_second_persons_context_is_still_refused(device: Device, other: dict[str, Any]) -> None:
    client = device.start()
    sessions = [client.join("test") for _ in range(2)]
    sessions[0].choose({"x1": np.array([1, 2]), "x2": 0.5})
    with pytest.raises(InputError, match="is one person"):
        sessions[1].choose(other)
