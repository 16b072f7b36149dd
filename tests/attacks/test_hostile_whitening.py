"""A server whose matrix sends some people's contexts to 0, so that they have no direction to tell.

Whether a device reports must not tell who has such a context: a report is made of every one.
"""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import Outcome
from privateer_core.privacy.terms_verification import Limits
from tests.support.experiments import Device, Server
from tests.support.linears import linear_spec
from tests.support.publications import published

ALLOWS = {"local": Limits(), "shuffle": Limits(local_epsilon=10.0), "central": Limits(curator=True)}
SUMS = np.ones((2, 2))
"""The row of whoever says no, (1, -1), times this is 0."""


def traffic(folder: Path, model: str, value: bool) -> tuple[Outcome, list[int], Any]:
    """All that anybody but the device sees of a person, and what was paid."""
    folder.mkdir()
    spec = linear_spec(model, {"smoker": {"boolean": True}})
    server = Server(published(spec, policy={"whitening": (SUMS.dtype.str, SUMS.shape, SUMS.tobytes())}))
    device = Device(folder, server, limits=ALLOWS[model], shuffler="http://shuffler")
    session = device.start().join("test")
    session.choose({"smoker": value})
    return session.report(1.0), [len(body) for body in server.sent], device.ledger().payments()


@pytest.mark.parametrize("model", ALLOWS)
def test_whoever_has_no_direction_sends_and_pays_the_same(tmp_path: Path, model: str) -> None:
    no, yes = (traffic(tmp_path / str(value), model, value) for value in (False, True))
    assert no == yes
    assert no[0] is Outcome.ACCEPTED
