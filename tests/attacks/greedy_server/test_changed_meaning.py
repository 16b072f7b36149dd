"""A server changes the meaning of arms, outcomes and values: whether a device reports must not depend on them."""

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import InvalidValueWarning, ReportStatus
from privateer_client.inputs import read_outcome
from privateer_client.participation import Participation
from privateer_core.algorithms import parse_spec
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.errors import InputError, TermsRefused
from privateer_core.mechanisms.signed_symbol import SignedSymbol
from privateer_core.primitives.contributions import KeyedValues
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from privateer_server.rounds.schedule import Schedule
from tests.support.experiments import CONTEXT, OPEN, WEEK, Device, Server, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec, tables

# A server that publishes other arms: whether a device reports must not depend on which arm its person got.


ARMS = ["arm-0", "arm-1", "arm-2"]
OTHERS = {
    "another name": ["arm-0", "x", "y"],
    "two that changed places": ["arm-0", "arm-2", "arm-1"],
    "one that is gone": ["arm-0", "arm-1"],
    "one in between": ["arm-0", "x", "arm-1", "arm-2"],
}
SOURCE = {"name": "clinic", "participants": 2000, "epsilon": 0.5, "shares": [0.5, 0.25, 0.25]}


def devices_by_arm(folder: Path, **changes: Any) -> dict[str, Device]:
    """A device for each arm, which has chosen it."""
    devices: dict[str, Device] = {}
    for number in range(200):
        if len(devices) == len(ARMS):
            break
        (folder / str(number)).mkdir()
        device = Device(folder / str(number), Server(published(waiting_spec(**changes))))
        devices.setdefault(device.start().join("test").choose({"x1": 0.3, "x2": 0.9}), device)
    return devices


@pytest.mark.parametrize("arms", OTHERS.values(), ids=OTHERS)
def test_whether_a_device_reports_does_not_tell_its_arm(tmp_path: Path, arms: list[str]) -> None:
    """One publication after another, each with another arm in its place, would find out every person's arm."""
    n_reports_by_arm = {}
    for arm, device in devices_by_arm(tmp_path).items():
        device.server.moves_on(waiting_spec(**{"experiment.arms": arms}), 2)
        device.clock.time += 1.1 * WEEK
        device.start().flush()
        n_reports_by_arm[arm] = len(device.server.posts)
    assert n_reports_by_arm == dict.fromkeys(ARMS, 0)


def test_changed_arms_get_no_report_without_a_conversion_window(tmp_path: Path) -> None:
    n_reports_by_arm = {}
    for number in range(40):
        server = Server(published(make_spec()))
        (tmp_path / str(number)).mkdir()
        device = Device(tmp_path / str(number), server)
        session = device.start().join("test")
        arm = session.choose({"x1": 0.3, "x2": 0.9})
        device.clock.time += 60
        server.moves_on(make_spec({"experiment.arms": OTHERS["another name"]}), 2)
        with pytest.raises(TermsRefused):
            session.report(1.0)
        n_reports_by_arm[arm] = len(server.posts)
    assert n_reports_by_arm == dict.fromkeys(ARMS, 0)


FEATURES = {"x1": {"low": 0.0, "high": 1.0}, "x2": {"low": 0.0, "high": 1.0}}
SEGMENTS = {"features": ["x1"], "cuts": {"x1": [0.5]}}
WITHOUT_FEATURES: dict[str, dict[str, Any]] = {
    "bandit": {"context": None, "algorithm.name": "bandit"},
    "trial of everybody": {"context": None, "algorithm.name": "trial"},
}
WITH_FEATURES: dict[str, dict[str, Any]] = {
    "partition": {"context.features": FEATURES},
    "trial of segments": {"context.features": FEATURES, "segments": SEGMENTS, "algorithm.name": "trial"},
}


@pytest.mark.parametrize("has_features", [False, True])
@pytest.mark.parametrize("without", WITHOUT_FEATURES)
@pytest.mark.parametrize("with_features", WITH_FEATURES)
def test_features_that_come_or_go_get_no_report(
    tmp_path: Path, with_features: str, without: str, has_features: bool
) -> None:
    """Refuse a report under features after a choice without a context, and the reverse."""
    specs = [parse_spec(tables(changes)) for changes in (WITHOUT_FEATURES[without], WITH_FEATURES[with_features])]
    first, other = specs[has_features], specs[not has_features]
    server = Server(published(first))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    contexts = [{}, {"x1": 0.3, "x2": 0.9}]
    with pytest.raises(InputError, match="x1"):
        session.choose(contexts[not has_features])
    session.choose(contexts[has_features])
    device.clock.time += 60
    server.moves_on(other, 2)
    with pytest.raises(TermsRefused):
        session.report(1.0)
    assert (server.posts, device.ledger().payments()) == ([], [])
    device.clock.time += 60
    server.moves_on(first, 3)
    assert session.report(1.0) is ReportStatus.ACCEPTED


@pytest.mark.parametrize("arm", ARMS)
def test_changed_arms_get_no_report_of_a_source(tmp_path: Path, arm: str) -> None:
    """Their arms are secret."""
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE], "experiment.arms": OTHERS["another name"]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past({"x1": 0.3, "x2": 0.9}, arm, 1.0)
    assert (server.posts, device.ledger().payments()) == ([], [])


def test_added_and_retired_arms_do_not_stop_reports(tmp_path: Path) -> None:
    for device in devices_by_arm(tmp_path).values():
        arms = {"experiment.arms": [*ARMS, "new"], "experiment.retired_arms": ["arm-0"]}
        device.server.moves_on(waiting_spec(**arms), 2)
        device.clock.time += 1.1 * WEEK
        assert device.start().flush() == {"test": ReportStatus.ACCEPTED}


def test_a_source_is_not_promised_less_than_when_its_people_joined(tmp_path: Path) -> None:
    """Within the limits of the device, but twice the epsilon that the session has shown."""
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE | {"epsilon": 1.0}]}), 2)
    with pytest.raises(TermsRefused):
        session.report_past({"x1": 0.3, "x2": 0.9}, "arm-1", 1.0)
    assert (server.posts, device.ledger().payments()) == ([], [])
    device.clock.time += 60
    server.moves_on(make_spec({"sources": [SOURCE]}), 3)
    assert session.report_past({"x1": 0.3, "x2": 0.9}, "arm-1", 1.0) is ReportStatus.ACCEPTED


# A server that waits until a person has chosen, and then has their outcome mean something else.
#
# The device keeps outcomes as numbers. Read by another spec they would be answers to other questions, or make the
# application's next start fail, again and again.


LIMITS = Limits(arm_visibility="hidden")
POINTS = {"domain": {"shape": "ball", "dimension": 2}}
ARMS_OF_MEANING = {"context": {"features": {"x1": {"low": 0.0, "high": 1.0}}}}
ONE = {"name": "convex", "feedback": "one-point", "lipschitz": 2.0}
TWO = {"name": "convex", "feedback": "two-point", "lipschitz": 2.0}
ASKS = {"name": "trial", "guardrails": ["refund", "complaint"]}
CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "two rewards, then one": (TWO, ONE),
    "one reward, then two": (ONE, TWO),
    "answers that changed places": (ASKS, ASKS | {"guardrails": ["complaint", "refund"]}),
    "an answer of another name": (ASKS, ASKS | {"guardrails": ["refund", "illness"]}),
    "answers to an algorithm that asks for none": (ASKS, {"name": "partition"}),
    "answers to one of vectors": (ASKS, {"name": "linear"}),
    "an answer that nobody gave": ({"name": "partition"}, ASKS),
}


def spec_of(algorithm: dict[str, Any]) -> Spec:
    """A spec under local privacy whose reports are due a week after the choice."""
    has_points = algorithm["name"] == "convex"
    table = {"name": "test", "horizon": 20_000, "round_size": 2_000, "conversion_window_seconds": WEEK}
    experiment = table if has_points else table | {"arms": ["a", "b"]}
    privacy = {"model": "local", "epsilon": 1.0}
    parts = POINTS if has_points else ARMS_OF_MEANING
    return parse_spec({"experiment": experiment, "privacy": privacy, "algorithm": algorithm, **parts})


def device_with_open_choice(folder: Path, algorithm: dict[str, Any]) -> Device:
    """A device that has kept a choice, and been told no outcome."""
    spec = spec_of(algorithm)
    device = Device(folder, Server(published(spec)), limits=LIMITS)
    device.start().join("test").choose(dict.fromkeys(spec.features, 0.5))
    device.clock.time += 1.1 * WEEK
    return device


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_another_meaning_gets_no_report(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    device = device_with_open_choice(tmp_path, before)
    device.server.moves_on(spec_of(after), 2)
    client = device.start()
    client.flush()
    assert client.join("test").report_requested
    assert not device.server.posts
    assert not device.ledger().payments()


@pytest.mark.parametrize("algorithm", [ONE, TWO, ASKS], ids=["one point", "two points", "answers"])
def test_an_outcome_of_the_same_meaning_is_reported(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    device = device_with_open_choice(tmp_path, algorithm)
    device.server.moves_on(spec_of(algorithm), 2)
    device.start().flush()
    assert len(device.server.posts) == 1


# Outcomes that an experiment has no place for: whether and what a device sends must not tell who has one.


UNFIT: dict[str, Any] = {
    "a missing reward": None,
    "not a number": float("nan"),
    "a text": "41.5",
    "a list": [41.5],
    "a mapping": {"reward": 41.5},
    "a mapping of itself": {},
}
UNFIT["a mapping of itself"]["reward"] = UNFIT["a mapping of itself"]
SOURCE_OF_OUTCOMES = {"name": "clinic", "participants": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}


def observe(folder: Path, spec: Spec, context: dict[str, Any], reward: Any) -> tuple[Any, int, list[int], list[Any]]:
    """Return the report's status, the number of requests, the sizes of reports, and the ledger's payments."""
    folder.mkdir()
    server = Server(published(spec))
    device = Device(folder, server)
    session = device.start().join("test")
    session.choose(context)
    outcome = session.report(reward)
    return outcome, len(server.etags), [len(body) for body in server.posts], device.ledger().payments()


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize("reward", [*UNFIT.values(), True, 10**400], ids=[*UNFIT, "yes", "a huge number"])
def test_traffic_and_payments_do_not_depend_on_the_outcome(tmp_path: Path, reward: Any) -> None:
    usual = observe(tmp_path / "usual", make_spec(), CONTEXT, 1.0)
    assert usual[0] is ReportStatus.ACCEPTED
    assert observe(tmp_path / "unfit", make_spec(), CONTEXT, reward) == usual


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize("reward", UNFIT.values(), ids=UNFIT)
def test_traffic_of_a_source_does_not_depend_on_the_outcome(tmp_path: Path, reward: Any) -> None:
    server = Server(published(make_spec({"sources": [SOURCE_OF_OUTCOMES]})))
    device = Device(tmp_path, server)
    member = device.start().join("test", cohort="clinic")
    assert member.report_past(CONTEXT, "arm-1", reward) is ReportStatus.ACCEPTED
    assert (len(server.posts), len(device.ledger().payments())) == (1, 1)


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize(("reward", "counts"), [(None, 0.25), ("41.5", 0.25), (True, 1.0), (10**400, 1.0)])
def test_an_invalid_outcome_counts_as_the_default(tmp_path: Path, reward: Any, counts: float) -> None:
    """A window makes the report due a week later, whatever came of the choice."""
    server = Server(published(waiting_spec(reward={"default": 0.25})))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT)
    assert session.report(reward) is ReportStatus.PENDING
    device.clock.step(1.1 * WEEK)
    assert device.start().flush() == {"test": ReportStatus.ACCEPTED}
    assert server.reward() == counts


def test_an_invalid_outcome_warns_the_application_alone(tmp_path: Path) -> None:
    """An application that makes the warning an error keeps the device from reporting: right in its tests alone."""
    server = Server(published(make_spec()))
    session = Device(tmp_path, server).start().join("test")
    session.choose(CONTEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidValueWarning)
        with pytest.raises(InvalidValueWarning, match=r"reward: .* no outcome \(report 0 or 1") as warning:
            session.report("41.5")
    assert "41" not in str(warning.value)
    assert server.posts == []


@pytest.mark.parametrize(
    ("outcome", "counts"),
    [
        ({"reward": 0.25, "refund": None, "call": True}, [0.25, 0.0, 1.0]),
        ({"reward": None, "refund": True}, [0.0, 1.0, 0.0]),
        ({"reward": 0.25, "refund": "yes", "call": 1, "mood": 41}, [0.25, 0.0, 1.0]),
        (None, [0.0, 0.0, 0.0]),
    ],
)
def test_each_answer_to_a_guardrail_counts_by_itself(outcome: Any, counts: list[float]) -> None:
    tables = TrialSpec.instances()["none"].model_dump(exclude_none=True)
    tables["algorithm"] |= {"guardrails": ["refund", "call"], "allocation": "fixed"}
    spec = TrialSpec.model_validate(tables)
    with pytest.warns(InvalidValueWarning, match="no outcome"):
        rewards, clipped = read_outcome(Schedule(spec).open(5).policy, spec, "a", outcome)
    assert (rewards.tolist(), clipped) == ([counts], False)


# A server whose spec has no place for some values: whether a device reports must not tell who has one.


SPECS: dict[str, tuple[dict[str, Any], Any, Any]] = {
    "an ordered level that is not listed": ({"levels": [31, 32], "ordered": True}, 31, 57),
    "a number that is missing": ({"low": 0.0, "high": 100.0}, 31.0, None),
    "a rank that is missing": ({"quantiles": [0.0, 31.0, 100.0]}, 31.0, None),
    "a level that is missing": ({"levels": [31, 32]}, 31, None),
    "a level that is not listed": ({"levels": [31, 32]}, 31, 57),
    "a number where yes or no is asked for": ({"boolean": True}, 1, 57),
    "a number where a text is asked for": ({"levels": ["31", "32"]}, "31", 57),
    "a text where a number is asked for": ({"low": 0.0, "high": 100.0, "missing": True}, 31, "57"),
    "a number too large for a number": ({"low": 0.0, "high": 100.0}, 31, 10**400),
}
SOURCE_OF_VALUES = {"name": "clinic", "participants": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}


def traffic_of_values(folder: Path, feature: Any, value: Any) -> tuple[int, list[int], list[Any]]:
    """Return the number of requests, the sizes of reports, and the ledger's payments."""
    folder.mkdir()
    server = Server(published(make_spec({"context.features": {"age": feature}})))
    device = Device(folder, server)
    session = device.start().join("test")
    session.choose({"age": value})
    assert session.report(1.0) is ReportStatus.ACCEPTED
    return len(server.etags), [len(body) for body in server.posts], device.ledger().payments()


@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
@pytest.mark.parametrize(("feature", "listed", "other"), SPECS.values(), ids=SPECS)
def test_traffic_and_payments_do_not_depend_on_the_value(tmp_path: Path, feature: Any, listed: Any, other: Any) -> None:
    assert traffic_of_values(tmp_path / "listed", feature, listed) == traffic_of_values(
        tmp_path / "other", feature, other
    )


def test_an_invalid_feature_value_warns_the_application_alone(tmp_path: Path) -> None:
    """An application that makes the warning an error keeps the device from reporting: right in its tests alone."""
    feature, _, other = SPECS["an ordered level that is not listed"]
    server = Server(published(make_spec({"context.features": {"age": feature}})))
    session = Device(tmp_path, server).start().join("test")
    with warnings.catch_warnings():
        warnings.simplefilter("error", InvalidValueWarning)
        with pytest.raises(InvalidValueWarning, match=r"age: is not one of .* missing \(list it") as warning:
            session.choose({"age": other})
    assert "57" not in str(warning.value)
    assert server.posts == []


@pytest.mark.parametrize("arm", ["arm-1", "another", "", None, 7, ["arm-1"]])
def test_a_source_hides_whether_its_arm_is_listed(tmp_path: Path, arm: Any) -> None:
    server = Server(published(make_spec({"sources": [SOURCE_OF_VALUES]})))
    device = Device(tmp_path, server)
    session = device.start().join("test", cohort="clinic")
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        assert session.report_past(CONTEXT, arm, 1.0) is ReportStatus.ACCEPTED
    assert (len(server.posts), len(device.ledger().payments()), len(caught_warnings)) == (1, 1, int(arm != "arm-1"))


def test_a_report_of_an_unlisted_arm_has_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    contributed: list[KeyedValues] = []
    randomize = SignedSymbol.randomize

    def noting(self: SignedSymbol, values: KeyedValues, noise: Any) -> Any:
        contributed.append(values)
        return randomize(self, values, noise)

    monkeypatch.setattr(SignedSymbol, "randomize", noting)
    part = Participation(published(make_spec({"sources": [SOURCE_OF_VALUES]})), "test", OPEN, "clinic")
    for arm in (-1, 0):
        part.make_past_reports(np.full((100, 2), 0.5), np.full(100, arm), np.ones(100), np.ones(100))
    assert [bool((values.keys >= 0).any()) for values in contributed] == [False, True]
