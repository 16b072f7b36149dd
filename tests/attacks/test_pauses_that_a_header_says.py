"""A header that nobody signs says that an experiment is paused: it delays reports, and destroys none."""

from pathlib import Path

import pytest

from privateer_client import Outcome
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY
from tests.support.clocks import Hands
from tests.support.experiments import CONTEXT, Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec

SPEC = make_spec({"privacy.model": "none", "privacy.epsilon": None})


@pytest.mark.parametrize("seconds", [0, 10])
def test_a_choice_outlives_a_pause_in_which_the_device_joins_again(seconds: float, tmp_path: Path) -> None:
    server, clock = Server(published(SPEC)), Hands()
    device = Device(tmp_path, server, clock)
    device.start().join(SPEC.name).choose(CONTEXT)
    server.headers = {ASKS_HEADER: ASKS_NOBODY}
    session = device.start().join(SPEC.name)
    server.headers = {}
    clock.time += seconds
    assert session.report(0.7) == Outcome.ACCEPTED
    assert len(server.sent) == 1
