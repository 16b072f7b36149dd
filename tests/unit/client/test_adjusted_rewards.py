"""A device adjusts rewards by covariates of the context, and no message on the wire reveals them."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import ReportStatus
from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, InvalidValueWarning
from privateer_core.mechanisms.cell_pairs import REPORT, UNIT
from privateer_core.spec.spec import Spec
from tests.support.experiments import WEEK, Device, Server
from tests.support.publications import published
from tests.support.specs import tables

CONTEXT = {"x1": 0.3, "x2": 0.9}


def spec_of(**changes: Any) -> Spec:
    settings = {
        "algorithm.name": "trial",
        "privacy.model": "none",
        "privacy.epsilon": None,
        "reward.low": -60.0,
        "reward.high": 120.0,
        "reward.kind": "numeric",
        "reward.covariates": {"minutes": {"mean": 31.0, "slope": 0.8}, "x1": {"mean": 0.5, "slope": 10.0}},
    }
    return parse_spec(tables(settings | changes))


def reported_reward(server: Server) -> float:
    """Return the reward of the only report, in its unit."""
    (record,) = np.frombuffer(server.open_report()[-REPORT.itemsize :], REPORT)
    return round(-60.0 + 180.0 * float(record["value"]) / UNIT, 1)


@pytest.fixture
def server() -> Server:
    return Server(published(spec_of()))


@pytest.fixture
def device(tmp_path: Path, server: Server) -> Device:
    return Device(tmp_path, server)


@pytest.mark.parametrize(
    ("minutes", "reward", "expected"),
    [
        (41.0, 50.0, 44.0),  # 50 - .8 (41 - 31) - 10 (.3 - .5)
        (None, 50.0, 52.0),
        (float("nan"), 50.0, 52.0),
        (np.float32(41.0), 50.0, 44.0),
        (41.0, None, -6.0),  # no outcome is a reward of 0, which was expected to be higher as well
        (41.0, 1e9, 114.0),
        (float("inf"), 50.0, -60.0),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore::privateer_core.errors.InvalidValueWarning")
def test_a_report_carries_the_reward_minus_its_expected_part(device, server, minutes, reward, expected):
    session = device.start().join("test")
    assert session.features == ("x1", "x2", "minutes")
    session.choose({**CONTEXT, "minutes": minutes})
    assert session.report(reward) is ReportStatus.ACCEPTED
    assert reported_reward(server) == expected


def test_a_number_counts_as_it_was_when_the_person_chose(tmp_path: Path) -> None:
    """A stored choice keeps its covariate in other sessions, since a later value could depend on the arm."""
    server = Server(published(spec_of(**{"experiment.conversion_window_seconds": WEEK})))
    device = Device(tmp_path, server)
    device.start().join("test").choose({**CONTEXT, "minutes": 41.0})
    session = device.start().join("test")
    session.choose({**CONTEXT, "minutes": 1000.0})
    assert session.report(50.0) is ReportStatus.PENDING
    device.clock.time += 2 * WEEK
    device.start().flush()
    assert reported_reward(server) == 44.0


def test_without_an_outcome_the_default_is_adjusted(tmp_path: Path) -> None:
    server = Server(published(spec_of(**{"experiment.conversion_window_seconds": WEEK})))
    device = Device(tmp_path, server)
    device.start().join("test").choose({**CONTEXT, "minutes": 41.0})
    device.clock.time += 2 * WEEK
    device.start().flush()
    assert reported_reward(server) == -6.0


@pytest.mark.parametrize("minutes", ["41", True, [41.0], 10**400], ids=["text", "yes", "list", "huge"])
def test_an_invalid_covariate_counts_as_missing_and_is_not_echoed(device: Device, server: Server, minutes: Any) -> None:
    session = device.start().join("test")
    with pytest.warns(InvalidValueWarning, match="minutes") as caught:
        session.choose({**CONTEXT, "minutes": minutes})
    assert all("41" not in str(warning.message) for warning in caught)
    session.report(50.0)
    assert reported_reward(server) == 52.0


@pytest.mark.parametrize(
    ("context", "field"),
    [(CONTEXT, "minutes"), ({"x2": 0.9, "minutes": 41.0}, "x1"), ({**CONTEXT, "minutes": 41.0, "hours": 2}, "hours")],
)
def test_names_that_are_missing_or_unknown_are_refused(device: Device, context: Any, field: str) -> None:
    session = device.start().join("test")
    with pytest.raises(InputError) as error:
        session.choose(context)
    assert error.value.field == field
    assert error.value.remedy
    assert "41" not in str(error.value)


def test_nothing_on_the_wire_or_on_disk_has_another_size_without_the_number(tmp_path: Path) -> None:
    sizes = set()
    for index, minutes in enumerate((41.0, None, 0.0)):
        server = Server(published(spec_of()))
        device = Device(tmp_path / str(index), server)
        (tmp_path / str(index)).mkdir()
        session = device.start().join("test")
        session.choose({**CONTEXT, "minutes": minutes})
        stored_size = len(device.files())
        session.report(50.0)
        sizes.add((stored_size, len(server.posts[0]), server.exchanges))
    assert len(sizes) == 1
