"""The SDK's four lines against a server with scripted responses."""

import math
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from privateer_client import AsyncClient, Client, Ledger, ReportStatus
from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, InvalidValueWarning, NotFound, RoundClosed, TermsRefused, Unavailable
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.wire.problem import problem_body
from privateer_core.wire.publication import decode_envelope
from tests.support.devices import StillTime, still
from tests.support.notary import notarized
from tests.support.publications import OVER, published, shuffle_spec
from tests.support.specs import SHUFFLE, make_spec, tables

Answer = Callable[[httpx.Request], httpx.Response]
CONTEXT = {"x1": 0.3, "x2": 0.9}


class Service:
    """Serve a publication and scripted answers at the endpoint, and store each request."""

    def __init__(self, body: bytes, *answers: httpx.Response | Exception) -> None:
        self.body, self.answers, self.uploads = body, list(answers), []  # type: ignore[var-annotated]

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            is_policy = request.url.path == "/experiments/test/policy"
            return httpx.Response(200, content=self.body) if is_policy else httpx.Response(404)
        self.uploads.append((str(request.url), request.content))
        answer = self.answers.pop(0) if self.answers else httpx.Response(202, json={"accepted": 1, "refused": {}})
        if isinstance(answer, Exception):
            raise answer
        return answer


def client(service: Service, ledger: Path, **options: object) -> Client:
    return Client("http://s", ledger=Ledger(ledger), transport=notarized(service), **options)  # type: ignore[arg-type]


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> StillTime:
    return still(monkeypatch)


@pytest.fixture
def ledger(tmp_path: Path) -> Path:
    return tmp_path / "ledger.db"


def test_a_client_joins_chooses_and_reports_in_four_lines(ledger: Path) -> None:
    service = Service(published(make_spec()))
    session = client(service, ledger).join("test")
    arm = session.choose(CONTEXT)
    assert arm in ("arm-0", "arm-1", "arm-2")
    assert session.report_requested
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert not session.report_requested
    ((url, body),) = service.uploads
    assert url == "http://s/reports"
    assert decode_envelope(body).header.experiment == "test"


async def test_an_async_client_joins_chooses_and_reports_in_four_lines(ledger: Path) -> None:
    service = Service(published(shuffle_spec()))
    transport = notarized(service)
    async with AsyncClient("http://s", shuffler="http://m/", ledger=Ledger(ledger), transport=transport) as device:
        session = await device.join("test")
        await session.choose(CONTEXT)
        assert await session.report(0.0) is ReportStatus.ACCEPTED
    assert service.uploads[0][0] == "http://m/experiments/test/reports"


def test_a_second_report_is_refused_after_a_restart_too(ledger: Path) -> None:
    service = Service(published(make_spec()))
    for attempt in range(2):
        session = client(service, ledger).join("test")
        assert session.report_requested == (attempt == 0)
        session.choose(CONTEXT)
        if attempt:
            assert session.report(1.0) is ReportStatus.ALREADY_REPORTED
        else:
            session.report(1.0)
    assert len(service.uploads) == 1


def test_a_report_is_paid_before_it_is_sent(ledger: Path) -> None:
    class Crash(BaseException):
        pass

    def crash(request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, content=published(make_spec()))
        raise Crash

    device = Client("http://s", ledger=Ledger(ledger), transport=notarized(crash))
    session = device.join("test")
    session.choose(CONTEXT)
    with pytest.raises(Crash):
        session.report(1.0)
    assert Ledger(ledger).payment("http://s/test") is not None


def test_retries_send_the_same_bytes_and_a_duplicate_was_accepted(ledger: Path) -> None:
    duplicate = httpx.Response(409, content=b'{"type":"urn:privateer:problem:duplicate-report"}')
    service = Service(published(make_spec()), httpx.ReadTimeout("lost"), httpx.Response(503), duplicate)
    session = client(service, ledger).join("test")
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert len({body for _, body in service.uploads}) == 1 < len(service.uploads)


def test_a_report_without_a_response_is_pending(ledger: Path) -> None:
    service = Service(published(make_spec()), *[httpx.ConnectError("down")] * 1000)
    session = client(service, ledger).join("test")
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.PENDING


def test_a_late_report_is_an_outcome_and_no_exception(ledger: Path) -> None:
    closed = httpx.Response(409, content=problem_body(RoundClosed("closed")))
    session = client(Service(published(make_spec()), closed), ledger).join("test")
    session.choose(CONTEXT)
    assert session.report(1.0) is ReportStatus.LATE


def test_a_finished_experiment_chooses_and_costs_nothing(ledger: Path) -> None:
    service = Service(published(shuffle_spec(), **OVER))
    session = client(service, ledger, shuffler="http://m").join("test")
    assert not session.report_requested
    assert session.choose(CONTEXT) in ("arm-0", "arm-1", "arm-2")
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert not service.uploads
    assert Ledger(ledger).payments() == []


SOURCE = {"name": "clinic", "participants": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}


def test_people_of_a_source_report_on_arms_they_played_before(ledger: Path) -> None:
    service = Service(published(make_spec({"sources": [SOURCE]})), httpx.Response(202))
    session = client(service, ledger).join("test", cohort="clinic")
    assert session.report_past(CONTEXT, "arm-1", 1.0) is ReportStatus.ACCEPTED
    assert len(service.uploads) == 1
    assert session.report_past(CONTEXT, "arm-1", 1.0) is ReportStatus.ALREADY_REPORTED


PAST_BYTES = 64 + SignedSymbol.instances()["1-1"].report_size
LOOKING: dict[str, object] = {"name": "clinic", "participants": 2000, "epsilon": 1.0, "min_propensities": [1e-9] * 3}


@pytest.mark.parametrize("propensity", [1e-9, 1, 0.5, Fraction(1, 3), np.float64(0.25)])
def test_people_report_whatever_their_propensity(ledger: Path, propensity: Any) -> None:
    """Few outcomes are learned from, and all are reported: a missing report would show a propensity."""
    service = Service(published(make_spec({"sources": [LOOKING]})), httpx.Response(202))
    session = client(service, ledger).join("test", cohort="clinic")
    assert session.report_past(CONTEXT, "arm-1", 1.0, propensity) is ReportStatus.ACCEPTED
    assert [len(decode_envelope(body).sealed) for _, body in service.uploads] == [PAST_BYTES]


@pytest.mark.parametrize("propensity", [None, 0, -0.2, 1.5, math.nan, math.inf, "0.5", True])
def test_an_unknown_propensity_warns_and_reports_nothing_of_the_arm(ledger: Path, propensity: Any) -> None:
    service = Service(published(make_spec({"sources": [LOOKING]})), httpx.Response(202))
    session = client(service, ledger).join("test", cohort="clinic")
    with pytest.warns(InvalidValueWarning, match="propensity: must be a number above 0 and at most 1") as caught:
        assert session.report_past(CONTEXT, "arm-1", 1.0, propensity) is ReportStatus.ACCEPTED
    assert [len(decode_envelope(body).sealed) for _, body in service.uploads] == [PAST_BYTES]
    assert "as if the arm were unknown" in str(caught[0].message)


def test_a_source_with_public_shares_takes_no_propensity(ledger: Path) -> None:
    service = Service(published(make_spec({"sources": [SOURCE]})))
    session = client(service, ledger).join("test", cohort="clinic")
    with pytest.raises(InputError, match="min_propensities"):
        session.report_past(CONTEXT, "arm-1", 1.0, propensity=0.5)
    assert not service.uploads


def test_in_the_turn_of_a_cohort_other_participants_send_nothing(ledger: Path) -> None:
    """In the turn of a cohort the participants outside of it choose, but pay and send nothing."""
    service = Service(published(make_spec({"sources": [SOURCE]})))
    session = client(service, ledger).join("test")
    assert not session.report_requested
    assert session.choose(CONTEXT) in ("arm-0", "arm-1", "arm-2")
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    size = 66 + SignedSymbol.instances()["1-1"].report_size
    later = Service(published(make_spec({"sources": [SOURCE]}), policy={"cohort": ""}, round_={"sealed_size": size}))
    assert (
        client(later, ledger).join("test", cohort="clinic").report_past(CONTEXT, "arm-1", 0.0)
        is ReportStatus.NOT_REQUESTED
    )
    assert not service.uploads
    assert not later.uploads
    assert Ledger(ledger).payments() == []


@pytest.mark.parametrize("sizes", [{}, SHUFFLE])
def test_a_source_pays_its_own_epsilon_and_limits_hold_for_it(ledger: Path, sizes: dict[str, object]) -> None:
    costly = make_spec({**sizes, "sources": [SOURCE | {"epsilon": 2.0}]})
    device = client(Service(published(costly)), ledger, shuffler="http://m")
    with pytest.raises(TermsRefused) as refusal:
        device.join("test", cohort="clinic")
    assert refusal.value.field == "epsilon"
    assert device.join("test").choose(CONTEXT)


def test_a_source_whose_terms_are_another_cohorts_is_refused(ledger: Path) -> None:
    """Planted: the server publishes the source's turn with twice the epsilon it was promised."""
    lie = published(make_spec({"sources": [SOURCE]}), mechanism={"epsilon": 2.0})
    with pytest.raises(TermsRefused) as refusal:
        client(Service(lie), ledger).join("test", cohort="clinic")
    assert refusal.value.field == "delta"


def test_wrong_reports_of_sources_name_the_remedy(ledger: Path) -> None:
    device = client(Service(published(make_spec({"sources": [SOURCE]}))), ledger)
    with pytest.raises(InputError, match="no such source"):
        device.join("test", cohort="clinics")
    with pytest.raises(InputError, match="join with cohort"):
        device.join("test").report_past(CONTEXT, "arm-1", 1.0)
    member = device.join("test", cohort="clinic")
    with pytest.raises(InputError, match="report_past"):
        member.report(1.0)
    with pytest.warns(InvalidValueWarning, match="arm: ") as caught:
        assert member.report_past(CONTEXT, "secret-arm", 1.0) is ReportStatus.ACCEPTED
    assert "secret-arm" not in str(caught[0].message)


def test_the_application_names_the_shuffler(ledger: Path) -> None:
    with pytest.raises(TermsRefused, match="shuffler"):
        client(Service(published(shuffle_spec())), ledger).join("test")


def test_invalid_calls_are_errors_before_a_report_is_sent(ledger: Path) -> None:
    service = Service(published(make_spec()))
    device = client(service, ledger)
    with pytest.raises(NotFound):
        device.join("other")
    session = device.join("test")
    with pytest.raises(InputError, match="x1: missing"):
        session.choose()
    with pytest.raises(InputError, match="choose an arm first"):
        session.report(1.0)
    session.choose(dict.fromkeys(CONTEXT, 1000000000.0))
    assert not service.uploads
    assert session.report(7.0) is ReportStatus.ACCEPTED
    assert session.clipped
    assert session.clipped_features == tuple(CONTEXT)


@pytest.mark.parametrize("name", ["bandit", "trial"])
def test_an_experiment_without_features_chooses_without_a_context(ledger: Path, name: str) -> None:
    spec = parse_spec(tables({"context": None, "algorithm.name": name}))
    device = client(Service(published(spec)), ledger)
    session = device.join("test")
    assert session.features == ()
    with pytest.raises(InputError, match="x1: the experiment has no such feature"):
        session.choose(CONTEXT)
    arm = session.choose()
    assert arm in spec.options
    assert session.report(1.0) is ReportStatus.ACCEPTED
    assert device.arm("test", default="other").name == arm


def test_no_answer_from_the_server(ledger: Path) -> None:
    def refuse_connection(_: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("down")

    with pytest.raises(Unavailable):
        Client("http://s", ledger=Ledger(ledger), transport=notarized(refuse_connection)).join("test")


@pytest.mark.parametrize("status", [302, 500, 503])
def test_an_answer_without_a_policy_is_no_policy(ledger: Path, status: int) -> None:
    transport = notarized(lambda _: httpx.Response(status))
    with pytest.raises(Unavailable, match="http://s answered, but not what it was asked for"):
        Client("http://s", ledger=Ledger(ledger), transport=transport).join("test")


@pytest.mark.parametrize(
    "url", ["http://s/", "http://S", "http://s:80", "HTTP://s//", "http://s.", "http://s/a/%2e%2e"]
)
def test_one_server_has_one_identity_however_it_is_spelled(ledger: Path, url: str) -> None:
    service = Service(published(make_spec()))
    session = client(service, ledger).join("test")
    session.choose(CONTEXT)
    session.report(1.0)
    rejoined = Client(url, ledger=Ledger(ledger), transport=notarized(service)).join("test")
    rejoined.choose(CONTEXT)
    assert rejoined.report(1.0) is ReportStatus.ALREADY_REPORTED


@pytest.mark.parametrize("url", ["s", "ftp://s", "http://u:p@s", "http://ä", "http://[v1.a]"])
def test_a_malformed_server_address_is_refused(ledger: Path, url: str) -> None:
    with pytest.raises(InputError) as refusal:
        Client(url, ledger=Ledger(ledger))
    assert refusal.value.field == "url"


@pytest.mark.parametrize("shuffler", ["m", "ftp://m", "http://u:p@m"])
def test_a_malformed_shuffler_address_is_refused(ledger: Path, shuffler: str) -> None:
    with pytest.raises(InputError) as refusal:
        Client("http://s", shuffler=shuffler, ledger=Ledger(ledger))
    assert refusal.value.field == "shuffler"


@pytest.mark.parametrize(
    ("times", "field"),
    [
        ({"timeout": 0.0}, "timeout"),
        ({"timeout": float("inf")}, "timeout"),
        ({"retry_timeout": -1.0}, "retry_timeout"),
        ({"retry_timeout": float("nan")}, "retry_timeout"),
    ],
)
def test_timeouts_out_of_range_are_refused(ledger: Path, times: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as refusal:
        client(Service(b""), ledger, **times)
    assert refusal.value.field == field


def test_a_cookie_never_ties_the_report_to_the_fetch(ledger: Path) -> None:
    body, sent_headers = published(make_spec()), []

    def service(request: httpx.Request) -> httpx.Response:
        sent_headers.append(request.headers)
        status = 200 if request.method == "GET" else 202
        return httpx.Response(status, content=body, headers={"set-cookie": "who=somebody; path=/"})

    with Client("http://s.example", ledger=Ledger(ledger), transport=notarized(service)) as device:
        session = device.join("test")
        session.choose(CONTEXT)
        session.report(1.0)
    assert len(sent_headers) == 2
    assert not any("cookie" in headers for headers in sent_headers)
