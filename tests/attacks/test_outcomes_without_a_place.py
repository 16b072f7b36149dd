"""Outcomes that an experiment has no place for: whether and what a device sends must not tell who has one."""

import warnings
from pathlib import Path
from typing import Any

import pytest

from privateer_client import Outcome, UnfitValueWarning
from privateer_client.inputs import read_outcome
from privateer_core.algorithms.trial import TrialSpec
from privateer_core.spec.spec import Spec
from privateer_server.rounds.loop import Schedule
from tests.support.experiments import CONTEXT, WEEK, Device, Server, waiting_spec
from tests.support.publications import published
from tests.support.specs import make_spec

UNFIT: dict[str, Any] = {
    "a missing reward": None,
    "not a number": float("nan"),
    "a text": "41.5",
    "a list": [41.5],
    "a mapping": {"reward": 41.5},
    "a mapping of itself": {},
}
UNFIT["a mapping of itself"]["reward"] = UNFIT["a mapping of itself"]
SOURCE = {"name": "clinic", "people": 2000, "epsilon": 1.0, "shares": [0.5, 0.25, 0.25]}


def traffic(folder: Path, spec: Spec, context: dict[str, Any], reward: Any) -> tuple[Any, int, list[int], list[Any]]:
    """All that anybody but the device sees of a person: how much was asked, the sizes sent, and what was paid."""
    folder.mkdir()
    server = Server(published(spec))
    device = Device(folder, server)
    session = device.start().join("test")
    session.choose(context)
    outcome = session.report(reward)
    return outcome, len(server.asked), [len(body) for body in server.sent], device.ledger().payments()


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
@pytest.mark.parametrize("reward", [*UNFIT.values(), True, 10**400], ids=[*UNFIT, "yes", "a huge number"])
def test_whatever_comes_of_a_choice_the_device_sends_and_pays_the_same(tmp_path: Path, reward: Any) -> None:
    usual = traffic(tmp_path / "usual", make_spec(), CONTEXT, 1.0)
    assert usual[0] is Outcome.ACCEPTED
    assert traffic(tmp_path / "unfit", make_spec(), CONTEXT, reward) == usual


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
@pytest.mark.parametrize("reward", UNFIT.values(), ids=UNFIT)
def test_members_of_a_source_send_and_pay_the_same(tmp_path: Path, reward: Any) -> None:
    server = Server(published(make_spec({"sources": [SOURCE]})))
    device = Device(tmp_path, server)
    member = device.start().join("test", cohort="clinic")
    assert member.report_past(CONTEXT, "arm-1", reward) is Outcome.ACCEPTED
    assert (len(server.sent), len(device.ledger().payments())) == (1, 1)


@pytest.mark.filterwarnings("ignore::privateer_core.errors.UnfitValueWarning")
@pytest.mark.parametrize(("reward", "counts"), [(None, 0.25), ("41.5", 0.25), (True, 1.0), (10**400, 1.0)])
def test_what_does_not_fit_counts_as_the_default_outcome(tmp_path: Path, reward: Any, counts: float) -> None:
    """A window makes the report due a week later, whatever came of the choice."""
    server = Server(published(waiting_spec(reward={"default": 0.25})))
    device = Device(tmp_path, server)
    session = device.start().join("test")
    session.choose(CONTEXT)
    assert session.report(reward) is Outcome.PENDING
    device.clock.step(1.1 * WEEK)
    assert device.start().resend() == {"test": Outcome.ACCEPTED}
    assert server.reward() == counts


def test_the_developer_is_told_and_nobody_else(tmp_path: Path) -> None:
    """An application that makes the warning an error keeps the device from reporting: right in its tests alone."""
    server = Server(published(make_spec()))
    session = Device(tmp_path, server).start().join("test")
    session.choose(CONTEXT)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UnfitValueWarning)
        with pytest.raises(UnfitValueWarning, match=r"reward: .* no outcome \(report 0 or 1") as told:
            session.report("41.5")
    assert "41" not in str(told.value)
    assert server.sent == []


@pytest.mark.parametrize(
    ("told", "counts"),
    [
        ({"reward": 0.25, "refund": None, "call": True}, [0.25, 0.0, 1.0]),
        ({"reward": None, "refund": True}, [0.0, 1.0, 0.0]),
        ({"reward": 0.25, "refund": "yes", "call": 1, "mood": 41}, [0.25, 0.0, 1.0]),
        (None, [0.0, 0.0, 0.0]),
    ],
)
def test_each_answer_to_a_guardrail_counts_by_itself(told: Any, counts: list[float]) -> None:
    tables = TrialSpec.instances()["none"].model_dump(exclude_none=True)
    tables["algorithm"] |= {"guardrails": ["refund", "call"], "allocation": "fixed"}
    spec = TrialSpec.model_validate(tables)
    with pytest.warns(UnfitValueWarning, match="no outcome"):
        rewards, clipped = read_outcome(Schedule(spec).open(5).policy, spec, "a", told)
    assert (rewards.tolist(), clipped) == ([counts], False)
