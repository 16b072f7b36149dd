"""A server that wants more of a person than was promised, and devices that are started again and again."""

from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any

import pytest

from privateer_client import Outcome
from privateer_core.algorithms import ALGORITHMS, algorithm
from privateer_core.errors import SpecError, TermsRefused
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.sections import parse_section
from privateer_core.spec.spec import Spec
from privateer_server.rounds.loop import Schedule
from tests.support.experiments import CONTEXT, Device, Server
from tests.support.publications import published
from tests.support.specs import SHUFFLE, make_spec

DAY = 86_400.0
HONEST = {
    "privacy.model": "central",
    "privacy.delta": 1e-6,
    "experiment.reports_per_person": 3,
    "experiment.report_period": 7 * DAY,
}


def take_part(device: Device) -> Outcome:
    session = device.start().join("test")
    session.choose(CONTEXT)
    return session.report(1.0)


@pytest.mark.parametrize(
    "lie",
    [
        {"experiment.reports_per_person": 30},
        {"experiment.reports_per_person": 1},
        {"experiment.report_period": DAY},
        {"privacy.epsilon": 0.9},
        {"privacy.delta": 1e-5},
        {"privacy.model": "none", "privacy.epsilon": None, "privacy.delta": 0.0},
    ],
    ids=str,
)
def test_a_server_cannot_change_what_the_reports_share(tmp_path: Path, lie: dict[str, Any]) -> None:
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    assert take_part(device) is Outcome.ACCEPTED
    before = device.ledger().payments()
    device.clock.time += 7 * DAY
    server.moves_on(make_spec(HONEST | lie), 2)
    once = lie.get("experiment.reports_per_person") == 1
    with nullcontext() if once else pytest.raises(TermsRefused):
        assert take_part(device) is Outcome.ALREADY_REPORTED
    assert (device.ledger().payments(), len(server.sent)) == (before, 1)
    server.moves_on(make_spec(HONEST), 3)
    assert take_part(device) is Outcome.ACCEPTED


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
            assert take_part(device) is Outcome.NOT_ASKED
    assert (device.ledger().payments(), len(server.sent)) == (before, 1)


def test_nor_between_a_choice_and_its_report(tmp_path: Path) -> None:
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT)
    session.save()
    server.moves_on(make_spec(HONEST | {"experiment.reports_per_person": 2}), 2)
    with pytest.raises(TermsRefused):
        device.start().resume("test").report(1.0)
    assert (device.ledger().payments(), server.sent) == ([], [])


def test_a_round_that_spends_the_whole_promise_on_one_report_is_refused(tmp_path: Path) -> None:
    """The noise of an experiment in which people report once, in one that asks them three times."""
    once = published(make_spec(HONEST | {"experiment.reports_per_person": 1}))
    server = Server(once)
    device = Device(tmp_path, server)
    server.moves_on(make_spec(HONEST | {"experiment.reports_per_person": 1}), 1, shown=make_spec(HONEST))
    with pytest.raises(TermsRefused, match="reports"):
        device.start().join("test")
    server.moves_on(
        make_spec(HONEST | {"experiment.reports_per_person": 1}), 1, shown=make_spec(HONEST), terms={"reports": 3}
    )
    with pytest.raises(TermsRefused, match="more than its share of the promise for 3 reports"):
        device.start().join("test")


def test_no_device_reports_oftener_however_it_is_started(tmp_path: Path) -> None:
    """Started every day for six weeks, with every round new, its clock set back now and then."""
    server = Server(published(make_spec(HONEST)))
    device = Device(tmp_path, server)
    rounds, accepted = 1, []
    for _ in range(6 * 7):
        rounds += 1
        server.moves_on(make_spec(HONEST), rounds)
        if rounds % 5 == 0:
            device.clock.step(-8 * DAY if rounds % 2 else 8 * DAY)
        if take_part(device) is Outcome.ACCEPTED:
            accepted.append(int(device.clock.now() // (7 * DAY)))
        device.clock.time += DAY
    assert len(accepted) == len(set(accepted)) == len(server.sent) == 3
    assert [paid.made for paid in device.ledger().payments()] == [3]


def test_a_round_is_not_sold_twice(tmp_path: Path) -> None:
    """A server that keeps a round open, or opens an earlier one again, gets no second report to it."""
    server = Server(published(make_spec(HONEST), version=5))
    device = Device(tmp_path, server)
    take_part(device)
    for version in (5, 4, 1):
        device.clock.time += 7 * DAY
        server.moves_on(make_spec(HONEST), version)
        assert take_part(device) is Outcome.NOT_ASKED
    assert len(server.sent) == 1


@pytest.mark.parametrize("lie", [{"privacy.arms": "hidden"}, {"privacy.honest_fraction": 0.9}], ids=str)
def test_nor_what_the_promise_assumes(tmp_path: Path, lie: dict[str, Any]) -> None:
    """The device would accept either assumption if it stood from the first report on."""
    honest = SHUFFLE | {"experiment.reports_per_person": 3, "privacy.honest_fraction": 0.5}
    server, limits = Server(published(make_spec(honest))), Limits(delta=1e-5, local_epsilon=100.0, arms="hidden")
    device = Device(tmp_path, server, limits=limits, shuffler="http://shuffler")
    assert take_part(device) is Outcome.ACCEPTED
    device.clock.time += DAY
    server.moves_on(make_spec(honest | lie), 2)
    with pytest.raises(TermsRefused):
        take_part(device)
    assert len(server.sent) == 1


def _returning() -> dict[str, Spec]:
    """Every small spec whose people may come back three times."""
    found: dict[str, Spec] = {}
    for name in ALGORITHMS:
        kind = algorithm(name).spec
        for instance, spec in kind.instances().items():
            data = spec.model_dump(mode="json", exclude_none=True)
            data["experiment"]["reports_per_person"] = 3
            with suppress(SpecError):
                found[f"{name}-{instance}"] = parse_section(kind, data)
    return found


RETURNING = _returning()


@pytest.mark.parametrize("spec", RETURNING.values(), ids=RETURNING)
def test_no_learner_asks_for_more_than_a_reports_share(spec: Spec) -> None:
    terms = Schedule(spec).open(7).policy.terms
    assert (terms.reports, terms.holds) == (spec.reports, True)
