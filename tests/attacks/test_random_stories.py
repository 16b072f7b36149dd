"""Random stories of one person and two sessions: whatever comes in whatever order, the promises to the person hold."""

import random
from collections import deque
from pathlib import Path
from typing import Any, Final

import httpx
import pytest

from privateer_client import Outcome, Session
from privateer_client.ledger.choice import KeptChoice
from privateer_client.person_choice import PersonChoice
from privateer_core.errors import AlreadyReported, Deleted, InputError, TermsRefused, Unavailable
from privateer_core.wire.envelope import decode_envelope
from privateer_core.wire.publication import ASKS_HEADER, ASKS_NOBODY
from tests.support.experiments import CONTEXT, OTHER, Device, Server
from tests.support.publications import published
from tests.support.specs import make_spec

STORIES: Final = 50
DAY: Final = 86_400.0
IDENTITY: Final = "http://s/test"
SESSIONS: Final = {
    "choose": (10, lambda session: session.choose(CONTEXT)),
    "choose anew": (3, lambda session: session.choose(OTHER, fresh=True)),
    "report": (10, lambda session: session.report(1.0)),
    "forget": (2, lambda session: session.forget()),
}
OTHERS: Final = {
    "join": 8, "resume": 2, "resend": 5, "pass": 8, "step": 2, "publish": 3, "jump": 1, "retire": 1, "pause": 2,
    "ask": 3, "away": 2, "back": 8, "refuse": 1, "take": 3, "delete": 1, "erase": 1,
}  # fmt: skip
REASONS: Final = {"choose anew", "forget", "erase", "retire", "jump", "delete", "step", "pass"}
"""What an arm may change for, where nobody is asked."""


class Story:
    """What happens, and what a person was promised about it."""

    def __init__(self, folder: Path, seed: int) -> None:
        folder.mkdir()
        self.random = random.Random(seed)
        self.periods, self.window = self.random.choice([1, 1, 3]), self.random.choice([0.0, 0.0, DAY])
        self.version, self.retired = 1, list[str]()
        self.server = Server(self._published())
        self.device = Device(folder, self.server)
        self.sessions = dict[int, Session[Outcome]]()
        self.erased = list[KeptChoice]()
        self.made = list[KeptChoice]()
        self.arm: tuple[Any, bool] | None = None  # shown last, and whether there was a reason to change it since

    def _published(self) -> bytes:
        changes = {"experiment.conversion_window": self.window, "experiment.retired": self.retired}
        if self.periods > 1:
            changes |= {"experiment.reports_per_person": self.periods, "experiment.report_period": DAY}
        return published(make_spec(changes), version=self.version)

    def go_on(self) -> None:
        """Do something, and check what must hold then."""
        ledger, weights = self.device.ledger(), OTHERS | {name: weight for name, (weight, _) in SESSIONS.items()}
        (what,) = self.random.choices(list(weights), list(weights.values()))
        kept, paid = ledger.choice(IDENTITY), ledger.payment(IDENTITY)
        with pytest.MonkeyPatch.context() as patch:
            make = PersonChoice.make
            patch.setattr(
                PersonChoice, "make", lambda own, choice, opened: self._noted(choice, make(own, choice, opened))
            )
            self._do(what)
        if kept is not None and (what == "erase" or (what == "forget" and self.sessions)):
            self.erased.append(kept)
        if what in REASONS and self.arm is not None:
            self.arm = self.arm[0], True
        now = ledger.payment(IDENTITY)
        assert (now.made if now else 0) - (paid.made if paid else 0) in {0, 1}
        assert now is None or paid is None or now.made == paid.made or now.period > paid.period
        bodies = {*self.server.sent, *(report.body for report in ledger.waiting())}
        assert len(bodies) <= (now.made if now else 0) <= self.periods
        assert len({decode_envelope(body).header.version for body in bodies}) == len(bodies)  # a round has one of them

    def _noted(self, choice: KeptChoice, made: Any) -> Any:
        if made is not None:
            assert not any(choice.is_same(one) for one in self.erased)
            self.made.append(choice)
        return made

    def _do(self, what: str) -> None:
        number, start = self.random.randrange(2), self.device.start
        if what in SESSIONS:
            if self.sessions:
                self._use(what, self.sessions.get(number) or self.sessions[1 - number])
            return
        clock, server = self.device.clock, self.server
        match what:
            case "join" | "resume":
                try:
                    self.sessions[number] = getattr(start(), what)("test")
                except (Unavailable, Deleted, AlreadyReported, InputError) as error:
                    assert what == "resume" or not isinstance(error, InputError | AlreadyReported)  # noqa: PT017
            case "resend":
                start().resend()
            case "pass" | "step":
                seconds = self.random.choice([10.0, 3600.0, DAY, 3 * DAY])
                if what == "step":
                    clock.step(self.random.choice([-seconds, seconds]))
                else:
                    clock.time += seconds
            case "publish" | "jump" | "retire":
                self.version = self.version + 1 if what != "jump" else (self.version // 10**6 + 1) * 10**6 + 1
                self.retired = ["arm-1"] if what == "retire" else self.retired
                server.body, clock.time = self._published(), clock.time + 60.0
            case "pause" | "ask":
                server.headers = {ASKS_HEADER: ASKS_NOBODY} if what == "pause" else {}
            case "away" | "back":
                server.is_down = what == "away"
            case "refuse" | "take":
                server.answer = httpx.Response(503) if what == "refuse" else None
            case "delete":
                self.device.ledger().discard(IDENTITY)
            case "erase":
                self.device.ledger().forget(IDENTITY)

    def _use(self, what: str, session: Session[Outcome]) -> None:
        kept, had = self.device.ledger().choice(IDENTITY), self.arm
        try:
            told = SESSIONS[what][1](session)
        except (InputError, TermsRefused) as error:
            assert (what, error.field) in {("report", "reward"), ("report", "spec"), ("report", "version")}  # noqa: PT017
            return
        # Sessions of before know nothing of what retires arms, or ends reports on earlier versions.
        if what == "choose" and had is not None and not (had[1] or self.retired or self.version > 10**6):
            assert told == had[0] or (session.asked and kept is None)
        if what.startswith("choose"):
            self.arm = told, what == "choose anew"


def play(folder: Path, seed: int) -> Story:
    story = Story(folder, seed)
    for _ in range(40):
        story.go_on()
    return story


def test_whatever_happens_a_person_has_what_was_promised(tmp_path: Path) -> None:
    stories = [play(tmp_path / str(seed), seed) for seed in range(STORIES)]
    assert sum(len(story.made) for story in stories) > STORIES / 4  # they are not about nothing
    assert sum(len(story.erased) for story in stories) > STORIES / 6


@pytest.mark.parametrize(
    ("owner", "name", "wrong"),
    [
        (PersonChoice, "keeps", lambda *_: 1 / 0),
        (PersonChoice, "arm", lambda *_: None),
        (PersonChoice, "standing", lambda *_, **__: None),
        (PersonChoice, "forget", lambda *_: None),
    ],
    ids=["an exception", "an arm that does not stay", "a choice that does not stand", "a choice that is not erased"],
)
def test_a_defect_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, wrong: Any) -> None:
    monkeypatch.setattr(owner, name, wrong)
    with pytest.raises((AssertionError, ZeroDivisionError)):
        deque((play(tmp_path / str(seed), seed) for seed in range(STORIES)), maxlen=0)
