"""The provider in the real package of OpenFeature: to evaluate is to choose, to track is to report."""

import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from openfeature import api
from openfeature.client import OpenFeatureClient
from openfeature.evaluation_context import EvaluationContext
from openfeature.exception import ErrorCode
from openfeature.track import TrackingEventDetails

from privateer_client import ReportStatus
from privateer_client.openfeature import PrivateerProvider
from tests.support.experiments import CONTEXT, WEEK, Device, Server, waiting_spec
from tests.support.notary import notarized
from tests.support.publications import published
from tests.support.specs import make_spec
from tests.unit.client.test_one_arm import set_up

Serve = Callable[..., tuple[OpenFeatureClient, PrivateerProvider]]
_VALUES = {"test": {"arm-0": 1, "arm-1": 2, "arm-2": 3}}
_SEEN = EvaluationContext(attributes={**CONTEXT, "unrelated": "yes"})


@pytest.fixture
def reports() -> list[tuple[str, Any]]:
    return []


@pytest.fixture
def serve(reports: list[tuple[str, Any]]) -> Iterator[Serve]:
    """Set a provider as the application's until the test ends."""

    def make(client: Any, **options: Any) -> tuple[OpenFeatureClient, PrivateerProvider]:
        # A machine that is busy may take longer than a page waits.
        waits = {"within": 10.0} | options
        provider = PrivateerProvider(client, reported=lambda name, status: reports.append((name, status)), **waits)
        api.set_provider(provider)
        return api.get_client(), provider

    yield make
    api.shutdown()
    api.clear_providers()


def test_a_flag_is_an_experiment(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    user_device, server = set_up(tmp_path)
    features, provider = serve(user_device.start(), outcomes={"bought": "test"})
    first = features.get_string_details("test", "none", _SEEN)
    assert first.value == first.variant
    assert first.value in ("arm-0", "arm-1", "arm-2")
    assert (first.reason, first.flag_metadata) == ("SPLIT", {"asked": True, "offline": False})
    # Pages draw themselves again and again; the person has one arm.
    assert {features.get_string_value("test", "none", _SEEN) for _ in range(20)} == {first.value}
    features.track("something else", _SEEN, TrackingEventDetails(2.0))
    features.track("bought", _SEEN, TrackingEventDetails(1.0))
    provider.shutdown()
    assert reports == [("test", ReportStatus.ACCEPTED)]
    assert len(server.posts) == 1
    assert b"unrelated" not in server.posts[0]


def test_a_ledger_that_another_program_has_locked_holds_no_evaluation(tmp_path: Path, serve: Serve) -> None:
    """SQLite waits ten seconds for a lock; an evaluation waits for its own limit."""
    client = set_up(tmp_path)[0].start()
    arm = client.arm("test", CONTEXT, default="none", within=10.0).name
    features, _ = serve(client, within=0.15)
    with closing(sqlite3.connect(next(tmp_path.rglob("*.db")))) as other_program:
        other_program.execute("BEGIN EXCLUSIVE")
        began = time.monotonic()
        details = features.get_string_details("test", "none", _SEEN)
        assert time.monotonic() - began < 5
        assert (details.value, details.error_code) == ("none", ErrorCode.GENERAL)
        other_program.rollback()
    features, _ = serve(client)
    assert features.get_string_value("test", "none", _SEEN) == arm


def test_a_second_report_is_refused_with_a_status(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    user_device, server = set_up(tmp_path)
    features, provider = serve(user_device.start())
    features.get_string_value("test", "none", _SEEN)
    for _ in range(2):
        features.track("test", _SEEN)
    provider.shutdown()
    statuses = [getattr(status, "slug", status) for _, status in reports]
    assert statuses == [ReportStatus.ACCEPTED, ReportStatus.ALREADY_REPORTED]
    assert len(server.posts) == 1


def test_ten_starts_give_one_arm_whatever_the_features(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    """Also while rounds pass. After the report nothing is left of the choice."""
    user_device, server = set_up(tmp_path)
    arms = []
    for start in range(10):
        server.moves_on(make_spec(), start + 1)
        features, provider = serve(user_device.start())
        contexts = [EvaluationContext(attributes={"x1": (start + i) / 12, "x2": 0.5}) for i in range(3)]
        arms += [features.get_string_value("test", "none", context) for context in contexts]
    assert (len(arms), len(set(arms)), set(arms) <= {"arm-0", "arm-1", "arm-2"}) == (30, 1, True)
    features.track("test", _SEEN)
    provider.shutdown()
    assert (reports, user_device.ledger().experiments_with_choice()) == ([("test", ReportStatus.ACCEPTED)], [])
    assert features.get_string_value("test", "none", _SEEN) == arms[0]  # the page that has reported shows what it did


def test_other_features_are_a_fresh_choice_where_the_application_says_so(tmp_path: Path, serve: Serve) -> None:
    user_device, _ = set_up(tmp_path)
    features, _ = serve(user_device.start(), values=_VALUES, fresh=["test"])
    contexts = [EvaluationContext(attributes={"x1": i / 40, "x2": 0.5}) for i in range(40)]
    values = {features.get_integer_value("test", 0, context) for context in contexts}
    assert values <= {1, 2, 3}
    assert len(values) > 1
    assert features.get_float_value("test", 0.0, _SEEN) in (1.0, 2.0, 3.0)
    for details in (features.get_boolean_details("test", True, _SEEN), features.get_object_details("test", {}, _SEEN)):
        assert details.error_code == ErrorCode.TYPE_MISMATCH
        assert "values" in str(details.error_message)


@pytest.mark.parametrize("arms", [["on", "off"], ["true", "false"]])
def test_arms_of_yes_and_no_are_booleans(tmp_path: Path, serve: Serve, arms: list[str]) -> None:
    user_device, _ = set_up(tmp_path, **{"experiment.arms": arms})
    features, _ = serve(user_device.start())
    boolean_details = features.get_boolean_details("test", False, _SEEN)
    assert (boolean_details.value, boolean_details.error_code) == (boolean_details.variant == arms[0], None)


def test_an_error_gives_the_default_and_a_message(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    user_device, server = set_up(tmp_path)
    features, provider = serve(user_device.start())
    lacking = features.get_string_details("test", "none", EvaluationContext(attributes={"x1": 0.5}))
    assert (lacking.value, lacking.error_code) == ("none", ErrorCode.INVALID_CONTEXT)
    assert "x2" in str(lacking.error_message)
    features.track("test", _SEEN)
    server.is_down = True
    provider.forget("")
    away, _ = serve(Device(tmp_path / "elsewhere", server).start())
    string_details = away.get_string_details("test", "none", _SEEN)
    assert (string_details.value, string_details.error_code) == ("none", ErrorCode.GENERAL)
    assert reports == []


def test_each_of_several_people_has_a_ledger(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    server = Server(published(make_spec()))
    features, provider = serve(lambda key: Device(tmp_path / key, server).start())
    for key in ("ann", "bob"):
        person = EvaluationContext(key, CONTEXT)
        assert features.get_string_value("test", "none", person).startswith("arm")
        features.track("test", person)
    nobody = features.get_string_details("test", "none", _SEEN)
    assert (nobody.value, nobody.error_code) == ("none", ErrorCode.TARGETING_KEY_MISSING)
    features.track("test", EvaluationContext("carl", CONTEXT))
    provider.shutdown()
    assert reports == [("test", ReportStatus.ACCEPTED)] * 2
    assert not any(name in body for body in server.posts for name in (b"ann", b"bob"))


def test_late_outcomes_wait_on_the_device(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    server = Server(published(waiting_spec()))
    device = Device(tmp_path, server)
    features, provider = serve(device.start())
    person = EvaluationContext(attributes=CONTEXT)
    features.get_string_value("test", "none", person)
    features.track("test", person, TrackingEventDetails(1.0))
    provider.shutdown()
    assert reports == [("test", ReportStatus.PENDING)]
    device.clock.time += 2 * WEEK
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert server.reward() == 1.0


def test_guardrails_are_attributes_of_the_event(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    changes = {
        "algorithm": {"name": "trial", "guardrails": ["refund"]},
        "segments": {"features": ["x1"], "cuts": {"x1": [0.5]}},
        "privacy": {"model": "none"},
    }
    from privateer_core.algorithms import parse_spec
    from tests.support.specs import tables

    server = Server(published(parse_spec(tables() | changes)))
    features, provider = serve(Device(tmp_path, server).start())
    features.get_string_value("test", "none", _SEEN)
    features.track("test", _SEEN, TrackingEventDetails(0.5, {"refund": True}))
    provider.shutdown()
    assert reports == [("test", ReportStatus.ACCEPTED)]
    key = int.from_bytes(server.open_report()[:4], "little")
    assert key % 2 == 1  # the answer yes


def test_without_the_package_it_says_what_to_install() -> None:
    code = "import sys; sys.modules['openfeature.evaluation_context'] = None; import privateer_client.openfeature"
    blocked = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "install privateer-client[openfeature]" in blocked.stderr
    plain = subprocess.run(
        [sys.executable, "-c", "import privateer_client; print('fine')"], capture_output=True, text=True
    )
    assert plain.stdout == "fine\n"


def test_a_client_refuses_a_second_person(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    """Many targeting keys with a single ledger would have a single arm and a single report."""
    user_device, server = set_up(tmp_path)
    features, provider = serve(user_device.start())
    first = features.get_string_details("test", "none", EvaluationContext("7", CONTEXT))
    assert first.value != "none"
    number: Any = 7
    assert features.get_string_details("test", "none", EvaluationContext(number, CONTEXT)).value == first.value
    for key in ("8", "someone else"):
        other = EvaluationContext(key, CONTEXT)
        refused = features.get_string_details("test", "none", other)
        assert (refused.value, refused.error_code) == ("none", ErrorCode.INVALID_CONTEXT)
        assert "give the provider client.person" in (refused.error_message or "")
        features.track("test", other)
    features.track("test", EvaluationContext("7", CONTEXT))
    provider.shutdown()
    assert reports == [("test", ReportStatus.ACCEPTED)]
    assert len(server.posts) == 1


def test_targeting_keys_are_texts(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    keys_asked = list[str]()

    def client_of(key: str) -> Any:
        keys_asked.append(key)
        (tmp_path / key).mkdir(exist_ok=True)
        return Device(tmp_path / key, Server(published(make_spec()))).start()

    features, provider = serve(client_of)
    keys: list[Any] = [7, "7", 0.5, "0.5"]  # the package takes a 0 for none
    for key in keys:
        features.get_string_value("test", "none", EvaluationContext(key, CONTEXT))
        features.track("test", EvaluationContext(key, CONTEXT))
    provider.shutdown()
    assert keys_asked == ["7", "0.5"]
    assert [status for _, status in reports] == [ReportStatus.ACCEPTED, ReportStatus.ALREADY_REPORTED] * 2


def test_a_provider_tracks_after_it_is_replaced_or_shut_down(tmp_path: Path, serve: Serve, reports: list[Any]) -> None:
    """Set, replaced, set again, shut down, and a late event: tracking never raises, and no outcome is lost."""
    user_device, server = set_up(tmp_path)
    features, provider = serve(user_device.start())
    features.get_string_value("test", "none", _SEEN)
    provider.shutdown()
    features.track("test", _SEEN)  # late
    provider.shutdown()
    api.clear_providers()
    api.set_provider(provider)
    api.get_client().track("test", _SEEN)
    provider.shutdown()
    provider.shutdown()
    assert reports == [("test", ReportStatus.ACCEPTED), ("test", ReportStatus.ALREADY_REPORTED)]
    assert len(server.posts) == 1


def test_an_evaluation_is_in_time(tmp_path: Path, serve: Serve) -> None:
    """The default at once, and the arm when the server has answered."""
    user_device, server = set_up(tmp_path)

    def slow(request: Any) -> Any:
        time.sleep(1.5)
        return server(request)

    features, _ = serve(user_device.start(transport=notarized(slow)), within=0.5)
    began = time.monotonic()
    late = features.get_string_details("test", "none", _SEEN)
    assert time.monotonic() - began < 1.4
    assert (late.value, late.error_message) == ("none", "http://s did not answer within 0.5 s (try again later)")
    time.sleep(4)
    assert features.get_string_value("test", "none", _SEEN) in ("arm-0", "arm-1", "arm-2")
