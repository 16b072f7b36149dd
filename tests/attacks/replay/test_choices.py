"""Many choices, sessions and workers of one person: promises hold in any order."""

import random
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from privateer_client import ChoiceState, ReportStatus, Session
from privateer_client.participation import StoredChoice
from privateer_client.person_choice import PersonChoice
from privateer_core.errors import AlreadyReported, Deleted, InputError, TermsRefused, Unavailable
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY, decode_envelope
from tests.support.experiments import CONTEXT, OTHER, Device, Server, waiting_spec
from tests.support.notary import Notary
from tests.support.publications import published
from tests.support.specs import make_spec

# While a server takes its time an application goes on: it reports again, erases, and chooses anew, in any session.


IDENTITY = "http://s/test"
MEANWHILE: dict[str, Callable[[Session[ReportStatus], Device], Any]] = {
    "choose": lambda session, _: session.choose(CONTEXT),
    "choose anew": lambda session, _: session.choose(OTHER, fresh=True),
    "choose, not sticky": lambda session, _: session.choose(CONTEXT, sticky=False),
    "report": lambda session, _: session.report(0.0),
    "flush": lambda _, device: device.start().flush(),
    "join": lambda _, device: device.start().join("test").choose(OTHER),
    "forget": lambda session, _: session.forget(),
    "forget elsewhere": lambda _, device: device.start().resume("test").forget(),
    "erase from the ledger": lambda _, device: device.ledger().forget(IDENTITY),
    "forget, and choose": lambda session, _: (session.forget(), session.choose(OTHER)),
}
ERASE = {"forget", "forget elsewhere", "erase from the ledger", "forget, and choose"}


class SlowEndpoint:
    """A server that leaves time before it answers the question which round is open, and then answers in one way."""

    def __init__(self, folder: Path, end: str) -> None:
        self.server, self.end = Server(published(make_spec())), end
        self.act: Callable[[Session[ReportStatus], Device], Any] | None = None
        notary = Notary()
        self.device = Device(folder, self.server, transport=notary.transport(self.server))
        self.session = self.device.start(transport=notary.transport(self)).join("test")
        self.session.choose(CONTEXT)
        if end == "expired":
            self.server.moves_on(make_spec(), 1_000_001)
        self.device.clock.time += 60.0

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET" and self.act is not None:
            act, self.act = self.act, None
            act(self.session, self.device)
            if self.end == "declined":
                raise httpx.ConnectError("away")
            if self.end == "deleted":
                return httpx.Response(410)
        return self.server(request)


@pytest.mark.parametrize("end", ["taken", "declined", "expired", "deleted"])
@pytest.mark.parametrize("act", MEANWHILE)
def test_acts_during_a_report_neither_lose_nor_repeat_it(tmp_path: Path, act: str, end: str) -> None:
    slow = SlowEndpoint(tmp_path, end)
    slow.act = MEANWHILE[act]
    outcome = slow.session.report(1.0)
    assert slow.act is None  # it was done
    assert len(set(slow.server.posts)) == len(slow.device.ledger().payments()) <= 1
    is_paid = bool(slow.device.ledger().payments())
    assert not (outcome is ReportStatus.NOT_REQUESTED and is_paid and end != "deleted")
    assert (slow.session.state is ChoiceState.DELIVERED) is (is_paid and end != "deleted")
    assert slow.session.choose(CONTEXT)


@pytest.mark.parametrize("end", ["taken", "declined", "expired", "deleted"])
@pytest.mark.parametrize("act", sorted(ERASE))
def test_a_choice_erased_during_a_report_is_not_reported(tmp_path: Path, act: str, end: str) -> None:
    slow = SlowEndpoint(tmp_path, end)
    erased = slow.device.ledger().choice(IDENTITY)
    slow.act = MEANWHILE[act]
    assert slow.session.report(1.0) is ReportStatus.NOT_REQUESTED
    stored = slow.device.ledger().choice(IDENTITY)
    assert (stored is not None) is (act == "forget, and choose" and end != "deleted")
    assert stored is None or not stored.is_same_choice(erased)
    slow.end = "taken"
    assert slow.device.start().flush() == {}
    assert (slow.server.posts, slow.device.ledger().payments()) == ([], [])


@pytest.mark.parametrize("spec", [make_spec(), waiting_spec()], ids=["at once", "after a window"])
@pytest.mark.parametrize("act", ["forget elsewhere", "erase from the ledger"])
def test_a_choice_erased_elsewhere_is_not_reported(tmp_path: Path, spec: Any, act: str) -> None:
    device = Device(tmp_path, Server(published(spec)))
    session = device.start().join("test")
    session.choose(CONTEXT)
    MEANWHILE[act](session, device)
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    assert session.state is ChoiceState.OFFERED
    assert device.ledger().experiments_with_choice() == []
    assert (device.server.posts, device.ledger().payments()) == ([], [])
    assert session.choose(CONTEXT)
    assert session.report(1.0) in {ReportStatus.ACCEPTED, ReportStatus.PENDING}


def test_an_erased_choice_is_not_reported_after_another_choice(tmp_path: Path) -> None:
    device = Device(tmp_path, Server(published(make_spec())))
    session, other = device.start().join("test"), device.start().join("test")
    session.choose(CONTEXT)
    device.ledger().forget(IDENTITY)
    other.choose(OTHER)
    stored = device.ledger().choice(IDENTITY)
    assert session.report(1.0) is ReportStatus.NOT_REQUESTED
    after = device.ledger().choice(IDENTITY)
    assert after.is_same_choice(stored)
    assert other.report(1.0) is ReportStatus.ACCEPTED


# Random stories of one person and two sessions: whatever comes in whatever order, the promises to the person hold.


STORIES: Final = 50
DAY: Final = 86_400.0
IDENTITY_OF_STORIES: Final = "http://s/test"
SESSIONS: Final = {
    "choose": (10, lambda session: session.choose(CONTEXT)),
    "choose anew": (3, lambda session: session.choose(OTHER, fresh=True)),
    "report": (10, lambda session: session.report(1.0)),
    "forget": (2, lambda session: session.forget()),
}
OTHERS: Final = {
    "join": 8, "resume": 2, "flush": 5, "pass": 8, "step": 2, "publish": 3, "jump": 1, "retire": 1, "pause": 2,
    "ask": 3, "away": 2, "back": 8, "refuse": 1, "take": 3, "delete": 1, "erase": 1,
}  # fmt: skip
REASONS: Final = {"choose anew", "forget", "erase", "retire", "jump", "delete", "step", "pass"}
"""What an arm may change for, where nobody is asked."""


class RandomHistory:
    """A participant's random sequence of events, with checks of all promises after each."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir()
        self.random = random.Random(seed)
        self.periods, self.window = self.random.choice([1, 1, 3]), self.random.choice([0.0, 0.0, DAY])
        self.version, self.retired = 1, list[str]()
        self.server = Server(self._published())
        self.device = Device(folder, self.server)
        self.sessions = dict[int, Session[ReportStatus]]()
        self.erased = list[StoredChoice]()
        self.reported = list[StoredChoice]()
        self.arm: tuple[Any, bool] | None = None  # shown last, and whether there was a reason to change it since

    def _published(self) -> bytes:
        changes = {"experiment.conversion_window_seconds": self.window, "experiment.retired_arms": self.retired}
        if self.periods > 1:
            changes |= {"experiment.reports_per_person": self.periods, "experiment.report_period_seconds": DAY}
        return published(make_spec(changes), version=self.version)

    def go_on(self) -> None:
        """Do something, and check what must hold then."""
        ledger, weights = self.device.ledger(), OTHERS | {name: weight for name, (weight, _) in SESSIONS.items()}
        (event,) = self.random.choices(list(weights), list(weights.values()))
        stored, payment = ledger.choice(IDENTITY_OF_STORIES), ledger.payment(IDENTITY_OF_STORIES)
        with pytest.MonkeyPatch.context() as patch:
            make = PersonChoice.make_report
            patch.setattr(
                PersonChoice,
                "make_report",
                lambda steps, choice, opened: self._note_report(choice, make(steps, choice, opened)),
            )
            self._do(event)
        if stored is not None and (event == "erase" or (event == "forget" and self.sessions)):
            self.erased.append(stored)
        if event in REASONS and self.arm is not None:
            self.arm = self.arm[0], True
        now = ledger.payment(IDENTITY_OF_STORIES)
        assert (now.made if now else 0) - (payment.made if payment else 0) in {0, 1}
        assert now is None or payment is None or now.made == payment.made or now.period > payment.period
        bodies = {*self.server.posts, *(report.body for report in ledger.pending_reports())}
        assert len(bodies) <= (now.made if now else 0) <= self.periods
        assert len({decode_envelope(body).header.version for body in bodies}) == len(bodies)  # a round has one of them

    def _note_report(self, choice: StoredChoice, report: Any) -> Any:
        if report is not None:
            assert not any(choice.is_same_choice(erased) for erased in self.erased)
            self.reported.append(choice)
        return report

    def _do(self, event: str) -> None:
        number, start = self.random.randrange(2), self.device.start
        if event in SESSIONS:
            if self.sessions:
                self._use(event, self.sessions.get(number) or self.sessions[1 - number])
            return
        clock, server = self.device.clock, self.server
        match event:
            case "join" | "resume":
                try:
                    self.sessions[number] = getattr(start(), event)("test")
                except (Unavailable, Deleted, AlreadyReported, InputError) as error:
                    assert event == "resume" or not isinstance(error, InputError | AlreadyReported)  # noqa: PT017
            case "flush":
                start().flush()
            case "pass" | "step":
                seconds = self.random.choice([10.0, 3600.0, DAY, 3 * DAY])
                if event == "step":
                    clock.step(self.random.choice([-seconds, seconds]))
                else:
                    clock.time += seconds
            case "publish" | "jump" | "retire":
                self.version = self.version + 1 if event != "jump" else (self.version // 10**6 + 1) * 10**6 + 1
                self.retired = ["arm-1"] if event == "retire" else self.retired
                server.body, clock.time = self._published(), clock.time + 60.0
            case "pause" | "ask":
                server.headers = {ASKS_HEADER: ASKS_NOBODY} if event == "pause" else {}
            case "away" | "back":
                server.is_down = event == "away"
            case "refuse" | "take":
                server.answer = httpx.Response(503) if event == "refuse" else None
            case "delete":
                self.device.ledger().discard(IDENTITY_OF_STORIES)
            case "erase":
                self.device.ledger().forget(IDENTITY_OF_STORIES)

    def _use(self, event: str, session: Session[ReportStatus]) -> None:
        stored, arm = self.device.ledger().choice(IDENTITY_OF_STORIES), self.arm
        try:
            arm_or_status = SESSIONS[event][1](session)
        except (InputError, TermsRefused) as error:
            assert (event, error.field) in {("report", "reward"), ("report", "spec"), ("report", "version")}  # noqa: PT017
            return
        # Sessions of before know nothing of what retires arms, or ends reports on earlier versions.
        if event == "choose" and arm is not None and not (arm[1] or self.retired or self.version > 10**6):
            assert arm_or_status == arm[0] or (session.report_requested and stored is None)
        if event.startswith("choose"):
            self.arm = arm_or_status, event == "choose anew"


def play_history(folder: Path, seed: int) -> RandomHistory:
    story = RandomHistory(folder, seed)
    for _ in range(40):
        story.go_on()
    return story


def test_random_histories_keep_the_promises(tmp_path: Path) -> None:
    histories = [play_history(tmp_path / str(seed), seed) for seed in range(STORIES)]
    assert sum(len(story.reported) for story in histories) > STORIES / 4  # they are not about nothing
    assert sum(len(story.erased) for story in histories) > STORIES / 6


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (PersonChoice, "is_stored", lambda *_: 1 / 0),
        (PersonChoice, "load_valid_arm", lambda *_: None),
        (PersonChoice, "load_valid_choice", lambda *_, **__: None),
        (PersonChoice, "forget", lambda *_: None),
    ],
    ids=["an exception", "an arm that does not stay", "a choice that does not stand", "a choice that is not erased"],
)
def test_a_planted_defect_is_detected(tmp_path, monkeypatch, owner, name, wrong):
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        deque((play_history(tmp_path / str(seed), seed) for seed in range(STORIES)), maxlen=0)
