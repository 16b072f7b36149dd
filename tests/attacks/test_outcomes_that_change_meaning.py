"""A server that waits until a person has chosen, and then has their outcome mean something else.

The device keeps outcomes as numbers. Read by another spec they would be answers to other questions, or make the
application's next start fail, again and again.
"""

from pathlib import Path
from typing import Any

import pytest

from privateer_core.algorithms import parse_spec
from privateer_core.privacy.terms_verification import Limits
from privateer_core.spec.spec import Spec
from tests.support.experiments import WEEK, Device, Server
from tests.support.publications import published

LIMITS = Limits(arms="hidden")
POINTS = {"domain": {"shape": "ball", "dimension": 2}}
ARMS = {"context": {"features": {"x1": {"low": 0.0, "high": 1.0}}}}
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
    table = {"name": "test", "horizon": 20_000, "round_size": 2_000, "conversion_window": WEEK}
    experiment = table if has_points else table | {"arms": ["a", "b"]}
    privacy = {"model": "local", "epsilon": 1.0}
    parts = POINTS if has_points else ARMS
    return parse_spec({"experiment": experiment, "privacy": privacy, "algorithm": algorithm, **parts})


def waiting(folder: Path, algorithm: dict[str, Any]) -> Device:
    """A device that has kept a choice, and been told no outcome."""
    spec = spec_of(algorithm)
    device = Device(folder, Server(published(spec)), limits=LIMITS)
    device.start().join("test").choose(dict.fromkeys(spec.features, 0.5))
    device.clock.time += 1.1 * WEEK
    return device


@pytest.mark.parametrize(("before", "after"), CHANGES.values(), ids=CHANGES)
def test_nothing_is_sent_and_nothing_is_paid(tmp_path: Path, before: dict[str, Any], after: dict[str, Any]) -> None:
    device = waiting(tmp_path, before)
    device.server.moves_on(spec_of(after), 2)
    client = device.start()
    client.resend()
    assert client.join("test").asked
    assert not device.server.sent
    assert not device.ledger().payments()


@pytest.mark.parametrize("algorithm", [ONE, TWO, ASKS], ids=["one point", "two points", "answers"])
def test_an_outcome_of_the_same_meaning_is_reported(tmp_path: Path, algorithm: dict[str, Any]) -> None:
    device = waiting(tmp_path, algorithm)
    device.server.moves_on(spec_of(algorithm), 2)
    device.start().resend()
    assert len(device.server.sent) == 1
