"""A client of one person refuses what only two people have, and nothing that one person does."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from privateer_client import in_time
from privateer_core.errors import InputError
from tests.support.experiments import CONTEXT, OTHER, Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec


@pytest.fixture
def device(tmp_path: Path) -> Device:
    return Device(tmp_path, Server(published(make_spec())))


def test_an_arm_stands_in_another_context_while_the_page_has_the_one_of_before(
    device: Device, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute `arm` joins anew: that session and the one of before are one person's."""
    monkeypatch.setattr(in_time, "LASTS", 0.0)
    with device.start() as client:
        shown = [client.arm("test", context, default="d", within=5.0) for context in (CONTEXT, OTHER, CONTEXT)]
    assert len({id(one.session) for one in shown}) > 1  # the test can see
    assert {one.fallback for one in shown} == {None}
    assert len({one.name for one in shown}) == 1


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
@pytest.mark.parametrize(
    "value", [lambda: float("nan"), lambda: np.array([1, 2]), lambda: np.float64(0.5), lambda: None]
)
def test_a_value_never_raises_in_a_second_session(device: Device, value: Any) -> None:
    client = device.start()
    sessions = [client.join("test") for _ in range(2)]
    assert len({session.choose({"x1": value(), "x2": 0.5}) for session in sessions}) == 1


@pytest.mark.parametrize("other", [{"x1": np.array([1, 3]), "x2": 0.5}, {"x1": 0.25, "x2": 0.5}])
@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
def test_a_second_persons_context_is_still_refused(device: Device, other: dict[str, Any]) -> None:
    client = device.start()
    sessions = [client.join("test") for _ in range(2)]
    sessions[0].choose({"x1": np.array([1, 2]), "x2": 0.5})
    with pytest.raises(InputError, match="is one person"):
        sessions[1].choose(other)
