"""A device reports covariates while an experiment learns slopes, and adjusts rewards by the slopes later."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import ReportStatus
from privateer_client.client import Client
from privateer_core.algorithms import parse_spec
from privateer_core.errors import InputError, InvalidValueWarning, PrivateerError
from privateer_core.mechanisms.cell_pairs import REPORT, UNIT
from privateer_core.mechanisms.cell_products import RECORD
from privateer_core.spec.spec import Spec
from tests.support.experiments import WEEK, Device, Server
from tests.support.publications import published
from tests.support.specs import tables

CONTEXT = {"x1": 0.3, "x2": 0.9}
SLOPES = [{"slope": 0.5, "mean": 0.4}]


def spec_of(**changes: Any) -> Spec:
    settings = {
        "algorithm.name": "trial",
        "privacy.model": "none",
        "privacy.epsilon": None,
        "reward.low": 0.0,
        "reward.high": 100.0,
        "reward.kind": "numeric",
        "reward.covariates": {"minutes": {"low": 0.0, "high": 50.0}},
    }
    return parse_spec(tables(settings | changes))


def publish_with_slopes(spec: Spec, version: int, slopes: Any = SLOPES) -> bytes:
    """A later round, which adjusts by a slope that is known."""
    return published(
        spec,
        version=version,
        policy={"learned": slopes},
        mechanism={"type": "cell-triples"},
        round_={"sealed_size": 64 + REPORT.itemsize},
    )


def decode_report(server: Server, kind: Any) -> tuple[float, ...]:
    """Return reward and number of the only report, on the scale from 0 to 1."""
    (record,) = np.frombuffer(server.open_report()[-kind.itemsize :], kind)
    return tuple(round(float(record[name]) / UNIT, 3) for name in kind.names[1:])


@pytest.mark.parametrize(
    ("minutes", "number"),
    [(40.0, 0.8), (-5.0, 0.0), (1e300, 1.0), (None, 0.5), (float("nan"), 0.5), (float("inf"), 1.0)],
    ids=str,
)
def test_in_the_first_look_a_record_has_the_number_within_its_bounds_and_the_reward_as_it_is(tmp_path, minutes, number):
    server = Server(published(spec_of()))
    session = Device(tmp_path, server).start().join("test")
    assert session.features == ("x1", "x2", "minutes")
    session.choose({**CONTEXT, "minutes": minutes})
    assert session.report(70.0) is ReportStatus.ACCEPTED
    assert decode_report(server, RECORD) == (0.7, number)


@pytest.mark.parametrize(("minutes", "reward"), [(40.0, 0.5), (0.0, 0.9), (None, 0.65)], ids=str)
def test_in_later_looks_a_record_has_the_adjusted_reward_alone(tmp_path: Path, minutes: Any, reward: float) -> None:
    """.7 - .5 (.8 - .4); a missing number counts as the middle of its bounds."""
    server = Server(publish_with_slopes(spec_of(), 2))
    session = Device(tmp_path, server).start().join("test")
    session.choose({**CONTEXT, "minutes": minutes})
    assert session.report(70.0) is ReportStatus.ACCEPTED
    assert decode_report(server, REPORT) == (reward,)


def test_the_round_that_takes_the_report_says_the_slope_and_the_choice_has_the_number(tmp_path: Path) -> None:
    spec = spec_of(**{"experiment.conversion_window_seconds": WEEK})
    server = Server(published(spec))
    device = Device(tmp_path, server)
    device.start().join("test").choose({**CONTEXT, "minutes": 40.0})
    session = device.start().join("test")
    session.choose({**CONTEXT, "minutes": 0.0})
    assert session.report(70.0) is ReportStatus.PENDING
    server.body = publish_with_slopes(spec, 2)
    device.clock.time += 2 * WEEK
    device.start().flush()
    assert decode_report(server, REPORT) == (0.5,)


@pytest.mark.parametrize("kind", ["first", "later"])
def test_nothing_on_the_wire_or_on_disk_has_another_size_without_the_number(tmp_path: Path, kind: str) -> None:
    sizes = set()
    for index, minutes in enumerate((40.0, None, 0.0, 1 / 3)):
        server = Server(published(spec_of()) if kind == "first" else publish_with_slopes(spec_of(), 2))
        (tmp_path / str(index)).mkdir()
        device = Device(tmp_path / str(index), server)
        session = device.start().join("test")
        session.choose({**CONTEXT, "minutes": minutes})
        stored_size = len(device.files())
        session.report(50.0)
        sizes.add((stored_size, len(server.posts[0]), server.exchanges))
    assert len(sizes) == 1


def test_a_number_of_another_kind_counts_as_missing_and_is_not_echoed(tmp_path: Path) -> None:
    server = Server(published(spec_of()))
    session = Device(tmp_path, server).start().join("test")
    with pytest.warns(InvalidValueWarning, match="minutes") as warned:
        session.choose({**CONTEXT, "minutes": "41"})
    assert all("41" not in str(warning.message) for warning in warned)
    session.report(50.0)
    assert decode_report(server, RECORD) == (0.5, 0.5)
    with pytest.raises(InputError) as error:
        Device(tmp_path, Server(published(spec_of()))).start().join("test").choose(CONTEXT, fresh=True)
    assert error.value.field == "minutes"


@pytest.mark.parametrize("slopes", [[{"slope": 1.6, "mean": 0.4}], SLOPES * 2, [{"slope": 0.5, "mean": -0.1}]])
def test_invalid_slopes_are_refused_before_a_report_is_sent(tmp_path: Path, slopes: Any) -> None:
    server = Server(publish_with_slopes(spec_of(), 2, slopes))
    client: Client = Device(tmp_path, server).start()
    with pytest.raises(PrivateerError):
        client.join("test")
    assert not server.posts
